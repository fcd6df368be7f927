# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Operations on concatenations part by part, and softmaxes with other shifts and divisors: numbers of PyTorch."""

from __future__ import annotations

import dataclasses
import random
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import spyre_mlir
from spyre_mlir.passes.distribute_concatenations import DistributeConcatenations
from spyre_mlir.zoo.blocks import AppliedFunction

Function = Callable[..., Any]


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Distribute all concatenations, without a cost model that would keep most of the small ones."""
    decide = DistributeConcatenations.decide
    monkeypatch.setattr(
        DistributeConcatenations,
        "decide",
        lambda self, *rest: decide(dataclasses.replace(self, compare=False), *rest),
    )


def _rewrites(program: spyre_mlir.Program, name: str) -> int:
    return sum(remark.pass_name == name and remark.kind == "rewrite" for remark in program.pass_remarks)


def _check(function: Function, inputs: tuple[Tensor, ...], name: str, **options: Any) -> None:
    """Compile a function, require a rewrite by a pass, and compare its results with results in f64."""
    with warnings.catch_warnings(action="ignore"):
        program = spyre_mlir.compile(AppliedFunction(function), inputs, **options)
        results = program(*inputs)
    assert _rewrites(program, name), f"{name} rewrites nothing"
    wanted, rounded = function(*(value.double() for value in inputs)), function(*inputs)
    single = isinstance(wanted, Tensor)
    for result, exact, own in zip(
        *([each] if single else each for each in (results, wanted, rounded)), strict=True
    ):
        allowed = 3 * (own.double() - exact).abs().max() + 2e-3 * exact.abs().max() + 1e-4
        assert (result.double() - exact).abs().max() <= allowed


def _random_program(seed: int) -> tuple[Function, tuple[Tensor, ...]]:
    """Return a function of concatenated parts: pointwise operations, then slices, reductions or a product."""
    draw = random.Random(seed)
    torch.manual_seed(seed)
    rank, count = draw.choice((2, 3)), draw.choice((2, 2, 3, 4))
    shape, dim = [draw.choice((3, 16, 64)) for _ in range(rank)], draw.randrange(rank)
    sizes = [draw.choice((1, 5, 32, 64, 65)) for _ in range(count)]
    parts = [torch.randn([*shape[:dim], size, *shape[dim + 1 :]]).half() for size in sizes]
    whole = sum(sizes)
    row = torch.randn([*([1] * dim), whole, *([1] * (rank - dim - 1))]).half()
    weight = (torch.randn(whole, 24) * 0.1).half()
    chain = [draw.choice(("row", "scale", "tanh", "transpose")) for _ in range(draw.randrange(4))]
    end = draw.choice(("sum", "amax", "softmax", "slice", "product", "two"))
    first = draw.randrange(whole)
    last = draw.randrange(first, whole) + 1

    def function(*values: Tensor) -> Any:
        *pieces, vector, matrix = values
        value, at = torch.cat(pieces, dim), dim
        for step in chain:
            if step == "row":
                value = value + vector.movedim(dim, at)
            elif step == "scale":
                value = value * 0.5
            elif step == "tanh":
                value = torch.tanh(value)
            else:
                value, at = value.transpose(0, 1), {0: 1, 1: 0}.get(at, at)
        if end == "product":
            return value.movedim(at, -1) @ matrix
        if end == "softmax":
            return torch.softmax(value, at).narrow(at, first, last - first) * 2
        if end == "two":
            return value.sum(at), value.narrow(at, first, last - first) * 2
        if end == "slice":
            return value.narrow(at, first, last - first).amax(at)
        return value.sum(at) if end == "sum" else value.amax(at)

    return function, (*parts, row, weight)


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("seed", range(24))
def test_random_concatenations(seed: int) -> None:
    function, inputs = _random_program(seed)
    with warnings.catch_warnings(action="ignore"):
        program = spyre_mlir.compile(AppliedFunction(function), inputs)
        results = program(*inputs)
    wanted, rounded = function(*(value.double() for value in inputs)), function(*inputs)
    single = isinstance(wanted, Tensor)
    for result, exact, own in zip(
        *([each] if single else each for each in (results, wanted, rounded)), strict=True
    ):
        allowed = 3 * (own.double() - exact).abs().max() + 2e-3 * exact.abs().max() + 1e-4
        assert (result.double() - exact).abs().max() <= allowed


@pytest.mark.usefixtures("always")
def test_feature_maps_that_grow() -> None:
    def function(image: Tensor, *weights: Tensor) -> Tensor:
        for weight in weights:
            image = torch.cat([image, F.relu(F.conv2d(image, weight, padding=1))], 1)
        return image

    weights = [(torch.randn(32, 64 + 32 * index, 3, 3) * 0.04).half() for index in range(3)]
    _check(function, (torch.randn(1, 64, 7, 7).half(), *weights), DistributeConcatenations.name)


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("size", [1, 64])
def test_one_element_of_a_part(size: int) -> None:
    def function(one: Tensor, other: Tensor, rows: Tensor) -> Tensor:
        return torch.cat([one, other])[64] * rows

    inputs = torch.randn(64).half(), torch.randn(size).half(), torch.randn(8, 64).half()
    _check(function, inputs, DistributeConcatenations.name)


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("shape", [(4, 64, 64), (2, 20, 577)])
def test_logarithm_of_a_sum_of_parts(shape: tuple[int, int, int]) -> None:
    """The maximum of all parts bounds each, so that the sum is at least 1, and its logarithm is exact in fp16."""

    def function(scores: Tensor, sink: Tensor) -> Tensor:
        column = sink[:, None, None].expand(*scores.shape[:-1], 1)
        return torch.logsumexp(torch.cat([scores, column], -1), -1)

    inputs = torch.randn(shape).half() * 9, torch.randn(shape[0]).half() * 9
    _check(function, inputs, DistributeConcatenations.name)


@pytest.mark.usefixtures("always")
def test_sinks_with_the_logarithm_of_their_sum() -> None:
    """Each of both computes its own maximum of the same scores; the weights become a softmax for tiles."""

    def function(query: Tensor, keys: Tensor, values: Tensor, sink: Tensor) -> tuple[Tensor, Tensor]:
        scores = query @ keys.transpose(1, 2) * 0.125
        wide = torch.cat([scores, sink.reshape(-1, 1, 1).expand(-1, query.shape[1], 1)], -1)
        return torch.softmax(wide, -1)[..., :-1] @ values, torch.logsumexp(wide, -1)

    inputs = *(torch.randn(2, 512, 64).half() for _ in range(3)), torch.randn(2).half()
    _check(function, inputs, "factor-softmax", sencores=1, lx_frac_avail=0.2)


def _sinks(query: Tensor, keys: Tensor, values: Tensor, sink: Tensor) -> Tensor:
    scores = query @ keys.transpose(1, 2) * 0.125
    columns = torch.cat([scores, sink.reshape(-1, 1, 1).expand(-1, query.shape[1], 1)], -1)
    return torch.softmax(columns, -1)[..., :-1] @ values


def _sinks_less_their_maximum(query: Tensor, keys: Tensor, values: Tensor, sink: Tensor) -> Tensor:
    scores = query @ keys.transpose(1, 2) * 0.125
    columns = torch.cat([scores, sink.reshape(-1, 1, 1).expand(-1, query.shape[1], 1)], -1)
    columns = columns - columns.max(-1, keepdim=True).values
    return torch.softmax(columns, -1)[..., :-1] @ values


def _first_columns(query: Tensor, keys: Tensor, values: Tensor, sink: Tensor) -> Tensor:
    scores = query @ keys.transpose(1, 2) * 0.125
    columns = torch.cat([sink.reshape(-1, 1, 1).expand(-1, query.shape[1], 2), scores], -1)
    return torch.softmax(columns, -1)[..., 2:] @ values


def _divisor_plus_one(query: Tensor, keys: Tensor, values: Tensor, sink: Tensor) -> Tensor:
    scores = query @ keys.transpose(1, 2) * 0.125 + sink.reshape(-1, 1, 1)
    shift = scores.amax(-1, keepdim=True).clamp(min=0)
    weights = torch.exp(scores - shift)
    return weights / (weights.sum(-1, keepdim=True) + torch.exp(-shift)) @ values


def _two_matmuls(query: Tensor, keys: Tensor, values: Tensor, sink: Tensor) -> tuple[Tensor, Tensor]:
    scores = query @ keys.transpose(1, 2) * 0.125
    shift = torch.maximum(scores.amax(-1, keepdim=True), sink.reshape(-1, 1, 1))
    weights = torch.exp(scores - shift)
    weights = weights / weights.sum(-1, keepdim=True)
    return weights @ values, weights @ keys


def _masked_rows(query: Tensor, keys: Tensor, values: Tensor, sink: Tensor) -> Tensor:
    """Return an attention with a sink in which a mask of -infinity hides all keys of the first rows."""
    is_hidden = torch.arange(query.shape[1])[:, None] < torch.arange(keys.shape[1])[None] % 7 + 5
    is_hidden = is_hidden | (torch.arange(query.shape[1])[:, None] < 3)
    scores = (query @ keys.transpose(1, 2) * 0.125).masked_fill(is_hidden, float("-inf"))
    columns = torch.cat([scores, sink.reshape(-1, 1, 1).expand(-1, query.shape[1], 1)], -1)
    return torch.softmax(columns, -1)[..., :-1] @ values


@pytest.mark.parametrize(
    "function",
    [_masked_rows, _sinks, _sinks_less_their_maximum, _first_columns, _divisor_plus_one, _two_matmuls],
)
def test_softmaxes_with_factors(function: Function) -> None:
    # On one core the scores need more than half of the scratchpad.
    torch.manual_seed(0)
    query, keys, values = (torch.randn(2, rows, 64).half() for rows in (512, 768, 768))
    _check(function, (query, keys, values, torch.tensor([3.0, -2.0]).half()), "factor-softmax", sencores=1)
