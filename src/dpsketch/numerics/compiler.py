"""The parts of Numba that kernels use, imported here first so that a missing Numba is reported in one place."""

from dpsketch.extras import extra

with extra():
    from llvmlite import ir
    from numba import boolean, float32, float64, int16, int32, int64, njit, types, uint32, uint64
    from numba.core import cgutils
    from numba.extending import intrinsic

__all__ = [
    "boolean",
    "cgutils",
    "float32",
    "float64",
    "int16",
    "int32",
    "int64",
    "intrinsic",
    "ir",
    "njit",
    "types",
    "uint32",
    "uint64",
]
