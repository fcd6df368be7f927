# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``autocast``: a model of float32 has the numbers and the types that PyTorch's autocast gives it, on the device."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from programs import FLOOR
from torch import Tensor, nn
from torch.utils import _pytree as pytree

import spyre_mlir
from spyre_mlir.driver.program import Program
from spyre_mlir.errors import CompileError, HostWorkWarning
from spyre_mlir.frontend import capture_torch
from spyre_mlir.frontend.capture_key import captured_key

DTYPES = (torch.float16, torch.bfloat16)


class Products(nn.Module):
    """Operations on the autocast lists of PyTorch, operations that decompose to them, and others."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(64, 64) / 8)
        self.linear = nn.Linear(64, 64)

    def forward(self, x: Tensor, y: Tensor) -> Any:
        product = torch.einsum("ij,jk->ik", x, self.weight)
        total = x.clone()
        total += self.linear(y)
        return {
            "einsum": product, "sum": total, "tensordot": torch.tensordot(x, y, dims=([1], [1])),
            "softmax": torch.softmax(product, -1), "embedding": x.sum(-1), "matmul": (y @ self.weight).tanh(),
        }  # fmt: skip


class Images(nn.Module):
    """A convolution, of 16 bits, and norms whose parameters are wider."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Conv2d(8, 64, 3, padding=1), nn.BatchNorm2d(64)
        self.second, self.groups = nn.ConvTranspose2d(64, 8, 2, 2), nn.GroupNorm(2, 8)
        self.norm.running_mean.normal_()
        self.norm.running_var.uniform_(0.5, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.groups(self.second(F.relu(self.norm(self.first(x)))))


class Layer(nn.Module):
    """A layer of a transformer."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(64, 2, batch_first=True)
        self.norm, self.up, self.down = nn.LayerNorm(64), nn.Linear(64, 128), nn.Linear(128, 64)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(x, x, x, need_weights=False)[0]
        return x + self.down(F.gelu(self.up(self.norm(x))))


class Regions(nn.Module):
    """Parts of the model under separate autocasts, and under none."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(64, 64), nn.Linear(64, 64)

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        with torch.autocast("cpu", enabled=False):
            wide = x * 2
            with torch.autocast("cpu", torch.bfloat16):
                inner = torch.einsum("ij,kj->ik", x, x)
        return wide, inner, self.first(x), self.second(x) + wide


def inputs(*shapes: tuple[int, ...]) -> tuple[Tensor, ...]:
    return tuple(torch.randn(shape) for shape in shapes)


CASES = {
    "products": (Products, ((4, 64), (4, 64))),
    "images": (Images, ((1, 8, 8, 8),)),
    "layer": (Layer, ((2, 9, 64),)),
    "regions": (Regions, ((4, 64),)),
}


def of_pytorch(model: Callable, given: tuple[Tensor, ...], dtype: torch.dtype) -> Any:
    with torch.no_grad(), torch.autocast("cpu", dtype, cache_enabled=False):
        return model(*given)


def assert_as_good(got: Any, wanted: Any, exact: Any) -> None:
    """Assert the same types, and an error against float64 of at most four times PyTorch's autocast, or ``FLOOR``."""
    leaves = zip(*map(pytree.tree_leaves, (got, wanted, exact)), strict=True)
    for mine, theirs, right in leaves:
        assert (mine.dtype, mine.shape) == (theirs.dtype, theirs.shape)
        largest = right.abs().max()
        error, allowed = (((each.double() - right).abs().max() / largest).item() for each in (mine, theirs))
        # For bfloat16 the rule uses 8 bits of fraction instead of the 11 of fp16.
        floor = FLOOR * (8 if theirs.dtype == torch.bfloat16 else 1)
        assert error <= max(4 * allowed, floor)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", CASES)
def test_numbers_and_types_are_those_of_autocast(name, dtype):
    torch.manual_seed(0)
    make, shapes = CASES[name]
    model, given = make().eval(), inputs(*shapes)
    with torch.no_grad(), torch.autocast("cpu", enabled=False):
        exact = _in_double(model, given)
    with warnings.catch_warnings():
        warnings.simplefilter("error", HostWorkWarning)
        program = spyre_mlir.compile(model, given, autocast=dtype, sencores=2)
    assert isinstance(program, Program)
    assert_as_good(program(*given), of_pytorch(model, given, dtype), exact)
    assert len(program.bundles) == len(program.steps), "Something runs on the host."


def _in_double(model: nn.Module, given: tuple[Tensor, ...]) -> Any:
    """Results in float64; a region under autocast leaves that alone."""
    return copy.deepcopy(model).double()(*(tensor.double() for tensor in given))


@pytest.mark.parametrize("types", ((0, 0, 0), (1, 1, 1), (0, 0, 1), (1, 0, 0)))
def test_casts_of_an_operation_of_its_own_are_not_those_of_autocast(types):
    """Attention computes some operands in float32 by itself; it still gets all of them in fp16."""
    torch.manual_seed(0)
    given = tuple(
        tensor.half() if is_short else tensor
        for tensor, is_short in zip(inputs(*[(1, 2, 9, 64)] * 3), types, strict=True)
    )
    program = spyre_mlir.compile(F.scaled_dot_product_attention, given, autocast=torch.float16, sencores=2)
    exact = F.scaled_dot_product_attention(*(tensor.double() for tensor in given))
    assert_as_good(program(*given), of_pytorch(F.scaled_dot_product_attention, given, torch.float16), exact)


def test_parameters_are_cast_when_the_model_is_compiled():
    """A weight that products alone read is an argument of 16 bits under its own name; one of both types is two."""
    model = nn.Linear(64, 64)
    program = spyre_mlir.compile(model, inputs((4, 64)), autocast="fp16")
    assert {name: str(array.dtype) for name, array in program.arrays.items()} == {
        "weight": "float16", "bias": "float16",
    }  # fmt: skip

    weight = nn.Parameter(torch.randn(64, 64))

    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = weight

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            return x @ self.weight, x + self.weight

    program = spyre_mlir.compile(Both(), inputs((64, 64)), autocast="fp16")
    assert {name: str(array.dtype) for name, array in program.arrays.items()} == {
        "weight": "float32", "weight.float16": "float16",
    }  # fmt: skip


def test_the_autocast_of_the_caller_counts():
    model, given = nn.Linear(64, 64), inputs((4, 64))
    with torch.autocast("cpu", torch.float16):
        program = spyre_mlir.compile(model, given)
    assert program(*given).dtype == torch.float16
    with pytest.warns(HostWorkWarning, match="f32 x f32"):
        program = spyre_mlir.compile(model, given)
    assert program(*given).dtype == torch.float32


def test_keys_of_the_cache_differ():
    """Keys differ even if only parts of operations are cast."""

    def function(x: Tensor) -> Tensor:
        return torch.einsum("ij,kj->ik", x, x).sum()

    keys = {captured_key(capture_torch(function, inputs((4, 64)), dtype)) for dtype in (None, *DTYPES)}
    assert len(keys) == 3


def test_a_program_of_the_cache_casts_the_weights_at_hand(cache_log):
    """A second checkpoint reuses the program of the first one."""
    given = inputs((4, 64))
    for is_served in (False, True):
        model = nn.Linear(64, 64)
        cache_log.clear()
        program = spyre_mlir.compile(model, given, autocast="float16", cache=True)
        assert any("no pass runs" in record.getMessage() for record in cache_log.records) == is_served
        torch.testing.assert_close(
            program(*given), of_pytorch(model, given, torch.float16), rtol=4e-3, atol=4e-3
        )


@pytest.mark.parametrize("is_option", (True, False))
def test_torch_compile(is_option):
    """Autocast with torch.compile: by an option of the backend, or around the call."""
    torch.manual_seed(0)
    model, given = Layer().eval(), inputs((1, 9, 64))
    options = {"autocast": torch.float16} if is_option else {}
    compiled = torch.compile(model, backend=spyre_mlir.torch_backend, options=options)
    with torch.no_grad(), torch.autocast("cpu", torch.float16, enabled=not is_option):
        got = compiled(*given)
    assert_as_good(got, of_pytorch(model, given, torch.float16), _in_double(model, given))


@pytest.mark.parametrize("is_option", (True, False))
def test_gradients(is_option):
    """Forward and backward have the casts of autocast, and gradients the type of the parameters."""
    torch.manual_seed(0)
    model, given = nn.Sequential(nn.Linear(64, 128), nn.Tanh(), nn.Linear(128, 64)), inputs((8, 64))
    options = {"autocast": torch.float16} if is_option else {}
    compiled = torch.compile(model, backend=spyre_mlir.torch_backend, options=options)
    gradients = []
    for each in (compiled, model):
        model.zero_grad()
        with torch.autocast("cpu", torch.float16, enabled=each is model or not is_option):
            result = each(*given)
        result.float().square().mean().backward()
        gradients.append([parameter.grad.clone() for parameter in model.parameters()])
    for got, wanted in zip(*gradients, strict=True):
        torch.testing.assert_close(got, wanted, rtol=0, atol=4e-3 * wanted.abs().max().item())


@pytest.mark.parametrize(
    "option, words",
    ((torch.float32, "takes torch.float16 or torch.bfloat16, not torch.float32"), ("f8", "not 'f8'")),
)
def test_other_types_are_refused(option, words):
    with pytest.raises(CompileError, match=words):
        spyre_mlir.compile(nn.Linear(64, 64), inputs((4, 64)), autocast=option)


def test_an_exported_program_has_its_types():
    program = torch.export.export(nn.Linear(64, 64), inputs((4, 64)))
    with pytest.raises(CompileError, match="give the model itself"):
        spyre_mlir.compile(program, autocast=torch.float16)
