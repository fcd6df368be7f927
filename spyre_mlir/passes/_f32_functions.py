"""Functions that the device has in DL16 only, of f32 values: by operations that FP32 has."""

from __future__ import annotations

from collections.abc import Callable

from spyre_mlir.dialects import sdsc
from spyre_mlir.dialects.structured import Structured, device_op, element_of, maker_of, shape_of, structured
from spyre_mlir.mlir import ir

#: Logarithms of f32 are within +-104; exponentials of these bounds are finite there, and not 0.
_LARGEST_LOGARITHM = 80.0


def replace_in_f32(op: ir.Operation) -> None:
    """Replace a function of an f32 value that the device has in DL16 only; other operations stay."""
    opcode = sdsc.opcode_of(op)
    if opcode not in REPLACED or element_of(op.results[0]) != "f32":
        return
    generic = structured(op)
    assert generic is not None
    with ir.InsertionPoint(op), op.location:
        result = REPLACED[opcode](generic)
        sdsc.inherit(maker_of(result), op)
    op.results[0].replace_all_uses_with(result)
    op.erase()


def _inverse_root(generic: Structured) -> ir.Value:
    """``1 / sqrt(x + 0)``, as the norm of a layer computes it."""
    return device_op(
        "layernormscale",
        list(generic.inputs),
        generic.maps[:-1],
        generic.extents,
        "f32",
        location=ir.Location.current,
        result_map=generic.maps[-1],
        constants={"eps": 0.0},
    )


def _root(generic: Structured) -> ir.Value:
    """The reciprocal of the inverse root, which is right for 0 and infinity too: 1 / (1 / sqrt(0)) is 0."""
    return _pointwise("reciprocal", _inverse_root(generic))


def _logarithm(generic: Structured) -> ir.Value:
    """One step of Newton's method for ``exp(y) = x`` from the logarithm in DL16: ``y + (x * exp(-y) - 1)``.

    It squares the relative error of ``exp(y)``, so what rounding to 16 bits left, at most 2^-6, is below 2^-12.
    """
    (x,) = generic.inputs
    (source, target), extents = generic.maps, generic.extents
    x = x if source == target else device_op(
        "identity", [x], [source], extents, "f32", location=ir.Location.current, result_map=target
    )  # fmt: skip
    estimate = _pointwise("dl16tofp32", _pointwise("log", _pointwise("fp32todl16", x, "f16"), "f16"))
    # Of 0 and infinity the estimate is exact; without bounds the step would be 0 times infinity.
    bounds = {"clipMin": -_LARGEST_LOGARITHM, "clipMax": _LARGEST_LOGARITHM}
    bounded = _pointwise("clip", estimate, constants=bounds)
    ratio = _pointwise("mul", x, other=_pointwise("exp", _pointwise("neg", bounded)))
    step = _pointwise("sub", ratio, other=_one())
    return _pointwise("add", estimate, other=step)


def _pointwise(
    opcode: str,
    value: ir.Value,
    element: str = "f32",
    other: ir.Value | None = None,
    constants: dict[str, float] | None = None,
) -> ir.Value:
    """A pointwise operation on a value and another one of the same shape, or without dims."""
    shape = shape_of(value)
    operands = [value] if other is None else [value, other]
    maps = [tuple(range(len(shape_of(operand)))) for operand in operands]
    return device_op(
        opcode, operands, maps, shape, element, location=ir.Location.current, constants=constants
    )


def _one() -> ir.Value:
    type_ = ir.RankedTensorType.get([], ir.F32Type.get())
    value = ir.DenseElementsAttr.get_splat(type_, ir.FloatAttr.get(ir.F32Type.get(), 1.0))
    return ir.Operation.create("arith.constant", results=[type_], attributes={"value": value}).result


#: What computes a function of f32, by the operation that DL16 has for it.
REPLACED: dict[str, Callable[[Structured], ir.Value]] = {
    "sqrt": _root,
    "rsqrt": _inverse_root,
    "log": _logarithm,
}
