"""The closed list of maps that a file may name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from dpsketch.errors import RecipeError
from dpsketch.maps.base import FeatureMap
from dpsketch.maps.fourier.fourier import Fourier
from dpsketch.maps.fourier.one_bit import OneBitFourier
from dpsketch.maps.grouped import Grouped
from dpsketch.maps.hashed.race import Race
from dpsketch.maps.moments.quadratic import Quadratic
from dpsketch.maps.moments.second_moments import SecondMoments
from dpsketch.maps.subsampled import Subsampled
from dpsketch.maps.tables.adaptive_marginals import AdaptiveMarginals, CellCounts
from dpsketch.maps.tables.contrasts import Contrasts
from dpsketch.maps.tables.count import Count
from dpsketch.maps.tables.grid import Grid
from dpsketch.maps.tables.histogram import Histogram
from dpsketch.maps.tables.level_counts import Levels
from dpsketch.maps.tables.marginals import Marginals
from dpsketch.maps.tables.pairs import Pairs
from dpsketch.maps.tables.totals import Totals
from dpsketch.maps.tables.triple_tables import Triples

MAPS: dict[str, type[FeatureMap]] = {
    kind.name: kind
    for kind in (
        Count,
        Histogram,
        Marginals,
        Levels,
        AdaptiveMarginals,
        CellCounts,
        Totals,
        Pairs,
        Contrasts,
        Triples,
        Fourier,
        OneBitFourier,
        Quadratic,
        SecondMoments,
        Grid,
        Race,
        Grouped,
        Subsampled,
    )
}

# Maps of maps, and what they cannot hold: a file cannot nest them without end.
WRAPPERS: dict[type[FeatureMap], tuple[str, ...]] = {
    Grouped: (Grouped.name,),
    Subsampled: (Grouped.name, Subsampled.name),
}


def map_from_dict(facts: Mapping[str, Any]) -> FeatureMap:
    """Inverse of `FeatureMap.to_dict`; every parameter is checked by the map itself."""
    values = dict(facts)
    name, version = values.pop("map", None), values.pop("version", None)
    if not isinstance(name, str) or name not in MAPS:
        raise RecipeError(f"there is no map called {name!r}", f"the maps are {', '.join(MAPS)}")
    kind = MAPS[name]
    if version != kind.version:
        raise RecipeError(
            f"map {name} has version {kind.version} here, got {version!r}", "use the library version that wrote it"
        )
    kind = kind.kind_for(values)
    if kind in WRAPPERS:
        inner = values.pop("of", None)
        if not isinstance(inner, Mapping) or inner.get("map") in WRAPPERS[kind]:
            raise RecipeError(f"map {name}: 'of' must be another map")
        values["map"] = map_from_dict(inner)
    known = {field.name for field in fields(kind)}  # type: ignore[arg-type]
    for key in values:
        if key not in known:
            raise RecipeError(
                f"map {name} has no parameter {key!r}", f"its parameters are {', '.join(sorted(known)) or 'none'}"
            )
    try:
        return kind(**{**kind.absent, **values})
    except TypeError:  # a parameter without a default is missing
        raise RecipeError(f"map {name} lacks a parameter", f"its parameters are {', '.join(sorted(known))}") from None
