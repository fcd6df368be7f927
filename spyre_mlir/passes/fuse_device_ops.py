"""Recognises what the device does in one operation: silu, gelu, mean, the parts of norms, clip, ..."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from spyre_mlir.dialects import sdsc
from spyre_mlir.dialects.structured import (
    Map,
    Structured,
    defining_op,
    device_op,
    element_of,
    maker_of,
    structured,
)
from spyre_mlir.mlir import ir
from spyre_mlir.passes._quantized import rounded_sum
from spyre_mlir.passes.base import Pass
from spyre_mlir.target.ops import DEVICE_OPS

#: A pattern: a variable "x", a constant (number, or "?name" to bind one), or (opcode, operand patterns..). What an
#: opcode after ``_SHARED`` gives may have other readers; it goes only if it has none left.
Pattern = str | float | tuple
_SHARED = "shared "

_COMMUTES = {"add", "mul", "maximum", "minimum", "equal", "notequal"}

_SIGMOID = ("reciprocal", ("add", ("exp", ("neg", "x")), 1.0))
_ERF = ("add", ("erf", ("mul", "x", 0.70710678)), 1.0)
_ERF_DIV = ("add", ("erf", ("realdiv", "x", 1.41421356)), 1.0)

_SCALED = (_SHARED + "mul", "x", "?b")

#: (pattern, operation, its operands, its constants from the bound ones)
Rule = tuple[tuple, str, tuple[str, ...], Callable[[dict[str, float]], dict[str, float]] | None]

RULES: list[Rule] = [
    (_SIGMOID, "sigmoid", ("x",), None),
    (("mul", "x", ("sigmoid", "x")), "silu", ("x",), None),
    (("realdiv", "x", ("add", ("exp", ("neg", "x")), 1.0)), "silu", ("x",), None),
    *(
        (pattern, "gelufwd", ("x",), None)
        for erf in (_ERF, _ERF_DIV)
        for pattern in (
            ("mul", "x", ("mul", erf, 0.5)),
            ("mul", ("mul", "x", 0.5), erf),
            ("mul", ("mul", "x", erf), 0.5),
        )
    ),
    (("maximum", "x", 0.0), "relufwd", ("x",), None),
    (("where3", ("greaterthan", "x", 0.0), "x", 0.0), "relufwd", ("x",), None),
    (("add", ("relufwd", "x"), ("mul", ("minimum", "x", 0.0), "?a")), "leakyrelufwd", ("x",),
     lambda c: {"alpha": c["?a"]}),
    (("where3", ("greaterthan", "x", 0.0), "x", ("mul", "x", "?a")), "leakyrelufwd", ("x",),
     lambda c: {"alpha": c["?a"]}),
    (("where3", ("lesserthan", "x", "y"), "y", "x"), "maximum", ("x", "y"), None),
    (("where3", ("lesserthan", "x", "y"), "x", "y"), "minimum", ("x", "y"), None),
    (("where3", ("greaterthan", "x", "y"), "y", "x"), "minimum", ("x", "y"), None),
    (("where3", ("greaterthan", "x", "y"), "x", "y"), "maximum", ("x", "y"), None),
    (("minimum", ("maximum", "x", "?lo"), "?hi"), "clip", ("x",),
     lambda c: {"clipMin": c["?lo"], "clipMax": c["?hi"]}),
    (("minimum", ("relufwd", "x"), 6.0), "relu6fwd", ("x",), None),
    (("minimum", ("relufwd", "x"), "?hi"), "clip", ("x",), lambda c: {"clipMin": 0.0, "clipMax": c["?hi"]}),
    (("where3", ("greaterthan", "x", "?t"), "x", ("log1p", ("exp", "x"))), "softplus", ("x",),
     lambda c: {"softplusBeta": 1.0, "softplusThresh": c["?t"]}),
    (("where3", ("greaterthan", _SCALED, "?t"), "x", ("realdiv", ("log1p", ("exp", _SCALED)), "?b")), "softplus",
     ("x",), lambda c: {"softplusBeta": c["?b"], "softplusThresh": c["?t"]}),
    (("mul", "x", ("tanh", ("softplus", "x"))), "mish", ("x",), None),
    (("rsqrt", ("add", "x", "?e")), "layernormscale", ("x",), lambda c: {"eps": c["?e"]}),
]  # fmt: skip

_MEANS = {"sum": "mean", "sumnonstick": "meannonstick"}
_ABSOLUTE = {"max": "absmax", "maxnonstick": "absmaxnonstick"}


@dataclass(frozen=True)
class FuseDeviceOps(Pass):
    """Replace groups of device operations by the one operation that computes the same.

        exp(neg(x)) + 1, reciprocal, * x   ->   silu(x)

    Only where the numbers agree: the fused operation rounds once where the group rounded after each step.
    A group is taken if nobody else reads its inner values. Means and mean squares are fused with their
    scaling, so that a sum larger than the format never has to be written.
    """

    name: ClassVar[str] = "fuse-device-ops"

    def run(self, module: ir.Operation) -> None:
        for func in list(module.regions[0].blocks[0].operations):
            if func.operation.name != "func.func" or not func.operation.regions[0].blocks:
                continue
            for op in [op.operation for op in func.operation.regions[0].blocks[0].operations]:
                if sdsc.opcode_of(op) is not None:
                    self._fuse(op)

    def _fuse(self, op: ir.Operation) -> None:
        """Fuses as long as a rule applies: a fused op may be the root of the next."""
        current: ir.Operation | None = op
        while current is not None:
            root = structured(current)
            if root is None:
                return
            with ir.InsertionPoint(current):
                made = (
                    rounded_sum(root)
                    or _mean(root)
                    or _mean_square(root)
                    or _absolute_maximum(root)
                    or _pointwise(root)
                )
            if made is None:
                return
            op = maker_of(made)
            reason = f"'{sdsc.opcode_of(op)}' takes the place of {_names(root)}"
            self.remark(current, "fusion", reason)
            sdsc.inherit(op, current)
            sdsc.record(op, "fusion", self.name, reason)
            current.results[0].replace_all_uses_with(made)
            _erase_dead(current)
            current = op


def _names(root: Structured) -> str:
    inner = [sdsc.opcode_of(owner) for value in root.inputs if (owner := defining_op(value))]
    return f"'{root.opcode}' over {[name for name in inner if name]}"


def _erase_dead(op: ir.Operation) -> None:
    """Erases an op without readers, then what only it read."""
    waiting = [op]
    while waiting:
        current = waiting.pop()
        if any(True for result in current.results for _ in result.uses):
            continue
        owners = [owner for operand in current.operands if (owner := defining_op(operand))]
        current.erase()
        seen: list[ir.Operation] = []
        for owner in owners:
            if owner not in seen and owner.name != "func.func":
                seen.append(owner)
        waiting.extend(seen)


# -- reductions with a scaling ------------------------------------------------------------------------


def _mean(root: Structured) -> ir.Value | None:
    """realdiv(sum(x), n) or mul(sum(x), 1/n)  ->  mean(x) with scaling_factor 1/n."""
    if root.opcode not in ("realdiv", "mul") or root.maps[0] != root.maps[-1]:
        return None
    scale = _constant(root.inputs[1])
    total = _inner(root.inputs[0])
    if not scale or total is None or total.opcode not in _MEANS:
        return None
    factor = 1.0 / scale if root.opcode == "realdiv" else scale
    return _reduction(total, total.inputs[0], _MEANS[total.opcode], root, scaling_factor=factor)


def _mean_square(root: Structured) -> ir.Value | None:
    """mean(x * x)  ->  exx2_zeromean(x)."""
    if root.opcode != "mean":
        return None
    square = _inner(root.inputs[0])
    if square is None or square.opcode != "mul" or square.inputs[0] != square.inputs[1]:
        return None
    if square.maps[0] != square.maps[1] or square.maps[0] != square.maps[2]:
        return None
    scale = sdsc.constants_of(root.op)["scaling_factor"]
    return _reduction(root, square.inputs[0], "exx2_zeromean", root, exx2scale=scale)


def _absolute_maximum(root: Structured) -> ir.Value | None:
    """max(abs(x))  ->  absmax(x)."""
    if root.opcode not in _ABSOLUTE:
        return None
    inner = _inner(root.inputs[0])
    if inner is None or inner.opcode != "abs" or inner.maps[0] != inner.maps[1]:
        return None
    return _reduction(root, inner.inputs[0], _ABSOLUTE[root.opcode], root)


def _reduction(
    shape: Structured, source: ir.Value, opcode: str, at: Structured, **constants: float
) -> ir.Value:
    return device_op(
        opcode,
        [source],
        shape.maps[:1],
        shape.extents,
        element_of(at.result),
        location=at.op.location,
        reduced=shape.reduced,
        result_map=shape.maps[-1],
        constants=constants,
    )


# -- pointwise patterns -------------------------------------------------------------------------------


def _pointwise(root: Structured) -> ir.Value | None:
    rules = [rule for rule in RULES if rule[0][0] == root.opcode]
    if root.reduced or not rules:
        return None
    is_f32 = element_of(root.result) == "f32"
    for rule in rules:
        if not is_f32 or "IEEE_FP32" in DEVICE_OPS[rule[1]].formats:
            made = _apply(rule, root)
            if made is not None:
                return made
    return None


def _apply(rule: Rule, root: Structured) -> ir.Value | None:
    """The fused operation if the rule's pattern is rooted here."""
    pattern, opcode, operands, constants = rule
    for bound in _match(pattern, root, tuple(range(len(root.iterators))), {}):
        if not all(name in bound for name in operands):
            continue
        found = [bound[name] for name in operands]
        numbers = {name: value for name, value in bound.items() if isinstance(value, float)}
        return device_op(
            opcode,
            [value for value, _ in found],
            [dims for _, dims in found],
            root.extents,
            element_of(root.result),
            location=root.op.location,
            result_map=root.maps[-1],
            constants=constants(numbers) if constants else None,
        )
    return None


def _match(pattern: tuple, op: Structured, dims: Map, bound: dict):
    """Yields the bindings under which ``pattern`` is ``op``, its iteration dims being ``dims`` of the root's."""
    opcode, *operands = pattern
    opcode = opcode.removeprefix(_SHARED)
    if opcode != op.opcode or op.reduced or len(operands) != len(op.inputs):
        return
    orders = itertools.permutations(range(len(operands))) if opcode in _COMMUTES else [range(len(operands))]
    for order in orders:
        yield from _match_operands([(operands[at], op, index) for index, at in enumerate(order)], dims, bound)


def _match_operands(todo: list, dims: Map, bound: dict):
    if not todo:
        yield bound
        return
    (pattern, op, index), *rest = todo
    value = op.inputs[index]
    where = tuple(None if dim is None else dims[dim] for dim in op.maps[index])
    for extended in _match_value(pattern, value, where, bound):
        yield from _match_operands(rest, dims, extended)


def _match_value(pattern: Pattern, value: ir.Value, where: Map, bound: dict):
    if isinstance(pattern, tuple):
        inner = _inner(value, may_be_shared=pattern[0].startswith(_SHARED))
        if inner is not None and inner.maps[-1] == tuple(range(len(where))):
            yield from _match(pattern, inner, where, bound)
    elif isinstance(pattern, float):
        constant = _constant(value)
        if constant is not None and abs(constant - pattern) <= 1e-3 * abs(pattern):
            yield bound
    elif pattern.startswith("?"):
        constant = _constant(value)
        if constant is not None and bound.get(pattern, constant) == constant:
            yield {**bound, pattern: constant}
    elif bound.get(pattern, (value, where)) == (value, where):
        yield {**bound, pattern: (value, where)}


def _inner(value: ir.Value, may_be_shared: bool = False) -> Structured | None:
    """The device operation that makes a value which nobody else reads, unless it may be shared."""
    owner = defining_op(value)
    if owner is None or sdsc.opcode_of(owner) is None:
        return None
    return structured(owner) if may_be_shared or _has_one_reader(value) else None


def _has_one_reader(value: ir.Value) -> bool:
    """Stops at the second reader: a value may have thousands, and each of them asks."""
    uses = iter(value.uses)
    first = next(uses, None)
    return first is not None and all(use.owner.operation == first.owner.operation for use in uses)


def _constant(value: ir.Value) -> float | None:
    """The number that a rank-0 constant holds."""
    owner = defining_op(value)
    if owner is None or owner.name != "arith.constant" or not isinstance(value.type, ir.RankedTensorType):
        return None
    attr = owner.attributes["value"]
    return float(attr.get_splat_value().value) if attr.is_splat else None
