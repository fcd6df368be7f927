"""Where cores of a program must wait for each other, for one reads in device memory what another one writes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from spyre_mlir.bundle.core_slices import core_region, finishing_cores, holders
from spyre_mlir.bundle.model import Bundle, Design, Execute, Loop, Statement
from spyre_mlir.errors import CompileError
from spyre_mlir.ktir.linear_addresses import AddressValues, LinearAddress


@dataclass(frozen=True)
class CoreAccess:
    """What cores access of a memory: by core the bytes from the first to the last, over all iterations.

    ``form`` is equal for accesses of which each core has the same bytes.
    """

    memory: str
    ranges: tuple[tuple[int, int, int], ...]
    form: tuple
    writes: bool

    @property
    def span(self) -> tuple[int, int]:
        """The first byte of all, and that behind the last."""
        return min(begin for _, begin, _ in self.ranges), max(end for _, _, end in self.ranges)


def barrier_points(bundle: Bundle) -> frozenset[int]:
    """Return the numbers of the executes before which all cores wait."""
    planner = _BarrierPlanner(bundle)
    planner.walk(bundle.statements, 0)
    return frozenset(planner.points)


class _BarrierPlanner:
    """Walker of a program that notes what was accessed since the last barrier."""

    def __init__(self, bundle: Bundle) -> None:
        self.bundle = bundle
        self.values = AddressValues()
        self.trips: dict[str, tuple[int, int]] = {}
        self.pending: list[CoreAccess] = []
        self.points: set[int] = set()
        self.known: dict[tuple[str, int], tuple] = {}

    def walk(self, statements: Sequence[Statement], number: int) -> int:
        """Walk statements whose first execute has a number; return the next number."""
        for statement in statements:
            if isinstance(statement, Execute):
                self._execute(statement, number)
                number += 1
            elif isinstance(statement, Loop):
                number = self._loop(statement, number)
            else:
                self.values.define(statement)
        return number

    def _loop(self, loop: Loop, number: int) -> int:
        self.values.define_variable(loop.induction)
        lower, upper = (self.values.constant(name) for name in (loop.lower, loop.upper))
        self.trips[loop.induction] = lower, max(upper - 1, lower)
        # The second time shows what an iteration waits for in the one before it.
        self.walk(loop.body, number)
        return self.walk(loop.body, number)

    def _execute(self, statement: Execute, number: int) -> None:
        design = self.bundle.designs[statement.filename]
        accesses = self._accesses(design, statement)
        if number in self.points:
            self.pending = []
        elif any(_conflict(old, new) for old in self.pending for new in accesses):
            self.points.add(number)
            self.pending = []
        self.pending += [access for access in accesses if access not in self.pending]

    def _accesses(self, design: Design, statement: Execute) -> list[CoreAccess]:
        symbols = dict(zip(statement.symbol_ids, statement.operands, strict=True))
        accesses = []
        for k, operand in enumerate(design.operands):
            if operand.memory == "lx":
                continue
            addresses = {
                core: self.values.values[symbols[operand.start[core]]] for core in holders(design, operand)
            }
            writes = k == len(design.operands) - 1
            if writes:
                addresses = {
                    core: address for core, address in addresses.items() if core in finishing_cores(design)
                }
            accesses.append(self._access(design, k, addresses, writes))
        return accesses

    def _access(
        self, design: Design, k: int, addresses: dict[int, LinearAddress], writes: bool
    ) -> CoreAccess:
        operand, size = design.operands[k], design.target.stick_bytes
        ranges, forms, memory = [], [], ""
        for core, address in addresses.items():
            region = core_region(design, operand, core)
            begin = end = address.offset
            for name, coefficient in address.terms.items():
                if name in self.trips:
                    low, high = sorted(coefficient * bound for bound in self.trips[name])
                    begin, end = begin + low, end + high
                else:
                    memory = name
            ranges.append((core, begin, end + region.span_sticks * size))
            forms.append((core, address.offset, tuple(address.terms.items()), region.counts, region.strides))
        if not memory:
            raise CompileError(f"'{design.opcode}' has an operand in no memory.")
        return CoreAccess(memory, tuple(ranges), tuple(forms), writes)


def _conflict(old: CoreAccess, new: CoreAccess) -> bool:
    """Return whether a core may access what another one did, and one of them writes."""
    if old.memory != new.memory or not (old.writes or new.writes) or old.form == new.form:
        return False
    (first, last), (begin, end) = old.span, new.span
    if last <= begin or end <= first:
        return False
    return any(
        core != other and low < high_other and low_other < high
        for core, low, high in old.ranges
        for other, low_other, high_other in new.ranges
    )
