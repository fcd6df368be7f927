# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Live ranges of buffers over a program of steps and loops. No IR."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from spyre_mlir.records import dataclass


@dataclass(frozen=True)
class OpAccesses:
    """One operation: the buffers that it reads and the buffers that it writes."""

    reads: tuple[Hashable, ...] = ()
    writes: tuple[Hashable, ...] = ()


@dataclass(frozen=True)
class LoopAccesses:
    """A loop over steps and loops."""

    body: tuple[OpAccesses | LoopAccesses, ...]


@dataclass(frozen=True)
class LiveRange:
    """``uses`` are positions of steps, rising; the live range is from the first to the last, both included.

    A use at a position that does not access the buffer represents the end or the start of a loop.
    """

    uses: tuple[int, ...]
    first_use_is_read: bool


def live_ranges(program: Sequence[OpAccesses | LoopAccesses]) -> dict[Hashable, LiveRange]:
    """Return the live range of each buffer; positions count the steps of the program text, each body once.

    A live range never ends or begins inside of a loop that it crosses: a buffer that is accessed inside and outside
    of a loop, or that an iteration reads from the previous one, keeps its address for the whole loop. A buffer that an
    iteration writes before reading, and that no other operation needs, is live only within the iteration.
    """
    steps: list[OpAccesses] = []
    # The first and last position of each loop that has steps.
    loops: list[tuple[int, int]] = []

    def walk(items: Sequence[OpAccesses | LoopAccesses]) -> None:
        for item in items:
            if isinstance(item, OpAccesses):
                steps.append(item)
                continue
            first = len(steps)
            walk(item.body)
            if len(steps) > first:
                loops.append((first, len(steps) - 1))

    walk(program)
    accessed: dict[Hashable, list[int]] = {}
    reads_first: dict[Hashable, bool] = {}
    for position, step in enumerate(steps):
        for buffer in dict.fromkeys((*step.reads, *step.writes)):
            accessed.setdefault(buffer, []).append(position)
            reads_first.setdefault(buffer, buffer in step.reads)
    ranges = {}
    for buffer, positions in accessed.items():
        uses = set(positions)
        for first, last in loops:
            inside = [position for position in positions if first <= position <= last]
            # The buffer is live for the whole loop if it is also accessed outside, or if its first access reads the
            # value of the previous iteration.
            if inside and (len(inside) < len(positions) or buffer in steps[inside[0]].reads):
                uses |= {first, last}
        ranges[buffer] = LiveRange(tuple(sorted(uses)), reads_first[buffer])
    return ranges
