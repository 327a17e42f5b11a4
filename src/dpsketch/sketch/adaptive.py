"""Parts of a release in stages: what is shown of an adaptive part follows from the noisy sums of earlier stages, never
from exact sums. Source: docs/proofs/release.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from dpsketch.calibration import noise_variance
from dpsketch.maps.base import BoundMap, NoisyPart, Sums
from dpsketch.privacy.events import Release
from dpsketch.privacy.mechanisms import Mechanism
from dpsketch.recipe.bound_recipe import BoundRecipe


def noisy_in_stages(
    bound: BoundRecipe,
    exact: Sequence[Sums],
    event: Release | None,
    add_noise: Callable[[int, BoundMap, Sums], Sums],
    agreed: Mapping[int, BoundMap],
) -> tuple[NoisyPart, ...]:
    """Every part as a file holds it: settled, then noised; a part in `agreed` is settled beforehand. `event` states the
    noises, None where there are none.
    """
    parts: dict[int, NoisyPart] = {}
    for stage in bound.stages:
        for index in stage:
            own, variance, laplace = bound.maps[index], 0.0, False
            if event is not None:
                noise = event.noises[index]
                variance, laplace = noise_variance(noise, bound.noised[index]), noise.mechanism is Mechanism.LAPLACE
            earlier = [parts[other] for other in sorted(parts) if own.depends_on(bound.maps[other])]
            settled = agreed[index] if index in agreed else own.settle(earlier, variance)
            noisy = add_noise(index, settled, own.coarsen(exact[index], settled))
            parts[index] = NoisyPart(settled, noisy, variance, laplace)
    return tuple(parts[index].published() for index in range(len(bound.maps)))
