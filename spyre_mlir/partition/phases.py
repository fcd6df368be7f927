# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Cuts a program into phases that alternate between device and host, as few as there can be.

A phase runs all that is ready for it, in program order; so the number of phases is the least possible for the side that
begins (an operation can only be ready sooner in a schedule that runs more before it). Both sides are tried.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from spyre_mlir.records import dataclass


class ExecutionSide(Enum):
    """Where an operation may run; ``EITHER`` follows what is around it."""

    DEVICE = "device"
    HOST = "host"
    EITHER = "either"


@dataclass(frozen=True)
class PhaseOp:
    """One operation: which earlier ones it reads (positions), and the bytes of what it gives."""

    side: ExecutionSide
    reads: frozenset[int]
    bytes: int = 0


@dataclass(frozen=True)
class Phase:
    """Operations that run together on one side: their positions in program order."""

    side: ExecutionSide
    nodes: tuple[int, ...]


def phases(nodes: Sequence[PhaseOp]) -> list[Phase]:
    """The program in phases; where both sides may begin, the device does."""
    options = [_phases(nodes, first) for first in (ExecutionSide.DEVICE, ExecutionSide.HOST)]
    # ``min`` takes the first of equals, so a tie lets the device begin.
    fewest = min(options, key=len)
    return _sunk(nodes, fewest)


def _phases(nodes: Sequence[PhaseOp], first: ExecutionSide) -> list[Phase]:
    other = {ExecutionSide.DEVICE: ExecutionSide.HOST, ExecutionSide.HOST: ExecutionSide.DEVICE}
    scheduled: set[int] = set()
    waiting = list(range(len(nodes)))
    phases: list[Phase] = []
    side = first
    while waiting:
        ready = []
        for index in waiting:
            # ``scheduled`` grows on the way, so a chain of operations of one side is ready in one phase.
            if nodes[index].side in (side, ExecutionSide.EITHER) and nodes[index].reads <= scheduled:
                scheduled.add(index)
                ready.append(index)
        if ready:
            phases.append(Phase(side, tuple(ready)))
        waiting = [index for index in waiting if index not in scheduled]
        side = other[side]
    return phases


def _sunk(nodes: Sequence[PhaseOp], phases: Sequence[Phase]) -> list[Phase]:
    """Moves each operation into the latest phase of its side before its readers, or with them, where less crosses then.

    What an operation reads would cross instead of what it gives; what it reads from outside the program costs nothing.
    """
    phase_of = {index: number for number, phase in enumerate(phases) for index in phase.nodes}
    readers: dict[int, list[int]] = {index: [] for index in phase_of}
    for index, node in enumerate(nodes):
        for source in node.reads:
            readers[source].append(index)
    # Readers come later in program order; from the end on their phases are settled when they are asked
    # for.
    for index in reversed(range(len(nodes))):
        if not readers[index]:
            continue
        earliest = min(phase_of[reader] for reader in readers[index])
        side = phases[phase_of[index]].side
        sides = {side} if nodes[index].side is not ExecutionSide.EITHER else set(ExecutionSide)
        later = max(n for n in range(phase_of[index], earliest + 1) if phases[n].side in sides)
        if (
            later > phase_of[index]
            and sum(nodes[source].bytes for source in nodes[index].reads) < nodes[index].bytes
        ):
            phase_of[index] = later
    moved = [
        Phase(phase.side, tuple(index for index in range(len(nodes)) if phase_of[index] == number))
        for number, phase in enumerate(phases)
    ]
    return [phase for phase in moved if phase.nodes]
