# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What is derived from values that cannot be keys, such as designs, kept as long as these live."""

from __future__ import annotations

import weakref
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class IdentityTable(Generic[K, V]):
    """A dictionary for each of some objects, by identity: equal objects have dictionaries of their own.

    Values must not refer to the object, which would never be given back.
    """

    def __init__(self) -> None:
        self._entries: dict[int, dict[K, V]] = {}

    def entries_of(self, owner: object) -> dict[K, V]:
        """Return the dictionary of an object, at first an empty one."""
        key = id(owner)
        if key not in self._entries:
            weakref.finalize(owner, self._entries.pop, key, None).atexit = False
        return self._entries.setdefault(key, {})
