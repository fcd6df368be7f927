"""Decompositions of transposed convolutions, which upstream's lowering to linalg does not have for the device.

``FORMS`` is their part of the decomposition table.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

aten = torch.ops.aten


def convolution(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
):
    """Return a transposed convolution as one that is not; ``NotImplemented`` for other convolutions.

    Where the parts of its result do not overlap it is a matmul whose columns are the pixels of a part; else it slides
    over ``x`` with zeros between its elements, by the mirrored kernel.
    """
    if not transposed:
        return NotImplemented
    dims = weight.ndim - 2
    stride, padding, dilation, output_padding = (
        list(numbers) * (dims if len(numbers) == 1 else 1)
        for numbers in (stride, padding, dilation, output_padding)
    )
    kernel = list(weight.shape[2:])
    is_tiled = stride == kernel and groups == 1 and not any((*padding, *output_padding))
    if is_tiled and max(dilation) == 1:
        result = _tiled(x, weight)
    else:
        reach = [step * (size - 1) for step, size in zip(dilation, kernel, strict=True)]
        ends = [
            (most - amount, most - amount + more)
            for most, amount, more in zip(reach, padding, output_padding, strict=True)
        ]
        source = _padded(_spread(x, stride), ends)
        result = _plain(source, _mirrored(weight, groups), dilation, groups)
    return result if bias is None else result + bias.reshape(-1, *[1] * dims)


def _tiled(x: Tensor, weight: Tensor) -> Tensor:
    """The pixels of a part as channels, side by side behind."""
    channels, features, *kernel = weight.shape
    dims, images, sizes = len(kernel), x.shape[0], x.shape[2:]
    # Features innermost: they stay in the sticks where pixels move.
    columns = weight.permute(*range(2, 2 + dims), 1, 0).reshape(-1, channels, *[1] * dims)
    parts = _plain(x, columns, [1] * dims, 1).reshape(images, *kernel, features, *sizes)
    order = [axis for dim in range(dims) for axis in (2 + dims + dim, 1 + dim)]
    whole = [size * count for size, count in zip(sizes, kernel, strict=True)]
    return parts.permute(0, 1 + dims, *order).reshape(images, features, *whole)


def _spread(x: Tensor, stride: Sequence[int]) -> Tensor:
    """Zeros between elements."""
    for dim, step in enumerate(stride, 2):
        if step == 1:
            continue
        size = x.shape[dim]
        gaps = [0, 0] * (x.ndim - dim - 1) + [0, step - 1]
        x = aten.constant_pad_nd(x.unsqueeze(dim + 1), gaps, 0.0).flatten(dim, dim + 1)
        x = x.narrow(dim, 0, (size - 1) * step + 1)
    return x


def _padded(x: Tensor, ends: Sequence[tuple[int, int]]) -> Tensor:
    """Zeros around, or fewer elements where an amount is negative."""
    for dim, (low, high) in enumerate(ends, 2):
        first, count = max(-low, 0), x.shape[dim] + min(low, 0) + min(high, 0)
        x = x.narrow(dim, first, count)
    amounts = [max(amount, 0) for pair in reversed(ends) for amount in pair]
    return aten.constant_pad_nd(x, amounts, 0.0) if any(amounts) else x


def _mirrored(weight: Tensor, groups: int) -> Tensor:
    channels, features, *kernel = weight.shape
    split = weight.reshape(groups, channels // groups, features, *kernel).transpose(1, 2)
    swapped = split.reshape(groups * features, channels // groups, *kernel)
    mirrored = [dim for dim, size in enumerate(kernel, 2) if size > 1]
    return swapped.flip(mirrored) if math.prod(kernel) > 1 else swapped


def _plain(x: Tensor, weight: Tensor, dilation: Sequence[int], groups: int) -> Tensor:
    dims = weight.ndim - 2
    ones, zeros = [1] * dims, [0] * dims
    return aten.convolution(x, weight, None, ones, zeros, list(dilation), False, zeros, groups)


FORMS = {aten.convolution.default: convolution}
