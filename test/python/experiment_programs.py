# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Programs of the tests of sweeps: functions by import path, and files of users that break."""

from __future__ import annotations

import torch
from torch import nn

CHAIN = """func.func @main(%x: tensor<256x512xf16>) -> tensor<256x512xf16> {
  %e = tensor.empty() : tensor<256x512xf16>
  %a = linalg.exp ins(%x : tensor<256x512xf16>) outs(%e : tensor<256x512xf16>) -> tensor<256x512xf16>
  %b = linalg.tanh ins(%a : tensor<256x512xf16>) outs(%e : tensor<256x512xf16>) -> tensor<256x512xf16>
  %c = linalg.add ins(%a, %b : tensor<256x512xf16>, tensor<256x512xf16>) outs(%e : tensor<256x512xf16>)
      -> tensor<256x512xf16>
  return %c : tensor<256x512xf16>
}
"""

#: A solver whose first call kills its worker, if a file of this name is not there yet, or at every call.
KILLER = """
import os, signal
from pathlib import Path
from spyre_mlir.scratchpad.fitting import FirstFitLayoutSolver
from spyre_mlir.scratchpad.solvers import register

@register
class Killer(FirstFitLayoutSolver):
    name = "{name}"

    def place(self, instance):
        flag = Path({flag!r})
        if not {once} or not flag.exists():
            flag.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().place(instance)
"""


def mlp(width: int = 64) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """A model with random weights, and its inputs."""
    model = nn.Sequential(nn.Linear(width, 128), nn.GELU(), nn.Linear(128, width)).half()
    return model, (torch.randn(32, width).half(),)


def chain() -> str:
    """MLIR from a function."""
    return CHAIN


def broken() -> str:
    """A model with an error in user code."""
    raise ZeroDivisionError("no model")
