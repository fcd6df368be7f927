# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Live ranges of buffers from the scopes of their values: for verifiers, which do not trust the planner's ranges."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import field

from spyre_mlir.analysis.aliasing import AliasAnalysis, is_compute
from spyre_mlir.analysis.loops import LOOP, block_of, body_block
from spyre_mlir.mlir import ir
from spyre_mlir.records import dataclass


@dataclass
class ScopedLiveRange:
    """The first and last position at which a buffer is accessed, in one execution of the block that defines it."""

    root: ir.Value
    first: int
    last: int


@dataclass
class ScopedLiveRanges:
    """The live ranges of buffers, as positions in ``order``: the operations in execution order, each loop twice.

    A buffer that is defined in a loop is a new buffer in each iteration, because values do not outlive their block;
    an iter_arg is defined before the loop.
    """

    memory: AliasAnalysis
    order: list[ir.Operation] = field(default_factory=list)
    all: list[ScopedLiveRange] = field(default_factory=list)
    of_root: dict[ir.Value, list[ScopedLiveRange]] = field(default_factory=dict)

    @classmethod
    def of(cls, memory: AliasAnalysis) -> ScopedLiveRanges:
        """Compute the live ranges of the buffers of a function."""
        live_ranges = cls(memory)
        live_ranges._run(memory.block, {})
        return live_ranges

    def _run(self, block: ir.Block, alive: dict[ir.Block, dict[ir.Value, ScopedLiveRange]]) -> None:
        alive = {**alive, block: {}}
        for op in (item.operation for item in block.operations):
            if op.name == LOOP:
                # Two iterations show every overlap: a third iteration does not add any.
                for _ in range(2):
                    self._run(body_block(op), alive)
            elif is_compute(op):
                for value in self.memory.operands(op):
                    self._access(self.memory.place(value).buffer, alive)
                self.order.append(op)

    def _access(self, root: ir.Value, alive: dict[ir.Block, dict[ir.Value, ScopedLiveRange]]) -> None:
        known = alive[block_of(root)]
        if root not in known:
            known[root] = ScopedLiveRange(root, len(self.order), len(self.order))
            self.all.append(known[root])
            self.of_root.setdefault(root, []).append(known[root])
        known[root].last = len(self.order)


def simultaneous(live_ranges: Iterable[ScopedLiveRange]) -> Iterator[tuple[ScopedLiveRange, ScopedLiveRange]]:
    """Yield all pairs of live ranges that overlap, the earlier one first, by a sweep over time."""
    alive: list[ScopedLiveRange] = []
    for live_range in sorted(live_ranges, key=lambda live_range: live_range.first):
        alive = [other for other in alive if other.last >= live_range.first]
        yield from ((other, live_range) for other in alive)
        alive.append(live_range)
