# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Chooses divisions by the bytes that scratchpad planning leaves in device memory: strategy B of torch-spyre."""

from __future__ import annotations

import math
from typing import ClassVar

from spyre_mlir.analysis.aliasing import functions
from spyre_mlir.analysis.buffer_uses import Usage
from spyre_mlir.analysis.lx_candidates import BufferDivision, Rules, candidates_of, facts_of
from spyre_mlir.diagnostics import error_at
from spyre_mlir.division_search.strategy_b import CoOptimized, Divisions, Leaf, StrategyBCoOptimizingAllocator
from spyre_mlir.mlir import ir
from spyre_mlir.options import from_environment
from spyre_mlir.passes.base import Pass
from spyre_mlir.records import dataclass
from spyre_mlir.rewriting.divider import Divider, work_of
from spyre_mlir.scratchpad import MemorySpace, PlanError


@dataclass(frozen=True)
class CoOptimizeStrategyB(Pass):
    """Move splits to other dims if fewer bytes then go through device memory.

    This is the algorithm of "Scratchpad (LX) optimization" to choose divisions and scratchpads together, kept for
    comparison. The split of an operation with a single split of an output dim may move to another output dim. All
    combinations are planned, and the one that leaves the fewest bytes in device memory is chosen; the divisions stay
    unchanged if no combination is better. The time of operations is not considered, and clones that later passes
    insert do not exist yet. Choices that a plan file pins are kept.

    ``variant_cap`` is the maximum number of divisions per operation. ``leaves`` bounds the number of
    combinations, which is exponential: if there are more, the best of the first ones is chosen, in which mostly the
    last operations differ, and the remark on the function reports this. ``layout_solver``,
    ``in_place`` and ``lx_ops`` are as for ``scratchpad-planning``.

    Before, and after, level *divided*:
        %0 = max .. division<[1, 16]>    ->  %0 = max .. division<[1, 16]>
        %1 = sub .. division<[16, 1]>    ->  %1 = sub .. division<[1, 16]>
    """

    name: ClassVar[str] = "co-optimize-strategy-b"
    variant_cap: int = StrategyBCoOptimizingAllocator.variant_cap
    leaves: int = StrategyBCoOptimizingAllocator.leaves
    layout_solver: str = from_environment("LAYOUT_SOLVER", StrategyBCoOptimizingAllocator.layout_solver)
    in_place: bool = True
    lx_ops: tuple[str, ...] = ()

    def run(self, module: ir.Operation) -> None:
        divider = Divider()
        for func in functions(module):
            usage = Usage(func)
            result = self.search(usage)
            for user, division in zip(usage.ops, result.divisions, strict=True):
                if division.splits != user.division.splits:
                    divider.divide(user.op, user.opcode, user.space, division.splits)
                    text = f"slices {list(user.division.splits)} become {list(division.splits)}"
                    self.remark(user.op, "division", text)
            self._report(func, result)

    def search(self, usage: Usage) -> CoOptimized:
        """Return the divisions that leave the fewest bytes; the program is not changed."""
        rules = Rules(MemorySpace.of_lx(usage.memory.target), self.in_place, frozenset(self.lx_ops))
        allocator = StrategyBCoOptimizingAllocator(self.layout_solver, self.variant_cap, self.leaves)
        try:
            ops = [work_of(user) for user in usage.ops]
            return allocator.allocate(ops, Leaves(usage, rules).leaf, rules.space)
        except PlanError as error:
            raise error_at(usage.func, f"the scratchpads cannot be planned: {error}") from error

    def _report(self, func: ir.Operation, result: CoOptimized) -> None:
        if result.leaves == 1:
            return
        text = f"bytes of traffic, the fewest of all {result.leaves} combinations of divisions"
        if result.scored < result.leaves:
            # The number can have as many digits as the program has operations.
            is_large = result.leaves >= 10**9
            leaves = f"10^{math.log10(result.leaves):.0f}" if is_large else f"{result.leaves:,}"
            text = (
                f"bytes of traffic, the fewest of the first {result.scored} of {leaves} combinations of"
                " divisions: the option leaves bounds the search, so a better combination may exist"
            )
        self.remark(func, "divisions", text, before=result.before, after=result.after)


class Leaves:
    """Leaves of the search: the facts of a buffer under a choice of divisions, computed once, without the IR."""

    def __init__(self, usage: Usage, rules: Rules) -> None:
        self.usage = usage
        self.rules = rules
        self.intermediates = {root: buffer for root, buffer in usage.buffers.items() if not buffer.from_host}
        self.inputs = [buffer for buffer in usage.buffers.values() if buffer.from_host]
        self.positions = {
            root: tuple(access.position for access in buffer.accesses)
            for root, buffer in usage.buffers.items()
        }
        self.facts: dict[tuple[ir.Value, Divisions], BufferDivision] = {}
        self.bytes: dict[tuple[ir.Value, Divisions], int] = {}

    def leaf(self, divisions: Divisions) -> Leaf:
        """Return the buffers that may be in LX with these divisions, and the bytes that all others move."""
        facts = {}
        # Leaves differ in few divisions, so most buffers have the same divisions as in an earlier leaf.
        for root, buffer in self.intermediates.items():
            key = root, tuple([divisions[position] for position in self.positions[root]])
            if key not in self.facts:
                self.facts[key] = facts_of(buffer.divided_as(divisions), self.usage, self.rules)
            facts[root] = self.facts[key]
        moved = 0
        for buffer in self.inputs:
            key = buffer.root, tuple([divisions[position] for position in self.positions[buffer.root]])
            if key not in self.bytes:
                self.bytes[key] = buffer.divided_as(divisions).hbm_bytes
            moved += self.bytes[key]
        eligible = tuple(
            candidate.buffer
            for candidate in candidates_of(self.usage, self.rules, facts)
            if not candidate.reasons
        )
        # The solver gets only the eligible buffers; the traffic of all others does not depend on its plan.
        moved += sum(buffer_facts.spilled_traffic for buffer_facts in facts.values() if buffer_facts.reasons)
        return Leaf(eligible, moved)
