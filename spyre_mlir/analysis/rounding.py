# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Precision analysis: the f32 values of a function that must not be rounded to fp16 between two operations.

An operation computes in f32 and rounds its result. That costs half a unit in the last place, which is harmless unless

* the result leaves the range of fp16: powers of the inputs other than the first, sums of many of them;
* what follows subtracts it from something nearly equal: a mean from the values that it is the mean of, or a sum of
  weights times values, where the weights were divided by their sum;
* it is a partial sum, to which more is added, operation by operation;
* a constant beside it is smaller than fp16 has exact numbers;
* it may be so near to 0 that fp16 has no number or few digits for it, and a logarithm, a root or a quotient follows,
  or a factor that makes it large again.

All of this is read off the graph (``value_ranges.py``).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from spyre_mlir.analysis.value_ranges import (
    CASTS,
    HEADROOM,
    MATMULS,
    SMALLEST,
    SUMS,
    ValueFacts,
    after,
    joined,
    numbers,
    of_constant,
)
from spyre_mlir.dialects import sdsc
from spyre_mlir.dialects.structured import Structured, defining_op, element_of, shape_of, structured
from spyre_mlir.mlir import ir

#: The smallest number that a constant of an operation, which is in DL16, may be to have all bits.
_SMALLEST_CONSTANT = 2.0**-30

_SCALINGS = ("mul", "realdiv")

#: Operations that make a small error of an operand near 0 a large one of the result.
_STEEP_AT_0 = ("log", "sqrt", "rsqrt", "reciprocal")

#: Operations whose result differs by as much as an operand does, or by a multiple: an exponential of it follows.
_TRANSPARENT = frozenset(
    "add sub revsub mul where3 identity maximum minimum clip dl16tofp32 fp32todl16".split()
)


def unrounded(block: ir.Block, parameters: frozenset[int]) -> tuple[set[ir.Value], set[ir.Value]]:
    """The f32 values of a function's block that rounding would spoil, and those of them of which nothing is left.

    The second must not be rounded even where the device computes them in 16 bits alone. ``parameters`` are numbers of
    arguments.
    """
    analysis = _Rounding(block, parameters)
    for op in block.operations:
        analysis.visit(op.operation)
    analysis.unrounded |= analysis.required
    # In reverse, for a view is kept because its readers are.
    for op in reversed([op.operation for op in block.operations]):
        analysis.keep_views(op)
    return analysis.unrounded, analysis.required


def amplified(block: ir.Block) -> Iterator[ir.Operation]:
    """The matmuls with a 16-bit result of which an exponential is taken: rounding by e changes that by the factor e^e.

    Sums, masks and scales may come between, and views; a maximum that is subtracted is no other way.
    """
    reaches: set[ir.Value] = set()
    for op in reversed([op.operation for op in block.operations]):
        opcode = sdsc.opcode_of(op)
        if opcode in MATMULS:
            if op.results[0] in reaches and element_of(op.results[0]) == "f16":
                yield op
        elif opcode == "exp" or (
            (opcode is None or opcode in _TRANSPARENT) and any(result in reaches for result in op.results)
        ):
            reaches.update(op.operands)


class _Rounding:
    """Facts of the values of a block, in its order, and the values that must stay f32 because of them."""

    def __init__(self, block: ir.Block, parameters: frozenset[int]) -> None:
        self.facts: dict[ir.Value, ValueFacts] = {}
        self.unrounded: set[ir.Value] = set()
        self.required: set[ir.Value] = set()
        self.sources = 0
        for number, argument in enumerate(block.arguments):
            self._source(argument, has_unit=number not in parameters)

    def _source(self, value: ir.Value, has_unit: bool) -> None:
        unit = 1.0 if has_unit else 0.0
        self.facts[value] = ValueFacts(element_of(value) != "f32", (unit, unit), sources=1 << self.sources)
        self.sources += 1

    def visit(self, op: ir.Operation) -> None:
        if op.name in ("tensor.empty", "linalg.fill", "func.return"):
            return
        if op.name == "arith.constant":
            self.facts[op.results[0]] = of_constant(op)
            return
        generic = structured(op) if sdsc.OP in op.attributes else None
        if generic is not None:
            self._device_op(generic)
            return
        known = [self.facts[operand] for operand in op.operands if operand in self.facts]
        for result in op.results:
            if known:
                self.facts[result] = joined(known)
            else:
                self._source(result, has_unit=True)

    def _device_op(self, generic: Structured) -> None:
        inputs = [self.facts[value] for value in generic.inputs if value in self.facts]
        if len(inputs) < len(generic.inputs) or not inputs:
            self._source(generic.result, has_unit=True)
            return
        facts = after(generic, inputs)
        self.facts[generic.result] = facts
        # A cast rounds nothing by itself, and a matmul has a result of 16 bits whatever is asked for.
        if element_of(generic.result) != "f32" or generic.opcode in (*CASTS, *MATMULS):
            return
        if (not facts.fits_f16 and not is_rounded_at_once(generic.result)) or _has_small_constant(generic):
            self.unrounded.add(generic.result)
        if generic.opcode in SUMS:
            self._sum(*generic.inputs[:2])
        vanishing = list(_vanishing_operands(generic, inputs))
        for value in vanishing:
            self._require(value)
        if vanishing:
            self.required.add(generic.result)

    def _sum(self, first: ir.Value, second: ir.Value) -> None:
        """Keep the operands of a sum of two in f32 where their rounding errors would be large beside the result."""
        first_facts, second_facts = self.facts[first], self.facts[second]
        correlated = first_facts.reduced & second_facts.sources or second_facts.reduced & first_facts.sources
        for value in (first, second):
            if correlated:
                self._keep(value)
            elif _is_partial_sum(value):
                self._keep(value, history=False)

    def _keep(self, value: ir.Value, history: bool = True) -> None:
        """Keep a value in f32 and, with its history, all that it was computed from, up to values exact in fp16."""
        waiting = [value]
        while waiting:
            value = waiting.pop()
            op = defining_op(value)
            if value in self.unrounded or op is None or element_of(value) != "f32":
                continue
            # fp16 loses nothing of the value itself, but it may of the scale that it was computed with.
            if self.facts[value].exact:
                self._keep_scale(value)
                continue
            self.unrounded.add(value)
            if history:
                waiting.extend(operand for operand in op.operands if operand in self.facts)

    def _require(self, value: ir.Value) -> None:
        """Keep a value and all that it was computed from, on the host where the device has only 16 bits for it."""
        waiting = [value]
        while waiting:
            value = waiting.pop()
            op = defining_op(value)
            if value in self.required or op is None or element_of(value) != "f32" or self.facts[value].exact:
                continue
            self.required.add(value)
            waiting.extend(operand for operand in op.operands if operand in self.facts)

    def _keep_scale(self, value: ir.Value) -> None:
        """Keep a scale that many fp16 numbers share: its rounding error would be one that they have in common."""
        op = defining_op(value)
        while op is not None and sdsc.opcode_of(op) in CASTS:
            value, op = op.operands[0], defining_op(op.operands[0])
        generic = structured(op) if op is not None and sdsc.opcode_of(op) in _SCALINGS else None
        if generic is None or element_of(generic.result) != "f32":
            return
        for scale, dims in zip(generic.inputs, generic.maps, strict=False):
            if len(dims) < len(generic.extents) and scale in self.facts and self.facts[scale].reduced:
                self.unrounded.update((scale, generic.result))

    def keep_views(self, op: ir.Operation) -> None:
        """Keep views and casts that only operations in f32 read: one cast instead of one per reader."""
        if len(op.results) != 1 or element_of(op.results[0]) != "f32":
            return
        moves = sdsc.opcode_of(op) in (None, "dl16tofp32", "identity")
        if not moves or op.name in ("arith.constant", "tensor.empty", "linalg.fill"):
            return
        readers = [use.owner.operation for use in op.results[0].uses]
        if readers and all(self._runs_in_f32(reader) for reader in readers):
            self.unrounded.add(op.results[0])

    def _runs_in_f32(self, op: ir.Operation) -> bool:
        if sdsc.opcode_of(op) in (*CASTS, *MATMULS):
            return False
        values = op.results if sdsc.opcode_of(op) is None else (*op.operands, *op.results)
        return any(value in self.unrounded for value in values)


# -- questions about operations -----------------------------------------------------------------------


def is_rounded_at_once(value: ir.Value) -> bool:
    """Return whether every reader in the program rounds a value to fp16."""
    return all(sdsc.opcode_of(use.owner.operation) == "fp32todl16" for use in value.uses)


def _vanishing_operands(generic: Structured, inputs: Sequence[ValueFacts]) -> Iterator[ir.Value]:
    """The operands with digits near to 0 that fp16 would lose and the operation makes large."""
    opcode = generic.opcode
    if opcode in _STEEP_AT_0:
        needed = [True]
    elif opcode == "realdiv":
        divisor = inputs[1]
        is_steep = divisor.vanishes_in_f16 or (not divisor.sources and divisor.factor < -HEADROOM)
        needed = [is_steep, True]
    elif opcode == "mul":
        needed = [other.factor > HEADROOM for other in reversed(inputs)]
    else:
        return
    for value, facts, is_needed in zip(generic.inputs, inputs, needed, strict=True):
        if is_needed and facts.vanishes_in_f16:
            yield value


def _is_partial_sum(value: ir.Value) -> bool:
    op = defining_op(value)
    return op is not None and sdsc.opcode_of(op) in SUMS


def _has_small_constant(generic: Structured) -> bool:
    """Return whether a constant of an operation would be another one in fp16, or 0."""
    if any(0 < abs(number) < _SMALLEST_CONSTANT for number in sdsc.constants_of(generic.op).values()):
        return True
    return any(_is_small(value) for value in generic.inputs)


def _is_small(value: ir.Value) -> bool:
    op = defining_op(value)
    if op is None or op.name != "arith.constant" or element_of(value) != "f32" or shape_of(value):
        return False
    attr = op.attributes["value"]
    size = np.abs(numbers(attr) if isinstance(attr, ir.DenseElementsAttr) else ir.FloatAttr(attr).value)
    return bool(np.any((size > 0) & (size < 2.0**SMALLEST)))
