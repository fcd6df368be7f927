# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Places each buffer that is not in LX in HBM: in a kernel argument, or at an offset in the pool."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from spyre_mlir.analysis.aliasing import AliasAnalysis, all_ops, is_in_lx, updated_arguments
from spyre_mlir.analysis.plan_pins import PinnedBuffer, placement_pins, plan_around
from spyre_mlir.dialects import sdsc
from spyre_mlir.dialects.structured import defining_op, maker_of
from spyre_mlir.dialects.targets import target_of
from spyre_mlir.errors import CompileError
from spyre_mlir.mlir import ir, location_of
from spyre_mlir.passes.base import Pass
from spyre_mlir.records import dataclass
from spyre_mlir.scratchpad import LifetimeBoundBuffer, MemoryPlan, MemorySpace, solver
from spyre_mlir.scratchpad.instance import Instance


@dataclass(frozen=True)
class PlaceInHbm(Pass):
    """Place results in kernel arguments, and all other buffers outside LX in one pool, by live range.

    A buffer is live from the op that first writes it to the last op that reads it or a view of it, and in a loop as
    long as other iterations need it. The size of the pool is the highest end of its buffers. The best of several
    placement orders is used; ``order_by_size`` places the largest buffers first instead. Arguments and constants are
    already placed. Buffers that a plan file pins (``apply-plan``) are at their pins, with the others around them.

        sdsc.placement = #sdsc.hbm<"pool", 4096>
    """

    name: ClassVar[str] = "place-in-hbm"
    order_by_size: bool = False

    def run_on(self, func: ir.Operation) -> None:
        """Give each result its argument, and each other buffer outside of LX an offset in the shared pool."""
        memory, ops = AliasAnalysis(func), all_ops(func)
        # The first and the last operation on each buffer that an op defines, in program order.
        live_ranges: dict[ir.Value, tuple[int, int]] = {}
        for root, live_range in memory.live_ranges.items():
            owner = defining_op(root)
            if owner is not None and owner.name != "arith.constant" and not is_in_lx(root):
                live_ranges[root] = (live_range.uses[0], live_range.uses[-1])
        for index, value in enumerate(ops[-1].operands):
            root = memory.place(value).buffer
            if root in updated_arguments(func, index):
                continue  # the result updates an argument in place
            owner = defining_op(root)
            if owner is None or root not in live_ranges:
                raise CompileError(f"result {index} has no buffer of its own", location_of(ops[-1].location))
            owner.attributes[sdsc.PLACEMENT] = sdsc.hbm_attr(f"result{index}", 0)
            # A result has a separate kernel argument, so it needs no bytes of the pool.
            del live_ranges[root]
        buffers = {
            str(number): LifetimeBoundBuffer(str(number), memory.layout(value).bytes, live_range)
            for number, (value, live_range) in enumerate(live_ranges.items())
        }
        names = dict(zip(live_ranges, buffers, strict=True))
        pinned = {
            names[root]: pin
            for root, pin in placement_pins(memory, ops).items()
            if root in names and pin.placement.memory == "pool"
        }
        plan = self._plan(func, list(buffers.values()), pinned)
        for name, value in zip(buffers, live_ranges, strict=True):
            maker_of(value).attributes[sdsc.PLACEMENT] = sdsc.hbm_attr("pool", plan.addresses[name])
        i64 = ir.IntegerType.get_signless(64)
        func.attributes[sdsc.POOL_BYTES] = ir.IntegerAttr.get(i64, plan.peak)
        text = (
            f"{len(buffers)} intermediates share a pool of {plan.peak} bytes; {plan.load} are alive at once"
        )
        self.remark(func, "placement", text, after=plan.peak)

    def _plan(
        self, func: ir.Operation, buffers: list[LifetimeBoundBuffer], pinned: Mapping[str, PinnedBuffer]
    ) -> MemoryPlan:
        space = MemorySpace.of_pool(target_of(func))
        chosen = solver("largest-first") if self.order_by_size else solver("portfolio", least_peak=True)
        plan = chosen.plan(buffers, space)
        # If the plan does not satisfy the pins by chance, the other buffers are planned around the pins.
        if any(plan.addresses.get(name) != pin.placement.address for name, pin in pinned.items()):
            plan = plan_around(pinned, buffers, space)
        if plan.spilled:
            load = Instance.of(buffers, space).load
            reason = f"intermediates need {load} bytes at once, the pool has {space.capacity}"
            if load <= space.capacity:
                reason += ", and no placement without overlap was found"
            raise CompileError(reason, location_of(func.location))
        return plan
