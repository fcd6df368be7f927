# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Layers with weights and activations of 8 bits, as PyTorch's quantisers write them, and the same in float64."""

from __future__ import annotations

import random
from dataclasses import dataclass

import torch
from torch import Tensor, nn

FP8 = torch.float8_e4m3fn
LARGEST = {FP8: 448.0, torch.int8: 127.0}


@dataclass(frozen=True)
class Case:
    """One layer: ``weight`` and ``activations`` are 8-bit types, None for activations that stay as they are.

    ``scales`` is the granularity of the scales of the weight: "tensor", "channel" or "group" of 32; ``tokens``:
    activations have a scale per row. ``late``: the scale of the weight is applied after the product. ``batches`` of
    weights make it a batched matmul.
    """

    dtype: torch.dtype
    weight: torch.dtype
    activations: torch.dtype | None
    scales: str
    tokens: bool
    late: bool
    bias: bool
    rows: tuple[int, ...]
    inner: int
    columns: int
    batches: int = 0
    tied: bool = False


def random_case(seed: int) -> Case:
    """A case by its seed; with activations of 8 bits the weight has one scale per channel at most, applied late."""
    choice = random.Random(seed)
    weight = choice.choice([FP8, torch.int8])
    activations = choice.choice([None, weight])
    batches = choice.choice([0, 0, 0, 3]) if activations is None else 0
    scales = choice.choice(
        ["tensor", "channel", "channel", "group"] if activations is None else ["tensor", "channel"]
    )
    return Case(
        dtype=choice.choice([torch.float16, torch.bfloat16]),
        weight=weight,
        activations=activations,
        scales=scales,
        tokens=choice.random() < 0.6,
        late=activations is not None or (scales != "group" and choice.random() < 0.4),
        bias=choice.random() < 0.5,
        rows=choice.choice([(1,), (7,), (64,), (2, 5), (1, 1)]),
        inner=choice.choice([64, 96, 256, 320]),
        columns=choice.choice([48, 64, 200, 257]),
        batches=batches,
        tied=choice.random() < 0.2 and not batches,
    )


def quantised(x: Tensor, dtype: torch.dtype, dims: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """Codes and scales of a tensor of float32; ``dims`` share a scale."""
    scale = x.abs().amax(dims, keepdim=True).clamp(min=1e-6) / LARGEST[dtype]
    scaled = x / scale
    scaled = torch.round(scaled) if dtype == torch.int8 else scaled
    return scaled.clamp(-LARGEST[dtype], LARGEST[dtype]).to(dtype), scale


class Layer(nn.Module):
    """A case as a module, in a tied one the result is multiplied by the same weight once more."""

    def __init__(self, case: Case, seed: int) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.case = case
        shape = (*((case.batches,) if case.batches else ()), case.columns, case.inner)
        weight = torch.randn(shape, generator=generator) * torch.rand((*shape[:-1], 1), generator=generator)
        grouped = weight.unflatten(-1, (-1, 32)) if case.scales == "group" else weight
        dims = (-1, -2) if case.scales == "tensor" else (-1,)
        codes, scale = quantised(grouped, case.weight, dims)
        self.register_buffer("weight", codes.reshape(shape))
        self.register_buffer("scale", scale if case.activations else scale.to(case.dtype))
        self.register_buffer("bias", torch.randn(case.columns, generator=generator).to(case.dtype))

    def dequantised(self, dtype: torch.dtype) -> Tensor:
        """The weight in 16 bits, or without rounding."""
        codes, scale = self.weight.to(dtype), self.scale.to(dtype)
        if self.case.scales == "group":
            return (codes.unflatten(-1, (-1, 32)) * scale).reshape(codes.shape)
        return codes if self.case.late else codes * scale

    def product(self, x: Tensor, dtype: torch.dtype, exact: bool) -> Tensor:
        case = self.case
        if case.activations is None:
            result = torch.matmul(x, self.dequantised(dtype).transpose(-1, -2))
            return result * self.scale.to(dtype).transpose(-1, -2) if case.late else result
        dims = (-1,) if case.tokens else tuple(range(x.ndim))
        codes, scale = quantised(x.float(), case.activations, dims)
        flat, rows = codes.reshape(-1, codes.shape[-1]), scale.reshape(-1, 1)
        if exact:
            result = (
                flat.double() @ self.weight.double().t() * rows.double() * self.scale.double().reshape(1, -1)
            )
        elif case.activations == torch.int8:
            result = (torch._int_mm(flat, self.weight.t()).float() * rows * self.scale.reshape(1, -1)).to(
                dtype
            )
        else:
            by_row = case.tokens or case.scales == "channel"
            scales = (rows.expand(len(flat), 1), self.scale.reshape(1, -1).expand(1, case.columns))
            left, right = (
                (each.contiguous() for each in scales)
                if by_row
                else (scale.reshape(()), self.scale.reshape(()))
            )
            result = torch._scaled_mm(flat, self.weight.t(), scale_a=left, scale_b=right, out_dtype=dtype)
        return result.reshape(*x.shape[:-1], case.columns)

    def forward(self, x: Tensor, exact: bool = False) -> Tensor:
        dtype = torch.float64 if exact else self.case.dtype
        result = self.product(x.double() if exact else x, dtype, exact)
        if self.case.bias:
            result = result + self.bias.to(dtype)
        if self.case.tied:
            weight = self.dequantised(dtype)
            result = torch.matmul(result, weight * self.scale.to(dtype) if self.case.late else weight)
        return result


def example(case: Case, seed: int) -> Tensor:
    """An input of a case."""
    generator = torch.Generator().manual_seed(seed)
    shape = (*((case.batches,) if case.batches else ()), *case.rows[-1 if case.batches else 0 :], case.inner)
    return torch.randn(shape, generator=generator).to(case.dtype)


def tolerance(reference: Tensor, exact: Tensor) -> float:
    """Return the allowed error: four times the error of PyTorch, or a thousandth of the largest value."""
    largest = exact.abs().max().item()
    digits = 2**-8 if reference.dtype == torch.bfloat16 else 2**-9
    return max(4 * (reference.double() - exact).abs().max().item(), digits * largest / 2)
