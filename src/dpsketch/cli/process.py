"""The process that a command runs in: its signals and its standard streams."""

from __future__ import annotations

import codecs
import os
import signal
import sys
from types import FrameType

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_STREAMS = (("stdin", "r"), ("stdout", "w"), ("stderr", "w"))
_PLAIN = {"±": "+/-", "×": "x", "−": "-", "…": "...", "≥": ">=", "≤": "<=", "ε": "epsilon", "δ": "delta", "²": "^2"}


class Stopped(BaseException):
    """A signal asked the process to end. Raised where the signal arrives, so that partial files are removed.

    It is a BaseException, so that no handler of errors catches it.
    """

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.exit_code = 128 + number


_arrived: list[int] = []


def stop_on_signals() -> None:
    """Raise `Stopped` on the signals that ask a process to end. Signals ignored by the caller (nohup) stay so."""
    for number in _ENDING:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _stop)


def ignore_signals() -> None:
    """Ignore the same signals from now on: the result is complete, only its message remains to be printed."""
    for number in _ENDING:
        if signal.getsignal(number) is _stop:
            signal.signal(number, signal.SIG_IGN)


def _stop(number: int, _frame: FrameType | None) -> None:
    for other in (signal.SIGTERM, signal.SIGHUP):  # a terminal that closes sends SIGHUP twice
        signal.signal(other, signal.SIG_IGN)
    _arrived.append(number)
    raise Stopped(number)


def check_stopped() -> None:
    """Raise `Stopped` again, in case a callback of a compiler or a destructor swallowed it."""
    if _arrived:
        raise Stopped(_arrived[0])


def prepare_streams() -> None:
    """Give the process three usable standard streams.

    A closed stream is opened on the null device: otherwise the next file to be opened, perhaps the ledger, would get
    its number, and messages would be written into it. Characters that the terminal's encoding lacks are spelled out.
    """
    codecs.register_error("dpsketch.spelled", _spelled)
    for number, (name, mode) in enumerate(_STREAMS):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
            setattr(sys, name, open(number, mode, closefd=False))  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="dpsketch.spelled")  # type: ignore[union-attr]


def _spelled(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeEncodeError)
    signs = error.object[error.start : error.end]
    return "".join(_PLAIN.get(sign) or sign.encode("ascii", "backslashreplace").decode() for sign in signs), error.end
