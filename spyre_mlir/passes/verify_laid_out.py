"""Checks the level *laid out*."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from spyre_mlir.dialects import sdsc, stick
from spyre_mlir.layout import BufferView, ViewError
from spyre_mlir.layout.space import Space
from spyre_mlir.mlir import ir
from spyre_mlir.passes._memory import Memory, body_of, functions, is_compute
from spyre_mlir.passes._terms import fail
from spyre_mlir.passes._view_ops import VIEWS, view_of
from spyre_mlir.passes.base import Pass
from spyre_mlir.target.ops import DEVICE_OPS, Kind


@dataclass(frozen=True)
class VerifyLaidOut(Pass):
    """Every device tensor has a layout, views compose, and every op's stick rules hold.

    Stick rules (layouts.md): one stick for all operands of a pointwise op; a reduction over the stick has
    only that dim and gives a sparse result, one over others keeps its stick; matmul input 1 sticks on the
    contracted dim, input 2 and the result on the columns. A dim in any operand's stick has room for whole
    sticks in all of them.
    """

    name: ClassVar[str] = "verify-laid-out"

    def run(self, module: ir.Operation) -> None:
        for func in functions(module):
            for argument in func.regions[0].blocks[0].arguments:
                if stick.layout_of(argument.type) is None:
                    raise fail(func, f"argument of type {argument.type} has no #stick.layout")
            memory = Memory(func)
            for op in body_of(func):
                _check(memory, op)


def _check(memory: Memory, op: ir.Operation) -> None:
    for value in op.results:
        if isinstance(value.type, ir.RankedTensorType):
            memory.layout(value)
    try:
        if op.name in VIEWS:
            _check_view(memory, op)
        elif is_compute(op):
            opcode, space, _ = memory.space(op)
            _check_room(op, space)
            if sdsc.opcode_of(op) is not None:
                _check_sticks(op, opcode, space)
    except ViewError as error:
        raise fail(op, f"'{op.name}' between these layouts is no view: {error}") from error


def _check_view(memory: Memory, op: ir.Operation) -> None:
    composed = view_of(op, memory.place(op.operands[0]).view).layout
    given = BufferView.of(memory.layout(op.results[0])).layout
    if (composed.digits, composed.shape) != (given.digits, given.shape):
        raise fail(
            op,
            f"the result's layout is not the composition of the view; expected {stick.affine_map(composed)}",
        )


def _check_room(op: ir.Operation, space: Space) -> None:
    for view, present in zip(space.views, space.present, strict=True):
        for dim in present:
            room = max((axis.divisor * axis.size for axis in view.axes if axis.dim == dim), default=1)
            room = max(room, view.elements_per_stick if view.lane == dim else 1)
            if room < space.padded[dim]:
                raise fail(
                    op, f"dim {dim} needs room for {space.padded[dim]} positions (whole sticks), not {room}"
                )


def _check_sticks(op: ir.Operation, opcode: str, space: Space) -> None:
    for index, view in enumerate(space.views):
        reason = view.why_not_plain()
        if reason:
            raise fail(op, f"operand {index} of '{opcode}' cannot be addressed: {reason}")
    lanes = [view.lane for view in space.views]
    kind = DEVICE_OPS[opcode].kind
    problem = _RULES[kind](lanes, space) if kind in _RULES else None
    if problem:
        raise fail(op, f"'{opcode}' breaks a stick rule: {problem}")


def _pointwise(lanes: list[int | None], space: Space) -> str | None:
    output = lanes[-1]
    for index, (lane, present) in enumerate(zip(lanes, space.present, strict=True)):
        has = output in present and output is not None and space.sizes[output] > 1
        if lane != (output if has else None):
            return f"operand {index} has dim {lane} in the stick, the result has {output}"
    return None


def _reduce_stick(lanes: list[int | None], space: Space) -> str | None:
    if set(space.reduced) != {lanes[0]}:
        return f"it reduces dims {sorted(space.reduced)}, the stick of its operand is dim {lanes[0]}"
    return None if lanes[1] is None else "its result must be sparse"


def _reduce_other(lanes: list[int | None], space: Space) -> str | None:
    if lanes[0] in space.reduced:
        return f"dim {lanes[0]} is reduced and in the stick"
    return None if lanes[0] == lanes[1] else "its result must keep the stick of its operand"


def _matmul(lanes: list[int | None], space: Space) -> str | None:
    if {lanes[0]} != set(space.reduced):
        return f"input 1 has dim {lanes[0]} in the stick, not the contracted one"
    if lanes[1] is None or lanes[1] in space.present[0]:
        return "input 2 must have its columns in the stick"
    return None if lanes[2] == lanes[1] else "the result must have the columns in the stick"


_RULES = {
    Kind.POINTWISE: _pointwise,
    Kind.CAST: _pointwise,
    Kind.REDUCE_STICK: _reduce_stick,
    Kind.REDUCE_OTHER: _reduce_other,
    Kind.MATMUL: _matmul,
}
