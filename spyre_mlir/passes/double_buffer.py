# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Double buffering: loops load the tile of the next iteration while the current iteration computes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar

from spyre_mlir.analysis.aliasing import COPIES, all_ops, functions
from spyre_mlir.analysis.buffer_uses import BufferUse, Usage
from spyre_mlir.analysis.core_ownership import SHUFFLE, Divided
from spyre_mlir.analysis.loads import (
    module_of,
    move_behind,
    needed_in_block,
    nested_blocks,
    only_loads,
    work_of,
)
from spyre_mlir.analysis.loops import LOOP, body_block, induction, terminator, trip_count
from spyre_mlir.analysis.program_cost import ProgramCost
from spyre_mlir.cost.cost_model import compute_ns, memory_ns
from spyre_mlir.cost.of_space import operation_work
from spyre_mlir.dialects import sdsc
from spyre_mlir.dialects.structured import defining_op, element_of, maker_of
from spyre_mlir.division.matching import view_of
from spyre_mlir.division.ownership import local_bytes
from spyre_mlir.layout.stick_layout import is_convertible
from spyre_mlir.mlir import ir
from spyre_mlir.passes.base import Evaluator
from spyre_mlir.passes.before_planning import BeforePlanning, replace_function
from spyre_mlir.records import dataclass
from spyre_mlir.rewriting.clones import (
    division_of_copy,
    has_known_padding,
    insert_clone,
    read_instead,
    whole_of,
)
from spyre_mlir.target.ops import DEVICE_OPS

#: The most traffic, relative to the program without loads ahead: ping-pong buffers leave less capacity for others.
MOST_TRAFFIC = 1.01


@dataclass(frozen=True)
class DoubleBuffer(BeforePlanning):
    """Issue loads of a loop while other operations compute, if necessary for the next iteration (ping-pong buffers).

    A load is an operation on a tile of host data that waits for device memory longer than it computes: a
    clone, a restickify, a function of an input. The loads of an operation begin while the previous operation computes
    (``loads_begin_early`` of ``target/spyre.toml``), so a load is moved directly after the operation that computes
    longest while the memory is idle. If that operation comes after the readers of the load, the load is the load of the
    next tile: the loop then runs two iterations in one, with two alternating buffers that are planned as a pair
    (``sdsc.ping_pong``). If an operation streams an operand from device memory for longer than it computes, the operand
    gets a clone that can be loaded ahead. Only loops without inner loops are changed, and only if the timeline of the
    program, planned to its end, is shorter, the traffic grows little (``MOST_TRAFFIC``), and all loads ahead are in LX.
    Operations still run one after the other. ``compare=false`` moves loads without a comparison, with new clones only
    if there are no other loads.

    Before, level *divided*:
        for i: %t = tanh(%x[i]); %p = matmul(%t, %w); %s = add(%s, %p)
    After:
        %t = tanh(%x[0]) {sdsc.ping_pong = [0, 0]}
        for i by 2: %p = matmul(%t, %w); %u = tanh(%x[i + 1]) {sdsc.ping_pong = [0, 1]}; %s = add(%s, %p)
                    %p = matmul(%u, %w); %t = tanh(%x[i + 2]) {sdsc.ping_pong = [0, 0]}; %s = add(%s, %p)
        ..
    """

    name: ClassVar[str] = "double-buffer"
    compare: bool = True

    def decide(self, module: ir.Operation, evaluator: Evaluator) -> None:
        """Rewrite ``module`` in place."""
        for func in functions(module):
            has_pairs = any(sdsc.PING_PONG in op.attributes for op in all_ops(func))
            # A function that has pairs was pipelined by an earlier run.
            if not has_pairs and any(True for _ in _innermost_loops(func)):
                self._choose(func, evaluator)

    def _choose(self, func: ir.Operation, evaluator: Evaluator) -> None:
        """Keep the best of three functions: unchanged, with loads ahead, or also with clones of streamed operands."""
        plans = [self._plan(func, streams=streams) for streams in (False, True)]
        # Streams without a remaining clone give the same plan.
        plans = [plan for plan in plans if plan.loads and (plan.clones or plan is plans[0])]
        if not plans:
            self.remark(func, "no double buffers", "no operation computes while a load of its loop waits")
            return
        if not self.compare:
            replace_function(func, plans[0].module)
            return
        before = self._time(func, evaluator)
        if before is None:
            return
        prices = {plan: price for plan in plans if (price := self._time(plan.func, evaluator)) is not None}
        if not prices:
            self.remark(
                func, "no double buffers", f"LX has no room for what is loaded ahead; {before} without that"
            )
            return
        best = min(prices, key=lambda plan: prices[plan].nanoseconds)
        after = prices[best]
        text = f"{before} with loads where they are read, {after} with {best}"
        # Pairs take LX capacity from other buffers; if those spill, the memory that loads wait for is busier.
        if after.nanoseconds >= before.nanoseconds or after.bytes > MOST_TRAFFIC * before.bytes:
            self.remark(func, "no double buffers", text)
            return
        self.remark(func, "double buffers", text, before.nanoseconds, after.nanoseconds)
        replace_function(func, best.module)

    def _plan(self, func: ir.Operation, *, streams: bool) -> _BufferPlan:
        """Return a copy of the function with its loads moved."""
        module, loads, pairs, kept = module_of(func), 0, 0, 0
        (changed,) = functions(module.operation)
        loops = list(_innermost_loops(changed))
        clones: list[list[ir.Operation]] = [[] for _ in loops]
        # Loops do not share ops, so the gain of one loop does not depend on changes in another.
        if streams:
            usage = Usage(changed)
            clones = [clone_streams(usage, loop, self.name) for loop in loops]
        usage = Usage(changed)
        # A loop of one iteration has no next tile.
        slots_of_loops = [
            [slot for slot in slots(usage, loop) if trip_count(loop) > 1 or not slot.ahead] for loop in loops
        ]
        for loop, chosen, of_loop in zip(loops, slots_of_loops, clones, strict=True):
            staying = drop_clones(of_loop, chosen)
            for slot in chosen:
                if not slot.ahead:
                    move_behind(slot.load, slot.behind)
                    # Planning must not drop this clone: it exists to overlap a load, not to save bytes.
                    if slot.load in staying:
                        del slot.load.attributes[sdsc.OPTIONAL]
            ahead = [slot for slot in chosen if slot.ahead]
            if ahead:
                pipeline(loop, ahead, pairs)
            loads, pairs, kept = loads + len(chosen), pairs + len(ahead), kept + len(staying)
        return _BufferPlan(module, loads, pairs, kept)

    def _time(self, func: ir.Operation, evaluator: Evaluator) -> ProgramCost | None:
        """Evaluate a function by the timeline of its bundle; None if the rest of the pipeline refuses it.

        Pins of a plan file are ignored, because the plan may describe the program with loads ahead.
        """
        module = module_of(func)
        for op in all_ops(functions(module.operation)[0]):
            if sdsc.PINS in op.attributes:
                del op.attributes[sdsc.PINS]
        return evaluator.time(module)


@dataclass(frozen=True)
class _BufferPlan:
    """A module with a copy of a function in which ``loads`` are moved, ``pairs`` of them to ping-pong buffers.

    ``clones`` of these loads are clones of streamed operands.
    """

    module: ir.Module
    loads: int
    pairs: int
    clones: int

    @property
    def func(self) -> ir.Operation:
        """The function of the module."""
        (func,) = functions(self.module.operation)
        return func

    def __str__(self) -> str:
        return f"{self.loads} elsewhere, {self.pairs} of them into ping-pong buffers"


def _innermost_loops(func: ir.Operation) -> Iterator[ir.Operation]:
    """Yield the innermost loops."""
    for block in nested_blocks(func.regions[0].blocks[0]):
        owner = block.owner.operation
        if owner.name == LOOP and all(op.operation.name != LOOP for op in block.operations):
            yield owner


# Loops that load the tile of the next iteration while the current iteration computes ("software pipelining").
#
# An address in LX is the same number in all iterations. Therefore the two buffers of a load alternate in the program
# text:
#
#     for i in 0 .. n:                           A = load(0)
#     A = load(i)                              for j in 0 .. n - 1 by 2, carrying A:
#     B = matmul(A, ..)                          B = matmul(A, ..); C = load(j + 1); D = exp(B); ..
#     D = exp(B); ..                             B = matmul(C, ..); A = load(j + 2); D = exp(B); ..
#     B = matmul(A, ..); D = exp(B); ..
#
# The one or two remaining iterations, preceded by their loads, follow the loop.


def pipeline(loop: ir.Operation, loads: Sequence[Slot], first_pair: int) -> None:
    """Replace a loop of two or more iterations by a loop with its loads one iteration ahead.

    The pairs of buffers are numbered from ``first_pair``.
    """
    with ir.InsertionPoint(loop), loop.location:
        pipelined = _PipelinedLoop(loop, loads, first_pair)
        results = pipelined.run()
    for old, new in zip(loop.results, results, strict=True):
        old.replace_all_uses_with(new)
    loop.erase()
    _erase_unused(pipelined.copies)


class _PipelinedLoop:
    """Builder of the pipelined loop at the current insertion point. ``second`` selects the second buffer of a load."""

    def __init__(self, loop: ir.Operation, loads: Sequence[Slot], first_pair: int) -> None:
        self.loop = loop
        self.loads = loads
        self.first_pair = first_pair
        self.body = body_block(loop)
        self.variable, *self.carried = self.body.arguments
        self.numbers = induction(loop)
        self.over = dict(self._sums())
        self.copies: list[ir.Operation] = []  # copied ops of the block that is being written

    def _sums(self) -> Iterator[tuple[ir.Operation, int]]:
        """Yield the operations that compute a yielded value from its iter_arg, and the index of that operand."""
        for argument, value in zip(self.carried, terminator(self.body).operands, strict=True):
            op = defining_op(value)
            if op is not None and op.name == "linalg.generic" and argument in list(op.operands):
                yield op, list(op.operands).index(argument)

    def run(self) -> list[ir.Value]:
        """Write the pipelined loop and the remaining iterations; return the results of the loop."""
        count = self.numbers.count
        # One or two iterations remain after the loop; the last loads of the loop are for them.
        doubled = (count - 1) // 2
        values = list(self.loop.operands)[3:]
        loaded = [self._load(ahead, self._index(0), second=False) for ahead in self.loads]
        if doubled:
            values, loaded = self._doubled(doubled, values, loaded)
        for iteration in range(2 * doubled, count):
            next_index = self._index(iteration + 1) if iteration + 1 < count else None
            # An iteration loads into the buffer that the iteration itself does not read.
            second = (iteration + 1) % 2 == 1
            values, loaded = self._iteration(
                self._index(iteration), values, loaded, next_index, second=second
            )
        return values

    def _doubled(
        self, count: int, values: list[ir.Value], loaded: list[ir.Value]
    ) -> tuple[list[ir.Value], list[ir.Value]]:
        """Write the loop over pairs of iterations; return its results, and the loads for the iteration after it."""
        step = self.numbers.step
        bounds = [self._index(0), self._index(2 * count), self._constant(2 * step)]
        initial = [*values, *loaded]
        types = [value.type for value in initial]
        loop = ir.Operation.create(LOOP, results=types, operands=[*bounds, *initial], regions=1)
        block = ir.Block.create_at_start(loop.regions[0], [ir.IndexType.get(), *types])
        variable, *arguments = block.arguments
        outside, self.copies = self.copies, []
        with ir.InsertionPoint(block):
            one, two = (self._behind(variable, distance * step) for distance in (1, 2))
            begin, rest = arguments[: len(values)], arguments[len(values) :]
            begin, rest = self._iteration(variable, begin, rest, one, second=True)
            begin, rest = self._iteration(one, begin, rest, two, second=False)
            ir.Operation.create("scf.yield", operands=[*begin, *rest])
        _erase_unused(self.copies)
        self.copies = outside
        results = list(loop.results)
        return results[: len(values)], results[len(values) :]

    def _index(self, iteration: int) -> ir.Value:
        return self._constant(self.numbers.first + iteration * self.numbers.step)

    def _constant(self, number: int) -> ir.Value:
        index = ir.IndexType.get()
        attributes = {"value": ir.IntegerAttr.get(index, number)}
        return ir.Operation.create("arith.constant", results=[index], attributes=attributes).result

    def _behind(self, variable: ir.Value, distance: int) -> ir.Value:
        map_ = ir.AffineMap.get(1, 0, [ir.AffineDimExpr.get(0) + distance])
        attributes = {"map": ir.AffineMapAttr.get(map_)}
        return ir.Operation.create(
            "affine.apply", results=[ir.IndexType.get()], operands=[variable], attributes=attributes
        ).result

    def _iteration(
        self,
        index: ir.Value,
        values: Sequence[ir.Value],
        loaded: Sequence[ir.Value],
        next_index: ir.Value | None,
        *,
        second: bool,
    ) -> tuple[list[ir.Value], list[ir.Value]]:
        """Write one iteration on loaded tiles; return the yielded values, and any loads of the next iteration."""
        known = {self.variable: index, **dict(zip(self.carried, values, strict=True))}
        known |= {ahead.load.results[0]: value for ahead, value in zip(self.loads, loaded, strict=True)}
        skipped = [ahead.load for ahead in self.loads]
        fetched: dict[int, ir.Value] = {}
        for op in [op.operation for op in self.body.operations][:-1]:
            if op not in skipped:
                self.copies.append(_copied(op, known))
            if op in self.over:  # as in the loop, where the result overwrites the previous sum
                i64 = ir.IntegerType.get_signless(64)
                self.copies[-1].attributes[sdsc.OVER] = ir.IntegerAttr.get(i64, self.over[op])
            for number, ahead in enumerate(self.loads):
                if ahead.behind == op and next_index is not None:
                    fetched[number] = self._load(ahead, next_index, second=second)
        yielded = [known.get(value, value) for value in terminator(self.body).operands]
        return yielded, [fetched[number] for number in range(len(self.loads)) if number in fetched]

    def _load(self, ahead: Slot, index: ir.Value, *, second: bool) -> ir.Value:
        """Write the load of an iteration, into one of its two buffers."""
        needed = needed_in_block(ahead.load)
        known = {self.variable: index}
        for op in [op.operation for op in self.body.operations]:
            if op in needed:
                _copied(op, known)
        load = _copied(ahead.load, known)
        if sdsc.OPTIONAL in load.attributes:
            del load.attributes[sdsc.OPTIONAL]  # the load is an iter_arg of the loop
        pair = self.first_pair + list(self.loads).index(ahead)
        load.attributes[sdsc.PING_PONG] = sdsc.ping_pong_attr(pair, second)
        return load.results[0]


def _copied(op: ir.Operation, known: dict[ir.Value, ir.Value]) -> ir.Operation:
    """Copy an op to the current insertion point, with operands replaced according to ``known``.

    Copies have no pins, because a plan file pins each copy by the name of the copy.
    """
    copy = op.clone().operation
    if sdsc.PINS in copy.attributes:
        del copy.attributes[sdsc.PINS]
    _replace_operands(copy, known)
    known.update(zip(op.results, copy.results, strict=True))
    return copy


def _replace_operands(op: ir.Operation, known: Mapping[ir.Value, ir.Value]) -> None:
    for number, operand in enumerate(op.operands):
        if operand in known:
            op.operands[number] = known[operand]
    for region in op.regions:
        for block in region.blocks:
            for inner in block.operations:
                _replace_operands(inner.operation, known)


def _erase_unused(copies: Sequence[ir.Operation]) -> None:
    """Erase views that were needed only by moved loads, and operations for an iteration after the last."""
    for op in reversed(copies):
        if op.results and not any(True for value in op.results for _ in value.uses):
            op.erase()


# Slots for loads of a loop's body: positions after operations that compute while the memory is idle.


@dataclass(frozen=True)
class Slot:
    """A load of a loop's body, and the operation after which it can be placed (``behind``).

    With ``ahead`` the load belongs to the next iteration, else to the same iteration.
    """

    load: ir.Operation
    behind: ir.Operation
    ahead: bool


def slots(usage: Usage, loop: ir.Operation) -> list[Slot]:
    """Choose a slot for each load that benefits: long loads first, each after the operation with most idle time."""
    ops = [op for op in usage.ops if op.op.block == body_block(loop)]
    loads = {index: _memory_ns(op) for index, op in enumerate(ops) if _is_load(usage, loop, op)}
    idle = {index: _idle_ns(usage, op) for index, op in enumerate(ops) if index not in loads}
    chosen = []
    # Long loads choose first, because they have most latency to hide.
    for index in sorted(loads, key=lambda index: -loads[index]):
        hidden = {slot: min(idle_ns, loads[index]) for slot, idle_ns in idle.items()}
        best = max(hidden, key=lambda slot: (hidden[slot], slot < index), default=None)
        now = hidden.get((index or len(ops)) - 1, 0)
        if best is None or hidden[best] - now < usage.memory.target.hbm_access_ns:
            continue  # the gain over the operation before the load is less than the latency of one access
        del idle[best]
        chosen.append(Slot(ops[index].op, ops[best].op, ahead=best > index))
    return chosen


def _is_load(usage: Usage, loop: ir.Operation, user: Divided) -> bool:
    """Return whether an operation only loads a tile that no operation writes, for the current iteration only."""
    work, result = work_of(user), user.op.results[0]
    if work is None or not only_loads(usage, user, work):
        return False
    written = any(usage.buffers[usage.root(value)].writes for value in user.values[:-1])
    return not written and _moves(usage, loop, user.values[:-1]) and usage.root(result) == result


def _moves(usage: Usage, loop: ir.Operation, values: Sequence[ir.Value]) -> bool:
    """Return whether any of the values is a different tile in each iteration."""
    variable = body_block(loop).arguments[0]
    return any(variable in usage.memory.place(value).moves for value in values)


def _memory_ns(user: Divided) -> float:
    work = work_of(user)
    assert work is not None
    return memory_ns(work)


def _idle_ns(usage: Usage, user: Divided) -> float:
    """Return the ns of compute without memory traffic, with all possible operands in LX; 0 for a shuffle."""
    if user.opcode == SHUFFLE:
        return 0.0
    in_lx = frozenset(index for index, value in enumerate(user.values) if not _is_outside_of_lx(usage, value))
    work = operation_work(user.opcode, user.space, user.division, in_lx)
    return max(0.0, compute_ns(work) - memory_ns(work))


def _is_outside_of_lx(usage: Usage, value: ir.Value) -> bool:
    """Return whether a value is certainly in device memory: host data, a result, or a slice of a larger buffer."""
    root = usage.root(value)
    return usage.buffers[root].from_host or root in usage.results or not usage.memory.is_whole(value)


# -- clones --------------------------------------------------------------------------------------------


def clone_streams(usage: Usage, loop: ir.Operation, name: str) -> list[ir.Operation]:
    """Insert clones of streamed tiles for operations in a loop that wait for device memory; return the clones."""
    clones = []
    for buffer in list(usage.buffers.values()):
        if not buffer.from_host or buffer.writes or not is_convertible(element_of(buffer.root)):
            continue
        if has_known_padding(buffer):
            continue
        for access in buffer.reads:
            if access.user.op.block == body_block(loop) and _streams(usage, loop, access):
                clones += _clone(usage, access, name)
    return clones


def _streams(usage: Usage, loop: ir.Operation, access: BufferUse) -> bool:
    """Return whether loading a tile of an operand from device memory takes an operation longer than its compute."""
    user = access.user
    if user.op.name in COPIES or access.operand in DEVICE_OPS[user.opcode].indirect:
        return False
    work = work_of(user)
    assert work is not None
    return _moves(usage, loop, [user.values[access.operand]]) and memory_ns(work) > compute_ns(work)


def _clone(usage: Usage, access: BufferUse, name: str) -> Iterator[ir.Operation]:
    user = access.user
    view = view_of(user.space, access.operand, user.division)
    whole = whole_of(usage.memory, user.values[access.operand])
    division = None if view is None else division_of_copy(usage.memory, whole, view)
    # Twice the bytes, because the next tile is loaded while the operation reads the current one.
    if (
        division is None
        or 2 * local_bytes(user.space, access.operand, user.division) > usage.memory.target.usable_lx_bytes
    ):
        return
    point, reason = ir.InsertionPoint(user.op), f"'{user.opcode}' waits for it"
    clone = insert_clone(whole, division, point, user.op.location, name, reason)
    read_instead(clone, whole, [access])
    yield maker_of(clone)


def drop_clones(clones: Sequence[ir.Operation], chosen: Sequence[Slot]) -> list[ir.Operation]:
    """Remove the clones without a slot; return the others."""
    used = [slot.load for slot in chosen]
    used_clones = [clone for clone in clones if clone in used]
    for clone in clones:
        if clone not in used_clones:
            clone.results[0].replace_all_uses_with(clone.operands[0])
            clone.erase()
    return used_clones
