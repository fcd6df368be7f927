# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Conversion of JSON-like Python data to builtin attributes and back: dicts, lists, strings, numbers, None."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from spyre_mlir.errors import CompileError
from spyre_mlir.mlir import ir


def to_attribute(value: Any) -> Any:
    """Convert a value to an attribute; ``TypeError`` for other types. Needs a current context."""
    return _to_attribute(value, ir.Context.current, {})


def _to_attribute(
    value: Any, context: ir.Context, scalars: dict[tuple[type, Any], ir.Attribute]
) -> ir.Attribute:
    """Convert a value; ``scalars`` caches the attributes of numbers and texts, to avoid lookups in the context."""
    if isinstance(value, dict):
        members = {key: _to_attribute(member, context, scalars) for key, member in value.items()}
        return ir.DictAttr.get(members, context)
    if isinstance(value, list | tuple):
        # The element type of an empty list is unknown, and bools do not count as numbers here.
        if value and all(type(item) is int for item in value):
            return ir.DenseI64ArrayAttr.get(value, context)
        return ir.ArrayAttr.get([_to_attribute(item, context, scalars) for item in value], context)
    # Keyed by text, which distinguishes -0.0 from 0.0.
    key = type(value), repr(value) if isinstance(value, float) else value
    if key not in scalars:
        scalars[key] = _scalar(value)
    return scalars[key]


def i64_attr(value: int) -> ir.IntegerAttr:
    """Build an integer attribute of 64 bits. Needs a current context."""
    return ir.IntegerAttr.get(ir.IntegerType.get_signless(64), value)


def _scalar(value: Any) -> ir.Attribute:
    if value is None:
        return ir.UnitAttr.get()
    # Before int, because bool is a subclass of int.
    if isinstance(value, bool):
        return ir.BoolAttr.get(value)
    if isinstance(value, int):
        return i64_attr(value)
    if isinstance(value, float):
        return ir.FloatAttr.get_f64(value)
    if isinstance(value, str):
        return ir.StringAttr.get(value)
    raise TypeError(f"{type(value).__name__} cannot be converted to an attribute")


def from_attribute(attr: ir.Attribute) -> Any:
    """Convert an attribute back to the value from which ``to_attribute`` built it; tuples become lists."""
    if isinstance(attr, ir.DictAttr):
        return {entry.name: from_attribute(entry.attr) for entry in attr}
    if isinstance(attr, ir.ArrayAttr):
        return [from_attribute(item) for item in attr]
    if isinstance(attr, ir.DenseI64ArrayAttr):
        return list(attr)
    if isinstance(attr, ir.UnitAttr):
        return None
    if isinstance(attr, ir.BoolAttr | ir.IntegerAttr | ir.FloatAttr | ir.StringAttr):
        return attr.value
    raise TypeError(f"attribute {attr} cannot be converted to a Python value")


def from_dims(numbers: Mapping[int, float | None]) -> ir.DictAttr:
    """Build ``{d0 = 0.0 : f64, d1 = "undefined"}``: a number or None by dim. Needs a current context."""
    return to_attribute({f"d{dim}": "undefined" if x is None else float(x) for dim, x in numbers.items()})


def to_dims(name: str, attr: ir.Attribute) -> dict[int, float | None]:
    """Parse the output of ``from_dims``; ``CompileError``, with the name of the attribute, for anything else."""
    if not isinstance(attr, ir.DictAttr):
        raise CompileError(f"'{name}' must be a dictionary like {{d1 = 0.0}}, not {attr}")
    numbers: dict[int, float | None] = {}
    for entry in attr:
        if not re.fullmatch(r"d\d+", entry.name):
            raise CompileError(
                f"'{name}' has the key '{entry.name}', which is not a dim; dims are d0, d1, .."
            )
        undefined = isinstance(entry.attr, ir.StringAttr) and entry.attr.value == "undefined"
        if not undefined and not isinstance(entry.attr, ir.FloatAttr):
            raise CompileError(
                f"'{name}' has {entry.attr} for {entry.name}; expected a float or \"undefined\""
            )
        numbers[int(entry.name[1:])] = None if undefined else ir.FloatAttr(entry.attr).value
    # MLIR sorts the keys of a dictionary as text, with d10 before d2.
    return dict(sorted(numbers.items()))


# Parts of the verifiers of operations, which run on arbitrary generic form, before names or types are checked.


def required(op: ir.OpView | ir.Operation, is_met: object, message: str) -> bool:
    """Return whether a requirement is met; emit an error at the operation if it is not."""
    if not is_met:
        op.location.emit_error(message)
    return bool(is_met)


def attribute_of(op: ir.Operation, name: str) -> Any:
    """Return an attribute of any kind; None if the operation does not have it."""
    return op.attributes[name] if name in op.attributes else None


def copied_types(op: ir.OpView) -> tuple[ir.RankedTensorType, ir.RankedTensorType] | None:
    """Return the types of the only operand and the only result of a copy; None if their number or types differ.

    The declaration of the op rejects such operands and results, but only after ``verify_invariants``.
    """
    values = (*op.operands, *op.results)
    if (len(op.operands), len(op.results)) != (1, 1) or not all(
        isinstance(value.type, ir.RankedTensorType) for value in values
    ):
        return None
    source, result = (ir.RankedTensorType(value.type) for value in values)
    return source, result


def keeps_elements(op: ir.OpView, message: str) -> bool:
    """Require shape and element type of the operand for the result of a copy; the layout may change."""
    types = copied_types(op)
    if types is None:
        return True
    source, result = types
    is_kept = list(source.shape) == list(result.shape) and source.element_type == result.element_type
    return required(op, is_kept, message)
