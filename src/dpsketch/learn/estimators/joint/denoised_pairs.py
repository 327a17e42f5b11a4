"""Pair tables without their noise: what is left of the dependence between columns once chance is taken out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from dpsketch.learn.estimators.joint.table_matrix import Blocks
from dpsketch.numerics.arrays import Floats
from dpsketch.numerics.tuned import BY_HAND, UNRECORDED, Tuned

COMMON_STEPS, SMOOTH_STEPS = 30, 15
# From what was found in similar tables: as near to convergence as noise asks for.
WARM_STEPS: Annotated[int, Tuned("adult, flights, cod_rna, by convergence alone", by=BY_HAND, decision=27)] = 6
BORROWED: Annotated[float, UNRECORDED] = 3.0  # prior weight, in coefficients, of the other pairs
SMALLEST = 1e-6
_SIGNS = np.array([[1.0, -1.0], [-1.0, 1.0]])


@dataclass(frozen=True)
class Dependence:
    """What the marginals do not explain of all pairs' joint shares, `found`, and the part of it that hidden causes
    explain, `common`, also of a column and itself: matrices of `Blocks` of the columns' groups.
    """

    found: Floats
    common: Floats


def find_dependence(
    tables: Mapping[tuple[int, int], Floats],
    sd: float | Floats,
    shares: Sequence[Floats],
    ordered: Sequence[bool],
    start: Floats | None = None,
) -> Dependence:
    """From noisy joint shares whose cells are off by `sd`: one number, or one for each pair of columns, as a symmetric
    matrix. `start` is the common part of similar tables.

    Rows and columns of every block add up to zero. In coordinates of
    `contrasts` noise is as before, and truth is mostly in the smooth ones. Two estimates are averaged, as they err
    in different ways: `shrink_smooth` alone, and `common_dependence` with `shrink_smooth` on the rest.
    """
    turned = _turned(tables, shares, ordered)
    noisy, known = turned.noisy, turned.known
    first = None if start is None else turned.turn.T @ start @ turned.turn
    whole = common_dependence(noisy, known, _largest(sd, tables), first)
    common = np.where(known, whole, 0.0)
    smooth = shrink_smooth(noisy, known, turned.blocks, turned.classes, sd)
    rest = shrink_smooth(noisy - common, known, turned.blocks, turned.classes, sd)
    return Dependence(*(turned.turn @ each @ turned.turn.T for each in ((smooth + common + rest) / 2, whole)))


@dataclass(frozen=True)
class Missed:
    """What `find_dependence` may have missed: the posterior distribution of `shrink_smooth` around its mean, of the
    standard deviations `sd` in coordinates that `turn` leads back from.
    """

    turn: Floats
    sd: Floats

    def draw(self, generator: np.random.Generator) -> Floats:
        """A matrix of the same blocks."""
        drawn = np.triu(self.sd * generator.normal(size=self.sd.shape))
        return self.turn @ (drawn + drawn.T) @ self.turn.T


def find_missed(
    tables: Mapping[tuple[int, int], Floats], sd: float | Floats, shares: Sequence[Floats], ordered: Sequence[bool]
) -> Missed:
    turned = _turned(tables, shares, ordered)
    kept = kept_smooth(turned.noisy, turned.known, turned.blocks, turned.classes, sd)
    return Missed(turned.turn, turned.blocks.spread(sd) * np.sqrt(kept))


def _largest(sd: float | Floats, tables: Mapping[tuple[int, int], Floats]) -> float:
    """The standard deviation of the noisiest table."""
    return sd if isinstance(sd, float) else max((float(sd[pair]) for pair in tables), default=0.0)


@dataclass(frozen=True)
class _Turned:
    """Noisy tables less those of independent columns in coordinates of `contrasts`, where `known`; `turn` leads back,
    `classes` are those of contrasts that are alike.
    """

    turn: Floats
    noisy: Floats
    known: NDArray[np.bool_]
    blocks: Blocks
    classes: NDArray[np.int64]


def _turned(tables: Mapping[tuple[int, int], Floats], shares: Sequence[Floats], ordered: Sequence[bool]) -> _Turned:
    blocks = Blocks([len(share) for share in shares])
    every = np.concatenate(shares)
    axes = [contrasts(share, scored) for share, scored in zip(shares, ordered, strict=True)]
    turn = blocks.diagonal(axes)
    turned = Blocks([axis.shape[1] for axis in axes])
    degrees = [_degrees(axis.shape[1], scored) for axis, scored in zip(axes, ordered, strict=True)]
    known = turned.known(tables)
    noisy = np.where(known, turn.T @ (blocks.matrix(tables) - np.outer(every, every)) @ turn, 0.0)
    return _Turned(turn, noisy, known, turned, np.concatenate(degrees))


def contrast_of(table: Floats) -> Floats:
    """How much more of a table of two by two is on its diagonal than off it, as a table of a single cell."""
    return (table * _SIGNS).sum(keepdims=True)


def contrasts(shares: Floats, ordered: bool) -> Floats:
    """Orthonormal vectors that add up to zero, as columns: polynomials in the groups' ranks, by degree."""
    size = len(shares)
    ranks = np.cumsum(shares) - shares / 2 if ordered else (np.arange(size) + 0.5) / size
    return np.linalg.qr(np.polynomial.legendre.legvander(2 * ranks - 1, size - 1))[0][:, 1:]


def _degrees(count: int, ordered: bool) -> NDArray[np.int64]:
    """Classes of contrasts that are alike: by degree, or all of a column without order, which has the class −1."""
    return np.arange(count) if ordered or count == 1 else np.full(count, -1)


def shrink_smooth(
    noisy: Floats, known: NDArray[np.bool_], blocks: Blocks, classes: NDArray[np.int64], sd: float | Floats
) -> Floats:
    """Posterior means of coefficients."""
    return noisy * kept_smooth(noisy, known, blocks, classes, sd)


def kept_smooth(
    noisy: Floats, known: NDArray[np.bool_], blocks: Blocks, classes: NDArray[np.int64], sd: float | Floats
) -> Floats:
    """The part of each noisy coefficient that is kept, if coefficients have variances (pair's size) · (class's size) ·
    (other class's size). Their posterior variances are this times that of the noise.

    The sizes are those under which the noisy coefficients are most likely (EM); a pair's is drawn towards the
    geometric mean of all pairs', which matters where noise hides most of them.

    Source: Efron & Morris, JASA 70 (1975) 311 (empirical Bayes); Dempster, Laird & Rubin, JRSS B 39 (1977) 1.
    """
    if not known.any():
        return np.zeros_like(noisy)
    of_pair, noise, member = np.square(sd), blocks.spread(sd) ** 2, blocks.member
    kinds, kind = np.unique(classes, return_inverse=True)
    in_pair = member.T @ known @ member
    in_kind = np.bincount(kind, known.sum(1), len(kinds))
    there = in_pair > 0
    found = member.T @ noisy**2 @ member / np.maximum(in_pair, 1) - of_pair
    pair = np.where(there, np.maximum(found, 0.1 * of_pair), 1.0)
    size, power = np.ones(len(noisy)), noisy**2
    for step in range(SMOOTH_STEPS + 1):
        sized = member * size[:, None]
        variance = sized @ pair @ sized.T
        kept = variance / (variance + noise) * known
        if step == SMOOTH_STEPS:
            break
        sums = (kept * (kept * power + noise)) @ (member / size[:, None])  # of squares and posterior variances
        usual = np.exp(np.log(pair[there]).mean())
        both = (member / size[:, None]).T @ sums
        pair = np.where(there, np.maximum((both + BORROWED * usual) / (in_pair + BORROWED), SMALLEST * of_pair), 1.0)
        relative = (sums / pair[blocks.owner]).sum(1)
        size = np.maximum((np.bincount(kind, relative, len(kinds)) / np.maximum(in_kind, 1))[kind], SMALLEST)
    return kept


def common_dependence(noisy: Floats, known: NDArray[np.bool_], sd: float, start: Floats | None = None) -> Floats:
    """What few hidden causes explain of all pairs at once. `start` is what was found in similar tables.

    In a mixture of products this matrix is the covariance of the components' shares, so of low rank and positive.
    What is not known, such as blocks on the diagonal, is filled in from the estimate; eigenvalues above the noise's
    are shrunk for least squared error. A cause that touches d columns stands out √d times more than in any one pair.
    `sd` is that of the noisiest table: with less noise in some tables, the edge of the noise's eigenvalues is lower.

    Source: Gavish & Donoho, IEEE Trans. Inf. Theory 63 (2017) 2137 (square matrices); filling in as in Mazumder, Hastie
    & Tibshirani, JMLR 11 (2010) 2287.
    """
    edge = 2 * sd * np.sqrt(max(len(noisy), 1))
    estimate = np.zeros_like(noisy) if start is None else start
    for _ in range(COMMON_STEPS if start is None else WARM_STEPS):
        filled = np.where(known, noisy, estimate)
        if not np.isfinite(filled).all():  # sums that contradict each other make the filling grow without end
            return np.zeros_like(noisy)
        values, vectors = np.linalg.eigh(filled)
        seen = values > edge
        kept = vectors[:, seen]
        estimate = (kept * np.sqrt(values[seen] ** 2 - edge**2)) @ kept.T
        if not seen.any():
            break
    return estimate
