# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Layers of ``nn.Transformer`` that PyTorch runs as one operation for inference, as operations of the device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

aten = torch.ops.aten

#: Mask type for keys, with one row per sample of a batch; other masks are for queries and keys.
_OF_KEYS = 1


def multi_head_attention(
    query: Tensor, key: Tensor, value: Tensor, embed_dim: int, num_head: int, qkv_weight: Tensor,
    qkv_bias: Tensor, proj_weight: Tensor, proj_bias: Tensor, mask: Tensor | None = None,
    need_weights: bool = True, average_attn_weights: bool = True, mask_type: int | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """``_native_multi_head_attention``: the projected heads, and their weights or a tensor without elements."""
    parts = zip((query, key, value), qkv_weight.chunk(3), qkv_bias.chunk(3), strict=True)
    query, key, value = (
        functional.linear(x, weight, bias).unflatten(-1, (num_head, -1)).transpose(1, 2)
        for x, weight, bias in parts
    )
    scores = (query * (embed_dim // num_head) ** -0.5) @ key.mT
    if mask is not None:
        masked = mask.bool()[:, None, None] if mask_type == _OF_KEYS else mask.bool()
        scores = scores.masked_fill(masked, -torch.inf)
    weights = scores.softmax(-1)
    result = functional.linear((weights @ value).transpose(1, 2).flatten(2), proj_weight, proj_bias)
    if not need_weights:
        return result, result.new_empty(0)
    return result, weights.mean(1) if average_attn_weights else weights


def encoder_layer(
    src: Tensor, embed_dim: int, num_heads: int, qkv_weight: Tensor, qkv_bias: Tensor, proj_weight: Tensor,
    proj_bias: Tensor, use_gelu: bool, norm_first: bool, eps: float, norm_weight_1: Tensor, norm_bias_1: Tensor,
    norm_weight_2: Tensor, norm_bias_2: Tensor, ffn_weight_1: Tensor, ffn_bias_1: Tensor, ffn_weight_2: Tensor,
    ffn_bias_2: Tensor, mask: Tensor | None = None, mask_type: int | None = None,
) -> Tensor:  # fmt: skip
    """``_transformer_encoder_layer_fwd``: attention and a feed-forward network, each added to its input."""

    def attend(x: Tensor) -> Tensor:
        heads = (embed_dim, num_heads, qkv_weight, qkv_bias, proj_weight, proj_bias)
        return multi_head_attention(x, x, x, *heads, mask, need_weights=False, mask_type=mask_type)[0]

    def feed_forward(x: Tensor) -> Tensor:
        hidden = functional.linear(x, ffn_weight_1, ffn_bias_1)
        hidden = functional.gelu(hidden) if use_gelu else functional.relu(hidden)
        return functional.linear(hidden, ffn_weight_2, ffn_bias_2)

    first, second = (
        lambda x, weight=weight, bias=bias: functional.layer_norm(x, (embed_dim,), weight, bias, eps)
        for weight, bias in ((norm_weight_1, norm_bias_1), (norm_weight_2, norm_bias_2))
    )
    if norm_first:
        src = src + attend(first(src))
        return src + feed_forward(second(src))
    src = first(src + attend(src))
    return second(src + feed_forward(src))


def no_nested_tensor(x: Tensor, mask: Tensor) -> bool:
    """Return that the encoder cannot remove the padding of a batch: the device does not have nested tensors.

    Padded rows have the numbers that PyTorch computes if gradients are enabled. Nested tensors would make them zero.
    """
    return False


FORMS: dict[Any, Callable[..., Any]] = {
    aten._native_multi_head_attention.default: multi_head_attention,
    aten._transformer_encoder_layer_fwd.default: encoder_layer,
    aten._nested_tensor_from_mask_left_aligned.default: no_nested_tensor,
}
