# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Check that the body of an op computes the device operation that it names: both are evaluated at a few points.

The device runs what ``sdsc.op`` says and the CPU what the body says. Passes write both; IR from elsewhere may differ.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from spyre_mlir.analysis.loops import terminator
from spyre_mlir.diagnostics import error_at
from spyre_mlir.dialects import sdsc
from spyre_mlir.dialects.structured import Body, Structured, defining_op
from spyre_mlir.errors import CompileError
from spyre_mlir.mlir import ir
from spyre_mlir.target.expressions import SCALARS
from spyre_mlir.target.ops import NEUTRAL

#: Arguments of a body in turn: of both signs, distinct but for a few equal ones, none at an edge of a format.
_NUMBERS = (0.75, -1.25, 3.0, 0.5, 0.5, -7.0, 2.0, 2.0, 1.0, 0.0, 6.5, -0.5, 30.0)

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
    if not all(map(_is_close, _values(block), expected)):
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
) -> list[float]:
    """The values of the body that an operation has by the table."""
    with context, ir.Location.unknown():
        types = [ir.Type.parse(text) for text in arguments]
        holder = ir.Operation.create("scf.execute_region", regions=1)
        block = ir.Block.create_at_start(holder.regions[0], types)
        with ir.InsertionPoint(block):
            value = Body(types[-1], dict(constants), rank).build(opcode, list(block.arguments))
            ir.Operation.create("scf.yield", operands=[value])
    return _values(block)


def _values(block: ir.Block) -> list[float]:
    """The numbers that a body yields for ``_NUMBERS`` as its arguments, from each of them on in turn."""
    count = len(_NUMBERS)
    return [
        _evaluate(block, [_NUMBERS[(begin + offset) % count] for offset in range(len(block.arguments))])
        for begin in range(count)
    ]


def _evaluate(block: ir.Block, arguments: Sequence[float]) -> float:
    """The number that a body yields; NaN where it is not defined."""
    known: dict[ir.Value, float] = {}
    for argument, number in zip(block.arguments, arguments, strict=True):
        # Times 4 each of the numbers is an integer.
        known[argument] = number * 4 if isinstance(argument.type, ir.IntegerType) else number
    # A gather selects the row whose index is the first operand: only with that index both of its branches are seen.
    known_index = known[block.arguments[0]] if arguments[0] > 0 else -1.0

    def value_of(value: ir.Value) -> float:
        if value not in known:
            op = defining_op(value)
            if op is None or op.name != "arith.constant":
                raise CompileError("a body takes what is not in it and no constant")
            known[value] = float(op.attributes["value"].value)
        return known[value]

    for op in (item.operation for item in block.operations):
        if op == terminator(block):
            return value_of(op.operands[0])
        if op.name == "linalg.index":
            known[op.results[0]] = known_index
        elif op.name != "arith.constant":
            known[op.results[0]] = _scalar(op, [value_of(operand) for operand in op.operands])
    return math.nan


def _scalar(op: ir.Operation, operands: Sequence[float]) -> float:
    if op.name in ("arith.cmpf", "arith.cmpi"):
        table = _FLOAT_PREDICATES if op.name == "arith.cmpf" else _INTEGER_PREDICATES
        compare = table.get(ir.IntegerAttr(op.attributes["predicate"]).value)
        return math.nan if compare is None else float(compare(*operands))
    if op.name not in _SCALARS:
        raise error_at(op, f"'{op.name}' is in no body of a device operation")
    # Some points are outside of the domain of a logarithm or a root: both bodies yield NaN there.
    with np.errstate(all="ignore"):
        return float(_SCALARS[op.name](*(np.float64(operand) for operand in operands)))


def _is_close(first: float, second: float) -> bool:
    # Both are computed in float64, maybe in another order: only rounding may differ.
    return (math.isnan(first) and math.isnan(second)) or math.isclose(
        first, second, rel_tol=1e-6, abs_tol=1e-12
    )


#: By the numbers of ``arith.cmpf``: 1 to 6 are ordered, 8 to 13 unordered, which differ for NaN alone.
_FLOAT_PREDICATES: dict[int, Callable[[float, float], bool]] = {
    1: float.__eq__, 2: float.__gt__, 3: float.__ge__, 4: float.__lt__, 5: float.__le__, 6: float.__ne__,
    8: float.__eq__, 9: float.__gt__, 10: float.__ge__, 11: float.__lt__, 12: float.__le__, 13: float.__ne__,
}  # fmt: skip
_INTEGER_PREDICATES: dict[int, Callable[[float, float], bool]] = {0: float.__eq__, 1: float.__ne__}

_SCALARS: dict[str, Callable[..., Any]] = {
    **{scalar.integer_op or scalar.op: scalar.compute for scalar in SCALARS.values()},
    **{scalar.op: scalar.compute for scalar in SCALARS.values() if scalar.predicate is None},
    **dict.fromkeys(("arith.sitofp", "arith.uitofp", "arith.extsi", "arith.index_cast"), lambda x: x),
}
