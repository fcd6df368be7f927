# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Loops whose operations load the tile of the next iteration while this one computes ("software pipelining").

An address in LX is one number, the same in all iterations. So the two buffers of a load take turns in the program text:

    for i in 0 .. n:                           A = load(0)
      A = load(i)                              for j in 0 .. n - 1 by 2, carrying A:
      B = matmul(A, ..)                          B = matmul(A, ..); C = load(j + 1); D = exp(B); ..
      D = exp(B); ..                             B = matmul(C, ..); A = load(j + 2); D = exp(B); ..
                                               B = matmul(A, ..); D = exp(B); ..

The one or two remaining iterations, with their loads in front, follow the loop.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from spyre_mlir.analysis.loads import needed_in_block
from spyre_mlir.analysis.loops import LOOP, body_block, induction, terminator
from spyre_mlir.dialects import sdsc
from spyre_mlir.dialects.structured import defining_op
from spyre_mlir.mlir import ir
from spyre_mlir.rewriting.load_slots import Slot


def pipeline(loop: ir.Operation, loads: Sequence[Slot], first_pair: int) -> None:
    """Replace a loop of two iterations or more by one with its loads one iteration ahead.

    Their pairs of buffers are numbered from ``first_pair``.
    """
    with ir.InsertionPoint(loop), loop.location:
        pipelined = _PipelinedLoop(loop, loads, first_pair)
        results = pipelined.run()
    for old, new in zip(loop.results, results, strict=True):
        old.replace_all_uses_with(new)
    loop.erase()
    _erase_unused(pipelined.copies)


class _PipelinedLoop:
    """The new loop at the current insertion point. ``second`` is whether a load goes to the second buffer."""

    def __init__(self, loop: ir.Operation, loads: Sequence[Slot], first_pair: int) -> None:
        self.loop = loop
        self.loads = loads
        self.first_pair = first_pair
        self.body = body_block(loop)
        self.variable, *self.carried = self.body.arguments
        self.numbers = induction(loop)
        self.over = dict(self._sums())
        self.copies: list[ir.Operation] = []  # of the block that is being filled

    def _sums(self) -> Iterator[tuple[ir.Operation, int]]:
        """The operations that compute a yielded value from its iter_arg, and the number of that operand."""
        for argument, value in zip(self.carried, terminator(self.body).operands, strict=True):
            op = defining_op(value)
            if op is not None and op.name == "linalg.generic" and argument in list(op.operands):
                yield op, list(op.operands).index(argument)

    def run(self) -> list[ir.Value]:
        """Write the pipelined loop and the remaining iterations; return the results of the loop."""
        count = self.numbers.count
        # One iteration or two stay behind the loop, whose last loads are for them.
        doubled = (count - 1) // 2
        values = list(self.loop.operands)[3:]
        loaded = [self._load(ahead, self._index(0), second=False) for ahead in self.loads]
        if doubled:
            values, loaded = self._doubled(doubled, values, loaded)
        for iteration in range(2 * doubled, count):
            next_index = self._index(iteration + 1) if iteration + 1 < count else None
            # The loads of an iteration go to the buffer that the iteration itself does not read.
            second = (iteration + 1) % 2 == 1
            values, loaded = self._iteration(
                self._index(iteration), values, loaded, next_index, second=second
            )
        return values

    def _doubled(
        self, count: int, values: list[ir.Value], loaded: list[ir.Value]
    ) -> tuple[list[ir.Value], list[ir.Value]]:
        """Write the loop over pairs of iterations; return its results, and the loads for the iteration behind it."""
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
            if op in self.over:  # as in the loop, where the sum before is over
                i64 = ir.IntegerType.get_signless(64)
                self.copies[-1].attributes[sdsc.OVER] = ir.IntegerAttr.get(i64, self.over[op])
            for number, ahead in enumerate(self.loads):
                if ahead.behind == op and next_index is not None:
                    fetched[number] = self._load(ahead, next_index, second=second)
        yielded = [known.get(value, value) for value in terminator(self.body).operands]
        return yielded, [fetched[number] for number in range(len(self.loads)) if number in fetched]

    def _load(self, ahead: Slot, index: ir.Value, *, second: bool) -> ir.Value:
        """The load of an iteration, into one of its two buffers."""
        needed = needed_in_block(ahead.load)
        known = {self.variable: index}
        for op in [op.operation for op in self.body.operations]:
            if op in needed:
                _copied(op, known)
        load = _copied(ahead.load, known)
        if sdsc.OPTIONAL in load.attributes:
            del load.attributes[sdsc.OPTIONAL]  # the loop carries it
        pair = self.first_pair + list(self.loads).index(ahead)
        load.attributes[sdsc.PING_PONG] = sdsc.ping_pong_attr(pair, second)
        return load.results[0]


def _copied(op: ir.Operation, known: dict[ir.Value, ir.Value]) -> ir.Operation:
    """A copy of an op at the current insertion point, on the values that stand for those that it reads.

    Copies have no pins: a plan file pins each copy by its own name.
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
    """Erase views that only loads need, which are elsewhere, and operations for an iteration after the last."""
    for op in reversed(copies):
        if op.results and not any(True for value in op.results for _ in value.uses):
            op.erase()
