# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Operations on random shapes: each of ``_OPERATIONS`` on two, drawn with a fixed seed.

Sizes are 1, primes, around a stick of 64 and more than one; ranks are 1 to 4. A name says both:
``cumsum-3x65``.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from op_cases import Input, booleans, distinct, indices, positive, program
from programs import Program
from torch import nn

_SIZES = (1, 2, 3, 5, 7, 16, 31, 63, 64, 65, 127, 128, 130, 200)
_MOST_ELEMENTS = 1 << 15
SAMPLES_PER_OPERATION = 2


@dataclass(frozen=True)
class Operation:
    """``function`` of tensors of one shape, made by ``inputs``; or, with ``make``, both by the shape."""

    function: Callable[..., Any] | None
    ranks: tuple[int, ...] = (1, 2, 3, 4)
    inputs: tuple[Callable[..., Input], ...] = ()
    make: Callable[[tuple[int, ...]], tuple[Callable[[], Any], tuple[Input, ...]]] | None = None

    def program(self, name: str, shape: tuple[int, ...]) -> Program:
        if self.make is not None:
            return program(name, *self.make(shape))
        return program(name, lambda: self.function, tuple(make(*shape) for make in self.inputs))


def normal(*shape: int) -> Input:
    return shape


def _of(*inputs: Callable[..., Input], ranks: tuple[int, ...] = (1, 2, 3, 4)) -> Callable:
    return lambda function: Operation(function, ranks, inputs)


_unary, _binary, _positive = _of(normal), _of(normal, normal), _of(positive)
_of_rank_2, _of_rank_4 = _of(normal, ranks=(2, 3, 4)), _of(normal, ranks=(4,))
_image = _of_rank_4


def _module(make_module: Callable[[tuple[int, ...]], nn.Module], ranks: tuple[int, ...]) -> Operation:
    return Operation(None, ranks, make=lambda shape: (lambda: make_module(shape), (shape,)))


def _with(
    make_others: Callable[[tuple[int, ...]], tuple[Input, ...]], function: Callable, ranks=(1, 2, 3)
) -> Operation:
    """A function of a tensor of the shape and of others that depend on it."""
    return Operation(None, ranks, make=lambda shape: (lambda: function, (shape, *make_others(shape))))


def _middle(size: int) -> slice:
    return slice(size // 4, size - size // 4)


_OPERATIONS: dict[str, Operation] = {
    # activations
    "elu": _unary(F.elu),
    "celu": _unary(F.celu),
    "selu": _unary(F.selu),
    "hardswish": _unary(F.hardswish),
    "hardsigmoid": _unary(F.hardsigmoid),
    "hardtanh": _unary(F.hardtanh),
    "relu6": _unary(F.relu6),
    "leaky_relu": _unary(lambda x: F.leaky_relu(x, 0.2)),
    "logsigmoid": _unary(F.logsigmoid),
    "softsign": _unary(F.softsign),
    "tanhshrink": _unary(F.tanhshrink),
    "softplus": _unary(lambda x: F.softplus(x, beta=2.0, threshold=10.0)),
    "mish": _unary(F.mish),
    "threshold": _unary(lambda x: F.threshold(x, 0.1, 20.0)),
    "glu": _with(lambda s: (), lambda x: F.glu(torch.cat((x, 2 * x), -1))),
    "prelu": _with(lambda s: ((1,),), F.prelu, (2, 3)),
    "gelu": _unary(F.gelu),
    "silu": _unary(F.silu),
    "softshrink": _unary(F.softshrink),
    "hardshrink": _unary(F.hardshrink),
    # elementwise
    "sign": _unary(torch.sign),
    "ceil": _unary(torch.ceil),
    "round": _unary(torch.round),
    "trunc": _unary(torch.trunc),
    "frac": _unary(torch.frac),
    "square": _unary(torch.square),
    "reciprocal": _positive(torch.reciprocal),
    "sin": _unary(torch.sin),
    "cos": _unary(torch.cos),
    "tan": _positive(lambda x: torch.tan(x / 2)),
    "atan": _unary(torch.atan),
    "sinh": _unary(torch.sinh),
    "cosh": _unary(torch.cosh),
    "erf": _unary(torch.erf),
    "log2": _positive(torch.log2),
    "log10": _positive(torch.log10),
    "log1p": _positive(torch.log1p),
    "exp2": _unary(torch.exp2),
    "expm1": _unary(torch.expm1),
    "pow_tensor": _of(positive, normal)(torch.pow),
    "pow_4": _unary(lambda x: x**4),
    "pow_1_5": _positive(lambda x: x**1.5),
    "rsub": _unary(lambda x: 2 - x),
    "remainder": _of(normal, positive)(torch.remainder),
    "fmod": _of(normal, positive)(torch.fmod),
    "floor_divide": _of(normal, positive)(torch.floor_divide),
    "addcmul": _of(normal, normal, normal)(torch.addcmul),
    "addcdiv": _of(normal, normal, positive)(torch.addcdiv),
    "lerp": _binary(lambda x, y: torch.lerp(x, y, 0.3)),
    "minimum": _binary(torch.minimum),
    "atan2": _of(normal, positive)(torch.atan2),
    "hypot": _binary(torch.hypot),
    "clamp_tensor": _binary(lambda x, y: torch.clamp(x, min=y)),
    "isnan": _unary(torch.isnan),
    "logical_or": _binary(lambda x, y: (x > 0) | ~(y > 1)),
    "logical_xor": _binary(lambda x, y: (x > 0) ^ (y > 0)),
    "where_mask": _of(booleans, normal, normal)(torch.where),
    "eq_number": _of(booleans)(lambda x: x.half() == 1),
    "nan_to_num": _unary(torch.nan_to_num),
    "copysign": _binary(torch.copysign),
    "integer_sum": _of(lambda *s: indices(50, *s), lambda *s: indices(50, *s))(lambda x, y: x * 3 + y),
    "integer_compare": _of(lambda *s: indices(9, *s), lambda *s: indices(9, *s))(lambda x, y: (x < y, x % 4)),
    # reductions
    "sum_first": _unary(lambda x: x.sum(0)),
    "mean_all": _unary(torch.mean),
    "amax_all": _unary(torch.amax),
    "amin_first": _unary(lambda x: x.amin(0)),
    "prod": _positive(lambda x: x[..., :5].prod(-1)),
    "absmax": _unary(lambda x: x.abs().amax(-1)),
    "norm": _unary(lambda x: x.norm(dim=-1)),
    "norm_1": _unary(lambda x: torch.linalg.vector_norm(x, 1, dim=0)),
    "argmin": _of(distinct)(lambda x: x.argmin(-1)),
    "argmax_all": _of(distinct)(torch.argmax),
    "max_first": _of(distinct)(lambda x: x.max(0)),
    "any": _unary(lambda x: (x > 2).any(-1)),
    "all": _unary(lambda x: (x > -2).all(0)),
    "logsumexp_first": _unary(lambda x: torch.logsumexp(x, 0)),
    "var_all": _of_rank_2(lambda x: x.var(correction=0)),
    "cumsum": _unary(lambda x: x.cumsum(0)),
    "cummax": _of(distinct)(lambda x: (x + 1).cummax(-1)[0]),
    "topk": _of(distinct)(lambda x: x.topk(1, 0)),
    "median": _of(distinct)(lambda x: x.median(-1)[0]),
    "count_nonzero": _unary(lambda x: torch.count_nonzero(x, -1)),
    # shapes
    "slice": _unary(lambda x: x[..., _middle(x.shape[-1])] * 2),
    "slice_first": _unary(lambda x: x[_middle(x.shape[0])] * 2),
    "slice_step_last": _unary(lambda x: x[..., ::2] + 1),
    "flip": _unary(lambda x: x.flip(-1)),
    "roll": _unary(lambda x: x.roll(2, -1)),
    "rot90": _of_rank_2(lambda x: torch.rot90(x, 1, (0, 1))),
    "repeat_interleave": _unary(lambda x: x.repeat_interleave(2, -1)),
    "tile": _unary(lambda x: x.tile(2)),
    "pad_negative": _unary(lambda x: F.pad(torch.cat((x, x), -1), (2, -1), value=0.5)),
    "replicate_pad": _image(lambda x: F.pad(x, (1, 2, 0, 1), mode="replicate")),
    "circular_pad": _unary(lambda x: torch.cat((x[-1:], x, x[:1]))),
    "movedim": _of_rank_2(lambda x: x.movedim(0, -1).contiguous()),
    "swapaxes": _of_rank_2(lambda x: x.swapaxes(-1, -2) * 2),
    "diagonal": _of_rank_2(lambda x: x.diagonal(0, -2, -1)),
    "unbind": _unary(lambda x: x.unbind(0)[0] * 2),
    "tril": _of_rank_2(lambda x: x.tril(-1)),
    "meshgrid": _of(normal, normal, ranks=(1,))(
        lambda x, y: torch.stack(torch.meshgrid(x, y, indexing="ij"))
    ),
    "unfold": _of_rank_2(lambda x: x.unfold(-1, 1, 2) * 2),
    "new_zeros": _unary(lambda x: x + x.new_zeros(x.shape[-1])),
    "pixel_shuffle": _of(normal, ranks=(2,))(lambda x: F.pixel_shuffle(torch.stack((x, x, 2 * x, x)), 2)),
    "index_last": _with(lambda s: (indices(s[-1], 5),), lambda x, i: x.index_select(-1, i)),
    # matmuls and modules
    "linear": _module(lambda s: nn.Linear(s[-1], 33), (1, 2, 3)),
    "layer_norm": _module(lambda s: nn.LayerNorm(s[-1]), (1, 2, 3)),
    "matmul": _with(lambda s: ((s[-1], 17),), torch.matmul),
    "addmm": _with(lambda s: ((s[-1], 9), (9,)), lambda x, w, b: torch.addmm(b, x, w, alpha=0.5), (2,)),
    "bilinear_form": _binary(lambda x, y: torch.einsum("...i,...i->...", x, y)),
    "instance_norm": _image(F.instance_norm),
    "group_norm": _of(normal, ranks=(2, 3, 4))(lambda x: F.group_norm(x, 1)),
    "conv1d": _module(lambda s: nn.Conv1d(s[-2], 8, 3, padding=1), (3,)),
    "conv2d": _module(lambda s: nn.Conv2d(s[1], 8, 2, padding=1, stride=2), (4,)),
    "max_pool": _image(lambda x: F.max_pool2d(F.pad(x, (1, 1, 1, 1)), 2)),
    "avg_pool": _image(lambda x: F.avg_pool2d(x, 3, 1, 1)),
    "adaptive_pool": _image(lambda x: F.adaptive_avg_pool2d(x, 3)),
    "cosine_similarity": _binary(lambda x, y: F.cosine_similarity(x, y, -1)),
    "mse_loss": _binary(F.mse_loss),
    "cross_entropy": _with(lambda s: (indices(s[1], s[0]),), F.cross_entropy, (2,)),
    "cdist": _of(normal, normal, ranks=(2,))(lambda x, y: (x[:, None] - y[None, :7]).abs().sum(-1)),
}


def _shape(generator: random.Random, ranks: tuple[int, ...]) -> tuple[int, ...]:
    while True:
        shape = tuple(generator.choice(_SIZES) for _ in range(generator.choice(ranks)))
        if torch.Size(shape).numel() <= _MOST_ELEMENTS:
            return shape


def _samples() -> dict[str, Callable[[], Program]]:
    generator, samples = random.Random(9), {}
    for kind, operation in _OPERATIONS.items():
        for _ in range(SAMPLES_PER_OPERATION):
            shape = _shape(generator, operation.ranks)
            name = f"{kind}-{'x'.join(map(str, shape))}"
            samples[name] = lambda name=name, shape=shape, operation=operation: operation.program(name, shape)
    return samples


SAMPLES = _samples()
