# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The families: programs at full size for the evaluation of plans; no plans were tuned for them.

All are fp16; weights and inputs need no memory. For each program, ``benchmarks/family_figures.py`` of the repository
has the schedule that an expert would choose, and the bytes and multiply-adds counted by hand.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch._higher_order_ops import scan

from spyre_mlir.zoo.blocks import AppliedFunction, LlamaBlock, Program, SwiGlu, rotate

#: Types whose tensors have numbers and memory.
EIGHT_BITS = (torch.int8, torch.float8_e4m3fn)

Shape = tuple[int, ...]
#: An input: its shape (fp16), or shape and type.
Input = Shape | tuple[Shape, torch.dtype]
#: A module or function, and its inputs.
Parts = tuple[nn.Module | Callable[..., Any], Sequence[Input]]


def program(name: str) -> Program:
    """Return the module in eval mode and its inputs; all tensors are zeros that share their memory."""
    with torch.device("meta"):
        built, inputs = FAMILIES[name]()
        model = built if isinstance(built, nn.Module) else AppliedFunction(built)
    for module in model.modules():
        _fill(module)
    tensors = []
    for index, spec in enumerate(inputs):
        shape, dtype = spec if isinstance(spec[-1], torch.dtype) else (spec, torch.float16)
        # Inputs that are written in place need memory, which the system provides at the first access.
        is_changed = index in CHANGED.get(name, ())
        tensors.append(torch.zeros(shape, dtype=dtype) if is_changed else _zeros(shape, dtype))  # pyright: ignore
    return model.eval(), tuple(tensors)


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


# Attention: prompts, decoding with a cache, whole layers.

HEAD = 128
HIDDEN, HEADS, KEY_HEADS, INNER = 4096, 32, 8, 14336


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


def _attention(
    batch: int,
    key_heads: int,
    rows: int,
    keys: int,
    *,
    causal: bool = False,
    heads: int = HEADS,
    head: int = HEAD,
) -> Parts:
    def run(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        grouped = key_heads != heads
        return F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=grouped)

    cache = (batch, key_heads, keys, head)
    return run, ((batch, heads, rows, head), cache, cache)


def _prefill(batch: int, key_heads: int, rows: int) -> Parts:
    return _attention(batch, key_heads, rows, rows, causal=True)


def _decode(batch: int, key_heads: int, keys: int) -> Parts:
    return _attention(batch, key_heads, 1, keys)


def _window(key_heads: int) -> Parts:
    cache = (1, key_heads, 4096, HEAD)
    return WindowAttention(1024), ((1, HEADS, 4096, HEAD), cache, cache)


def _decode_layer(batch: int, keys: int) -> Parts:
    cache = (batch, KEY_HEADS, keys, HEAD)
    return DecodeLayer(), ((batch, 1, HIDDEN), (1, HEAD), (1, HEAD), cache, cache)


def _qkv_rotary(rows: int) -> Parts:
    return QkvRotary(), ((1, rows, HIDDEN), (rows, HEAD), (rows, HEAD))


#: The indices of inputs that are written in place, by the name of the program.
CHANGED = {"decode_layer_1_cache_4096": (3, 4), "decode_layer_8_cache_32768": (3, 4)}

_ATTENTION: Mapping[str, Callable[[], Parts]] = {
    "prefill_512_all": partial(_attention, 1, HEADS, 512, 512),
    "prefill_2048_causal_all": partial(_prefill, 1, HEADS, 2048),
    "prefill_2048_causal_grouped": partial(_prefill, 1, KEY_HEADS, 2048),
    "prefill_2048_causal_multi_query": partial(_prefill, 1, 1, 2048),
    "prefill_8192_causal_grouped": partial(_prefill, 1, KEY_HEADS, 8192),
    "prefill_512_batch_8_grouped": partial(_prefill, 8, KEY_HEADS, 512),
    "prefill_128_batch_64_grouped": partial(_prefill, 64, KEY_HEADS, 128),
    "window_1024_of_4096_all": partial(_window, HEADS),
    "window_1024_of_4096_grouped": partial(_window, KEY_HEADS),
    "cross_448_of_1500": partial(_attention, 1, 20, 448, 1500, heads=20, head=64),
    "decode_1_cache_4096_all": partial(_decode, 1, HEADS, 4096),
    "decode_1_cache_32768_grouped": partial(_decode, 1, KEY_HEADS, 32768),
    "decode_1_cache_32768_multi_query": partial(_decode, 1, 1, 32768),
    "decode_8_cache_4096_grouped": partial(_decode, 8, KEY_HEADS, 4096),
    "decode_8_cache_4096_all": partial(_decode, 8, HEADS, 4096),
    "decode_8_cache_32768_grouped": partial(_decode, 8, KEY_HEADS, 32768),
    "decode_64_cache_4096_grouped": partial(_decode, 64, KEY_HEADS, 4096),
    "decode_64_cache_4096_multi_query": partial(_decode, 64, 1, 4096),
    "scores_64_cache_4096": lambda: (
        lambda k, q: k @ q.transpose(-1, -2),
        ((64, KEY_HEADS, 4096, HEAD), (64, KEY_HEADS, HEADS // KEY_HEADS, HEAD)),
    ),
    "decode_layer_1_cache_4096": partial(_decode_layer, 1, 4096),
    "decode_layer_8_cache_32768": partial(_decode_layer, 8, 32768),
    "prefill_layer_2048": lambda: (LlamaBlock(HIDDEN, 2048, HEADS, KEY_HEADS, INNER), ((1, 2048, HIDDEN),)),
    "qkv_rotary_1": partial(_qkv_rotary, 1),
    "qkv_rotary_512": partial(_qkv_rotary, 512),
}


# Models with a state: LSTM, Mamba, RWKV, and the chunks of a state-space model.


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
        self.enter = nn.Linear(hidden, 2 * inner, bias=False)
        self.leave = nn.Linear(inner, hidden, bias=False)
        self.taps, self.tap_bias = nn.Parameter(torch.empty(inner, 4)), nn.Parameter(torch.empty(inner))
        self.select, self.step = nn.Linear(inner, rank + 2 * state, bias=False), nn.Linear(rank, inner)
        self.log_decay = nn.Parameter(torch.empty(inner, state))
        self.direct = nn.Parameter(torch.empty(inner))

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


def _lstm(steps: int) -> Parts:
    return Lstm(1024), ((steps, 64, 1024), (1, 64, 1024), (1, 64, 1024))


_STEPS: Mapping[str, Callable[[], Parts]] = {
    "lstm_1_step": partial(_lstm, 1),
    "lstm_16_steps": partial(_lstm, 16),
    "mamba_step": lambda: (MambaStep(2560, 5120, 16, 160), ((8, 2560), (8, 5120, 4), (8, 5120, 16))),
    "rwkv_step": lambda: (
        RwkvStep(2048, 64, 7168),
        ((8, 2048), (8, 2048), (8, 2048), (8, 32, 64, 64)),
    ),
    "ssd_chunks": lambda: (ssd, ((8, 32, 256, 64), (8, 32, 256), (8, 1, 256, 128), (8, 1, 256, 128))),
}


# Images and sound: ResNet, MobileNet, a U-Net level, ViT, the encoder of Whisper.


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


#: Input channels, inner channels, stride and blocks of each stage, and the input pixels of a side.
RESNET = ((64, 64, 1, 3, 56), (256, 128, 2, 4, 56), (512, 256, 2, 6, 28), (1024, 512, 2, 3, 14))


def _resnet_stage(inputs: int, inner: int, stride: int, blocks: int, pixels: int) -> Parts:
    return _stage(inputs, inner, stride, blocks), ((1, inputs, pixels, pixels),)


def _resnet() -> Parts:
    stem = (*_convolution(3, 64, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1))
    stages = (_stage(*stage[:4]) for stage in RESNET)
    last = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2048, 1000))
    return nn.Sequential(*stem, *stages, *last), ((1, 3, 224, 224),)


def _mobilenet() -> Parts:
    stem = (*_convolution(3, 32, 3, 2), nn.ReLU6())
    blocks, inputs = [], 32
    rows = (
        (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1),
    )  # fmt: skip
    for factor, outputs, count, first in rows:
        for stride in (first, *[1] * (count - 1)):
            blocks.append(InvertedResidual(inputs, outputs, stride, factor))
            inputs = outputs
    last = (*_convolution(320, 1280, 1), nn.ReLU6(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    return nn.Sequential(*stem, *blocks, *last, nn.Linear(1280, 1000)), ((1, 3, 224, 224),)


def _encoder_layer(batch: int, tokens: int, hidden: int, heads: int) -> Parts:
    return EncoderLayer(hidden, heads), ((batch, tokens, hidden),)


_IMAGES: Mapping[str, Callable[[], Parts]] = {
    **{f"resnet50_stage_{number}": partial(_resnet_stage, *stage) for number, stage in enumerate(RESNET, 1)},
    "resnet50": _resnet,
    "mobilenet_block_56": lambda: (InvertedResidual(24, 24, 1, 6), ((1, 24, 56, 56),)),
    "mobilenet_block_14": lambda: (InvertedResidual(96, 96, 1, 6), ((1, 96, 14, 14),)),
    "mobilenet": _mobilenet,
    "unet_level": lambda: (UNetLevel(320), ((2, 320, 64, 64),)),
    "unet_up": lambda: (UNetUp(128, 64), ((1, 128, 64, 64), (1, 64, 128, 128))),
    "vit_layer_1": partial(_encoder_layer, 1, 197, 768, 12),
    "vit_layer_8": partial(_encoder_layer, 8, 197, 768, 12),
    "vit": lambda: (Vit(12, 768, 12, 197, 1000), ((1, 3, 224, 224),)),
    "whisper_stem": lambda: (WhisperStem(80, 1280, 1500), ((1, 80, 3000),)),
    "whisper_layer": partial(_encoder_layer, 1, 1500, 1280, 20),
}


# Linear layers: MLPs, adapters, heads, experts, recommendation, 8-bit weights, norms, transposes.


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
        self.bottom = _mlp(13, 512, 256, width)
        self.top = _mlp(width + (tables + 1) ** 2, 1024, 1024, 512, 256, 1)

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


def _rows(module: Callable[..., nn.Module], rows: int, *arguments: Any, **options: Any) -> Parts:
    """Return a module for rows of the hidden size."""
    return module(HIDDEN, *arguments, **options), ((rows, HIDDEN),)


def _cross_entropy(columns: int) -> Parts:
    return F.cross_entropy, ((512, columns), ((512,), torch.int64))


def _permuted(dims: Shape, shape: Shape) -> Parts:
    return lambda x: x.permute(dims).contiguous(), (shape,)


_head = partial(_rows, nn.Linear, bias=False)

_LINEAR: Mapping[str, Callable[[], Parts]] = {
    "swiglu_1": partial(_rows, SwiGlu, 1, INNER),
    "swiglu_512": partial(_rows, SwiGlu, 512, INNER),
    "lora_1": partial(_rows, Lora, 1, 16),
    "lora_512": partial(_rows, Lora, 512, 16),
    "lm_head_1_of_50257": partial(_head, 1, 50257),
    "lm_head_64_of_50257": partial(_head, 64, 50257),
    "lm_head_1_of_128256": partial(_head, 1, 128256),
    "lm_head_64_of_128256": partial(_head, 64, 128256),
    "cross_entropy_512_of_50257": partial(_cross_entropy, 50257),
    "cross_entropy_512_of_128256": partial(_cross_entropy, 128256),
    "moe_top_2_64": partial(_rows, TopTwo, 64, 1408, 8),
    "moe_in_turn_512": partial(_rows, ExpertsInTurn, 512, 1408, 8),
    "dlrm_2048": lambda: (Dlrm(26, 100_000, 64), ((2048, 13), ((26, 2048), torch.int64))),
    "fp8_linear_1": partial(_rows, Fp8Linear, 1, INNER, torch.float8_e4m3fn),
    "fp8_linear_64": partial(_rows, Fp8Linear, 64, INNER, torch.float8_e4m3fn),
    "int8_linear_1": partial(_rows, Fp8Linear, 1, INNER, torch.int8),
    "int8_linear_64": partial(_rows, Fp8Linear, 64, INNER, torch.int8),
    "layer_norm_of_channels": lambda: (
        lambda x, w, b: F.layer_norm(x.permute(0, 2, 3, 1), (96,), w, b).permute(0, 3, 1, 2).contiguous(),
        ((8, 96, 56, 56), (96,), (96,)),
    ),
    "layer_norm_of_images": lambda: (
        lambda x, w, b: F.layer_norm(x, (64, 64), w, b), ((8, 512, 64, 64), (64, 64), (64, 64)),
    ),
    "layer_norm_of_dim_0": lambda: (
        lambda x: (x - x.mean(0)) * (x.var(0, correction=0) + 1e-5).rsqrt(), ((1024, 8192),),
    ),
    "transpose_4096": partial(_permuted, (1, 0), (4096, 4096)),
    "transpose_batches": partial(_permuted, (0, 2, 1), (32, 128, 4096)),
    "transpose_heads": partial(_permuted, (0, 2, 1, 3), (8, 512, 32, 128)),
}  # fmt: skip

#: All programs, by name.
FAMILIES: Mapping[str, Callable[[], Parts]] = {**_ATTENTION, **_LINEAR, **_STEPS, **_IMAGES}
