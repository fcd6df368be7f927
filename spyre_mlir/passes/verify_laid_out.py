# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks the level *laid out*."""

from __future__ import annotations

from typing import ClassVar

from spyre_mlir.analysis.aliasing import COPIES, AliasAnalysis, all_ops, is_compute
from spyre_mlir.analysis.view_ops import VIEWS, view_of
from spyre_mlir.diagnostics import error_at
from spyre_mlir.dialects import stick
from spyre_mlir.layout import BufferView, ViewError
from spyre_mlir.layout.rules import RULES, stick_violation, violation
from spyre_mlir.layout.space import Space
from spyre_mlir.mlir import ir
from spyre_mlir.passes.base import Pass
from spyre_mlir.records import dataclass
from spyre_mlir.target.ops import Kind


@dataclass(frozen=True)
class VerifyLaidOut(Pass):
    """Check that every device tensor has a layout, views compose, and every op's stick rules hold.

    The stick rules are in ``layout.rules``. A dim that is in the stick of any operand is padded to whole sticks in
    all operands.
    """

    name: ClassVar[str] = "verify-laid-out"
    is_evaluated: ClassVar[bool] = False

    def run_on(self, func: ir.Operation) -> None:
        for argument in func.regions[0].blocks[0].arguments:
            if not stick.has_layout(argument.type):
                raise error_at(
                    func,
                    f"argument of type {argument.type} has no #stick.layout; run choose-layouts first",
                )
        memory = AliasAnalysis(func)
        for op in all_ops(func):
            for value in op.results:
                if isinstance(value.type, ir.RankedTensorType):
                    memory.layout(value)
            try:
                if op.name in VIEWS:
                    composed = view_of(op, memory.place(op.operands[0]).view).layout
                    # Both maps are normalized as maps of whole buffers: neighbouring digits of a view of a slice
                    # are not adjacent in memory, and stay separate.
                    expected, declared = (
                        BufferView.of(layout).layout for layout in (composed, memory.layout(op.results[0]))
                    )
                    if (expected.digits, expected.shape) != (declared.digits, declared.shape):
                        text = "the result's layout is not the composition of the view"
                        raise error_at(op, f"{text}; expected {stick.affine_map(composed)}")
                elif is_compute(op):
                    opcode, space, _ = memory.space(op)
                    _check_sticks(op, opcode, space)
            except ViewError as error:
                raise error_at(op, f"'{op.name}' between these layouts is not a view: {error}") from error


def _check_sticks(op: ir.Operation, opcode: str, space: Space) -> None:
    """Check that all operands are padded to whole sticks, and that the op obeys its stick rules."""
    for view, present in zip(space.views, space.present, strict=True):
        for dim in present:
            capacity = max((axis.divisor * axis.size for axis in view.axes if axis.dim == dim), default=1)
            capacity = max(capacity, view.stick_elements(dim))
            if capacity < space.padded[dim]:
                needed = f"{space.padded[dim]} positions (whole sticks)"
                raise error_at(op, f"dim {dim} needs a capacity of {needed}, not {capacity}")
    if op.name in COPIES:
        # A copy keeps the stick dims; only a restickify exchanges its single stick dim.
        source, result = space.views
        if source.stick_axes != result.stick_axes:
            text = f"'{op.name}' breaks a stick rule: input 1 has dims {list(source.stick_dims)} in the stick, the "
            text += f"result has {list(result.stick_dims)}: {RULES[Kind.RESTICKIFY].sentence}"
            raise error_at(op, text)
        return
    for index, view in enumerate(space.views):
        reason = view.why_not_addressable()
        if reason:
            raise error_at(op, f"operand {index} of '{opcode}' cannot be addressed: {reason}")
    sticks = tuple(tuple((axis.dim, axis.size) for axis in view.stick_axes) for view in space.views)
    problem = stick_violation(opcode, space.iteration, sticks)
    problem = problem or violation(opcode, space.iteration, [view.main_stick_dim for view in space.views])
    if problem:
        raise error_at(op, f"'{opcode}' breaks a stick rule: {problem}")
