"""How many bytes children can share with parents at one time: a matching, and what bounds it.

At the time at which children begin and their parents end, a child shares its bytes with at most one parent and a
parent with at most one child; so what is shared at most is a bipartite matching of the heaviest children.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple


class Child(NamedTuple):
    """A buffer of ``size`` bytes that begins, and the parents that it may share them with."""

    number: int
    size: int
    parents: tuple[int, ...]


def most_shared(children: Sequence[Child]) -> int:
    """Bytes of the heaviest set of children that can all have a parent of their own.

    Such sets form a matroid, so taking the largest child first is optimal (Edmonds and Fulkerson, 1965).
    """
    if len(children) == 1:
        return children[0].size if children[0].parents else 0
    child_of: dict[int, Child] = {}
    ranked = sorted(children, key=lambda child: -child.size)
    return sum(child.size for child in ranked if _is_matched(child, child_of))


def _is_matched(child: Child, child_of: dict[int, Child]) -> bool:
    """Gives the child a parent, if need be one whose child can have another one, and so on: an augmenting path."""
    before: dict[
        int, tuple[Child, int | None]
    ] = {}  # parent -> who asks for it, and the parent that this one leaves
    waiting: deque[tuple[Child, int | None]] = deque([(child, None)])
    while waiting:
        asking, leaves = waiting.popleft()
        for parent in asking.parents:
            if parent in before:
                continue
            before[parent] = asking, leaves
            if parent in child_of:
                waiting.append((child_of[parent], parent))
                continue
            end: int | None = parent
            while end is not None:
                child_of[end], end = before[end]
            return True
    return False


def covers(children: Sequence[Child]) -> tuple[dict[int, int], dict[int, int]]:
    """Two covers: bytes per buffer, of which each pair has at least what it could share.

    The sum of a cover bounds what is shared. Where buffers are linked by pairs, the first cover has either the
    bytes of all children or for each parent those of its largest child, whatever is less; the second one the other.
    """
    cheap: dict[int, int] = {}
    dear: dict[int, int] = {}
    for linked in _components(children):
        of_children = {child.number: child.size for child in linked}
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
    found: list[tuple[set[int], list[Child]]] = []
    for child in children:
        parents, linked = set(child.parents), [child]
        apart = []
        for others, members in found:
            if parents & others:
                parents, linked = parents | others, members + linked
            else:
                apart.append((others, members))
        found = [*apart, (parents, linked)]
    return [linked for _, linked in found]


def _add(total: dict[int, int], cover: dict[int, int]) -> None:
    """A buffer can be a child of one pair and the parent of another."""
    for number, size in cover.items():
        total[number] = total.get(number, 0) + size
