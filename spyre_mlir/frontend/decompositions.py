# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Decompositions of composite PyTorch operations, applied before MLIR sees them.

The forms are chosen so that each step is one operation of the device and 16-bit tensors stay 16 bits: sums accumulate
in f32 and are rounded once, nothing becomes f64, masks are data. If a function returns ``NotImplemented``, the
operation is kept.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch_mlir import fx

from spyre_mlir.frontend import convolutions, pointwise, row_writes, selection, transformer_layers
from spyre_mlir.frontend.pointwise import NARROW

aten = torch.ops.aten

# PyTorch operations that only move data, as slices and concatenations; ``MOVING_FORMS`` is added to the table.
#
# A slice is a view on the device and a concatenation is one copy per part, so operations that need many parts are kept.

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

MOVING_FORMS = {
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


#: Operations that torch-mlir lowers better itself: ``addmm`` in the table would cast the weights to f32, ``gelu`` and
#: ``sigmoid`` each have one scalar body, ``full`` would become an ``empty`` that cannot fold.
_LOWERED_BY_TORCH_MLIR = (
    aten.addmm, aten.native_layer_norm, aten.rms_norm, aten._fused_rms_norm, aten.gelu, aten.sigmoid,
    aten.full,
)  # fmt: skip

#: Operations that fail on a singular matrix: their decomposition returns the numbers, and the check as an effect.
CHECKED_BY_KERNELS = (
    aten.inverse, aten.linalg_inv, aten.linalg_solve, aten.linalg_cholesky, aten.linalg_lu_factor,
    aten.linalg_ldl_factor,
)  # fmt: skip


def _accumulated_sum(x: Tensor, dims: Sequence[int] | None, keepdim: bool) -> Tensor:
    """Sum: 16-bit numbers accumulate in f32, other numbers in their type."""
    every = list(range(x.ndim)) if dims is None else list(dims)
    return torch.sum(x, every, keepdim=keepdim, dtype=torch.float32 if x.dtype in NARROW else None)


def _widened(x: Tensor) -> Tensor:
    """Convert 16-bit numbers to f32, in which PyTorch computes norms and statistics; other types are unchanged."""
    return x.float() if x.dtype in NARROW else x


def _mean(x: Tensor, dims: Sequence[int] | None, keepdim: bool = True) -> Tensor:
    """Mean, rounded to the type of ``x`` once, after the division."""
    count = math.prod(x.shape[dim] for dim in (range(x.ndim) if not dims else dims))
    return (_accumulated_sum(x, dims, keepdim) / count).to(x.dtype)


def sum_dims(x: Tensor, dim: Sequence[int] | None = None, keepdim: bool = False, dtype=None) -> Tensor:
    """``sum`` over dims of 16-bit numbers: accumulated in f32, rounded once. With bool: whether any is not 0."""
    if dtype == torch.bool:
        return torch.any(x.bool(), list(dim) if dim else list(range(x.ndim)), keepdim)
    if x.dtype not in NARROW or dtype not in (None, x.dtype):
        return NotImplemented
    return _accumulated_sum(x, dim, keepdim).to(x.dtype)


def mean(x: Tensor, dim: Sequence[int] | None = None, keepdim: bool = False, *, dtype=None) -> Tensor:
    """``mean`` over dims, rounded once."""
    return _mean(x if dtype is None else x.to(dtype), dim, keepdim)


def accumulated(scan: Callable[..., Any]) -> Callable[..., Any]:
    """Form of ``cumsum`` or ``cumprod``: 16-bit numbers are scanned in f32; a tensor without dims is copied."""

    def form(x: Tensor, dim: int, dtype=None) -> Tensor:
        if x.ndim == 0:
            natural = x.dtype if x.is_floating_point() or x.is_complex() else torch.int64
            return x.to(natural if dtype is None else dtype, copy=True)
        if x.dtype not in NARROW or dtype not in (None, x.dtype):
            return NotImplemented
        return scan(x.to(torch.float32), dim).to(x.dtype)

    return form


def in_few_bits(
    operation: torch._ops.OpOverload, form: Callable[..., Any] = lambda *_, **__: NotImplemented
) -> Callable[..., Any]:
    """Form of a sum or a product whose result has 8 or 16 bits: computed in 32 bits, then truncated.

    torch-mlir aborts the process on such operations. For other result types ``form`` is used.
    """

    def in_32_bits(x: Tensor, *arguments, dtype=None, **options) -> Any:
        if dtype not in (torch.uint8, torch.int8, torch.int16):
            return form(x, *arguments, dtype=dtype, **options)
        return operation(x.to(dtype).int(), *arguments, dtype=torch.int32, **options).to(dtype)

    return in_32_bits


def _centred(x: Tensor, dims: Sequence[int] | None) -> Tensor:
    """Differences from the mean, in f32 if ``x`` has 16 bits."""
    x = _widened(x)
    return x - _mean(x, dims)


def _variance(x: Tensor, dim: Sequence[int] | None, correction, keepdim: bool) -> Tensor:
    """Sum of squared differences from the mean over max(n - correction, 0), in f32 if ``x`` has 16 bits."""
    dims = list(dim) if dim else list(range(x.ndim))
    count = max(math.prod(x.shape[d] for d in dims) - (1 if correction is None else correction), 0)
    centred = _centred(x, dims)
    return _accumulated_sum(centred * centred, dims, keepdim) / count


def variance(
    x: Tensor, dim: Sequence[int] | None = None, *, correction=None, keepdim: bool = False
) -> Tensor:
    """``var``, rounded to the type of ``x`` once."""
    if x.is_complex():
        return NotImplemented
    return _variance(x, dim, correction, keepdim).to(x.dtype)


def deviation(
    x: Tensor, dim: Sequence[int] | None = None, *, correction=None, keepdim: bool = False
) -> Tensor:
    """``std``: the root of the variance, rounded to the type of ``x`` once."""
    if x.is_complex():
        return torch.sqrt(aten.var.correction(x, dim, correction=correction, keepdim=keepdim))
    return torch.sqrt(_variance(x, dim, correction, keepdim)).to(x.dtype)


def in_f32(operation: torch._ops.OpOverload) -> Callable[..., Any]:
    """Form of an operation that PyTorch computes in f32 if its tensor has 16 bits."""

    def form(x: Tensor, *arguments, dtype=None, **options) -> Tensor:
        if x.dtype not in NARROW or dtype not in (None, x.dtype):
            return NotImplemented
        return operation(x.float(), *arguments, **options).to(x.dtype)

    return form


def vector_norm(
    x: Tensor, order: float = 2, dims: Sequence[int] | None = None, keepdim: bool = False, *, dtype=None
) -> Tensor:
    """``linalg_vector_norm``: root of the sum of squares for order 2; all orders in f32 if ``x`` has 16 bits."""
    if x.is_complex():
        return aten.linalg_vector_norm.default(torch.abs(x), order, dims, keepdim, dtype=dtype)
    if x.numel() and all(x.shape[dim] == 1 for dim in (dims or range(x.ndim))) and order != 0:
        # PyTorch's form for a single number, whose square may overflow.
        size = torch.abs(x if dtype is None else x.to(dtype))
        return size if keepdim else size.squeeze(tuple(dims or range(x.ndim)))
    if order != 2:
        return in_f32(aten.linalg_vector_norm.default)(x, order, dims, keepdim, dtype=dtype)
    wide = _widened(x if dtype is None else x.to(dtype))
    result = torch.sqrt(_accumulated_sum(wide * wide, dims, keepdim))
    return result.to(x.dtype if dtype is None else dtype)


def norm(
    x: Tensor, order=2, dims: Sequence[int] | None = None, keepdim: bool = False, *, dtype=None
) -> Tensor:
    """``norm``, the older name of ``linalg_vector_norm``."""
    return aten.linalg_vector_norm.default(x, 2 if order is None else order, dims, keepdim, dtype=dtype)


def weight_norm(direction: Tensor, size: Tensor, dim: int = 0) -> tuple[Tensor, Tensor]:
    """``_weight_norm_interface``: direction * (size / norm), and the norm over all dims but one, in f32."""
    wide = _widened(direction)
    others = [other for other in range(wide.ndim) if other != dim % wide.ndim]
    norm_ = torch.sqrt(_accumulated_sum(wide * wide, others, True))
    return (wide * (_widened(size) / norm_)).to(direction.dtype), norm_


def softmax(x: Tensor, dim: int, half_to_float: bool = False) -> Tensor:
    """e / sum(e) with e = exp(x - max(x))."""
    x = x.float() if half_to_float else x
    if not x.numel():
        return x.clone()
    # Shifted, so that no exponential overflows.
    return _normalised_exponential(x - torch.amax(x, [dim], keepdim=True), dim)


def _normalised_exponential(x: Tensor, dim: int) -> Tensor:
    exponential = torch.exp(x)
    return (_widened(exponential) / _accumulated_sum(exponential, [dim], True)).to(x.dtype)


def safe_softmax(x: Tensor, dim: int, dtype=None) -> Tensor:
    """Softmax that is 0 instead of NaN in rows of -inf."""
    x = x if dtype is None else x.to(dtype)
    lowest = _lowest(x.dtype)
    return torch.where(x >= lowest, softmax(torch.clamp(x, min=lowest), dim), 0.0)


def log_softmax(x: Tensor, dim: int, half_to_float: bool = False) -> Tensor:
    """y - log(sum(exp(y))) with y = x - max(x)."""
    x = x.float() if half_to_float else x
    if not x.numel():
        return x.clone()
    shifted = x - torch.amax(x, [dim], keepdim=True)
    return shifted - torch.log(_accumulated_sum(torch.exp(shifted), [dim], True).to(x.dtype))


def native_layer_norm(x: Tensor, shape, weight, bias, eps: float) -> tuple[Tensor, Tensor, Tensor]:
    """(x - mean) * rsqrt(mean((x - mean)^2) + eps) * weight + bias; also mean and 1 / deviation for the gradient."""
    dims = list(range(-len(shape), 0))
    centred = _centred(x, dims)
    scale = torch.rsqrt(_mean(centred * centred, dims) + eps)
    result = (centred * scale).to(x.dtype)
    result = result if weight is None else result * weight
    result = (result if bias is None else result + bias).to(x.dtype)
    return result, _mean(x, dims).to(x.dtype), scale.to(x.dtype)


def rms_norm(x: Tensor, shape, weight=None, eps: float | None = None) -> Tensor:
    """x * rsqrt(mean(x^2) + eps) * weight."""
    # PyTorch's default is the eps of the type it computes in: float32 for 16-bit tensors.
    if eps is None:
        eps = torch.finfo(torch.float64 if x.dtype == torch.float64 else torch.float32).eps
    wide = _widened(x)
    result = wide * torch.rsqrt(_mean(wide * wide, list(range(-len(shape), 0))) + eps)
    result = result.to(x.dtype)
    return result if weight is None else (result * weight).to(x.dtype)


def batch_norm(x: Tensor, weight, bias, mean: Tensor, var: Tensor, momentum: float, eps: float):
    """(x - mean) * rsqrt(var + eps) * weight + bias over dim 1; mean and var are data, so they fold.

    One scale and one shift per channel would be two operations on x and three operations to compute the two. The host
    may not fold them, because the parameters belong to the caller; where overhead counts, that is more.
    """
    shape = [-1, *(1,) * (x.ndim - 2)]
    # The scale is computed in f32: an eps such as 1e-8 is 0 in fp16.
    scale = torch.rsqrt(var.float() + eps).to(torch.promote_types(x.dtype, var.dtype))
    result = (x - mean.reshape(shape)) * scale.reshape(shape)
    result = result if weight is None else result * weight.reshape(shape)
    result = result if bias is None else result + bias.reshape(shape)
    # Parameters may be wider than the tensor, as under autocast.
    return result.to(x.dtype), mean.new_empty((0,)), mean.new_empty((0,))


def group_norm(
    x: Tensor, weight, bias, images: int, channels: int, pixels: int, groups: int, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Layer norm of each group without parameters, then weight and bias over dim 1; also mean and 1 / deviation."""
    # Weight and bias belong to channels, not to groups.
    shape = [1, -1, *(1,) * (x.ndim - 2)]
    grouped = x.reshape(images, groups, -1)
    centred = _centred(grouped, [2])
    scale = torch.rsqrt(_mean(centred * centred, [2]) + eps)
    result = (centred * scale).to(x.dtype).reshape(x.shape)
    result = result if weight is None else result * weight.reshape(shape)
    result = result if bias is None else result + bias.reshape(shape)
    return result.to(x.dtype), _mean(grouped, [2]).squeeze(2), scale.to(x.dtype).squeeze(2)


def _repeat_heads(x: Tensor, heads: int) -> Tensor:
    """Key or value heads repeated for the query heads that share them: [b, h, s, d] -> [b, heads, s, d]."""
    shape = x.shape
    groups = heads // shape[-3]
    if groups == 1:
        return x
    expanded = x.unsqueeze(-3).expand(*shape[:-2], groups, *shape[-2:])
    return expanded.reshape(*shape[:-3], heads, *shape[-2:])


def _lowest(dtype: torch.dtype) -> float:
    """Number below all numbers of a type; on the device the last bfloat16 code is an infinity, as in DL16."""
    return -(2.0**32) if dtype == torch.bfloat16 else torch.finfo(dtype).min


def _causal_mask(rows: int, columns: int, like: Tensor) -> Tensor:
    """Additive mask: 0 where a query sees a key, a large negative number elsewhere; constant folding makes it data."""
    seen = (
        torch.arange(columns, device=like.device)[None, :] <= torch.arange(rows, device=like.device)[:, None]
    )
    # Half of the lowest number, so that the sum of a score and the mask stays finite.
    unseen = _lowest(like.dtype) / 2
    return torch.where(seen, 0.0, unseen).to(like.dtype)


#: Number that absorbs any score added to it in float32; fp16 does not have a number as low.
_SWALLOWING = -(2.0**28)


def _less_common(mask: Tensor) -> Tensor:
    """16-bit additive mask minus the largest number of each row.

    A number that is added to all elements of a row does not change the softmax of the row. The mask of a fully masked
    row, added to scores in 16 bits, would absorb the scores. PyTorch adds in float32, which absorbs much less.
    """
    common = torch.amax(mask, [-1], keepdim=True)
    if mask.dtype == torch.bfloat16:
        return mask - torch.where(common < _SWALLOWING, 0.0, common)
    return mask - torch.clamp(common, min=_lowest(mask.dtype))


def _masked_softmax(scores: Tensor, mask: Tensor) -> Tensor:
    """Softmax under a boolean or an additive mask; fully masked rows are 0, as in PyTorch."""
    lowest = _lowest(scores.dtype)
    if mask.dtype == torch.bool:
        return torch.where(mask, softmax(torch.where(mask, scores, lowest / 2), -1), 0.0)
    if scores.dtype in NARROW and mask.numel():
        # Half of the lowest number, so that the sum of a score and the mask stays finite.
        mask_levels = torch.clamp(_less_common(mask), min=lowest / 2)
        if mask.numel() == scores.numel():
            # Attention plans match a sum in f32; an fp16 sum of two tensors of this size would be stored.
            masked = scores.float() + mask_levels.float()
            shifted = masked - torch.amax(masked, [-1], keepdim=True)
            weights = _normalised_exponential(shifted.to(scores.dtype), -1)
        else:
            weights = softmax(scores + mask_levels, -1)
    else:
        weights = softmax(torch.clamp(scores + mask, min=lowest), -1)
    # The device has one code for -inf and the last bfloat16.
    is_visible = mask >= _lowest(mask.dtype) if mask.dtype == torch.bfloat16 else mask != -torch.inf
    return torch.where(is_visible, weights, 0.0)


def attention(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, dropout_p: float = 0.0,
    is_causal: bool = False, *, scale: float | None = None, enable_gqa: bool = False,
) -> Tensor:  # fmt: skip
    """softmax(query * scale @ key^T + mask) @ value."""
    if dropout_p:
        return NotImplemented
    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    if enable_gqa:
        key, value = _repeat_heads(key, query.shape[-3]), _repeat_heads(value, query.shape[-3])
    # The scale is applied before the product, whose 16-bit sums could overflow.
    scores = torch.matmul(query * scale, key.transpose(-1, -2))
    if is_causal:
        scores = scores + _causal_mask(query.shape[-2], key.shape[-2], scores)
    weights = softmax(scores, -1) if attn_mask is None else _masked_softmax(scores, attn_mask)
    return torch.matmul(weights, value)


def strict_attention(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, dropout_p: float = 0.0,
    is_causal: bool = False, *, scale: float | None = None, enable_gqa: bool = False,
) -> Tensor:  # fmt: skip
    """``attention`` whose 16-bit scores are reduced by the largest score before they are rounded.

    A matmul rounds its sums, and exp turns the absolute error into a relative error: 0.1 for a score of 300. So a first
    matmul computes the largest score t of each row, and a second matmul computes ``[query, -t] @ [key, 1]^T``, which is
    near 0 where a weight is not. Queries are scaled by a power of two before, which is exact, and by the rest after.
    """
    if query.dtype not in NARROW:
        options = {"scale": scale, "enable_gqa": enable_gqa}
        return attention(query, key, value, attn_mask, dropout_p, is_causal, **options)
    if dropout_p:
        return NotImplemented
    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    if enable_gqa:
        key, value = _repeat_heads(key, query.shape[-3]), _repeat_heads(value, query.shape[-3])
    before = math.copysign(2.0 ** math.floor(math.log2(abs(scale))), scale) if scale else 0.0
    query, after = query * before, scale / before if scale else 0.0
    if is_causal:
        attn_mask = _causal_mask(query.shape[-2], key.shape[-2], query)
    elif attn_mask is not None and attn_mask.dtype != torch.bool:
        attn_mask = _less_common(attn_mask) if attn_mask.numel() else attn_mask
    scores = torch.matmul(query, key.transpose(-1, -2))
    if attn_mask is not None:
        # Masked scores become a number far below all others.
        lowest = _lowest(scores.dtype)
        seen = attn_mask if attn_mask.dtype == torch.bool else attn_mask >= lowest / 4
        scores = torch.where(seen, scores, lowest / 2)
    largest = torch.amax(scores, [-1], keepdim=True)
    ones = torch.ones_like(key[..., :1])
    shifted = (
        torch.matmul(torch.cat([query, -largest], -1), torch.cat([key, ones], -1).transpose(-1, -2)) * after
    )
    if attn_mask is None:
        weights = softmax(shifted, -1)
    else:
        weights = softmax(shifted + attn_mask, -1) if is_causal else _masked_softmax(shifted, attn_mask)
    return torch.matmul(weights, value)


# Matrix products with a sum, 8-bit products with scales, rounding and quantizing.


def _sum(added: Tensor, product: Tensor, beta: float, alpha: float) -> Tensor:
    """beta * added + alpha * product in the type of the product; with beta = 0 ``added`` is ignored, even NaN."""
    if not product.is_floating_point():
        # A float factor would make the product a float.
        beta, alpha = int(beta), int(alpha)
    product = product if alpha == 1 else product * alpha
    if beta == 0:
        return product
    return product + (added if beta == 1 else added * beta)


def matrix_vector(matrix: Tensor, vector: Tensor) -> Tensor:
    """``mv``: a matmul with one column."""
    return torch.mm(matrix, vector.unsqueeze(1)).squeeze(1)


def _scaled_products(added: Tensor, x: Tensor, y: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """``baddbmm``: beta * added + alpha * (x @ y), in the type of the factors."""
    return _sum(added, torch.bmm(x, y), beta, alpha)


def _scaled_product(added: Tensor, x: Tensor, y: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """``addmm`` in the cases that torch-mlir does not lower: integers, no elements, or beta = 0."""
    if x.is_floating_point() and x.numel() and y.numel() and beta != 0:
        return NotImplemented
    # torch-mlir lowers all other calls itself.
    return _sum(added, torch.mm(x, y), beta, alpha)


def _scaled_sum_of_products(
    added: Tensor, x: Tensor, y: Tensor, *, beta: float = 1, alpha: float = 1
) -> Tensor:
    """``addbmm``: beta * added + alpha * the sum of the products of a batch, as one product of longer rows."""
    rows, columns = x.shape[1], y.shape[2]
    product = torch.mm(x.transpose(0, 1).reshape(rows, -1), y.reshape(-1, columns))
    return _sum(added, product, beta, alpha)


# 8-bit operations. Quantizing is in f32, because torch-mlir's form scales fp16 in fp16 and is off by one.


_FP8 = torch.float8_e4m3fn
_LARGEST = torch.finfo(_FP8).max

#: All float32 numbers from 2^23 on are integers, and the spacing of the numbers from 2^23 to 2^24 is 1.
_INTEGERS = 2.0**23


def rounded(x: Tensor) -> Tensor:
    """Round to integers, ties to even, by f32 sums: the device cannot round, torch-mlir's form has 12 operations."""
    if x.dtype not in (torch.float16, torch.bfloat16, torch.float32):
        return NotImplemented
    if x.dtype == torch.float32:
        size = x.abs()
        near = (size + _INTEGERS) - _INTEGERS
        return torch.where(size < _INTEGERS, torch.where(x < 0, -near, near), x)
    # Numbers of 16 bits are integers from 2^22 on, and a sum of a smaller one lies between 2^23 and 2^24.
    wide, shift = x.float(), 1.5 * _INTEGERS
    return torch.where(wide.abs() < _INTEGERS / 2, (wide + shift) - shift, wide).to(x.dtype)


def rounded_to_decimals(x: Tensor, *, decimals: int) -> Tensor:
    """``round`` to a power of ten, in f32 and rounded to the type of ``x`` once, as PyTorch computes it."""
    power = 10.0 ** abs(decimals)
    if (
        x.dtype not in (torch.float16, torch.bfloat16, torch.float32)
        or power > torch.finfo(torch.float32).max
    ):
        return NotImplemented
    wide = x.float()
    rounded = torch.round(wide * power) / power if decimals > 0 else torch.round(wide / power) * power
    return rounded.to(x.dtype)


def scaled_matmul(
    left: Tensor, right: Tensor, scale_left: Tensor, scale_right: Tensor, bias: Tensor | None = None,
    scale_result: Tensor | None = None, out_dtype: torch.dtype | None = None, use_fast_accum: bool = False,
) -> Tensor:  # fmt: skip
    """left @ right * scale_left * scale_right + bias of fp8, in f32; the device rounds the product to 16 bits."""
    if left.dtype != _FP8 or right.dtype != _FP8 or scale_result is not None:
        return NotImplemented
    result = torch.mm(left.float(), right.float()) * scale_left * scale_right
    result = result if bias is None else result + bias.float()
    is_narrow = out_dtype in (None, _FP8)
    return result.clamp(-_LARGEST, _LARGEST).to(_FP8) if is_narrow else result.to(out_dtype)


def scaled_matmul_by_recipe(
    left: Tensor, right: Tensor, scale_left, recipe_left, swizzle_left, scale_right, recipe_right, swizzle_right,
    bias: Tensor | None, out_dtype: torch.dtype | None, contraction_dim=(), use_fast_accum: bool = False,
) -> Tensor:  # fmt: skip
    """``scaled_matmul`` with lists of scales: one scale per operand, for the whole operand or per row (column)."""
    if {*recipe_left, *recipe_right} - {0, 1} or len(scale_left) != 1 or len(scale_right) != 1:
        return NotImplemented
    row, column = scale_left[0], scale_right[0]
    row = row.reshape(-1, 1) if recipe_left[0] == 1 else row
    column = column.reshape(1, -1) if recipe_right[0] == 1 else column
    return scaled_matmul(left, right, row, column, bias, None, out_dtype)


def packed_matmul(x: Tensor, weight: Tensor, scales: Tensor) -> Tensor:
    """x @ weight^T of int8 weights with a scale per row, applied before the product, whose sums could overflow."""
    return torch.mm(x, (weight.to(x.dtype) * scales.to(x.dtype).reshape(-1, 1)).t())


def quantized(x: Tensor, scale, zero_point, quant_min: int, quant_max: int, dtype: torch.dtype) -> Tensor:
    """round(x / scale) + zero_point, clamped; uint8 is reached through int32, because casts to 8 bits are signed."""
    # Times the reciprocal, as in PyTorch: the quotient may round differently.
    result = torch.clamp(torch.round(x.float() * (1.0 / scale)) + zero_point, quant_min, quant_max)
    return result.to(dtype) if dtype == torch.int8 else result.to(torch.int32).to(dtype)


def dequantized(
    x: Tensor, scale, zero_point, quant_min: int, quant_max: int, dtype: torch.dtype, *,
    out_dtype: torch.dtype | None = None,
) -> Tensor:  # fmt: skip
    """(x - zero_point) * scale, in f32."""
    return ((x.float() if zero_point is None else x.float() - zero_point) * scale).to(
        out_dtype or torch.float32
    )


def per_channel(form: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Form with a scale and a zero point for each position along ``axis``."""

    def along_axis(x: Tensor, scales: Tensor, zero_points: Tensor | None, axis: int, *arguments, **options):
        shape = [-1 if dim == axis % x.ndim else 1 for dim in range(x.ndim)]
        points = None if zero_points is None else zero_points.reshape(shape)
        return form(x, scales.reshape(shape), points, *arguments, **options)

    return along_axis


def quantizing_forms() -> dict[torch._ops.OperatorBase, Callable[..., Any]]:
    """Decompositions of the quantizing operations that ``torch.ao.quantization`` has registered."""
    library = torch.ops.quantized_decomposed
    named = {
        "quantize_per_tensor.default": quantized,
        "quantize_per_tensor.tensor": quantized,
        "quantize_per_channel.default": per_channel(quantized),
        "dequantize_per_tensor.tensor": dequantized,
        "dequantize_per_channel.default": per_channel(dequantized),
    }
    pairs = [(name.split("."), form) for name, form in named.items()]
    return {
        getattr(getattr(library, name), overload): form
        for (name, overload), form in pairs
        if hasattr(library, name)
    }


FORMS: dict[torch._ops.OperatorBase, Callable[..., Any]] = {
    aten._softmax.default: softmax,
    aten.softmax.int: lambda x, dim, dtype=None: softmax(x if dtype is None else x.to(dtype), dim),
    aten._safe_softmax.default: safe_softmax,
    aten._log_softmax.default: log_softmax,
    **pointwise.FORMS,
    **selection.FORMS,
    **row_writes.FORMS,
    **MOVING_FORMS,
    aten.baddbmm.default: _scaled_products,
    aten.addmm.default: _scaled_product,
    aten.addbmm.default: _scaled_sum_of_products,
    aten.addmv.default: lambda added, matrix, vector, *, beta=1, alpha=1: _sum(
        added, matrix_vector(matrix, vector), beta, alpha
    ),
    aten.mv.default: matrix_vector,
    # A matmul with one row and one column.
    aten.dot.default: lambda x, y: torch.mm(x.unsqueeze(0), y.unsqueeze(1)).reshape(()),
    aten.round.default: rounded,
    aten.round.decimals: rounded_to_decimals,
    aten._scaled_mm.default: scaled_matmul,
    aten._weight_int8pack_mm.default: packed_matmul,
    **transformer_layers.FORMS,
    aten.layer_norm.default: lambda x, shape, weight=None, bias=None, eps=1e-5, cudnn_enable=True: (
        native_layer_norm(x, shape, weight, bias, eps)[0]
    ),
    aten.native_layer_norm.default: native_layer_norm,
    aten.rms_norm.default: rms_norm,
    aten._native_batch_norm_legit_no_training.default: batch_norm,
    aten.native_group_norm.default: group_norm,
    aten.sum.dim_IntList: in_few_bits(aten.sum.dim_IntList, sum_dims),
    aten.sum.default: in_few_bits(
        aten.sum.default,
        lambda x, dtype=None: torch.any(x.bool()) if dtype == torch.bool else sum_dims(x, dtype=dtype),
    ),
    aten.prod.dim_int: in_few_bits(aten.prod.dim_int),
    aten.prod.default: in_few_bits(aten.prod.default),
    aten.mean.dim: mean,
    aten.mean.default: mean,
    aten.cumsum.default: in_few_bits(aten.cumsum.default, accumulated(torch.cumsum)),
    aten.cumprod.default: in_few_bits(aten.cumprod.default, accumulated(torch.cumprod)),
    aten.linalg_vector_norm.default: vector_norm,
    aten.norm.Scalar: norm,
    aten.norm.ScalarOpt_dim: norm,
    aten.norm.ScalarOpt_dtype: norm,
    aten.norm.ScalarOpt_dim_dtype: norm,
    aten.dist.default: lambda x, y, order=2: aten.linalg_vector_norm.default(x - y, order),
    aten._is_all_true.default: torch.all,
    aten._is_any_true.default: torch.any,
    aten._weight_norm_interface.default: weight_norm,
    **convolutions.FORMS,
    **{
        pool: convolutions.of_a_batch(pool, dims, in_f32(pool))
        for dims, pool in enumerate(
            (aten.avg_pool1d.default, aten.avg_pool2d.default, aten.avg_pool3d.default), 1
        )
    },
    aten.var.correction: variance,
    aten.std.correction: deviation,
    aten.var_mean.correction: lambda x, dim=None, *, correction=None, keepdim=False: (
        aten.var.correction(x, dim, correction=correction, keepdim=keepdim),
        _mean(x, dim, keepdim),
    ),
}
# Older versions of PyTorch do not have this operation.
if hasattr(aten, "_scaled_mm_v2"):
    FORMS[aten._scaled_mm_v2.default] = scaled_matmul_by_recipe


def decomposition_table(precision: str = "device") -> dict[torch._ops.OperatorBase, Callable[..., Any]]:
    """Decomposition of each operation: torch-mlir's table, replaced or extended by the forms of this package.

    ``precision`` "strict" selects the attention whose scores are shifted before they are rounded.
    """
    table = {
        op: form
        for op, form in fx.get_decomposition_table().items()
        if op._overloadpacket not in (*_LOWERED_BY_TORCH_MLIR, *CHECKED_BY_KERNELS)
    }
    form = strict_attention if precision == "strict" else attention
    # The forms of quantizing depend on the operations registered so far.
    return table | FORMS | quantizing_forms() | {aten.scaled_dot_product_attention.default: form}
