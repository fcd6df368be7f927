"""Cuts a program into phases that alternate between device and host, as few as there can be.

A phase runs all that is ready for it, in program order; so the number of phases is the least possible for the side that
begins (an operation can only be ready sooner in a schedule that runs more before it). Both sides are tried.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum


class Side(Enum):
    """Where an operation may run; ``EITHER`` follows what is around it."""

    DEVICE = "device"
    HOST = "host"
    EITHER = "either"


@dataclass(frozen=True)
class Node:
    """One operation: which earlier ones it reads (positions), and the bytes of what it gives."""

    side: Side
    reads: frozenset[int]
    bytes: int = 0


@dataclass(frozen=True)
class Phase:
    """Operations that run together on one side: their positions in program order."""

    side: Side
    nodes: tuple[int, ...]


def phases(nodes: Sequence[Node]) -> list[Phase]:
    """The program in phases; where both sides may begin, the device does."""
    found = [_phases(nodes, first) for first in (Side.DEVICE, Side.HOST)]
    fewest = min(found, key=len)
    return _sunk(nodes, fewest)


def _phases(nodes: Sequence[Node], first: Side) -> list[Phase]:
    other = {Side.DEVICE: Side.HOST, Side.HOST: Side.DEVICE}
    done: set[int] = set()
    waiting = list(range(len(nodes)))
    found: list[Phase] = []
    side = first
    while waiting:
        taken = []
        for at in waiting:
            if nodes[at].side in (side, Side.EITHER) and nodes[at].reads <= done:
                done.add(at)
                taken.append(at)
        if taken:
            found.append(Phase(side, tuple(taken)))
        waiting = [at for at in waiting if at not in done]
        side = other[side]
    return found


def _sunk(nodes: Sequence[Node], found: Sequence[Phase]) -> list[Phase]:
    """Moves each operation into the latest phase of its side before its readers, where less crosses then.

    What an operation reads would cross instead of what it gives; what it reads from outside the program costs nothing.
    """
    home = {at: number for number, phase in enumerate(found) for at in phase.nodes}
    readers: dict[int, list[int]] = {at: [] for at in home}
    for at, node in enumerate(nodes):
        for source in node.reads:
            readers[source].append(at)
    for at in reversed(range(len(nodes))):
        if not readers[at]:
            continue
        earliest = min(home[reader] for reader in readers[at])
        side = found[home[at]].side
        later = max(n for n in range(home[at], earliest + 1) if found[n].side is side)
        if later > home[at] and sum(nodes[source].bytes for source in nodes[at].reads) < nodes[at].bytes:
            home[at] = later
    moved = [
        Phase(phase.side, tuple(at for at in range(len(nodes)) if home[at] == number))
        for number, phase in enumerate(found)
    ]
    return [phase for phase in moved if phase.nodes]
