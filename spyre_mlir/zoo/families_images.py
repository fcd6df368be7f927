# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Families of images and sound: ResNet, MobileNet, a U-Net level, ViT, the encoder of Whisper."""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from spyre_mlir.zoo.family import Family

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


FAMILIES = {
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
