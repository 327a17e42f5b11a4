"""An independent accountant agrees with the stated epsilon."""

from __future__ import annotations

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution

import dpsketch as dps
from conftest import MIXED, mixed_table


def test_dp_accounting_agrees_with_each_part(recipe: dps.Recipe) -> None:
    raw = dps.accumulate(mixed_table(50), dps.Schema.from_dict(MIXED), recipe)
    released = dps.release(raw, dps.Budget(0.7), dps.Ledger("sqlite://"), "a")
    total = 0.0
    for part in released.parts[:3]:  # the accountant takes whole numbers of sensitivity, of a moderate size
        loss = privacy_loss_distribution.from_discrete_laplace_mechanism(
            parameter=1 / float(part.noise_scales[0]), sensitivity=part.sensitivity.l1
        )
        epsilon = loss.get_epsilon_for_delta(0.0)
        total += epsilon
        stated = released.statement["parts"][released.parts.index(part)]["epsilon"][0]
        assert epsilon == pytest.approx(float(stated), abs=2e-4)
        assert loss.get_delta_for_epsilon(0.9 * epsilon) > 0, "a smaller epsilon would be wrong"
    assert total == pytest.approx(0.7 * 0.5, abs=1e-3)
    assert np.isclose(sum(part.share for part in recipe.parts), 1.0)
