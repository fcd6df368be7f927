"""Plain Python data as builtin attributes and back: dicts, lists, strings, integers, floats, booleans."""

from __future__ import annotations

from typing import Any

from spyre_mlir.mlir import ir


def to_attribute(value: Any) -> ir.Attribute:
    """The attribute of a plain value. Needs a current context."""
    if isinstance(value, bool):
        return ir.BoolAttr.get(value)
    if isinstance(value, int):
        return ir.IntegerAttr.get(ir.IntegerType.get_signless(64), value)
    if isinstance(value, float):
        return ir.FloatAttr.get_f64(value)
    if isinstance(value, str):
        return ir.StringAttr.get(value)
    if isinstance(value, dict):
        return ir.DictAttr.get({key: to_attribute(member) for key, member in value.items()})
    if isinstance(value, list | tuple):
        if value and all(type(item) is int for item in value):
            return ir.DenseI64ArrayAttr.get(value)
        return ir.ArrayAttr.get([to_attribute(item) for item in value])
    raise TypeError(f"{type(value).__name__} has no attribute form")


def from_attribute(attr: ir.Attribute) -> Any:
    """The plain value of an attribute that ``to_attribute`` made."""
    if isinstance(attr, ir.DictAttr):
        return {entry.name: from_attribute(entry.attr) for entry in attr}
    if isinstance(attr, ir.ArrayAttr):
        return [from_attribute(item) for item in attr]
    if isinstance(attr, ir.DenseI64ArrayAttr):
        return list(attr)
    if isinstance(attr, ir.BoolAttr | ir.IntegerAttr | ir.FloatAttr | ir.StringAttr):
        return attr.value
    raise TypeError(f"attribute {attr} has no plain form")
