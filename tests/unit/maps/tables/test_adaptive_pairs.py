"""`AdaptivePairs` by either name, in files and in Python."""

from __future__ import annotations

import copy
import pickle

import pytest

import dpsketch as dps
from dpsketch.errors import RecipeError
from dpsketch.maps.registry import map_from_dict
from dpsketch.maps.tables.adaptive_pairs import BoundAdaptivePairs
from dpsketch.maps.tables.pairs import BoundPairs
from dpsketch.schema.schema import Schema

EXACT = {"map": "pairs", "version": 1, "columns": None, "bins": 16, "pairs": None, "groups": None, "pool": False}
OLD = EXACT | {"pool": True, "most": 5}


def test_pairs_that_a_release_pools_are_adaptive(schema: Schema) -> None:
    pairs = dps.AdaptivePairs(bins=16, most=5)
    assert dps.Pairs(bins=16, pool=True, most=5) == pairs == dps.Pairs(None, 16, None, None, True, most=5)  # type: ignore[call-arg]
    assert map_from_dict(OLD) == pairs
    assert list(pairs.to_dict().items()) == list(OLD.items()), "in this order: files hold it"
    assert type(pairs.bind(schema)) is BoundAdaptivePairs
    for again in (copy.copy(pairs), copy.deepcopy(pairs), pickle.loads(pickle.dumps(pairs))):
        assert (type(again), again) == (dps.AdaptivePairs, pairs)


def test_other_pairs_are_exact(schema: Schema) -> None:
    pairs = dps.Pairs(bins=16)
    assert type(pairs) is dps.Pairs
    assert type(pairs.bind(schema)) is BoundPairs
    assert list(pairs.to_dict().items()) == list(EXACT.items())
    assert map_from_dict(pairs.to_dict()) == pairs == pickle.loads(pickle.dumps(pairs)) != dps.AdaptivePairs(bins=16)


def test_the_cut_is_part_of_the_description() -> None:
    tapered = dps.AdaptivePairs(bins=16, tapered=True, most=5)
    assert map_from_dict(tapered.to_dict()) == tapered != map_from_dict(OLD)
    assert tapered.to_dict() == OLD | {"tapered": True}
    assert tapered.unsettled() == dps.Pairs(bins=16, tapered=True)
    halved = dps.AdaptivePairs(bins=16, tapered=True, contrasts=True)
    assert halved.unsettled() == halved
    with pytest.raises(RecipeError, match="Pairs: tapered must be true or false"):
        dps.Pairs(tapered=1)  # type: ignore[arg-type]


def test_refusals() -> None:
    with pytest.raises(RecipeError, match="AdaptivePairs: pool must be true"):
        dps.AdaptivePairs(pool=False)
    for wrong in (1, 0, "yes"):
        with pytest.raises(RecipeError, match="Pairs: pool must be true or false"):
            dps.Pairs(pool=wrong)  # type: ignore[arg-type]
    with pytest.raises(RecipeError, match="map pairs has no parameter 'groups_from'"):
        map_from_dict(OLD | {"groups_from": None})
