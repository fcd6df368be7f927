"""Decides which f32 values stay f32 on the device."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from spyre_mlir.dialects import sdsc, stick
from spyre_mlir.dialects.structured import (
    Structured,
    defining_op,
    device_op,
    element_of,
    maker_of,
    shape_of,
    structured,
)
from spyre_mlir.errors import CompileError
from spyre_mlir.layout.requests import with_element_type
from spyre_mlir.mlir import ir
from spyre_mlir.passes._quantized import ONE_BYTE, is_integer_sum
from spyre_mlir.passes._terms import buffer_of, fail
from spyre_mlir.passes.base import Pass

_LARGEST_F16 = 65504.0

#: Reductions whose partial results differ from rounded ones.
_ROUNDING = ("sum", "sumnonstick", "mean", "meannonstick", "prod")


@dataclass(frozen=True)
class ApplyPrecision(Pass):
    """Fold the f32 islands of an fp16 program back to f16, or keep them.

    The importer computes softmax, norms and matmul in f32 between an extf and a truncf; the device
    accumulates in higher precision by itself. An island is a set of f32 values connected by ops. Partial
    results of one reduction in two operations are never rounded: they stay f32 between casts.

    ``policy=device``: an island that begins in fp16 and constants and ends in fp16 becomes fp16; one that
    touches an argument, a result, an integer (also by floor), a sum of integers or a constant beyond fp16 stays f32.
    ``policy=strict``: islands stay f32; only a matmul rounded at once to fp16 is one device operation,
    whose accumulation is the island's.
    """

    name: ClassVar[str] = "apply-precision"
    policy: str = "device"

    def run(self, module: ir.Operation) -> None:
        if self.policy not in ("device", "strict"):
            raise CompileError(f"Precision policy '{self.policy}' is not known; 'device' and 'strict' are.")
        for op in list(module.regions[0].blocks[0].operations):
            if op.operation.name == "func.func" and op.operation.regions[0].blocks:
                self._function(op.operation)

    def _function(self, func: ir.Operation) -> None:
        block = func.regions[0].blocks[0]
        islands = Islands(block)
        folded = islands.rounded_matmuls() if self.policy == "strict" else islands.inner()
        if folded:
            self.remark(func, "precision", f"{len(folded)} f32 values between fp16 values run as fp16")
            _Demotion(block, folded).run()
            _separate_results(list(block.operations)[-1].operation)


def _separate_results(terminator: ir.Operation) -> None:
    """Clones results whose own buffers were those of casts that have become nothing."""
    taken: set[ir.Value] = set()
    for index, value in enumerate(terminator.operands):
        root = buffer_of(value)
        owner = defining_op(root) if root is not None else None
        if owner is None or owner.name == "arith.constant" or root in taken:
            with ir.InsertionPoint(terminator):
                terminator.operands[index] = root = sdsc.clone(value, terminator.location)
        taken.add(root)


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
            self.parent[value] = self.parent[self.parent[value]]
            value = self.parent[value]
        return value

    def _visit(self, op: ir.Operation) -> None:
        opcode = sdsc.opcode_of(op)
        if op.name in ("tensor.empty", "linalg.fill", "arith.constant") and opcode is None:
            return  # made anew for whoever uses them
        values = [
            value for value in (*_read(op), *op.results) if element_of(value) == "f32" and not _free(value)
        ]
        for value in values:
            self._add(value)
        if opcode in ("batchmatmul", "batchmatmulfp8"):
            self.matmuls.append(op)
        if opcode in _ROUNDING and sdsc.opcode_of(_producer(op)) in _ROUNDING and values:
            self.partial.add(op.operands[0])
        if any(_exceeds_f16(value) for value in op.operands):
            self.bound.update(values)
        if opcode == "dl16tofp32" and is_integer_sum(defining_op(op.operands[0])):
            self.bound.update(values)  # the scale of a sum may be smaller than fp16 has numbers
        if op.name == "func.return" or opcode in ("fp32toint32", "int32tofp32", "floor"):
            self.bound.update(
                values
            )  # of floor too: rounded to an integer before, its result would be off by one
        elif opcode not in ("dl16tofp32", "fp32todl16"):
            for value in values[1:]:
                self.parent[self.find(value)] = self.find(values[0])

    def inner(self) -> set[ir.Value]:
        """The values of all islands that no bound value belongs to."""
        outer = {self.find(value) for value in self.bound}
        return {value for value in self.order if self.find(value) not in outer} - self.partial

    def rounded_matmuls(self) -> set[ir.Value]:
        """Results of matmuls that are only ever rounded to fp16."""
        results = [op.results[0] for op in self.matmuls if element_of(op.results[0]) == "f32"]
        return {
            value
            for value in results
            if all(sdsc.opcode_of(use.owner.operation) == "fp32todl16" for use in value.uses)
        }


def _exceeds_f16(value: ir.Value) -> bool:
    """Whether a value is a constant with a finite number that fp16 cannot hold."""
    owner = defining_op(value)
    if owner is None or owner.name != "arith.constant" or element_of(value) != "f32":
        return False
    attr = owner.attributes["value"]
    number = np.array(attr) if isinstance(attr, ir.DenseElementsAttr) and not attr.is_splat else _splat(attr)
    return bool(np.any(np.isfinite(number) & (np.abs(number) > _LARGEST_F16)))


def _splat(attr: ir.Attribute) -> np.ndarray:
    value = attr.get_splat_value() if isinstance(attr, ir.DenseElementsAttr) else attr
    return np.array(ir.FloatAttr(value).value)


def _producer(op: ir.Operation) -> ir.Operation:
    """The op that makes the first operand; the op itself for an argument."""
    return defining_op(op.operands[0]) or op


def _read(op: ir.Operation) -> list[ir.Value]:
    """What an op reads: not its destination."""
    operands = list(op.operands)
    return operands[:-1] if op.name in ("linalg.generic", "linalg.transpose") else operands


def _free(value: ir.Value) -> bool:
    """Constants and empty tensors can be had in any type."""
    owner = defining_op(value)
    return owner is not None and owner.name in ("arith.constant", "tensor.empty")


def _is_alone(value: ir.Value) -> bool:
    """Whether an op made this value for one reader: only then may it be written in that reader's buffer."""
    owner = defining_op(value)
    made = owner is not None and owner.name in ("linalg.generic", "sdsc.clone", "tensor.insert_slice")
    return made and sum(1 for _ in value.uses) <= 1


def _sticks_of_f16(op: ir.Operation) -> stick.LayoutAttr:
    """The layout that an op on f32 asks for, with the longer sticks of f16."""
    try:
        return stick.layout_attr(with_element_type(stick.requested_layout(op), "f16"))
    except ValueError as error:
        raise fail(op, f"this value runs as fp16, and its layout has no such form: {error}") from None


class _Demotion:
    """Rebuilds the ops of folded values in f16; casts at the rim become nothing."""

    def __init__(self, block: ir.Block, folded: set[ir.Value]) -> None:
        self.block = block
        self.folded = folded
        self.values: dict[ir.Value, ir.Value] = {}
        self.dead: list[ir.Operation] = []

    def run(self) -> None:
        for op in [op.operation for op in self.block.operations]:
            touched = any(value in self.folded for value in (*op.operands, *op.results))
            if touched:
                with ir.InsertionPoint(op), op.location:
                    self._rebuild(op)
                self.dead.append(op)
            else:
                self._rename(op)
        for op in reversed(self.dead):
            op.erase()

    def _rename(self, op: ir.Operation) -> None:
        for index, operand in enumerate(op.operands):
            if operand in self.values:
                op.operands[index] = self.values[operand]

    def _rebuild(self, op: ir.Operation) -> None:
        generic = structured(op)
        if generic is not None and generic.opcode in ("dl16tofp32", "fp32todl16"):
            self.values[op.results[0]] = self._uncast(generic)
        elif generic is not None:
            self.values[op.results[0]] = self._device_op(op, generic)
        else:
            self._copy(op)

    def _uncast(self, generic: Structured) -> ir.Value:
        """What a cast at the rim of an island becomes: its operand, copied if the cast also moved dims."""
        value = self._value(generic.inputs[0])
        if generic.maps[0] == generic.maps[-1]:
            return value
        return device_op(
            "identity",
            [value],
            generic.maps[:1],
            generic.extents,
            element_of(value),
            location=generic.op.location,
            result_map=generic.maps[-1],
        )

    def _device_op(self, op: ir.Operation, generic: Structured) -> ir.Value:
        """In f16, or in f32 between casts if it makes or takes a partial result."""
        inputs = [self._value(value) for value in generic.inputs]
        partial = generic.result not in self.folded or any(element_of(value) == "f32" for value in inputs)
        element = "f32" if partial else "f16"
        made = device_op(
            generic.opcode or "",
            [self._cast(value, element) for value in inputs],
            generic.maps[:-1],
            generic.extents,
            element,
            location=op.location,
            reduced=generic.reduced,
            result_map=generic.maps[-1],
            constants=sdsc.constants_of(op),
        )
        sdsc.inherit(maker_of(made), op)
        return self._cast(made, "f16" if generic.result in self.folded else "f32")

    def _cast(self, value: ir.Value, element: str) -> ir.Value:
        if element_of(value) in (element, *ONE_BYTE):
            return value
        shape = shape_of(value)
        dims = tuple(range(len(shape)))
        opcode = "dl16tofp32" if element == "f32" else "fp32todl16"
        return device_op(opcode, [value], [dims], shape, element, location=ir.Location.current)

    def _copy(self, op: ir.Operation) -> None:
        """A view, an insertion, a pin or a restickify: the same op on f16."""
        operands = [self._value(value) for value in op.operands]
        if op.name == "tensor.insert_slice" and not _is_alone(operands[0]):
            operands[0] = sdsc.clone(operands[0], op.location)  # the cast that made this part became nothing
        copy = op.clone().operation
        f16 = ir.F16Type.get()
        for index, operand in enumerate(operands):
            copy.operands[index] = operand
        copy.results[0].set_type(ir.RankedTensorType.get(shape_of(op.results[0]), f16))
        if stick.TO in op.attributes:
            copy.attributes[stick.TO] = _sticks_of_f16(op)
        for block in (block for region in copy.regions for block in region.blocks):
            for argument in block.arguments:
                argument.set_type(f16)
        self.values[op.results[0]] = copy.results[0]

    def _value(self, value: ir.Value) -> ir.Value:
        if value in self.values:
            return self.values[value]
        if element_of(value) != "f32":
            return value
        return self._free_value(value)

    def _free_value(self, value: ir.Value) -> ir.Value:
        owner = defining_op(value)
        assert owner is not None
        type_ = ir.RankedTensorType.get(shape_of(value), ir.F16Type.get())
        if owner.name == "tensor.empty":
            return ir.Operation.create("tensor.empty", results=[type_]).result
        attr = owner.attributes["value"]
        number = (
            np.array(attr) if not attr.is_splat else np.full(shape_of(value), attr.get_splat_value().value)
        )
        dense = ir.DenseElementsAttr.get(np.ascontiguousarray(number.astype(np.float16)), type=type_)
        return ir.Operation.create("arith.constant", results=[type_], attributes={"value": dense}).result
