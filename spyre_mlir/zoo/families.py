# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The families: programs at full size for the evaluation of plans; no plans were tuned for them.

Each family has the schedule that an expert would choose, and figures counted by hand: the bytes that it must read and
write (logical bytes without padding or compiler-made constants) and its multiply-adds (half for causal attention). The
figures are an oracle independent of the compiler's bound. All are fp16; weights and inputs need no memory.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch._higher_order_ops import scan

from spyre_mlir.records import dataclass
from spyre_mlir.zoo.blocks import AppliedFunction, LlamaBlock, Program, SwiGlu, rotate

# A family: a program at full size with its schedule and hand-counted figures.

#: Types whose tensors have numbers and memory.
EIGHT_BITS = (torch.int8, torch.float8_e4m3fn)

Shape = tuple[int, ...]
#: An input: its shape (fp16), or shape and type.
Input = Shape | tuple[Shape, torch.dtype]


@dataclass(frozen=True)
class Family:
    """A program; ``make`` returns its module or function and inputs; ``changed`` are inputs written in place."""

    make: Callable[[], tuple[nn.Module | Callable[..., Any], Sequence[Input]]]
    schedule: str
    bytes: int
    multiply_adds: int
    changed: tuple[int, ...] = ()

    def program(self) -> Program:
        """Return the module in eval mode and its inputs; all tensors are zeros that share their memory."""
        with torch.device("meta"):
            built, inputs = self.make()
            model = built if isinstance(built, nn.Module) else AppliedFunction(built)
        for module in model.modules():
            _fill(module)
        tensors = []
        for index, spec in enumerate(inputs):
            shape, dtype = spec if isinstance(spec[-1], torch.dtype) else (spec, torch.float16)
            # Inputs that are written in place need memory, which the system provides at the first access.
            is_changed = index in self.changed
            tensors.append(torch.zeros(shape, dtype=dtype) if is_changed else _zeros(shape, dtype))  # pyright: ignore
        return model.eval(), tuple(tensors)


def causal_pairs(rows: int, window: int = 0) -> int:
    """Return the number of (query, key) pairs of causal attention, with a window of at most ``window`` keys."""
    window = window or rows
    return window * (window + 1) // 2 + (rows - window) * window


def _zeros(shape: Shape, dtype: torch.dtype) -> Tensor:
    return torch.zeros((), dtype=dtype).expand(shape)


def _fill(module: nn.Module) -> None:
    for name, tensor in [*module.named_parameters(recurse=False), *module.named_buffers(recurse=False)]:
        numbers = _zeros(tensor.shape, torch.float16 if tensor.dtype == torch.float32 else tensor.dtype)
        if tensor.dtype in EIGHT_BITS:
            # The import folds operations on data: a widened weight of zeros would no longer be a weight.
            numbers = (
                (torch.arange(tensor.numel()) % 7).to(torch.int8).view(tensor.dtype).reshape(tensor.shape)
            )
        setattr(module, name, nn.Parameter(numbers, False) if isinstance(tensor, nn.Parameter) else numbers)


# Families of attention: prompts, decoding with a cache, whole layers.

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


_ATTENTION = {
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


# Families of models with a state: LSTM, Mamba, RWKV, and the chunks of a state-space model.

_RESIDENT = "Columns of the weights over cores, where they stay in LX from step to step; the state too"
_STREAM = "Columns of the weights over cores, each read once; the state over cores, read and written once"


class Lstm(nn.Module):
    """LSTM steps from a given state."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.lstm = nn.LSTM(hidden, hidden)

    def forward(self, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        y, (h, c) = self.lstm(x, (h, c))
        return y, h, c


class MambaStep(nn.Module):
    """One token through a Mamba layer, which updates the states of its convolution and of its recurrence."""

    def __init__(self, hidden: int, inner: int, state: int, rank: int) -> None:
        super().__init__()
        self.sizes = rank, state, state
        self.enter, self.leave = (
            nn.Linear(hidden, 2 * inner, bias=False),
            nn.Linear(inner, hidden, bias=False),
        )
        self.taps, self.tap_bias = nn.Parameter(torch.empty(inner, 4)), nn.Parameter(torch.empty(inner))
        self.select, self.step = nn.Linear(inner, rank + 2 * state, bias=False), nn.Linear(rank, inner)
        self.log_decay, self.direct = (
            nn.Parameter(torch.empty(inner, state)),
            nn.Parameter(torch.empty(inner)),
        )

    def forward(self, x: Tensor, taps: Tensor, state: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        inner, gate = self.enter(x).chunk(2, -1)
        taps = torch.cat((taps[:, :, 1:], inner[:, :, None]), -1)
        inner = F.silu((taps * self.taps).sum(-1) + self.tap_bias)
        step, write, read = self.select(inner).split(self.sizes, -1)
        step = F.softplus(self.step(step))
        decay = torch.exp(step[:, :, None] * -torch.exp(self.log_decay))
        state = decay * state + (step * inner)[:, :, None] * write[:, None]
        result = (state * read[:, None]).sum(-1) + self.direct * inner
        return self.leave(result * F.silu(gate)), taps, state


class RwkvStep(nn.Module):
    """One token through a layer of RWKV-5: a matrix state per head, then channel mixing."""

    def __init__(self, hidden: int, head: int, inner: int) -> None:
        super().__init__()
        self.head = head
        self.mixes = nn.Parameter(torch.empty(6, hidden))
        self.r, self.k, self.v, self.g, self.o, self.receive = (
            nn.Linear(hidden, hidden, bias=False) for _ in range(6)
        )
        self.up, self.down = nn.Linear(hidden, inner, bias=False), nn.Linear(inner, hidden, bias=False)
        self.decay, self.first = (nn.Parameter(torch.empty(hidden // head, head, 1)) for _ in range(2))
        self.time_norm, self.channel_norm = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.out_norm = nn.GroupNorm(hidden // head, hidden)

    def forward(self, x: Tensor, before: Tensor, below: Tensor, state: Tensor) -> tuple[Tensor, ...]:
        here = self.time_norm(x)
        r, k, v, g = (here + (before - here) * self.mixes[n] for n in range(4))
        r, k, v = (part.unflatten(-1, (-1, self.head)) for part in (self.r(r), self.k(k), self.v(v)))
        update = k[..., None] * v[..., None, :]
        read = (r[..., None, :] @ (state + self.first * update)).flatten(1)
        state = torch.exp(-torch.exp(self.decay)) * state + update
        x = x + self.o(self.out_norm(read) * F.silu(self.g(g)))
        there = self.channel_norm(x)
        up, gate = (there + (below - there) * self.mixes[n] for n in (4, 5))
        x = x + torch.sigmoid(self.receive(gate)) * self.down(torch.relu(self.up(up)).square())
        return x, here, there, state


def ssd(x: Tensor, log_decay: Tensor, write: Tensor, read: Tensor) -> Tensor:
    """Compute a state-space model in chunks: a masked product within a chunk, a state between chunks.

    ``x`` is [chunks, heads, length, head], ``log_decay`` [chunks, heads, length], ``write`` and ``read`` are
    [chunks, 1, length, state].
    """
    total = log_decay.cumsum(-1)
    gap = total[..., :, None] - total[..., None, :]
    mask = torch.ones(x.shape[2], x.shape[2], dtype=torch.bool).tril()
    scores = (read @ write.transpose(-1, -2)) * torch.where(mask, gap.exp(), 0.0)
    result = scores @ x
    last = (total[..., -1:] - total).exp()
    updates = (write * last[..., None]).transpose(-1, -2) @ x
    state, states = torch.zeros_like(updates[0]), []
    for chunk in range(x.shape[0]):
        states.append(state)
        state = total[chunk, :, -1, None, None].exp() * state + updates[chunk]
    return result + (read * total.exp()[..., None]) @ torch.stack(states)


def _lstm(steps: int, batch: int, hidden: int) -> Family:
    weights = 8 * hidden * hidden
    return Family(
        lambda: (Lstm(hidden), ((steps, batch, hidden), (1, batch, hidden), (1, batch, hidden))),
        f"{_RESIDENT}.",
        # Weights and two biases; inputs, outputs, the first two states and the last two.
        2 * (weights + 8 * hidden + 2 * steps * batch * hidden + 4 * batch * hidden),
        steps * batch * weights,
    )


def _mamba(batch: int, hidden: int, inner: int, state: int, rank: int) -> Family:
    weights = 3 * hidden * inner + inner * (rank + 2 * state) + rank * inner
    vectors = inner * (4 + 1 + 1 + state + 1)
    return Family(
        lambda: (
            MambaStep(hidden, inner, state, rank), ((batch, hidden), (batch, inner, 4), (batch, inner, state)),
        ),
        f"{_STREAM}.",
        # The oldest of the four taps is not read, but all four are written.
        2 * (weights + vectors + batch * (2 * hidden + inner * (3 + 4) + 2 * inner * state)),
        batch * weights,
    )  # fmt: skip


def _rwkv(batch: int, hidden: int, head: int, inner: int) -> Family:
    weights, heads = 6 * hidden * hidden + 2 * hidden * inner, hidden // head
    row, state = (batch, hidden), (batch, heads, head, head)
    return Family(
        lambda: (RwkvStep(hidden, head, inner), (row, row, row, state)),
        f"{_STREAM}.",
        2 * (weights + (6 + 2 + 6) * hidden + batch * (6 * hidden + 2 * hidden * head)),
        batch * (weights + hidden * head),
    )


def _ssd(chunks: int, heads: int, length: int, head: int, state: int) -> Family:
    rows = chunks * length
    pairs = causal_pairs(length)
    within = chunks * pairs * (state + heads * head)
    return Family(
        lambda: (
            ssd,
            (
                (chunks, heads, length, head), (chunks, heads, length),
                (chunks, 1, length, state), (chunks, 1, length, state),
            ),
        ),
        "Heads over cores: scores of a chunk once for all heads, tiles above the diagonal skipped, states in LX.",
        2 * (2 * rows * heads * head + rows * heads + 2 * rows * state),
        # The first chunk reads no state, and the state of the last chunk is not needed.
        within + 2 * (chunks - 1) * length * heads * head * state,
    )  # fmt: skip


_STEPS = {
    "lstm_1_step": _lstm(1, 64, 1024),
    "lstm_16_steps": _lstm(16, 64, 1024),
    "mamba_step": _mamba(8, 2560, 5120, 16, 160),
    "rwkv_step": _rwkv(8, 2048, 64, 7168),
    "ssd_chunks": _ssd(8, 32, 256, 64, 128),
}


# Families of images and sound: ResNet, MobileNet, a U-Net level, ViT, the encoder of Whisper.

_BANDS = "Bands of rows over cores with one halo read, channels in the stick, weights in every core, all between in LX"
_ROWS = "Rows in uneven slices over cores, weights read once, activations stay in LX"


class Bottleneck(nn.Module):
    """Three convolutions of sizes 1, 3 and 1 with a residual connection."""

    def __init__(self, inputs: int, inner: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            *_convolution(inputs, inner, 1), nn.ReLU(), *_convolution(inner, inner, 3, stride), nn.ReLU(),
            *_convolution(inner, 4 * inner, 1),
        )  # fmt: skip
        has_shortcut = stride != 1 or inputs != 4 * inner
        self.shortcut = nn.Sequential(*(_convolution(inputs, 4 * inner, 1, stride) if has_shortcut else ()))

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.body(x) + self.shortcut(x))


class InvertedResidual(nn.Module):
    """A block of MobileNet v2: expansion, depthwise convolution, projection."""

    def __init__(self, inputs: int, outputs: int, stride: int, factor: int) -> None:
        super().__init__()
        inner = inputs * factor
        wider = (*_convolution(inputs, inner, 1), nn.ReLU6()) if factor != 1 else ()
        depthwise = _convolution(inner, inner, 3, stride, groups=inner)
        self.body = nn.Sequential(*wider, *depthwise, nn.ReLU6(), *_convolution(inner, outputs, 1))
        self.adds = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        return x + self.body(x) if self.adds else self.body(x)


class UNetLevel(nn.Module):
    """A residual block of a diffusion model: group norms and two convolutions of 3 x 3."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.GroupNorm(32, channels) for _ in range(2))
        self.convolutions = nn.ModuleList(nn.Conv2d(channels, channels, 3, padding=1) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        inner = x
        for norm, convolution in zip(self.norms, self.convolutions, strict=True):
            inner = convolution(F.silu(norm(inner)))
        return x + inner


class UNetUp(nn.Module):
    """Upsampling: the coarse image at twice the size, concatenated with the fine image, and a convolution."""

    def __init__(self, coarse: int, fine: int) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(coarse + fine, fine, 3, padding=1)

    def forward(self, x: Tensor, skip: Tensor) -> Tensor:
        wide = F.interpolate(x, scale_factor=2.0, mode="nearest")
        return torch.relu(self.convolution(torch.cat((wide, skip), 1)))


class EncoderLayer(nn.Module):
    """Norm, multi-head attention, norm, and a GELU MLP of four times the width."""

    def __init__(self, hidden: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.first_norm, self.second_norm = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.qkv, self.out = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
        self.up, self.down = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)

    def forward(self, x: Tensor) -> Tensor:
        parts = self.qkv(self.first_norm(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        inner = F.scaled_dot_product_attention(parts[0], parts[1], parts[2])
        x = x + self.out(inner.transpose(1, 2).flatten(-2))
        return x + self.down(F.gelu(self.up(self.second_norm(x))))


class Vit(nn.Module):
    """ViT: 16 x 16 patches of an image and a class token, encoder layers, a classifier."""

    def __init__(self, layers: int, hidden: int, heads: int, tokens: int, classes: int) -> None:
        super().__init__()
        self.embedding = nn.Conv2d(3, hidden, 16, 16)
        self.token = nn.Parameter(torch.empty(1, 1, hidden))
        self.positions = nn.Parameter(torch.empty(1, tokens, hidden))
        self.layers = nn.Sequential(*(EncoderLayer(hidden, heads) for _ in range(layers)))
        self.norm, self.classifier = nn.LayerNorm(hidden), nn.Linear(hidden, classes)

    def forward(self, x: Tensor) -> Tensor:
        embedded = self.embedding(x).flatten(2).transpose(1, 2)
        tokens = torch.cat((self.token.expand(x.shape[0], -1, -1), embedded), 1) + self.positions
        return self.classifier(self.norm(self.layers(tokens))[:, 0])


class WhisperStem(nn.Module):
    """Two convolutions in time, the second with stride 2, and positional embeddings."""

    def __init__(self, bands: int, hidden: int, length: int) -> None:
        super().__init__()
        self.first = nn.Conv1d(bands, hidden, 3, padding=1)
        self.second = nn.Conv1d(hidden, hidden, 3, 2, 1)
        self.positions = nn.Parameter(torch.empty(length, hidden))

    def forward(self, x: Tensor) -> Tensor:
        return F.gelu(self.second(F.gelu(self.first(x)))).transpose(1, 2) + self.positions


def _convolution(
    inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1
) -> tuple[nn.Module, ...]:
    """Return a convolution without bias, followed by a batch norm."""
    padding = kernel // 2
    convolution = nn.Conv2d(inputs, outputs, kernel, stride, padding, groups=groups, bias=False)
    return convolution, nn.BatchNorm2d(outputs)


def _stage(inputs: int, inner: int, stride: int, blocks: int) -> nn.Sequential:
    first = Bottleneck(inputs, inner, stride)
    return nn.Sequential(first, *(Bottleneck(4 * inner, inner, 1) for _ in range(blocks - 1)))


def _mobilenet_blocks() -> Iterator[tuple[int, int, int, int, int]]:
    """Yield (input channels, output channels, stride, expansion factor, input pixels of a side) of each block."""
    inputs, pixels = 32, 112
    rows = (
        (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1),
    )  # fmt: skip
    for factor, outputs, count, first in rows:
        for index in range(count):
            stride = first if index == 0 else 1
            yield inputs, outputs, stride, factor, pixels
            inputs, pixels = outputs, pixels // stride


#: Input channels, inner channels, stride and blocks of each stage, and the input pixels of a side.
RESNET = ((64, 64, 1, 3, 56), (256, 128, 2, 4, 56), (512, 256, 2, 6, 28), (1024, 512, 2, 3, 14))


def _work(weights: list[tuple[int, int]]) -> tuple[int, int]:
    """Return the parameters and multiply-adds of convolutions, given as (weights, pixels of the result)."""
    return sum(size for size, _ in weights), sum(size * pixels for size, pixels in weights)


def _stage_work(inputs: int, inner: int, stride: int, blocks: int, pixels: int) -> tuple[int, int, int]:
    """Return weights, biases (from the folded norms) and multiply-adds of one image."""
    fine, area = pixels**2, (pixels // stride) ** 2
    first = [(inputs * inner, fine), (9 * inner**2, area), (4 * inner**2, area), (4 * inner * inputs, area)]
    later = [(4 * inner**2, area), (9 * inner**2, area), (4 * inner**2, area)]
    weights, work = _work(first + (blocks - 1) * later)
    return weights, 6 * blocks * inner + 4 * inner, work


def _resnet_stage(number: int) -> Family:
    inputs, inner, stride, blocks, pixels = RESNET[number - 1]
    weights, biases, work = _stage_work(*RESNET[number - 1])
    return Family(
        lambda: (_stage(inputs, inner, stride, blocks), ((1, inputs, pixels, pixels),)),
        f"{_BANDS}."
        if number < 3
        else "Output channels over cores, weights read once, the small image in every core.",
        2 * (weights + biases + inputs * pixels**2 + 4 * inner * (pixels // stride) ** 2),
        work,
    )


def _whole_resnet() -> Family:
    weights, biases, work = (
        sum(column) for column in zip(*(_stage_work(*stage) for stage in RESNET), strict=True)
    )
    weights, biases = weights + 147 * 64 + 2048 * 1000, biases + 64 + 1000

    def resnet() -> nn.Sequential:
        stem = (*_convolution(3, 64, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1))
        stages = (_stage(*stage[:4]) for stage in RESNET)
        return nn.Sequential(*stem, *stages, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2048, 1000))

    return Family(
        lambda: (resnet(), ((1, 3, 224, 224),)),
        "As its stages; the weights of the next convolution are read while one computes.",
        2 * (weights + biases + 3 * 224**2 + 1000),
        work + 147 * 64 * 112**2 + 2048 * 1000,
    )


def _block_work(inputs: int, outputs: int, stride: int, factor: int, pixels: int) -> tuple[int, int, int]:
    inner, fine, area = inputs * factor, pixels**2, (pixels // stride) ** 2
    wider = [(inputs * inner, fine)] if factor != 1 else []
    weights, work = _work([*wider, (9 * inner, area), (inner * outputs, area)])
    return weights, (2 if factor != 1 else 1) * inner + outputs, work


def _mobilenet_block(inputs: int, outputs: int, stride: int, factor: int, pixels: int) -> Family:
    weights, biases, work = _block_work(inputs, outputs, stride, factor, pixels)
    return Family(
        lambda: (InvertedResidual(inputs, outputs, stride, factor), ((1, inputs, pixels, pixels),)),
        f"{_BANDS}; the depthwise kernel on vectors of channels.",
        2 * (weights + biases + inputs * pixels**2 + outputs * (pixels // stride) ** 2),
        work,
    )


def _whole_mobilenet() -> Family:
    figures = [_block_work(*block) for block in _mobilenet_blocks()]
    weights, biases, work = (sum(column) for column in zip(*figures, strict=True))
    ends = 27 * 32, 320 * 1280, 1280 * 1000

    def mobilenet() -> nn.Sequential:
        stem = (*_convolution(3, 32, 3, 2), nn.ReLU6())
        blocks = (InvertedResidual(*block[:4]) for block in _mobilenet_blocks())
        last = (*_convolution(320, 1280, 1), nn.ReLU6(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
        return nn.Sequential(*stem, *blocks, *last, nn.Linear(1280, 1000))

    return Family(
        lambda: (mobilenet(), ((1, 3, 224, 224),)),
        "As its block; the weights of the next convolution are read while one computes.",
        2 * (weights + sum(ends) + biases + 32 + 1280 + 1000 + 3 * 224**2 + 1000),
        work + ends[0] * 112**2 + ends[1] * 7**2 + ends[2],
    )


def _unet(batch: int, channels: int, pixels: int) -> Family:
    numbers = batch * channels * pixels**2
    return Family(
        lambda: (UNetLevel(channels), ((batch, channels, pixels, pixels),)),
        f"{_BANDS}; the sums of the norms over the ring.",
        2 * (18 * channels**2 + 6 * channels + 2 * numbers),
        18 * channels**2 * batch * pixels**2,
    )


def _unet_up(coarse: int, fine: int, pixels: int) -> Family:
    area = pixels**2
    return Family(
        lambda: (UNetUp(coarse, fine), ((1, coarse, pixels // 2, pixels // 2), (1, fine, pixels, pixels))),
        f"{_BANDS}; the coarse image is read once and its pixels used four times.",
        2 * (9 * (coarse + fine) * fine + fine + coarse * area // 4 + 2 * fine * area),
        9 * (coarse + fine) * fine * area,
    )


def _layer_work(tokens: int, hidden: int) -> tuple[int, int]:
    """Return the parameters of an encoder layer, and its multiply-adds for the tokens of one sequence."""
    weights = 12 * hidden**2
    return weights + (3 + 1 + 4 + 1 + 4) * hidden, tokens * weights + 2 * tokens**2 * hidden


def _encoder_layer(batch: int, tokens: int, hidden: int, heads: int) -> Family:
    parameters, work = _layer_work(tokens, hidden)
    return Family(
        lambda: (EncoderLayer(hidden, heads), ((batch, tokens, hidden),)),
        f"{_ROWS}; attention with heads over cores.",
        2 * (parameters + 2 * batch * tokens * hidden),
        batch * work,
    )


def _vit(layers: int, hidden: int, heads: int) -> Family:
    tokens, (parameters, work) = 197, _layer_work(197, hidden)
    ends = 768 * hidden + hidden, tokens * hidden + hidden + 2 * hidden, hidden * 1000 + 1000
    return Family(
        lambda: (Vit(layers, hidden, heads, tokens, 1000), ((1, 3, 224, 224),)),
        f"{_ROWS}; the weights of the next layer are read while one computes.",
        2 * (layers * parameters + sum(ends) + 3 * 224**2 + 1000),
        # The last attention needs keys and values of all tokens; after it only the class token is needed.
        (layers - 1) * work
        + hidden**2 * (2 * tokens + 10)
        + 2 * tokens * hidden
        + 196 * 768 * hidden
        + 1000 * hidden,
    )


def _whisper_stem(bands: int, hidden: int, length: int) -> Family:
    weights = 3 * bands * hidden, 3 * hidden**2
    return Family(
        lambda: (WhisperStem(bands, hidden, length), ((1, bands, 2 * length),)),
        "Time over cores with a halo of two, channels in the stick, each weight read once.",
        2 * (sum(weights) + 2 * hidden + bands * 2 * length + 2 * length * hidden),
        weights[0] * 2 * length + weights[1] * length,
    )


_IMAGES = {
    **{f"resnet50_stage_{number}": _resnet_stage(number) for number in (1, 2, 3, 4)},
    "resnet50": _whole_resnet(),
    "mobilenet_block_56": _mobilenet_block(24, 24, 1, 6, 56),
    "mobilenet_block_14": _mobilenet_block(96, 96, 1, 6, 14),
    "mobilenet": _whole_mobilenet(),
    "unet_level": _unet(2, 320, 64),
    "unet_up": _unet_up(128, 64, 128),
    "vit_layer_1": _encoder_layer(1, 197, 768, 12),
    "vit_layer_8": _encoder_layer(8, 197, 768, 12),
    "vit": _vit(12, 768, 12),
    "whisper_stem": _whisper_stem(80, 1280, 1500),
    "whisper_layer": _encoder_layer(1, 1500, 1280, 20),
}


# Families of linear layers: MLPs, adapters, heads, experts, recommendation, 8-bit weights, norms, transposes.

_COLUMNS = "Columns of the weight over cores, each read once; the few rows lie in every core"
_ONE_PASS = "Rows over cores, one pass with all between in LX, each number read and written once"


class Lora(nn.Module):
    """A linear layer with a parallel low-rank adapter."""

    def __init__(self, hidden: int, rank: int) -> None:
        super().__init__()
        self.base = nn.Linear(hidden, hidden, bias=False)
        self.down, self.up = nn.Linear(hidden, rank, bias=False), nn.Linear(rank, hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.base(x) + 2.0 * self.up(self.down(x))


class TopTwo(nn.Module):
    """Mixture of experts: each token uses two experts; the others have a gate of 0."""

    def __init__(self, hidden: int, inner: int, experts: int) -> None:
        super().__init__()
        self.router = nn.Linear(hidden, experts, bias=False)
        self.experts = nn.ModuleList(SwiGlu(hidden, inner) for _ in range(experts))

    def forward(self, x: Tensor) -> Tensor:
        weights, chosen = self.router(x).topk(2, -1)
        gates = F.one_hot(chosen, len(self.experts)).to(x.dtype) * weights.softmax(-1)[:, :, None]
        gates = gates.sum(1)
        products = (expert(x) * gates[:, k : k + 1] for k, expert in enumerate(self.experts))
        return sum(products)  # pyright: ignore[reportReturnType]


class ExpertsInTurn(nn.Module):
    """``TopTwo`` as a scan over the experts, whose weights are rows of two tensors; the iter_arg is the partial sum."""

    def __init__(self, hidden: int, inner: int, experts: int) -> None:
        super().__init__()
        self.router = nn.Linear(hidden, experts, bias=False)
        self.up = nn.Parameter(torch.empty(experts, hidden, 2 * inner))
        self.down = nn.Parameter(torch.empty(experts, inner, hidden))

    def forward(self, x: Tensor) -> Tensor:
        weights, chosen = self.router(x).topk(2, -1)
        gates = F.one_hot(chosen, len(self.up)).to(x.dtype) * weights.softmax(-1)[:, :, None]

        def expert(total: Tensor, row: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
            """Add the result of one expert to the sum."""
            up, down, gate = row
            inner, factor = (x @ up).chunk(2, -1)
            return total + (F.silu(inner) * factor) @ down * gate[:, None], []

        return scan(expert, torch.zeros_like(x), [self.up, self.down, gates.sum(1).T])[0]


class Dlrm(nn.Module):
    """Recommendation model: an MLP on the numbers, a row of each table, their products, and an MLP on all of these."""

    def __init__(self, tables: int, rows: int, width: int) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(rows, width) for _ in range(tables))
        self.bottom, self.top = _mlp(13, 512, 256, width), _mlp(*_top(tables, width))

    def forward(self, numbers: Tensor, chosen: Tensor) -> Tensor:
        dense = self.bottom(numbers)
        rows = [table(chosen[k]) for k, table in enumerate(self.tables)]
        vectors = torch.stack((dense, *rows), 1)
        products = vectors @ vectors.transpose(1, 2)
        return self.top(torch.cat((dense, products.flatten(1)), 1))


class Fp8Linear(nn.Module):
    """A linear layer with one-byte weights, which are widened for the product, and a factor per column."""

    weight: Tensor
    scale: Tensor

    def __init__(self, inputs: int, outputs: int, dtype: torch.dtype) -> None:
        super().__init__()
        self.register_buffer("weight", torch.empty(outputs, inputs, dtype=dtype))
        self.register_buffer("scale", torch.empty(outputs))

    def forward(self, x: Tensor) -> Tensor:
        return (x @ self.weight.to(x.dtype).t()) * self.scale


def _mlp(*widths: int) -> nn.Sequential:
    pairs = [(nn.Linear(a, b), nn.ReLU()) for a, b in itertools.pairwise(widths)]
    return nn.Sequential(*itertools.chain(*pairs))


def _top(tables: int, width: int) -> tuple[int, ...]:
    return width + (tables + 1) ** 2, 1024, 1024, 512, 256, 1


def _one_pass(
    function: Callable[..., Any], *shapes: Input, numbers: int, schedule: str = _ONE_PASS
) -> Family:
    """Return the family of a function that reads or writes ``numbers`` numbers once, of 2 bytes each."""
    return Family(lambda: (function, shapes), f"{schedule}.", 2 * numbers, 0)


def _linear(rows: int, columns: int) -> Family:
    return Family(
        lambda: (nn.Linear(HIDDEN, columns, bias=False), ((rows, HIDDEN),)),
        f"{_COLUMNS}; columns that 32 does not divide in uneven slices.",
        2 * (HIDDEN * columns + rows * (HIDDEN + columns)),
        rows * HIDDEN * columns,
    )


def _swiglu(rows: int) -> Family:
    return Family(
        lambda: (SwiGlu(HIDDEN, INNER), ((rows, HIDDEN),)),
        f"{_COLUMNS}; the gated product stays in LX, cut along the columns that the last product sums over.",
        2 * (3 * HIDDEN * INNER + 2 * rows * HIDDEN),
        3 * rows * HIDDEN * INNER,
    )


def _lora(rows: int, rank: int) -> Family:
    weights = HIDDEN * HIDDEN + 2 * HIDDEN * rank
    return Family(
        lambda: (Lora(HIDDEN, rank), ((rows, HIDDEN),)),
        f"{_COLUMNS}; the adapter's product of {rank} columns by rows, its result added where the large one lies.",
        2 * (weights + 2 * rows * HIDDEN),
        rows * weights,
    )


def _cross_entropy(rows: int, columns: int) -> Family:
    return Family(
        lambda: (F.cross_entropy, ((rows, columns), ((rows,), torch.int64))),
        f"{_ONE_PASS}: the maximum, the sum of exponentials, and the one logit of each row.",
        2 * rows * columns + 8 * rows + 2,
        0,
    )


def _top_two(rows: int, inner: int, experts: int) -> Family:
    weights = 3 * HIDDEN * inner
    return Family(
        lambda: (TopTwo(HIDDEN, inner, experts), ((rows, HIDDEN),)),
        f"{_COLUMNS}; the weights of all experts once, for with many tokens each is wanted.",
        2 * (experts * weights + experts * HIDDEN + 2 * rows * HIDDEN),
        rows * (2 * weights + experts * HIDDEN),
    )


def _in_turn(rows: int, inner: int, experts: int) -> Family:
    weights = 3 * HIDDEN * inner
    return Family(
        lambda: (ExpertsInTurn(HIDDEN, inner, experts), ((rows, HIDDEN),)),
        "A loop over the experts: the weights of each read once, the sum over them in LX.",
        2 * (experts * weights + experts * HIDDEN + 2 * rows * HIDDEN),
        rows * experts * (weights + HIDDEN),
    )


def _dlrm(batch: int, tables: int, rows: int, width: int) -> Family:
    layers = [*itertools.pairwise((13, 512, 256, width)), *itertools.pairwise(_top(tables, width))]
    weights = sum(a * b for a, b in layers)
    return Family(
        lambda: (Dlrm(tables, rows, width), ((batch, 13), ((tables, batch), torch.int64))),
        "Samples over cores from the lookup to the last layer, the weights of the MLPs in every core.",
        # Weights and biases; numbers, indices, gathered rows, results.
        2 * (weights + sum(b for _, b in layers)) + batch * (2 * 13 + 8 * tables + 2 * tables * width + 2),
        batch * (weights + (tables + 1) ** 2 * width),
    )


def _eight_bits(rows: int, columns: int, dtype: torch.dtype) -> Family:
    return Family(
        lambda: (Fp8Linear(HIDDEN, columns, dtype), ((rows, HIDDEN),)),
        f"{_COLUMNS}, as 8 bits that are widened in LX.",
        HIDDEN * columns + 2 * columns + 2 * rows * (HIDDEN + columns),
        rows * HIDDEN * columns,
    )


def _contiguous(*dims: int) -> Callable[[Tensor], Tensor]:
    return lambda x: x.permute(dims).contiguous()


_TRANSPOSE = "Blocks of 64 x 64 over cores, turned in the core, each number read and written once"

_LINEAR = {
    "swiglu_1": _swiglu(1),
    "swiglu_512": _swiglu(512),
    "lora_1": _lora(1, 16),
    "lora_512": _lora(512, 16),
    "lm_head_1_of_50257": _linear(1, 50257),
    "lm_head_64_of_50257": _linear(64, 50257),
    "lm_head_1_of_128256": _linear(1, 128256),
    "lm_head_64_of_128256": _linear(64, 128256),
    "cross_entropy_512_of_50257": _cross_entropy(512, 50257),
    "cross_entropy_512_of_128256": _cross_entropy(512, 128256),
    "moe_top_2_64": _top_two(64, 1408, 8),
    "moe_in_turn_512": _in_turn(512, 1408, 8),
    "dlrm_2048": _dlrm(2048, 26, 100_000, 64),
    "fp8_linear_1": _eight_bits(1, INNER, torch.float8_e4m3fn),
    "fp8_linear_64": _eight_bits(64, INNER, torch.float8_e4m3fn),
    "int8_linear_1": _eight_bits(1, INNER, torch.int8),
    "int8_linear_64": _eight_bits(64, INNER, torch.int8),
    "layer_norm_of_channels": _one_pass(
        lambda x, w, b: F.layer_norm(x.permute(0, 2, 3, 1), (96,), w, b).permute(0, 3, 1, 2).contiguous(),
        (8, 96, 56, 56), (96,), (96,), numbers=2 * 8 * 96 * 56 * 56 + 2 * 96,
    ),
    "layer_norm_of_images": _one_pass(
        lambda x, w, b: F.layer_norm(x, (64, 64), w, b),
        (8, 512, 64, 64), (64, 64), (64, 64), numbers=2 * 8 * 512 * 64 * 64 + 2 * 64 * 64,
    ),
    "layer_norm_of_dim_0": _one_pass(
        lambda x: (x - x.mean(0)) * (x.var(0, correction=0) + 1e-5).rsqrt(),
        (1024, 8192), numbers=2 * 1024 * 8192, schedule="Columns over cores, the rest as in rows",
    ),
    "transpose_4096": _one_pass(
        _contiguous(1, 0), (4096, 4096), numbers=2 * 4096 * 4096, schedule=_TRANSPOSE
    ),
    "transpose_batches": _one_pass(
        _contiguous(0, 2, 1), (32, 128, 4096), numbers=2 * 32 * 128 * 4096, schedule=_TRANSPOSE
    ),
    "transpose_heads": _one_pass(
        _contiguous(0, 2, 1, 3), (8, 512, 32, 128), numbers=2 * 8 * 512 * 32 * 128,
        schedule="A copy of whole rows of 128, split over cores",
    ),
}  # fmt: skip


def all_families() -> Mapping[str, Family]:
    """Return all families by name."""
    return {**_ATTENTION, **_LINEAR, **_STEPS, **_IMAGES}
