"""Parts of a release in stages: what is shown of an adaptive part follows from the noisy sums of earlier stages, never
from exact sums. Source: docs/proofs/release.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from dpsketch.maps.base import BoundMap, NoisyPart, Sums
from dpsketch.recipe.bound_recipe import BoundRecipe


def noisy_in_stages(
    bound: BoundRecipe,
    exact: Sequence[Sums],
    variances: Sequence[float],
    add_noise: Callable[[int, BoundMap, Sums], Sums],
    agreed: Mapping[int, BoundMap],
) -> tuple[NoisyPart, ...]:
    """Every part, settled and then noised; a part in `agreed` is settled beforehand."""
    parts: dict[int, NoisyPart] = {}
    for stage in bound.stages:
        for place in stage:
            own = bound.maps[place]
            earlier = [parts[other] for other in sorted(parts) if own.depends_on(bound.maps[other])]
            settled = agreed[place] if place in agreed else own.settle(earlier, variances[place])
            noisy = add_noise(place, settled, own.coarsen(exact[place], settled))
            parts[place] = NoisyPart(settled, noisy, variances[place])
    return tuple(parts[place] for place in range(len(bound.maps)))
