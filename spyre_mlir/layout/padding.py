"""What the padding of a tensor holds, and which operations need to know.

The *state* of a padded dim is a number, or ``UNDEFINED``: what lies there must reach no result. Padding is
written by the host alone, and only if it says so. A device operation leaves the padding of its result
undefined, copies included: lanes and rows beyond the shape hold garbage after it (docs/layouts.md; the simulator
overwrites them with poison). The empty lanes of a stick-sparse tensor belong to no dim and are undefined.

A view has no padding of its own. A position beyond its shape is one of its buffer: in the buffer's padding,
or another element, as behind the end of a slice.

Reductions over the stick and matmuls read padding, which must be neutral to them. What is not is masked:
every dim of a need is a dim of the iteration, and all needs of an operation are for one number, so that
``coordinateMasking_`` and its one constant can always say it. Nothing is ever filled by an operation.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass

from spyre_mlir.layout.roles import Iteration
from spyre_mlir.layout.rules import RULES, Form, neutral_padding
from spyre_mlir.layout.space import Space
from spyre_mlir.layout.stick_layout import StickLayout
from spyre_mlir.layout.view import BufferView
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
    """The states of a tensor whose padding is the same everywhere; {} if it has none."""
    return {dim: state for dim, count in enumerate(layout.padding) if count}


def is_scattered(layout: StickLayout) -> bool:
    """Whether padding of a dim lies between elements that a copy takes by pieces of the dim, and so reads."""
    return any(
        count and sum(digit.dim == dim for digit in layout.outer_digits) > 1
        for dim, count in enumerate(layout.padding)
    )


def why_not_made(layout: StickLayout) -> str | None:
    """Why no operation makes a tensor of a layout, if padding lies between its elements; None if one may."""
    if not is_scattered(layout):
        return None
    return (
        f"has padding between the elements of {list(layout.shape)}, which the host alone writes: only arguments may "
        f"have it, or the stick dims {list(layout.tiled_dims)} have to be whole sticks of {layout.elements_per_stick}"
    )


def state_text(state: State) -> str:
    """``undefined``, or the number."""
    return "undefined" if state is UNDEFINED else f"{state:g}"


def needs(opcode: str, space: Space) -> tuple[Need, ...]:
    """What an operation needs of the padding of its operands, in operand order (``rules.neutral_padding``)."""
    if not reads_padding(opcode):
        return ()
    dtypes = tuple(view.dtype for view in space.views)
    iteration = Iteration(space.sizes, space.present, space.reduced, dtypes)
    form = Form(opcode, tuple(view.main_lane for view in space.views), tuple(range(len(dtypes) - 1)), ())
    return tuple(
        Need(operand, dim, range(space.sizes[dim], space.padded[dim]), NEUTRAL[opcode])
        for operand, dim in neutral_padding(iteration, form)
    )


@functools.cache
def reads_padding(opcode: str) -> bool:
    """Whether padding can reach the result of an operation."""
    return opcode in KINDS and RULES[KINDS[opcode]].neutral is not None


def held(layout: StickLayout, states: States, view: BufferView, dim: int, positions: range) -> State:
    """What an operand holds at ``positions`` of iteration dim ``dim``, for all valid indices of its other dims.

    ``view`` is that of the operand over the iteration dims, in a buffer of ``layout`` and ``states``. A number
    if all is padding of the buffer and holds it. The other dims only move further along the dims of the
    buffer: what is padding with them at 0 stays padding.
    """
    if all(state is UNDEFINED for state in states.values()):
        return UNDEFINED
    found = {_state_at(layout, states, _offset(view, dim, position)) for position in positions}
    return found.pop() if len(found) == 1 else UNDEFINED


def _offset(view: BufferView, dim: int, position: int) -> int:
    """Elements from the start of the buffer to a position of one dim, the others at 0."""
    offset = view.offset
    if view.stick_axes:
        offset += sum(position % axis.size * axis.stride for axis in view.stick_axes if axis.dim == dim)
    elif dim == view.lane:
        offset += position % view.elements_per_stick
    steps = (position // axis.divisor * axis.stride for axis in view.axes if axis.dim == dim)
    return offset + sum(steps)


def _state_at(layout: StickLayout, states: States, offset: int) -> State:
    """What a buffer holds so many elements from its start; an element of it, too, is UNDEFINED."""
    sizes = zip(layout.device_strides, layout.device_size, strict=True)
    coordinate = [offset // stride % size for stride, size in sizes]
    if layout.stick_dim is None and coordinate[-1]:
        return UNDEFINED
    beyond = [dim for dim, size in enumerate(layout.shape) if layout.position(dim, coordinate) >= size]
    found = {states.get(dim, UNDEFINED) for dim in beyond}
    return found.pop() if len(found) == 1 else UNDEFINED
