import numpy as np
import pytest

from dpsketch.learn.estimators.joint.table_matrix import Blocks

BLOCKS = Blocks([2, 0, 3])


def test_a_matrix_holds_tables_and_their_transposes():
    table = np.arange(6.0).reshape(2, 3)
    matrix = BLOCKS.matrix({(0, 2): table})
    assert (matrix[BLOCKS.of(0), BLOCKS.of(2)] == table).all()
    assert (matrix == matrix.T).all()
    assert ((matrix != 0) <= BLOCKS.known([(0, 2)])).all()
    assert BLOCKS.known([(2, 0)]).sum() == 12


def test_products_with_members_sum_over_blocks():
    matrix = np.random.default_rng(0).normal(size=(5, 5))
    sums = BLOCKS.member.T @ matrix @ BLOCKS.member
    assert sums[0, 2] == pytest.approx(matrix[:2, 2:].sum())
    assert (sums[1] == 0).all()


def test_parts_along_the_diagonal():
    found = BLOCKS.diagonal([np.full((2, 1), 1.0), np.empty((0, 4)), np.full((3, 2), 2.0)])
    assert found.shape == (5, 7)
    assert (found[:2, 0] == 1).all()
    assert (found[2:, 5:] == 2).all()
    assert found.sum() == 2 + 12
