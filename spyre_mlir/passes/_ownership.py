"""Which cores write a buffer and which read it, recomputed from divided IR."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from spyre_mlir.dialects import sdsc
from spyre_mlir.division import CoreView, Division, core_view, mismatch
from spyre_mlir.division.relayout import held_view, relayout
from spyre_mlir.errors import CompileError
from spyre_mlir.layout import ViewError
from spyre_mlir.layout.space import Space
from spyre_mlir.mlir import ir, location_of
from spyre_mlir.passes._loops import executions, repeated_ops
from spyre_mlir.passes._memory import Memory, is_compute, is_in_lx
from spyre_mlir.passes._terms import fail

SHUFFLE = "shuffle"

#: Why a shuffle cannot take a buffer: the design names one distribution.
LEFT_APART = "core division mismatch: the operations that write it leave it on the cores in different ways"

#: Why nobody reads a part of LX that is another one in each iteration: the address is one number in the design.
MOVING = "what is read moves with a loop, and an address in LX may not"


@dataclass(frozen=True)
class Handover:
    """A buffer goes from the op that wrote it, or a part of it, to one that reads it.

    ``problem`` says why the reader's cores do not find there what the writer's cores left; None if they do.
    """

    buffer: ir.Value
    writer: ir.Operation
    reader: ir.Operation
    operand: int
    problem: str | None

    @property
    def text(self) -> str:
        """Who reads what of whom, and the problem."""
        writer = f"'{_opcode(self.writer)}' at {location_of(self.writer.location)}"
        return f"operand {self.operand} of '{_opcode(self.reader)}', made by {writer}: {self.problem}"

    @property
    def lost(self) -> bool:
        """Whether the reader would compute with what its cores do not own: the buffer is in LX."""
        return self.problem is not None and is_in_lx(self.buffer)

    def error(self) -> CompileError:
        """That of a handover that is ``lost``."""
        return fail(self.reader, f"a buffer in LX is read by cores that do not own it: {self.text}")


@dataclass(frozen=True)
class Left:
    """What a writer leaves on the cores: what each ``written`` part is, and which of it is the finished value."""

    written: CoreView
    held: CoreView


@dataclass(frozen=True)
class Divided:
    """A divided op: what it does, its iteration space, its operands (the output last) and its division.

    It runs ``executions`` times. ``moving`` are the operands whose place is another one in each iteration.
    """

    op: ir.Operation
    opcode: str
    space: Space
    values: tuple[ir.Value, ...]
    division: Division
    executions: int = 1
    moving: frozenset[int] = frozenset()


def divided_ops(memory: Memory, ops: Sequence[ir.Operation]) -> list[Divided]:
    """The ops that become executions, in program order."""
    found = []
    for op in ops:
        if is_compute(op):
            opcode, space, values = memory.space(op)
            moving = frozenset(at for at, value in enumerate(values) if memory.place(value).moves)
            found.append(Divided(op, opcode, space, values, division_of(op), executions(op), moving))
    return found


def handovers(memory: Memory, ops: Sequence[Divided]) -> Iterator[Handover]:
    """Every read of a buffer that an op wrote, once, as they run; arguments and constants have no writer."""
    written: dict[ir.Value, dict[ir.Operation, Left]] = {}
    known: set[tuple[ir.Operation, ir.Operation, int]] = set()
    first: dict[ir.Value, Left] = {}
    for each in _as_they_run(memory, ops):
        op, space, values, division = each.op, each.space, each.values, each.division
        places = [memory.place(value) for value in values]
        for operand, place in enumerate(places[:-1]):
            for writer, left in written.get(place.buffer, {}).items():
                if (writer, op, operand) in known:
                    continue
                known.add((writer, op, operand))
                problem = MOVING if operand in each.moving else takes_over(left, each, operand)
                if each.opcode == SHUFFLE and left.held != first.setdefault(place.buffer, left).held:
                    problem = problem or LEFT_APART
                yield Handover(place.buffer, writer, op, operand, problem)
        made = _left(op, space, len(values) - 1, division)
        before = {} if memory.is_whole(values[-1]) else written.get(places[-1].buffer, {})
        written[places[-1].buffer] = {**before, op: made}


def _as_they_run(memory: Memory, ops: Sequence[Divided]) -> Iterator[Divided]:
    """The ops of all loops twice: an iteration reads what the one before left."""
    if all(each.executions == 1 for each in ops):
        yield from ops
        return
    known = {each.op: each for each in ops}
    yield from (known[op] for op in repeated_ops(memory.block) if op in known)


def division_of(op: ir.Operation) -> Division:
    """The division that an op records."""
    if sdsc.DIVISION not in op.attributes:
        raise fail(op, "this operation has no division; run work-distribution first")
    return sdsc.division_of(op)


def takes_over(left: Left, reader: Divided, operand: int) -> str | None:
    """Why a reader cannot take a buffer from where its writer left it; None if it can.

    A shuffle takes it from all cores that hold parts of it.
    """
    if reader.opcode == SHUFFLE:
        if relayout(reader.space, left.held, reader.division) is not None:
            return None
        return "core division mismatch: the cores hold no slices that the ring could carry"
    try:
        return mismatch(left.written, core_view(reader.space, operand, reader.division))
    except ViewError as error:
        return f"core division mismatch: what a core reads is no region of the buffer: {error}"


def left_by(space: Space, operand: int, division: Division) -> Left:
    """What an operation leaves of its result; ``ViewError`` if that is no region of the buffer."""
    division = replace(division, reduced=space.reduced)
    return Left(core_view(space, operand, division), held_view(space, operand, division))


def _left(op: ir.Operation, space: Space, operand: int, division: Division) -> Left:
    try:
        return left_by(space, operand, division)
    except ViewError as error:
        raise fail(op, f"a core's part of the result is no region of its buffer: {error}") from error


def _opcode(op: ir.Operation) -> str:
    return sdsc.opcode_of(op) or op.name
