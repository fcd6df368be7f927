# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Contents of the padding of tensors, and the operations that depend on them.

The *state* of a padded dim is a number, or ``UNDEFINED``: garbage that must not reach a result. Only the host
writes padding, and only on request. A device operation, a copy included, leaves the padding of its result
undefined: slots and rows beyond the shape hold garbage afterwards (docs/layouts.md; the simulator
overwrites them with poison). The empty slots of a stick-sparse tensor belong to no dim and are undefined.

A view does not have padding. A position beyond the shape of the view is a position of its buffer: padding of the
buffer, or another element, for example after the end of a slice.

Reductions over the stick and matmuls read padding, which must hold their neutral value; other padding is masked.
Every dim of a need is a dim of the iteration, and all needs of an operation are for one number, so that
``coordinateMasking_`` with its one constant can always express the mask. An operation never fills padding.
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

#: The number that all positions of a padded dim hold, or ``UNDEFINED``.
State = float | None
UNDEFINED: State = None

#: The state of each padded dim of a tensor, ascending.
States = Mapping[int, State]


@dataclass(frozen=True)
class Need:
    """A requirement: ``positions`` of iteration dim ``dim``, which are padding, must hold ``value`` in an operand."""

    operand: int
    dim: int
    positions: range
    value: float


def uniform(layout: StickLayout, state: State) -> dict[int, State]:
    """Return the states of a tensor whose padding holds ``state`` everywhere; {} if the tensor has no padding."""
    return {dim: state for dim, count in enumerate(layout.padding) if count}


def is_scattered(layout: StickLayout) -> bool:
    """Return whether padding of a dim lies between elements of the dim, where a copy by pieces would read it."""
    return any(
        count and sum(digit.dim == dim for digit in layout.outer_digits) > 1
        for dim, count in enumerate(layout.padding)
    )


def why_not_made(layout: StickLayout) -> str | None:
    """Return why no operation can write a layout: padding between its elements. None if an operation can."""
    if not is_scattered(layout):
        return None
    return (
        f"has padding between the elements of {list(layout.shape)}, which only the host writes: only arguments may "
        f"have it, or the stick dims {list(layout.tiled_dims)} have to be whole sticks of {layout.elements_per_stick}"
    )


def state_text(state: State) -> str:
    """Return a state as text: ``undefined`` or the number."""
    return "undefined" if state is UNDEFINED else f"{state:g}"


def needs(opcode: str, space: Space) -> tuple[Need, ...]:
    """Return the padding values that an operation needs, by operand (``rules.neutral_padding``)."""
    if not reads_padding(opcode):
        return ()
    assignment = StickAssignment(
        opcode, tuple(view.main_stick_dim for view in space.views), tuple(range(len(space.views) - 1)), ()
    )
    return tuple(
        Need(operand, dim, range(space.sizes[dim], space.padded[dim]), NEUTRAL[opcode])
        for operand, dim in neutral_padding(space.iteration, assignment, space.padded)
    )


@functools.cache
def reads_padding(opcode: str) -> bool:
    """Return whether padding can reach the result of an operation."""
    return opcode in KINDS and RULES[KINDS[opcode]].neutral is not None


def operand_padding(
    layout: StickLayout, states: States, view: BufferView, dim: int, positions: range
) -> State:
    """Return the state of an operand at ``positions`` of iteration dim ``dim``, for all indices of its other dims.

    ``view`` is the view of the operand over the iteration dims, in a buffer of ``layout`` and ``states``. The state is
    a number if all these positions are padding of the buffer and hold this number.
    """
    # Larger indices of other dims only go further along the dims of the buffer: padding at index 0 stays padding.
    if all(state is UNDEFINED for state in states.values()):
        return UNDEFINED
    values = set()
    for position in positions:
        steps = (position // axis.divisor * axis.stride for axis in view.axes if axis.dim == dim)
        offset = view.offset + sum(steps)
        if view.stick_axes:
            offset += sum(position % axis.size * axis.stride for axis in view.stick_axes if axis.dim == dim)
        elif dim == view.stick_dim:
            offset += position % view.elements_per_stick
        values.add(_state_at(layout, states, offset))
    return values.pop() if len(values) == 1 else UNDEFINED


def _state_at(layout: StickLayout, states: States, offset: int) -> State:
    """Return the state of a buffer at ``offset`` elements; elements of the tensor are UNDEFINED, like garbage."""
    sizes = zip(layout.device_strides, layout.device_size, strict=True)
    coordinate = [offset // stride % size for stride, size in sizes]
    if layout.stick_dim is None and coordinate[-1]:
        return UNDEFINED
    beyond = [dim for dim, size in enumerate(layout.shape) if layout.position(dim, coordinate) >= size]
    # A corner is padding of several dims at once: it has a state only if the states of these dims are equal.
    values = {states.get(dim, UNDEFINED) for dim in beyond}
    return values.pop() if len(values) == 1 else UNDEFINED
