"""Joint releases: several holders, one noisy sum, and no one who sees the sums of a single holder."""
