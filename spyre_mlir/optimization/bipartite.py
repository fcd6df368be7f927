# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Bipartite matching of children with parents by the bytes that pairs can share, and bounds of the shared bytes.

At the time when children begin and their parents end, a child shares its bytes with at most one parent, and a parent
with at most one child. So the most shared bytes are a bipartite matching of the heaviest children.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import NamedTuple


class Child(NamedTuple):
    """A buffer of ``size`` bytes that begins, and the parents with which it may share the bytes."""

    item: int
    size: int
    parents: tuple[int, ...]


def most_shared(children: Sequence[Child]) -> int:
    """Return the bytes of the heaviest set of children that can all have different parents.

    Such sets form a matroid, so choosing the largest child first is optimal (Edmonds and Fulkerson, 1965).
    """
    if len(children) == 1:
        return children[0].size if children[0].parents else 0
    ranked = sorted(children, key=lambda child: -child.size)
    matched = matching({child.item: child.parents for child in ranked})
    return sum(child.size for child in ranked if child.item in matched)


def matching(parents: Mapping[int, Sequence[int]]) -> dict[int, int]:
    """Return a maximum matching with different parents, as a mapping from child to parent.

    No matched child becomes unmatched for a later child: if larger children come first, the matching is the heaviest.
    """
    child_of: dict[int, int] = {}
    for child in parents:
        _augment(child, parents, child_of)
    return {child: parent for parent, child in child_of.items()}


def _augment(child: int, parents: Mapping[int, Sequence[int]], child_of: dict[int, int]) -> None:
    """Match a child by an augmenting path: if its parent is taken, move that parent's child to another, and so on."""
    # For each parent the child that requests it, and the parent that this child leaves. Breadth first: mostly a free
    # parent is near, and paths can be as long as programs.
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
            # Go back along the path: assign each parent to the child that requested it; the next parent is this
            # child's old one.
            while end is not None:
                child_of[end], end = before[end]
            return


def covers(children: Sequence[Child]) -> tuple[dict[int, int], dict[int, int]]:
    """Return two covers: bytes per buffer, such that the bytes of a pair are at least the bytes that it could share.

    The sum of a cover bounds the shared bytes. For each component of linked pairs there are two choices: the bytes of
    all children, or the largest child of each parent. The first cover has the smaller one, the second the larger one.
    """
    cheap: dict[int, int] = {}
    costly: dict[int, int] = {}
    for linked in _components(children):
        of_children = {child.item: child.size for child in linked}
        of_parents: dict[int, int] = {}
        for child in linked:
            for parent in child.parents:
                of_parents[parent] = max(of_parents.get(parent, 0), child.size)
        less, more = sorted((of_children, of_parents), key=lambda cover: sum(cover.values()))
        _add(cheap, less)
        _add(costly, more)
    return cheap, costly


def _components(children: Sequence[Child]) -> list[list[Child]]:
    """Return groups of children that have parents in common, directly or through others."""
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
