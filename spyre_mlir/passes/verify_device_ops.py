# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks the level *device ops*."""

from __future__ import annotations

from typing import ClassVar

from spyre_mlir.analysis.aliasing import COPIES, all_ops, functions, is_compute
from spyre_mlir.analysis.body_meaning import check_meaning
from spyre_mlir.analysis.loops import LOOP, trip_count
from spyre_mlir.analysis.view_ops import VIEWS
from spyre_mlir.diagnostics import error_at
from spyre_mlir.dialects import sdsc
from spyre_mlir.dialects.indices import INDEX_ARGUMENT
from spyre_mlir.dialects.structured import (
    Structured,
    defining_op,
    element_of,
    shape_of,
    structured,
    use_empty,
)
from spyre_mlir.mlir import ir
from spyre_mlir.passes.base import Pass
from spyre_mlir.records import dataclass
from spyre_mlir.target.element_types import DATA_FORMATS
from spyre_mlir.target.expressions import SCALARS
from spyre_mlir.target.ops import DEVICE_OPS, INT32

_OTHERS = {
    "sdsc.clone", "sdsc.windows", "stick.restickify", "stick.pin", "tensor.empty", "tensor.expand_shape",
    "tensor.collapse_shape", "tensor.extract_slice", "tensor.insert_slice", "linalg.transpose", "linalg.fill",
    "arith.constant", "func.return", "func.call", "scf.for", "scf.yield", INDEX_ARGUMENT,
}  # fmt: skip
#: What the offsets of slices in loops are made of.
_INDICES = {"affine.apply", "arith.addi", "arith.subi", "arith.muli"}


@dataclass(frozen=True)
class VerifyDeviceOps(Pass):
    """Check that every compute op is one device operation in a format that it has; all else only moves or names data.

    Held from level *device ops* to *placed*: operation known, number of operands, formats of operands and
    result, constants, reduced dims for reductions and none for others, element types of the device.

    With ``meaning`` it checks what passes keep and IR from elsewhere may not: the body of an op computes its operation,
    a reduction begins with its neutral number, what is read is written, what is inserted is read, and loops run. With
    ``relayouts`` there may be shuffles, which level *divided* has.
    """

    name: ClassVar[str] = "verify-device-ops"
    meaning: bool = False
    relayouts: bool = False

    def run(self, module: ir.Operation) -> None:
        for func in functions(module):
            verify_device_ops(func, meaning=self.meaning, relayouts=self.relayouts)


def verify_device_ops(func: ir.Operation, *, meaning: bool, relayouts: bool = False) -> None:
    """Check one function; ``CompileError`` at the first operation that breaks the level."""
    others = _OTHERS | {"sdsc.shuffle"} if relayouts else _OTHERS
    for op in all_ops(func):
        if op.name == "linalg.generic":
            generic = _check_device_op(op)
            if meaning:
                check_meaning(generic)
        elif op.name not in others and not _is_index(op):
            raise error_at(op, f"'{op.name}' does not belong to the level of device operations")
        elif sdsc.OP in op.attributes:
            raise error_at(op, f"'{op.name}' cannot be a device operation; '{sdsc.OP}' is for linalg.generic")
        # Passes keep bodies in step with sdsc.op; IR from elsewhere can have any body.
        if meaning:
            _check_entered(op)
        _check_elements(op)


def _is_index(op: ir.Operation) -> bool:
    return op.name in _INDICES and isinstance(op.results[0].type, ir.IndexType)


def _check_entered(op: ir.Operation) -> None:
    """Check that reads are written, insertions read and loops run: passes leave nothing else, others may."""
    if op.name == LOOP and not trip_count(op):
        raise error_at(op, "this loop never runs")
    if op.name == "tensor.insert_slice" and use_empty(op.results[0]):
        raise error_at(op, "nobody reads the tensor with this part in it")
    if is_compute(op):
        _check_written(op)


def _check_written(op: ir.Operation) -> None:
    """Refuse an operand that no operation writes: an empty buffer has no numbers."""
    for number, value in enumerate(op.operands if op.name in COPIES else list(op.operands)[:-1]):
        source = defining_op(value)
        while source is not None and source.name in VIEWS:
            source = defining_op(source.operands[0])
        if source is not None and source.name == "tensor.empty":
            raise error_at(op, f"operand {number} is a tensor that nothing is written to")


def _check_elements(op: ir.Operation) -> None:
    for value in op.results:
        if isinstance(value.type, ir.RankedTensorType) and element_of(value) not in DATA_FORMATS:
            raise error_at(op, f"element type {element_of(value)} has no form on the device")


def _check_device_op(op: ir.Operation) -> Structured:
    generic = structured(op)
    opcode = sdsc.opcode_of(op)
    if generic is None or opcode is None:
        raise error_at(op, "this linalg.generic does not say which device operation it does (sdsc.op)")
    if opcode not in DEVICE_OPS:
        known = (
            "the fused operations that use it were not recognised here"
            if opcode in SCALARS
            else "it is unknown"
        )
        raise error_at(op, f"'{opcode}' is no device operation; {known}")
    for number, (value, dims) in enumerate(zip((*generic.inputs, generic.result), generic.maps, strict=True)):
        # A map that skips a larger dim would leave elements unread, which no design can say.
        if any(dim is None and size != 1 for dim, size in zip(dims, shape_of(value), strict=True)):
            raise error_at(op, f"operand {number} of '{opcode}' is larger than what its map reads of it")
    described = DEVICE_OPS[opcode]
    if len(generic.inputs) != described.arity:
        raise error_at(op, f"'{opcode}' takes {described.arity} operands, not {len(generic.inputs)}")
    if described.kind.reduces != bool(generic.reduced):
        raise error_at(
            op, f"'{opcode}' is a {described.kind.value}, but reduces the dims {list(generic.reduced)}"
        )
    missing = set(described.constants) - set(sdsc.constants_of(op))
    if missing:
        raise error_at(op, f"'{opcode}' needs the constants {sorted(missing)}")
    _check_formats(op, opcode, [element_of(value) for value in generic.inputs], element_of(generic.result))
    return generic


def _element(data_format: str) -> str:
    """Name of a format of the device by the element type that programs have for it: ``f16 (SEN169_FP16)``."""
    element = next(name for name, known in DATA_FORMATS.items() if known == data_format)
    return f"{element} ({data_format})"


def _check_formats(op: ir.Operation, opcode: str, inputs: list[str], result: str) -> None:
    described = DEVICE_OPS[opcode]
    if described.index is not None and DATA_FORMATS[inputs[described.index]] != INT32:
        raise error_at(op, f"'{opcode}' takes its positions as i32, not as {inputs[described.index]}")
    data = [element for number, element in enumerate(inputs) if number != described.index]
    if len(set(data)) > 1:
        raise error_at(op, f"'{opcode}' takes operands of one format, not {inputs}")
    data_format = DATA_FORMATS[data[0]]
    if data_format not in described.formats:
        raise error_at(
            op, f"'{opcode}' runs on {' or '.join(map(_element, described.formats))}, not on {data[0]}"
        )
    if DATA_FORMATS[result] != described.result_format(data_format):
        raise error_at(op, f"'{opcode}' gives {_element(described.result_format(data_format))}, not {result}")
