"""Decides which buffers live in the scratchpads, and at which addresses."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from spyre_mlir.analysis.aliasing import functions, is_in_lx
from spyre_mlir.analysis.buffer_uses import Usage
from spyre_mlir.analysis.core_ownership import SHUFFLE
from spyre_mlir.analysis.lx_candidates import Candidate, Rules, candidates
from spyre_mlir.analysis.placement_pins import PinnedBuffer, placement_pins, plan_around
from spyre_mlir.diagnostics import error_at
from spyre_mlir.dialects import sdsc
from spyre_mlir.dialects.structured import maker_of
from spyre_mlir.errors import CompileError
from spyre_mlir.mlir import ir
from spyre_mlir.options import from_environment
from spyre_mlir.passes.base import Pass
from spyre_mlir.scratchpad import LifetimeBoundBuffer, MemoryPlan, MemorySpace, PlanError, solver
from spyre_mlir.scratchpad.eligibility import Barrier, Reason
from spyre_mlir.target.device import device
from spyre_mlir.target.ops import DEVICE_OPS
from spyre_mlir.timing import scope


@dataclass(frozen=True)
class ScratchpadPlanning(Pass):
    """Place in LX what is read again, so that little goes through device memory ("Scratchpad (LX) optimization").

    A buffer is barred for one of the reasons of ``scratchpad/eligibility.py``; of the others the solver places
    those that save most traffic. What stays in device memory says why (``sdsc.spilled``). Optional clones that
    got no address are removed.

    ``layout_solver`` is a name of ``scratchpad/solvers.py``; ``order_by_size`` takes the largest buffers first
    instead. ``lx_frac_avail`` is the part of LX that the backend keeps. ``in_place`` lets a pointwise result take
    the place of an operand that is not read later. ``lx_ops``, if given, are the only operations whose results
    may be in LX, on other cores by a shuffle, too. What a plan file pins (``apply-plan``) holds: where the
    solver's plan would break it, the others are fitted around the pinned buffers instead.

    Before: level *divided*. After:
        sdsc.placement = #sdsc.lx<4096>
        sdsc.spilled = ["core division mismatch: ..."]
    """

    name: ClassVar[str] = "scratchpad-planning"
    layout_solver: str = from_environment("LAYOUT_SOLVER", "portfolio")
    order_by_size: bool = False
    lx_frac_avail: float | None = None
    in_place: bool = True
    lx_ops: tuple[str, ...] = ()

    def run(self, module: ir.Operation) -> None:
        unknown = next((name for name in self.lx_ops if name not in DEVICE_OPS), None)
        if unknown is not None:
            raise CompileError(f"lx-ops names '{unknown}', which is no device operation.")
        rules = Rules(self.target.usable_lx_bytes, self.in_place, frozenset(self.lx_ops))
        for func in functions(module):
            self._plan(func, rules)

    def _plan(self, func: ir.Operation, rules: Rules) -> None:
        usage = Usage(func)
        found, plan = self._decided(usage, rules)
        while self._drop_relayouts(usage, found, plan):
            usage = Usage(func)
            found, plan = self._decided(usage, rules)
        able = [candidate for candidate in found if not candidate.reasons]
        before = usage.hbm_bytes()
        self._push(able, plan)
        self._tell(found, plan)
        self._drop_clones(usage)
        saved = sum(each.saved for each in able if each.buffer.name in plan.addresses)
        text = (
            f"{len(plan.addresses)} buffers in LX, {len(found) - len(plan.addresses)} in device memory;"
            f" bytes of traffic {before} without LX, {before - saved} with it,"
            f" {before - saved - plan.gap} at least for these operations; peak {plan.peak} of {rules.capacity}"
        )
        self.remark(func, "plan", text, before=before, after=before - saved)

    def _decided(self, usage: Usage, rules: Rules) -> tuple[list[Candidate], MemoryPlan]:
        """The candidates and the plan of those that are able."""
        found = candidates(usage, rules)
        able = [candidate for candidate in found if not candidate.reasons]
        plan = self._solved(usage.func, able, rules.capacity)
        pins = placement_pins(usage.memory, (each.op for each in usage.ops))
        if _hold(pins, found, plan):
            return found, plan
        found = [_pinned(each, pins) for each in found]
        able = [candidate for candidate in found if not candidate.reasons]
        return found, self._around(usage.func, pins, able, rules.capacity)

    def _drop_relayouts(self, usage: Usage, found: Sequence[Candidate], plan: MemoryPlan) -> bool:
        """Whether shuffles went away because their source or their result got no place: they are from LX to LX.

        What they copied goes through device memory then.
        """
        placed = {root for each in found if each.buffer.name in plan.addresses for root in each.addresses(0)}
        dropped = [
            each
            for each in usage.ops
            if each.opcode == SHUFFLE and not placed.issuperset(map(usage.root, each.values))
        ]
        for each in dropped:
            self.remark(each.op, "no relayout", "LX has no room for its source and its result")
            each.op.results[0].replace_all_uses_with(each.op.operands[0])
            each.op.erase()
        return bool(dropped)

    def _solved(self, func: ir.Operation, able: Sequence[Candidate], capacity: int) -> MemoryPlan:
        name = "largest-first" if self.order_by_size else self.layout_solver
        try:
            chosen = solver(name)
            space = MemorySpace(capacity, device().lx_alignment_bytes)
            with scope(name):
                return chosen.plan([candidate.buffer for candidate in able], space)
        except PlanError as error:
            raise error_at(func, f"the scratchpads cannot be planned: {error}") from error

    def _around(
        self,
        func: ir.Operation,
        pins: Mapping[ir.Value, PinnedBuffer],
        able: Sequence[Candidate],
        capacity: int,
    ) -> MemoryPlan:
        """The plan that keeps what a plan file pins, because that of the solver does not."""
        buffers = {root: candidate.buffer for candidate in able for root in candidate.addresses(0)}
        pinned = {
            buffers[root].name: each
            for candidate in able
            for root, each in _agreed(candidate, pins)
            if each.placement.memory == "lx"
        }
        text = f"{len(pinned)} buffers stay where the plan file pins them, the others are fitted around them"
        self.remark(func, "pins", text)
        space = MemorySpace(capacity, device().lx_alignment_bytes)
        return plan_around(pinned, _among_themselves([each.buffer for each in able]), space)

    def _push(self, able: Sequence[Candidate], plan: MemoryPlan) -> None:
        """Addresses go to the makers of the buffers."""
        for candidate in able:
            address = plan.addresses.get(candidate.buffer.name)
            for root, at in candidate.addresses(address).items() if address is not None else ():
                maker_of(root).attributes[sdsc.PLACEMENT] = sdsc.lx_attr(at)

    def _tell(self, found: Sequence[Candidate], plan: MemoryPlan) -> None:
        """A remark for every buffer, and its reasons on the maker of one that is not in LX."""
        for candidate in found:
            owner, buffer = maker_of(candidate.root), candidate.buffer
            if buffer.name in plan.addresses:
                text = f"{buffer.size} bytes per core at {plan.addresses[buffer.name]}"
                text += f", {candidate.distance} behind it again" if buffer.copies > 1 else ""
                self.remark(
                    owner, "in LX", text, before=buffer.traffic_if_spilled, after=buffer.traffic_if_placed
                )
                continue
            reasons = candidate.reasons or (Reason(Barrier.LOST, plan.spilled[buffer.name]),)
            self.remark(owner, "spill", "; ".join(map(str, reasons)), after=buffer.traffic_if_spilled)
            texts = ir.ArrayAttr.get([ir.StringAttr.get(str(each)) for each in reasons])
            for root in candidate.addresses(0):
                maker_of(root).attributes[sdsc.SPILLED] = texts

    def _drop_clones(self, usage: Usage) -> None:
        """Optional clones from device memory to device memory go away."""
        for user in usage.ops:
            if sdsc.OPTIONAL not in user.op.attributes:
                continue
            # Not its first value, which may be that of a clone that is gone by now.
            source, clone = user.op.operands[0], user.values[-1]
            if not is_in_lx(usage.root(source)) and not is_in_lx(clone):
                clone.replace_all_uses_with(source)
                user.op.erase()


def _among_themselves(buffers: Collection[LifetimeBoundBuffer]) -> list[LifetimeBoundBuffer]:
    """Buffers that take the place of each other alone: the others are in device memory."""
    names = {buffer.name for buffer in buffers}
    return [
        replace(buffer, in_place_parents=tuple(name for name in buffer.in_place_parents if name in names))
        for buffer in buffers
    ]


def _hold(pins: Mapping[ir.Value, PinnedBuffer], found: Sequence[Candidate], plan: MemoryPlan) -> bool:
    """Whether a plan keeps all pins."""
    for candidate in found:
        address = plan.addresses.get(candidate.buffer.name)
        for root, at in candidate.addresses(address or 0).items():
            pinned = pins.get(root)
            if pinned is not None:
                wanted = pinned.placement.address if pinned.placement.memory == "lx" else None
                if (None if address is None else at) != wanted:
                    return False
    return True


def _agreed(
    candidate: Candidate, pins: Mapping[ir.Value, PinnedBuffer]
) -> Iterator[tuple[ir.Value, PinnedBuffer]]:
    """What the plan file says of a candidate, as the place of its first buffer; it is an error where pins disagree."""
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
            yield candidate.root, known
        elif known.placement != placement:
            pinned.refuse(f"it is of a pair of buffers, one {candidate.distance} bytes behind the other")


def _pinned(candidate: Candidate, pins: Mapping[ir.Value, PinnedBuffer]) -> Candidate:
    """The candidate as a plan file leaves it: barred from LX if it is pinned to device memory."""
    for _, pinned in _agreed(candidate, pins):
        if pinned.placement.memory == "lx" and candidate.reasons:
            pinned.refuse("; ".join(map(str, candidate.reasons)))
        if pinned.placement.memory != "lx" and not candidate.reasons:
            reason = Reason(Barrier.PINNED, f"the plan file says {pinned.placement}")
            return replace(candidate, reasons=(reason,))
    return candidate
