"""The paper's auction, repaired and as published, on the same draws."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from benchmarks.market.case import Case
from dpsketch.federate.market.ask_curve import published_curve
from dpsketch.federate.market.auction import Outcome, auction
from dpsketch.federate.market.auction_cost import as_published, auction_plan
from dpsketch.federate.market.feature_hash import Features
from dpsketch.federate.market.market_roles import parsimony
from dpsketch.federate.market.sold_rows import Rows
from dpsketch.federate.market.stratum_sums import noisy_means
from dpsketch.sketch.auction_draws import auction_draws

GRID = 20
SEEDS = 150


def seeds_of(case: Case) -> Features:
    """Public seed points: Ohio's, or for digits random rows of all owners that are taken out of nothing else."""
    if case.study.seed_rows is not None:
        return Rows.read(case.terms, case.study.seed_rows, labelled=False).features
    rng = np.random.default_rng(case.seed)
    points = rng.random((SEEDS, len(case.terms.hashed.columns)))
    return case.terms.hashed(points)


def repaired(case: Case, size: int, first: int = 0, later: int = 5) -> tuple[Outcome, float]:
    """The calibrated auction at (1, 1e-5), and its parsimony."""
    plan = auction_plan(size, len(case.rows), 1.0, 1e-5, first, later)
    target = noisy_means(case.target, case.terms.hashed).means[0]
    with auction_draws(2 * GRID) as draws:
        outcome = auction(_features(case), target, seeds_of(case), plan, draws, grid=GRID)
    return outcome, parsimony(outcome.accessed, size, len(case.validation))


def published(case: Case, size: int) -> tuple[Outcome, float]:
    """The paper's own form: its curve with ε = K^(−1/3), its steps, choices by e^ψ and noise for sums of
    sensitivity 1.
    """
    owners = len(case.rows)
    facts = as_published(size, owners ** (-1 / 3))
    plan = auction_plan(size, owners, 1.0, 1e-5, facts.first, facts.later)
    epsilons = (
        Fraction(facts.first_epsilon).limit_denominator(10**6),
        Fraction(facts.later_epsilon).limit_denominator(10**6),
    )
    curve = published_curve(owners, facts.ask_epsilon)
    target = case.validation.features.mean(axis=0, dtype=np.float64)
    with auction_draws(2 * GRID) as draws:
        patience = round(owners ** (1 / 3))
        outcome = auction(
            _features(case), target, seeds_of(case), plan, draws, patience, GRID, published=curve, epsilons=epsilons
        )
    return outcome, parsimony(outcome.accessed, size, len(case.validation))


def _features(case: Case) -> dict[str, Features]:
    return {name: each.features for name, each in case.rows.items()}


def codes_of(case: Case, outcome: Outcome) -> NDArray[np.int16]:
    """Codes of the chosen rows, the label last."""
    starts = case.starts()
    return case.codes[:, [starts[name] + row for name, row in outcome.chosen]]
