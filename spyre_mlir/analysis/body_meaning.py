# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Check that the body of an op computes the device operation that it names: both are evaluated at a few points,
NaN, infinities, a negative zero, subnormal and largest numbers among them.

The device runs what ``sdsc.op`` says and the CPU what the body says. Passes write both; IR from elsewhere may differ.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spyre_mlir.analysis.loops import terminator
from spyre_mlir.diagnostics import error_at
from spyre_mlir.dialects import sdsc
from spyre_mlir.dialects.structured import Body, Structured, defining_op
from spyre_mlir.errors import CompileError
from spyre_mlir.mlir import ir
from spyre_mlir.target.expressions import SCALARS, agree, points
from spyre_mlir.target.ops import DEVICE_OPS, NEUTRAL, is_extreme

#: Numbers at least this large stand for the infinity that a maximum or minimum begins with.
_LARGE = 65504.0


def check_meaning(generic: Structured) -> None:
    """Raise ``CompileError`` where the body of an op, or what it begins with, is not that of its device operation."""
    opcode, block = generic.opcode, generic.body
    arguments = tuple(str(argument.type) for argument in block.arguments)
    constants = tuple(sorted(sdsc.constants_of(generic.op).items()))
    try:
        expected = _expected(opcode, arguments, constants, len(generic.iterators), generic.op.context)
    except KeyError as missing:
        raise error_at(generic.op, f"'{opcode}' needs the constant {missing}") from None
    if not agree(_values(block), expected, has_signed_zeros=not is_extreme(DEVICE_OPS[opcode])):
        raise error_at(
            generic.op, f"the body does not compute '{opcode}', which is what the device does here"
        )
    # Without a reduction no element of the initial value remains, so that it may be anything.
    begin = _initial(generic)
    if opcode in NEUTRAL and generic.reduced and not _is_neutral(begin, NEUTRAL[opcode]):
        shown = "no constant" if begin is None else f"{begin}"
        raise error_at(
            generic.op, f"'{opcode}' begins with {NEUTRAL[opcode]}, but its result is filled with {shown}"
        )


def _initial(generic: Structured) -> float | None:
    """The number that the result of an op is filled with at first; None if that is no constant."""
    fill = defining_op(generic.output)
    constant = defining_op(fill.operands[0]) if fill is not None and fill.name == "linalg.fill" else None
    if constant is None or constant.name != "arith.constant":
        return None
    return float(constant.attributes["value"].value)


def _is_neutral(number: float | None, neutral: float) -> bool:
    if number is None or number == neutral:
        return number is not None
    return math.isinf(neutral) and abs(number) >= _LARGE and (number > 0) == (neutral > 0)


@functools.lru_cache(maxsize=256)
def _expected(
    opcode: str,
    arguments: tuple[str, ...],
    constants: tuple[tuple[str, float], ...],
    rank: int,
    context: ir.Context,
) -> NDArray[np.float64]:
    """The values of the body that an operation has by the table."""
    with context, ir.Location.unknown():
        types = [ir.Type.parse(text) for text in arguments]
        holder = ir.Operation.create("scf.execute_region", regions=1)
        block = ir.Block.create_at_start(holder.regions[0], types)
        with ir.InsertionPoint(block):
            value = Body(types[-1], dict(constants), rank).build(opcode, list(block.arguments))
            ir.Operation.create("scf.yield", operands=[value])
    return _values(block)


def _values(block: ir.Block) -> NDArray[np.float64]:
    """The numbers that a body yields at ``points``; NaN where it is not defined."""
    numbers = points(max(len(block.arguments), 2))
    known: dict[ir.Value, NDArray[np.float64]] = {}
    for argument, values in zip(block.arguments, numbers, strict=False):
        known[argument] = _integers(values) if isinstance(argument.type, ir.IntegerType) else values
    # A gather selects the row whose index is the first operand: only with that index both of its branches are seen.
    known_index = np.where(numbers[0] > 0, known[block.arguments[0]], -1.0)

    def value_of(value: ir.Value) -> NDArray[np.float64]:
        if value not in known:
            op = defining_op(value)
            if op is None or op.name != "arith.constant":
                raise CompileError("a body takes what is not in it and no constant")
            known[value] = np.asarray(op.attributes["value"].value, np.float64)
        return known[value]

    for op in (item.operation for item in block.operations):
        if op == terminator(block):
            return value_of(op.operands[0])
        if op.name == "linalg.index":
            known[op.results[0]] = known_index
        elif op.name != "arith.constant":
            known[op.results[0]] = _scalar(op, [value_of(operand) for operand in op.operands])
    return np.full_like(known_index, math.nan)


def _integers(numbers: NDArray[np.float64]) -> NDArray[np.float64]:
    """Integers in the place of numbers: 4 times the ordinary ones, which have no more than 2 bits after the point."""
    return np.trunc(np.nan_to_num(numbers.clip(-30, 30)) * 4) + 0.0


def _scalar(op: ir.Operation, operands: Sequence[Any]) -> NDArray[np.float64]:
    if op.name in ("arith.cmpf", "arith.cmpi"):
        table = _FLOAT_PREDICATES if op.name == "arith.cmpf" else _INTEGER_PREDICATES
        compare = table.get(ir.IntegerAttr(op.attributes["predicate"]).value)
        return np.asarray(math.nan) if compare is None else np.asarray(compare(*operands), np.float64)
    if op.name not in _SCALARS:
        raise error_at(op, f"'{op.name}' is in no body of a device operation")
    # Some points are outside of the domain of a logarithm or a root: both bodies yield NaN there.
    with np.errstate(all="ignore"):
        return np.asarray(_SCALARS[op.name](*operands), np.float64)


def _is_unordered(x: Any, y: Any) -> Any:
    return np.isnan(x) | np.isnan(y)


_ORDERED: dict[int, Callable[..., Any]] = {
    1: np.equal, 2: np.greater, 3: np.greater_equal, 4: np.less, 5: np.less_equal,
    6: lambda x, y: np.less(x, y) | np.greater(x, y), 7: lambda x, y: ~_is_unordered(x, y),
}  # fmt: skip

#: By the numbers of ``arith.cmpf``: ordered predicates are false for NaN, and unordered ones true.
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
