# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Producer candidates: the layouts in which an operation can write its result, and the orders worth trying."""

from __future__ import annotations

import functools
from collections.abc import Sequence

from spyre_mlir.layout.stick_layout import elements_per_stick
from spyre_mlir.layout.view_transforms import Slice, ViewTransform
from spyre_mlir.layout_search.layout_candidates import (
    LayoutCandidate,
    default_candidates,
    distinct,
    image,
    ordered,
)
from spyre_mlir.layout_search.op_layouts import OpLayout
from spyre_mlir.layout_search.states import ProducedLayout, produced_layout
from spyre_mlir.layout_search.tensor_graph import InsertSliceBuffer, OpSignature
from spyre_mlir.target.ops import DEVICE_OPS, Kind
from spyre_mlir.target.target import Target

#: The number of orders of the non-stick dims that are tried for the result of one op layout.
_MAX_ORDERS = 3


def sized(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the dims of more than one element."""
    return tuple(dim for dim, size in enumerate(shape) if size > 1)


def last_dim(shape: tuple[int, ...]) -> int | None:
    """Return the default stick dim: by convention the last dim, even if this dim has size 1."""
    return len(shape) - 1 if shape else None


@functools.lru_cache(maxsize=1 << 12)
def is_batched(signature: OpSignature) -> bool:
    """Return whether an operation is a matmul with batch dims."""
    iteration = signature.iteration
    product = DEVICE_OPS[signature.opcode].kind is Kind.MATMUL
    return product and bool(iteration.present[0] & iteration.present[1] - iteration.reduced)


@functools.lru_cache(maxsize=1 << 12)
def single_stick_dims(op_layouts: tuple[OpLayout, ...], position: int) -> tuple[int | None, ...]:
    """Return the stick dims of an operand in the op layouts whose stick for it holds one dim (None: sparse)."""
    return tuple(
        dict.fromkeys(layout.stick_dims[position] for layout in op_layouts if not layout.sticks[position])
    )


@functools.lru_cache(maxsize=1 << 12)
def viewable(
    target: Target, step: ViewTransform, shape: tuple[int, ...], dtype: str, stick_outermost: bool
) -> tuple[int | None, ...]:
    """Return the stick dims with which a view operation needs no data movement in some order; else (None,): sparse."""

    def legal(dim: int) -> bool:
        """Test the orders of one stick dim."""
        candidates = default_candidates(target, shape, dtype, dim, stick_outermost)
        return any(image(step, candidate) for candidate in candidates)

    return tuple(filter(legal, sized(shape))) or (None,)


def best_order(
    candidates: tuple[LayoutCandidate, ...], steps: Sequence[ViewTransform], batched: bool
) -> LayoutCandidate:
    """Return the order that most views accept and leave addressable; among equals, rows innermost if ``batched``."""
    if len(candidates) == 1:
        return candidates[0]
    preferred = tuple(reversed(candidates)) if batched else candidates
    if not steps:
        return preferred[0]

    def score(candidate: LayoutCandidate) -> int:
        """Count accepted views once, addressable ones twice."""
        images = (image(step, candidate) for step in steps)
        return sum(1 + view.addressable for view in images if view is not None)

    # ``max`` returns the first of equal candidates, so the order of ``preferred`` matters.
    return max(preferred, key=score)


def uncut(target: Target, node: InsertSliceBuffer) -> tuple[int, ...]:
    """Return the dims along which no inserted slice begins or ends inside a stick."""
    return _uncut_dims(target, node.shape, node.dtype, tuple(part.place for part in node.parts))


@functools.lru_cache(maxsize=1 << 10)
def _uncut_dims(
    target: Target, shape: tuple[int, ...], dtype: str, places: tuple[Slice, ...]
) -> tuple[int, ...]:
    per_stick = elements_per_stick(target, dtype)
    return tuple(
        dim
        for dim in sized(shape)
        if not any(place.cuts_sticks(dim, per_stick, shape[dim]) for place in places)
    )


@functools.lru_cache(maxsize=1 << 14)
def results(
    signature: OpSignature,
    op_layouts: tuple[OpLayout, ...],
    inputs: tuple[tuple[LayoutCandidate, ...], ...],
    requests: tuple[LayoutCandidate, ...],
    shape: tuple[int, ...],
    dtype: str,
    stick_outermost: bool,
) -> tuple[ProducedLayout, ...]:
    """Return for each op layout the orders of inputs, the requests, the default order and that with rows innermost."""
    produced: list[ProducedLayout] = []
    for op_layout in op_layouts:
        candidates = [
            *_inherited(signature, op_layout, inputs, shape, dtype),
            *default_candidates(
                signature.iteration.target, shape, dtype, op_layout.stick_dims[-1], stick_outermost
            ),
        ]
        # Inherited orders come first, so the limit drops default orders.
        stick_dim = op_layout.stick_dims[-1]
        requested = (request for request in requests if request.stick_dim == stick_dim)
        orders = distinct((*distinct(candidates)[:_MAX_ORDERS], *requested))
        produced += [produced_layout(result, op_layout) for result in orders]
    return tuple(produced)


def _inherited(
    signature: OpSignature,
    op_layout: OpLayout,
    inputs: tuple[tuple[LayoutCandidate, ...], ...],
    shape: tuple[int, ...],
    dtype: str,
) -> list[LayoutCandidate]:
    """Return the result in the order of each input that has all dims of the result, first input first."""
    stick_dim = op_layout.stick_dims[-1]
    if stick_dim is None:
        return []
    axis = {dim: k for k, dim in enumerate(signature.maps[-1]) if dim is not None}
    candidates = []
    for position, operands in enumerate(inputs):
        dims = signature.maps[position]
        if not set(axis) <= set(dims):
            continue
        for operand in operands:
            if operand.stick_dim == op_layout.stick_dims[position] and operand.addressable:
                order = [axis[dim] for dim in (dims[k] for k in operand.order) if dim in axis]
                candidates.append(ordered(signature.iteration.target, shape, dtype, stick_dim, tuple(order)))
    return candidates
