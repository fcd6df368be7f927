# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Writes of rows through a view of a cache, permuted or with other dims, as writes to the cache itself."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import torch
from torch.fx import Node

from spyre_mlir.frontend.graph_edits import call_before, operands_of
from spyre_mlir.records import dataclass

aten = torch.ops.aten

_RESHAPES = (aten.view.default, aten.reshape.default, aten._unsafe_view.default)


@dataclass(frozen=True)
class RowInsertion:
    """The operands of an ``insert_rows``: ``rows`` of size 1 in ``dims``, which rise, at positions in these."""

    dims: tuple[int, ...]
    indices: tuple[Node, ...]
    elements: tuple[tuple[int, ...], ...]  # of each index, one number for each row
    rows: tuple[Node, ...]
    negative: bool


def viewed_source(whole: Node) -> Node | None:
    """Return what ``whole`` puts back, if that is a write to a view that ``whole`` undoes; None without one."""
    if whole.target not in (aten.permute.default, *_RESHAPES):
        return None
    write = cast(Node, whole.args[0])
    if len(write.users) > 1 or write.op != "call_function" or not write.args:
        return None
    view = write.args[0]
    if not isinstance(view, Node) or view.target not in (aten.permute.default, *_RESHAPES):
        return None
    is_same = _shape(whole) == _shape(base_of(write)) and _shape(view) == _shape(write)
    if whole.target is aten.permute.default and view.target is aten.permute.default:
        order, back = _order(view), _order(whole)
        is_undone = [order[dim] for dim in back] == [*range(len(order))]
    else:
        is_undone = whole.target in _RESHAPES and view.target in _RESHAPES
    return write if is_same and is_undone else None


def base_of(write: Node) -> Node:
    """Return the tensor that a write to a view changes."""
    return cast(Node, cast(Node, write.args[0]).args[0])


def base_dims(write: Node, dims: Sequence[int]) -> list[list[int]] | None:
    """Return for each dim of a view the dims of the base that it is; None where it is no whole dims but the last."""
    view, base = cast(Node, write.args[0]), base_of(write)
    if view.target is aten.permute.default:
        parts = [[_order(view)[dim]] for dim in dims]
    else:
        parts = [_parts(_shape(view), _shape(base), dim) for dim in dims]
    is_addressed = all(part and len(_shape(base)) - 1 not in part for part in parts)
    return parts if is_addressed else None


def _parts(view: Sequence[int], base: Sequence[int], dim: int) -> list[int]:
    """Return the dims in a row of the base that one dim of a reshape is; none where there are no such."""
    before, end = math.prod(view[:dim]), math.prod(view[: dim + 1])
    first = next((d for d in range(len(base)) if math.prod(base[:d]) == before and base[d] > 1), None)
    if first is None:
        return []
    last = next((d for d in range(first, len(base)) if math.prod(base[: d + 1]) == end), None)
    return [] if last is None else [d for d in range(first, last + 1) if base[d] > 1]


def inserted_into_base(position: Node, write: Node, insertion: RowInsertion) -> RowInsertion:
    """Return an insertion into a view as one into its base; nodes are built before ``position``."""
    view, shape = cast(Node, write.args[0]), _shape(base_of(write))
    parts = base_dims(write, insertion.dims)
    assert parts is not None, "the caller has asked"
    if any(len(part) > 1 for part in parts):
        insertion = _from_the_front(position, insertion, _shape(view))
    addressed = []
    for index, elements, part in zip(insertion.indices, insertion.elements, parts, strict=True):
        for dim in part:
            inner = math.prod(shape[d] for d in part if d > dim)
            size = shape[dim] if dim != part[0] else None
            addressed.append((dim, _digit(position, index, inner, size), elements))
    addressed.sort(key=lambda entry: entry[0])
    dims, indices, elements = zip(*addressed, strict=True)
    row_shape = [1 if dim in dims else size for dim, size in enumerate(shape)]
    if view.target is aten.permute.default:
        order = _order(view)
        back = [order.index(dim) for dim in range(len(order))]
        rows = tuple(call_before(position, aten.permute.default, row, back) for row in insertion.rows)
    else:
        rows = tuple(call_before(position, aten.reshape.default, row, row_shape) for row in insertion.rows)
    return replace(insertion, dims=dims, indices=indices, elements=elements, rows=rows)


def _from_the_front(position: Node, insertion: RowInsertion, shape: Sequence[int]) -> RowInsertion:
    """Count negative indices from the front; one that is out of range stays so."""
    if not insertion.negative:
        return insertion
    indices = []
    for index, dim in zip(insertion.indices, insertion.dims, strict=True):
        below = call_before(position, aten.lt.Scalar, index, 0)
        counted = call_before(position, aten.add.Tensor, index, shape[dim])
        indices.append(call_before(position, aten.where.self, below, counted, index))
    return replace(insertion, indices=tuple(indices), negative=False)


def _digit(position: Node, index: Node, inner: int, size: int | None) -> Node:
    """Build ``index // inner``, and of that the remainder by a ``size``."""
    if inner > 1:
        index = call_before(position, aten.div.Tensor_mode, index, inner, rounding_mode="floor")
    return index if size is None else call_before(position, aten.remainder.Scalar, index, size)


def _order(view: Node) -> list[int]:
    dims = cast(Sequence[int], operands_of(view)["dims"])
    return [dim % len(dims) for dim in dims]


def _shape(node: Any) -> tuple[int, ...]:
    return tuple(node.meta["val"].shape)
