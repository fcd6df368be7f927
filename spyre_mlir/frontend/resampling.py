# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Decompositions of interpolation and adaptive pooling: a matmul per dim with a constant matrix, or copies.

``FORMS`` is added to the decomposition table.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

aten = torch.ops.aten


def _along(x: Tensor, weights: Tensor, dim: int) -> Tensor:
    """Sums along the last dim or the dim before it, weighted by the rows of ``weights`` [results, size]."""
    weights = weights.to(x.dtype)
    return torch.matmul(x, weights.T) if dim == -1 else torch.matmul(weights, x)


def _scale(size: int, results: int, factor: float | None) -> float:
    """Distance between neighboring results, in elements of the source."""
    return 1 / factor if factor else size / results


def _linear_weights(
    like: Tensor, dim: int, results: int, align_corners: bool, factor: float | None
) -> Tensor:
    """Weights [results, size]: 1 - the distance of a source from the place of a result, or 0 if negative."""
    size = like.shape[dim]
    # In f32, because fp16 cannot represent all integers above 2048.
    place = torch.arange(results, dtype=torch.float32, device=like.device)
    if align_corners:
        place = place * ((size - 1) / max(results - 1, 1))
    else:
        # Align the centers of elements, half a step from the border.
        place = (place + 0.5) * _scale(size, results, factor) - 0.5
    sources = torch.arange(size, dtype=torch.float32, device=like.device)
    distance = torch.abs(torch.clamp(place, 0, size - 1)[:, None] - sources[None, :])
    return torch.clamp(1 - distance, min=0)


def _sizes(x: Tensor, size: Sequence[int] | None, factors: Sequence[float] | None) -> list[int]:
    """Sizes of the spatial dims of the result."""
    spatial = x.shape[2:]
    if size is not None:
        return list(size)
    assert factors is not None
    return [int(extent * factor) for extent, factor in zip(spatial, factors, strict=True)]


def linear(x: Tensor, size, align_corners: bool, factors=None) -> Tensor:
    """``upsample_linear1d`` and ``upsample_bilinear2d``."""
    sizes = _sizes(x, size, factors)
    if not x.is_floating_point() or len(sizes) > 2:
        return NotImplemented
    scales = factors if factors else [None] * len(sizes)
    for dim, results, factor in zip(range(-1, -1 - len(sizes), -1), sizes[::-1], scales[::-1], strict=True):
        if results != x.shape[dim]:
            x = _along(x, _linear_weights(x, dim, results, align_corners, factor), dim)
    return x


def nearest(x: Tensor, size, factors=None) -> Tensor:
    """``upsample_nearest``: repeat each element, or take each k-th element."""
    for index, results in enumerate(_sizes(x, size, factors)):
        dim, source = index + 2, x.shape[index + 2]
        if factors and _scale(source, results, factors[index]) != source / results:
            return NotImplemented
        if results % source == 0:
            x = x.repeat_interleave(results // source, dim)
        elif source % results == 0:
            x = aten.slice(x, dim, 0, source, source // results)
        else:
            return NotImplemented
    return x


def adaptive_average(x: Tensor, size: Sequence[int]) -> Tensor:
    """``adaptive_avg_pool2d`` over ranges of different lengths; for equal lengths PyTorch's own form is better."""
    if not x.is_floating_point() or all(
        source % results == 0 for source, results in zip(x.shape[-2:], size, strict=True)
    ):
        return NotImplemented
    for dim, results in ((-1, size[1]), (-2, size[0])):
        x = _along(x, _mean_weights(x, dim, results), dim)
    return x


def _mean_weights(like: Tensor, dim: int, results: int) -> Tensor:
    """Weights [results, size]: 1 / length from floor(i * size / results) up to ceil((i + 1) * size / results)."""
    size = like.shape[dim]
    result = torch.arange(results, device=like.device)[:, None]
    first, last = result * size // results, -((-(result + 1) * size) // results)
    source = torch.arange(size, device=like.device)[None, :]
    inside = (source >= first) & (source < last)
    return torch.where(inside, 1 / (last - first).to(torch.float32), 0.0)


FORMS = {
    aten.upsample_linear1d.vec: linear,
    aten.upsample_bilinear2d.vec: linear,
    aten.upsample_nearest1d.vec: nearest,
    aten.upsample_nearest2d.vec: nearest,
    aten._adaptive_avg_pool2d.default: adaptive_average,
}
