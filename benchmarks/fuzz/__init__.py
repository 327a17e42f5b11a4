"""Random hostile inputs, for as long as one likes: `make fuzz`. Each module's `run_one` raises on a finding."""
