# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Chooses the buffers in the scratchpads, and their addresses."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

from spyre_mlir import problems
from spyre_mlir.analysis.aliasing import functions, is_in_lx
from spyre_mlir.analysis.buffer_uses import Usage
from spyre_mlir.analysis.core_ownership import SHUFFLE
from spyre_mlir.analysis.kept_usage import usage_of
from spyre_mlir.analysis.lx_candidates import Candidate, Rules, candidates
from spyre_mlir.analysis.plan_pins import PinnedBuffer, placement_pins, plan_around
from spyre_mlir.diagnostics import error_at
from spyre_mlir.dialects import sdsc
from spyre_mlir.dialects.structured import maker_of
from spyre_mlir.dialects.targets import target_of
from spyre_mlir.errors import CompileError
from spyre_mlir.mlir import ir
from spyre_mlir.options import from_environment
from spyre_mlir.passes.base import EvaluatingPass, Evaluator, Pass
from spyre_mlir.records import Statement, dataclass
from spyre_mlir.scratchpad import (
    LifetimeBoundBuffer,
    MemoryPlan,
    MemoryPlanSolver,
    MemorySpace,
    PlanError,
    solver,
)
from spyre_mlir.scratchpad.eligibility import LostCompetition, PinnedElsewhere, Reason
from spyre_mlir.scratchpad.instance import Instance
from spyre_mlir.scratchpad.loads_ahead import with_loads_ahead
from spyre_mlir.target.ops import DEVICE_OPS
from spyre_mlir.timing import scope

#: The operation whose load writes its result directly, not a tile in the part of LX of the back end.
_COPY = "identity"


class PlannedTraffic(
    Statement,
    sentence="{in_lx} buffers in LX, {in_device_memory} in device memory; bytes of traffic {before} without LX,"
    " {after} with it, {least} at least for these operations; peak {peak} of {capacity}",
):
    """The plan of a function: numbers of buffers, bytes of traffic with a lower bound, and bytes of LX."""

    in_lx: int
    in_device_memory: int
    before: int
    after: int
    least: int
    peak: int
    capacity: int


class Spill(Statement):
    """A buffer in device memory, and the reasons."""

    reasons: tuple[Reason, ...]

    @property
    def detail(self) -> str:
        return "; ".join(map(str, self.reasons))


@dataclass(frozen=True)
class ScratchpadPlanning(Pass):
    """Place buffers that are read again in LX, to save device memory traffic ("Scratchpad (LX) optimization").

    A buffer may be ineligible for one of the reasons in ``scratchpad/eligibility.py``; of the eligible buffers the
    solver places those that save most traffic. Buffers in device memory record the reason (``sdsc.spilled``). Optional
    clones without an address are removed.

    ``layout_solver`` is a name in ``scratchpad/solvers.py``; ``order_by_size`` places the largest buffers first
    instead. ``in_place`` lets a pointwise result overwrite an operand that is not read later. If ``lx_ops`` is given,
    only results of these operations may be in LX, including copies on other cores by a shuffle. Pins of a plan file
    (``apply-plan``) are kept: if the solver's plan would break them, the other buffers are fitted around the pinned
    buffers instead.

    Before: level *divided*. After:
        sdsc.placement = #sdsc.lx<4096>
        sdsc.spilled = ["core division mismatch: ..."]
    """

    name: ClassVar[str] = "scratchpad-planning"
    layout_solver: str = from_environment("LAYOUT_SOLVER", "portfolio")
    order_by_size: bool = False
    in_place: bool = True
    lx_ops: tuple[str, ...] = ()

    def run(self, module: ir.Operation) -> None:
        unknown = next((name for name in self.lx_ops if name not in DEVICE_OPS), None)
        if unknown is not None:
            raise CompileError(f"lx-ops names '{unknown}', which is not a device operation.")
        rules = Rules(MemorySpace.of_lx(target_of(module)), self.in_place, frozenset(self.lx_ops))
        for func in functions(module):
            self._plan(func, rules)

    def _plan(self, func: ir.Operation, rules: Rules) -> None:
        """Plan LX for a function, and write the addresses and the reasons for spills as attributes and remarks."""
        usage = usage_of(func)
        all_candidates, plan = self._planned(usage, rules)
        # Data of a dropped shuffle now goes through device memory, so everything is planned again.
        while self._drop_relayouts(usage, all_candidates, plan):
            usage = Usage(func)
            all_candidates, plan = self._planned(usage, rules)
        eligible = [candidate for candidate in all_candidates if not candidate.reasons]
        # Computed before buffers are placed, because the usage reads placements from the IR.
        before = usage.hbm_bytes()
        placed = [candidate for candidate in eligible if candidate.buffer.name in plan.addresses]
        for candidate in placed:
            for root, address in candidate.addresses(plan.addresses[candidate.buffer.name]).items():
                maker_of(root).attributes[sdsc.PLACEMENT] = sdsc.lx_attr(address)
        self._report(all_candidates, plan)
        for user in usage.ops:
            if sdsc.OPTIONAL not in user.op.attributes:
                continue
            # The operand is read from the op, because ``user.values`` may refer to a clone that was already erased.
            source, clone = user.op.operands[0], user.values[-1]
            # A clone from device memory to device memory only adds cost: its readers can read the source.
            if not is_in_lx(usage.root(source)) and not is_in_lx(clone):
                clone.replace_all_uses_with(source)
                user.op.erase()
        saved = sum(candidate.saved for candidate in placed)
        # The planner counts the time of short runs as bytes; another choice may take longer but move less.
        unknown = plan.gap + sum(candidate.unmoved_bytes for candidate in placed)
        least = before - saved - (unknown if len(placed) < len(eligible) else 0)
        in_lx, after = len(plan.addresses), before - saved
        counts = in_lx, len(all_candidates) - in_lx
        planned = PlannedTraffic(*counts, before, after, least, plan.peak, rules.space.capacity)
        self.remark(func, "plan", planned, before=before, after=after)

    def _planned(self, usage: Usage, rules: Rules) -> tuple[list[Candidate], MemoryPlan]:
        """Return the candidates, and the plan of the eligible ones."""
        all_candidates = candidates(usage, rules)
        buffers = tuple(candidate.buffer for candidate in all_candidates if not candidate.reasons)
        problems.offer("buffers", (buffers, rules.space))
        name = "largest-first" if self.order_by_size else self.layout_solver
        try:
            chosen = type(solver(name))
            with scope(name):
                plan = _plan_of(chosen, buffers, rules.space)
        except PlanError as error:
            raise error_at(usage.func, f"the scratchpads cannot be planned: {error}") from error
        pins = placement_pins(usage.memory, (user.op for user in usage.ops))
        plan = self._with_loads_ahead(usage, all_candidates, plan, rules)
        # The solver's plan is better than a plan around pins, so it is kept if it satisfies the pins anyway.
        if all(_keeps_pins(candidate, pins, plan) for candidate in all_candidates):
            return all_candidates, plan
        pinned: dict[str, PinnedBuffer] = {}
        for index, candidate in enumerate(all_candidates):
            for pin in _joint_pins(candidate, pins):
                if pin.placement.memory == "lx":
                    if candidate.reasons:
                        pin.refuse(str(Spill(candidate.reasons)))
                    pinned[candidate.buffer.name] = pin
                elif not candidate.reasons:
                    # A buffer that is pinned to device memory is ineligible for LX.
                    all_candidates[index] = replace(candidate, reasons=(PinnedElsewhere(pin.placement),))
                    break
        text = f"{len(pinned)} buffers stay at the addresses of the plan file; other buffers are placed around them"
        self.remark(usage.func, "pins", text)
        buffers = [candidate.buffer for candidate in all_candidates if not candidate.reasons]
        names = {buffer.name for buffer in buffers}
        # The other buffers cannot be in-place parents.
        parents = [tuple(name for name in buffer.in_place_parents if name in names) for buffer in buffers]
        fitted = [replace(b, in_place_parents=kept) for b, kept in zip(buffers, parents, strict=True)]
        return all_candidates, plan_around(pinned, fitted, rules.space)

    def _with_loads_ahead(
        self, usage: Usage, all_candidates: Sequence[Candidate], plan: MemoryPlan, rules: Rules
    ) -> MemoryPlan:
        """Return the plan with addresses at which copies into LX need not wait for the operation before them."""
        if not target_of(usage.func).loads_begin_early:
            return plan
        in_lx = {
            root
            for candidate in all_candidates
            if candidate.buffer.name in plan.addresses
            for root in candidate.addresses(0)
        }
        previous = {
            candidate.buffer.name: tuple(
                before
                for access in usage.buffers[candidate.root].writes
                if access.user.opcode == _COPY and usage.root(access.user.values[0]) not in in_lx
                for before in usage.previous(access.position)
            )
            for candidate in all_candidates
            if candidate.root in in_lx
        }
        buffers = [candidate.buffer for candidate in all_candidates if not candidate.reasons]
        return with_loads_ahead(plan, buffers, rules.space, {name: at for name, at in previous.items() if at})

    def _drop_relayouts(self, usage: Usage, all_candidates: Sequence[Candidate], plan: MemoryPlan) -> bool:
        """Remove shuffles whose source or result has no placement in LX, and return whether there were any.

        Readers of a removed shuffle read its source through device memory.
        """
        placed = {
            root
            for candidate in all_candidates
            if candidate.buffer.name in plan.addresses
            for root in candidate.addresses(0)
        }
        dropped = [
            user
            for user in usage.ops
            if user.opcode == SHUFFLE and not placed.issuperset(map(usage.root, user.values))
        ]
        for user in dropped:
            self.remark(user.op, "no relayout", "its source and its result do not fit LX together")
            user.op.results[0].replace_all_uses_with(user.op.operands[0])
            user.op.erase()
        return bool(dropped)

    def _report(self, all_candidates: Sequence[Candidate], plan: MemoryPlan) -> None:
        """Emit a remark for each buffer, and record why a buffer is not in LX on its defining op."""
        for candidate in all_candidates:
            owner, buffer = maker_of(candidate.root), candidate.buffer
            if buffer.name in plan.addresses:
                text = f"{buffer.size} bytes per core at {plan.addresses[buffer.name]}"
                text += f", and again {candidate.distance} bytes after it" if buffer.copies > 1 else ""
                before, after = candidate.spilled_bytes, buffer.traffic_if_placed
                self.remark(owner, "in LX", text, before=before, after=after)
                continue
            reasons = candidate.reasons or (LostCompetition(plan.spilled[buffer.name]),)
            self.remark(owner, "spill", Spill(reasons), after=candidate.spilled_bytes)
            texts = ir.ArrayAttr.get([ir.StringAttr.get(str(reason)) for reason in reasons])
            for root in candidate.addresses(0):
                maker_of(root).attributes[sdsc.SPILLED] = texts


# Cached because evaluations and later passes plan the same buffers, for example after an evaluation without changes.
@functools.lru_cache(maxsize=64)
def _plan_of(
    chosen: type[MemoryPlanSolver], buffers: tuple[LifetimeBoundBuffer, ...], space: MemorySpace
) -> MemoryPlan:
    """Return the plan of a solver with its default options."""
    return chosen().plan(buffers, space)


def _keeps_pins(candidate: Candidate, pins: Mapping[ir.Value, PinnedBuffer], plan: MemoryPlan) -> bool:
    address = plan.addresses.get(candidate.buffer.name)
    for root, buffer_address in candidate.addresses(address or 0).items():
        if root in pins:
            placement = pins[root].placement
            expected = placement.address if placement.memory == "lx" else None
            if (None if address is None else buffer_address) != expected:
                return False
    return True


def _joint_pins(candidate: Candidate, pins: Mapping[ir.Value, PinnedBuffer]) -> Iterator[PinnedBuffer]:
    """Yield the pin of a candidate, as the placement of its first buffer; an error if the pins of a pair disagree."""
    known: PinnedBuffer | None = None
    for root, offset in candidate.addresses(0).items():
        pinned = pins.get(root)
        if pinned is None:
            continue
        placement = pinned.placement
        if placement.memory == "lx":
            assert isinstance(placement.address, int)
            placement = replace(placement, address=placement.address - offset)
        if known is None:
            known = replace(pinned, placement=placement)
            yield known
        elif known.placement != placement:
            pinned.refuse(f"it belongs to a double buffer whose copies are {candidate.distance} bytes apart")


# Base class of passes before scratchpad planning, which decide by the program that planning would produce.


@dataclass(frozen=True)
class BeforePlanning(EvaluatingPass):
    """A pass that changes a function if the change makes the planned program cheaper."""

    def eligible(self, usage: Usage, evaluator: Evaluator) -> list[Candidate]:
        """Return the buffers that may be in LX according to the options of ``scratchpad-planning``."""
        planning = evaluator.behind(ScratchpadPlanning.name)
        # A user-defined pipeline may not contain scratchpad-planning; its default options are then the best guess.
        if not isinstance(planning, ScratchpadPlanning):
            planning = ScratchpadPlanning()
        rules = Rules(MemorySpace.of_lx(usage.memory.target), planning.in_place, frozenset(planning.lx_ops))
        return [candidate for candidate in candidates(usage, rules) if not candidate.reasons]


def fit(eligible: Sequence[Candidate], space: MemorySpace) -> bool:
    """Return whether the capacity is at least the peak of live bytes if all the buffers are in LX."""
    return Instance.of([candidate.buffer for candidate in eligible], space).load <= space.capacity


def replace_function(func: ir.Operation, module: ir.Module) -> None:
    """Replace a function by its changed copy, which is the only function of ``module``."""
    (changed,) = functions(module.operation)
    changed.detach_from_parent()
    ir.InsertionPoint(func).insert(changed)
    func.erase()
