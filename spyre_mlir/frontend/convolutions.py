# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Decompositions of transposed convolutions, and of convolutions whose groups fill only a small part of a stick.

``FORMS`` contains their entries of the decomposition table.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

aten = torch.ops.aten

#: Channels of 16 bits in a stick; a group with more channels would only add multiplications by zero.
LANES = 64


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
    """Return a convolution as a non-transposed one with larger groups; ``NotImplemented`` if it already is one.

    Several small groups become one group, whose weight is zero for the inputs of other small groups.

    A transposed convolution whose output patches do not overlap is a matmul whose columns are the pixels of a patch.
    Others slide the mirrored kernel over ``x``, with zeros inserted between the elements of ``x``.
    """
    if not transposed:
        count = _groups_together(x, weight, groups)
        if count == 1:
            return NotImplemented
        dense = _block_diagonal(weight, groups, count)
        options = (list(stride), list(padding), list(dilation), False, list(output_padding), groups // count)
        return aten.convolution(x, dense, bias, *options)
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


def _groups_together(x: Tensor, weight: Tensor, groups: int) -> int:
    """Return the number of groups that together fill a stick of channels; 1 to leave the groups unchanged."""
    features, channels = weight.shape[0] // groups, weight.shape[1]
    # The device supports depthwise convolutions; convolutions of other formats run unchanged on the host.
    if x.dtype not in (torch.float16, torch.bfloat16) or features == channels == 1:
        return 1
    return max(
        count
        for count in range(1, groups + 1)
        if groups % count == 0 and (count == 1 or count * channels <= LANES)
    )


def _block_diagonal(weight: Tensor, groups: int, count: int) -> Tensor:
    """The weight with ``count`` groups joined into one: each group's block, and zeros for inputs of other groups."""
    features, channels, *kernel = weight.shape
    group = torch.arange(features) // (features // groups) % count
    is_own = (group[:, None] == torch.arange(count)).to(weight.dtype)
    blocks = weight.unsqueeze(1) * is_own.reshape(features, count, 1, *[1] * len(kernel))
    return blocks.reshape(features, count * channels, *kernel)


def _tiled(x: Tensor, weight: Tensor) -> Tensor:
    """Compute the pixels of each output patch as channels, then move them next to each other."""
    channels, features, *kernel = weight.shape
    dims, images, sizes = len(kernel), x.shape[0], x.shape[2:]
    # Features innermost, so that they stay in the sticks while pixels move.
    columns = weight.permute(*range(2, 2 + dims), 1, 0).reshape(-1, channels, *[1] * dims)
    parts = _plain(x, columns, [1] * dims, 1).reshape(images, *kernel, features, *sizes)
    order = [axis for dim in range(dims) for axis in (2 + dims + dim, 1 + dim)]
    whole = [size * count for size, count in zip(sizes, kernel, strict=True)]
    return parts.permute(0, 1 + dims, *order).reshape(images, features, *whole)


def _spread(x: Tensor, stride: Sequence[int]) -> Tensor:
    """Insert ``step - 1`` zeros between the elements of each dim."""
    for dim, step in enumerate(stride, 2):
        if step == 1:
            continue
        size = x.shape[dim]
        gaps = [0, 0] * (x.ndim - dim - 1) + [0, step - 1]
        x = aten.constant_pad_nd(x.unsqueeze(dim + 1), gaps, 0.0).flatten(dim, dim + 1)
        x = x.narrow(dim, 0, (size - 1) * step + 1)
    return x


def _padded(x: Tensor, ends: Sequence[tuple[int, int]]) -> Tensor:
    """Pad with zeros; a negative amount removes elements."""
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
