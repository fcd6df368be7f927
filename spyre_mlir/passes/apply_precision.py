# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Decides which f32 values remain f32 on the device."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar

import numpy as np

from spyre_mlir.analysis.aliasing import argument_attributes, functions
from spyre_mlir.analysis.loops import LOOP, terminator
from spyre_mlir.analysis.quantized_matmuls import is_integer_sum, wide_sums
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
    selects,
)
from spyre_mlir.diagnostics import error_at
from spyre_mlir.dialects import sdsc, stick
from spyre_mlir.dialects.structured import (
    Structured,
    defining_op,
    device_op,
    element_of,
    maker_of,
    rebuilt,
    shape_of,
    structured,
    use_empty,
)
from spyre_mlir.errors import CompileError
from spyre_mlir.layout.requests import with_element_type
from spyre_mlir.mlir import ir
from spyre_mlir.passes.base import Pass
from spyre_mlir.records import dataclass
from spyre_mlir.rewriting.linalg_values import buffer_of
from spyre_mlir.rewriting.outlining import read_by, replace_operands
from spyre_mlir.rewriting.tensor_builders import constant, elementwise, empty
from spyre_mlir.target.element_types import cast_between
from spyre_mlir.target.formats import FP16_MAX, fits_fp16
from spyre_mlir.target.ops import DEVICE_OPS, FP32

#: The largest number that fp16 rounds to 0.
_ZERO_F16 = 2.0**-25

#: Operations that the device supports only in DL16, and that are expressed by other operations in f32.
_ROOTS = ("sqrt", "rsqrt")

#: Ops that write a buffer.
_COMPUTED = ("linalg.generic", "sdsc.clone", "tensor.insert_slice")

#: Reductions whose partial results must not be rounded.
_ROUNDING = ("sum", "sumnonstick", "mean", "meannonstick", "prod")


@dataclass(frozen=True)
class ApplyPrecision(Pass):
    """Fold the f32 islands of an fp16 program back to f16, or keep them.

    The importer computes softmax, norms and matmul in f32 between an extf and a truncf, but the device
    accumulates in higher precision by itself. An island is a set of f32 values connected by ops.

    ``policy=device``: an island whose inputs are fp16 values and constants and whose outputs are fp16 becomes fp16. The
    exceptions are values that rounding would spoil: squares and sums that leave the range, means that are subtracted
    from the values that they are the mean of, and partial sums. These values and their readers stay f32 between casts.
    An island that contains an argument, a result, an integer (also from floor), a sum of integers or a constant beyond
    the range of fp16 stays f32.
    ``policy=strict``: islands stay f32. Only a matmul that is immediately rounded to fp16 becomes one device operation,
    because the device accumulates it as the island does.

    A matmul with a 16-bit result that reaches an exponential is marked (``sdsc.amplified``), so that a run checks its
    numbers. A matmul of 8-bit operands whose sums are only cast to f32 is marked with its casts (``sdsc.wide_sum``).

    Roots that stay f32 become ``layernormscale`` with the constant -0, which the device supports in f32.
    """

    name: ClassVar[str] = "apply-precision"
    policy: str = "device"

    def run(self, module: ir.Operation) -> None:
        if self.policy not in ("device", "strict"):
            raise CompileError(f"Precision policy '{self.policy}' is unknown; use 'device' or 'strict'.")
        for func in functions(module):
            self._function(func)

    def _function(self, func: ir.Operation) -> None:
        """Write the islands of a function in fp16 where the policy and the ranges of their values allow it."""
        block = func.regions[0].blocks[0]
        islands = Islands(block)
        is_strict = self.policy == "strict"
        inner = islands.rounded_matmuls() if is_strict else islands.inner()
        in_f32, required = set[ir.Value](), set[ir.Value]()
        if inner and not is_strict:
            # The range of a parameter does not grow with the data.
            hosts = [attributes.get(sdsc.HOST) for attributes in argument_attributes(func)]
            kinds = [None if host is None else ir.StringAttr(host.kind).value for host in hosts]
            parameters = frozenset(n for n, kind in enumerate(kinds) if kind not in (None, "input"))
            in_f32, required = unrounded(block, parameters)
        if inner:
            demotion = _Demotion(block, inner, in_f32 | islands.partial, required)
            demotion.run()
            if len(inner) > demotion.in_f32:
                count = len(inner) - demotion.in_f32
                self.remark(func, "precision", f"{count} f32 values between fp16 values are computed in fp16")
            if demotion.in_f32:
                text = f"{demotion.in_f32} f32 values between fp16 values stay f32: fp16 would change results"
                self.remark(func, "precision", text)
            _separate_results(terminator(block))
        for rewrite in (_replace_root, _narrow_windows):
            for op in [op.operation for op in block.operations]:
                rewrite(op)
        # Last, because demotion decides which matmuls have 16-bit results.
        for op in feeding_exponentials(block):
            op.attributes[sdsc.AMPLIFIED] = ir.UnitAttr.get()
        for op in wide_sums(block):
            op.attributes[sdsc.WIDE_SUM] = ir.UnitAttr.get()
        for op in (op.operation for op in block.operations):
            types = [element_of(value) for value in list(op.operands)[:2]]
            if sdsc.opcode_of(op) in MATMULS and "f32" in types:
                text = f"a matmul supports fp16, fp8 or int8, not {' x '.join(types)}; cast the operands"
                raise error_at(op, text)


def _replace_root(op: ir.Operation) -> None:
    """Rewrite an f32 root with f32 operations: rsqrt(x) as 1 / sqrt(x + -0), and sqrt(x) as its reciprocal.

    The result is also correct for zeros and infinity: 1 / (1 / sqrt(0)) is 0, and adding -0 keeps the sign of a zero.
    """
    if sdsc.opcode_of(op) not in _ROOTS or element_of(op.results[0]) != "f32":
        return
    generic = structured(op)
    assert generic is not None
    with ir.InsertionPoint(op), op.location:
        result = device_op(
            "layernormscale",
            list(generic.inputs),
            generic.maps[:-1],
            generic.extents,
            "f32",
            location=op.location,
            result_map=generic.maps[-1],
            constants={"eps": -0.0},
        )
        sdsc.inherit(maker_of(result), op)
        if generic.opcode == "sqrt":
            result = elementwise("reciprocal", result, "f32", op.location)
    op.results[0].replace_all_uses_with(result)
    op.erase()


def _narrow_windows(op: ir.Operation) -> None:
    """Round an f32 result of a convolution or pooling to fp16: the device accumulates in more bits but returns fp16."""
    generic = structured(op)
    if generic is None or generic.opcode not in DEVICE_OPS:
        return
    if not DEVICE_OPS[generic.opcode].kind.slides or element_of(generic.result) != "f32":
        return
    with ir.InsertionPoint(op), op.location:
        result = rebuilt(generic, generic.inputs, element="f16")
        maker_of(result).attributes[sdsc.DEMOTED] = ir.UnitAttr.get()
        widened = elementwise("dl16tofp32", result, "f32", op.location)
    op.results[0].replace_all_uses_with(widened)
    op.erase()


def _separate_results(terminator: ir.Operation) -> None:
    """Clone results that share a buffer with another value because the casts between them were removed."""
    returned: set[ir.Value] = set()
    for index, value in enumerate(terminator.operands):
        root = buffer_of(value)
        owner = defining_op(root) if root is not None else None
        if root is None or owner is None or owner.name == "arith.constant" or root in returned:
            with ir.InsertionPoint(terminator):
                terminator.operands[index] = root = sdsc.clone(value, terminator.location)
        returned.add(root)


class Islands:
    """The f32 tensors of a block, grouped by the ops that connect them."""

    def __init__(self, block: ir.Block) -> None:
        self.parent: dict[ir.Value, ir.Value] = {}
        self.bound: set[ir.Value] = set()  # values that must stay f32, with their island
        self.partial: set[ir.Value] = set()  # values that stay f32 by themselves
        self.order: list[ir.Value] = []
        self.matmuls: list[ir.Operation] = []
        for argument in block.arguments:
            if element_of(argument) == "f32":
                self._add(argument)
                self.bound.add(argument)
        for op in block.operations:
            self._visit(op.operation)

    def _add(self, value: ir.Value) -> None:
        if value not in self.parent:
            self.parent[value] = value
            self.order.append(value)

    def find(self, value: ir.Value) -> ir.Value:
        while self.parent[value] != value:
            # Path halving keeps the chains of long programs short.
            self.parent[value] = self.parent[self.parent[value]]
            value = self.parent[value]
        return value

    def _visit(self, op: ir.Operation) -> None:
        """Join the f32 values that an op reads or writes into one island."""
        opcode = sdsc.opcode_of(op)
        if op.name in ("tensor.empty", "linalg.fill", "arith.constant") and opcode is None:
            # Constants and fills are rebuilt for each reader, so they connect no islands.
            return
        read = list(op.operands)
        if op.name == LOOP:
            read = [value for value in read_by(op) if isinstance(value.type, ir.RankedTensorType)]
        elif op.name in ("linalg.generic", "linalg.transpose"):
            read.pop()  # the destination
        values = [value for value in (*read, *op.results) if element_of(value) == "f32" and not _free(value)]
        for value in values:
            self._add(value)
        if opcode in MATMULS - {"batchmatmulint8"}:
            self.matmuls.append(op)
        # The first result of a two-step reduction is a partial result, which stays unrounded.
        if opcode in _ROUNDING and sdsc.opcode_of(defining_op(op.operands[0]) or op) in _ROUNDING and values:
            self.partial.add(op.operands[0])
        # A factor that fp16 rounds adds its relative error to the whole result.
        if any(_exceeds_f16(value, opcode in ("mul", "realdiv")) for value in op.operands):
            self.bound.update(values)
        if opcode == "dl16tofp32" and is_integer_sum(defining_op(op.operands[0])):
            # The scale of a sum may be smaller than the smallest fp16 number.
            self.bound.update(values)
        if op.name in ("func.return", "func.call", LOOP) or opcode in ("fp32toint32", "int32tofp32", "floor"):
            # This includes floor: if its operand were rounded to an integer, the result could be off by one.
            self.bound.update(values)
        # Casts separate islands; every other op joins its f32 values into one.
        elif opcode not in ("dl16tofp32", "fp32todl16"):
            for value in values[1:]:
                self.parent[self.find(value)] = self.find(values[0])

    def inner(self) -> set[ir.Value]:
        """Return the values of all islands without a bound value."""
        outer = {self.find(value) for value in self.bound}
        return {value for value in self.order if self.find(value) not in outer}

    def rounded_matmuls(self) -> set[ir.Value]:
        """Return the results of matmuls whose readers all round them to fp16."""
        results = [op.results[0] for op in self.matmuls if element_of(op.results[0]) == "f32"]
        return {
            value
            for value in results
            if all(sdsc.opcode_of(use.owner.operation) == "fp32todl16" for use in value.uses)
        }


def _numbers_of(value: ir.Value) -> np.ndarray | None:
    """Return the numbers of an f32 constant; None for another value."""
    owner = defining_op(value)
    if owner is None or owner.name != "arith.constant" or element_of(value) != "f32":
        return None
    attr = owner.attributes["value"]
    return numbers(attr) if isinstance(attr, ir.DenseElementsAttr) else np.array(ir.FloatAttr(attr).value)


def _exceeds_f16(value: ir.Value, scales: bool) -> bool:
    """Return whether an element of a constant becomes infinity or 0 in fp16, or is an inexact scale (``scales``)."""
    number = _numbers_of(value)
    if number is None:
        return False
    size = np.abs(number)
    lost = np.isfinite(size) & (size > FP16_MAX) | (size > 0) & (size <= _ZERO_F16)
    return bool(np.any(lost | ~fits_fp16(number) if scales else lost))


def _free(value: ir.Value) -> bool:
    """Return whether a value is a constant or an empty tensor, which can have any element type."""
    owner = defining_op(value)
    return owner is not None and owner.name in ("arith.constant", "tensor.empty")


class _Demotion:
    """Rewrite of the ops of islands in f16 or f32. A reader that needs the other type reads a cast.

    ``inner`` are the f32 values of the islands; the ``unrounded`` among them are read in f32. An operation runs in f32
    if it reads or computes an unrounded value, or if all its operands were computed in f32 anyway. One that the device
    supports only in 16 bits runs in f32, on the host, if its result is ``required``. Casts at the boundary are removed.
    """

    def __init__(
        self, block: ir.Block, inner: set[ir.Value], unrounded: set[ir.Value], required: set[ir.Value]
    ) -> None:
        self.block = block
        self.inner = inner
        self.unrounded = unrounded & inner
        self.required = required
        self.in_f32 = 0
        self.values: dict[ir.Value, ir.Value] = {}
        self.casts: dict[tuple[ir.Value, str], ir.Value] = {}
        self.dead: list[ir.Operation] = []

    def run(self) -> None:
        for op in [op.operation for op in self.block.operations]:
            if any(value in self.inner for value in (*op.operands, *op.results)):
                generic = structured(op)
                with ir.InsertionPoint(op), op.location:
                    if generic is None:
                        self._copy(op)
                    elif generic.opcode in ("dl16tofp32", "fp32todl16"):
                        self.values[generic.result] = self._recast(generic)
                    else:
                        self.values[generic.result] = self._device_op(generic)
                self.dead.append(op)
                continue
            if op.name == LOOP:
                replace_operands(op, self.values)
            for index, operand in enumerate(op.operands):
                if operand in self.values:
                    op.operands[index] = self.values[operand]
        # Readers come after the ops that they read, so they are erased first.
        for op in reversed(self.dead):
            op.erase()

    def _recast(self, generic: Structured) -> ir.Value:
        """Replace a cast at the boundary of an island by its operand, or by a copy if the cast also moved dims."""
        element = "f32" if generic.result in self.unrounded else "f16"
        value = self.values.get(generic.inputs[0], generic.inputs[0])
        # A cast that does not move dims needs no operation any more.
        if generic.maps[0] == generic.maps[-1]:
            return self._cast(value, element)
        value = self._cast(value, "f16")
        return device_op(
            "identity" if element == "f16" else "dl16tofp32",
            [value],
            generic.maps[:1],
            generic.extents,
            element,
            location=generic.op.location,
            result_map=generic.maps[-1],
        )

    def _device_op(self, generic: Structured) -> ir.Value:
        formats = DEVICE_OPS[generic.opcode].formats if generic.opcode in DEVICE_OPS else ()
        # The device supports the operation only in 16 bits: it runs in f32, on the host, only if that is required.
        if FP32 not in formats and generic.opcode not in _ROOTS:
            element = "f32" if generic.result in self.required else "f16"
        elif any(value in self.unrounded for value in (*generic.inputs, generic.result)):
            element = "f32"
        else:
            element = self._common_element(generic.inputs)
        inputs = [self._value(value, element) for value in generic.inputs]
        result = rebuilt(generic, inputs, element=element)
        self.in_f32 += element == "f32"
        # Marked for the checks of a run: an f32 result beyond the fp16 range would be an infinity now, unless it is one
        # of the operands, or all its readers round it or treat such a number like an infinity.
        makers = [defining_op(value) for value in inputs]
        is_operand = selects(generic.opcode) and not any(
            _exceeds_f16(source, scales=False) or (maker is not None and sdsc.DEMOTED in maker.attributes)
            for source, maker in zip(generic.inputs, makers, strict=True)
        )
        if (
            element == "f16"
            and element_of(generic.result) == "f32"
            and not is_operand
            and not is_rounded_at_once(generic.result)
        ):
            readers = [sdsc.opcode_of(use.owner.operation) for use in generic.op.results[0].uses]
            if not all(opcode in ("exp", "tanh") for opcode in readers):
                maker_of(result).attributes[sdsc.DEMOTED] = ir.UnitAttr.get()
        return result

    def _common_element(self, values: Sequence[ir.Value]) -> str:
        """Return f32 if all values were computed in f32, else f16."""
        converted = [self.values[value] for value in values if value in self.values]
        return "f32" if converted and all(element_of(value) == "f32" for value in converted) else "f16"

    def _copy(self, op: ir.Operation) -> None:
        """Rebuild a view, an insertion, a pin or a restickify on f16 or on f32."""
        element = "f32" if op.results[0] in self.unrounded else self._common_element(list(op.operands))
        operands = [self._value(value, element) for value in op.operands]
        if op.name == "tensor.insert_slice":
            is_cast, owner = operands[1] in self.casts.values(), defining_op(operands[0])
            # The insertion must write its part last, into a buffer that no other reader uses.
            is_computed = owner is not None and owner.name in _COMPUTED
            if is_cast or not is_computed or sum(1 for _ in operands[0].uses) > 1:
                operands[0] = sdsc.clone(operands[0], op.location)
        copy = op.clone().operation
        type_ = ir.Type.parse(element)
        for index, operand in enumerate(operands):
            copy.operands[index] = operand
        copy.results[0].set_type(ir.RankedTensorType.get(shape_of(op.results[0]), type_))
        if stick.TO in op.attributes and element == "f16":
            # The sticks of f16 have more elements.
            try:
                copy.attributes[stick.TO] = stick.layout_attr(
                    with_element_type(stick.requested_layout(op), "f16")
                )
            except ValueError as error:
                why = f"this value is computed in fp16, which its layout does not support: {error}"
                raise error_at(op, why) from None
        for block in (block for region in copy.regions for block in region.blocks):
            for argument in block.arguments:
                argument.set_type(type_)
        self.in_f32 += element == "f32"
        self.values[op.results[0]] = copy.results[0]

    def _value(self, value: ir.Value, element: str) -> ir.Value:
        """Return the replacement of a value of the island, in the given element type."""
        replacement = self.values.get(value, value)
        result = self._cast(replacement, element)
        if (replacement, "f16") in self.casts and element == "f16":
            maker_of(result).attributes[sdsc.DEMOTED] = ir.UnitAttr.get()
        return result

    def _cast(self, value: ir.Value, element: str) -> ir.Value:
        if element_of(value) == element or element_of(value) not in ("f16", "f32"):
            return value
        # A constant is converted at compile time, without a device operation.
        if element == "f16" and _free(value):
            owner, type_ = maker_of(value), ir.RankedTensorType.get(shape_of(value), ir.F16Type.get())
            if owner.name == "tensor.empty":
                return empty(shape_of(value), ir.F16Type.get())
            attr = owner.attributes["value"]
            array = (
                np.array(attr) if not attr.is_splat else np.full(type_.shape, attr.get_splat_value().value)
            )
            array = np.ascontiguousarray(array.astype(np.float16))
            return constant(ir.DenseElementsAttr.get(array, type=type_))
        if (value, element) not in self.casts:
            opcode = cast_between(element_of(value), element)
            self.casts[value, element] = elementwise(opcode, value, element, ir.Location.current)
        return self.casts[value, element]


# Precision analysis: the f32 values of a function that must not be rounded to fp16 between two operations.
#
# An operation computes in f32 and rounds its result. That costs half a unit in the last place, which is harmless unless
#
# * the result leaves the range of fp16: powers of the inputs other than the first, sums of many of them;
# * a later operation subtracts it from a nearly equal value: a mean from the values that it is the mean of, or a sum of
# weights times values, where the weights were divided by their sum;
# * it is a partial sum, to which operations add more terms one by one;
# * another operand is a constant smaller than the smallest number that fp16 represents with all bits;
# * it may be so near to 0 that fp16 keeps few digits of it or none, and a logarithm, a root, a quotient or a large
# factor follows, which makes it large again.
#
# All of these conditions are derived from the graph (``value_ranges.py``).

#: The smallest constant of an operation that DL16 represents with all bits.
_SMALLEST_CONSTANT = 2.0**-30

_SCALINGS = ("mul", "realdiv")

#: Operations that turn a small error of an operand near 0 into a large error of the result.
_STEEP_AT_0 = ("log", "sqrt", "rsqrt", "reciprocal")

#: Operations that pass an absolute error of an operand on to the result, possibly scaled, towards an exponential.
_TRANSPARENT = frozenset(
    "add sub revsub mul where3 identity maximum minimum clip dl16tofp32 fp32todl16".split()
)


def unrounded(block: ir.Block, parameters: frozenset[int]) -> tuple[set[ir.Value], set[ir.Value]]:
    """Return the f32 values of a function's block that rounding would spoil, and the required values among them.

    Required values would lose all digits, so they must not be rounded even where the device computes only in 16 bits.
    ``parameters`` are indices of arguments.
    """
    analysis = _Rounding(block, parameters)
    for op in block.operations:
        analysis.visit(op.operation)
    analysis.unrounded |= analysis.required
    # In reverse order, because a view is kept if its readers are kept.
    for op in reversed([op.operation for op in block.operations]):
        analysis.keep_views(op)
    return analysis.unrounded, analysis.required


def feeding_exponentials(block: ir.Block) -> Iterator[ir.Operation]:
    """Yield the matmuls with a 16-bit result that reaches an exponential: a rounding error d changes it by exp(d).

    Sums, masks, scales and views may come between. A maximum that is subtracted does not count as another path.
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
    """Facts about the values of a block, collected in program order, and the values that must therefore stay f32."""

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
        """Derive the range of a result, and mark values that must stay f32: sums, small constants, large numbers."""
        inputs = [self.facts[value] for value in generic.inputs if value in self.facts]
        if len(inputs) < len(generic.inputs) or not inputs:
            self._source(generic.result, has_unit=True)
            return
        facts = after(generic, inputs)
        self.facts[generic.result] = facts
        # A cast does not round by itself, and a matmul always has a 16-bit result.
        if element_of(generic.result) != "f32" or generic.opcode in (*CASTS, *MATMULS):
            return
        leaves_range = not facts.fits_f16 and not is_rounded_at_once(generic.result)
        # fp16 would change a smaller constant noticeably, or make it 0.
        constants = sdsc.constants_of(generic.op).values()
        if leaves_range or any(0 < abs(number) < _SMALLEST_CONSTANT for number in constants):
            self.unrounded.add(generic.result)
        for value in generic.inputs:
            if not shape_of(value) and (number := _numbers_of(value)) is not None:
                size = np.abs(number)
                if np.any((size > 0) & (size < 2.0**SMALLEST)):
                    self.unrounded.add(generic.result)
        if generic.opcode in SUMS:
            self._sum(*generic.inputs[:2])
        vanishing = list(_vanishing_operands(generic, inputs))
        for value in vanishing:
            self._keep(value, self.required)
        if vanishing:
            self.required.add(generic.result)

    def _sum(self, first: ir.Value, second: ir.Value) -> None:
        """Keep the operands of a sum in f32 if their rounding errors would be large in comparison with the result."""
        first_facts, second_facts = self.facts[first], self.facts[second]
        correlated = first_facts.reduced & second_facts.sources or second_facts.reduced & first_facts.sources
        for value in (first, second):
            op = defining_op(value)
            if correlated:
                self._keep(value, self.unrounded)
            # A partial sum.
            elif op is not None and sdsc.opcode_of(op) in SUMS:
                self._keep(value, self.unrounded, history=False)

    def _keep(self, value: ir.Value, kept: set[ir.Value], history: bool = True) -> None:
        """Keep a value in f32; with ``history``, also the values that it depends on, up to values exact in fp16."""
        waiting = [value]
        while waiting:
            value = waiting.pop()
            op = defining_op(value)
            if value in kept or op is None or element_of(value) != "f32":
                continue
            if self.facts[value].exact:
                # fp16 represents the value exactly, but perhaps not the scale that it was computed with.
                if kept is self.unrounded:
                    self._keep_scale(value)
                continue
            kept.add(value)
            if history:
                waiting.extend(operand for operand in op.operands if operand in self.facts)

    def _keep_scale(self, value: ir.Value) -> None:
        """Keep a scale that many fp16 numbers share in f32, because they would all share its rounding error."""
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
        """Keep views and casts whose readers all run in f32: this needs one cast instead of one per reader."""
        if len(op.results) != 1 or element_of(op.results[0]) != "f32":
            return
        moves = sdsc.opcode_of(op) in (None, "dl16tofp32", "identity")
        if not moves or op.name in ("arith.constant", "tensor.empty", "linalg.fill"):
            return
        for use in op.results[0].uses:
            reader, opcode = use.owner.operation, sdsc.opcode_of(use.owner.operation)
            values = reader.results if opcode is None else (*reader.operands, *reader.results)
            if opcode in (*CASTS, *MATMULS) or not any(value in self.unrounded for value in values):
                return
        if not use_empty(op.results[0]):
            self.unrounded.add(op.results[0])


# -- questions about operations -----------------------------------------------------------------------


def is_rounded_at_once(value: ir.Value) -> bool:
    """Return whether every reader in the program rounds a value to fp16."""
    return all(sdsc.opcode_of(use.owner.operation) == "fp32todl16" for use in value.uses)


def _vanishing_operands(generic: Structured, inputs: Sequence[ValueFacts]) -> Iterator[ir.Value]:
    """Yield the operands near 0 whose digits fp16 would lose, if the operation makes that error large."""
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
