"""Compilation of kernels: serial machine code without the GIL, cached on disk, loaded when first called.

Loading one kernel takes milliseconds, importing all of them half a second: a process pays only for those it uses.
Explicit signatures prevent a read-only or unusually laid out array from silently compiling a second version.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

from dpsketch.numerics.compiler import intrinsic, ir, njit, types
from dpsketch.numerics.forks import fork_safe_lock
from dpsketch.numerics.kernel_cache import KernelCache

_OPTIONS = {"nogil": True, "error_model": "numpy"}
_loading = fork_safe_lock()  # Numba and LLVM hold locks while they compile, which a forked child could not release


def kernel(*signatures: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Compile a function that Python calls, for these signatures."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        compiled: list[Callable[..., Any]] = []

        @wraps(function)
        def call(*arguments: Any) -> Any:
            if not compiled:
                with _loading:
                    if not compiled:  # another thread may have loaded it meanwhile
                        compiled.append(_load(function, signatures))
            return compiled[0](*arguments)

        return call

    return decorate


def _load(function: Callable[..., Any], signatures: Sequence[Any]) -> Callable[..., Any]:
    collecting = gc.isenabled()
    gc.disable()  # Numba creates many long-lived objects: searching them for garbage only takes time
    try:
        dispatcher: Any = njit(**_OPTIONS)(function)
        dispatcher._cache = KernelCache(function)
        for signature in signatures:
            dispatcher.compile(signature)
        dispatcher.disable_compile()
        return dispatcher
    finally:
        if collecting:
            gc.enable()


def part(function: Callable[..., Any]) -> Any:
    """Mark a function that only kernels call and that is compiled into them."""
    return njit(**_OPTIONS)(function)


@intrinsic
def double_bits(_context: Any, _x: Any) -> Any:
    """The bits of a float64 as an int64."""

    def generate(_inner: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], ir.IntType(64))

    return types.int64(types.float64), generate


@intrinsic
def high_product(_context: Any, _a: Any, _b: Any) -> Any:
    """The upper 64 bits of the product of two uint64."""

    def generate(_inner: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        wide = ir.IntType(128)
        product = builder.mul(*(builder.zext(argument, wide) for argument in arguments))
        return builder.trunc(builder.lshr(product, ir.Constant(wide, 64)), ir.IntType(64))

    return types.uint64(types.uint64, types.uint64), generate


@intrinsic
def trailing_zeros(_context: Any, _x: Any) -> Any:
    """The number of zero bits after the last one of a uint64."""

    def generate(_inner: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 0))

    return types.uint64(types.uint64), generate


@intrinsic
def leading_zeros(_context: Any, _x: Any) -> Any:
    """The number of zero bits before the first one of a uint64."""

    def generate(_inner: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.ctlz(arguments[0], ir.Constant(ir.IntType(1), 0))

    return types.uint64(types.uint64), generate
