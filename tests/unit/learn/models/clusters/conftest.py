"""The planted table, sketched once for all tests here."""

from __future__ import annotations

import pytest

import dpsketch as dps
from planted_clusters import FOURIER, Released, releases


@pytest.fixture(scope="session")
def released() -> Released:
    return releases()


@pytest.fixture(scope="session")
def view(released: Released) -> dps.View:
    return released(FOURIER)
