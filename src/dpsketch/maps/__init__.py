"""Feature maps: records to bounded integer vectors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dpsketch.public import names, resolve

if TYPE_CHECKING:
    from dpsketch.maps.fourier.fourier import Fourier as Fourier
    from dpsketch.maps.fourier.one_bit import OneBitFourier as OneBitFourier
    from dpsketch.maps.grouped import Grouped as Grouped
    from dpsketch.maps.hashed.embedding import Embedding as Embedding
    from dpsketch.maps.hashed.hashes import Euclidean as Euclidean
    from dpsketch.maps.hashed.hashes import Factor as Factor
    from dpsketch.maps.hashed.hashes import Hamming as Hamming
    from dpsketch.maps.hashed.hashes import InnerProduct as InnerProduct
    from dpsketch.maps.hashed.hashes import Manhattan as Manhattan
    from dpsketch.maps.hashed.hashes import MinHash as MinHash
    from dpsketch.maps.hashed.hashes import Product as Product
    from dpsketch.maps.hashed.hashes import SignedProjection as SignedProjection
    from dpsketch.maps.hashed.race import Race as Race
    from dpsketch.maps.moments.quadratic import Quadratic as Quadratic
    from dpsketch.maps.moments.second_moments import SecondMoments as SecondMoments
    from dpsketch.maps.subsampled import Subsampled as Subsampled
    from dpsketch.maps.tables.adaptive_marginals import AdaptiveMarginals as AdaptiveMarginals
    from dpsketch.maps.tables.adaptive_marginals import CellCounts as CellCounts
    from dpsketch.maps.tables.adaptive_pairs import AdaptivePairs as AdaptivePairs
    from dpsketch.maps.tables.contrasts import Contrasts as Contrasts
    from dpsketch.maps.tables.count import Count as Count
    from dpsketch.maps.tables.grid import Grid as Grid
    from dpsketch.maps.tables.histogram import Histogram as Histogram
    from dpsketch.maps.tables.level_counts import Levels as Levels
    from dpsketch.maps.tables.marginals import Marginals as Marginals
    from dpsketch.maps.tables.pairs import Pairs as Pairs
    from dpsketch.maps.tables.totals import Totals as Totals
    from dpsketch.maps.tables.triple_tables import Triples as Triples

__all__ = names(__name__)


def __getattr__(name: str) -> Any:
    return resolve(__name__, name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
