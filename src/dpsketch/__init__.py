"""One private pass over a table, one release with differential privacy, unlimited questions afterwards."""

from dpsketch.engines.local import Local, accumulate
from dpsketch.errors import DpsketchError
from dpsketch.learn.answer import Answer
from dpsketch.learn.view import View
from dpsketch.learn.view import open_view as open
from dpsketch.maps.count import Count
from dpsketch.maps.fourier import Fourier
from dpsketch.maps.histogram import Histogram
from dpsketch.privacy.budget import Budget
from dpsketch.privacy.ledger import Ledger
from dpsketch.recipe import Part, Recipe
from dpsketch.schema import Schema
from dpsketch.sketch.raw import RawSketch
from dpsketch.sketch.release import release
from dpsketch.sketch.released import ReleasedSketch

__all__ = [
    "Answer",
    "Budget",
    "Count",
    "DpsketchError",
    "Fourier",
    "Histogram",
    "Ledger",
    "Local",
    "Part",
    "RawSketch",
    "Recipe",
    "ReleasedSketch",
    "Schema",
    "View",
    "accumulate",
    "open",
    "release",
]
