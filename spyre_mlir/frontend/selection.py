"""PyTorch operations that look for a position, or write at one, by comparisons on the device.

A position is the smallest of a table of positions where a condition holds. Tables are constants, so the host
makes them once. ``FORMS`` is their part of the decomposition table.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

aten = torch.ops.aten

#: Up to it, every integer is a number of the device's 16-bit format, which has 10 bits with the hidden one.
_LARGEST_NARROW = 1 << 10
#: Each of the largest elements is a maximum of its own; the device itself gives as many.
_MOST_OF_TOP = 4


def _positions(x: Tensor, dim: int) -> Tensor:
    """The positions along a dim, to be broadcast over the others, in a format that has them and their number."""
    size = x.shape[dim]
    dtype = x.dtype if size <= _LARGEST_NARROW else torch.float32
    shape = [size if each == dim % x.ndim else 1 for each in range(x.ndim)]
    return torch.arange(size, device=x.device).to(dtype).reshape(shape)


def _first(condition: Tensor, positions: Tensor, dim: int) -> Tensor:
    """The smallest of the positions where a condition holds; that dim has size 1."""
    none = float(condition.shape[dim])
    return torch.amin(torch.where(condition, positions, none), [dim], keepdim=True)


def _is_supported(x: Tensor) -> bool:
    return x.is_floating_point() and x.ndim > 0 and x.numel() > 0


def extreme_and_position(reduce: Callable) -> Callable:
    """``max(x, dim)`` or ``min(x, dim)``: the extreme and where it is first."""

    def form(x: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
        if not _is_supported(x):
            return NotImplemented
        extreme = reduce(x, [dim], keepdim=True)
        position = _first(x == extreme, _positions(x, dim), dim).to(torch.int64)
        return (extreme, position) if keepdim else (extreme.squeeze(dim), position.squeeze(dim))

    return form


def position_of_extreme(reduce: Callable) -> Callable:
    """``argmax`` or ``argmin``; without a dim, of the flattened tensor."""

    def form(x: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
        if not _is_supported(x):
            return NotImplemented
        if dim is not None:
            return extreme_and_position(reduce)(x, dim, keepdim)[1]
        position = extreme_and_position(reduce)(x.reshape(-1), 0)[1]
        return position.reshape([1] * x.ndim) if keepdim else position

    return form


def largest_elements(
    x: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True
) -> tuple[Tensor, Tensor]:
    """``topk``: k times the extreme of what is left.

    What is taken becomes the other extreme, which is no more than anything left, and its position the size of the dim.
    """
    if not _is_supported(x) or not 1 <= k <= min(_MOST_OF_TOP, x.shape[dim]):
        return NotImplemented
    reduce, opposite = (torch.amax, torch.amin) if largest else (torch.amin, torch.amax)
    left, values, found = _positions(x, dim), [], []
    last = opposite(x, [dim], keepdim=True)
    for _ in range(k):
        values.append(reduce(x, [dim], keepdim=True))
        found.append(_first(x == values[-1], left, dim))
        taken = left == found[-1]
        x, left = torch.where(taken, last, x), torch.where(taken, float(x.shape[dim]), left)
    return torch.cat(values, dim), torch.cat(found, dim).to(torch.int64)


def _is_at(x: Tensor, dim: int, index: Tensor) -> Tensor:
    """Where the position along a dim is an index of the rank of ``x``; f32 has all positions, if not all integers."""
    return _positions(x.to(torch.float32), dim) == index.to(torch.float32)


def index_copy(x: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    """Slices of a tensor replaced; one, as a decoding step writes to its cache, by a comparison."""
    if x.ndim == 0:
        return NotImplemented
    if index.numel() != 1:
        return x.movedim(dim, 0).index_put([index], source.movedim(dim, 0)).movedim(0, dim)
    wide = index.to(torch.float32).reshape([1] * x.ndim)
    return torch.where(_is_at(x, dim, torch.where(wide < 0, wide + x.shape[dim], wide)), source, x)


def index_put(
    x: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: bool = False
) -> Tensor:
    """``index_copy`` where one dim has an index of one element and those before it have none."""
    given = [(dim, index) for dim, index in enumerate(indices) if index is not None]
    if len(given) != 1 or given[0][1].numel() != 1 or given[0][1].dtype == torch.bool or accumulate:
        return NotImplemented
    dim, index = given[0]
    # What is replaced has the shape of x with the dims of the index in the place of this dim.
    replaced = [*x.shape[:dim], *index.shape, *x.shape[dim + 1 :]]
    one = [*x.shape[:dim], 1, *x.shape[dim + 1 :]]
    return index_copy(x, dim, index, values.expand(replaced).reshape(one))


def scatter_into(combine: Callable[[Tensor, Tensor, Tensor], Tensor]) -> Callable:
    """A few elements per row written or added where their index says.

    ``combine(is_at, source, x)`` is done for each column of the index.
    """

    def form(x: Tensor, dim: int, index: Tensor, source) -> Tensor:
        others = [size for at, size in enumerate(x.shape) if at != dim % max(x.ndim, 1)]
        if x.ndim == 0 or index.shape[dim] > _MOST_OF_TOP or not x.is_floating_point():
            return NotImplemented
        if others != [size for at, size in enumerate(index.shape) if at != dim % x.ndim]:
            return NotImplemented
        for at in range(index.shape[dim]):
            value = source.narrow(dim, at, 1) if isinstance(source, Tensor) else source
            x = combine(_is_at(x, dim, index.narrow(dim, at, 1)), value, x)
        return x

    return form


def _added(is_at: Tensor, source: Tensor, x: Tensor) -> Tensor:
    return x + torch.where(is_at, source, 0.0)


def one_hot(index: Tensor, classes: int = -1) -> Tensor:
    """1 at the position that an index says."""
    if classes < 0:
        return NotImplemented
    return (index.unsqueeze(-1).to(torch.float32) == torch.arange(classes).to(torch.float32)).to(torch.int64)


def running(combine: Callable) -> Callable:
    """``cummax`` or ``cummin``: after step k, each element knows the 2^k before it.

    The position is that of the last element that is as large as all before.
    """

    def form(x: Tensor, dim: int) -> tuple[Tensor, Tensor]:
        if x.ndim == 0 or x.is_complex():
            return NotImplemented
        extreme = _combined_with_those_before(x, dim, combine)
        positions = _positions(x if x.is_floating_point() else x.to(torch.int64), dim)
        position = torch.where(x == extreme, positions, torch.zeros_like(positions))
        return extreme, _combined_with_those_before(position, dim, torch.maximum).to(torch.int64)

    return form


def _combined_with_those_before(x: Tensor, dim: int, combine: Callable) -> Tensor:
    size, distance = x.shape[dim], 1
    while distance < size:
        first = x.narrow(dim, 0, distance)
        later = combine(x.narrow(dim, distance, size - distance), x.narrow(dim, 0, size - distance))
        x, distance = torch.cat((first, later), dim), 2 * distance
    return x


def logarithm_of_sums(x: Tensor, dim: int) -> Tensor:
    """``logcumsumexp``, in f32 at least; no sum is larger than the largest element, so none overflows."""
    if x.is_complex():
        return NotImplemented
    if x.ndim == 0:
        return x.clone()
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    return _combined_with_those_before(wide, dim, _logarithm_of_sum).to(x.dtype)


def _logarithm_of_sum(x: Tensor, y: Tensor) -> Tensor:
    """log(exp(x) + exp(y)) = max + log(1 + exp(min - max)); where both are the same infinity, that."""
    larger = torch.maximum(x, y)
    difference = torch.where(x == y, 0.0, torch.minimum(x, y) - larger)
    return larger + torch.log1p(torch.exp(difference))


def kth_smallest(x: Tensor, k: int, dim: int = -1, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """That of a sorted tensor."""
    if x.ndim == 0:
        return NotImplemented
    found = [each.narrow(dim, k - 1, 1) for each in torch.sort(x, dim)]
    values, positions = found if keepdim else (each.squeeze(dim) for each in found)
    return values, positions


def median(x: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """The lower one of two in the middle."""
    return NotImplemented if x.ndim == 0 else kth_smallest(x, (x.shape[dim] + 1) // 2, dim, keepdim)


def insertion_points(
    ordered: Tensor, x: Tensor, *, out_int32: bool = False, right: bool = False, side=None, sorter=None
) -> Tensor:
    """``searchsorted``: how many of the ordered numbers are smaller, counted in f32."""
    if sorter is not None or not ordered.is_floating_point() or ordered.shape[-1] >= 1 << 24:
        return NotImplemented
    right = right or side == "right"
    ordered, x = ordered.unsqueeze(-2), x.unsqueeze(-1)
    smaller = ordered <= x if right else ordered < x
    return torch.sum(smaller.to(torch.float32), [-1]).to(torch.int32 if out_int32 else torch.int64)


def count_nonzero(x: Tensor, dims: Sequence[int]) -> Tensor:
    """A sum of ones in f32."""
    if x.numel() >= 1 << 24:
        return NotImplemented
    return torch.sum((x != 0).to(torch.float32), list(dims)).to(torch.int64)


def count_all_nonzero(x: Tensor, dim: int | None = None) -> Tensor:
    return count_nonzero(x, list(range(x.ndim)) if dim is None else [dim])


FORMS = {
    aten.max.dim: extreme_and_position(torch.amax),
    aten.min.dim: extreme_and_position(torch.amin),
    aten.argmax.default: position_of_extreme(torch.amax),
    aten.argmin.default: position_of_extreme(torch.amin),
    aten.topk.default: largest_elements,
    aten.index_copy.default: index_copy,
    aten.index_put.default: index_put,
    aten.scatter.src: scatter_into(torch.where),
    aten.scatter.value: scatter_into(torch.where),
    aten.scatter_add.default: scatter_into(_added),
    aten.one_hot.default: one_hot,
    aten.cummax.default: running(torch.maximum),
    aten.cummin.default: running(torch.minimum),
    aten.logcumsumexp.default: logarithm_of_sums,
    aten.kthvalue.default: kth_smallest,
    aten.median.dim: median,
    aten.searchsorted.Tensor: insertion_points,
    aten.count_nonzero.dim_IntList: count_nonzero,
    aten.count_nonzero.default: count_all_nonzero,
}
