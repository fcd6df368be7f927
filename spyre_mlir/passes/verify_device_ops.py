# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks the level *device ops*."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from spyre_mlir.analysis.aliasing import COPIES, all_ops, is_compute
from spyre_mlir.analysis.loops import LOOP, terminator, trip_count
from spyre_mlir.analysis.view_ops import VIEWS
from spyre_mlir.diagnostics import error_at
from spyre_mlir.dialects import sdsc
from spyre_mlir.dialects.indices import INDEX_ARGUMENT
from spyre_mlir.dialects.structured import (
    Body,
    Structured,
    defining_op,
    element_of,
    shape_of,
    structured,
    use_empty,
)
from spyre_mlir.errors import CompileError
from spyre_mlir.mlir import ir
from spyre_mlir.passes.base import Pass
from spyre_mlir.records import dataclass
from spyre_mlir.target.element_types import DATA_FORMATS
from spyre_mlir.target.expressions import SCALARS, agree, points
from spyre_mlir.target.ops import DEVICE_OPS, INT32, NEUTRAL, is_extreme

_OTHERS = {
    "sdsc.clone", "sdsc.windows", "stick.restickify", "stick.pin", "tensor.empty", "tensor.expand_shape",
    "tensor.collapse_shape", "tensor.extract_slice", "tensor.insert_slice", "linalg.transpose", "linalg.fill",
    "arith.constant", "func.return", "func.call", "scf.for", "scf.yield", INDEX_ARGUMENT,
}  # fmt: skip
#: Operations that compute the offsets of slices in loops.
_INDICES = {"affine.apply", "arith.addi", "arith.subi", "arith.muli"}


@dataclass(frozen=True)
class VerifyDeviceOps(Pass):
    """Check that each compute op is one device operation in a supported format; other ops only move or name data.

    These properties hold from level *device ops* to *placed*: known operation, number of operands, formats of operands
    and result, constants, reduced dims for reductions and none for other operations, element types of the device.

    With ``meaning`` the pass also checks properties that passes preserve but other IR may violate: the body of an op
    computes its operation, a reduction begins with its neutral number, operands are written, insertions are read, and
    loops run. With ``relayouts`` there may be shuffles, which exist from level *divided* on.
    """

    name: ClassVar[str] = "verify-device-ops"
    meaning: bool = False
    relayouts: bool = False

    def run_on(self, func: ir.Operation) -> None:
        verify_device_ops(func, meaning=self.meaning, relayouts=self.relayouts)


def verify_device_ops(func: ir.Operation, *, meaning: bool, relayouts: bool = False) -> None:
    """Check one function; ``CompileError`` at the first operation that breaks the level."""
    others = _OTHERS | {"sdsc.shuffle"} if relayouts else _OTHERS
    for op in all_ops(func):
        is_index = op.name in _INDICES and isinstance(op.results[0].type, ir.IndexType)
        if op.name == "linalg.generic":
            generic = _check_device_op(op)
            # Passes keep bodies consistent with sdsc.op; IR from elsewhere can have any body.
            if meaning:
                check_meaning(generic)
        elif op.name not in others and not is_index:
            raise error_at(op, f"'{op.name}' does not belong to the level of device operations")
        elif sdsc.OP in op.attributes:
            raise error_at(op, f"'{op.name}' cannot be a device operation; '{sdsc.OP}' is for linalg.generic")
        if meaning and op.name == LOOP and not trip_count(op):
            raise error_at(op, "this loop never runs")
        if meaning and op.name == "tensor.insert_slice" and use_empty(op.results[0]):
            raise error_at(op, "no operation reads the tensor that contains this part")
        read = list(op.operands) if op.name in COPIES else list(op.operands)[:-1]
        for number, value in enumerate(read if meaning and is_compute(op) else ()):
            source = defining_op(value)
            while source is not None and source.name in VIEWS:
                source = defining_op(source.operands[0])
            # An empty buffer is uninitialized.
            if source is not None and source.name == "tensor.empty":
                raise error_at(op, f"operand {number} is an uninitialized tensor")
        for value in op.results:
            if isinstance(value.type, ir.RankedTensorType) and element_of(value) not in DATA_FORMATS:
                raise error_at(op, f"element type {element_of(value)} is not supported by the device")


def _check_device_op(op: ir.Operation) -> Structured:
    """Return the structured form of an op; ``CompileError`` unless a design can express the operation."""
    generic = structured(op)
    opcode = sdsc.opcode_of(op)
    if generic is None or opcode is None:
        raise error_at(op, "this linalg.generic has no device operation (sdsc.op)")
    if opcode not in DEVICE_OPS:
        unfused = "the fused operations that use it were not recognised here"
        known = unfused if opcode in SCALARS else "it is unknown"
        raise error_at(op, f"'{opcode}' is not a device operation; {known}")
    for number, (value, dims) in enumerate(zip((*generic.inputs, generic.result), generic.maps, strict=True)):
        # A map that skips a dim larger than 1 would leave elements unread, which a design cannot express.
        if any(dim is None and size != 1 for dim, size in zip(dims, shape_of(value), strict=True)):
            raise error_at(op, f"operand {number} of '{opcode}' is larger than what its map reads of it")
    described = DEVICE_OPS[opcode]
    if len(generic.inputs) != described.arity:
        raise error_at(op, f"'{opcode}' takes {described.arity} operands, not {len(generic.inputs)}")
    if described.kind.reduces != bool(generic.reduced):
        reduced = list(generic.reduced)
        raise error_at(op, f"'{opcode}' is a {described.kind.value}, but reduces the dims {reduced}")
    missing = set(described.constants) - set(sdsc.constants_of(op))
    if missing:
        raise error_at(op, f"'{opcode}' needs the constants {sorted(missing)}")
    inputs, result = [element_of(value) for value in generic.inputs], element_of(generic.result)
    if described.index is not None and DATA_FORMATS[inputs[described.index]] != INT32:
        raise error_at(op, f"'{opcode}' takes i32 positions, not {inputs[described.index]}")
    data = [element for number, element in enumerate(inputs) if number != described.index]
    if len(set(data)) > 1:
        raise error_at(op, f"'{opcode}' takes operands of one format, not {inputs}")
    data_format = DATA_FORMATS[data[0]]
    if data_format not in described.formats:
        formats = " or ".join(map(_format_text, described.formats))
        raise error_at(op, f"'{opcode}' runs on {formats}, not on {data[0]}")
    expected = described.result_format(data_format)
    if DATA_FORMATS[result] != expected:
        raise error_at(op, f"'{opcode}' gives {_format_text(expected)}, not {result}")
    return generic


def _format_text(data_format: str) -> str:
    """Return the name of a device format with its element type in programs: ``f16 (SEN169_FP16)``."""
    element = next(name for name, known in DATA_FORMATS.items() if known == data_format)
    return f"{element} ({data_format})"


# Check that the body of an op computes the device operation that it names. Both are evaluated at a few points,
# including NaN, infinities, a negative zero, subnormal numbers and the largest numbers.
#
# The device runs ``sdsc.op``, and the CPU runs the body. Passes write both; IR from elsewhere may be inconsistent.

#: Numbers at least this large represent the infinity that a maximum or minimum begins with.
_LARGE = 65504.0


def check_meaning(generic: Structured) -> None:
    """Raise ``CompileError`` if the body or the initial value of an op does not match its device operation."""
    op, opcode, block = generic.op, generic.opcode, generic.body
    arguments = tuple(str(argument.type) for argument in block.arguments)
    constants = tuple(sorted(sdsc.constants_of(op).items()))
    try:
        expected = _expected(opcode, arguments, constants, len(generic.iterators), op.context)
    except KeyError as missing:
        raise error_at(op, f"'{opcode}' needs the constant {missing}") from None
    if not agree(_values(block), expected, has_signed_zeros=not is_extreme(DEVICE_OPS[opcode])):
        raise error_at(op, f"the body does not compute '{opcode}', which is its device operation")
    # Without a reduction no element of the initial value remains, so any initial value is allowed.
    if opcode not in NEUTRAL or not generic.reduced:
        return
    neutral, fill = NEUTRAL[opcode], defining_op(generic.output)
    source = defining_op(fill.operands[0]) if fill is not None and fill.name == "linalg.fill" else None
    begin = None
    if source is not None and source.name == "arith.constant":
        begin = float(source.attributes["value"].value)
        is_infinite = math.isinf(neutral) and abs(begin) >= _LARGE and (begin > 0) == (neutral > 0)
        if begin == neutral or is_infinite:
            return
    shown = "no constant" if begin is None else f"{begin}"
    raise error_at(op, f"'{opcode}' begins with {neutral}, but its result is filled with {shown}")


@functools.lru_cache(maxsize=256)
def _expected(
    opcode: str,
    arguments: tuple[str, ...],
    constants: tuple[tuple[str, float], ...],
    rank: int,
    context: ir.Context,
) -> NDArray[np.float64]:
    """Return the values of the body that the operation has according to ``DEVICE_OPS``."""
    with context, ir.Location.unknown():
        types = [ir.Type.parse(text) for text in arguments]
        holder = ir.Operation.create("scf.execute_region", regions=1)
        block = ir.Block.create_at_start(holder.regions[0], types)
        with ir.InsertionPoint(block):
            value = Body(types[-1], dict(constants), rank).build(opcode, list(block.arguments))
            ir.Operation.create("scf.yield", operands=[value])
    return _values(block)


def _values(block: ir.Block) -> NDArray[np.float64]:
    """Return the numbers that a body yields at ``points``; NaN where it is not defined."""
    numbers = points(max(len(block.arguments), 2))
    known: dict[ir.Value, NDArray[np.float64]] = {}
    for argument, values in zip(block.arguments, numbers, strict=False):
        if isinstance(argument.type, ir.IntegerType):
            # 4 times the ordinary numbers, which have at most 2 fractional bits.
            values = np.trunc(np.nan_to_num(values.clip(-30, 30)) * 4) + 0.0
        known[argument] = values
    # A gather selects the row whose index is the first operand. This index exercises both branches of its body.
    known_index = np.where(numbers[0] > 0, known[block.arguments[0]], -1.0)

    def value_of(value: ir.Value) -> NDArray[np.float64]:
        if value not in known:
            op = defining_op(value)
            if op is None or op.name != "arith.constant":
                raise CompileError("a body uses a value from outside that is not a constant")
            known[value] = np.asarray(op.attributes["value"].value, np.float64)
        return known[value]

    for op in (item.operation for item in block.operations):
        if op == terminator(block):
            return value_of(op.operands[0])
        if op.name == "linalg.index":
            known[op.results[0]] = known_index
        elif op.name in ("arith.cmpf", "arith.cmpi"):
            table = _FLOAT_PREDICATES if op.name == "arith.cmpf" else _INTEGER_PREDICATES
            compare = table.get(ir.IntegerAttr(op.attributes["predicate"]).value)
            operands = [value_of(operand) for operand in op.operands]
            known[op.results[0]] = np.asarray(math.nan if compare is None else compare(*operands), np.float64)
        elif op.name != "arith.constant":
            operands = [value_of(operand) for operand in op.operands]
            if op.name not in _SCALARS:
                raise error_at(op, f"'{op.name}' is not in the body of a device operation")
            # Some points are outside the domain of a logarithm or a root, where both bodies yield NaN.
            with np.errstate(all="ignore"):
                known[op.results[0]] = np.asarray(_SCALARS[op.name](*operands), np.float64)
    return np.full_like(known_index, math.nan)


def _is_unordered(x: Any, y: Any) -> Any:
    return np.isnan(x) | np.isnan(y)


_ORDERED: dict[int, Callable[..., Any]] = {
    1: np.equal, 2: np.greater, 3: np.greater_equal, 4: np.less, 5: np.less_equal,
    6: lambda x, y: np.less(x, y) | np.greater(x, y), 7: lambda x, y: ~_is_unordered(x, y),
}  # fmt: skip

#: Keyed by the predicate numbers of ``arith.cmpf``: ordered predicates are false for NaN, unordered ones are true.
_FLOAT_PREDICATES: dict[int, Callable[..., Any]] = {
    **_ORDERED,
    **{
        number + 7: lambda x, y, compare=compare: compare(x, y) | _is_unordered(x, y)
        for number, compare in _ORDERED.items()
        if number < 7
    },
    14: _is_unordered,
}
_INTEGER_PREDICATES: dict[int, Callable[..., Any]] = {0: np.equal, 1: np.not_equal}

_SCALARS: dict[str, Callable[..., Any]] = {
    **{scalar.integer_op or scalar.op: scalar.compute for scalar in SCALARS.values()},
    **{scalar.op: scalar.compute for scalar in SCALARS.values() if scalar.predicate is None},
    **dict.fromkeys(("arith.sitofp", "arith.uitofp", "arith.extsi", "arith.index_cast"), lambda x: x),
}
