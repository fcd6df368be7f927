# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Contents of the padding of tensors, and the operations that depend on them.

The *state* of a padded dim is a number, or ``UNDEFINED``: garbage that must reach no result. Padding is
written by the host alone, and only if it says so. A device operation leaves the padding of its result
undefined, copies included: slots and rows beyond the shape hold garbage after it (docs/layouts.md; the simulator
overwrites them with poison). The empty slots of a stick-sparse tensor belong to no dim and are undefined.

A view has no padding of its own. A position beyond its shape is one of its buffer: in the buffer's padding,
or another element, as behind the end of a slice.

Reductions over the stick and matmuls read padding, which must be neutral to them; other padding is masked:
every dim of a need is a dim of the iteration, and all needs of an operation are for one number, so that
``coordinateMasking_`` and its one constant can always say it. Nothing is ever filled by an operation.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping

from spyre_mlir.layout.rules import RULES, StickAssignment, neutral_padding
from spyre_mlir.layout.space import Space
from spyre_mlir.layout.stick_layout import StickLayout
from spyre_mlir.layout.view import BufferView
from spyre_mlir.records import dataclass
from spyre_mlir.target.ops import KINDS, NEUTRAL

#: The number that all positions of some padding hold, or ``UNDEFINED``.
State = float | None
UNDEFINED: State = None

#: The state of each padded dim of a tensor, ascending.
States = Mapping[int, State]


@dataclass(frozen=True)
class Need:
    """``positions`` of iteration dim ``dim``, all of them padding, must hold ``value`` in an operand."""

    operand: int
    dim: int
    positions: range
    value: float


def uniform(layout: StickLayout, state: State) -> dict[int, State]:
    """Return the states of a tensor whose padding is the same everywhere; {} if it has none."""
    return {dim: state for dim, count in enumerate(layout.padding) if count}


def is_scattered(layout: StickLayout) -> bool:
    """Return whether padding of a dim lies between its elements, where a copy by pieces of the dim reads it."""
    return any(
        count and sum(digit.dim == dim for digit in layout.outer_digits) > 1
        for dim, count in enumerate(layout.padding)
    )


def why_not_made(layout: StickLayout) -> str | None:
    """Return why no operation writes a tensor of a layout, if padding lies between its elements; None if one may."""
    if not is_scattered(layout):
        return None
    return (
        f"has padding between the elements of {list(layout.shape)}, which the host alone writes: only arguments may "
        f"have it, or the stick dims {list(layout.tiled_dims)} have to be whole sticks of {layout.elements_per_stick}"
    )


def state_text(state: State) -> str:
    """Return a state as text: ``undefined``, or the number."""
    return "undefined" if state is UNDEFINED else f"{state:g}"


def needs(opcode: str, space: Space) -> tuple[Need, ...]:
    """Return the needs of an operation for the padding of its operands, by operand (``rules.neutral_padding``)."""
    if not reads_padding(opcode):
        return ()
    assignment = StickAssignment(
        opcode, tuple(view.main_stick_dim for view in space.views), tuple(range(len(space.views) - 1)), ()
    )
    return tuple(
        Need(operand, dim, range(space.sizes[dim], space.padded[dim]), NEUTRAL[opcode])
        for operand, dim in neutral_padding(space.iteration, assignment)
    )


@functools.cache
def reads_padding(opcode: str) -> bool:
    """Return whether padding can reach the result of an operation."""
    return opcode in KINDS and RULES[KINDS[opcode]].neutral is not None


def operand_padding(
    layout: StickLayout, states: States, view: BufferView, dim: int, positions: range
) -> State:
    """Return the state of an operand at ``positions`` of iteration dim ``dim``, for all indices of its other dims.

    ``view`` is that of the operand over the iteration dims, in a buffer of ``layout`` and ``states``. It is a number
    if all these elements are padding of the buffer and hold it.
    """
    # Other dims only move further along the dims of the buffer: padding with them at 0 stays padding.
    if all(state is UNDEFINED for state in states.values()):
        return UNDEFINED
    values = {_state_at(layout, states, _offset(view, dim, position)) for position in positions}
    return values.pop() if len(values) == 1 else UNDEFINED


def _offset(view: BufferView, dim: int, position: int) -> int:
    """Elements from the start of the buffer to a position of one dim, the others at 0."""
    offset = view.offset
    if view.stick_axes:
        offset += sum(position % axis.size * axis.stride for axis in view.stick_axes if axis.dim == dim)
    elif dim == view.stick_dim:
        offset += position % view.elements_per_stick
    steps = (position // axis.divisor * axis.stride for axis in view.axes if axis.dim == dim)
    return offset + sum(steps)


def _state_at(layout: StickLayout, states: States, offset: int) -> State:
    """The state of a buffer so many elements from its start; that of an element of the tensor is UNDEFINED, too."""
    sizes = zip(layout.device_strides, layout.device_size, strict=True)
    coordinate = [offset // stride % size for stride, size in sizes]
    if layout.stick_dim is None and coordinate[-1]:
        return UNDEFINED
    beyond = [dim for dim, size in enumerate(layout.shape) if layout.position(dim, coordinate) >= size]
    # A corner is padding of several dims at once: it has a state only where theirs are equal.
    values = {states.get(dim, UNDEFINED) for dim in beyond}
    return values.pop() if len(values) == 1 else UNDEFINED
