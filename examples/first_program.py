# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compile a first program: a PyTorch model as a bundle, run on simulated cores, compared with PyTorch, and saved.

    python examples/first_program.py

It writes the folder ``first_program.bundle`` where it is called. That is all a run needs: ``spyre-run`` and
``Program.load`` take it without PyTorch.
"""

from __future__ import annotations

import torch
from torch import nn

import spyre_mlir


class GatedMLP(nn.Module):
    """The MLP of a Llama layer, with its norm and its residual."""

    def __init__(self, width: int = 256, hidden: int = 512) -> None:
        super().__init__()
        self.norm = nn.RMSNorm(width, eps=1e-5)
        self.gate = nn.Linear(width, hidden, bias=False)
        self.up = nn.Linear(width, hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(x)
        return x + self.down(nn.functional.silu(self.gate(y)) * self.up(y))


def main() -> None:
    torch.manual_seed(0)
    # Floating-point numbers of the device have 16 bits.
    model, x = GatedMLP().half().eval(), torch.randn(128, 256).half()

    program = spyre_mlir.compile(model, (x,))
    y = program(x)

    with torch.no_grad():
        expected = model(x)
    error = float((y - expected).abs().max() / expected.abs().max())
    print(f"{program}")
    print(f"largest error: {error:.5f} of the largest number")
    print(program.summary(findings=False))

    program.save("first_program.bundle")
    loaded = spyre_mlir.Program.load("first_program.bundle")
    # A program from a folder knows arrays only.
    print("the bundle on disk gives the same bits:", bool((loaded(x.numpy()) == y.numpy()).all()))


if __name__ == "__main__":
    main()
