from __future__ import annotations

import pytest

import dpsketch as dps
from dpsketch.errors import RecipeError
from dpsketch.maps.registry import map_from_dict
from dpsketch.planning.task_forecast import simulated_columns
from dpsketch.recipe.tasks.pca_task import pca_directions


def test_covariances_get_second_moments_with_means() -> None:
    count, moments = dps.Recipe.pca(simulated_columns(4), rows=1000, budget=dps.Budget(1.0), n_components=2).parts
    assert count.map == dps.Count()
    assert moments.map == dps.SecondMoments(("x1", "x2", "x3", "x4"), 2.0, means=True)
    assert count.exact_share + moments.exact_share == 1


def test_many_columns_in_much_noise_get_squares_of_projections() -> None:
    """Only under pure ε, and only for uncentred moments."""
    schema = simulated_columns(100)
    for rows, delta, of, chosen in (
        (5000, 0.0, "second_moments", dps.Quadratic),
        (5000, 1e-6, "second_moments", dps.SecondMoments),
        (5000, 0.0, "covariance", dps.SecondMoments),
        (10**6, 0.0, "second_moments", dps.SecondMoments),
    ):
        recipe = dps.Recipe.pca(schema, rows=rows, budget=dps.Budget(1.0, delta), n_components=5, radius=3.0, of=of)
        assert isinstance(recipe.parts[1].map, chosen)
        assert recipe.parts[1].map.radius == 3.0  # type: ignore[attr-defined]
        recipe.bind(schema)
    assert pca_directions(5000, dps.Budget(1.0), 100, 5) == 12 * 128
    assert pca_directions(5000, dps.Budget(1.0), 100, 20) is None


def test_only_numbers_are_taken_unless_others_are_named() -> None:
    schema = dps.Schema.from_dict(
        {"columns": {"a": {"kind": "number", "lower": 0, "upper": 1}, "b": {"kind": "boolean"}}}
    )
    assert dps.Recipe.pca(schema, rows=100, budget=dps.Budget(1.0), n_components=1).parts[1].map.columns == ("a",)  # type: ignore[attr-defined]
    both = dps.Recipe.pca(schema, rows=100, budget=dps.Budget(1.0), n_components=2, columns=["a", "b"])
    assert both.parts[1].map.columns == ("a", "b")  # type: ignore[attr-defined]


def test_wrong_recipes_are_refused() -> None:
    schema = simulated_columns(3)
    with pytest.raises(RecipeError, match="needs a budget"):
        dps.Recipe.pca(schema, rows=100)
    with pytest.raises(RecipeError, match="n_components must be a whole number from 1 to 3"):
        dps.Recipe.pca(schema, rows=100, budget=dps.Budget(1.0), n_components=4)
    with pytest.raises(RecipeError, match="of must be covariance or second_moments"):
        dps.Recipe.pca(schema, rows=100, budget=dps.Budget(1.0), n_components=2, of="correlation")
    with pytest.raises(RecipeError, match="means must be true or false"):
        dps.SecondMoments(means="yes")  # type: ignore[arg-type]


def test_a_file_without_means_keeps_its_meaning() -> None:
    facts = dps.SecondMoments(radius=2.0).to_dict()
    assert "means" not in facts
    assert map_from_dict(facts) == dps.SecondMoments(radius=2.0)
    with_means = dps.SecondMoments(radius=2.0, means=True)
    assert map_from_dict(with_means.to_dict()) == with_means
