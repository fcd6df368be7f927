"""Proves that a memory plan is right, apart from all that makes plans: neither solvers nor instances are used.

The rules are those of ``MemoryPlan``: each buffer has one address or the reason why not; addresses are aligned and
the memory is large enough; no two buffers that are live at the same time share a byte, except a child that takes
over the address of its parent at the last use of the parent; the numbers of the plan are those of its addresses.
"""

from __future__ import annotations

import bisect
import heapq
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from spyre_mlir.scratchpad.buffers import LifetimeBoundBuffer, MemorySpace, PlanError, check_buffers
from spyre_mlir.scratchpad.plan import MemoryPlan


@dataclass(frozen=True)
class _Block:
    """A placed buffer: the bytes ``begin`` to ``end``, the end excluded."""

    buffer: LifetimeBoundBuffer
    begin: int
    end: int

    def __str__(self) -> str:
        first, last = self.buffer.first, self.buffer.last
        return f"'{self.buffer.name}' (bytes {self.begin} to {self.end}, operations {first} to {last})"


def check_plan(buffers: Sequence[LifetimeBoundBuffer], space: MemorySpace, plan: MemoryPlan) -> None:
    """``PlanError`` with the first rule that the plan of the buffers breaks."""
    named = check_buffers(buffers)
    _check_names(named.keys(), plan)
    blocks = [_block(named[name], space, address) for name, address in plan.addresses.items()]
    for block in blocks:
        _check_block(block, space)
    _check_overlaps(blocks)
    _check_numbers(buffers, blocks, plan)


def _check_names(names: Collection[str], plan: MemoryPlan) -> None:
    """Each buffer is either placed or has a reason, and there are no others."""
    unknown = next((name for name in [*plan.addresses, *plan.spilled] if name not in names), None)
    if unknown is not None:
        raise PlanError(f"The plan has '{unknown}', which is no buffer.")
    for name in names:
        if name in plan.addresses and name in plan.spilled:
            raise PlanError(f"Buffer '{name}' has an address and a reason why it has none.")
        if name not in plan.addresses and not plan.spilled.get(name):
            raise PlanError(f"Buffer '{name}' has neither an address nor a reason why it has none.")


def _block(buffer: LifetimeBoundBuffer, space: MemorySpace, address: int) -> _Block:
    return _Block(buffer, address, address + _rounded(buffer.size, space.alignment) * buffer.copies)


def _rounded(size: int, alignment: int) -> int:
    return (size + alignment - 1) // alignment * alignment


def _check_block(block: _Block, space: MemorySpace) -> None:
    if block.begin % space.alignment:
        raise PlanError(f"Buffer {block} is not aligned to {space.alignment} bytes.")
    if block.begin < 0 or block.end > space.capacity:
        raise PlanError(f"Buffer {block} is not inside the memory of {space.capacity} bytes.")


def _check_overlaps(blocks: Sequence[_Block]) -> None:
    """Sweeps over time with the live blocks in order of address.

    They are disjoint, apart from handed-over ones with equal begins: so a new block can only meet those that
    begin inside it, and those with the last begin before.
    """
    live: list[tuple[int, int, _Block]] = []  # begin, number, block; the number tells equal begins apart
    dying: list[tuple[int, int, int]] = []  # last operation, begin, number
    for number, block in enumerate(sorted(blocks, key=lambda block: block.buffer.first)):
        while dying and dying[0][0] < block.buffer.first:
            live.pop(bisect.bisect_left(live, heapq.heappop(dying)[1:]))
        above = bisect.bisect_left(live, (block.begin,))
        below = live[above - 1][0] if above else block.begin
        for _, _, other in live[bisect.bisect_left(live, (below,)) : bisect.bisect_left(live, (block.end,))]:
            if other.end > block.begin and not (_hands_over(other, block) or _hands_over(block, other)):
                raise PlanError(f"Buffers {other} and {block} overlap.")
        bisect.insort(live, (block.begin, number, block))
        heapq.heappush(dying, (block.buffer.last, block.begin, number))


def _hands_over(parent: _Block, child: _Block) -> bool:
    """Whether the child may take over the bytes of the parent: one live copy, at one time, from the same base."""
    return (
        parent.buffer.name in child.buffer.in_place_parents
        and parent.buffer.last == child.buffer.first
        and parent.begin == child.begin
        and parent.end >= child.end
        and parent.buffer.copies == child.buffer.copies == 1
    )


def _check_numbers(
    buffers: Sequence[LifetimeBoundBuffer], blocks: Sequence[_Block], plan: MemoryPlan
) -> None:
    traffic = sum(
        buffer.traffic_if_placed if buffer.name in plan.addresses else buffer.traffic_if_spilled
        for buffer in buffers
    )
    if plan.traffic != traffic:
        raise PlanError(f"The plan claims {plan.traffic} bytes of traffic; its buffers move {traffic}.")
    if not 0 <= plan.bound <= traffic:
        raise PlanError(
            f"The plan claims that {plan.bound} bytes of traffic are the least, but moves {traffic}."
        )
    peak = max((block.end for block in blocks), default=0)
    if plan.peak != peak:
        raise PlanError(f"The plan claims a peak of {plan.peak} bytes; its highest buffer ends at {peak}.")
    if not 0 <= plan.load <= peak:
        raise PlanError(f"The plan claims a load of {plan.load} bytes, more than its peak of {peak}.")
