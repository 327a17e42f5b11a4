"""Values that are computed when first needed and then shared by all threads."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from threading import RLock
from typing import Any, Generic, TypeVar, overload

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class Guard:
    """A reentrant lock. A copy or an unpickled object gets a lock of its own."""

    def __init__(self) -> None:
        self._lock = RLock()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def __reduce__(self) -> tuple[type[Guard], tuple[()]]:
        return Guard, ()


class made_once(Generic[Value]):
    """As `functools.cached_property`, but one thread computes the value while the others wait.

    For values that are expensive or have an effect, such as reserved coordinates. Python 3.12 dropped the lock of
    `cached_property`, and that of 3.11 is shared by all instances of a class.
    """

    def __init__(self, make: Callable[[Any], Value]) -> None:
        self._make = make
        self.__doc__ = make.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name, self._lock = name, f"lock of {name}"

    @overload
    def __get__(self, instance: None, owner: type) -> made_once[Value]: ...

    @overload
    def __get__(self, instance: object, owner: type) -> Value: ...

    def __get__(self, instance: object | None, owner: type) -> made_once[Value] | Value:
        if instance is None:
            return self
        kept = instance.__dict__  # once set, the value hides this descriptor
        with kept.setdefault(self._lock, Guard()):
            if self._name not in kept:
                kept[self._name] = self._make(instance)
            value: Value = kept[self._name]
            return value


class Memo(Generic[Key, Value]):
    """One value a key, computed by `make` at the first call, by one thread while others wait."""

    def __init__(self, make: Callable[[Key], Value]) -> None:
        self._make, self._lock = make, Guard()
        self._values: dict[Key, Value] = {}

    def __call__(self, key: Key) -> Value:
        if key not in self._values:
            with self._lock:
                if key not in self._values:
                    self._values[key] = self._make(key)
        return self._values[key]


class Latest(Generic[Key, Value]):
    """A cache of the last values that were added, at most `most` of them."""

    def __init__(self, most: int) -> None:
        self._most, self._lock = most, Guard()
        self._values: dict[Key, Value] = {}

    def __len__(self) -> int:
        return len(self._values)

    def get(self, key: Key) -> Value | None:
        return self._values.get(key)

    def add(self, key: Key, value: Value) -> None:
        with self._lock:
            self._values[key] = value
            while len(self._values) > self._most:
                del self._values[next(iter(self._values))]
