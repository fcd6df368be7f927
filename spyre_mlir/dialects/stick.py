# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The ``stick`` dialect: tiled device memory.

``#stick.layout<map>`` is the encoding of a tensor type and maps a logical index to a device
coordinate, outermost device dim first, position in the stick last:

    tensor<512x256xf16, #stick.layout<affine_map<(d0, d1) -> (d1 floordiv 64, d0, d1 mod 64)>>>

Each result of the map is one digit of one logical dim (``d0``, ``d0 floordiv c``, ``d0 mod m``,
``(d0 floordiv c) mod m``) or the constant 0: a last result of 0 is a stick-sparse tensor, one valid
element per stick. Sizes follow from the tensor's shape, so a slice keeps its attribute.

``stick.restickify`` copies a tensor into another layout; no other op changes a layout. ``tensor.expand_shape``,
``tensor.collapse_shape``, ``tensor.extract_slice`` and ``linalg.transpose`` between tensors with layouts
are views: they do not move data, and the layout of their result is the composition.

``stick.padding = {d1 = "undefined"}`` on an argument, a constant or an op that writes a buffer states the
contents of the tensor's padding: for each padded dim a number, ``{d1 = 0.0}``, or contents that must not be
relied on. A tensor without padding does not have this attribute. A view does not have it either: a view shows the
padding of its buffer, or elements of it.

Before layouts are chosen, types do not have layouts, and a program requests layouts by the attribute ``stick.to``:
on ``stick.restickify``, the layout to convert to at this place; on ``stick.pin``, the layout in which its
operand is produced. Only the arguments of a function already have the layout in their type: the caller's layout.
"""

# Annotations must not be postponed: the bindings read the fields of ops and attributes from them.
# pyright: reportInvalidTypeForm=false

import functools
from collections.abc import Mapping

from spyre_mlir.dialects.attributes import copied_types, from_dims, keeps_elements, required, to_dims
from spyre_mlir.dialects.targets import target_of
from spyre_mlir.errors import counted
from spyre_mlir.layout import Digit, StickLayout
from spyre_mlir.layout.padding import States
from spyre_mlir.mlir import ext, ir
from spyre_mlir.target.target import Target

#: The attribute by which a program names a layout before layouts are chosen.
TO = "stick.to"

#: The attribute that states the contents of the padding of a tensor.
PADDING = "stick.padding"
#: On a clone that converts: the reason. The clone becomes a stick.restickify when types are written.
RESTICKIFY = "stick.restickify"


class Stick(ext.Dialect, name="stick"):
    """Layouts and the conversion between them."""


class LayoutAttr(Stick.Attribute, name="layout"):
    """``#stick.layout<affine_map<..>>``: the ``map`` of a logical index to device coordinates."""

    map: ir.AffineMapAttr


class RestickifyOp(Stick.Operation, name="restickify", traits=[ext.Pure]):
    """Copy a tensor, ``source``, into another layout, as ``result``.

    ``%1 = "stick.restickify"(%0) : (tensor<64x64xf16, #rows>) -> tensor<64x64xf16, #columns>``

    The elements keep their logical indices; all bytes are read and written. Before layouts are chosen, the
    attribute names the layout of the result:

    ``%1 = "stick.restickify"(%0) {stick.to = #stick.layout<#columns>} : (tensor<64x64xf16>) -> tensor<64x64xf16>``
    """

    source: ext.Operand[ir.RankedTensorType]
    result: ext.Result[ir.RankedTensorType]

    def verify_invariants(self) -> bool:
        """Require shape and element type of the source, and a layout on both types or a requested layout."""
        if not keeps_elements(self, "restickify keeps shape and element type, only the layout changes"):
            return False
        types = copied_types(self)
        if types is None:
            return True
        if TO in self.attributes:
            return _has_fitting_request(self)
        message = f"restickify needs a layout on its source and on its result, or '{TO}'"
        return required(self, all(map(has_layout, types)), message)


class PinOp(Stick.Operation, name="pin"):
    """Fix the layout in which its ``source`` is produced; does not move data, and is erased once layouts are chosen.

    ``%1 = "stick.pin"(%0) {stick.to = #stick.layout<#columns>} : (tensor<64x64xf16>) -> tensor<64x64xf16>``

    Its ``result`` is its operand. Not pure: a pin constrains its operand even if the result has no readers.
    """

    source: ext.Operand[ir.RankedTensorType]
    result: ext.Result[ir.RankedTensorType]

    def verify_invariants(self) -> bool:
        """Require shape and element type of the operand, and a layout that fits."""
        if copied_types(self) is None:
            return True
        return (
            keeps_elements(self, "pin keeps shape and element type of its operand")
            and required(self, TO in self.attributes, f"pin names the layout of its operand in '{TO}'")
            and _has_fitting_request(self)
        )


def _has_fitting_request(op: ir.OpView) -> bool:
    """Return whether ``stick.to`` is a layout for tensors of the op's rank; emit the error if not."""
    attr, rank = op.attributes[TO], ir.RankedTensorType(op.results[0].type).rank
    if not isinstance(attr, LayoutAttr):
        return required(op, False, f"'{TO}' must be a #stick.layout, not {attr}")
    dims = ir.AffineMapAttr(attr.map).value.n_dims
    if dims != rank:
        return required(op, False, f"'{TO}' is a layout of {counted(dims, 'dim')}, but the tensor has {rank}")
    problem = layout_problem(attr, rank)
    return required(op, problem is None, f"'{TO}' is not a layout: {problem}")


def layout_problem(attr: LayoutAttr, rank: int) -> str | None:
    """Describe an error in a layout for tensors of a rank; None if there is none."""
    map_ = ir.AffineMapAttr(attr.map).value
    if map_.n_dims != rank or map_.n_symbols:
        return f"its map has {counted(map_.n_dims, 'dim')} and {counted(map_.n_symbols, 'symbol')}; the rank is {rank}"
    if not len(map_.results):
        return "its map has no results"
    try:
        digits = _digits(str(attr), attr)
    except ValueError as error:
        return str(error)
    if any(digit.divisor < 1 or (digit.modulus is not None and digit.modulus < 1) for digit in digits):
        return "the divisor of a digit is less than 1"
    return None


def restickify(source: ir.Value, layout: StickLayout, location: ir.Location) -> ir.Value:
    """Build the conversion of ``source`` to ``layout`` at the current insertion point, with a ``location``."""
    type_ = with_layout(source.type, layout)
    return ir.Operation.create("stick.restickify", results=[type_], operands=[source], loc=location).result


def requested_restickify(source: ir.Value, layout: StickLayout, location: ir.Location) -> ir.Value:
    """Build a conversion of ``source``, which does not have a layout yet, to ``layout`` at the insertion point."""
    return _request("stick.restickify", source, layout, location)


def pin(source: ir.Value, layout: StickLayout, location: ir.Location) -> ir.Value:
    """Build a ``stick.pin`` of ``source`` to ``layout`` at the current insertion point, with a ``location``."""
    return _request("stick.pin", source, layout, location)


def _request(name: str, source: ir.Value, layout: StickLayout, location: ir.Location) -> ir.Value:
    types, attributes = [without_layout(source.type)], {TO: layout_attr(layout)}
    return ir.Operation.create(
        name, results=types, operands=[source], attributes=attributes, loc=location
    ).result


def requested_layout(op: ir.Operation) -> StickLayout:
    """Return the layout of an op's ``stick.to``, for the type of its result."""
    return layout_from(op.attributes[TO], op.results[0].type, target_of(op))


def layout_from(attr: LayoutAttr, type_: ir.Type, target: Target) -> StickLayout:
    """Convert an attribute to the layout of a tensor type. ``ValueError`` if the map is not made of digits."""
    tensor = ir.RankedTensorType(type_)
    return _unique(
        StickLayout(target, tuple(tensor.shape), str(tensor.element_type), _digits(str(attr), attr))
    )


@functools.lru_cache(maxsize=1 << 12)
def _unique(layout: StickLayout) -> StickLayout:
    """Return one object for equal layouts, so that cache keys are compared by identity."""
    return layout


def has_layout(type_: ir.Type) -> bool:
    """Return whether a type, ``type_``, is a tensor type with a layout."""
    return isinstance(type_, ir.RankedTensorType) and isinstance(type_.encoding, LayoutAttr)


def layout_of(type_: ir.Type, target: Target) -> StickLayout | None:
    """Return the layout of a tensor type; None for a type without a layout.

    Args:
        type_: The type.
        target: The device.

    Raises:
        ValueError: The map is not made of digits.
    """
    if not isinstance(type_, ir.RankedTensorType):
        return None
    encoding = type_.encoding
    return layout_from(encoding, type_, target) if isinstance(encoding, LayoutAttr) else None


def with_layout(type_: ir.Type, layout: StickLayout) -> ir.RankedTensorType:
    """Return the tensor type ``type_`` with the ``layout`` as its encoding."""
    tensor = ir.RankedTensorType(type_)
    return ir.RankedTensorType.get(tensor.shape, tensor.element_type, layout_attr(layout))


def without_layout(type_: ir.Type) -> ir.Type:
    """Return the tensor type ``type_`` without an encoding; any other type as it is."""
    if not isinstance(type_, ir.RankedTensorType):
        return type_
    tensor = ir.RankedTensorType(type_)
    return ir.RankedTensorType.get(tensor.shape, tensor.element_type)


def layout_attr(layout: StickLayout) -> LayoutAttr:
    """Build ``#stick.layout`` from a ``layout``."""
    return LayoutAttr.get(ir.AffineMapAttr.get(affine_map(layout)))


def affine_map(layout: StickLayout) -> ir.AffineMap:
    """Build the affine map of a layout, from a logical index to device coordinates."""
    return ir.AffineMap.get(len(layout.shape), 0, [_expression(digit) for digit in layout.digits])


def _expression(digit: Digit) -> ir.AffineExpr:
    if digit.dim is None:
        return ir.AffineConstantExpr.get(0)
    expression = ir.AffineDimExpr.get(digit.dim)
    if digit.divisor != 1:
        expression = ir.AffineExpr.get_floor_div(expression, digit.divisor)
    if digit.modulus is not None:
        expression = ir.AffineExpr.get_mod(expression, digit.modulus)
    return expression


def padding_attr(states: States) -> ir.DictAttr:
    """Build ``stick.padding`` from the ``states`` of padded dims: a number, or None for undefined padding."""
    return from_dims(states)


def padding_of(attributes: Mapping[str, ir.Attribute]) -> States:
    """Return the state of each padded dim from the ``attributes`` of an op or an argument; {} if nothing is padded."""
    return to_dims(PADDING, attributes[PADDING]) if PADDING in attributes else {}


# Keyed by text, because an attribute belongs to a context and this cache outlives contexts.
_DIGITS: dict[str, tuple[Digit, ...]] = {}


def _digits(text: str, encoding: LayoutAttr) -> tuple[Digit, ...]:
    """Return the digits of a layout attribute, cached by its text, because a program repeats the same few layouts."""
    if text not in _DIGITS:
        results = ir.AffineMapAttr(encoding.map).value.results
        _DIGITS[text] = tuple(_digit(expression) for expression in results)
    return _DIGITS[text]


def _digit(expression: ir.AffineExpr) -> Digit:
    modulus, divisor = None, 1
    if isinstance(expression, ir.AffineModExpr):
        modulus, expression = _constant(expression.rhs), expression.lhs
    if isinstance(expression, ir.AffineFloorDivExpr):
        divisor, expression = _constant(expression.rhs), expression.lhs
    if isinstance(expression, ir.AffineDimExpr):
        return Digit(expression.position, divisor, modulus)
    if isinstance(expression, ir.AffineConstantExpr) and expression.value == 0:
        return Digit(None)
    raise ValueError(f"'{expression}' is not a digit of one dim")


def _constant(expression: ir.AffineExpr) -> int:
    if not isinstance(expression, ir.AffineConstantExpr):
        raise ValueError(f"'{expression}' is not a constant")
    return expression.value
