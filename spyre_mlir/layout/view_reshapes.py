# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Reshapes of views: groups of adjacent dims as one dim, and one dim as a group, without moving a byte.

The shapes that ``tensor.collapse_shape`` and ``tensor.expand_shape`` give. A reshape that cuts sticks, or pieces in
which a dim lies, is a ``ViewError`` with the reason.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from spyre_mlir.layout.view import Axis, BufferView, ViewError, required_dim


def collapse(view: BufferView, groups: Sequence[Sequence[int]]) -> BufferView:
    """Return the view where groups of adjacent dims are one dim each (tensor.collapse_shape)."""
    target: dict[int, tuple[int, int]] = {}
    shape = []
    for result, group in enumerate(groups):
        weight = 1
        for dim in reversed(group):
            target[dim] = (result, weight)
            weight *= view.shape[dim]
        shape.append(weight)
    # Padding of any dim but the outermost of a group would lie between elements of the one dim.
    first = {next((d for d in group if view.shape[d] > 1), None) for group in groups}
    for dim in view.stick_dims:
        _check_stick_collapses(view, dim, first, target, shape)
    axes = []
    for axis in view.axes:
        if axis.dim not in first and view.shape[axis.dim] % (axis.divisor * axis.size):
            raise ViewError(
                f"dim {axis.dim} of size {view.shape[axis.dim]} is padded and not outermost in its group"
            )
        result, weight = target[axis.dim]
        axes.append(Axis(result, axis.divisor * weight, axis.size, axis.stride))
    return replace(
        view,
        shape=tuple(shape),
        axes=tuple(axes),
        stick_dim=None if view.stick_dim is None else target[view.stick_dim][0],
        stick_axes=tuple(replace(axis, dim=target[axis.dim][0]) for axis in view.stick_axes),
    ).canonical()


def _check_stick_collapses(
    view: BufferView,
    dim: int,
    first: set[int | None],
    target: dict[int, tuple[int, int]],
    shape: Sequence[int],
) -> None:
    result, weight = target[dim]
    merged = [other for other in view.stick_dims if target[other][0] == result]
    if len(merged) > 1:
        raise ViewError(f"stick dims {merged} cannot become one dim")
    if weight != 1:
        raise ViewError(f"stick dim {dim} is not the innermost of its group")
    if dim not in first and shape[result] > 1 and view.shape[dim] % view.stick_elements(dim):
        raise ViewError(f"stick dim {dim} of size {view.shape[dim]} is padded inside its group")


def expand(view: BufferView, groups: Sequence[Sequence[int]], shape: Sequence[int]) -> BufferView:
    """Return the view where each dim is a group of adjacent dims (tensor.expand_shape)."""
    weights: dict[int, int] = {}
    for group in groups:
        weight = 1
        for dim in reversed(group):
            weights[dim] = weight
            weight *= shape[dim]
    where = {dim: _expanded_stick(view, dim, groups[dim], shape) for dim in view.stick_dims}
    axes = [part for axis in view.axes for part in _split(axis, groups[axis.dim], shape, weights)]
    return replace(
        view,
        shape=tuple(shape),
        axes=tuple(axes),
        stick_dim=None if view.stick_dim is None else where[view.stick_dim],
        stick_axes=tuple(replace(axis, dim=where[axis.dim]) for axis in view.stick_axes),
    ).canonical()


def _expanded_stick(view: BufferView, dim: int, group: Sequence[int], shape: Sequence[int]) -> int:
    """The dim of a group that the elements in the stick belong to: the innermost that has several."""
    sized = [part for part in group if shape[part] > 1]
    if len(sized) > 1 and shape[sized[-1]] % view.stick_elements(dim):
        raise ViewError(f"expanding the stick dim cuts sticks: inner size {shape[sized[-1]]}")
    return sized[-1] if sized else group[-1]


def drop_dims(view: BufferView, dims: Sequence[int]) -> BufferView:
    """Return the view without these dims of size 1 (a rank-reduced slice)."""
    remaining = [dim for dim in range(len(view.shape)) if dim not in dims]
    where = {dim: new for new, dim in enumerate(remaining)}
    axes = tuple(replace(axis, dim=where[axis.dim]) for axis in view.axes if axis.dim in where)
    stick_axes = tuple(
        replace(axis, dim=required_dim(where.get(axis.dim), axis.dim)) for axis in view.stick_axes
    )
    stick_dim = None if view.stick_dim is None else where[view.stick_dim]
    shape = tuple(view.shape[dim] for dim in remaining)
    return replace(view, shape=shape, axes=axes, stick_dim=stick_dim, stick_axes=stick_axes)


def _split(axis: Axis, group: Sequence[int], shape: Sequence[int], weights: dict[int, int]) -> list[Axis]:
    """The parts of one digit that fall to each dim of an expanded group."""
    low, high = axis.divisor, axis.divisor * axis.size
    sized = [dim for dim in group if shape[dim] > 1]
    parts = []
    for dim in sized:
        begin = weights[dim]
        # The padding of the old dim goes to the outermost of the new ones.
        end = begin * shape[dim] if dim != sized[0] else max(high, begin * shape[dim])
        lo, hi = max(low, begin), min(high, end)
        if lo >= hi:
            continue
        if lo % begin or lo % low or hi % lo:
            raise ViewError(
                f"sizes {[shape[d] for d in group]} do not fall on tiles of {axis.divisor} x {axis.size}"
            )
        parts.append(Axis(dim, lo // begin, hi // lo, axis.stride * (lo // low)))
    for boundary in (weights[dim] for dim in sized[:-1]):
        if low < boundary < high and (boundary % low or high % boundary):
            raise ViewError(
                f"sizes {[shape[d] for d in group]} do not fall on tiles of {axis.divisor} x {axis.size}"
            )
    return parts
