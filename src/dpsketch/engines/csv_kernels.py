"""Splitting lines into fields; apart because Numba takes long to import."""

from __future__ import annotations

from dpsketch.compiled import kernel

_NEWLINE, _RETURN, _QUOTE = 10, 13, 34


@kernel("int64(Array(uint8, 1, 'C', readonly=True), int64, int64[:,::1], int64[:,::1], boolean[:,::1])")
def scan(buffer, separator, starts, ends, quoted):  # type: ignore[no-untyped-def]
    """Field boundaries of every non-empty line; a field's end is -1 in a broken line."""
    fields = starts.shape[0]
    record, position = 0, 0
    while position < buffer.size:
        stop = position
        while buffer[stop] != _NEWLINE:
            stop += 1
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
