# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Memory of a compilation is freed: a process does not grow from a few to thousands of compilations."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable

import pytest
import torch

import spyre_mlir
from spyre_mlir.errors import CompileError
from spyre_mlir.mlir import ir

SUM = """
func.func @main(%x: tensor<64x64xf16>) -> tensor<64x64xf16> {
  %e = tensor.empty() : tensor<64x64xf16>
  %0 = linalg.add ins(%x, %x : tensor<64x64xf16>, tensor<64x64xf16>) outs(%e : tensor<64x64xf16>) -> tensor<64x64xf16>
  return %0 : tensor<64x64xf16>
}"""


def _half(*shape: int) -> torch.Tensor:
    return torch.ones(shape).half()


def _refused() -> None:
    with contextlib.suppress(CompileError):
        spyre_mlir.compile(SUM.replace("add", "powf"), fallback=False)


COMPILATIONS: dict[str, Callable[[], object]] = {
    "a module": lambda: spyre_mlir.compile(SUM),
    "a model": lambda: spyre_mlir.compile(lambda x: torch.softmax(x, 1), (_half(8, 64),)),
    "a fallback": lambda: spyre_mlir.compile(lambda x: torch.sin(x) + x, (_half(8, 64),)),
    "a kernel of PyTorch": lambda: spyre_mlir.compile(torch.lgamma, (_half(8, 64),)),
    "pieces": lambda: spyre_mlir.compile(lambda x: x[x > 0] * 2, (_half(8, 64),)),
    "what is refused": _refused,
}


def _contexts() -> int:
    gc.collect()
    return sum(isinstance(value, ir.Context) for value in gc.get_objects())


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", COMPILATIONS)
def test_no_context_stays(name: str) -> None:
    """A context has all IR of a compilation; a circle through the bindings keeps it for ever."""
    COMPILATIONS[name]()
    before = _contexts()
    for _ in range(3):
        COMPILATIONS[name]()
    assert _contexts() == before
