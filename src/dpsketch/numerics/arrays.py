"""Type names for common arrays."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Codes = NDArray[np.int16]  # cells of a table between their bounds: schema.columns
