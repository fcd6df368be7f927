"""Which cores write a buffer and which read it, recomputed from divided IR."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from spyre_mlir.analysis.aliasing import Memory, is_compute, is_in_lx
from spyre_mlir.analysis.loops import executions, repeated_ops
from spyre_mlir.diagnostics import error_at
from spyre_mlir.dialects import sdsc, stick
from spyre_mlir.division import CoreView, Division, core_view, mismatch
from spyre_mlir.division.ownership import CoreRegion
from spyre_mlir.division.relayout import held_view, relayout
from spyre_mlir.division.subviews import subview_mismatch
from spyre_mlir.errors import CompileError
from spyre_mlir.layout import ViewError
from spyre_mlir.layout.space import Space
from spyre_mlir.mlir import ir, location_of
from spyre_mlir.target.device import device

SHUFFLE = "shuffle"

#: Why a shuffle cannot take a buffer: the design names one distribution.
LEFT_APART = "core division mismatch: the operations that write it leave it on the cores in different ways"

#: Why a buffer that operations touch in parts has no place in LX.
NO_HOLDER = "partial or offset access: no operation touches all of it, which would tell how the cores hold it"

#: Why nobody touches a part of LX that is another one in each iteration: the address is one number in the design.
MOVING = "the part moves with a loop, and an address in LX may not"


@dataclass(frozen=True)
class Handover:
    """A buffer goes from the op that wrote it, or a part of it, to one that reads it.

    ``problem`` says why the reader's cores do not find there what the writer's cores left; None if they do. Of a part
    that the "reader" ``writes`` it says why that is not where the writer's cores have it.
    """

    buffer: ir.Value
    writer: ir.Operation
    reader: ir.Operation
    operand: int
    problem: str | None
    writes: bool = False

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
        does = "written" if self.writes else "read"
        return error_at(self.reader, f"a buffer in LX is {does} by cores that do not own it: {self.text}")


@dataclass(frozen=True)
class Left:
    """What a writer leaves on the cores: what each ``written`` part is, and which of it is the finished value."""

    written: CoreView
    held: CoreView


@dataclass(frozen=True)
class Divided:
    """A divided op: what it does, its iteration space, its operands (the output last) and its division.

    It runs ``executions`` times. ``moving`` are the operands whose place is another one in each iteration. ``fills``
    says whether its result is all of a buffer.
    """

    op: ir.Operation
    opcode: str
    space: Space
    values: tuple[ir.Value, ...]
    division: Division
    executions: int = 1
    moving: frozenset[int] = frozenset()
    fills: bool = True

    @property
    def output(self) -> int:
        return len(self.values) - 1


#: An operation and the number of its operand that lies in a buffer.
Use = tuple[Divided, int]


@dataclass(frozen=True)
class Pieces:
    """A buffer of which some operations touch parts; ``written``: some of them write parts.

    The ``holder`` is the first operation that writes all of it, else the first that reads all: it says how LX holds
    the buffer. None if there is none.
    """

    written: bool
    holder: Use | None

    @property
    def view(self) -> CoreView:
        """What the cores hold of the buffer; ``ViewError`` if that is no region of it."""
        assert self.holder is not None
        user, operand = self.holder
        return core_view(user.space, operand, user.division)


def divided_ops(memory: Memory, ops: Sequence[ir.Operation]) -> list[Divided]:
    """The ops that become executions, in program order."""
    found = []
    for op in ops:
        if op.name == "linalg.generic" and not is_compute(op):
            raise error_at(op, "this linalg.generic does not say which device operation it does (sdsc.op)")
        if is_compute(op):
            opcode, space, values = memory.space(op)
            _check_divided(op, space)
            moving = frozenset(at for at, value in enumerate(values) if memory.place(value).moves)
            fills = memory.is_whole(values[-1])
            found.append(Divided(op, opcode, space, values, division_of(op), executions(op), moving, fills))
    return found


def _check_divided(op: ir.Operation, space: Space) -> None:
    """What is divided says into how many slices each of its dims is cut, and no dim is cut into more than it has."""
    if sdsc.DIVISION not in op.attributes:
        raise error_at(op, "this operation has no sdsc.division")
    splits = division_of(op).splits
    if len(splits) != len(space.sizes):
        raise error_at(op, f"the division names {len(splits)} dims, the operation has {len(space.sizes)}")


def pieces_of(root: ir.Value, uses: Sequence[Use]) -> Pieces | None:
    """How a buffer is touched in parts by operations in program order; None if all of them touch all of it."""
    filled = next(((user, at) for user, at in uses if at == user.output and user.fills), None)
    holder = filled or next((use for use in uses if _may_hold(use) and _is_all(root, use)), None)
    whole = None if holder is None else _touched(*holder)
    written = any(at == user.output and not user.fills for user, at in uses)
    if written or any(at != user.output and _is_part(whole, user, at) for user, at in uses):
        return Pieces(written, holder)
    return None


def _may_hold(use: Use) -> bool:
    user, operand = use
    return operand != user.output and user.opcode != SHUFFLE and operand not in user.moving


def _is_all(root: ir.Value, use: Use) -> bool:
    """Whether all cores together touch every stick of the buffer."""
    layout, view = stick.layout_of(root.type), _touched(*use)
    if layout is None or view is None:
        return False
    sticks = layout.bytes // device().stick_bytes
    return view.regions == (CoreRegion(0, ((layout.elements_per_stick, sticks),) if sticks > 1 else ()),)


def _is_part(whole: CoreView | None, user: Divided, operand: int) -> bool:
    touched = _touched(user, operand)
    return whole is None or touched is None or mismatch(whole, touched) is not None


def _touched(user: Divided, operand: int) -> CoreView | None:
    """What all cores together touch, as one core would; None if that is no region of the buffer."""
    try:
        return core_view(user.space, operand, Division.mixed_radix((1,) * len(user.space.sizes)))
    except ViewError:
        return None


def uses_of_buffers(memory: Memory, ops: Sequence[Divided]) -> dict[ir.Value, list[Use]]:
    """For each buffer, in program order, the operations on it."""
    found: dict[ir.Value, list[Use]] = {}
    for each in ops:
        for operand, value in enumerate(each.values):
            found.setdefault(memory.place(value).buffer, []).append((each, operand))
    return found


def handovers(memory: Memory, ops: Sequence[Divided]) -> Iterator[Handover]:
    """Every read of a buffer that an op wrote, once, as they run; arguments and constants have no writer.

    Also each write of a part of what is in LX, which has to be where the buffer is held.
    """
    pieces = {
        root: found
        for root, uses in uses_of_buffers(memory, ops).items()
        if (found := pieces_of(root, uses)) is not None
    }
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
                problem = MOVING if operand in each.moving else None
                if problem is None and place.buffer in pieces:
                    problem = why_not_there(pieces[place.buffer], each, operand)
                elif problem is None:
                    problem = takes_over(left, each, operand)
                if each.opcode == SHUFFLE and left.held != first.setdefault(place.buffer, left).held:
                    problem = problem or LEFT_APART
                yield Handover(place.buffer, writer, op, operand, problem)
        root = places[-1].buffer
        if root in pieces and is_in_lx(root) and (op, op, each.output) not in known:
            known.add((op, op, each.output))
            holder = pieces[root].holder
            problem = MOVING if each.output in each.moving else why_not_there(pieces[root], each, each.output)
            yield Handover(
                root, op if holder is None else holder[0].op, op, each.output, problem, writes=True
            )
        made = _left(op, space, len(values) - 1, division)
        before = {} if memory.is_whole(values[-1]) else written.get(root, {})
        written[root] = {**before, op: made}


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
        raise error_at(op, "this operation has no division; run work-distribution first")
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
        return subview_mismatch(left.written, core_view(reader.space, operand, reader.division))
    except ViewError as error:
        return f"core division mismatch: what a core reads is no region of the buffer: {error}"


def why_not_there(pieces: Pieces, user: Divided, operand: int) -> str | None:
    """Why an operation cannot touch its part of a buffer in LX, as the holder has that there; None if it can."""
    if pieces.holder is None:
        return NO_HOLDER
    if (pieces.holder[0].op, pieces.holder[1]) == (user.op, operand):
        return None
    if user.opcode == SHUFFLE and (pieces.written or operand == user.output):
        return LEFT_APART
    try:
        if user.opcode == SHUFFLE:
            holder, written = pieces.holder
            return takes_over(left_by(holder.space, written, holder.division), user, operand)
        touched = core_view(user.space, operand, user.division)
        return subview_mismatch(pieces.view, touched, writes=operand == user.output)
    except ViewError as error:
        return f"core division mismatch: what a core touches is no region of the buffer: {error}"


def left_by(space: Space, operand: int, division: Division) -> Left:
    """What an operation leaves of its result; ``ViewError`` if that is no region of the buffer."""
    division = replace(division, reduced=space.reduced)
    return Left(core_view(space, operand, division), held_view(space, operand, division))


def _left(op: ir.Operation, space: Space, operand: int, division: Division) -> Left:
    try:
        return left_by(space, operand, division)
    except ViewError as error:
        raise error_at(op, f"a core's part of the result is no region of its buffer: {error}") from error


def _opcode(op: ir.Operation) -> str:
    return sdsc.opcode_of(op) or op.name
