# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A cache whose values differ much in size: it is bounded by their sizes, not by their number."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from spyre_mlir.algorithms import CACHES

_Value = TypeVar("_Value")


class BoundedCache(Generic[_Value]):
    """Values by key, those of the last uses, whose sizes together are at most ``limit``."""

    def __init__(self, limit: int, size: Callable[[_Value], int]) -> None:
        self.limit, self.size = limit, size
        self.total = 0
        self._values: OrderedDict[Hashable, _Value] = OrderedDict()
        self._lock = threading.Lock()
        CACHES.append(self)

    def clear(self) -> None:
        """Forget all values."""
        with self._lock:
            self._values.clear()
            self.total = 0

    def get(self, key: Hashable, build: Callable[[], _Value]) -> _Value:
        """Return the value of a key, which is built if it is not there."""
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
                return self._values[key]
        value = build()
        with self._lock:
            if key not in self._values:
                self.total += self.size(value)
            self._values[key] = value
            while self.total > self.limit:
                _, oldest = self._values.popitem(last=False)
                self.total -= self.size(oldest)
        return value
