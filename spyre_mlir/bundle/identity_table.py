# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Caches of values derived from objects that cannot be keys, such as designs; they live as long as the objects."""

from __future__ import annotations

import weakref
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class IdentityTable(Generic[K, V]):
    """A dictionary for each of some objects, by identity: equal objects have separate dictionaries.

    Values must not refer to the object, because the object would then never be freed.
    """

    def __init__(self) -> None:
        self._entries: dict[int, dict[K, V]] = {}

    def entries_of(self, owner: object) -> dict[K, V]:
        """Return the dictionary of an object, which is initially empty."""
        key = id(owner)
        if key not in self._entries:
            weakref.finalize(owner, self._entries.pop, key, None).atexit = False
        return self._entries.setdefault(key, {})
