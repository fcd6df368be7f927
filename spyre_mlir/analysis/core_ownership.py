# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Core ownership: the cores that write and read each buffer, recomputed from divided IR."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from spyre_mlir.analysis.aliasing import AliasAnalysis, is_compute, is_in_lx
from spyre_mlir.analysis.loops import executions, repeated_ops
from spyre_mlir.diagnostics import error_at
from spyre_mlir.dialects import sdsc, stick
from spyre_mlir.division import CoreView, Division, core_view, mismatch
from spyre_mlir.division.ownership import CoreRegion, Mismatch, subview_mismatch
from spyre_mlir.division.relayout import held_view, relayout
from spyre_mlir.errors import CompileError, counted
from spyre_mlir.layout import ViewError
from spyre_mlir.layout.space import Space
from spyre_mlir.mlir import ir, location_of
from spyre_mlir.records import Statement, dataclass
from spyre_mlir.scratchpad.eligibility import MixedDistributions, NoHolder

SHUFFLE = "shuffle"


class NotOnRing(Mismatch, sentence="the cores do not hold slices that the ring can transfer"):
    """No transfers on the ring bring the reader's parts to its cores."""


class NotRegion(Mismatch, sentence="the part that a core {access} is not a region of the buffer: {error}"):
    """The part that a core reads, or accesses, is not a region of the buffer; ``error`` says why."""

    access: str
    error: str


class MovingSlice(Mismatch, title="", sentence="the part moves with a loop, but LX addresses are constant"):
    """A slice of LX moves with a loop, but a design contains one number as the address."""


@dataclass(frozen=True)
class DefUseEdge:
    """A def-use edge from an op that writes a buffer, or a part of it, to an op that reads it.

    ``problem`` says why the reader's cores do not hold the data that the writer's cores wrote; None if they do. If the
    "reader" ``writes`` a part of the buffer, it says why the part is not on the cores that hold the buffer.
    """

    buffer: ir.Value
    writer: ir.Operation
    reader: ir.Operation
    operand: int
    problem: Statement | None
    writes: bool = False

    @property
    def text(self) -> str:
        """One line of text with the reader, its operand, the writer and the problem."""
        reader, writer = (sdsc.opcode_of(op) or op.name for op in (self.reader, self.writer))
        made_by = f"made by '{writer}' at {location_of(self.writer.location)}"
        return f"operand {self.operand} of '{reader}', {made_by}: {self.problem}"

    @property
    def is_illegal(self) -> bool:
        """Return whether the buffer is in LX and the reader would compute with data that its cores do not own."""
        return self.problem is not None and is_in_lx(self.buffer)

    def error(self) -> CompileError:
        """Return the error for an illegal edge, located at its reader."""
        does = "written" if self.writes else "read"
        return error_at(self.reader, f"a buffer in LX is {does} by cores that do not own it: {self.text}")


@dataclass(frozen=True)
class WrittenDistribution:
    """The distribution of a result over cores: all values ``written``, and the ``complete`` values among them.

    The two differ if a reduction is split: all cores write partial sums, but only some cores hold complete sums.
    """

    written: CoreView
    complete: CoreView


@dataclass(frozen=True)
class Divided:
    """A divided op: its opcode, its iteration space, its operands (the output last) and its division.

    The op runs ``executions`` times. ``moving`` are the operands that are another slice in each iteration. ``fills``
    is true if the result is a whole buffer.
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
class PartialAccesses:
    """A buffer of which some operations access parts; ``written``: some operations write parts.

    The ``holder`` is the first operation that writes the whole buffer, else the first that reads the whole buffer: its
    core view is the distribution of the buffer in LX. None if no operation accesses the whole buffer.
    """

    written: bool
    holder: Use | None

    @property
    def view(self) -> CoreView:
        """The core view of the holder; ``ViewError`` if the elements of a core are not a region of the buffer."""
        assert self.holder is not None
        user, operand = self.holder
        return core_view(user.space, operand, user.division)


def divided_ops(memory: AliasAnalysis, ops: Sequence[ir.Operation]) -> list[Divided]:
    """Return the ops that execute on the device, in program order."""
    divided = []
    for op in ops:
        if op.name == "linalg.generic" and not is_compute(op):
            raise error_at(op, "this linalg.generic has no device operation (sdsc.op)")
        if is_compute(op):
            opcode, space, values = memory.space(op)
            if sdsc.DIVISION not in op.attributes:
                raise error_at(op, "this operation has no sdsc.division")
            division = memory.division(op)
            dims = len(division.splits)
            if dims != len(space.sizes):
                raise error_at(op, f"the division has {counted(dims, 'dim')}, not {len(space.sizes)}")
            moving = frozenset(operand for operand, value in enumerate(values) if memory.place(value).moves)
            fills = memory.is_whole(values[-1])
            divided.append(Divided(op, opcode, space, values, division, executions(op), moving, fills))
    return divided


def partial_accesses_of(root: ir.Value, uses: Sequence[Use]) -> PartialAccesses | None:
    """Return the partial accesses to a buffer, from its uses in program order; None if all uses access all of it."""
    writers = [(user, operand) for user, operand in uses if operand == user.output and user.fills]
    holder = writers[0] if writers else None
    # A writer is preferred as the holder: readers have to follow its distribution. But a reader may access padding
    # that no operation writes, for example rows of a matmul beyond the last: then parts of its region are written.
    if not any(_covers(root, *writer) for writer in writers):
        readers = (use for use in uses if use[1] != use[0].output and _covers(root, *use))
        holder = next(readers, holder)
    written = any(operand == user.output and not user.fills for user, operand in uses)
    written = written or (bool(writers) and holder not in writers)
    if written:
        return PartialAccesses(written, holder)
    whole = None if holder is None else _accessed_view(*holder)
    for user, operand in uses:
        accessed = None if operand == user.output else _accessed_view(user, operand)
        is_whole = whole is not None and accessed is not None and mismatch(whole, accessed) is None
        if operand != user.output and not is_whole:
            return PartialAccesses(written, holder)
    return None


def _covers(root: ir.Value, user: Divided, operand: int) -> bool:
    """Return whether an operation accesses all sticks of a buffer at once, padding included."""
    # A shuffle reads from any core, and a moving operand is several slices: neither has one distribution.
    if (user.opcode == SHUFFLE and operand != user.output) or operand in user.moving:
        return False
    layout, view = stick.layout_of(root.type, user.space.target), _accessed_view(user, operand)
    if layout is None or view is None:
        return False
    sticks = layout.bytes // user.space.target.stick_bytes
    return view.regions == (CoreRegion(0, ((layout.elements_per_stick, sticks),) if sticks > 1 else ()),)


def _accessed_view(user: Divided, operand: int) -> CoreView | None:
    """Return the region that all cores together access, as one core; None if this is not a region of the buffer."""
    try:
        return core_view(user.space, operand, Division.mixed_radix((1,) * len(user.space.sizes)))
    except ViewError:
        return None


def uses_of_buffers(memory: AliasAnalysis, ops: Sequence[Divided]) -> dict[ir.Value, list[Use]]:
    """Return the operations on each buffer, in program order."""
    uses: dict[ir.Value, list[Use]] = {}
    for user in ops:
        for operand, value in enumerate(user.values):
            uses.setdefault(memory.place(value).buffer, []).append((user, operand))
    return uses


def def_use_edges(memory: AliasAnalysis, ops: Sequence[Divided]) -> Iterator[DefUseEdge]:
    """Yield every read of a buffer that an op wrote, once, in execution order; arguments and constants have no writer.

    Also yield each write of a part of a buffer in LX, because the part must be on the cores that hold it.
    """
    partials = {
        root: partial
        for root, uses in uses_of_buffers(memory, ops).items()
        if (partial := partial_accesses_of(root, uses)) is not None
    }
    written: dict[ir.Value, dict[ir.Operation, WrittenDistribution]] = {}
    known: set[tuple[ir.Operation, ir.Operation, int]] = set()
    first: dict[ir.Value, WrittenDistribution] = {}
    in_order = ops
    # Without loops the program order is the execution order. An iteration may read the previous one.
    if any(user.executions > 1 for user in ops):
        user_of = {user.op: user for user in ops}
        in_order = [user_of[op] for op in repeated_ops(memory.block) if op in user_of]
    for user in in_order:
        op, values = user.op, user.values
        places = [memory.place(value) for value in values]
        for operand, place in enumerate(places[:-1]):
            for writer, distribution in written.get(place.buffer, {}).items():
                # Operations in loops are visited twice, and so are most of their edges.
                if (writer, op, operand) in known:
                    continue
                known.add((writer, op, operand))
                problem = MovingSlice() if operand in user.moving else None
                if problem is None and place.buffer in partials:
                    problem = access_mismatch(partials[place.buffer], user, operand)
                elif problem is None:
                    problem = read_mismatch(distribution, user, operand)
                if user.opcode == SHUFFLE:
                    is_mixed = distribution.complete != first.setdefault(place.buffer, distribution).complete
                    problem = problem or (MixedDistributions() if is_mixed else None)
                yield DefUseEdge(place.buffer, writer, op, operand, problem)
        root = places[-1].buffer
        if root in partials and is_in_lx(root) and (op, op, user.output) not in known:
            known.add((op, op, user.output))
            holder = partials[root].holder
            problem = MovingSlice()
            if user.output not in user.moving:
                problem = access_mismatch(partials[root], user, user.output)
            writer = op if holder is None else holder[0].op
            yield DefUseEdge(root, writer, op, user.output, problem, writes=True)
        try:
            result = written_distribution(user.space, user.output, user.division)
        except ViewError as error:
            text = f"a core's part of the result is not a region of its buffer: {error}"
            raise error_at(op, text) from error
        # A write of the whole buffer hides earlier writes; writes of parts accumulate.
        before = {} if memory.is_whole(values[-1]) else written.get(root, {})
        written[root] = {**before, op: result}


def read_mismatch(distribution: WrittenDistribution, reader: Divided, operand: int) -> Mismatch | None:
    """Return why the cores of a reader do not hold the data that they read, as it was written; None if they do.

    A shuffle reads from all cores that hold parts of the buffer.
    """
    if reader.opcode == SHUFFLE:
        if relayout(reader.space, distribution.complete, reader.division) is not None:
            return None
        return NotOnRing()
    try:
        return subview_mismatch(distribution.written, core_view(reader.space, operand, reader.division))
    except ViewError as error:
        return NotRegion("reads", str(error))


def access_mismatch(partial: PartialAccesses, user: Divided, operand: int) -> Statement | None:
    """Return why an operation cannot access its part of a buffer as the holder distributes it; None if it can."""
    if partial.holder is None:
        return NoHolder()
    # By definition the holder has the distribution of the buffer in LX.
    if (partial.holder[0].op, partial.holder[1]) == (user.op, operand):
        return None
    if user.opcode == SHUFFLE and (partial.written or operand == user.output):
        return MixedDistributions()
    try:
        if user.opcode == SHUFFLE:
            holder, written = partial.holder
            return read_mismatch(written_distribution(holder.space, written, holder.division), user, operand)
        accessed = core_view(user.space, operand, user.division)
        return subview_mismatch(partial.view, accessed, writes=operand == user.output)
    except ViewError as error:
        return NotRegion("accesses", str(error))


def written_distribution(space: Space, operand: int, division: Division) -> WrittenDistribution:
    """Return the distribution that an operation writes; ``ViewError`` if a core does not write a region."""
    # A division needs the reduced dims to determine the cores that hold partial sums.
    division = replace(division, reduced=space.reduced)
    return WrittenDistribution(core_view(space, operand, division), held_view(space, operand, division))
