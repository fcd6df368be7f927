# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The addresses that a plan file pins, and memory plans that keep them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from spyre_mlir.analysis.aliasing import AliasAnalysis
from spyre_mlir.analysis.plan_pins import pins_of, refused
from spyre_mlir.dialects import sdsc
from spyre_mlir.mlir import ir
from spyre_mlir.plans import PlannedPlacement
from spyre_mlir.records import dataclass
from spyre_mlir.scratchpad import LifetimeBoundBuffer, MemoryPlan, MemorySpace
from spyre_mlir.scratchpad.instance import Instance
from spyre_mlir.scratchpad.pinned import PinnedSolver, conflict


@dataclass(frozen=True)
class PinnedBuffer:
    """A pinned placement, and the operation for which the plan file states it."""

    op: ir.Operation
    placement: PlannedPlacement

    def refuse(self, reason: str) -> None:
        """Raise the error for a placement that cannot hold."""
        raise refused(self.op, f"the placement {self.placement}", reason)


def placement_pins(memory: AliasAnalysis, ops: Iterable[ir.Operation]) -> dict[ir.Value, PinnedBuffer]:
    """The pinned buffers; operations that make parts of one buffer have to agree."""
    pins: dict[ir.Value, PinnedBuffer] = {}
    for op in ops:
        placement = pins_of(op).placement
        if placement is None:
            continue
        pinned = PinnedBuffer(op, placement)
        other = pins.setdefault(memory.place(op.results[0]).buffer, pinned)
        if other.placement != placement:
            name = sdsc.name_of(other.op)
            pinned.refuse(f"'{name}' makes another part of that buffer, which is pinned to {other.placement}")
    return pins


def plan_around(
    pinned: Mapping[str, PinnedBuffer], buffers: Sequence[LifetimeBoundBuffer], space: MemorySpace
) -> MemoryPlan:
    """A plan with some buffers, by name, where they are pinned, the others around them.

    ``CompileError`` for an address that is not aligned, not inside of the memory, or in the way of another.
    """
    addresses = {name: _address(pin) for name, pin in pinned.items()}
    instance = Instance.of(buffers, space)
    fixed = {
        index: addresses[buffer.name]
        for index, buffer in enumerate(instance.buffers)
        if buffer.name in addresses
    }
    for index, address in fixed.items():
        end, owner = address + int(instance.sizes[index]), pinned[instance.buffers[index].name]
        if address % space.alignment:
            owner.refuse(f"addresses are multiples of {space.alignment}")
        if end > space.capacity:
            owner.refuse(f"it would end at byte {end} of {space.capacity}")
    # Found before the solver runs, which would only say that there is no plan.
    clash = conflict(instance, fixed)
    if clash is not None:
        first, second = (pinned[instance.buffers[index].name] for index in clash)
        name, begin = sdsc.name_of(first.op), fixed[clash[0]]
        end = begin + int(instance.sizes[clash[0]])
        second.refuse(f"'{name}' is pinned to bytes {begin} to {end}, and both are alive at once")
    return PinnedSolver(pinned=addresses).plan(buffers, space)


def _address(pinned: PinnedBuffer) -> int:
    assert isinstance(pinned.placement.address, int)
    return pinned.placement.address
