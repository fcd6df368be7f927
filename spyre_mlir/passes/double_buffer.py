# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Double buffering: loops load the tile of the next iteration while the current iteration computes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar, NamedTuple

from spyre_mlir.analysis.aliasing import COPIES, all_ops, functions
from spyre_mlir.analysis.buffer_uses import Usage
from spyre_mlir.analysis.core_ownership import SHUFFLE
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
from spyre_mlir.passes.scratchpad_planning import BeforePlanning, replace_function
from spyre_mlir.records import dataclass
from spyre_mlir.rewriting.clones import (
    division_of_copy,
    has_known_padding,
    insert_clone,
    read_instead,
    whole_of,
)
from spyre_mlir.rewriting.outlining import copied
from spyre_mlir.rewriting.tensor_builders import index_constant
from spyre_mlir.target.ops import DEVICE_OPS

#: Maximum traffic, relative to the program without loads ahead: ping-pong buffers reduce the capacity for others.
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

    def decide_on(self, func: ir.Operation, evaluator: Evaluator) -> None:
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
            self.remark(func, "no double buffers", "no operation of its loop can run during a load")
            return
        if not self.compare:
            replace_function(func, plans[0].module)
            return
        before = self._time(func, evaluator)
        if before is None:
            return
        timed = ((plan, self._time(functions(plan.module.operation)[0], evaluator)) for plan in plans)
        prices = {plan: price for plan, price in timed if price is not None}
        if not prices:
            text = f"the tiles that are loaded ahead do not fit LX; {before} without double buffers"
            self.remark(func, "no double buffers", text)
            return
        best = min(prices, key=lambda plan: prices[plan].nanoseconds)
        after = prices[best]
        text = f"{before} without moved loads, {after} with {best.loads} elsewhere, {best.pairs} of them"
        text += " into ping-pong buffers"
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
            clones = [_clone_streams(usage, loop, self.name) for loop in loops]
        usage = Usage(changed)
        # A loop of one iteration has no next tile.
        slots_of_loops = [
            [slot for slot in slots(usage, loop) if trip_count(loop) > 1 or not slot.ahead] for loop in loops
        ]
        for loop, chosen, of_loop in zip(loops, slots_of_loops, clones, strict=True):
            loaded = [slot.load for slot in chosen]
            staying = [clone for clone in of_loop if clone in loaded]
            for clone in of_loop:
                if clone not in staying:
                    clone.results[0].replace_all_uses_with(clone.operands[0])
                    clone.erase()
            for slot in chosen:
                if not slot.ahead:
                    move_behind(slot.load, slot.anchor)
                    # Planning must not drop this clone: it exists to overlap a load, not to save bytes.
                    if slot.load in staying:
                        del slot.load.attributes[sdsc.OPTIONAL]
            ahead = [slot for slot in chosen if slot.ahead]
            if ahead:
                _PipelinedLoop(loop, ahead, pairs).run()
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


class _BufferPlan(NamedTuple):
    """A module with a copy of a function in which ``loads`` are moved, ``pairs`` of them to ping-pong buffers.

    ``clones`` of these loads are clones of streamed operands.
    """

    module: ir.Module
    loads: int
    pairs: int
    clones: int


def _innermost_loops(func: ir.Operation) -> Iterator[ir.Operation]:
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


class _PipelinedLoop:
    """Builder of a loop of two or more iterations with its ``loads`` one iteration ahead.

    The pairs of buffers are numbered from ``first_pair``; ``second`` selects the second buffer of a load.
    """

    def __init__(self, loop: ir.Operation, loads: Sequence[Slot], first_pair: int) -> None:
        self.loop, self.loads, self.first_pair = loop, loads, first_pair
        self.body = body_block(loop)
        self.variable, *self.carried = self.body.arguments
        self.numbers = induction(loop)
        self.copies: list[ir.Operation] = []  # copied ops of the block that is being written
        # The operations that compute a yielded value from its iter_arg, and the index of that operand.
        self.overwritten: dict[ir.Operation, int] = {}
        for argument, value in zip(self.carried, terminator(self.body).operands, strict=True):
            op = defining_op(value)
            if op is not None and op.name == "linalg.generic" and argument in list(op.operands):
                self.overwritten[op] = list(op.operands).index(argument)

    def run(self) -> None:
        """Replace the loop by the pipelined loop and the remaining iterations."""
        count, first, step = self.numbers.count, self.numbers.first, self.numbers.step
        # One or two iterations remain after the loop; the last loads of the loop are for them.
        doubled = (count - 1) // 2
        values = list(self.loop.operands)[3:]
        with ir.InsertionPoint(self.loop), self.loop.location:
            loaded = [self._load(ahead, index_constant(first), second=False) for ahead in self.loads]
            if doubled:
                values, loaded = self._doubled(doubled, values, loaded)
            for iteration in range(2 * doubled, count):
                has_next = iteration + 1 < count
                following = index_constant(first + (iteration + 1) * step) if has_next else None
                # An iteration loads into the buffer that the iteration itself does not read.
                second = (iteration + 1) % 2 == 1
                index = index_constant(first + iteration * step)
                values, loaded = self._iteration(index, values, loaded, following, second=second)
        for old, new in zip(self.loop.results, values, strict=True):
            old.replace_all_uses_with(new)
        self.loop.erase()
        _erase_unused(self.copies)

    def _doubled(
        self, count: int, values: list[ir.Value], loaded: list[ir.Value]
    ) -> tuple[list[ir.Value], list[ir.Value]]:
        """Write the loop over pairs of iterations; return its results, and the loads for the iteration after it."""
        first, step = self.numbers.first, self.numbers.step
        bounds = [index_constant(bound) for bound in (first, first + 2 * count * step, 2 * step)]
        initial = [*values, *loaded]
        types = [value.type for value in initial]
        loop = ir.Operation.create(LOOP, results=types, operands=[*bounds, *initial], regions=1)
        block = ir.Block.create_at_start(loop.regions[0], [ir.IndexType.get(), *types])
        variable, *arguments = block.arguments
        outside, self.copies = self.copies, []
        with ir.InsertionPoint(block):
            maps = [ir.AffineMap.get(1, 0, [ir.AffineDimExpr.get(0) + trips * step]) for trips in (1, 2)]
            one, two = (
                ir.Operation.create(
                    "affine.apply", [ir.IndexType.get()], [variable], {"map": ir.AffineMapAttr.get(map_)}
                ).result
                for map_ in maps
            )
            begin, rest = arguments[: len(values)], arguments[len(values) :]
            begin, rest = self._iteration(variable, begin, rest, one, second=True)
            begin, rest = self._iteration(one, begin, rest, two, second=False)
            ir.Operation.create("scf.yield", operands=[*begin, *rest])
        _erase_unused(self.copies)
        self.copies = outside
        results = list(loop.results)
        return results[: len(values)], results[len(values) :]

    def _iteration(
        self,
        index: ir.Value,
        values: Sequence[ir.Value],
        loaded: Sequence[ir.Value],
        following: ir.Value | None,
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
            if op in self.overwritten:  # as in the loop, where the result overwrites the previous sum
                i64 = ir.IntegerType.get_signless(64)
                self.copies[-1].attributes[sdsc.OVERWRITES] = ir.IntegerAttr.get(i64, self.overwritten[op])
            for number, ahead in enumerate(self.loads):
                if ahead.anchor == op and following is not None:
                    fetched[number] = self._load(ahead, following, second=second)
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
    copy = copied(op, known)
    if sdsc.PINS in copy.attributes:
        del copy.attributes[sdsc.PINS]
    return copy


def _erase_unused(copies: Sequence[ir.Operation]) -> None:
    """Erase views that were needed only by moved loads, and operations for an iteration after the last."""
    for op in reversed(copies):
        if op.results and not any(True for value in op.results for _ in value.uses):
            op.erase()


# Slots for loads of a loop's body: positions after operations that compute while the memory is idle.


@dataclass(frozen=True)
class Slot:
    """A load of a loop's body, and the operation after which it can be placed (``anchor``).

    With ``ahead`` the load belongs to the next iteration, else to the same iteration.
    """

    load: ir.Operation
    anchor: ir.Operation
    ahead: bool


def slots(usage: Usage, loop: ir.Operation) -> list[Slot]:
    """Choose a slot for each load that benefits: long loads first, each after the operation with most idle time."""
    ops = [op for op in usage.ops if op.op.block == body_block(loop)]
    load_ns: dict[int, float] = {}
    idle_ns: dict[int, float] = {}
    for index, user in enumerate(ops):
        work, result, operands = work_of(user), user.op.results[0], user.values[:-1]
        # A load reads a tile that no operation writes, for the current iteration only.
        if (
            work is not None
            and only_loads(usage, user, work)
            and not any(usage.buffers[usage.root(value)].writes for value in operands)
            and _moves(usage, loop, operands)
            and usage.root(result) == result
        ):
            load_ns[index] = memory_ns(work)
            continue
        # The time of compute without memory traffic, with all possible operands in LX; 0 for a shuffle.
        idle_ns[index] = 0.0
        if user.opcode != SHUFFLE:
            # Host data, results, and slices of larger buffers are in device memory.
            roots = enumerate(zip(user.values, map(usage.root, user.values), strict=True))
            in_lx = frozenset(
                number
                for number, (value, root) in roots
                if not usage.buffers[root].from_host
                and root not in usage.results
                and usage.memory.is_whole(value)
            )
            work = operation_work(user.opcode, user.space, user.division, in_lx)
            idle_ns[index] = max(0.0, compute_ns(work) - memory_ns(work))
    chosen = []
    # Long loads choose first, because they have most latency to hide.
    for index in sorted(load_ns, key=lambda index: -load_ns[index]):
        hidden = {slot: min(idle, load_ns[index]) for slot, idle in idle_ns.items()}
        best = max(hidden, key=lambda slot: (hidden[slot], slot < index), default=None)
        now = hidden.get((index or len(ops)) - 1, 0)
        if best is None or hidden[best] - now < usage.memory.target.hbm_access_ns:
            continue  # the gain over the operation before the load is less than the latency of one access
        del idle_ns[best]
        chosen.append(Slot(ops[index].op, ops[best].op, ahead=best > index))
    return chosen


def _moves(usage: Usage, loop: ir.Operation, values: Sequence[ir.Value]) -> bool:
    """Return whether any of the values is a different tile in each iteration."""
    variable = body_block(loop).arguments[0]
    return any(variable in usage.memory.place(value).moves for value in values)


def _clone_streams(usage: Usage, loop: ir.Operation, name: str) -> list[ir.Operation]:
    """Insert clones of streamed tiles for operations in a loop that wait for device memory; return the clones."""
    clones = []
    for buffer in list(usage.buffers.values()):
        if not buffer.from_host or buffer.writes or not is_convertible(element_of(buffer.root)):
            continue
        if has_known_padding(buffer):
            continue
        for access in buffer.reads:
            user, operand = access.user, access.operand
            is_direct = user.op.name not in COPIES and operand not in DEVICE_OPS[user.opcode].indirect
            if user.op.block != body_block(loop) or not is_direct:
                continue
            # The operation streams its operand: loading a tile takes longer than computing on it.
            work = work_of(user)
            assert work is not None
            if not _moves(usage, loop, [user.values[operand]]) or memory_ns(work) <= compute_ns(work):
                continue
            view = view_of(user.space, operand, user.division)
            whole = whole_of(usage.memory, user.values[operand])
            division = None if view is None else division_of_copy(usage.memory, whole, view)
            # Twice the bytes, because the next tile is loaded while the operation reads the current one.
            needed = 2 * local_bytes(user.space, operand, user.division)
            if division is None or needed > usage.memory.target.usable_lx_bytes:
                continue
            point, reason = ir.InsertionPoint(user.op), f"'{user.opcode}' waits for it"
            clone = insert_clone(whole, division, point, user.op.location, name, reason)
            read_instead(clone, whole, [access])
            clones.append(maker_of(clone))
    return clones
