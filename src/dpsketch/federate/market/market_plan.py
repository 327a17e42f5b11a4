"""What can be said of a market before anything is sent: noise, features and sizes, from public numbers alone."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil, sqrt

from dpsketch.federate.market.guarantees import broadcast_error, loss_bound
from dpsketch.federate.market.stratum_sums import consumer_recipe, owner_recipe
from dpsketch.federate.market.stratum_weights import FEWEST, UNSURE
from dpsketch.federate.market.terms import Terms
from dpsketch.schema.schema import Schema
from dpsketch.sketch.release import planned


@dataclass(frozen=True)
class MarketPlan:
    """`target_noise` and `stratum_noise` are deviations of the noise in each feature's mean, of the declared numbers of
    records; `least_*` are the numbers from which they are small.
    """

    terms: Terms
    target_noise: float
    stratum_noise: float
    least_validation: int
    least_stratum: int
    least_points: int
    least_features: int

    @property
    def enough(self) -> bool:
        return (
            self.terms.validation_rows >= self.least_validation
            and self.terms.size >= self.least_points
            and self.terms.features >= self.least_features
        )

    def lines(self) -> list[str]:
        """The plan as text."""
        terms = self.terms
        bound = loss_bound(terms.size, broadcast_error(self.target_noise))
        said = [
            f"target: {terms.validation_rows} records, noise {self.target_noise:.4f} in a feature's mean; "
            + _verdict(terms.validation_rows, self.least_validation, "records"),
            f"strata: {len(terms.strata)} for each owner, noise {self.stratum_noise:.4f} if an owner's declared "
            f"{terms.schema.rows} records were spread evenly; strata below {self.least_stratum} records take no part",
            f"features: {terms.features}, whose kernel errs by about {1 / sqrt(terms.features):.3f}; "
            + _verdict(terms.features, self.least_features, "features"),
            f"summary: {terms.size} points, of {terms.shipped} that owners ship; "
            + _verdict(terms.size, self.least_points, "points"),
            f"loss of a greedy choice under this noise (Lemma 3): at most {bound:.2g}"
            + (", which says nothing, as J is at most 1" if bound >= 1 else ""),
        ]
        if terms.hashed.unequal_bounds:
            said.append("columns declare different bounds: distances are measured after scaling each to [0, 1]")
        if terms.over == 1:
            said.append("over = 1: owners ship exactly the summary; over = 1.25 brings it much closer to greedy's")
        return said


def market_plan(terms: Terms) -> MarketPlan:
    """The plan of these terms. Nothing is read or spent."""
    scale = terms.hashed.scale
    target = _noise(terms.consumer_schema, terms, owner=False) / scale
    stratum, counting = _noise(terms.schema, terms, owner=True) / scale, _counting(terms)
    rows = terms.validation_rows
    noise = target / rows
    each = max((terms.schema.rows or 1) // max(len(terms.strata) - 1, 1), 1)
    return MarketPlan(
        terms,
        noise,
        stratum / each,
        ceil(target / UNSURE),
        ceil(FEWEST * counting),
        ceil(1 / max(noise, 1e-6)),
        _least_features(terms),
    )


def _noise(schema: Schema, terms: Terms, owner: bool) -> float:
    recipe = owner_recipe(terms.hashed) if owner else consumer_recipe(replace(terms.hashed, schema=schema, label=None))
    event = planned(schema, recipe, terms.owner_budget if owner else terms.consumer_budget, "gaussian")
    assert event is not None
    return float(event.noises[0].scale)


def _counting(terms: Terms) -> float:
    event = planned(terms.schema, owner_recipe(terms.hashed), terms.owner_budget, "gaussian")
    assert event is not None
    return float(event.noises[1].scale)


def _least_features(terms: Terms) -> int:
    """Enough that the kernel's error is below the sampling deviation of the validation set, but at least 64."""
    return max(64, 2 * ceil(min(terms.validation_rows, 512) / 2))


def _verdict(have: int, need: int, what: str) -> str:
    return "enough" if have >= need else f"too few: at least {need} {what}"
