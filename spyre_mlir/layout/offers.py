"""The layouts that a node can make, and those that its readers may want."""

from __future__ import annotations

import functools
from collections.abc import Sequence

from spyre_mlir.layout.candidates import Candidate, distinct, image, ordered, plain_candidates
from spyre_mlir.layout.graph import Assembled, Signature
from spyre_mlir.layout.operations import Way
from spyre_mlir.layout.states import Own, owning
from spyre_mlir.layout.steps import Step
from spyre_mlir.layout.stick_layout import elements_per_stick
from spyre_mlir.target.ops import DEVICE_OPS, Kind

#: Orders of the non-stick dims that are tried for the result of one form.
_MOST_ORDERS = 3


def sized(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The dims of more than one element."""
    return tuple(dim for dim, size in enumerate(shape) if size > 1)


def last_dim(shape: tuple[int, ...]) -> int | None:
    """The default stick: the last dim, as the convention has it even where that has size 1."""
    return len(shape) - 1 if shape else None


@functools.lru_cache(maxsize=1 << 12)
def is_batched(signature: Signature) -> bool:
    """Whether an operation is a matmul with batch dims."""
    iteration = signature.iteration
    product = DEVICE_OPS[signature.opcode].kind is Kind.MATMUL
    return product and bool(iteration.present[0] & iteration.present[1] - iteration.reduced)


@functools.lru_cache(maxsize=1 << 12)
def lanes_of(possible: tuple[Way, ...], position: int) -> tuple[int | None, ...]:
    """The sticks of one dim that some way of an operation takes of an operand."""
    return tuple(dict.fromkeys(way.lanes[position] for way in possible if not way.sticks[position]))


@functools.lru_cache(maxsize=1 << 12)
def viewable(step: Step, shape: tuple[int, ...], dtype: str, stick_outermost: bool) -> tuple[int | None, ...]:
    """The sticks with which a view operation is a view in some order; sparse if there is none."""

    def legal(dim: int) -> bool:
        return any(image(step, held) for held in plain_candidates(shape, dtype, dim, stick_outermost))

    return tuple(filter(legal, sized(shape))) or (None,)


def best_order(found: tuple[Candidate, ...], steps: Sequence[object], batched: bool) -> Candidate:
    """The order that the most views accept and leave addressable; of equals, rows innermost if ``batched``."""
    if len(found) == 1:
        return found[0]
    preferred = tuple(reversed(found)) if batched else found
    if not steps:
        return preferred[0]

    def accepted(held: Candidate) -> int:
        images = [image(step, held) for step in steps]
        return sum(made is not None and 1 + made.plain for made in images)

    return max(preferred, key=accepted)


def uncut(node: Assembled) -> tuple[int, ...]:
    """The dims that no place of a part cuts inside a stick."""
    return _uncut_dims(node.shape, node.dtype, tuple(part.place for part in node.parts))


@functools.lru_cache(maxsize=1 << 10)
def _uncut_dims(shape: tuple[int, ...], dtype: str, places: tuple) -> tuple[int, ...]:
    per_stick = elements_per_stick(dtype)

    return tuple(
        dim
        for dim in sized(shape)
        if not any(place.cuts_sticks(dim, per_stick, shape[dim]) for place in places)
    )


@functools.lru_cache(maxsize=1 << 14)
def results(
    signature: Signature,
    possible: tuple[Way, ...],
    inputs: tuple[tuple[Candidate, ...], ...],
    shape: tuple[int, ...],
    dtype: str,
    stick_outermost: bool,
) -> tuple[Own, ...]:
    """Per way the orders that an input has, the default one, and the one with its rows innermost."""
    found: list[Own] = []
    for way in possible:
        lane = way.lanes[-1]
        layouts = [*_inherited(signature, way, inputs, shape, dtype)]
        layouts += plain_candidates(shape, dtype, lane, stick_outermost)
        found += [owning(held, way) for held in distinct(layouts)[:_MOST_ORDERS]]
    return tuple(found)


def _inherited(
    signature: Signature,
    way: Way,
    inputs: tuple[tuple[Candidate, ...], ...],
    shape: tuple[int, ...],
    dtype: str,
) -> list[Candidate]:
    """The result in the order of an input that has all its dims, first input first."""
    lane = way.lanes[-1]
    if lane is None:
        return []
    result = signature.maps[-1]
    where: dict[int | None, int] = {dim: at for at, dim in enumerate(result) if dim is not None}
    found = []
    for position, candidates in enumerate(inputs):
        dims = signature.maps[position]
        if not set(where) <= set(dims):
            continue
        for held in candidates:
            if held.lane == way.lanes[position] and held.plain:
                order = [where[dims[dim]] for dim in held.order if dims[dim] in where]
                found.append(ordered(shape, dtype, lane, tuple(order)))
    return found
