"""Splitting of lines into fields, in a separate module because Numba is slow to import."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpsketch.numerics.compiler import intrinsic, ir, types
from dpsketch.numerics.jit import kernel, part, trailing_zeros

_NEWLINE, _RETURN, _QUOTE = 10, 13, 34
_FIELD_START, _UNQUOTED, _QUOTED, _CLOSED, _BROKEN = 0, 1, 2, 3, 4


@kernel("int64(Array(uint8, 1, 'C', readonly=True), int64, int64[::1], int64[::1])")
def record_ends(buffer, separator, state, ends):  # type: ignore[no-untyped-def]
    """Write the positions of the line breaks outside quotes to `ends` and return their number; `state` persists between
    blocks.

    After a closed quote followed by other text, the record is broken and ends at the next line break, whatever it
    contains.
    """
    now, count = state[0], 0
    for at in range(buffer.size):
        byte = buffer[at]
        if now == _QUOTED:
            if byte == _QUOTE:
                now = _CLOSED
        elif now == _CLOSED and byte == _QUOTE:
            now = _QUOTED
        elif byte == _NEWLINE:
            ends[count] = at
            count += 1
            now = _FIELD_START
        elif now != _BROKEN:
            if byte == separator:
                now = _FIELD_START
            elif now == _FIELD_START:
                now = _QUOTED if byte == _QUOTE else _UNQUOTED
            elif now == _CLOSED:
                now = _BROKEN
    state[0] = now
    return count


@intrinsic
def _load(_context, buffer, _at):  # type: ignore[no-untyped-def]
    """Eight bytes of a buffer of bytes as a uint64, wherever they begin; the first byte is the lowest."""

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        word = builder.load(_word(context, builder, signature, arguments))
        word.align = 1
        return word

    return types.uint64(buffer, types.int64), generate


@intrinsic
def _store(_context, buffer, _at, _word_):  # type: ignore[no-untyped-def]
    """Write a uint64 to eight bytes of a buffer of bytes."""

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        builder.store(arguments[2], _word(context, builder, signature, arguments)).align = 1
        return context.get_dummy_value()

    return types.void(buffer, types.int64, types.uint64), generate


def _word(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    array = context.make_array(signature.args[0])(context, builder, arguments[0])
    return builder.bitcast(builder.gep(array.data, [arguments[1]]), ir.IntType(64).as_pointer())


@part
def _next(buffer, byte, at, stop):  # type: ignore[no-untyped-def]
    """The position of the first such byte from `at` on, or `stop`. Eight bytes after `stop` must exist."""
    ones = np.uint64(0x0101010101010101)
    wanted = ones * np.uint64(byte)
    while at < stop:
        differs = _load(buffer, at) ^ wanted  # a byte of zeros where they are the same
        same = (differs - ones) & ~differs & np.uint64(0x8080808080808080)
        if same != np.uint64(0):
            return min(at + np.int64(trailing_zeros(same) >> np.uint64(3)), stop)
        at += 8
    return stop


@kernel(
    "int64(Array(uint8, 1, 'C', readonly=True), int64, int64[::1], int64, int64[::1], int32[:,::1], int32[:,::1],"
    "int64[::1])"
)
def scan(buffer, first, stops, separator, slots, starts, ends, lengths):  # type: ignore[no-untyped-def]
    """Find the cells of every non-empty record, and return the number of these records.

    The first record begins at `first`, each ends at one of `stops`. Field f goes to row slots[f] of `starts` and
    `ends`, unless that is negative; `lengths` receives the bytes of each row. The cells of a broken record end at −1;
    one that contains doubled quotes starts at −1−start.
    """
    fields = slots.size
    record, position = 0, first
    for stop in stops:
        after = stop + 1
        if stop > position and buffer[stop - 1] == _RETURN:
            stop -= 1
        if stop == position:
            position = after
            continue
        field, broken = 0, False
        at = position
        while True:
            if field == fields:
                broken = True
                break
            slot = slots[field]
            if at < stop and buffer[at] == _QUOTE:
                begin, doubled = at + 1, False
                close = _next(buffer, _QUOTE, begin, stop)
                while close + 1 < stop and buffer[close + 1] == _QUOTE:
                    doubled = True
                    close = _next(buffer, _QUOTE, close + 2, stop)
                if close >= stop or (close + 1 < stop and buffer[close + 1] != separator):
                    broken = True
                    break
                at = close + 1
                if slot >= 0:
                    starts[slot, record], ends[slot, record] = -1 - begin if doubled else begin, close
            else:
                begin = at
                at = _next(buffer, separator, at, stop)
                if slot >= 0:
                    starts[slot, record], ends[slot, record] = begin, at
            field += 1
            if at >= stop:
                break
            at += 1
        if broken or field != fields:
            for slot in range(starts.shape[0]):
                starts[slot, record], ends[slot, record] = 0, -1
        for slot in range(starts.shape[0]):
            start = starts[slot, record]
            lengths[slot] += max(ends[slot, record] - (start if start >= 0 else -1 - start), 0)
        record += 1
        position = after
    return record


@kernel("int64(Array(uint8, 1, 'C', readonly=True), int32[::1], int32[::1], uint8[::1], int64[::1], boolean[::1])")
def copy(buffer, starts, ends, data, offsets, present):  # type: ignore[no-untyped-def]
    """Copy cells one after the other, and return how many are not empty. `data` has eight bytes more than needed."""
    used, found = 0, 0
    for record in range(starts.size):
        at, end = np.int64(starts[record]), np.int64(ends[record])
        doubled = at < 0
        if doubled:
            at = -1 - at
        present[record] = at < end
        found += at < end
        if doubled:
            while at < end:
                data[used] = buffer[at]
                used += 1
                at += 2 if buffer[at] == _QUOTE else 1
        else:
            for ahead in range(0, end - at, 8):
                _store(data, used + ahead, _load(buffer, at + ahead))
            used += max(end - at, 0)
        offsets[record + 1] = used
    return found
