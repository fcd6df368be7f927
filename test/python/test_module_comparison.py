# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``Program.compare``: the numbers of a model by module against PyTorch on the CPU."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch
from torch import nn

import spyre_mlir
from spyre_mlir.analysis.aliasing import all_ops, functions
from spyre_mlir.errors import CompileError
from spyre_mlir.mlir import ir, source_note
from spyre_mlir.passes.base import Pass


@dataclass(frozen=True)
class WrongDifference(Pass):
    """Swap the operands of differences in the module whose path ends in ``1.away``."""

    name: ClassVar[str] = "test-wrong-difference"

    def run(self, module: ir.Operation) -> None:
        for op in [op for op in all_ops(functions(module)[0]) if op.name == "linalg.generic"]:
            is_same = len(op.operands) == 3 and op.operands[0].type == op.operands[1].type
            if is_same and source_note(op.location, "module").endswith("1.away"):
                op.operands[0], op.operands[1] = op.operands[1], op.operands[0]


class Away(nn.Module):
    def forward(self, x, y):
        return x - 2 * y


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear, self.away = nn.Linear(64, 64), Away()

    def forward(self, x):
        return self.away(self.linear(x), x)


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(*(Layer() for _ in range(3))).half().eval()


X = torch.linspace(-1, 1, 512).reshape(8, 64).half()


def test_every_module_is_compared_in_the_order_of_the_run():
    network = model()
    found = spyre_mlir.compile(network, (X,)).compare(network, (X,))
    paths = [path for number in range(3) for path in (f"{number}.linear", f"{number}.away", f"{number}")]
    assert [each.name for each in found] == [*paths, "(model)"]
    assert found.first is None and all(each.error <= each.bound and each.ulp < 8 for each in found)
    assert str(found).splitlines()[0].split() == ["module", "largest", "error", "allowed", "ulp"]


def test_the_first_module_above_the_rule_is_named():
    network = model()
    program = spyre_mlir.compile(network, (X,), passes={"device-ops": [WrongDifference()]})
    found = program.compare(network, (X,))
    assert found.first is not None and found.first.name == "1.away"
    lines = str(found).splitlines()
    assert [line.split()[0] for line in lines if line.endswith("first above")] == ["1.away"]
    assert [line.split()[0] for line in lines if line.endswith(" above")][:2] == ["1.away", "1"]


def test_programs_without_a_model_are_refused(tmp_path):
    program = spyre_mlir.compile(model(), (X,))
    program.save(tmp_path / "program")
    with pytest.raises(CompileError, match="needs a program that compile returned"):
        spyre_mlir.load(tmp_path / "program").compare(model(), (X,))
    text = "func.func @main(%x: tensor<8x64xf16>) -> tensor<8x64xf16> { return %x : tensor<8x64xf16> }"
    with pytest.raises(CompileError, match="A module in MLIR has no PyTorch modules"):
        spyre_mlir.compile(text).compare(model(), (X,))
