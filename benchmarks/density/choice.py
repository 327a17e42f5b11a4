"""The best of a method's settings, budget by budget: what the race paper reports for all methods."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

Key = tuple[str, float, float]  # method, ε, δ


@dataclass(frozen=True)
class Best:
    """A method's figures at its best setting for one budget."""

    setting: str
    figures: tuple[float, ...]

    @property
    def mean(self) -> float:
        return float(np.mean(self.figures))


@dataclass
class Settings:
    """Figures of runs by method, budget and setting."""

    higher: bool = False  # whether higher is better
    figures: dict[Key, dict[str, list[float]]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(list)), repr=False
    )

    def add(self, method: str, epsilon: float, delta: float, setting: str, figure: float) -> None:
        self.figures[method, epsilon, delta][setting].append(figure)

    def best(self) -> Iterator[tuple[Key, Best]]:
        """By the mean over runs."""
        sign = -1 if self.higher else 1
        for key, settings in self.figures.items():
            setting = min(settings, key=lambda each: sign * float(np.mean(settings[each])))
            yield key, Best(setting, tuple(settings[setting]))
