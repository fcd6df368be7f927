# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""PyTorch operations that only move data, as slices and concatenations; ``FORMS`` is added to the table.

A slice is a view on the device and a concatenation is one copy per part, so operations that need many parts are kept.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

aten = torch.ops.aten

#: Maximum number of parts that one tensor is concatenated from.
_MAX_PARTS = 16


def roll(x: Tensor, shifts: Sequence[int], dims: Sequence[int] = ()) -> Tensor:
    """``roll``: the last ``shift`` positions of each dim become the first."""
    if not dims:
        return roll(x.flatten(), shifts, [0]).reshape(x.shape)
    for shift, dim in zip(shifts, dims, strict=True):
        remaining = x.shape[dim] - shift % max(x.shape[dim], 1)
        x = torch.cat((x.narrow(dim, remaining, x.shape[dim] - remaining), x.narrow(dim, 0, remaining)), dim)
    return x


def concatenated(parts: Sequence[Tensor], dim: int = 0) -> Tensor:
    """``cat`` of several types, in their common type: torch-mlir reads bytes as signed, or aborts."""
    common = functools.reduce(torch.promote_types, (part.dtype for part in parts))
    if all(part.dtype == common for part in parts):
        return NotImplemented
    return torch.cat([part.to(common) for part in parts], dim)


def _reversed(x: Tensor, dim: int) -> Tensor:
    """Tensor with one dim in reverse order, concatenated from one part per position."""
    return torch.cat([x.narrow(dim, index, 1) for index in reversed(range(x.shape[dim]))], dim)


def flip(x: Tensor, dims: Sequence[int]) -> Tensor:
    """``flip``: dims in reverse order, if they do not need too many parts."""
    if any(x.shape[dim] > _MAX_PARTS for dim in dims):
        return NotImplemented
    for dim in dims:
        x = x if x.shape[dim] <= 1 else _reversed(x, dim)
    return x


def pad_with_constant(x: Tensor, amounts: Sequence[int], value: float = 0) -> Tensor:
    """``constant_pad_nd`` with negative amounts, which cut off; otherwise PyTorch's operation is kept."""
    if min(amounts) >= 0:
        return NotImplemented
    for dim, low, high in _borders(x, amounts):
        x = x.narrow(dim, max(-low, 0), x.shape[dim] + min(low, 0) + min(high, 0))
    return aten.constant_pad_nd(x, [max(amount, 0) for amount in amounts], value)


def _borders(x: Tensor, amounts: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """Yield each dim to pad, the last dim first, with the amounts before and after it."""
    for index, (low, high) in enumerate(zip(amounts[::2], amounts[1::2], strict=True)):
        yield x.ndim - 1 - index, low, high


def reflection_pad(x: Tensor, amounts: Sequence[int]) -> Tensor:
    """``reflection_pad``: mirror the elements next to each border, without the border itself."""
    # Both borders together have at most _MAX_PARTS parts.
    if max(amounts) > _MAX_PARTS // 2:
        return NotImplemented
    for dim, low, high in _borders(x, amounts):
        before, after = x.narrow(dim, 1, low), x.narrow(dim, x.shape[dim] - 1 - high, high)
        x = _between(before, x, after, dim, reverse=True)
    return x


def replication_pad(x: Tensor, amounts: Sequence[int]) -> Tensor:
    """``replication_pad``: repeat the border itself."""
    for dim, low, high in _borders(x, amounts):
        before, after = (
            x.narrow(dim, start, 1).expand([size if other == dim else -1 for other in range(x.ndim)])
            for start, size in ((0, low), (x.shape[dim] - 1, high))
        )
        x = _between(before, x, after, dim)
    return x


def cut_afterwards(pad: torch._ops.OpOverload, form: Callable[..., Any]) -> Callable[..., Any]:
    """Form of a padding whose negative amounts cut the tensor after the other amounts have padded it."""

    def padded_and_cut(x: Tensor, amounts: Sequence[int]) -> Tensor:
        """Return the tensor with other borders."""
        if min(amounts) >= 0:
            return form(x, amounts)
        padded = pad(x, [max(amount, 0) for amount in amounts]) if max(amounts) > 0 else x.clone()
        for dim, low, high in _borders(x, amounts):
            padded = padded.narrow(dim, max(-low, 0), padded.shape[dim] + min(low, 0) + min(high, 0))
        return padded

    return padded_and_cut


def _between(before: Tensor, x: Tensor, after: Tensor, dim: int, reverse: bool = False) -> Tensor:
    """Concatenate a tensor and its two edges along a dim; empty edges are left out."""
    edges = [_reversed(edge, dim) if reverse and edge.shape[dim] else edge for edge in (before, after)]
    return torch.cat([part for part in (edges[0], x, edges[1]) if part.shape[dim]], dim)


def unfold(x: Tensor, dim: int, size: int, step: int) -> Tensor:
    """``unfold``: windows along a dim, with the positions in a window as the last dim."""
    if x.ndim == 0 or size == 0 or min(size, (x.shape[dim] - size) // step + 1) > _MAX_PARTS:
        return NotImplemented
    dim, count = dim % x.ndim, (x.shape[dim] - size) // step + 1
    # The smaller number of parts: one per window, or one per position in a window.
    if count <= size:
        windows = [x.narrow(dim, index * step, size).movedim(dim, -1) for index in range(count)]
        return torch.stack(windows, dim)
    last = (count - 1) * step + 1
    return torch.stack([aten.slice(x, dim, index, index + last, step) for index in range(size)], -1)


def diagonal(x: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """``diagonal``: sum over a dim of the tensor, with 0 off the diagonal."""
    if not x.is_floating_point():
        return NotImplemented
    x = x.movedim((dim1, dim2), (-2, -1))
    rows, columns = x.shape[-2:]
    size = min(rows + min(offset, 0), columns - max(offset, 0))
    if size <= 0:
        return NotImplemented
    square = x.narrow(-2, max(-offset, 0), size).narrow(-1, max(offset, 0), size)
    position = torch.arange(size, device=x.device)
    on_it = position[:, None] == position[None, :]
    return torch.sum(torch.where(on_it, square, 0.0), [-2])


def diagonal_scatter(x: Tensor, source: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """``diagonal_scatter``: on the diagonal the source, broadcast to all columns of a row, elsewhere ``x``."""
    order = [dim for dim in range(x.ndim) if dim not in (dim1 % x.ndim, dim2 % x.ndim)]
    order += [dim1 % x.ndim, dim2 % x.ndim]
    rows, columns = x.shape[dim1], x.shape[dim2]
    before = max(-offset, 0)
    padded = aten.constant_pad_nd(source, [before, rows - before - source.shape[-1]])
    row, column = torch.arange(rows)[:, None], torch.arange(columns)[None, :]
    result = torch.where(column - row == offset, padded.unsqueeze(-1), x.permute(order))
    return result.permute([order.index(dim) for dim in range(x.ndim)])


def as_strided_scatter(
    x: Tensor, source: Tensor, size: Sequence[int], stride: Sequence[int], offset: int | None = None
) -> Tensor:
    """``as_strided_scatter``: replace elements at strided positions in the memory of a dense tensor."""
    places = torch.arange(x.numel()).as_strided(size, stride, offset or 0)
    flat = x.reshape(-1).index_put([places.reshape(-1)], source.reshape(-1))
    return flat.reshape(x.shape)


def select_scatter(x: Tensor, source: Tensor, dim: int, index: int) -> Tensor:
    """``select_scatter``: replace one position of a dim, as a slice; PyTorch's form computes the whole tensor."""
    dim, begin = dim % x.ndim, index % x.shape[dim]
    return aten.slice_scatter(x, source.unsqueeze(dim), dim, begin, begin + 1)


_PADDINGS: dict[torch._ops.OpOverload, Callable[..., Any]] = {
    aten.reflection_pad1d.default: reflection_pad,
    aten.reflection_pad2d.default: reflection_pad,
    aten.reflection_pad3d.default: reflection_pad,
    aten.replication_pad1d.default: replication_pad,
    aten.replication_pad2d.default: replication_pad,
    aten.replication_pad3d.default: replication_pad,
}

FORMS = {
    aten.cat.default: concatenated,
    aten.select_scatter.default: select_scatter,
    aten.diagonal_scatter.default: diagonal_scatter,
    aten.as_strided_scatter.default: as_strided_scatter,
    aten.roll.default: roll,
    aten.flip.default: flip,
    aten.constant_pad_nd.default: pad_with_constant,
    **{pad: cut_afterwards(pad, form) for pad, form in _PADDINGS.items()},
    aten.unfold.default: unfold,
    aten.diagonal.default: diagonal,
}
