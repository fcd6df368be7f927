"""What plans that move buffers could save: a lower bound, addresses ignored.

A moving plan may drop a buffer between two uses and bring it back later, possibly elsewhere. Its parts are the gaps
between consecutive uses. Kept through a gap, a buffer occupies its bytes at both ends and between them, and the
use at the end reads them for nothing; not kept, that use reads them from device memory. A buffer that is written
first and has a gap that is not kept is also written to device memory, once.

So each gap is a buffer of its own in the sense of ``selection.py``, which shares its bytes with the gap before at the
use between them, and the write is what all gaps of a buffer lose together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from spyre_mlir.scratchpad.buffers import LifetimeBoundBuffer, MemorySpace
from spyre_mlir.scratchpad.instance import Instance
from spyre_mlir.scratchpad.selection import Group, select


@dataclass(frozen=True)
class MovingBound:
    """No plan, moving or not, has less ``traffic``, in bytes of device memory.

    ``attained`` says whether some choice of gaps within the capacity has just this traffic, addresses and the cost
    of moves on the chip ignored; if not, the least such traffic lies above.
    """

    traffic: int
    attained: bool


def moving_bound(
    buffers: Sequence[LifetimeBoundBuffer], space: MemorySpace, budget: int = 200_000
) -> MovingBound:
    """The bound, after about ``budget`` steps of search; ``PlanError`` if the buffers make no sense.

    A use moves ``traffic_if_spilled / len(uses)`` bytes, the first one also what that division leaves.
    """
    instance = Instance.of(buffers, space)
    gaps = [gap for at, buffer in enumerate(instance.buffers) for gap in _gaps(at, buffer)]
    gaps = [
        gap for gap in gaps if instance.sizes[gap.buffer] <= space.capacity and gap.saving + gap.extra > 0
    ]
    gaps.sort(key=lambda gap: (gap.start, gap.buffer, gap.number))
    found = select(_instance(instance, gaps), space.capacity, groups=_groups(gaps), budget=budget)
    spilled = sum(buffer.traffic_if_spilled for buffer in buffers)
    saved = sum(gap.saving for gap in gaps) + sum(group.extra for group in _groups(gaps))
    return MovingBound(spilled - saved + found.bound, found.exact)


@dataclass(frozen=True)
class _Gap:
    """From one use of a buffer to the next: what keeping it saves, and what keeping all of the buffer saves besides."""

    buffer: int
    number: int
    start: int
    end: int
    saving: int
    extra: int


def _gaps(at: int, buffer: LifetimeBoundBuffer) -> Iterator[_Gap]:
    """The gaps of a buffer; one that is used once has a single one, from that use to itself."""
    per_use, rest = divmod(buffer.traffic_if_spilled, len(buffer.uses))
    if len(buffer.uses) == 1:
        yield _Gap(at, 0, buffer.first, buffer.last, 0, max(0, buffer.saving))
        return
    extra = max(0, per_use + rest - buffer.traffic_if_placed)
    for number, (start, end) in enumerate(zip(buffer.uses, buffer.uses[1:], strict=False)):
        yield _Gap(at, number, start, end, per_use, extra)


def _groups(gaps: Sequence[_Gap]) -> list[Group]:
    members: dict[int, list[int]] = {}
    for index, gap in enumerate(gaps):
        members.setdefault(gap.buffer, []).append(index)
    return [Group(tuple(some), gaps[some[0]].extra) for some in members.values() if gaps[some[0]].extra]


def _instance(instance: Instance, gaps: Sequence[_Gap]) -> Instance:
    """The gaps as buffers. Parents are the gap before and, of a first gap, the last gaps of the buffer's parents."""
    index = {(gap.buffer, gap.number): at for at, gap in enumerate(gaps)}
    last = {gap.buffer: at for at, gap in enumerate(gaps)}
    parents = []
    for gap in gaps:
        of_buffer = instance.parents[gap.buffer]
        before = (
            [index[gap.buffer, gap.number - 1]] if gap.number else [last[p] for p in of_buffer if p in last]
        )
        parents.append(tuple(before))
    at = np.array([gap.buffer for gap in gaps], np.int64)
    return Instance(
        tuple(instance.buffers[gap.buffer] for gap in gaps), instance.space,
        starts=np.array([gap.start for gap in gaps], np.int64), ends=np.array([gap.end for gap in gaps], np.int64),
        sizes=instance.sizes[at], savings=np.array([gap.saving for gap in gaps], np.int64), parents=tuple(parents),
    )  # fmt: skip
