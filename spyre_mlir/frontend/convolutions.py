# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Decompositions of convolutions, poolings and interpolations; ``FORMS`` contains their entries of the table."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from spyre_mlir.errors import CompileError

aten = torch.ops.aten

#: Channels of 16 bits in a stick; a group with more channels would only add multiplications by zero.
LANES = 64


def convolution(
    x: Tensor, weight: Tensor, bias: Tensor | None, stride: Sequence[int], padding: Sequence[int],
    dilation: Sequence[int], transposed: bool, output_padding: Sequence[int], groups: int,
):  # fmt: skip
    """Return a convolution as a non-transposed one with larger groups; ``NotImplemented`` if it already is one.

    Several small groups become one group, whose weight is zero for the inputs of other small groups.

    A transposed convolution whose output patches do not overlap is a matmul whose columns are the pixels of a patch.
    Others slide the mirrored kernel over ``x``, with zeros inserted between the elements of ``x``.
    """
    if not transposed:
        count = _groups_together(x, weight, groups)
        if count == 1:
            return NotImplemented
        features, channels, *kernel = weight.shape
        group = torch.arange(features) // (features // groups) % count
        is_own = (group[:, None] == torch.arange(count)).to(weight.dtype)
        blocks = weight.unsqueeze(1) * is_own.reshape(features, count, 1, *[1] * len(kernel))
        dense = blocks.reshape(features, count * channels, *kernel)
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
        source = _spread(x, stride)
        reach = [step * (size - 1) for step, size in zip(dilation, kernel, strict=True)]
        ends = [
            (most - amount, most - amount + more)
            for most, amount, more in zip(reach, padding, output_padding, strict=True)
        ]
        # A negative amount of padding removes elements.
        for dim, (low, high) in enumerate(ends, 2):
            source = source.narrow(dim, max(-low, 0), source.shape[dim] + min(low, 0) + min(high, 0))
        amounts = [max(amount, 0) for pair in reversed(ends) for amount in pair]
        source = aten.constant_pad_nd(source, amounts, 0.0) if any(amounts) else source
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


def convolution_gradients(
    grad: Tensor, x: Tensor, weight: Tensor, bias_sizes: Sequence[int] | None, stride: Sequence[int],
    padding: Sequence[int], dilation: Sequence[int], transposed: bool, output_padding: Sequence[int], groups: int,
    wanted: Sequence[bool],
):  # fmt: skip
    """Return the gradients of input, weight and bias; None for a gradient that is not wanted.

    The gradient of the input is the convolution in the other direction. An element of the weight at one kernel position
    scales one shifted copy of the input, so its gradient is the product of the copy and ``grad``, summed over images
    and positions.
    """
    dims = weight.ndim - 2
    stride, padding, dilation = (
        list(numbers) * (dims if len(numbers) == 1 else 1) for numbers in (stride, padding, dilation)
    )
    kernel, sizes = list(weight.shape[2:]), x.shape[2:]
    # Elements of the input after the last window.
    reached = [
        (grad.shape[2 + dim] - 1) * stride[dim] - 2 * padding[dim] + dilation[dim] * (kernel[dim] - 1) + 1
        for dim in range(dims)
    ]
    rest = [0] * dims if transposed else [sizes[dim] - reached[dim] for dim in range(dims)]
    of_x = of_weight = of_bias = None
    if wanted[0]:
        of_x = aten.convolution(grad, weight, None, stride, padding, dilation, not transposed, rest, groups)
        for dim in range(dims):
            of_x = of_x.narrow(2 + dim, 0, sizes[dim])
    if wanted[1]:
        source, result = (grad, x) if transposed else (x, grad)
        of_weight = _weight_gradient(source, result, kernel, stride, padding, dilation, groups)
    if wanted[2]:
        of_bias = grad.sum([0, *range(2, 2 + dims)])
    return of_x, of_weight, of_bias


def _weight_gradient(
    source: Tensor, result: Tensor, kernel: Sequence[int], stride: Sequence[int], padding: Sequence[int],
    dilation: Sequence[int], groups: int,
) -> Tensor:  # fmt: skip
    """Return the gradient of a weight [features, channels of a group, *kernel] of a convolution.

    ``source`` [images, channels, *sizes] is what the kernel slides over, ``result`` [images, features, *positions] has
    an element for each position of the kernel.
    """
    amounts = [amount for pad in reversed(padding) for amount in (pad, pad)]
    source = aten.constant_pad_nd(source, amounts, 0.0) if any(amounts) else source
    images, features, *positions = result.shape
    by_group = result.reshape(images, groups, features // groups, -1)
    rows = by_group.permute(1, 2, 0, 3).flatten(2)
    parts = []
    for place in itertools.product(*map(range, kernel)):
        part = source
        for dim, at in enumerate(place):
            first = at * dilation[dim]
            last = first + (positions[dim] - 1) * stride[dim] + 1
            part = aten.slice(part, 2 + dim, first, last, stride[dim])
        part = part.reshape(images, groups, source.shape[1] // groups, -1)
        if features == source.shape[1] == groups:
            parts.append((part * by_group).sum([0, 3]))
        else:
            parts.append(torch.bmm(rows, part.permute(1, 0, 3, 2).flatten(1, 2)))
    return torch.stack(parts, -1).reshape(features, source.shape[1] // groups, *kernel)


def of_a_batch(
    pool: torch._ops.OpOverload, dims: int, batched: Callable[..., Any] | None = None
) -> Callable[..., Any]:
    """Form of a pooling over ``dims`` dims: an image becomes a batch of one; ``batched`` is the form for a batch.

    torch-mlir's passes expect a batch, and abort on some other poolings.
    """

    def form(x: Tensor, *arguments, **options):
        if x.ndim == dims + 1:
            results = pool(x.unsqueeze(0), *arguments, **options)
            return pytree.tree_map(lambda result: result.squeeze(0), results)
        return batched(x, *arguments, **options) if batched else NotImplemented

    return form


def largest_of_a_volume(x: Tensor, *arguments, **options) -> tuple[Tensor, Tensor]:
    """Reject ``max_pool3d_with_indices`` of integers with a ``CompileError``."""
    if not x.is_floating_point():
        raise CompileError("A max_pool3d of integers is not supported; give it as a float.")
    return NotImplemented


# Interpolation and adaptive pooling: a matmul per dim with a constant matrix, or copies.


def _along(x: Tensor, weights: Tensor, dim: int) -> Tensor:
    """Sums along a dim, counted from the last one, weighted by the rows of ``weights`` [results, size]."""
    weights = weights.to(x.dtype)
    if dim < -2:
        return torch.matmul(x.transpose(dim, -1), weights.T).transpose(dim, -1)
    return torch.matmul(x, weights.T) if dim == -1 else torch.matmul(weights, x)


def _step(size: int, results: int, factor: float | None) -> float:
    """Distance between neighboring results, in elements of the source."""
    return 1 / factor if factor else size / results


def _sizes(x: Tensor, size: Sequence[int] | None, factors: Any) -> list[int]:
    """Sizes of the spatial dims of the result."""
    if size is not None:
        return list(size)
    return [int(extent * factor) for extent, factor in zip(x.shape[2:], factors, strict=True)]


def linear(x: Tensor, size, align_corners: bool, factors=None) -> Tensor:
    """``upsample_linear1d`` and ``upsample_bilinear2d``: a matmul per dim whose size changes."""
    sizes = _sizes(x, size, factors)
    if not x.is_floating_point() or len(sizes) > 2:
        return NotImplemented
    scales = factors if factors else [None] * len(sizes)
    for dim, results, factor in zip(range(-1, -1 - len(sizes), -1), sizes[::-1], scales[::-1], strict=True):
        if results != x.shape[dim]:
            x = _along(x, _linear_weights(x, x.shape[dim], results, align_corners, factor), dim)
    return x


def linear_gradient(grad: Tensor, size, input_size, align_corners: bool, *factors: float | None) -> Tensor:
    """``upsample_linear1d_backward`` and ``upsample_bilinear2d_backward``: the transposed matmuls of ``linear``."""
    if not grad.is_floating_point():
        return NotImplemented
    for axis, (results, extent) in enumerate(zip(size, input_size[2:], strict=True)):
        if results != extent:
            factor = factors[axis] if factors else None
            weights = _linear_weights(grad, extent, results, align_corners, factor)
            grad = _along(grad, weights.T, axis - len(size))
    return grad


def _linear_weights(
    like: Tensor, extent: int, results: int, align_corners: bool, factor: float | None
) -> Tensor:
    """Weights [results, extent]: 1 - the distance of a source from the place of a result, or 0 if negative."""
    # Positions are f32, because fp16 cannot represent all integers above 2048.
    place = torch.arange(results, dtype=torch.float32, device=like.device)
    if align_corners:
        place = place * ((extent - 1) / max(results - 1, 1))
    else:
        # Align the centers of elements, half a step from the border.
        place = (place + 0.5) * _step(extent, results, factor) - 0.5
    sources = torch.arange(extent, dtype=torch.float32, device=like.device)
    distance = torch.abs(torch.clamp(place, 0, extent - 1)[:, None] - sources[None, :])
    return torch.clamp(1 - distance, min=0)


def nearest(x: Tensor, size, factors=None) -> Tensor:
    """``upsample_nearest``: repeat each element, or take each k-th element."""
    for index, results in enumerate(_sizes(x, size, factors)):
        dim, source = index + 2, x.shape[index + 2]
        if factors and _step(source, results, factors[index]) != source / results:
            return NotImplemented
        if results % source == 0:
            x = x.repeat_interleave(results // source, dim)
        elif source % results == 0:
            x = aten.slice(x, dim, 0, source, source // results)
        else:
            return NotImplemented
    return x


def nearest_gradient(grad: Tensor, size, input_size, *factors: float | None) -> Tensor:
    """``upsample_nearest1d_backward`` and ``upsample_nearest2d_backward``: sums over repeated elements."""
    for axis, (results, extent) in enumerate(zip(size, input_size[2:], strict=True)):
        dim = axis - len(size)
        factor = factors[axis] if factors else None
        if results % extent or (factor and _step(extent, results, factor) != extent / results):
            return NotImplemented
        if results != extent:
            grad = grad.unflatten(dim, (extent, results // extent)).sum(dim)
    return grad


def adaptive_average(x: Tensor, size: Sequence[int]) -> Tensor:
    """``adaptive_avg_pool2d`` over ranges of different lengths; for equal lengths PyTorch's own form is better."""
    is_regular = all(source % results == 0 for source, results in zip(x.shape[-2:], size, strict=True))
    if not x.is_floating_point() or is_regular:
        return NotImplemented
    for dim, results in ((-1, size[1]), (-2, size[0])):
        x = _along(x, _adaptive_weights(x, x.shape[dim], results), dim)
    return x


def adaptive_average_gradient(grad: Tensor, x: Tensor) -> Tensor:
    """Gradients of ``adaptive_avg_pool2d`` and ``adaptive_avg_pool3d``: the transposed matmuls."""
    for dim in range(2 - grad.ndim, 0):
        if grad.shape[dim] != x.shape[dim]:
            grad = _along(grad, _adaptive_weights(grad, x.shape[dim], grad.shape[dim]).T, dim)
    return grad


def _adaptive_weights(like: Tensor, extent: int, results: int) -> Tensor:
    """Weights [results, extent]: 1 / length from floor(i * extent / results) up to ceil((i + 1) * extent / results)."""
    result = torch.arange(results, device=like.device)[:, None]
    first, last = result * extent // results, -((-(result + 1) * extent) // results)
    source = torch.arange(extent, device=like.device)[None, :]
    inside = (source >= first) & (source < last)
    return torch.where(inside, 1 / (last - first).to(torch.float32), 0.0)


def average_gradient(
    grad: Tensor, x: Tensor, kernel, stride, padding, ceil_mode: bool, count_include_pad: bool,
    divisor_override: int | None = None,
) -> Tensor:  # fmt: skip
    """``avg_pool2d_backward`` and ``avg_pool3d_backward``: a matmul per dim, with weights of 1 / length of a window."""
    dims = len(kernel)
    stride, padding = list(stride or kernel), list(padding)
    if not grad.is_floating_point():
        return NotImplemented
    for axis in range(dims):
        dim, size = axis - dims, kernel[axis]
        extent, margin = x.shape[axis - dims], padding[axis % len(padding)]
        first = (
            torch.arange(grad.shape[dim], device=grad.device)[:, None] * stride[axis % len(stride)] - margin
        )
        source = torch.arange(extent, device=grad.device)[None, :]
        inside = (source >= first) & (source < first + size)
        if divisor_override:
            length = torch.full_like(first, divisor_override if axis == 0 else 1)
        elif count_include_pad:
            length = torch.clamp(first + size, max=extent + margin) - first
        else:
            length = torch.clamp(first + size, max=extent) - torch.clamp(first, min=0)
        weights = torch.where(inside, 1 / length.to(torch.float32), 0.0)
        grad = _along(grad, weights.T, dim)
    return grad


FORMS: dict[torch._ops.OperatorBase, Callable[..., Any]] = {
    aten.convolution.default: convolution,
    aten.max_pool2d_with_indices.default: of_a_batch(aten.max_pool2d_with_indices.default, 2),
    aten.max_pool3d_with_indices.default: of_a_batch(
        aten.max_pool3d_with_indices.default, 3, largest_of_a_volume
    ),
    aten.upsample_linear1d.vec: linear,
    aten.upsample_bilinear2d.vec: linear,
    aten.upsample_nearest1d.vec: nearest,
    aten.upsample_nearest2d.vec: nearest,
    aten._adaptive_avg_pool2d.default: adaptive_average,
    aten.convolution_backward.default: convolution_gradients,
    aten._adaptive_avg_pool2d_backward.default: adaptive_average_gradient,
    aten._adaptive_avg_pool3d_backward.default: adaptive_average_gradient,
    aten.avg_pool2d_backward.default: average_gradient,
    aten.avg_pool3d_backward.default: average_gradient,
    aten.upsample_linear1d_backward.default: linear_gradient,
    aten.upsample_bilinear2d_backward.default: linear_gradient,
    aten.upsample_nearest1d_backward.default: nearest_gradient,
    aten.upsample_nearest2d_backward.default: nearest_gradient,
}
