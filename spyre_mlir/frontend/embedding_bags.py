# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``embedding_bag``: sums, means and maxima of table rows; ``FORMS`` is added to the decomposition table."""

from __future__ import annotations

import torch
from torch import Tensor

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
        member = (bag[None, :] == torch.arange(bags)[:, None]) & (counts != 0)[None, :]
        result, largest = _maxima(selected, member, sizes, indices)
        return result, bag.to(offsets.dtype), sizes.to(offsets.dtype), largest.to(offsets.dtype)
    result = _sums(selected, per_sample_weights, counts if is_padded else None, bag, bags)
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


def _sums(rows: Tensor, weights: Tensor | None, counts: Tensor | None, bag: Tensor, bags: int) -> Tensor:
    """Sum of the weighted rows of each bag, in f32 or f64; padding has a count of 0."""
    rows = rows.to(torch.promote_types(rows.dtype, torch.float32))
    rows = rows if weights is None else rows * weights.to(rows.dtype)[:, None]
    rows = rows if counts is None else torch.where((counts != 0)[:, None], rows, 0.0)
    return torch.zeros(bags, rows.shape[1], dtype=rows.dtype).index_add(0, bag, rows)


def _maxima(rows: Tensor, member: Tensor, sizes: Tensor, indices: Tensor) -> tuple[Tensor, Tensor]:
    """Maximum of each column over the rows of each bag, and the index of its row; 0 for a bag without rows."""
    lowest = -torch.inf
    extreme = torch.amax(torch.where(member[:, :, None], rows[None], lowest), [1])
    is_extreme = member[:, :, None] & (rows[None] == extreme[:, None, :])
    # Among equal maxima the first row wins, as in PyTorch.
    places = torch.arange(rows.shape[0])[None, :, None]
    place = torch.amin(torch.where(is_extreme, places, rows.shape[0] - 1), [1])
    is_empty = (sizes == 0)[:, None]
    return torch.where(is_empty, 0.0, extreme).to(rows.dtype), torch.where(is_empty, 0, indices[place])


FORMS = {
    aten.embedding_bag.default: embedding_bag,
    aten.embedding_bag.padding_idx: embedding_bag,
    aten._embedding_bag.default: embedding_bag,
    aten._embedding_bag_forward_only.default: embedding_bag,
}
