# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Decompositions of operations that search for a position, or write at a position, into comparisons on the device.

A position is the smallest entry of a table of positions where a condition holds. Tables are constants, so the host
computes them once. ``embedding_bag`` compares each row with each bag. ``FORMS`` is added to the decomposition table.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from spyre_mlir.errors import UncapturedError

aten = torch.ops.aten

#: Integers up to this number are exact in the device's 16-bit format, which has 10 bits with the hidden one.
_LARGEST_NARROW = 1 << 10
#: f32 cannot represent every integer above this number, so a count would be wrong.
_LARGEST_COUNT = 1 << 24
#: Limit of k: each of the largest elements needs a separate maximum; the device itself returns as many.
_MAX_TOP_K = 4


def _positions(x: Tensor, dim: int) -> Tensor:
    """Positions along a dim, broadcastable over the others, in a type that represents them and their number."""
    size = x.shape[dim]
    dtype = x.dtype if size <= _LARGEST_NARROW else torch.float32
    shape = [size if axis == dim % x.ndim else 1 for axis in range(x.ndim)]
    return torch.arange(size, device=x.device).to(dtype).reshape(shape)


def _first(condition: Tensor, positions: Tensor, dim: int) -> Tensor:
    """Smallest position along a dim where a condition holds; the dim has size 1 in the result."""
    # A position after all others, for a row in which the condition never holds.
    none = float(condition.shape[dim])
    return torch.amin(torch.where(condition, positions, none), [dim], keepdim=True)


def _is_supported(x: Tensor) -> bool:
    """Return whether the device can compare the elements of ``x`` along a dim."""
    return x.is_floating_point() and x.ndim > 0 and x.numel() > 0


def extreme_and_position(reduce: Callable[..., Any]) -> Callable[..., Any]:
    """Form of ``max(x, dim)`` or ``min(x, dim)``: the extreme and its first position."""

    def form(x: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
        if not _is_supported(x):
            return NotImplemented
        extreme = reduce(x, [dim], keepdim=True)
        position = _first(_is_extreme(x, extreme), _positions(x, dim), dim).to(torch.int64)
        return (extreme, position) if keepdim else (extreme.squeeze(dim), position.squeeze(dim))

    return form


def position_of_extreme(reduce: Callable[..., Any]) -> Callable[..., Any]:
    """Form of ``argmax`` or ``argmin``; without a dim, for the flattened tensor."""

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
    """``topk``: take the extreme of the remaining elements k times.

    A selected element is replaced by the opposite extreme, which no remaining element exceeds, and its position by the
    size of the dim. NaN is larger than all numbers.
    """
    if not _is_supported(x) or not 1 <= k <= min(_MAX_TOP_K, x.shape[dim]):
        return NotImplemented
    # On the device, bfloat16 has the range of DL16.
    bound = 2.0**32 if x.dtype == torch.bfloat16 else torch.inf
    numbers = torch.where(x != x, bound, x)
    reduce, opposite = (torch.amax, torch.amin) if largest else (torch.amin, torch.amax)
    keys, last = (x if largest else numbers), opposite(numbers, [dim], keepdim=True)
    remaining, values, positions = _positions(x, dim), [], []
    for _ in range(k):
        value = reduce(keys, [dim], keepdim=True)
        positions.append(_first(_is_extreme(keys, value), remaining, dim))
        selected = remaining == positions[-1]
        if not largest:
            value = torch.amin(torch.where(selected & (x != x), x, value), [dim], keepdim=True)
        values.append(value)
        keys = torch.where(selected, last, keys)
        remaining = torch.where(selected, float(x.shape[dim]), remaining)
    return torch.cat(values, dim), torch.cat(positions, dim).to(torch.int64)


def _is_extreme(x: Tensor, extreme: Tensor) -> Tensor:
    """Condition that an element is the extreme; NaN is an extreme, and equals nothing."""
    return (x == extreme) | (x != x)


def _matches(x: Tensor, dim: int, index: Tensor) -> Tensor:
    """Condition that the position along a dim equals an index of the rank of ``x``; f32 represents all positions."""
    return _positions(x.to(torch.float32), dim) == index.to(torch.float32)


def index_copy(x: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    """``index_copy``: replace slices; a single slice, as in a decoding step's cache, by a comparison."""
    if x.ndim == 0:
        return NotImplemented
    if index.numel() != 1:
        return x.movedim(dim, 0).index_put([index], source.movedim(dim, 0)).movedim(0, dim)
    # The device cannot compare integers.
    wide = index.to(torch.float32).reshape([1] * x.ndim)
    return torch.where(_matches(x, dim, torch.where(wide < 0, wide + x.shape[dim], wide)), source, x)


def index_put(
    x: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: bool = False
) -> Tensor:
    """``index_put`` with one index: by a mask, or as ``index_copy`` if the index has one element."""
    if accumulate and x.dtype == torch.bool:
        return aten.index_put.default(x.to(torch.int32), indices, values.to(torch.int32), True) != 0
    indexed = [(dim, index) for dim, index in enumerate(indices) if index is not None]
    if len(indexed) != 1:
        return NotImplemented
    dim, index = indexed[0]
    if index.dtype in (torch.bool, torch.uint8):
        mask = index.to(torch.bool)
        inner = x.ndim - dim - mask.ndim
        mask = mask.reshape([*mask.shape, *(1,) * inner])
        if values.ndim > inner and values.shape[-inner - 1] != 1:
            # PyTorch rejects another number of rows, which a graph of static shapes would not detect.
            raise UncapturedError(
                "The number of true elements of a mask, which must equal the number of written values, is only known "
                "at run time; write the result of torch.where."
            )
        if values.ndim > inner:
            outer = values.ndim - inner - 1
            masked = (1,) * (x.ndim - dim - inner)
            values = values.reshape([*values.shape[:outer], *masked, *values.shape[outer + 1 :]])
        return torch.where(mask, x + values if accumulate else values, x)
    if index.numel() != 1 or accumulate:
        return NotImplemented
    # The replaced part has the shape of x, with the dims of the index in place of this dim.
    replaced = [*x.shape[:dim], *index.shape, *x.shape[dim + 1 :]]
    one = [*x.shape[:dim], 1, *x.shape[dim + 1 :]]
    return index_copy(x, dim, index, values.expand(replaced).reshape(one))


def scatter_sum(x: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    """``scatter_add``; a sum of booleans is true if any of them is true."""
    if x.dtype == torch.bool:
        return aten.scatter_add.default(x.to(torch.int32), dim, index, source.to(torch.int32)) != 0
    added = scatter_into(lambda matches, source, x: x + torch.where(matches, source, 0.0))
    return added(x, dim, index, source)


def scatter_into(combine: Callable[[Tensor, Tensor, Tensor], Tensor]) -> Callable[..., Any]:
    """Form of a scatter of a few elements per row.

    ``combine(matches, source, x)`` writes or adds the elements of one index column.
    """

    def form(x: Tensor, dim: int, index: Tensor, source) -> Tensor:
        others = [size for axis, size in enumerate(x.shape) if axis != dim % max(x.ndim, 1)]
        if x.ndim == 0 or index.shape[dim] > _MAX_TOP_K or not x.is_floating_point():
            return NotImplemented
        if others != [size for axis, size in enumerate(index.shape) if axis != dim % x.ndim]:
            return NotImplemented
        for column in range(index.shape[dim]):
            value = source.narrow(dim, column, 1) if isinstance(source, Tensor) else source
            x = combine(_matches(x, dim, index.narrow(dim, column, 1)), value, x)
        return x

    return form


def index(x: Tensor, indices: Sequence[Tensor | None]) -> Tensor:
    """``index`` by positions that vary along different dims: rows of one indexed dim after the other."""
    given = [(dim, each) for dim, each in enumerate(indices) if each is not None]
    axes = [axis for _, each in given for axis in range(-each.ndim, 0) if each.shape[axis] != 1]
    is_empty = 0 in (x.numel(), *(each.numel() for _, each in given))
    is_mask = any(each.dtype in (torch.bool, torch.uint8) for _, each in given)
    if is_empty or is_mask or len(set(axes)) < len(axes) or [dim for dim, _ in given] == [0]:
        return NotImplemented
    shape = torch.broadcast_shapes(*(each.shape for _, each in given))
    for dim, each in given:
        x = aten.index.Tensor(x.movedim(dim, 0), [each.reshape(-1)]).movedim(0, dim)
    dims = [dim for dim, _ in given]
    x = x.movedim(dims, list(range(len(dims))))
    others = x.shape[len(dims) :]
    # The dims of the positions are split into their axes, and these are sorted.
    x = x.reshape([shape[axis] for axis in axes] + list(others))
    x = x.permute([axes.index(axis) for axis in sorted(axes)] + list(range(len(axes), x.ndim)))
    x = x.reshape([*shape, *others])
    if dims[-1] - dims[0] < len(dims):
        x = x.movedim(list(range(len(shape))), list(range(dims[0], dims[0] + len(shape))))
    return x


def one_hot(index: Tensor, classes: int = -1) -> Tensor:
    """``one_hot``: 1 at the position given by the index."""
    if classes < 0:
        return NotImplemented
    return (index.unsqueeze(-1).to(torch.float32) == torch.arange(classes).to(torch.float32)).to(torch.int64)


def running(combine: Callable[..., Any]) -> Callable[..., Any]:
    """Form of ``cummax`` or ``cummin``: after step k, each element includes the 2^k elements up to it.

    The position is the position of the last element that is at least as extreme as all elements before it.
    """

    def form(x: Tensor, dim: int) -> tuple[Tensor, Tensor]:
        if x.ndim == 0 or x.is_complex():
            return NotImplemented
        extreme = _combined_with_those_before(x, dim, combine)
        positions = _positions(x if x.is_floating_point() else x.to(torch.int64), dim)
        # Positions ascend, so their running maximum is the last position of the extreme.
        position = torch.where(_is_extreme(x, extreme), positions, torch.zeros_like(positions))
        return extreme, _combined_with_those_before(position, dim, torch.maximum).to(torch.int64)

    return form


def _combined_with_those_before(x: Tensor, dim: int, combine: Callable[..., Any]) -> Tensor:
    """Scan along a dim by doubling distances, in log2(size) steps."""
    size, distance = x.shape[dim], 1
    while distance < size:
        first = x.narrow(dim, 0, distance)
        later = combine(x.narrow(dim, distance, size - distance), x.narrow(dim, 0, size - distance))
        x, distance = torch.cat((first, later), dim), 2 * distance
    return x


def logarithm_of_sums(x: Tensor, dim: int) -> Tensor:
    """``logcumsumexp``, at least in f32; exponentials are relative to the larger operand, so none overflows."""
    if x.is_complex():
        return NotImplemented
    if x.ndim == 0:
        return x.clone()
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    return _combined_with_those_before(wide, dim, _logarithm_of_sum).to(x.dtype)


def _logarithm_of_sum(x: Tensor, y: Tensor) -> Tensor:
    """log(exp(x) + exp(y)) = max + log(1 + exp(min - max)); if both are the same infinity, that infinity."""
    larger = torch.maximum(x, y)
    difference = torch.where(x == y, 0.0, torch.minimum(x, y) - larger)
    return larger + torch.log1p(torch.exp(difference))


def kth_smallest(x: Tensor, k: int, dim: int = -1, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """``kthvalue``: element k - 1 of the sorted tensor, and its position."""
    if x.ndim == 0:
        return NotImplemented
    slices = [result.narrow(dim, k - 1, 1) for result in torch.sort(x, dim)]
    values, positions = slices if keepdim else (result.squeeze(dim) for result in slices)
    return values, positions


def median(x: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """``median``: the lower of two middle elements, or the first NaN."""
    if x.ndim == 0:
        return NotImplemented
    value, position = kth_smallest(x, (x.shape[dim] + 1) // 2, dim, keepdim)
    if not x.is_floating_point():
        return value, position
    largest, first = torch.max(x, dim, keepdim)
    return torch.where(largest != largest, largest, value), torch.where(largest != largest, first, position)


def insertion_points(
    ordered: Tensor, x: Tensor, *, out_int32: bool = False, right: bool = False, side=None, sorter=None
) -> Tensor:
    """``searchsorted``: count of the ordered numbers that are smaller, computed in f32."""
    if sorter is not None or not ordered.is_floating_point() or ordered.shape[-1] >= _LARGEST_COUNT:
        return NotImplemented
    right = right or side == "right"
    ordered, x = ordered.unsqueeze(-2), x.unsqueeze(-1)
    smaller = ordered <= x if right else ordered < x
    return torch.sum(smaller.to(torch.float32), [-1]).to(torch.int32 if out_int32 else torch.int64)


def count_nonzero(x: Tensor, dims: Sequence[int]) -> Tensor:
    """``count_nonzero`` over dims: a sum of ones in f32."""
    if x.numel() >= _LARGEST_COUNT:
        return NotImplemented
    return torch.sum((x != 0).to(torch.float32), list(dims)).to(torch.int64)


aten = torch.ops.aten

_SUM, _MEAN, _MAX = range(3)
#: A maximum compares each row with each bag; above this number of elements ``embedding_bag`` is not decomposed.
_MAX_COMPARED_ELEMENTS = 1 << 24


def embedding_bag(
    weight: Tensor, indices: Tensor, offsets: Tensor, scale_grad_by_freq: bool = False, mode: int = _SUM,
    sparse: bool = False, per_sample_weights: Tensor | None = None, include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> tuple[Tensor, ...]:  # fmt: skip
    """``embedding_bag``: the reduced rows of each bag [bags, columns], and three tensors that PyTorch's gradient reads.

    The rows of a bag start at its offset and end before the next offset; sums are in f32.
    """
    if indices.ndim != 1 or not weight.is_floating_point():
        return NotImplemented
    starts = offsets[:-1] if include_last_offset else offsets
    bags, rows, columns = starts.shape[0], indices.shape[0], weight.shape[1]
    if mode == _MAX and bags * rows * columns > _MAX_COMPARED_ELEMENTS:
        return NotImplemented
    is_padded = padding_idx is not None and padding_idx >= 0
    # Offsets ascend, so a row belongs to the last bag that starts at or before the row.
    begun = (torch.arange(rows)[:, None] >= starts[None, :]).to(torch.int64)
    bag = torch.sum(begun, [1]) - 1
    counts = torch.ones_like(indices) if not is_padded else (indices != padding_idx).to(indices.dtype)
    sizes = torch.zeros(bags, dtype=counts.dtype).index_add(0, bag, counts)
    selected = aten.embedding(weight, indices)
    if mode == _MAX:
        member = ((bag[None, :] == torch.arange(bags)[:, None]) & (counts != 0)[None, :])[:, :, None]
        extreme = torch.amax(torch.where(member, selected[None], -torch.inf), [1])
        is_extreme = member & (selected[None] == extreme[:, None, :])
        # Among equal maxima the first row wins, as in PyTorch.
        places = torch.arange(selected.shape[0])[None, :, None]
        place = torch.amin(torch.where(is_extreme, places, selected.shape[0] - 1), [1])
        is_empty = (sizes == 0)[:, None]
        result = torch.where(is_empty, 0.0, extreme).to(selected.dtype)
        for_gradient = (bag, sizes, torch.where(is_empty, 0, indices[place]))
        return result, *(tensor.to(offsets.dtype) for tensor in for_gradient)
    wide = selected.to(torch.promote_types(selected.dtype, torch.float32))
    if per_sample_weights is not None:
        wide = wide * per_sample_weights.to(wide.dtype)[:, None]
    # Padding has a count of 0.
    wide = torch.where((counts != 0)[:, None], wide, 0.0) if is_padded else wide
    result = torch.zeros(bags, columns, dtype=wide.dtype).index_add(0, bag, wide)
    if mode == _MEAN:
        result = result / torch.clamp(sizes, min=1).to(result.dtype)[:, None]
        for_gradient = (bag, sizes, sizes)
    else:
        for_gradient = (
            # PyTorch returns an empty ``bag`` for a sum without padding, unless the sum is in f64.
            bag if is_padded or weight.dtype == torch.float64 else bag[:0],
            *[torch.zeros_like(offsets)] * 2,
        )
    return result.to(weight.dtype), *(tensor.to(offsets.dtype) for tensor in for_gradient)


FORMS = {
    aten.max.dim: extreme_and_position(torch.amax),
    aten.min.dim: extreme_and_position(torch.amin),
    aten.argmax.default: position_of_extreme(torch.amax),
    aten.argmin.default: position_of_extreme(torch.amin),
    aten.topk.default: largest_elements,
    aten.index_copy.default: index_copy,
    aten.index.Tensor: index,
    aten._unsafe_index.Tensor: index,
    aten.index_select.default: lambda x, dim, each: (
        index(x, [*[None] * (dim % x.ndim), each.reshape(-1)]) if x.ndim else NotImplemented
    ),
    aten.index_put.default: index_put,
    aten.scatter.src: scatter_into(torch.where),
    aten.scatter.value: scatter_into(torch.where),
    aten.scatter_add.default: scatter_sum,
    aten.one_hot.default: one_hot,
    aten.cummax.default: running(torch.maximum),
    aten.cummin.default: running(torch.minimum),
    aten.logcumsumexp.default: logarithm_of_sums,
    aten.kthvalue.default: kth_smallest,
    aten.median.dim: median,
    aten.searchsorted.Tensor: insertion_points,
    aten.count_nonzero.dim_IntList: count_nonzero,
    aten.count_nonzero.default: lambda x, dim=None: count_nonzero(x, range(x.ndim) if dim is None else [dim]),
    aten.embedding_bag.default: embedding_bag,
    aten.embedding_bag.padding_idx: embedding_bag,
    aten._embedding_bag.default: embedding_bag,
    aten._embedding_bag_forward_only.default: embedding_bag,
}
