"""Splitting of lines into fields, in a separate module because Numba is slow to import."""

from __future__ import annotations

from dpsketch.numerics.jit import kernel

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


@kernel("int64(Array(uint8, 1, 'C', readonly=True), int64[::1], int64, int64[:,::1], int64[:,::1], boolean[:,::1])")
def scan(buffer, stops, separator, starts, ends, quoted):  # type: ignore[no-untyped-def]
    """Find the field boundaries of every non-empty record. Records end at `stops`; in a broken one, ends are -1."""
    fields = starts.shape[0]
    record, position = 0, 0
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
            if at < stop and buffer[at] == _QUOTE:
                close = at + 1
                while close < stop:
                    if buffer[close] == _QUOTE:
                        if close + 1 < stop and buffer[close + 1] == _QUOTE:
                            close += 1
                        else:
                            break
                    close += 1
                if close >= stop or (close + 1 < stop and buffer[close + 1] != separator):
                    broken = True
                    break
                starts[field, record], ends[field, record], quoted[field, record] = at + 1, close, True
                at = close + 1
            else:
                begin = at
                while at < stop and buffer[at] != separator:
                    at += 1
                starts[field, record], ends[field, record] = begin, at
            field += 1
            if at >= stop:
                break
            at += 1
        if broken or field != fields:
            for f in range(fields):
                ends[f, record] = -1
        record += 1
        position = after
    return record


@kernel("int64(Array(uint8, 1, 'C', readonly=True), int64[::1], int64[::1], boolean[::1], uint8[::1], int64[::1])")
def copy(buffer, starts, ends, quoted, data, offsets):  # type: ignore[no-untyped-def]
    used = 0
    for record in range(starts.size):
        at = starts[record]
        while at < ends[record]:
            data[used] = buffer[at]
            used += 1
            at += 2 if quoted[record] and buffer[at] == _QUOTE else 1
        offsets[record + 1] = used
    return used
