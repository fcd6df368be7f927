"""The ``stick`` dialect: tiled device memory.

``#stick.layout<map>`` is the encoding of a tensor type and says how a logical index becomes a device
coordinate, outermost device dim first, position in the stick last:

    tensor<512x256xf16, #stick.layout<affine_map<(d0, d1) -> (d1 floordiv 64, d0, d1 mod 64)>>>

Each result of the map is one digit of one logical dim (``d0``, ``d0 floordiv c``, ``d0 mod m``,
``(d0 floordiv c) mod m``) or the constant 0: a last result of 0 is a stick-sparse tensor, one valid
element per stick. Sizes follow from the tensor's shape, so a slice keeps its attribute.

``stick.restickify`` copies a tensor into another layout; no other op changes one. ``tensor.expand_shape``,
``tensor.collapse_shape``, ``tensor.extract_slice`` and ``linalg.transpose`` between tensors with layouts
are views: they move nothing, and their result's layout is the composition.
"""

# No postponed annotations here: the bindings read the fields of ops and attributes from them.
# pyright: reportInvalidTypeForm=false

from spyre_mlir.layout import Digit, StickLayout
from spyre_mlir.mlir import ext, ir


class Stick(ext.Dialect, name="stick"):
    """Layouts and the conversion between them."""


class LayoutAttr(Stick.Attribute, name="layout"):
    """``#stick.layout<affine_map<..>>``: a logical index to device coordinates."""

    map: ir.AffineMapAttr


class RestickifyOp(Stick.Operation, name="restickify", traits=[ext.Pure]):
    """Copies a tensor into another layout.

    ``%1 = "stick.restickify"(%0) : (tensor<64x64xf16, #rows>) -> tensor<64x64xf16, #columns>``

    Same elements at the same logical index; all bytes are read and written.
    """

    source: ext.Operand[ir.RankedTensorType]
    result: ext.Result[ir.RankedTensorType]

    def verify_invariants(self) -> bool:
        source, result = (ir.RankedTensorType(value.type) for value in (self.operands[0], self.results[0]))
        if list(source.shape) != list(result.shape) or source.element_type != result.element_type:
            self.location.emit_error("restickify keeps shape and element type, only the layout changes")
            return False
        if layout_of(source) is None or layout_of(result) is None:
            self.location.emit_error("restickify needs a layout on its source and on its result")
            return False
        return True


def restickify(source: ir.Value, layout: StickLayout, location: ir.Location) -> ir.Value:
    """Builds the conversion of ``source`` to ``layout`` at the current insertion point."""
    made = with_layout(source.type, layout)
    return ir.Operation.create("stick.restickify", results=[made], operands=[source], loc=location).result


def layout_of(type_: ir.Type) -> StickLayout | None:
    """The layout of a tensor type; None without one. ``ValueError`` if the map is not made of digits."""
    tensor = ir.RankedTensorType(type_)
    if not isinstance(tensor.encoding, LayoutAttr):
        return None
    digits = _digits(str(tensor.encoding), tensor.encoding)
    return StickLayout(tuple(tensor.shape), str(tensor.element_type), digits)


def with_layout(type_: ir.Type, layout: StickLayout) -> ir.RankedTensorType:
    """The tensor type with the layout as its encoding."""
    tensor = ir.RankedTensorType(type_)
    encoding = LayoutAttr.get(ir.AffineMapAttr.get(affine_map(layout)))
    return ir.RankedTensorType.get(tensor.shape, tensor.element_type, encoding)


def affine_map(layout: StickLayout) -> ir.AffineMap:
    """The map of a layout as the attribute holds it."""
    return ir.AffineMap.get(len(layout.shape), 0, [_expression(digit) for digit in layout.digits])


def _expression(digit: Digit) -> ir.AffineExpr:
    if digit.dim is None:
        return ir.AffineConstantExpr.get(0)
    made = ir.AffineDimExpr.get(digit.dim)
    if digit.divisor != 1:
        made = ir.AffineExpr.get_floor_div(made, digit.divisor)
    if digit.modulus is not None:
        made = ir.AffineExpr.get_mod(made, digit.modulus)
    return made


_DIGITS: dict[str, tuple[Digit, ...]] = {}


def _digits(text: str, encoding: LayoutAttr) -> tuple[Digit, ...]:
    """The digits of a layout attribute, remembered by its text: a program repeats few layouts often."""
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


__all__ = ["LayoutAttr", "RestickifyOp", "Stick", "affine_map", "layout_of", "restickify", "with_layout"]
