# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Live ranges of buffers over a program of steps and loops. No IR."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence

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
    steps, loops = _flat(program)
    accessed: dict[Hashable, list[int]] = {}
    reads_first: dict[Hashable, bool] = {}
    for position, step in enumerate(steps):
        for buffer in dict.fromkeys((*step.reads, *step.writes)):
            accessed.setdefault(buffer, []).append(position)
            reads_first.setdefault(buffer, buffer in step.reads)
    ranges = {}
    for buffer, positions in accessed.items():
        crossed = _crossed(positions, loops, steps, buffer)
        ranges[buffer] = LiveRange(tuple(sorted({*positions, *crossed})), reads_first[buffer])
    return ranges


def _crossed(
    positions: list[int], loops: list[tuple[int, int]], steps: list[OpAccesses], buffer: Hashable
) -> Iterator[int]:
    """Yield the ends of the loops that a buffer is live for as a whole."""
    for first, last in loops:
        inside = [position for position in positions if first <= position <= last]
        if not inside:
            continue
        outside = len(inside) < len(positions)
        # A first access that reads uses the value of the previous iteration.
        if outside or buffer in steps[inside[0]].reads:
            yield from (first, last)


def _flat(program: Sequence[OpAccesses | LoopAccesses]) -> tuple[list[OpAccesses], list[tuple[int, int]]]:
    """Return all steps in order of the text, and the first and last position of each loop that has steps."""
    steps: list[OpAccesses] = []
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
    return steps, loops
