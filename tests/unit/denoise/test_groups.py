import numpy as np
import pytest

from dpsketch.denoise.groups import FEWEST, MOST, choose_groups, choose_halves, groups_wanted


def even(cells):
    """Widths of bins, a single value at both ends, and missing."""
    widths = np.full(cells, 1 / cells)
    widths[[0, -2, -1]] = 0.0
    return widths


@pytest.mark.parametrize("widths", [even(30), np.zeros(30), None])
def test_groups_partition_the_cells(widths):
    for seed in range(20):
        shares = np.random.default_rng(seed).dirichlet(np.full(30, 0.3))
        groups = choose_groups(shares, widths, 8, 0.01)
        assert len(groups) == len(shares)
        assert set(groups) == set(range(groups.max() + 1))
        if widths is not None:
            assert (np.diff(groups[:-1]) >= 0).all()


def test_ordered_groups_are_of_near_equal_share():
    shares = np.append(np.full(100, 0.01), 0.0)
    for widths in (even(101), np.zeros(101)):
        groups = choose_groups(shares, widths, 8, threshold=0.02)
        assert np.bincount(groups, shares) == pytest.approx(1 / 8, abs=0.011)


def test_a_bound_that_holds_records_stands_alone():
    shares = np.concatenate([[0.05], np.full(98, 0.95 / 98), [0.0, 0.0]])
    groups = choose_groups(shares, even(101), 8, threshold=0.02)
    assert (groups == groups[0]).sum() == 1
    assert (groups == groups[99]).sum() > 1, "nobody is at the other one"


def test_labels_stand_alone_as_far_as_noise_allows():
    shares = np.append(np.full(50, 0.02), 0.0)
    assert len(set(choose_groups(shares, None, 8, threshold=0.01)[:50])) == 50
    assert len(set(choose_groups(shares, None, 8, threshold=0.03)[:50])) == 1


def test_a_tail_has_groups_of_its_own():
    """Ninety percent of the records in a tenth of the range: of ten groups by share alone one would see the rest."""
    shares = np.concatenate([[0.0], np.full(10, 0.09), np.full(90, 0.1 / 90), [0.0, 0.0]])
    widths = even(103)
    groups = choose_groups(shares, widths, 10)
    assert 2 <= groups[-3] - groups[11] <= 4
    assert groups[10] >= 5, "where most records are there still are most groups"


def test_few_groups_are_of_equal_share():
    shares = np.concatenate([[0.0], np.full(10, 0.09), np.full(90, 0.1 / 90), [0.0, 0.0]])
    groups = choose_groups(shares, even(103), FEWEST)
    assert np.bincount(groups, shares) == pytest.approx(1 / FEWEST, abs=0.1)


def test_single_values_keep_their_share():
    shares = np.concatenate([[0.3], np.full(100, 0.006), [0.1, 0.0]])
    groups = choose_groups(shares, even(103), 4)
    assert (groups == groups[0]).sum() == 1, "a bound that holds more than a quarter is a group"


def test_a_heavy_cell_stands_alone():
    shares = np.append(np.full(10, 0.05), [0.5, 0.0])
    groups = choose_groups(shares, even(12), 4)
    assert (groups[:-1] == groups[10]).sum() == 1


def test_rare_categories_are_pooled():
    groups = choose_groups(np.array([0.5, 0.004, 0.3, 0.006, 0.19, 0.0]), None, 4, 0.01)
    assert groups[1] == groups[3]
    assert len({groups[0], groups[1], groups[2], groups[4]}) == 4


def test_missing_is_a_category_when_it_is_there():
    shares = np.array([0.4, 0.3, 0.2, 0.1])
    for widths in (np.zeros(4), None):
        alone, pooled = choose_groups(shares, widths, 4, 0.05), choose_groups(shares, widths, 4, 0.15)
        assert (alone == alone[-1]).sum() == 1
        assert (pooled[-1] == pooled[:-1]).any()


def test_a_column_without_mass_still_has_groups():
    assert choose_groups(np.zeros(5), even(5), 4).max() >= 0
    assert choose_groups(np.zeros(5), None, 4).max() >= 0


def test_less_noise_more_groups():
    wanted = [groups_wanted(sd) for sd in (1.0, 0.01, 0.003, 1e-6)]
    assert wanted == sorted(wanted)
    assert (wanted[0], wanted[-1]) == (FEWEST, MOST)


def test_halves_are_two_and_nearly_even():
    for seed in range(20):
        shares = np.random.default_rng(seed).dirichlet(np.full(30, 3.0))
        for ordered in (True, False):
            halves = choose_halves(shares, ordered)
            assert set(halves) == {0, 1}
            assert abs(shares[halves == 0].sum() - 0.5) <= shares.max() / 2
            if ordered:
                assert (np.diff(halves) >= 0).all(), "in the order of the cells"
            else:
                assert shares[halves == 0].min() >= shares[halves == 1].max(), "the heaviest ones"


def test_halves_of_columns_with_one_heavy_cell():
    assert choose_halves(np.array([0.9, 0.05, 0.05, 0.0]), True).tolist() == [0, 1, 1, 1]
    assert choose_halves(np.array([0.05, 0.9, 0.05, 0.0]), False).tolist() == [1, 0, 1, 1]
    assert choose_halves(np.array([0.1, 0.1, 0.0, 0.8]), True)[-1] == 1, "missing, mostly"
    assert set(choose_halves(np.zeros(5), False)) == set(choose_halves(np.zeros(2), True)) == {0, 1}
