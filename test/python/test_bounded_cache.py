# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The cache that is bounded by the sizes of its values."""

from __future__ import annotations

from spyre_mlir.optimization.elimination import BoundedCache


def test_a_value_is_built_once():
    """A second request of a key has the very object of the first."""
    cache: BoundedCache[list[int]] = BoundedCache(10, len)
    first = cache.get("a", lambda: [1, 2, 3])
    assert cache.get("a", lambda: [4]) is first
    assert cache.total == 3


def test_the_oldest_use_goes_first():
    """The cache keeps the last used entry when the sizes exceed the limit."""
    cache: BoundedCache[list[int]] = BoundedCache(4, len)
    first = cache.get("a", lambda: [1, 2])
    cache.get("b", lambda: [3, 4])
    assert cache.get("a", list) is first
    cache.get("c", lambda: [5, 6])
    assert cache.total == 4
    assert cache.get("a", list) is first
    assert cache.get("b", lambda: [7]) == [7]


def test_a_value_beyond_the_limit_is_returned_but_not_kept():
    """One value larger than the limit empties the cache."""
    cache: BoundedCache[list[int]] = BoundedCache(2, len)
    assert cache.get("a", lambda: [1, 2, 3]) == [1, 2, 3]
    assert cache.total == 0
    assert cache.get("a", lambda: [4]) == [4]
