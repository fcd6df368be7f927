# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The programs with hints of "Working Set Reduction", and ways to capture a model."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

from spyre_mlir import declare_tensor_dim, name_tensor_dims, spyre_hint
from spyre_mlir.frontend import Imported, import_torch
from spyre_mlir.frontend.dynamo import CompiledGraph
from spyre_mlir.mlir import ir

#: Relative, of sums of positive numbers: each of the 8 roundings to fp16, one per tile of K and then some, is 2^-11.
TOLERANCE = 8 / 2**11

SIZES = {"M": 64, "K": 256, "N": 128}
M, K, N = SIZES.values()


def kernel(x, y, z):
    """Example 1: the product is tiled along M and K, the sum along M."""
    with spyre_hint(tiles={"M": 8}):
        with spyre_hint(tiles={"K": 4}):
            p = x @ y
        return p + z


def kernel_in_one(x, y, z):
    """Example 1 with one hint."""
    with spyre_hint(tiles={"M": 8, "K": 4}):
        return x @ y + z


def kernel_of_view(x_1d, y, z):
    """Example 2: the first dim of x is split by a view."""
    with spyre_hint(tiles={"M": 8, "K": 4}):
        return x_1d.view(M, K) @ y + z


def half(*shape: int) -> torch.Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(0)).half()


def named(tensor: torch.Tensor, *names: str) -> torch.Tensor:
    name_tensor_dims(tensor, names)
    return tensor


def kernel_inputs(*, is_flat: bool = False) -> tuple[torch.Tensor, ...]:
    """x, y and z with declared and named dims; x flat for Example 2."""
    for name, size in SIZES.items():
        declare_tensor_dim(name, size)
    x = half(M * K) if is_flat else half(M, K)
    return named(x, "M", "K"), named(half(K, N), "K", "N"), named(half(M, N), "M", "N")


def imported(model: Any, *inputs: Any) -> Imported:
    return import_torch(model, inputs, context=ir.Context())


class _Module(nn.Module):
    def __init__(self, function: Callable) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs):
        return self.function(*inputs)


def _exported(model: Any, *inputs: Any, strict: bool) -> Imported:
    module = model if isinstance(model, nn.Module) else _Module(model)
    return imported(torch.export.export(module, inputs, strict=strict))


def compiled_graphs(model: Any, *inputs: Any) -> list[Imported]:
    """Return the graphs that torch.compile passes to the backend, in the order of the calls."""
    found = []

    def compile(graph: Callable, given: tuple) -> Callable:
        found.append(imported(graph, *given))
        return graph

    torch._dynamo.reset()
    with torch.no_grad():
        torch.compile(model, backend=lambda graph, _: CompiledGraph(graph, compile))(*inputs)
    return found


def _compiled(model: Any, *inputs: Any) -> Imported:
    (graph,) = compiled_graphs(model, *inputs)
    return graph


#: The ways from a model to MLIR.
CAPTURES: dict[str, Callable[..., Imported]] = {
    "spyre_mlir.compile": imported,
    "torch.export": lambda *given: _exported(*given, strict=False),
    "torch.export strict": lambda *given: _exported(*given, strict=True),
    "torch.compile": _compiled,
}


def operations(operation: ir.Operation) -> Iterator[ir.Operation]:
    for region in operation.regions:
        for block in region.blocks:
            for inner in block.operations:
                yield inner.operation
                yield from operations(inner.operation)


def computing(program: Imported) -> list[ir.Operation]:
    """The operations of linalg that compute."""
    found = [each for each in operations(program.module.operation) if each.name.startswith("linalg.")]
    return [op for op in found if op.name in ("linalg.generic", "linalg.matmul", "linalg.batch_matmul")]


def hints(program: Imported) -> list[tuple[str, tuple[int, ...]]]:
    """Operation of PyTorch and ids of its hints, outermost first; once for neighbours that agree."""
    found = []
    for op in computing(program):
        text = str(op.location)
        (name,) = set(re.findall(r'aten = "aten\.(\w+)\.\w+"', text))
        found.append((name, tuple(map(int, re.findall(r"id = (\d+) : i64", text)))))
    return [each for each, _ in itertools.groupby(found)]
