# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Structural checks of our attributes, whose contents the bindings do not check when they parse.

A Python-defined attribute has parameters of any builtin kind, and an attribute of an operation may be anything.
Input text is checked here once, so that all readers of these attributes can rely on their manuals:
the manual of the ``sdsc`` dialect for decisions, and of the ``stick`` dialect for layouts. The verifier of a level
checks whether the values make sense for an operation.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

from spyre_mlir.dialects import sdsc, stick
from spyre_mlir.dialects.targets import target_of
from spyre_mlir.errors import CompileError
from spyre_mlir.layout import BufferView
from spyre_mlir.layout.requests import why_not_a_layout
from spyre_mlir.layout.stick_layout import ELEMENT_BITS
from spyre_mlir.layout.view import ViewError
from spyre_mlir.mlir import ir, location_of
from spyre_mlir.target.target import Target

#: A function that describes an error in an attribute as text; any other result means that the attribute is valid.
#: ``ValueError`` for an attribute of another kind.
Check = Callable[[ir.Attribute], object]

#: Prefixes of the names of attributes that are checked.
CHECKED_NAMESPACES = ("sdsc.", "stick.", "spyre.")


def check_forms(module: ir.Module | ir.OpView) -> None:
    """Raise ``CompileError`` at the operation for the first of our attributes that is malformed."""
    operations: list[ir.Operation] = []
    # An exception does not propagate through the walk of the bindings.
    module.operation.walk(lambda op: operations.append(op) or ir.WalkResult.ADVANCE)
    checker = _Checker(target_of(module))
    for op in operations:
        problem = checker.problem(op)
        if problem is not None:
            raise CompileError(problem, location_of(op.location))


class _Checker:
    """Checker of operations with a cache: a module repeats few types and attributes, so each is checked once."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.forms = {**_FORMS, sdsc.DIVISION: (_DIVISION_FORM, partial(_division, target=target))}
        self.valid: set[tuple[str, ir.Attribute] | ir.Type] = set()

    def problem(self, op: ir.Operation) -> str | None:
        """Describe the first malformed type or attribute of an operation; None if there is none."""
        arguments = (value for region in op.regions for block in region for value in block.arguments)
        for value in (*op.results, *arguments):
            problem = self._type_problem(value.type)
            if problem is not None:
                return problem
        for name in op.attributes:
            attr = op.attributes[name]
            problem = self._attribute_problem(name, attr)
            if name in ("arg_attrs", "res_attrs"):
                named = (entry for attrs in ir.ArrayAttr(attr) for entry in ir.DictAttr(attrs))
                problems = (self._attribute_problem(entry.name, entry.attr) for entry in named)
                problem = next(filter(None, problems), None)
            if problem is not None:
                return problem
        return None

    def _type_problem(self, type_: ir.Type) -> str | None:
        if type_ in self.valid or not isinstance(type_, ir.RankedTensorType):
            return None
        problem = None
        if isinstance(type_.encoding, stick.LayoutAttr):
            problem = _layout_problem(type_.encoding, type_, self.target)
        if problem is None:
            self.valid.add(type_)
        return problem

    def _attribute_problem(self, name: str, attr: ir.Attribute) -> str | None:
        if not name.startswith(CHECKED_NAMESPACES) or (name, attr) in self.valid or name not in self.forms:
            return None
        form, check = self.forms[name]
        try:
            problem = check(attr)
        except ValueError:  # the bindings': the attribute, or a part of it, is of another kind
            problem = f"got {attr}"
        if isinstance(problem, str):
            return f"'{name}' must be {form}: {problem}"
        self.valid.add((name, attr))
        return None


# -- layouts --------------------------------------------------------------------------------------------


def _layout_problem(attr: stick.LayoutAttr, type_: ir.RankedTensorType, target: Target) -> str | None:
    """Describe an error in the encoding of a tensor type; None if there is none."""
    if not type_.has_static_shape or 0 in type_.shape:
        return f"a tensor with a layout has a constant size of 1 or more in each dim, not {list(type_.shape)}"
    problem = stick.layout_problem(attr, type_.rank)
    if problem is not None:
        return f"the layout of this tensor is invalid: {problem}"
    if str(type_.element_type) not in ELEMENT_BITS:
        return f"a tensor of {type_.element_type} has no layout on the device"
    layout = stick.layout_from(attr, type_, target)
    try:
        BufferView.of(layout)
    except ViewError as error:
        return f"this tensor cannot have this layout: {why_not_a_layout(layout) or error}"
    size = layout.bytes
    if size > target.hbm_bytes:
        return f"this tensor takes {size} bytes, the device has {target.hbm_bytes}"
    return None


# -- decisions ------------------------------------------------------------------------------------------


def _integer(attr: ir.Attribute, least: int = -(1 << 63)) -> int:
    """Return the value of an i64 attribute; ``ValueError`` for another type, or for less than ``least``."""
    value = ir.IntegerAttr(attr)
    if str(value.type) != "i64" or value.value < least:
        raise ValueError(f"{attr} is not an i64 of at least {least}")
    return value.value


def _halos(attr: ir.Attribute) -> None:
    numbers = list(ir.DenseI64ArrayAttr(attr))
    if len(numbers) % 4 or min(numbers, default=0) < 0:
        raise ValueError("a halo has a dim, positions before and after a slice, and a size")


def _texts(attr: ir.Attribute) -> None:
    for entry in ir.ArrayAttr(attr):
        ir.StringAttr(entry)


def _history(attr: ir.Attribute) -> str | None:
    for step in ir.ArrayAttr(attr):
        _texts(step)
        if len(ir.ArrayAttr(step)) != 3:
            return f"{step} has {len(ir.ArrayAttr(step))} texts instead of 3"
    return None


def _op(attr: ir.Attribute) -> str | None:
    if not isinstance(attr, sdsc.OpAttr):
        return f"got {attr}"
    for entry in ir.DictAttr(attr.constants):
        ir.FloatAttr(entry.attr)
    return None


def _division(attr: ir.Attribute, target: Target) -> str | None:
    if not isinstance(attr, sdsc.DivisionAttr):
        return f"got {attr}"
    splits = [_integer(split, 1) for split in ir.ArrayAttr(attr.splits)]
    # Check the bound first: the conversion of a division takes a step per slice, and the text may name any number
    # of slices.
    if math.prod(splits) > target.device_cores:
        return f"the division needs {math.prod(splits)} cores, the device has {target.device_cores}"
    mapping = ir.AffineMapAttr(attr.mapping).value
    if (mapping.n_dims, mapping.n_symbols, len(mapping.results)) != (1, 0, len(splits)):
        return f"the map is from a core to the slices of {len(splits)} dims"
    # Evaluate the map only after this check, because it could otherwise divide by 0.
    problem = next(filter(None, map(_core_map_problem, mapping.results)), None)
    if problem is not None:
        return problem
    owners = sdsc.division_from(attr).owners
    if not all(0 <= index < split for owner in owners for index, split in zip(owner, splits, strict=True)):
        return f"the core map does not give each of the {math.prod(splits)} slices one core"
    return None


def _core_map_problem(expression: ir.AffineExpr) -> str | None:
    """Describe an error in a result of a core map, which may divide by constants above 0 only; None if it is valid."""
    if isinstance(expression, ir.AffineConstantExpr | ir.AffineDimExpr):
        return None
    divides = not isinstance(expression, ir.AffineAddExpr | ir.AffineMulExpr)
    divisor = expression.rhs
    if divides and not (isinstance(divisor, ir.AffineConstantExpr) and divisor.value > 0):
        return f"'{expression}' divides by an expression that is not a positive constant"
    return _core_map_problem(expression.lhs) or _core_map_problem(divisor)


def _placement(attr: ir.Attribute) -> str | None:
    if isinstance(attr, sdsc.HbmAttr):
        _integer(attr.offset)
    elif isinstance(attr, sdsc.LxAttr):
        _integer(attr.address)
    else:
        return f"got {attr}"
    return None


def _host(attr: ir.Attribute) -> str | None:
    if not isinstance(attr, sdsc.HostAttr):
        return f"got {attr}"
    return _kind(attr.kind)


def _kind(attr: ir.Attribute) -> str | None:
    kind = ir.StringAttr(attr).value
    return None if kind in _KINDS else f"'{kind}' is not one of {', '.join(_KINDS)}"


def _host_view(attr: ir.Attribute) -> str | None:
    view = ir.DictAttr(attr)
    if not {"array", "offset", "strides"} <= {entry.name for entry in view}:
        return f"{attr} is incomplete"
    array, strides = (list(ir.DenseI64ArrayAttr(view[name])) for name in ("array", "strides"))
    sizes = list(ir.DenseI64ArrayAttr(view["sizes"])) if "sizes" in view else None
    _integer(view["offset"], 0)
    if any(size < 1 for size in (*array, *(sizes or ()))):
        return "a size is less than 1"
    if any(stride < 0 for stride in strides) or (sizes is not None and len(sizes) != len(strides)):
        return "each piece has a size and a stride of 0 or more"
    return None


def _pins(attr: ir.Attribute) -> str | None:
    pins = {entry.name: entry.attr for entry in ir.DictAttr(attr)}
    layouts = [*ir.ArrayAttr(pins.get("layouts", ir.ArrayAttr.get([], attr.context)))]
    layouts += [pins["layout"]] if "layout" in pins else []
    wrong = [layout for layout in layouts if not isinstance(layout, stick.LayoutAttr)]
    if wrong:
        return f"{wrong[0]} is not a layout"
    for name in ("slices", "core_order"):
        if name in pins:
            ir.DenseI64ArrayAttr(pins[name])
    if "relayout" in pins:
        ir.BoolAttr(pins["relayout"])
    placement = pins.get("placement")
    return None if placement is None or isinstance(placement, ir.StringAttr) else _placement(placement)


#: Kinds of arguments and results; only a part of a program under evaluation has an "intermediate" argument.
_KINDS = ("input", "parameter", "constant", "result", "intermediate")

_DIVISION_FORM = "slices and a core map like #sdsc.division<[1, 2], affine_map<(d0) -> (0, d0)>>"

#: Form of each attribute as text, for the error message, and its check; the check of a division needs the target.
_FORMS: dict[str, tuple[str, Check]] = {
    sdsc.OP: ("an operation with numbers as constants like #sdsc.op<\"clip\", {clipMax = 6.0 : f64}>", _op),
    sdsc.PLACEMENT: ("a place like #sdsc.hbm<\"pool\", 128> or #sdsc.lx<128>", _placement),
    sdsc.HOST: ("the name, kind and dtype of an array like #sdsc.host<\"x\", \"input\", \"f16\">", _host),
    sdsc.HOST_VIEW: ("a view like {array = array<i64: 8>, offset = 0, strides = array<i64: 1>}", _host_view),
    sdsc.HISTORY: ("a list of (kind, pass, reason) like [[\"fusion\", \"fuse-device-ops\", \"..\"]]", _history),
    sdsc.COPIES: ("a positive number of cores", partial(_integer, least=1)),
    sdsc.HALOS: ("four numbers of each dim", _halos),
    sdsc.POOL_BYTES: ("a number of bytes", partial(_integer, least=0)),
    sdsc.PINS: ("a dictionary", _pins),
    sdsc.SPILLED: ("a list of reasons", _texts),
    **dict.fromkeys((sdsc.OPTIONAL, sdsc.EVICTED), ("a flag without a value", ir.UnitAttr)),
    **dict.fromkeys((sdsc.COMBINE, sdsc.SOURCE, sdsc.NAME, sdsc.PLAN), ("a text", ir.StringAttr)),
    "spyre.name": ("a text", ir.StringAttr),
    "spyre.kind": ("the kind of an argument", _kind),
    sdsc.UPDATED: ("the number of a result", partial(_integer, least=0)),
}  # fmt: skip
