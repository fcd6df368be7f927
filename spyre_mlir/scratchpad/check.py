# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checker of memory plans, independent of the planners: it uses neither solvers nor instances.

The rules follow from ``MemoryPlan``: each buffer has one address or a reason why not; addresses are aligned and the
memory is large enough; no two buffers that are live at the same time share a byte, except a child that takes over the
address of its parent at the last use of the parent; the numbers of the plan agree with its addresses. Plans that spill
and reload buffers have the same rules for each residency (``check_spill_and_reload_plan``).
"""

from __future__ import annotations

import bisect
import heapq
import itertools
from collections.abc import Sequence
from dataclasses import replace

from spyre_mlir.records import dataclass
from spyre_mlir.scratchpad.buffers import LifetimeBoundBuffer, MemorySpace, PlanError, check_buffers
from spyre_mlir.scratchpad.solver import MemoryPlan, Residency, SpillAndReloadPlan


@dataclass(frozen=True)
class _PlacedBlock:
    """A placed buffer: the bytes ``begin`` to ``end`` (excluded)."""

    buffer: LifetimeBoundBuffer
    begin: int
    end: int

    def __str__(self) -> str:
        first, last = self.buffer.first, self.buffer.last
        return f"'{self.buffer.name}' (bytes {self.begin} to {self.end}, operations {first} to {last})"


def check_plan(buffers: Sequence[LifetimeBoundBuffer], space: MemorySpace, plan: MemoryPlan) -> None:
    """Check the ``plan`` of ``buffers`` that share ``space``, independently of the planners.

    Raises:
        PlanError: The plan breaks a rule; the error is about the first one.
    """
    named = check_buffers(buffers)
    unknown = next((name for name in [*plan.addresses, *plan.spilled] if name not in named), None)
    if unknown is not None:
        raise PlanError(f"The plan has '{unknown}', which is not a buffer.")
    for name in named:
        if name in plan.addresses and name in plan.spilled:
            raise PlanError(f"Buffer '{name}' has an address and a reason why it has none.")
        if name not in plan.addresses and not plan.spilled.get(name):
            raise PlanError(f"Buffer '{name}' has neither an address nor a reason why it has none.")
    blocks = [_block(named[name], space, address) for name, address in plan.addresses.items()]
    for block in blocks:
        _check_block(block, space)
    _check_overlaps(blocks)
    traffic = sum(
        buffer.traffic_if_placed if buffer.name in plan.addresses else buffer.traffic_if_spilled
        for buffer in buffers
    )
    _check_numbers(plan, traffic, blocks)
    if not 0 <= plan.load <= plan.peak:
        raise PlanError(f"The plan claims a load of {plan.load} bytes, more than its peak of {plan.peak}.")


def _block(buffer: LifetimeBoundBuffer, space: MemorySpace, address: int) -> _PlacedBlock:
    # Not ``MemorySpace.bytes_of``: a mistake that planners and the checker share would not be noticed.
    rounded = (buffer.size + space.alignment - 1) // space.alignment * space.alignment
    return _PlacedBlock(buffer, address, address + rounded * buffer.copies)


def _check_block(block: _PlacedBlock, space: MemorySpace) -> None:
    if block.begin % space.alignment:
        raise PlanError(f"Buffer {block} is not aligned to {space.alignment} bytes.")
    if block.begin < 0 or block.end > space.capacity:
        raise PlanError(f"Buffer {block} is not inside the memory of {space.capacity} bytes.")


def _check_overlaps(blocks: Sequence[_PlacedBlock]) -> None:
    """Check that live blocks do not overlap, by a sweep over time with the live blocks in order of address.

    Live blocks are disjoint, except for in-place pairs with equal begins. So a new block can only overlap blocks that
    begin inside it, and the blocks with the last begin before it.
    """
    live: list[
        tuple[int, int, _PlacedBlock]
    ] = []  # begin, number, block; the number distinguishes equal begins
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


def _hands_over(parent: _PlacedBlock, child: _PlacedBlock) -> bool:
    """Return whether the child may take over the parent's bytes: single copies, at one operation, with equal begin."""
    return (
        parent.buffer.name in child.buffer.in_place_parents
        and parent.buffer.last == child.buffer.first
        and parent.begin == child.begin
        and parent.end >= child.end
        and parent.buffer.copies == child.buffer.copies == 1
    )


def _check_numbers(
    plan: MemoryPlan | SpillAndReloadPlan, traffic: int, blocks: Sequence[_PlacedBlock]
) -> None:
    """Check that a plan claims the ``traffic`` and the peak that it has, and a bound of at most the traffic."""
    if plan.traffic != traffic:
        raise PlanError(f"The plan claims {plan.traffic} bytes of traffic; its buffers move {traffic}.")
    if not 0 <= plan.bound <= traffic:
        raise PlanError(
            f"The plan claims that {plan.bound} bytes of traffic are the least, but moves {traffic}."
        )
    peak = max((block.end for block in blocks), default=0)
    if plan.peak != peak:
        raise PlanError(f"The plan claims a peak of {plan.peak} bytes; its highest buffer ends at {peak}.")


def check_spill_and_reload_plan(
    buffers: Sequence[LifetimeBoundBuffer], space: MemorySpace, plan: SpillAndReloadPlan
) -> None:
    """Raise ``PlanError`` for the first rule of ``SpillAndReloadPlan`` that the plan of the buffers breaks.

    The first residency of a buffer can be in place of a parent, at the end of any residency of the parent.
    """
    named = check_buffers(buffers)
    blocks: dict[str, list[_PlacedBlock]] = {name: [] for name in named}
    for residency in plan.residencies:
        if residency.buffer not in named:
            raise PlanError(f"The plan has '{residency.buffer}', which is not a buffer.")
        block = _block(_resident(named[residency.buffer], residency), space, residency.address)
        _check_block(block, space)
        blocks[residency.buffer].append(block)
    for blocks_of_buffer in blocks.values():
        in_order = sorted(blocks_of_buffer, key=lambda block: block.buffer.first)
        for before, after in itertools.pairwise(in_order):
            if after.buffer.first <= before.buffer.last:
                raise PlanError(f"Buffer {before} overlaps its later residency {after}.")
    everything = [block for blocks_of_buffer in blocks.values() for block in blocks_of_buffer]
    _check_overlaps(everything)
    traffic = sum(
        _moved(named[name], [block.buffer for block in blocks_of_buffer])
        for name, blocks_of_buffer in blocks.items()
    )
    _check_numbers(plan, traffic, everything)


def _resident(buffer: LifetimeBoundBuffer, residency: Residency) -> LifetimeBoundBuffer:
    """Return the buffer restricted to a residency."""
    first, last = residency.first, residency.last
    if first not in buffer.uses or last not in buffer.uses:
        raise PlanError(
            f"Buffer '{buffer.name}' is kept from {first} to {last}, but used at {list(buffer.uses)}."
        )
    inside = tuple(use for use in buffer.uses if first <= use <= last)
    if not inside or (len(inside) == 1 and len(buffer.uses) > 1):
        raise PlanError(
            f"Buffer '{buffer.name}' is kept from {first} to {last}, which is not a gap between uses."
        )
    parents = buffer.in_place_parents if first == buffer.first else ()
    # Traffic has an entry for each use of the whole buffer; a residency has fewer uses.
    return replace(buffer, uses=inside, in_place_parents=parents, traffic_of_uses=None)


def _moved(buffer: LifetimeBoundBuffer, resident: Sequence[LifetimeBoundBuffer]) -> int:
    """Return the moved bytes: of the first use, and of the use at the end of each gap that is not in a residency."""
    traffic_of_use = buffer.traffic_of_each_use
    first = traffic_of_use[0]
    if any((part.first, part.last) == (buffer.first, buffer.last) for part in resident):
        first = min(first, buffer.traffic_if_placed)
    traffic = [first]
    for index in range(1, len(buffer.uses)):
        start, end = buffer.uses[index - 1 : index + 1]
        if not any(part.first <= start and end <= part.last for part in resident):
            traffic.append(traffic_of_use[index])
    return sum(traffic)
