"""Attack a recipe's own releases: does adding or replacing one person reveal more than the budget allows?

The attacker knows everything except which of two neighbouring tables was released, and uses the most powerful test
statistic, the log-likelihood ratio of the noise. The attack's success rate gives a lower bound on the actual ε, with a
stated confidence. A bound above the budget proves an error; a bound far below it proves nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from fractions import Fraction
from functools import cached_property
from math import exp, log, sqrt
from typing import Any

import numpy as np
from scipy.special import expit, ndtr, ndtri
from scipy.stats import beta, norm

from dpsketch.encoding.records import IdSets, Records, concatenated
from dpsketch.engines.row_sampling import kept_rows
from dpsketch.errors import BudgetError, RecipeError
from dpsketch.maps.base import BoundMap, Sums
from dpsketch.noise.keystream import Keystream, Stream
from dpsketch.numerics.arrays import Floats
from dpsketch.privacy.budget import Budget
from dpsketch.privacy.events import Release
from dpsketch.privacy.mechanisms import MECHANISMS
from dpsketch.recipe.recipe import Recipe, declared_rows
from dpsketch.schema.columns import HIGHEST, LOWEST, MISSING
from dpsketch.schema.relation import Relation
from dpsketch.schema.schema import Schema
from dpsketch.sketch.circumstances import audited_digest
from dpsketch.sketch.raw import empty_sums
from dpsketch.sketch.release import noisy_sums
from dpsketch.sketch.released import library_version

CONFIDENCE = 0.9999
_CANDIDATES = 64
_THRESHOLDS = 200
_MOST_SIZE = 1 << 16  # most sums of a recipe that an audit can draw many times
_IMPOSSIBLE = 1e6  # a log-likelihood ratio that no noise reaches
_MOST_MULTIPLE = 100.0  # largest multiple of a release's claim that is tried
_STEPS = 50  # steps of a bisection
_CHUNK = 1000  # releases evaluated together


@dataclass(frozen=True)
class Audit:
    """The result of an attack on `draws` releases. `lower_bound` is on ε, or on ρ for a budget of ρ.

    `unsettled` names the maps of which a release chooses what it shows: their sums were attacked with all levels, cells
    and groups apart, and the choice was not.
    """

    budget: Budget
    lower_bound: float
    draws: int
    confidence: float = CONFIDENCE
    unsettled: tuple[str, ...] = ()
    audited: str = ""  # digest of the recipe, the neighbouring relation and the mechanism

    @property
    def claimed(self) -> float:
        return float(self.budget.rho if self.budget.rho is not None else self.budget.epsilon or 0)

    @property
    def violated(self) -> bool:
        return self.lower_bound > self.claimed

    def to_dict(self) -> dict[str, Any]:
        return {
            "date": datetime.now(UTC).date().isoformat(),
            "library": library_version(),
            "audited": self.audited,
            "budget": str(self.budget),
            "lower_bound": self.lower_bound,
            "confidence": self.confidence,
            "draws": self.draws,
            "violated": self.violated,
            "unsettled": list(self.unsettled),
        }

    def __str__(self) -> str:
        name = "rho" if self.budget.rho is not None else "epsilon"
        evidence = f"{self.draws} releases prove that {name} is at least {self.lower_bound:.3f}"
        verdict = "VIOLATED: the releases reveal more than they claim" if self.violated else "consistent with the claim"
        if self.lower_bound == 0:
            verdict = "too few draws to tell"
        text = f"Claimed {self.budget}; {evidence}, with confidence {self.confidence:.2%}: {verdict}."
        if self.unsettled:
            text += f" Attacked as raw sums, without the choice of cells or groups: {', '.join(self.unsettled)}."
        return text


def audit(recipe: Recipe, schema: Schema, budget: Budget, draws: int = 100_000, mechanism: str = "auto") -> Audit:
    """Release two worst-case neighbouring tables `draws` times in all, half of them each, and bound the budget from
    below.

    Guarantee: if the releases keep their budget, `violated` is true with a probability of at most 1 − `confidence`.
    Source: docs/proofs/audit.md.
    """
    if not budget.private:
        raise BudgetError("there is nothing to audit without privacy", "pass a finite epsilon, or rho")
    schema = replace(schema, rows=declared_rows(schema, recipe.rows or schema.rows or 100))
    bound = recipe.bind(schema)
    maps = bound.noised
    if sum(bound.size for bound in maps) > _MOST_SIZE:
        raise RecipeError(
            f"an audit draws whole releases, of at most {_MOST_SIZE} sums",
            "audit the recipe with smaller sizes: the noise follows from them by the same rule",
        )
    event = bound.calibrated(budget, mechanism)
    worlds = _worst_neighbours(schema, recipe, maps, event)
    with Keystream() as stream:
        first, second = (_scores(world, worlds, event, draws // 2, stream) for world in worlds)
    unsettled = tuple(own.description.name for own in bound.maps if own.adaptive)
    found = lower_bound(event, first, second)
    return Audit(budget, found, draws, unsettled=unsettled, audited=audited_digest(recipe, schema, mechanism))


@dataclass(frozen=True)
class _World:
    """The possible contributions of one of two neighbouring tables to the sums: `units`, each with a probability.

    A table is described by the sketched units in which it may differ from its neighbour.
    """

    maps: tuple[BoundMap, ...]
    units: tuple[tuple[Fraction, Records | None], ...]

    @property
    def secret(self) -> bool:
        return any(feature_map.secret for feature_map in self.maps)

    @cached_property
    def known(self) -> list[tuple[float, list[Sums]]]:
        """The sums that the attacker considers, with weights; for masked maps, some random examples of them."""
        weighted = []
        for share, unit in self.units:
            examples = _CANDIDATES if self.secret and unit is not None else 1
            weighted += [(float(share) / examples, _sums(self.maps, unit)) for _ in range(examples)]
        return weighted

    def draws(self, count: int, stream: Stream) -> Iterator[list[Sums]]:
        """Exact sums of `count` tables, with fresh masks and a fresh sample."""
        fixed = [_sums(self.maps, unit) for _, unit in self.units]
        for index in self._chosen(count, stream):
            yield _sums(self.maps, self.units[index][1]) if self.secret else fixed[index]

    def _chosen(self, count: int, stream: Stream) -> list[int]:
        """The unit in each table: the first with its probability, which `kept_rows` draws, else the second."""
        if len(self.units) == 1:
            return [0] * count
        kept = np.ones(count, np.int64)
        kept[kept_rows(count, round(self.units[0][0] * 2**32), stream)] = 0
        return kept.tolist()


def _sums(maps: Sequence[BoundMap], unit: Records | None) -> list[Sums]:
    sums = [empty_sums(feature_map, 1) for feature_map in maps]
    if unit is not None:
        for feature_map, part in zip(maps, sums, strict=True):
            feature_map.accumulate(replace(unit, secret=Keystream()) if feature_map.secret else unit, part)
    return sums


def _worst_neighbours(
    schema: Schema, recipe: Recipe, maps: tuple[BoundMap, ...], event: Release
) -> tuple[_World, _World]:
    """The pair of neighbouring tables with the highest cost, among some random and extreme units."""
    rows = schema.rows_per_unit or 1
    records = _records(schema, recipe)
    units: list[Records | None] = [concatenated([record] * rows) for record in records]
    if rows > 1:  # a replaced unit may have fewer rows
        units.append(records[0])
    sampling = recipe.sampling
    exchanged = schema.relation is Relation.REPLACE_ONE
    if exchanged and (recipe.only is not None or sampling is not None):
        units.append(None)  # a replaced row may drop out of the sketched rows
    full = sampling is not None and sampling.count is not None and not exchanged
    sums = [_sums(maps, unit) for unit in units]
    if exchanged or full:
        pairs = [(one, two) for one in range(len(units)) for two in range(one)]
        one, two = max(pairs, key=lambda pair: _cost(event, maps, sums[pair[0]], sums[pair[1]]))
        first, second = units[one], units[two]
    else:
        nothing = _sums(maps, None)
        first, second = None, units[max(range(len(units)), key=lambda two: _cost(event, maps, nothing, sums[two]))]
    if full and sampling is not None and sampling.count is not None:
        # The neighbours are a full sample of rows like the first, and one with an additional row like the second, which
        # replaces one of them or is not sampled. The remaining rows are the same in both and left out of the sums.
        taken = Fraction(sampling.count, sampling.count + 1)
        return _World(maps, ((Fraction(1), first),)), _World(maps, ((taken, second), (1 - taken, first)))
    rate = Fraction(1) if sampling is None or sampling.count is not None else sampling.exact_rate
    if rate == 1:
        return _World(maps, ((rate, first),)), _World(maps, ((rate, second),))
    return _World(maps, ((rate, first), (1 - rate, None))), _World(maps, ((rate, second), (1 - rate, None)))


def _records(schema: Schema, recipe: Recipe) -> list[Records]:
    """Candidate records: missing, along one column, at the ends of all columns, and random. They need not be secret."""
    random = np.random.default_rng(0)
    columns = len(schema.scalars)
    quarter = _CANDIDATES // 4
    codes = random.integers(LOWEST, HIGHEST + 1, (_CANDIDATES, columns))
    codes[: 2 * quarter] = random.choice([LOWEST, HIGHEST], (2 * quarter, columns))
    codes[:quarter] = HIGHEST * np.eye(quarter, columns, dtype=int)
    codes[-1] = MISSING
    if recipe.only is not None:
        level = np.array([recipe.only.level(schema)])
        codes[:, schema.index(recipe.only.column)] = schema.column(recipe.only.column).codes_of(level)
    return [Records(row.astype(np.int16)[:, None].copy(), _sets(schema, random)) for row in codes]


def _sets(schema: Schema, random: np.random.Generator) -> dict[str, IdSets]:
    sets = {}
    for column in schema.sets:
        ids = np.unique(random.integers(0, column.universe, 1 + random.integers(20))).astype(np.int32)
        sets[column.name] = IdSets(np.array([0, len(ids)]), ids)
    return sets


def _cost(event: Release, maps: Sequence[BoundMap], one: list[Sums], two: list[Sums]) -> float:
    """Distance between the sums of two tables, in scales of the noises: larger means easier to distinguish."""
    total = 0.0
    for noise, feature_map, a, b in zip(event.noises, maps, one, two, strict=True):
        if noise.sensitivity == 0:
            total += _IMPOSSIBLE * bool((a != b).any())
        else:
            length = MECHANISMS[noise.mechanism].length((a - b).astype(np.float64)[None], feature_map.groups)
            total += float(length[0]) / float(noise.scale)
    return total


def _scores(world: _World, worlds: tuple[_World, _World], event: Release, draws: int, stream: Stream) -> Floats:
    """Log-likelihood ratios of the second table to the first, in releases of one of them."""
    scores = []
    for start in range(0, draws, _CHUNK):
        count = min(_CHUNK, draws - start)
        noisy = [np.empty((count, feature_map.size)) for feature_map in world.maps]
        for draw, exact in enumerate(world.draws(count, stream)):
            for rows, sums in zip(noisy, noisy_sums(event, world.maps, exact, stream), strict=True):
                rows[draw] = sums
        one, two = (_log_density(event, each, noisy) for each in worlds)
        scores.append(two - one)
    return np.concatenate(scores)


def _log_density(event: Release, world: _World, noisy: Sequence[Floats]) -> Floats:
    """Log density of the noisy sums, one row per release, up to a constant."""
    terms = [log(share) + _log_densities(event, world.maps, noisy, sums) for share, sums in world.known]
    density: Floats = np.logaddexp.reduce(terms)
    return density


def _log_densities(event: Release, maps: Sequence[BoundMap], noisy: Sequence[Floats], exact: Sequence[Sums]) -> Floats:
    """Log density of the noises that explain the noisy sums, one row per release, up to a constant."""
    total = np.zeros(len(noisy[0]))
    for noise, feature_map, rows, sums in zip(event.noises, maps, noisy, exact, strict=True):
        if noise.sensitivity == 0:  # no noise was added, so any other sums are impossible
            total -= _IMPOSSIBLE * (rows != sums).any(axis=1)
            continue
        total += MECHANISMS[noise.mechanism].log_density(rows - sums, feature_map.groups, float(noise.scale))
    return total


def lower_bound(event: Release, outside: Floats, inside: Floats, confidence: float = CONFIDENCE) -> float:
    """The largest ε (or ρ) that the two samples of scores prove, over thresholds in both directions.

    The threshold is chosen on the first halves and evaluated on the second. A release with Gaussian noise claims more
    than (ε, δ): a pair of distributions that is at least as easy to distinguish (`_GaussianClaim`). If all noise is
    Gaussian, the pair is bounded and converted to ε. If only some is, this is done only where the scores contradict the
    claim.
    """
    half = min(len(inside), len(outside)) // 2
    delta = 0.0 if event.budget.rho is not None else event.budget.delta
    claim = _GaussianClaim.of(event)
    bounds = 2 if claim and claim.pure else 1
    alpha = (1 - confidence) / (4 * bounds)  # each has two directions and two limits

    def proven(bound: Callable[[Floats, Floats], Floats], hits: Floats, false: Floats) -> Floats:
        """The proven bound from the numbers of hits and false alarms among `half` guesses, by
        Clopper–Pearson limits.
        """
        low, high = beta.ppf(alpha, hits, half - hits + 1), beta.ppf(1 - alpha, false + 1, half - false)
        known = (hits > 0) & (false < half) & (low > delta)
        return np.where(known, np.maximum(bound(np.where(known, low, 0.5), np.where(known, high, 0.5)), 0), 0)

    def best(bound: Callable[[Floats, Floats], Floats]) -> float:
        largest = 0.0
        for one, two in ((inside, outside), (-outside, -inside)):
            thresholds = np.unique(np.quantile(one[:half], np.linspace(0.001, 0.999, _THRESHOLDS), method="lower"))
            train = proven(bound, _reached(one[:half], thresholds), _reached(two[:half], thresholds))
            chosen, rest = thresholds[[np.argmax(train)]], slice(half, 2 * half)
            judged = proven(bound, _reached(one[rest], chosen), _reached(two[rest], chosen))
            largest = max(largest, float(judged[0]))
        return largest

    if claim is not None:
        claimed = claim.budget(best(claim.multiple), event.budget)
        if not claim.pure or claimed > (event.budget.epsilon or 0):
            return claimed
    return best(lambda hits, false: np.log((hits - delta) / false))


def _reached(scores: Floats, thresholds: Floats) -> Floats:
    """The number of scores that reach each threshold."""
    return (len(scores) - np.searchsorted(np.sort(scores), thresholds)).astype(float)


@dataclass(frozen=True)
class _GaussianClaim:
    """A pair of distributions that is at least as easy to distinguish as releases with some Gaussian noise.

    Each is a normal number beside a coin. The normal means are `distance` apart. One coin has odds of e^`pure`, the
    other the inverse odds. Source: docs/proofs/audit.md.
    """

    pure: float
    distance: float

    @classmethod
    def of(cls, event: Release) -> _GaussianClaim | None:
        """The claim of a release; None without Gaussian noise, and for a sample of the rows, whose pair has another
        shape.
        """
        square = event.ratio_squared
        if event.rate is not None or not square:
            return None
        return cls(float(sum(noise.epsilon or 0 for noise in event.noises)), sqrt(square))

    def multiple(self, hits: Floats, false: Floats) -> Floats:
        """The smallest multiple of `pure` and `distance` that allows a test with these rates of hits
        and false alarms.
        """
        if not self.pure:
            normal: Floats = (ndtri(hits) - ndtri(false)) / self.distance
            return normal
        low, high = np.zeros_like(hits), np.full_like(hits, _MOST_MULTIPLE)
        for _ in range(_STEPS):
            middle = (low + high) / 2
            enough = self._most_hits(middle, false) >= hits
            low, high = np.where(enough, low, middle), np.where(enough, middle, high)
        return low

    def _most_hits(self, multiple: Floats, false: Floats) -> Floats:
        """The hit rate of the best test with this false alarm rate.

        The test compares the log-likelihood ratio with a threshold, which is determined by bisection.
        """
        pure, distance = multiple * self.pure, multiple * self.distance
        mean, heads = distance**2 / 2, expit(pure)

        def reached(threshold: Floats, side: int) -> Floats:
            """Probability that the ratio reaches the threshold in the second distribution (side 1) or the first (side
            -1).
            """
            one, two = (ndtr((side * (mean + coin * pure) - threshold) / distance) for coin in (1, -1))
            rate: Floats = heads * one + (1 - heads) * two
            return rate

        high = pure + mean + 40 * distance
        low = -high
        for _ in range(_STEPS):
            middle = (low + high) / 2
            more = reached(middle, -1) > false
            low, high = np.where(more, middle, low), np.where(more, high, middle)
        return reached(low, 1)

    def budget(self, multiple: float, budget: Budget) -> float:
        """The ε at which this multiple of the pair needs the budget's δ (Balle and Wang 2018), or its ρ."""
        pure, distance = multiple * self.pure, multiple * self.distance
        if budget.rho is not None:
            return distance**2 / 2
        heads = float(expit(pure))

        def normal(epsilon: float) -> float:
            side = epsilon / distance
            return float(norm.cdf(distance / 2 - side) - exp(epsilon + norm.logcdf(-distance / 2 - side)))

        def spent(epsilon: float) -> float:
            return heads * normal(epsilon - pure) + (1 - heads) * normal(epsilon + pure)

        if distance <= 0 or spent(0.0) <= budget.delta:
            return 0.0
        low, high = 0.0, 1.0
        while spent(high) > budget.delta:
            low, high = high, 2 * high
        for _ in range(_STEPS):
            middle = (low + high) / 2
            low, high = (middle, high) if spent(middle) > budget.delta else (low, middle)
        return low
