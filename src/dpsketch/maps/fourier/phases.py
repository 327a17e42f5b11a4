"""Phases of many records and frequencies: an integer matrix product modulo 2^32.

A frequency ω = 2^16·h + l is split into two int16 halves, so that phase = 2^16·Σ x·h + Σ x·l (mod 2^32) needs only
products of int16 numbers. Processors multiply and add two such pairs in one instruction (pmaddwd), faster than
they multiply int32 numbers, and all accumulators stay in registers. Wrapping integer arithmetic gives the same
phases on every machine and in every order.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsketch.numerics.compiler import cgutils, intrinsic, ir, types

# per block: 3 frequencies x 2 vectors of 8 records x 2 halves take 12 of the 16 registers as accumulators
FREQUENCIES = 3
_VECTORS, _LANES = 2, 8
RECORDS = _VECTORS * _LANES

_I16, _I32, _I64 = ir.IntType(16), ir.IntType(32), ir.IntType(64)
_WORDS = ir.VectorType(_I32, _LANES)
_HALVES = ir.VectorType(_I16, 2 * _LANES)
_PRODUCTS = ir.VectorType(_I32, 2 * _LANES)


def split_frequencies(frequencies: NDArray[np.int32]) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """High and low int16 halves, two dimensions packed in an int32, padded with zeros to whole blocks."""
    count, dimension = frequencies.shape
    padded = np.zeros((-(-count // FREQUENCIES) * FREQUENCIES, -(-dimension // 2) * 2), np.int64)
    padded[:count, :dimension] = frequencies
    low = ((padded + 32768) & 0xFFFF) - 32768
    return _pack((padded - low) >> 16), _pack(low)


def _pack(halves: NDArray[np.int64]) -> NDArray[np.int32]:
    packed = (halves[:, 0::2] & 0xFFFF) | ((halves[:, 1::2] & 0xFFFF) << 16)
    return np.ascontiguousarray(packed.astype(np.uint32).view(np.int32))


@intrinsic
def block_phases(_context: Any, tile: Any, high: Any, low: Any, phases: Any, first: Any) -> Any:
    """Write the phases of frequency first+f for every record of the tile to phases[f], f < FREQUENCIES.

    `tile` holds two codes in each int32, one pair of dimensions per row; its width is a multiple of RECORDS.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        arrays = [
            context.make_array(kind)(context, builder, value)
            for kind, value in zip(signature.args[:4], arguments[:4], strict=True)
        ]
        codes, highs, lows, out = (builder.bitcast(array.data, _I32.as_pointer()) for array in arrays)
        pairs, width = cgutils.unpack_tuple(builder, arrays[0].shape)
        fast = "+avx2" in context.codegen().magic_tuple()[2]
        sums = [
            [[cgutils.alloca_once(builder, _WORDS) for _ in "hl"] for _ in range(FREQUENCIES)] for _ in range(_VECTORS)
        ]
        with cgutils.for_range(builder, builder.sdiv(width, _whole(RECORDS))) as block:
            start = builder.mul(block.index, _whole(RECORDS))
            for slot in (slot for vector in sums for pair in vector for slot in pair):
                builder.store(_splat_constant(0), slot)
            with cgutils.for_range(builder, pairs) as loop:
                row = builder.mul(loop.index, width)
                records = [
                    _load(builder, codes, builder.add(row, builder.add(start, _whole(vector * _LANES))))
                    for vector in range(_VECTORS)
                ]
                for frequency in range(FREQUENCIES):
                    place = builder.add(builder.mul(builder.add(arguments[4], _whole(frequency)), pairs), loop.index)
                    for half, table in enumerate((highs, lows)):
                        factor = _splat(builder, builder.load(builder.gep(table, [place])))
                        for vector, record in enumerate(records):
                            slot = sums[vector][frequency][half]
                            product = _multiply_add(builder, record, factor, fast)
                            builder.store(builder.add(builder.load(slot), product), slot)
            for frequency in range(FREQUENCIES):
                for vector in range(_VECTORS):
                    high_sum, low_sum = (builder.load(slot) for slot in sums[vector][frequency])
                    phase = builder.add(builder.shl(high_sum, _splat_constant(16)), low_sum)
                    place = builder.add(
                        builder.mul(_whole(frequency), width), builder.add(start, _whole(vector * _LANES))
                    )
                    target = builder.bitcast(builder.gep(out, [place]), _WORDS.as_pointer())
                    builder.store(phase, target, align=4)
        return context.get_dummy_value()

    return types.void(tile, high, low, phases, first), generate


def _multiply_add(builder: Any, left: Any, right: Any, fast: bool) -> Any:
    """Per int32 lane: product of the low halves plus product of the high halves, modulo 2^32."""
    left, right = builder.bitcast(left, _HALVES), builder.bitcast(right, _HALVES)
    if fast:
        kind = ir.FunctionType(_WORDS, [_HALVES, _HALVES])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.x86.avx2.pmadd.wd")
        return builder.call(function, [left, right])
    products = builder.mul(builder.sext(left, _PRODUCTS), builder.sext(right, _PRODUCTS))
    even, odd = (
        builder.shuffle_vector(products, products, _constant([2 * lane + side for lane in range(_LANES)]))
        for side in (0, 1)
    )
    return builder.add(even, odd)


def _load(builder: Any, pointer: Any, place: Any) -> Any:
    return builder.load(builder.bitcast(builder.gep(pointer, [place]), _WORDS.as_pointer()), align=4)


def _splat(builder: Any, scalar: Any) -> Any:
    vector = builder.insert_element(ir.Constant(_WORDS, ir.Undefined), scalar, ir.Constant(_I32, 0))
    return builder.shuffle_vector(vector, vector, _splat_constant(0))


def _constant(numbers: list[int]) -> ir.Constant:
    return ir.Constant(ir.VectorType(_I32, len(numbers)), [ir.Constant(_I32, number) for number in numbers])


def _splat_constant(number: int) -> ir.Constant:
    return _constant([number] * _LANES)


def _whole(number: int) -> ir.Constant:
    return ir.Constant(_I64, number)
