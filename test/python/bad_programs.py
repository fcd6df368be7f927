# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Programs that are refused, or that have a warning: ``BAD`` maps names to functions that compile, and run, one."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

import spyre_mlir

BAD: dict[str, Callable[[], Any]] = {}


class Inner(nn.Module):
    """A module inside of a module that runs ``function``."""

    def __init__(self, function: Callable) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.function = function

    def forward(self, x: Tensor) -> Any:
        return self.function(x)


class Outer(nn.Module):
    """A model of two layers, the second of which runs ``function``; its path is ``layers.1``."""

    def __init__(self, function: Callable) -> None:
        super().__init__()
        self.layers = nn.ModuleList([Inner(torch.exp), Inner(function)])

    def forward(self, x: Tensor) -> Any:
        for layer in self.layers:
            x = layer(x)
        return x


def half(*shape: int) -> Tensor:
    return torch.ones(shape, dtype=torch.float16)


def _model(name: str, function: Callable, *inputs: Any, **options: Any) -> None:
    """A function inside of a module; by default on a matrix of fp16."""
    given = inputs or (half(4, 64),)
    BAD[name] = lambda: spyre_mlir.compile(Outer(function), given, **options)


def _function(name: str, function: Callable, *inputs: Any, **options: Any) -> None:
    BAD[name] = lambda: spyre_mlir.compile(function, inputs, **options)


def _call(name: str, function: Callable, inputs: tuple, other: tuple) -> None:
    """A program that is called with other inputs than it was compiled for."""
    BAD[name] = lambda: spyre_mlir.compile(function, inputs)(*other)


def _raises(x: Tensor) -> Tensor:
    raise ValueError(f"only {'very ' * 100}large inputs, not {tuple(x.shape)}")


def _raises_lines(x: Tensor) -> Tensor:
    raise RuntimeError("first line\n  second line with %3 = and !torch.vtensor<[4],f16>\nthird")


def _asserts(x: Tensor) -> Tensor:
    assert x.shape[0] == 3
    return x


def _branches(x: Tensor) -> Tensor:
    if x.sum() > 0:
        return x + 1
    return x - 1


def _loops(x: Tensor) -> Tensor:
    while x.max() > 1:
        x = x / 2
    return x


def _item(x: Tensor) -> Tensor:
    return x[: int(x.sum().item())]


def _quantized() -> Tensor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.quantize_per_tensor(torch.ones(4), 0.1, 0, torch.qint8)


def _many_parameters() -> Any:
    layers = nn.Sequential(*(nn.Linear(64, 64).half() for _ in range(20)))
    return spyre_mlir.compile(layers, (half(4, 64),), layouts={"nothing": {"stick_dims": [0]}})


# Programs that PyTorch refuses.
_model("shapes", lambda x: x @ half(4, 8))
_model("dtypes", lambda x: x @ torch.ones(64, 8))
_model("linear dtypes", nn.Linear(64, 8))
_model("conv dtypes", lambda x: torch.conv1d(x[None], torch.ones(1, 4, 3)))
_model("einsum dtypes", lambda x: torch.einsum("ij,kj->ik", x, x.float()))
_model("broadcast", lambda x: x + half(7))
_model("no attribute", lambda x: x.no_such_thing())
_model("index", lambda x: x[9])
_model("dim", lambda x: x.sum(5))
_model("reshape", lambda x: x.reshape(7, 7))
_model("raises", _raises)
_model("raises lines", _raises_lines)
_model("asserts", _asserts)
_model("numpy", lambda x: torch.from_numpy(x.numpy() + 1), fallback=False)
_function("missing input", lambda x, y: x + y, half(4))
_function("too many inputs", lambda x: x, half(4), half(4))
_function("input of no tensor", lambda x: x["a"], [1, 2])
_function("unknown option", torch.exp, half(4), sencoresses=3)
_function("wrong option", torch.exp, half(4), sencores="many")
_function("too many cores", torch.exp, half(4), sencores=300)
_function("precision", torch.exp, half(4), precision="high")
_function("autocast", torch.exp, half(4), autocast=torch.float64)
_function("layouts", torch.exp, half(4), layouts={"y": {"stick_dims": [0]}})
_function("layout dims", torch.exp, half(4), layouts={"x": {"stick_dims": [7]}})
BAD["no model"] = lambda: spyre_mlir.compile(3, ())
BAD["many parameters"] = _many_parameters
BAD["no inputs"] = lambda: spyre_mlir.compile(torch.exp, half(4))
BAD["no file"] = lambda: spyre_mlir.compile("nothing.mlir")
BAD["no MLIR"] = lambda: spyre_mlir.compile("func.func @main(%x: tensor<4xf16>) {\n  return %y\n}")
BAD["dynamic MLIR"] = lambda: spyre_mlir.compile(
    "func.func @main(%x: tensor<?xf16>) -> tensor<?xf16> {\n  return %x : tensor<?xf16>\n}"
)

# Values that decide shapes or branches.
_model("branch", _branches, fallback=False)
_model("loop", _loops, fallback=False)
_model("item", _item, fallback=False)
_model("nonzero", torch.nonzero, fallback=False)
_model("masked_select", lambda x: x[x > 0].sum(), fallback=False)
_model("unique", torch.unique, fallback=False)
_model("allclose", lambda x: x + torch.allclose(x, x), fallback=False)
_model("equal", lambda x: x + 1 if torch.equal(x, x) else x, fallback=False)
_model("tolist", lambda x: x + sum(x[0].tolist()))

# Element types that nothing has.
_model("uint16", lambda x: x.to(torch.uint16))
_function("input uint32", lambda x: x, torch.ones(4, dtype=torch.uint32))
_function("float8", lambda x: x.to(torch.float8_e5m2), half(4))
BAD["quantized"] = lambda: spyre_mlir.compile(lambda x: x.dequantize(), (_quantized(),))
_function("sparse", lambda x: x.to_dense(), torch.eye(4).to_sparse())
_function("sparse result", lambda x: x.to_sparse(), torch.eye(4))

# Operations that the device does not support, with the fallback to the host disabled.
_model("no fallback", torch.sin, fallback=False)
_model("no fallback f32", lambda x: x.float() @ x.float().T, fallback=False)
_model("no fallback integers", lambda x: x.long() * 3, fallback=False)

# Calls.
_call("other shape", torch.exp, (half(4),), (half(5),))
_call("other type", torch.exp, (half(4),), (torch.ones(4),))
_call("other count", torch.exp, (half(4),), (half(4), half(4)))
_call("other number", lambda x, n: x * n, (half(4), 2), (half(4), 3))
_call("no tensor", torch.exp, (half(4),), (3,))
_call("index outside", lambda x, i: x[i], (half(4), torch.tensor([1])), (half(4), torch.tensor([9])))

# Warnings.
_function("host work", lambda x: torch.relu(x @ x.T) @ x, torch.ones(8, 64))
_function(
    "host work of many",
    lambda x: x.sin().cos().tan().asin().acos().atan().sinh().cosh().digamma(),
    half(8, 64),
)
_call("range", lambda x: (x * 30000) @ x.T, (half(4, 64),), (half(4, 64) * 60000,))
_call("scores", lambda x: torch.softmax(x @ x.T, -1), (half(8, 64),), (torch.randn(8, 64).half() * 30,))
