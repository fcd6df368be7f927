# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A cache for values of very different sizes, bounded by the sum of the sizes, not by the number of values."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from spyre_mlir.algorithms import CACHES

_Value = TypeVar("_Value")


class BoundedCache(Generic[_Value]):
    """A least-recently-used cache of values by key; the sum of the values' sizes is at most ``limit``."""

    def __init__(self, limit: int, size: Callable[[_Value], int]) -> None:
        self.limit, self.size = limit, size
        self.total = 0
        self._values: OrderedDict[Hashable, _Value] = OrderedDict()
        self._lock = threading.Lock()
        CACHES.append(self)

    def clear(self) -> None:
        """Remove all values."""
        with self._lock:
            self._values.clear()
            self.total = 0

    def get(self, key: Hashable, build: Callable[[], _Value]) -> _Value:
        """Return the value of a key; build the value if it is missing."""
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
