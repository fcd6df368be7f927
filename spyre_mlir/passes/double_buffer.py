# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Double buffers: loops load the tile of the next iteration while this one computes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from spyre_mlir.analysis.aliasing import all_ops, functions
from spyre_mlir.analysis.buffer_uses import Usage
from spyre_mlir.analysis.loads import module_of, move_behind, nested_blocks
from spyre_mlir.analysis.loops import LOOP, trip_count
from spyre_mlir.analysis.program_cost import ProgramCost
from spyre_mlir.dialects import sdsc
from spyre_mlir.mlir import ir
from spyre_mlir.passes.base import Evaluator
from spyre_mlir.passes.before_planning import BeforePlanning, replace_function
from spyre_mlir.records import dataclass
from spyre_mlir.rewriting.load_slots import clone_streams, drop_clones, slots
from spyre_mlir.rewriting.software_pipelining import pipeline

#: Of the traffic of a program, what loads ahead may add to it: buffers that take turns leave less room for others.
MOST_TRAFFIC = 1.01


@dataclass(frozen=True)
class DoubleBuffer(BeforePlanning):
    """Issue loads of loops where others compute, for the next iteration if need be: ping-pong buffers.

    A load is an operation on a tile of what the host gave that waits for device memory longer than it computes: a
    clone, a restickify, a function of an input. The next operation's loads begin while one computes
    (``loads_begin_early`` of ``target/spyre.toml``), so a load goes right behind the operation that computes longest
    while the memory is idle. If that comes behind the load's readers, the load is that of the next tile: the loop then
    does two iterations in one, with two buffers in turn, which are planned as a pair (``sdsc.ping_pong``). Operands
    that an operation streams from device memory, longer than it computes, get a clone that can go ahead.

    Only loops without loops in them are changed, and only if the timeline of the program, planned to its end, is
    shorter, hardly more moves (``MOST_TRAFFIC``), and all that goes ahead is in LX. The program still does one
    operation after the other. ``compare=false`` lets loads go ahead unasked, with new clones only where there are no
    other loads.

    Before, level *divided*:
        for i: %t = tanh(%x[i]); %p = matmul(%t, %w); %s = add(%s, %p)
    After:
        %t = tanh(%x[0]) {sdsc.ping_pong = [0, 0]}
        for i by 2: %p = matmul(%t, %w); %u = tanh(%x[i + 1]) {sdsc.ping_pong = [0, 1]}; %s = add(%s, %p)
                    %p = matmul(%u, %w); %t = tanh(%x[i + 2]) {sdsc.ping_pong = [0, 0]}; %s = add(%s, %p)
        ..
    """

    name: ClassVar[str] = "double-buffer"
    compare: bool = True

    def decide(self, module: ir.Operation, evaluator: Evaluator) -> None:
        """Rewrite ``module`` in place."""
        for func in functions(module):
            has_pairs = any(sdsc.PING_PONG in op.attributes for op in all_ops(func))
            # A function that has pairs was pipelined by an earlier run.
            if not has_pairs and any(True for _ in _innermost_loops(func)):
                self._choose(func, evaluator)

    def _choose(self, func: ir.Operation, evaluator: Evaluator) -> None:
        """Keep the best of three functions: as it is, with loads ahead, and with clones of its streams, too."""
        plans = [self._plan(func, streams=streams) for streams in (False, True)]
        # Streams without a remaining clone give the same plan.
        plans = [plan for plan in plans if plan.loads and (plan.clones or plan is plans[0])]
        if not plans:
            self.remark(func, "no double buffers", "no operation computes while a load of its loop waits")
            return
        if not self.compare:
            replace_function(func, plans[0].module)
            return
        before = self._time(func, evaluator)
        if before is None:
            return
        prices = {plan: price for plan in plans if (price := self._time(plan.func, evaluator)) is not None}
        if not prices:
            self.remark(
                func, "no double buffers", f"LX has no room for what is loaded ahead; {before} without that"
            )
            return
        best = min(prices, key=lambda plan: prices[plan].nanoseconds)
        after = prices[best]
        text = f"{before} with loads where they are read, {after} with {best}"
        # Pairs take LX from other buffers; where those spill, the memory that loads wait for is busier.
        if after.nanoseconds >= before.nanoseconds or after.bytes > MOST_TRAFFIC * before.bytes:
            self.remark(func, "no double buffers", text)
            return
        self.remark(func, "double buffers", text, before.nanoseconds, after.nanoseconds)
        replace_function(func, best.module)

    def _plan(self, func: ir.Operation, *, streams: bool) -> _BufferPlan:
        """Return a copy of the function whose loads go ahead."""
        module, loads, pairs, kept = module_of(func), 0, 0, 0
        (changed,) = functions(module.operation)
        loops = list(_innermost_loops(changed))
        clones: list[list[ir.Operation]] = [[] for _ in loops]
        # Loops do not share their ops: what one of them gains does not depend on the changes of another.
        if streams:
            usage = Usage(changed)
            clones = [clone_streams(usage, loop, self.name) for loop in loops]
        usage = Usage(changed)
        # A loop of one iteration has no next tile.
        slots_of_loops = [
            [slot for slot in slots(usage, loop) if trip_count(loop) > 1 or not slot.ahead] for loop in loops
        ]
        for loop, chosen, of_loop in zip(loops, slots_of_loops, clones, strict=True):
            staying = drop_clones(of_loop, chosen)
            for slot in chosen:
                if not slot.ahead:
                    move_behind(slot.load, slot.behind)
                    # Planning must not drop it: it is there to overlap, not to save bytes.
                    if slot.load in staying:
                        del slot.load.attributes[sdsc.OPTIONAL]
            ahead = [slot for slot in chosen if slot.ahead]
            if ahead:
                pipeline(loop, ahead, pairs)
            loads, pairs, kept = loads + len(chosen), pairs + len(ahead), kept + len(staying)
        return _BufferPlan(module, loads, pairs, kept)

    def _time(self, func: ir.Operation, evaluator: Evaluator) -> ProgramCost | None:
        """Evaluate a function by the timeline of its bundle; None if the rest of the pipeline refuses it.

        Nothing is where a plan file pins it, which may tell of the program with its loads ahead.
        """
        module = module_of(func)
        for op in all_ops(functions(module.operation)[0]):
            if sdsc.PINS in op.attributes:
                del op.attributes[sdsc.PINS]
        return evaluator.time(module)


@dataclass(frozen=True)
class _BufferPlan:
    """Module with a copy of a function with ``loads`` of loops moved, into ``pairs`` of ping-pong buffers.

    ``clones`` of streams are among the loads.
    """

    module: ir.Module
    loads: int
    pairs: int
    clones: int

    @property
    def func(self) -> ir.Operation:
        """The function of the module."""
        (func,) = functions(self.module.operation)
        return func

    def __str__(self) -> str:
        return f"{self.loads} elsewhere, {self.pairs} of them into ping-pong buffers"


def _innermost_loops(func: ir.Operation) -> Iterator[ir.Operation]:
    """Yield the loops without loops in them."""
    for block in nested_blocks(func.regions[0].blocks[0]):
        owner = block.owner.operation
        if owner.name == LOOP and all(op.operation.name != LOOP for op in block.operations):
            yield owner
