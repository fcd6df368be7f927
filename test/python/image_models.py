# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Models of images in the structure of timm's: ``IMAGE_MODELS`` maps names to functions that make a model."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class _ChannelNorm(nn.LayerNorm):
    """A layer norm over the channels of an image."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class _ConvNextBlock(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.norm, self.up, self.down = (
            nn.LayerNorm(width),
            nn.Linear(width, 4 * width),
            nn.Linear(4 * width, width),
        )
        self.scale = nn.Parameter(torch.full((width,), 0.5))

    def forward(self, x: Tensor) -> Tensor:
        inner = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        inner = self.down(F.gelu(self.up(inner))) * self.scale
        return x + inner.permute(0, 3, 1, 2)


class ConvNext(nn.Module):
    """A patch embedding, blocks of depthwise convolutions of 7 x 7, a downsampling, a classifier."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, width, 4, 4), _ChannelNorm(width))
        self.first = _ConvNextBlock(width)
        self.downsample = nn.Sequential(_ChannelNorm(width), nn.Conv2d(width, 2 * width, 2, 2))
        self.second, self.norm = _ConvNextBlock(2 * width), nn.LayerNorm(2 * width)
        self.head = nn.Linear(2 * width, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.second(self.downsample(self.first(self.stem(x))))
        return self.head(self.norm(x.mean((2, 3))))


class _InvertedResidual(nn.Module):
    """Expansion, depthwise convolution, squeeze and excitation, projection, each with a batch norm."""

    def __init__(self, width: int, expansion: int = 4) -> None:
        super().__init__()
        inner = width * expansion
        self.expand = nn.Sequential(nn.Conv2d(width, inner, 1, bias=False), nn.BatchNorm2d(inner), nn.SiLU())
        self.depthwise = nn.Sequential(
            nn.Conv2d(inner, inner, 3, padding=1, groups=inner, bias=False), nn.BatchNorm2d(inner), nn.SiLU()
        )
        self.squeeze, self.excite = nn.Conv2d(inner, width // 2, 1), nn.Conv2d(width // 2, inner, 1)
        self.project = nn.Sequential(nn.Conv2d(inner, width, 1, bias=False), nn.BatchNorm2d(width))

    def forward(self, x: Tensor) -> Tensor:
        inner = self.depthwise(self.expand(x))
        gate = self.excite(F.silu(self.squeeze(F.adaptive_avg_pool2d(inner, 1))))
        return x + self.project(inner * torch.sigmoid(gate))


class EfficientNet(nn.Module):
    """A stem of stride 2, two inverted residuals, a head."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, width, 3, 2, 1, bias=False), nn.BatchNorm2d(width), nn.SiLU())
        self.blocks = nn.Sequential(_InvertedResidual(width), _InvertedResidual(width))
        self.head = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.2), nn.Linear(width, 10)
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.blocks(self.stem(x)))


class _WindowAttention(nn.Module):
    """Attention inside of windows, with a bias by relative position; every second layer shifts the windows."""

    def __init__(self, width: int, heads: int, window: int, shift: int, side: int) -> None:
        super().__init__()
        self.heads, self.window, self.shift = heads, window, shift
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.table = nn.Parameter(torch.randn((2 * window - 1) ** 2, heads) / 4)
        places = torch.stack(
            torch.meshgrid(torch.arange(window), torch.arange(window), indexing="ij")
        ).flatten(1)
        relative = (places[:, :, None] - places[:, None, :]).permute(1, 2, 0) + window - 1
        self.register_buffer("index", relative[..., 0] * (2 * window - 1) + relative[..., 1])
        self.register_buffer("mask", self._mask(side))

    def _mask(self, side: int) -> Tensor:
        """Return the mask that keeps windows over the seam of a shifted image separate."""
        part = torch.zeros(side)
        part[side - self.window :] = 1
        part[side - self.shift or side :] = 2
        regions = self.windows((part[:, None] * 3 + part[None]).view(1, side, side, 1)).squeeze(2)
        apart = regions[:, None, :] != regions[:, :, None]
        return torch.zeros(apart.shape).masked_fill(apart, -100.0) if self.shift else torch.zeros(apart.shape)

    def windows(self, x: Tensor) -> Tensor:
        batch, height, width, channels = x.shape
        size = self.window
        x = x.view(batch, height // size, size, width // size, size, channels).permute(0, 1, 3, 2, 4, 5)
        return x.reshape(-1, size * size, channels)

    def forward(self, x: Tensor) -> Tensor:
        batch, height, width, channels = x.shape
        shifted = torch.roll(x, (-self.shift, -self.shift), (1, 2)) if self.shift else x
        inner = self.windows(shifted)
        q, k, v = self.qkv(inner).reshape(*inner.shape[:2], 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        scores = q * (channels // self.heads) ** -0.5 @ k.transpose(-2, -1)
        scores = scores + self.table[self.index].permute(2, 0, 1)[None]
        mask = self.mask.to(scores.dtype)[:, None].repeat(batch, 1, 1, 1)
        inner = (torch.softmax(scores + mask, -1) @ v).transpose(1, 2).reshape(inner.shape)
        size = self.window
        inner = self.out(inner).view(batch, height // size, width // size, size, size, channels)
        inner = inner.permute(0, 1, 3, 2, 4, 5).reshape(x.shape)
        return torch.roll(inner, (self.shift, self.shift), (1, 2)) if self.shift else inner


class _SwinBlock(nn.Module):
    def __init__(self, width: int, shift: int, side: int) -> None:
        super().__init__()
        self.attention = _WindowAttention(width, 2, 4, shift, side)
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.first(x))
        return x + self.down(F.gelu(self.up(self.second(x))))


class Swin(nn.Module):
    """Windows of 4 x 4 patches, shifted in the second block, and a merging of patches."""

    def __init__(self, width: int = 32, side: int = 8) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 4, 4)
        self.blocks = nn.Sequential(_SwinBlock(width, 0, side), _SwinBlock(width, 2, side))
        self.merge_norm, self.merge = nn.LayerNorm(4 * width), nn.Linear(4 * width, 2 * width, bias=False)
        self.head = nn.Linear(2 * width, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.blocks(self.patches(x).permute(0, 2, 3, 1))
        parts = [x[:, row::2, column::2] for column in (0, 1) for row in (0, 1)]
        x = self.merge(self.merge_norm(torch.cat(parts, -1)))
        return self.head(x.mean((1, 2)))


class _MixerBlock(nn.Module):
    def __init__(self, tokens: int, width: int) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.tokens = nn.Sequential(nn.Linear(tokens, 2 * tokens), nn.GELU(), nn.Linear(2 * tokens, tokens))
        self.channels = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.tokens(self.first(x).transpose(1, 2)).transpose(1, 2)
        return x + self.channels(self.second(x))


class MlpMixer(nn.Module):
    """MLPs over patches and over channels in turn."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 8, 8)
        self.blocks = nn.Sequential(_MixerBlock(16, width), _MixerBlock(16, width))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.blocks(self.patches(x).flatten(2).transpose(1, 2))
        return self.head(self.norm(x).mean(1))


def _double_convolution(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, padding=1), nn.GroupNorm(4, outputs), nn.SiLU(),
        nn.Conv2d(outputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.LeakyReLU(0.1),
    )  # fmt: skip


class UNet(nn.Module):
    """Two poolings down, two transposed convolutions up, with connections over them."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.down = nn.ModuleList([_double_convolution(3, width), _double_convolution(width, 2 * width)])
        self.bottom = _double_convolution(2 * width, 4 * width)
        self.up = nn.ModuleList([
            nn.ConvTranspose2d(4 * width, 2 * width, 2, 2),
            nn.ConvTranspose2d(2 * width, width, 3, 2, 1, output_padding=1),
        ])  # fmt: skip
        self.join = nn.ModuleList(
            [_double_convolution(4 * width, 2 * width), _double_convolution(2 * width, width)]
        )
        self.head = nn.Conv2d(width, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        kept = []
        for layer in self.down:
            x = layer(x)
            kept.append(x)
            x = F.max_pool2d(x, 2)
        x = self.bottom(x)
        for up, join in zip(self.up, self.join, strict=True):
            x = join(torch.cat([kept.pop(), up(x)], 1))
        return F.interpolate(self.head(x), scale_factor=2, mode="bilinear", align_corners=False)


class DetrHead(nn.Module):
    """Queries that attend to the features of an image: classes, and boxes as centres and sizes."""

    def __init__(self, width: int = 64, queries: int = 10, classes: int = 7) -> None:
        super().__init__()
        self.features = nn.Conv2d(3, width, 8, 8)
        self.encoder = nn.TransformerEncoderLayer(width, 2, 2 * width, batch_first=True)
        self.decoder = nn.TransformerDecoderLayer(width, 2, 2 * width, batch_first=True, norm_first=True)
        self.queries = nn.Parameter(torch.randn(queries, width))
        self.rows, self.columns = (nn.Parameter(torch.randn(4, width // 2)) for _ in range(2))
        self.classes = nn.Linear(width, classes + 1)
        self.boxes = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 4))

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        x = self.features(x)
        places = torch.cat([
            self.columns[None].expand(4, -1, -1), self.rows[:, None].expand(-1, 4, -1)
        ], -1).flatten(0, 1)  # fmt: skip
        memory = self.encoder(x.flatten(2).transpose(1, 2) + places)
        target = self.decoder(self.queries[None].expand(x.shape[0], -1, -1), memory)
        logits, boxes = self.classes(target), torch.sigmoid(self.boxes(target))
        centre, size = boxes[..., :2], boxes[..., 2:]
        scores, labels = torch.softmax(logits, -1)[..., :-1].max(-1)
        corners = torch.cat([centre - size / 2, centre + size / 2], -1)
        return {"logits": logits, "corners": corners, "scores": scores, "labels": labels}


def _with_statistics(model: nn.Module) -> nn.Module:
    """Batch norms as a training leaves them."""
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean.normal_(0, 0.2)
            module.running_var.uniform_(0.5, 1.5)
    return model


IMAGE_MODELS: Mapping[str, Callable[[], tuple[nn.Module, tuple[Tensor, ...]]]] = {
    name: lambda make=make: (_with_statistics(make()), (torch.randn(1, 3, 32, 32),))
    for name, make in {
        "convnext": ConvNext, "efficientnet": EfficientNet, "swin": Swin, "mixer": MlpMixer, "unet": UNet,
        "detr": DetrHead,
    }.items()
}  # fmt: skip
