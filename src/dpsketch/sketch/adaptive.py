"""Parts of a release in stages: what is shown of an adaptive part follows from the noisy sums of earlier stages, never
from exact sums. Source: docs/proofs/release.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from dpsketch.calibration import noise_variance
from dpsketch.maps.base import BoundMap, NoisyPart, Sums
from dpsketch.privacy.events import Noise, Release
from dpsketch.privacy.mechanisms import LAPLACE_LIKE
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

    def noised(_: int, settled: Mapping[int, BoundMap]) -> list[Sums]:
        return [add_noise(index, own, bound.maps[index].coarsen(exact[index], own)) for index, own in settled.items()]

    return in_stages(bound, lambda index: None if event is None else event.noises[index], noised, agreed)


def in_stages(
    bound: BoundRecipe,
    noise_of: Callable[[int], Noise | None],
    noised: Callable[[int, Mapping[int, BoundMap]], Sequence[Sums]],
    agreed: Mapping[int, BoundMap],
) -> tuple[NoisyPart, ...]:
    """The same, with all parts of a stage at once: `noised` gets its number and the settled maps by their indices, and
    returns their noisy sums. `noise_of` states the noise of a part.
    """
    parts: dict[int, NoisyPart] = {}
    for number, stage in enumerate(bound.stages):
        settled = {}
        for index in stage:
            own = bound.maps[index]
            earlier = [parts[other] for other in sorted(parts) if own.depends_on(bound.maps[other])]
            variance, _ = _facts(noise_of(index), bound.noised[index])
            settled[index] = agreed[index] if index in agreed else own.settle(earlier, variance)
        for (index, own), sums in zip(settled.items(), noised(number, settled), strict=True):
            parts[index] = NoisyPart(own, sums, *_facts(noise_of(index), bound.noised[index]))
    return tuple(parts[index].published() for index in range(len(bound.maps)))


def _facts(noise: Noise | None, noised: BoundMap) -> tuple[float, bool]:
    """The variance of a part's noise, and whether it is Laplace noise."""
    return (0.0, False) if noise is None else (noise_variance(noise, noised), noise.mechanism in LAPLACE_LIKE)
