"""Answers from a fitted joint distribution, with standard errors from refits to new noise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from itertools import combinations
from operator import add
from typing import Annotated

import numpy as np

from dpsketch.displays import counted, listed
from dpsketch.learn.answer import Estimate, stacked
from dpsketch.learn.cell_places import codes_in_cells
from dpsketch.learn.estimators.joint import unseen
from dpsketch.learn.estimators.joint.bootstrap import REFITS, released_groups
from dpsketch.learn.estimators.joint.draws import drawn_frame
from dpsketch.learn.estimators.joint.from_release import ReleasedProducts
from dpsketch.learn.estimators.joint.one_column import PER_COLUMN, FunctionsOfOne, Single
from dpsketch.learn.estimators.joint.released_triples import OfThree, Third
from dpsketch.learn.estimators.joint.trends import Chain, Trend, chain_of
from dpsketch.learn.estimators.joint.triples import possible_pair
from dpsketch.learn.estimators.release_noise import FITTED, FLOOR, ReleaseNoise
from dpsketch.learn.factors import Factor, columns_of, merged, product_at
from dpsketch.learn.points import Frame
from dpsketch.learn.shared import Memo, made_once
from dpsketch.maps.tables.cells import Cells
from dpsketch.numerics.arrays import Floats
from dpsketch.numerics.tuned import UNRECORDED
from dpsketch.schema.columns import Category
from dpsketch.schema.schema import Schema

DRAWS = 1 << 17  # rows for functions that are no product of functions of single columns
REFIT_DRAWS = 1 << 15
BATCHES = 16
ERRORS = REFITS + BATCHES + 2  # coordinates
LUMPED: Annotated[int, UNRECORDED] = 4  # choices of single values for all cells
# Share of the refits' spread that is never attributed to chance in their draws.
LEAST_SPREAD: Annotated[float, UNRECORDED] = 0.25
COARSE = 1024  # codes that are taken as one for the main effects of functions that are no product


class ProductEstimator:
    """Expectations of products of functions of single columns are exact sums over the mixture's components; those of
    other functions are means over draws. `refits` are fits to sums of the fitted distribution with new noise.

    An estimate's influence is its change from the fit to each refit, and what the sums cannot show (`unseen`), so that
    standard errors cover noise and the bias of the fit; for draws also the change between batches of them, and for
    products what the fit may have dropped. Of several columns nothing is known better than one count would be that had
    the whole budget.
    """

    def __init__(self, schema: Schema, noise: ReleaseNoise, fitted: ReleasedProducts) -> None:
        self.columns, self.fitted = fitted.columns, fitted
        self._schema, self._noise = schema, noise
        self._single = FunctionsOfOne(schema, noise, fitted)
        self._joint = Memo(self._grouped_pair)
        self._chain = Memo(self._chain_of)
        self._between = Memo(self._between_columns)
        self._of_three = OfThree(fitted)
        self.draws = Memo(self._drawn)
        self._first = noise.reserve(
            (FITTED, REFITS),
            ("draws from the fit", BATCHES),
            (FLOOR, 1),
            ("what the tables do not show", 1),
            ("what cells hide", PER_COLUMN * len(self.columns)),
        )
        what = "contrasts of pairs" if fitted.halved else "pair tables"
        more = f", and to {counted(len(fitted.triples.tables), 'table')} of three columns" if fitted.triples else ""
        self.how = f"mixture of products fitted to {len(fitted.pairs)} {what} and the marginals{more}"
        if len(fitted.columns) == 1:
            self.how = f"smooth marginal of {fitted.columns[0]}"

    def cells_of(self, column: str) -> Cells | None:
        return self.fitted.cells[self.columns.index(column)] if column in self.columns else None

    def pooled(self, factors: Sequence[Factor]) -> tuple[str, ...]:
        """Labels that the functions tell apart although pair tables count them as one: a line for each column."""
        lines = []
        for factor in merged(factors):
            column = self._schema.column(factor.columns[0]) if len(factor.columns) == 1 else None
            if self.fitted.halved or len(self.columns) == 1 or not isinstance(column, Category):
                continue
            index, names = self.columns.index(column.name), [*column.labels, "missing"]
            every, groups = np.arange(len(names)), self.fitted.products.groups[index]
            codes = codes_in_cells(self.fitted.cells[index], every, np.zeros(len(names)))
            values = factor.at(Frame(self._schema, {column.name: codes}))
            inside = [every[groups == group] for group in np.unique(groups)]
            mixed = [own for own in inside if (values[:, own] != values[:, own[:1]]).any()]
            if mixed:
                texts = (listed([names[cell] for cell in own]) for own in mixed)
                lines.append(f"counted as one group of {column.name} in the pair tables: {'; '.join(texts)}")
        return tuple(lines)

    def expect(self, *products: Sequence[Factor]) -> Estimate:
        return stacked([self._sum(factors) for factors in products])

    def _sum(self, factors: Sequence[Factor]) -> Estimate:
        """A product, or the sum of products that one of its factors stands for."""
        for place, factor in enumerate(factors):
            if factor.terms:
                others = [*factors[:place], *factors[place + 1 :]]
                return reduce(add, (self._sum([*others, *term]) for term in factor.terms))
        return self._expect(merged(factors))

    def _expect(self, factors: Sequence[Factor]) -> Estimate:
        if any(len(factor.columns) > 1 for factor in factors):
            return self._by_draws(factors)
        singles = [self._single.of(factor) for factor in factors]
        means = [single.means[0] for single in singles]
        third = self._third_order(factors, singles, means)
        trends = self._trends(factors, singles)
        found = self._found(factors, singles, trends) + third.added
        changes = _refit_changes(found)
        variances = [single.variances for single in singles]
        hidden = self._hidden_pairs(factors, singles, means) + third.guessed**2 + third.left
        for pair, trend in trends.items():
            hidden = hidden + (trend.doubt * _product(_others(means, pair))) ** 2
        if len(factors) > 2:
            several = np.maximum(unseen.of_several(means, variances) - third.seen, 0.0)
            hidden = hidden + (unseen.MORE * self._dependence_of(columns_of(factors))) ** 2 * several
        apart = self._without_table([factor.columns for factor in factors])
        if apart:
            hidden = hidden + self._usual**2 * unseen.unmeasured(means, variances, apart)
        changes[:, -1] = np.sqrt(hidden)
        unsure = np.zeros((len(changes), len(self.columns), PER_COLUMN))
        for place, (factor, single) in enumerate(zip(factors, singles, strict=True)):
            if factor.columns:
                others = np.broadcast_to(_product(means[:place] + means[place + 1 :]), len(changes))
                unsure[:, self.columns.index(factor.columns[0])] = single.unsure * others[:, None]
        changes[:, -1] = np.sqrt(changes[:, -1] ** 2 + unseen.both_unsure(means, [single.unsure for single in singles]))
        if len(factors) > 1:
            self._raise(changes, _product([single.sizes for single in singles]))
        return self._estimate(found[0], np.hstack([changes, unsure.reshape(len(changes), -1)]), len(factors) > 1)

    def _trends(self, factors: Sequence[Factor], singles: Sequence[Single]) -> dict[tuple[int, int], Trend]:
        """What pairs of functions with a pair table gain inside groups, by their places among the factors."""
        named = [(self.columns.index(each.columns[0]), at) for at, each in enumerate(factors) if each.columns]
        return {
            (first, second): self._trend((i, j), singles[first], singles[second])
            for (i, first), (j, second) in combinations(sorted(named), 2)
            if (i, j) in self.fitted.products.pairs
        }

    def _trend(self, pair: tuple[int, int], one: Single, two: Single) -> Trend:
        found = Trend(np.zeros((1, 1)), np.zeros(1))
        for column, this, other, turned in ((pair[0], one, two, False), (pair[1], two, one, True)):
            chain = self._chain(column)
            if chain is not None:
                tables = [model.pairs[pair].T if turned else model.pairs[pair] for model in self.fitted.models]
                found = found + chain.trend(this.cells, other.values, tables)
        return found

    def _chain_of(self, column: int) -> Chain | None:
        products = self.fitted.products
        return chain_of(products.marginals[column], products.groups[column], products.shares[column])

    def _found(
        self,
        factors: Sequence[Factor],
        singles: Sequence[Single],
        trends: Mapping[tuple[int, int], Trend],
    ) -> Floats:
        """Means of products: entry [model, function]. Those of two columns follow their pair table. Of more, the
        mixtures are asked, and what they leave of each pair table is added, times the means of the other functions.
        """
        means = [single.means for single in singles]
        named = sorted(
            (self.columns.index(factor.columns[0]), at) for at, factor in enumerate(factors) if factor.columns
        )
        pairs = {
            (first, second): self._of_pair((i, j), singles[first], singles[second]) + trends[first, second].gained
            for (i, first), (j, second) in combinations(named, 2)
            if (i, j) in self.fitted.products.pairs
        }
        if len(named) < 2 or (len(named) == 2 and pairs):
            return _product([np.ones((1, 1)), *pairs.values(), *_others(means, [at for pair in pairs for at in pair])])
        inside = {at: self._in_components(column, singles[at]) for column, at in named}
        found = reduce(np.multiply, inside.values(), self._weights).sum(2) * _product(_others(means, list(inside)))
        for pair, table in pairs.items():
            mixed = (inside[pair[0]] * inside[pair[1]] * self._weights).sum(2)
            found = found + (table - mixed) * _product(_others(means, pair))
        return found

    def _of_pair(self, pair: tuple[int, int], one: Single, two: Single) -> Floats:
        rows = [values @ model.pairs[pair] for values, model in zip(one.values, self.fitted.models, strict=True)]
        return np.asarray((np.stack(rows) * two.values).sum(2))

    def _in_components(self, column: int, single: Single) -> Floats:
        """Means in the mixtures' components: entry [model, function, component]."""
        mixtures = zip(single.values, self.fitted.mixtures, strict=True)
        return np.stack([values @ mixture.shares[column].T for values, mixture in mixtures])

    def _third_order(self, factors: Sequence[Factor], singles: Sequence[Single], means: Sequence[Floats]) -> Third:
        """What is added for every three of the columns, times the means of the other functions."""
        found = Third(np.zeros((1, 1)), np.zeros(1), np.zeros(1), np.zeros(1))
        named = sorted((self.columns.index(each.columns[0]), at) for at, each in enumerate(factors) if each.columns)
        for (i, one), (j, two), (k, three) in combinations(named, 3):
            own, others = [singles[at] for at in (one, two, three)], _product(_others(means, (one, two, three)))
            values, cells = [each.values[0] for each in own], [each.cells for each in own]
            third = self._of_three.third_order((i, j, k), values, cells)
            times = (others, others, others**2, others**2)
            found = Third(*(every + part * other for every, part, other in zip(found, third, times, strict=True)))
        return found

    def _hidden_pairs(self, factors: Sequence[Factor], singles: Sequence[Single], means: Sequence[Floats]) -> Floats:
        """What groups of cells may hide of each pair of columns, times the means of the other functions."""
        hidden = np.zeros(1)
        named = [index for index, factor in enumerate(factors) if factor.columns]
        for one, two in combinations(named, 2):
            others = _product(_others(means, (one, two)))
            first, second = (self.columns.index(factors[index].columns[0]) for index in (one, two))
            joint, least = self._joint((first, second)), unseen.USUAL * self.fitted.halved
            variance = unseen.inside_groups(joint, singles[one].groups, singles[two].groups, least)
            variance = variance + self._undetected**2 * singles[one].variances * singles[two].variances
            hidden = hidden + variance * others**2
        return hidden

    def _grouped_pair(self, columns: tuple[int, int]) -> Floats:
        ordered = min(columns), max(columns)
        if ordered in self.fitted.products.pairs:
            table = possible_pair(self.fitted.products, ordered)
            return table if ordered == columns else table.T
        return self._mixed_pair(columns)

    def _mixed_pair(self, columns: tuple[int, int]) -> Floats:
        mixture = self.fitted.mixture
        if not self.fitted.halved:
            return mixture.grouped_pair(*columns)
        one, two = (released_groups(mixture.shares[j], mixture.groups[j], self.fitted.halves[j]) for j in columns)
        return (one * mixture.weights[:, None]).T @ two

    @made_once
    def _undetected(self) -> float:
        """0 for pair tables, whose refits show what noise hides."""
        return unseen.undetected(self.fitted.pair_sd, len(self.columns)) if self.fitted.halved else 0.0

    @made_once
    def _dependence(self) -> float:
        """The usual dependence of two columns of the release."""
        found = [self._between(pair) for pair in self.fitted.pairs]
        return float(np.sqrt(np.mean(np.square(found)))) if found else 0.0

    def _dependence_of(self, columns: Sequence[str]) -> float:
        """That of these columns, at least the usual one: three columns of which pairs depend much on each other may do
        so together, as the distance of flights follows from both airports.
        """
        places = sorted(self.columns.index(name) for name in columns)
        found = [self._between(pair) for pair in combinations(places, 2)]
        return max(self._dependence, float(np.sqrt(np.mean(np.square(found)))))

    def _between_columns(self, pair: tuple[int, int]) -> float:
        return unseen.dependence(self._mixed_pair(pair))

    def _without_table(self, columns: Sequence[tuple[str, ...]]) -> list[tuple[int, int]]:
        """Places of those among `columns`, one or none in each, that the release has no pair table of."""
        places = [self.columns.index(names[0]) if names else None for names in columns]
        return [
            (one, two)
            for (one, i), (two, j) in combinations(enumerate(places), 2)
            if i is not None and j is not None and (min(i, j), max(i, j)) not in self.fitted.pairs
        ]

    @made_once
    def _usual(self) -> float:
        return unseen.usual_dependence(self.fitted.mixture, self.fitted.pairs)

    @made_once
    def _weights(self) -> Floats:
        """Weights of the components: entry [model, 0, component]."""
        return np.stack([mixture.weights for mixture in self.fitted.mixtures])[:, None, :]

    def _by_draws(self, factors: Sequence[Factor]) -> Estimate:
        each = [factor.at(self.draws(0)) for factor in factors]
        values = _product(each)
        mean = values.mean(1)
        batches = values[:, : values.shape[1] // BATCHES * BATCHES].reshape(len(values), BATCHES, -1).mean(2)
        chance = (batches - batches.mean(1, keepdims=True)) / np.sqrt(BATCHES * (BATCHES - 1))
        refits = [product_at(factors, self.draws(model)).mean(1) for model in range(1, len(self.fitted.models))]
        changes = unseen.DRAWN * _refit_changes(np.stack([mean, *refits]))
        spread = (changes**2).sum(1)
        by_chance = unseen.DRAWN**2 * (chance**2).sum(1) * (1 + DRAWS / REFIT_DRAWS)
        kept = np.maximum(1 - by_chance / np.maximum(spread, 1e-300), LEAST_SPREAD)
        changes *= np.sqrt(kept)[:, None]
        changes[:, REFITS:-2] = chance
        changes[:, -1] = self._unseen(factors)
        largest = [np.abs(values).max(1) for values in each]
        self._raise(changes, _product([np.where(size > 0, size, 1.0) for size in largest]))  # 0: no draw met it
        return self._estimate(mean, np.hstack([changes, self._hidden(factors)]), True)

    def _hidden(self, factors: Sequence[Factor]) -> Floats:
        """What cells hide, in PER_COLUMN coordinates a column: the change if all draws of a cell sat on one of its
        values, the root mean square over a few choices of them.
        """
        generator, every = np.random.default_rng(len(self.columns)), self.draws(0)
        codes = {name: every.codes(name)[:REFIT_DRAWS] for name in columns_of(factors)}
        drawn = Frame(self._schema, codes)
        mean = product_at(factors, drawn).mean(1)
        found = np.zeros((len(mean), len(self.columns), PER_COLUMN))
        for name in codes:
            column = self.columns.index(name)
            cells, shares = self.fitted.cells[column], self.fitted.products.marginals[column].shares
            rows = max(float(self._noise.rows().value), 1.0)
            lumps = float(self.fitted.lumps[column].likely_in(shares, rows) @ shares)
            if lumps > 0 and cells.binned:
                own = cells.cells(codes[name])
                steps = generator.random((LUMPED, cells.count))[:, own]
                moved = [Frame(self._schema, codes | {name: codes_in_cells(cells, own, step)}) for step in steps]
                changes = np.stack([product_at(factors, frame).mean(1) - mean for frame in moved])
                found[:, column, -1] = np.sqrt(lumps * np.mean(changes**2, axis=0))
        return found.reshape(len(mean), -1)

    def _unseen(self, factors: Sequence[Factor]) -> Floats:
        """As of products of single columns, but the parts of two and of more columns are not told apart."""
        columns = columns_of(factors)
        values = product_at(factors, self._independent)
        left = values.var(1)
        for name in columns:
            _, place, count = np.unique(
                self._independent.codes(name) // COARSE, return_inverse=True, return_counts=True
            )
            means = np.stack([np.bincount(place, row) / count for row in values])
            left -= (means - values.mean(1)[:, None]) ** 2 @ (count / count.sum())
        share = max(unseen.PAIRS, self._undetected)
        if len(columns) > 2:
            share = unseen.MORE * self._dependence_of(columns)
        if self._without_table([(name,) for name in columns]):
            share = self._usual
        return share * np.sqrt(np.maximum(left, 0.0))

    def _raise(self, changes: Floats, sizes: Floats) -> None:
        """Errors to at least those of a count that had the whole budget, times the largest value of each function."""
        least = self._noise.of_a_count / max(float(self._noise.rows().value), 1.0) * sizes
        changes[:, -2] = np.sqrt(np.maximum(least**2 - (changes**2).sum(1), 0.0))

    def _estimate(self, value: Floats, changes: Floats, several: bool) -> Estimate:
        """Estimates with these changes in this estimator's own coordinates, of `several` columns or one."""
        return Estimate(value, np.hstack([np.zeros((len(changes), self._first)), changes]), several)

    def _drawn(self, model: int) -> Frame:
        """Rows drawn from the fit (model 0) or a refit; always the same."""
        rows = DRAWS if model == 0 else REFIT_DRAWS
        products = self.fitted.with_mixture(model)
        return drawn_frame(self._schema, self.fitted.cells, products, products.mixture.sample(rows, model), model)

    @made_once
    def _independent(self) -> Frame:
        """The draws with every column shuffled by itself."""
        generator = np.random.default_rng(len(self.columns))
        drawn = self.draws(0)
        return Frame(self._schema, {name: generator.permutation(drawn.codes(name)) for name in self.columns})


def _product(singles: Sequence[Floats]) -> Floats:
    return reduce(np.multiply, singles, np.ones(1))


def _others(singles: Sequence[Floats], places: Sequence[int]) -> list[Floats]:
    """Those at other places."""
    return [each for place, each in enumerate(singles) if place not in places]


def _refit_changes(found: Floats) -> Floats:
    """From the estimates of the fit (first row) and of each refit to changes in `ERRORS` coordinates."""
    changes = np.zeros((found.shape[1], ERRORS))
    changes[:, : len(found) - 1] = ((found[1:] - found[0]) / np.sqrt(max(len(found) - 1, 1))).T
    return changes
