# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Families of attention: prompts, decoding with a cache, whole layers."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from spyre_mlir.zoo.blocks import LlamaBlock, SwiGlu, rotate
from spyre_mlir.zoo.family import Family, causal_pairs

HEAD = 128
HIDDEN, HEADS, KEY_HEADS, INNER = 4096, 32, 8, 14336
#: Multiply-adds per token of a Llama layer (queries, keys, values, output, MLP); each has a weight of 2 bytes.
LAYER = HIDDEN * HEAD * (2 * HEADS + 2 * KEY_HEADS) + 3 * HIDDEN * INNER

_FLASH = "Tile queries per head over cores, loop over tiles of keys with an online softmax, scores stay in LX"
_DECODE = (
    "Split heads and the cache over cores, the heads of a group as rows, read the cache once, merge sums"
)


class WindowAttention(nn.Module):
    """Causal attention to the last ``window`` positions, with a mask computed from positions."""

    def __init__(self, window: int) -> None:
        super().__init__()
        self.window = window

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        rows = torch.arange(q.shape[-2])[:, None]
        columns = torch.arange(k.shape[-2])[None]
        mask = (columns <= rows) & (columns > rows - self.window)
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=True)


class DecodeLayer(nn.Module):
    """A Llama layer for one token per sequence, which writes keys and values to ``position`` of the caches in place."""

    def __init__(self) -> None:
        super().__init__()
        self.attention_norm, self.mlp_norm = nn.RMSNorm(HIDDEN, eps=1e-5), nn.RMSNorm(HIDDEN, eps=1e-5)
        self.qkv = nn.Linear(HIDDEN, (HEADS + 2 * KEY_HEADS) * HEAD, bias=False)
        self.o = nn.Linear(HEADS * HEAD, HIDDEN, bias=False)
        self.mlp = SwiGlu(HIDDEN, INNER)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        parts = self.qkv(self.attention_norm(x)).unflatten(-1, (-1, HEAD)).transpose(1, 2)
        q, k, v = parts.split((HEADS, KEY_HEADS, KEY_HEADS), 1)
        keys[:, :, -1:] = rotate(k, cos, sin)
        values[:, :, -1:] = v
        out = F.scaled_dot_product_attention(rotate(q, cos, sin), keys, values, enable_gqa=True)
        x = x + self.o(out.transpose(1, 2).flatten(-2))
        return x + self.mlp(self.mlp_norm(x))


class QkvRotary(nn.Module):
    """One product for queries, keys and values, and the rotary embedding of queries and keys."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(HIDDEN, (HEADS + 2 * KEY_HEADS) * HEAD, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, ...]:
        parts = self.qkv(x).unflatten(-1, (-1, HEAD)).transpose(1, 2)
        q, k, v = parts.split((HEADS, KEY_HEADS, KEY_HEADS), 1)
        return rotate(q, cos, sin), rotate(k, cos, sin), v


def _bytes(batch: int, heads: int, key_heads: int, rows: int, keys: int, head: int) -> int:
    """Return the bytes of queries, result, keys and values, once each."""
    return 2 * batch * head * (2 * heads * rows + 2 * key_heads * keys)


def _prefill(batch: int, key_heads: int, rows: int, *, causal: bool = True, heads: int = HEADS) -> Family:
    def run(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        grouped = key_heads != heads
        return F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=grouped)

    cache = (batch, key_heads, rows, HEAD)
    pairs = causal_pairs(rows) if causal else rows * rows
    return Family(
        lambda: (run, ((batch, heads, rows, HEAD), cache, cache)),
        f"{_FLASH}; tiles above the diagonal are skipped." if causal else f"{_FLASH}.",
        _bytes(batch, heads, key_heads, rows, rows, HEAD),
        2 * batch * heads * pairs * HEAD,
    )


def _window(key_heads: int, rows: int, window: int) -> Family:
    cache = (1, key_heads, rows, HEAD)
    return Family(
        lambda: (WindowAttention(window), ((1, HEADS, rows, HEAD), cache, cache)),
        f"{_FLASH}; only the tiles of keys that a window meets, masked on its two edges.",
        _bytes(1, HEADS, key_heads, rows, rows, HEAD),
        2 * HEADS * causal_pairs(rows, window) * HEAD,
    )


def _cross(batch: int, heads: int, rows: int, keys: int, head: int) -> Family:
    cache = (batch, heads, keys, head)
    return Family(
        lambda: (F.scaled_dot_product_attention, ((batch, heads, rows, head), cache, cache)),
        f"{_FLASH}.",
        _bytes(batch, heads, heads, rows, keys, head),
        2 * batch * heads * rows * keys * head,
    )


def _decode(batch: int, key_heads: int, keys: int, *, heads: int = HEADS) -> Family:
    def run(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(q, k, v, enable_gqa=key_heads != heads)

    cache = (batch, key_heads, keys, HEAD)
    return Family(
        lambda: (run, ((batch, heads, 1, HEAD), cache, cache)),
        f"{_DECODE}.",
        _bytes(batch, heads, key_heads, 1, keys, HEAD),
        2 * batch * heads * keys * HEAD,
    )


def _scores(batch: int, key_heads: int, keys: int, rows: int) -> Family:
    return Family(
        lambda: (
            lambda k, q: k @ q.transpose(-1, -2),
            ((batch, key_heads, keys, HEAD), (batch, key_heads, rows, HEAD)),
        ),
        "Tile batches so that a core addresses its part, split keys over cores, read the cache once.",
        2 * batch * key_heads * (keys * HEAD + rows * HEAD + keys * rows),
        batch * key_heads * keys * rows * HEAD,
    )


def _decode_layer(batch: int, keys: int) -> Family:
    cache, row = (batch, KEY_HEADS, keys, HEAD), 2 * KEY_HEADS * HEAD
    return Family(
        lambda: (DecodeLayer(), ((batch, 1, HIDDEN), (1, HEAD), (1, HEAD), cache, cache)),
        "Stream the weights once with columns over cores, the token in all of them; attention as in decoding.",
        # Weights, norms, rotary tables, tokens; the old caches read, the new row of both written.
        2 * (LAYER + 2 * HIDDEN + 2 * HEAD + batch * (2 * HIDDEN + row * (keys - 1) + row)),
        batch * (LAYER + 2 * HEADS * HEAD * keys),
        changed=(3, 4),
    )


def _prefill_layer(rows: int) -> Family:
    return Family(
        lambda: (LlamaBlock(HIDDEN, rows, HEADS, KEY_HEADS, INNER), ((1, rows, HIDDEN),)),
        "Products with rows and columns over cores so that results stay in LX, weights read once; attention tiled.",
        2 * (LAYER + 2 * HIDDEN + 2 * rows * HEAD + 2 * rows * HIDDEN),
        rows * LAYER + 2 * HEADS * causal_pairs(rows) * HEAD,
    )


def _qkv_rotary(rows: int) -> Family:
    columns = (HEADS + 2 * KEY_HEADS) * HEAD
    return Family(
        lambda: (QkvRotary(), ((1, rows, HIDDEN), (rows, HEAD), (rows, HEAD))),
        "One product with heads over cores, the rotation on what is in LX, each result written once.",
        2 * (HIDDEN * columns + rows * HIDDEN + 2 * rows * HEAD + rows * columns),
        rows * HIDDEN * columns,
    )


FAMILIES = {
    "prefill_512_all": _prefill(1, HEADS, 512, causal=False),
    "prefill_2048_causal_all": _prefill(1, HEADS, 2048),
    "prefill_2048_causal_grouped": _prefill(1, KEY_HEADS, 2048),
    "prefill_2048_causal_multi_query": _prefill(1, 1, 2048),
    "prefill_8192_causal_grouped": _prefill(1, KEY_HEADS, 8192),
    "prefill_512_batch_8_grouped": _prefill(8, KEY_HEADS, 512),
    "prefill_128_batch_64_grouped": _prefill(64, KEY_HEADS, 128),
    "window_1024_of_4096_all": _window(HEADS, 4096, 1024),
    "window_1024_of_4096_grouped": _window(KEY_HEADS, 4096, 1024),
    "cross_448_of_1500": _cross(1, 20, 448, 1500, 64),
    "decode_1_cache_4096_all": _decode(1, HEADS, 4096),
    "decode_1_cache_32768_grouped": _decode(1, KEY_HEADS, 32768),
    "decode_1_cache_32768_multi_query": _decode(1, 1, 32768),
    "decode_8_cache_4096_grouped": _decode(8, KEY_HEADS, 4096),
    "decode_8_cache_4096_all": _decode(8, HEADS, 4096),
    "decode_8_cache_32768_grouped": _decode(8, KEY_HEADS, 32768),
    "decode_64_cache_4096_grouped": _decode(64, KEY_HEADS, 4096),
    "decode_64_cache_4096_multi_query": _decode(64, 1, 4096),
    "scores_64_cache_4096": _scores(64, KEY_HEADS, 4096, HEADS // KEY_HEADS),
    "decode_layer_1_cache_4096": _decode_layer(1, 4096),
    "decode_layer_8_cache_32768": _decode_layer(8, 32768),
    "prefill_layer_2048": _prefill_layer(2048),
    "qkv_rotary_1": _qkv_rotary(1),
    "qkv_rotary_512": _qkv_rotary(512),
}
