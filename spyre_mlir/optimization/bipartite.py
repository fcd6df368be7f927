# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Bipartite matching of children with parents, by the bytes that pairs can share, and bounds of it.

At the time at which children begin and their parents end, a child shares its bytes with at most one parent and a
parent with at most one child; so what is shared at most is a bipartite matching of the heaviest children.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import NamedTuple


class Child(NamedTuple):
    """A buffer of ``size`` bytes that begins, and the parents that it may share them with."""

    item: int
    size: int
    parents: tuple[int, ...]


def most_shared(children: Sequence[Child]) -> int:
    """Return the bytes of the heaviest set of children that can all have a parent of their own.

    Such sets form a matroid, so taking the largest child first is optimal (Edmonds and Fulkerson, 1965).
    """
    if len(children) == 1:
        return children[0].size if children[0].parents else 0
    ranked = sorted(children, key=lambda child: -child.size)
    matched = matching({child.item: child.parents for child in ranked})
    return sum(child.size for child in ranked if child.item in matched)


def matching(parents: Mapping[int, Sequence[int]]) -> dict[int, int]:
    """Return a largest set of pairs, parent by child, with different parents.

    No child goes without for the sake of a later one: if larger children come first, no set of pairs weighs more.
    """
    child_of: dict[int, int] = {}
    for child in parents:
        _augment(child, parents, child_of)
    return {child: parent for parent, child in child_of.items()}


def _augment(child: int, parents: Mapping[int, Sequence[int]], child_of: dict[int, int]) -> None:
    """Match a child, if need be by giving the child of its parent another one, and so on: an augmenting path."""
    # Per parent the child that asks for it, and the parent that this one leaves for it. Breadth first: a free parent
    # nearby is mostly there, and paths can be as long as programs.
    before: dict[int, tuple[int, int | None]] = {}
    queue: deque[tuple[int, int | None]] = deque([(child, None)])
    while queue:
        asking, leaves = queue.popleft()
        for parent in parents[asking]:
            if parent in before:
                continue
            before[parent] = asking, leaves
            if parent in child_of:
                queue.append((child_of[parent], parent))
                continue
            end: int | None = parent
            # Back along the path: a parent goes to the child that asked for it, whose old parent is the
            # next one.
            while end is not None:
                child_of[end], end = before[end]
            return


def covers(children: Sequence[Child]) -> tuple[dict[int, int], dict[int, int]]:
    """Return two covers: bytes per buffer, of which each pair has at least what it could share.

    The sum of a cover bounds what is shared. Where buffers are linked by pairs, the first cover has either the
    bytes of all children or for each parent those of its largest child, whatever is less; the second one the other.
    """
    cheap: dict[int, int] = {}
    dear: dict[int, int] = {}
    for linked in _components(children):
        of_children = {child.item: child.size for child in linked}
        of_parents: dict[int, int] = {}
        for child in linked:
            for parent in child.parents:
                of_parents[parent] = max(of_parents.get(parent, 0), child.size)
        less, more = sorted((of_children, of_parents), key=lambda cover: sum(cover.values()))
        _add(cheap, less)
        _add(dear, more)
    return cheap, dear


def _components(children: Sequence[Child]) -> list[list[Child]]:
    """Children that have parents in common, directly or through others."""
    components: list[tuple[set[int], list[Child]]] = []
    for child in children:
        parents, linked = set(child.parents), [child]
        others = []
        for component in components:
            if parents & component[0]:
                parents, linked = parents | component[0], component[1] + linked
            else:
                others.append(component)
        components = [*others, (parents, linked)]
    return [linked for _, linked in components]


def _add(total: dict[int, int], cover: dict[int, int]) -> None:
    """Add a cover to a total: a buffer can be a child of one pair and the parent of another."""
    for index, size in cover.items():
        total[index] = total.get(index, 0) + size
