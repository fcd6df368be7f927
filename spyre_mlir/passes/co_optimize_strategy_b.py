"""Chooses divisions by the bytes that planning the scratchpads leaves: the specification's strategy B."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from spyre_mlir.analysis.aliasing import functions
from spyre_mlir.analysis.buffer_uses import BufferAccesses, Usage
from spyre_mlir.analysis.lx_candidates import BufferDivision, Rules, candidates_of, facts_of
from spyre_mlir.diagnostics import error_at
from spyre_mlir.division_search.strategy_b import CoOptimized, Divisions, Leaf, StrategyBCoOptimizingAllocator
from spyre_mlir.mlir import ir
from spyre_mlir.options import from_environment
from spyre_mlir.passes.base import Pass
from spyre_mlir.rewriting.divider import Divider, work_of
from spyre_mlir.scratchpad import MemorySpace, PlanError
from spyre_mlir.target.device import device


@dataclass(frozen=True)
class CoOptimizeStrategyB(Pass):
    """Move splits to other dims where fewer bytes then go through device memory ("Scratchpad (LX) optimization").

    The published way to choose divisions and scratchpads together, kept to compare with: an operation with a single
    split of an output dim may have that split on another output dim; all combinations are planned, and the one that
    leaves the fewest bytes in device memory is taken, the divisions as they came if none is better. The time of
    the operations is not looked at, and clones that later passes insert are not there yet. What a plan file pins
    stays.

    ``variant_cap`` is the largest number of divisions per operation, its own included. ``leaves`` bounds the
    combinations, of which there are exponentially many: where there are more, the choice is the best of the first
    ones, in which the last operations differ most, and the remark on the function says so. ``layout_solver``,
    ``lx_frac_avail``, ``in_place`` and ``lx_ops`` are as for ``scratchpad-planning``.

    Before, and after, level *divided*:
        %0 = max .. division<[1, 16]>    ->  %0 = max .. division<[1, 16]>
        %1 = sub .. division<[16, 1]>    ->  %1 = sub .. division<[1, 16]>
    """

    name: ClassVar[str] = "co-optimize-strategy-b"
    variant_cap: int = StrategyBCoOptimizingAllocator.variant_cap
    leaves: int = StrategyBCoOptimizingAllocator.leaves
    layout_solver: str = from_environment("LAYOUT_SOLVER", StrategyBCoOptimizingAllocator.layout_solver)
    lx_frac_avail: float | None = None
    in_place: bool = True
    lx_ops: tuple[str, ...] = ()

    def run(self, module: ir.Operation) -> None:
        divider = Divider()
        for func in functions(module):
            usage = Usage(func)
            found = self.search(usage)
            self._commit(usage, found, divider)
            self._tell(func, found)

    def search(self, usage: Usage) -> CoOptimized:
        """The divisions that leave the fewest bytes; the program is not changed."""
        rules = Rules(self.target.usable_lx_bytes, self.in_place, frozenset(self.lx_ops))
        allocator = StrategyBCoOptimizingAllocator(self.layout_solver, self.variant_cap, self.leaves)
        space = MemorySpace(rules.capacity, device().lx_alignment_bytes)
        try:
            works = [work_of(each) for each in usage.ops]
            return allocator.allocate(works, Leaves(usage, rules).leaf, space)
        except PlanError as error:
            raise error_at(usage.func, f"the scratchpads cannot be planned: {error}") from error

    def _commit(self, usage: Usage, found: CoOptimized, divider: Divider) -> None:
        for each, division in zip(usage.ops, found.divisions, strict=True):
            if division.splits != each.division.splits:
                divider.divide(each.op, each.opcode, each.space, division.splits)
                text = f"slices {list(each.division.splits)} become {list(division.splits)}"
                self.remark(each.op, "division", text)

    def _tell(self, func: ir.Operation, found: CoOptimized) -> None:
        if found.leaves == 1:
            return
        text = f"bytes of traffic, the fewest of all {found.leaves} combinations of divisions"
        if found.scored < found.leaves:
            text = (
                f"bytes of traffic, the fewest of the first {found.scored} of {_count(found.leaves)} combinations of"
                " divisions: the option leaves bounds the search, so a better one may be unseen"
            )
        self.remark(func, "divisions", text, before=found.before, after=found.after)


def _count(leaves: int) -> str:
    """A number that can be as long as the program."""
    return f"{leaves:,}" if leaves < 10**9 else f"10^{math.log10(leaves):.0f}"


class Leaves:
    """The leaves of a program: what a choice of divisions makes of a buffer is worked out once, without the IR."""

    def __init__(self, usage: Usage, rules: Rules) -> None:
        self.usage = usage
        self.rules = rules
        self.made = {root: touched for root, touched in usage.buffers.items() if not touched.from_host}
        self.given = [touched for touched in usage.buffers.values() if touched.from_host]
        self.positions = {
            root: tuple(access.position for access in touched.accesses)
            for root, touched in usage.buffers.items()
        }
        self.facts: dict[tuple[ir.Value, Divisions], BufferDivision] = {}
        self.bytes: dict[tuple[ir.Value, Divisions], int] = {}

    def leaf(self, divisions: Divisions) -> Leaf:
        """The buffers that may be in LX with these divisions, and what the program moves beside them."""
        facts = {root: self._facts(touched, divisions) for root, touched in self.made.items()}
        able = tuple(each.buffer for each in candidates_of(self.usage, self.rules, facts) if not each.reasons)
        barred = sum(each.spilled_traffic for each in facts.values() if each.reasons)
        return Leaf(able, barred + sum(self._bytes(touched, divisions) for touched in self.given))

    def _facts(self, touched: BufferAccesses, divisions: Divisions) -> BufferDivision:
        key = self._key(touched, divisions)
        if key not in self.facts:
            self.facts[key] = facts_of(touched.divided_as(divisions), self.usage, self.rules)
        return self.facts[key]

    def _bytes(self, touched: BufferAccesses, divisions: Divisions) -> int:
        key = self._key(touched, divisions)
        if key not in self.bytes:
            self.bytes[key] = touched.divided_as(divisions).hbm_bytes
        return self.bytes[key]

    def _key(self, touched: BufferAccesses, divisions: Divisions) -> tuple[ir.Value, Divisions]:
        return touched.root, tuple([divisions[position] for position in self.positions[touched.root]])
