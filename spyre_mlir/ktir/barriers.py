# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Where cores of a program must wait for each other, for one reads in device memory what another one writes."""

from __future__ import annotations

from collections.abc import Sequence

from spyre_mlir.bundle.core_slices import StickRegion, core_region, finishing_cores, holders
from spyre_mlir.bundle.identity_table import IdentityTable
from spyre_mlir.bundle.model import Bundle, Design, Execute, Loop, Statement
from spyre_mlir.errors import CompileError
from spyre_mlir.ktir.linear_addresses import AddressValues, LinearAddress
from spyre_mlir.records import dataclass


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
        # What a call gives is anywhere in its range.
        self.trips = {
            parameter.name: (0, parameter.max_value)
            for parameter in bundle.parameters
            if parameter.max_value is not None
        }
        self.pending: list[CoreAccess] = []
        self.points: set[int] = set()

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
            if operand.memory != "lx":
                addresses = {
                    core: self.values.values[symbols[operand.start[core]]]
                    for core in _core_regions(design, k)
                }
                accesses.append(self._access(design, k, addresses))
        return accesses

    def _access(self, design: Design, k: int, addresses: dict[int, LinearAddress]) -> CoreAccess:
        size, regions = design.target.stick_bytes, _core_regions(design, k)
        (memory, spread), *others = {self._spread(address) for address in addresses.values()}
        if others:
            raise CompileError(f"'{design.opcode}' has an operand in more than one memory.")
        low, high = spread
        ranges = tuple(
            (core, address.offset + low, address.offset + high + regions[core].span_sticks * size)
            for core, address in addresses.items()
        )
        form = tuple((core, address.offset, regions[core]) for core, address in addresses.items())
        terms = tuple(next(iter(addresses.values())).terms.items())
        return CoreAccess(memory, ranges, (terms, form), k == len(design.operands) - 1)

    def _spread(self, address: LinearAddress) -> tuple[str, tuple[int, int]]:
        """Return the memory of an address, and how far the loops around move it down and up."""
        memory, low, high = "", 0, 0
        for name, coefficient in address.terms.items():
            if name not in self.trips:
                memory = name
                continue
            ends = sorted(coefficient * bound for bound in self.trips[name])
            low, high = low + ends[0], high + ends[1]
        return memory, (low, high)


#: What cores access of the operands of designs, which many operations share.
_REGIONS: IdentityTable[int, dict[int, StickRegion]] = IdentityTable()


def _core_regions(design: Design, k: int) -> dict[int, StickRegion]:
    """Return what each core accesses of an operand; of a result the cores that finish it."""
    regions = _REGIONS.entries_of(design)
    if k not in regions:
        operand = design.operands[k]
        finishing = finishing_cores(design) if k == len(design.operands) - 1 else None
        cores = [core for core in holders(design, operand) if finishing is None or core in finishing]
        regions[k] = {core: core_region(design, operand, core) for core in cores}
    return regions[k]


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
