# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks the states of padding and the masks of the level *laid out*."""

from __future__ import annotations

from typing import ClassVar

from spyre_mlir.analysis.aliasing import AliasAnalysis, all_ops, argument_attributes, is_compute
from spyre_mlir.analysis.loops import initial_of
from spyre_mlir.analysis.view_ops import VIEWS, step_of
from spyre_mlir.diagnostics import error_at
from spyre_mlir.dialects import sdsc, stick
from spyre_mlir.dialects.structured import defining_op, shape_of, structured
from spyre_mlir.layout.padding import UNDEFINED, State, States, state_text
from spyre_mlir.layout.view_transforms import Collapse, Expand, Slice, Slide, Transpose, ViewTransform
from spyre_mlir.mlir import ir
from spyre_mlir.passes.base import Pass
from spyre_mlir.records import dataclass
from spyre_mlir.target.ops import NEUTRAL


@dataclass(frozen=True)
class VerifyPadding(Pass):
    """Check that each padded dim of a buffer has a state, each need is met by a state or a mask, and no mask is idle.

    The checks use only the IR, independently of ``resolve-padding``: each position beyond the shape of an operand is
    traced by its logical index through views to its buffer. The padding of arguments and constants is taken
    from the host's attributes; the pass checks that an operation leaves the padding of its result undefined.

    Before and after: level *laid out*, padding resolved.
    """

    name: ClassVar[str] = "verify-padding"
    is_evaluated: ClassVar[bool] = False

    def run_on(self, func: ir.Operation) -> None:
        _PaddingCheck(func).run()


class _PaddingCheck:
    def __init__(self, func: ir.Operation) -> None:
        self.func, self.memory = func, AliasAnalysis(func)
        self.states: dict[ir.Value, States] = {}

    def run(self) -> None:
        arguments = list(self.func.regions[0].blocks[0].arguments)
        for value, attributes in zip(arguments, argument_attributes(self.func), strict=True):
            self._check_states(self.func, value, stick.padding_of(attributes))
        for op in all_ops(self.func):
            if op.name == "arith.constant" and isinstance(op.results[0].type, ir.RankedTensorType):
                self._check_states(op, op.results[0], stick.padding_of(op.attributes))
            elif is_compute(op):
                states = stick.padding_of(op.attributes)
                self._check_states(op, op.results[0], states)
                for dim, state in states.items():
                    if state is not UNDEFINED:
                        text = f"no operation writes padding: d{dim} is undefined, not {state_text(state)}"
                        raise error_at(op, text)
                self._check_masks(op)

    # -- states ---------------------------------------------------------------------------------------

    def _check_states(self, op: ir.Operation, value: ir.Value, states: States) -> None:
        """Check that exactly the padded dims have a state."""
        padding = self.memory.layout(value).padding
        for dim in states:
            if dim >= len(padding) or not padding[dim]:
                raise error_at(op, f"'{stick.PADDING}' has a state for d{dim}, which has no padding")
        for dim, count in enumerate(padding):
            if count and dim not in states:
                raise error_at(op, f"the padding of d{dim} has no state; run resolve-padding first")
        self.states[value] = states

    # -- masks ----------------------------------------------------------------------------------------

    def _check_masks(self, op: ir.Operation) -> None:
        opcode, masks = sdsc.opcode_of(op) or op.name, sdsc.masks_of(op)
        unmet = self._unmet(op, NEUTRAL[opcode]) if opcode in NEUTRAL else {}
        for dim, problem in unmet.items():
            if dim not in masks:
                raise error_at(op, f"{problem} and reaches the result of '{opcode}'; expected a mask")
            if masks[dim] != NEUTRAL[opcode]:
                expected, actual = state_text(NEUTRAL[opcode]), state_text(masks[dim])
                raise error_at(op, f"the mask of d{dim} reads as {actual}; '{opcode}' needs {expected}")
        for dim in sorted(masks.keys() - unmet.keys()):
            text = f"the mask of d{dim} is redundant: no padding there changes the result of '{opcode}'"
            raise error_at(op, text)

    def _unmet(self, op: ir.Operation, neutral: float) -> dict[int, str]:
        """Return the reduced dims whose padding is not neutral in some operand, each with a text about its state."""
        _, space, _ = self.memory.space(op)
        generic = structured(op)
        assert generic is not None
        problems: dict[int, str] = {}
        for dim in sorted(space.reduced):
            positions = range(space.sizes[dim], space.padded[dim])
            for operand, (value, dims) in enumerate(zip(generic.inputs, generic.maps, strict=False)):
                if not positions or dim not in dims:
                    continue
                # Indices that are 0 in all other dims.
                before, after = dims.index(dim), len(dims) - dims.index(dim) - 1
                indices = ((*[0] * before, position, *[0] * after) for position in positions)
                states = {self._state_at(value, index) for index in indices}
                state = states.pop() if len(states) == 1 else UNDEFINED
                if state != neutral:
                    where = f"d{dim} {positions[0]}..{positions[-1]} of operand {operand + 1}"
                    problems.setdefault(dim, f"padding {where} is {state_text(state)}")
        return problems

    def _state_at(self, value: ir.Value, index: tuple[int, ...]) -> State:
        """Return the padding state at an index inside or beyond a value's shape; UNDEFINED for a buffer's element."""
        while True:
            op, initial = defining_op(value), initial_of(value)
            if initial is not None:
                value = initial
            elif op is not None and op.name in VIEWS:
                value = op.operands[0]
                index = source_index(step_of(op), index, shape_of(value))
            else:
                break
        states = self.states.get(value, {})
        bounds = enumerate(zip(index, shape_of(value), strict=True))
        beyond = {states.get(dim, UNDEFINED) for dim, (position, size) in bounds if position >= size}
        return beyond.pop() if len(beyond) == 1 else UNDEFINED


def source_index(step: ViewTransform, index: tuple[int, ...], source: tuple[int, ...]) -> tuple[int, ...]:
    """Return the index in the source for an index in a view; for a slice that moves with a loop, in iteration 0.

    In later iterations the index is further along the same dim, so an index beyond the shape stays beyond it.
    """
    match step:
        case Transpose(permutation):
            return tuple(index[permutation.index(dim)] for dim in range(len(source)))
        case Slice(offsets, _, steps, dropped):
            remaining = iter(index)
            moves = enumerate(zip(offsets, steps, strict=True))
            return tuple(
                start + (0 if dim in dropped else next(remaining)) * by for dim, (start, by) in moves
            )
        case Slide():
            return step.source_index(index)
        case Expand(groups, shape):
            # The row-major position of the index of each group.
            positions = [0] * len(groups)
            for number, group in enumerate(groups):
                for dim in group:
                    positions[number] = positions[number] * shape[dim] + index[dim]
            return tuple(positions)
        case Collapse(groups):
            # The row-major index of each position. A position beyond a group exceeds its outermost dim above size 1.
            parts = [0] * len(source)
            for position, group in zip(index, groups, strict=True):
                outermost = next((dim for dim in group if source[dim] > 1), group[-1])
                for dim in reversed(range(outermost + 1, group[-1] + 1)):
                    position, parts[dim] = divmod(position, source[dim])
                parts[outermost] = position
            return tuple(parts)
    raise TypeError(f"{type(step).__name__} is not a view")
