# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""spyre-reduce: delta debugging of lists, of programs in MLIR with their options, and of exported programs."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from spyre_mlir import dialects
from spyre_mlir.experiments.reduction import keep_operations, removable, smaller_shapes, smallest
from spyre_mlir.mlir import ir
from spyre_mlir.tools import spyre_reduce

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.reduction import random_module, reduced


@pytest.mark.parametrize("needed", [(0,), (199,), (3, 77, 150), tuple(range(40, 50)), ()])
def test_a_fault_of_few_elements_takes_few_checks(needed):
    checks = []

    def is_faulty(elements):
        checks.append(elements)
        return set(needed) <= set(elements)

    assert smallest(range(200), is_faulty) == list(needed)
    assert len(checks) <= 20 + 20 * len(needed)


@pytest.mark.parametrize("seed", range(4))
def test_any_part_of_a_program_is_a_program(seed):
    import random

    generator, context = random.Random(seed), dialects.context()
    text = random_module(seed, 60)
    count = len(removable(ir.Module.parse(text, context).operation))
    assert count == 60
    for _ in range(5):
        module = ir.Module.parse(text, context)
        operations = removable(module.operation)
        kept = sorted(generator.sample(operations, generator.randrange(1, count)))
        keep_operations(module.operation, kept)
        assert module.operation.verify()
        assert len(removable(ir.Module.parse(str(module), context).operation)) == len(kept)


def test_shapes_shrink_together():
    texts = list(smaller_shapes("tensor<64x128xf16> [64, 128] affine_map<(d0) -> (d0 * 64)>"))
    assert "tensor<1x128xf16> [1, 128] affine_map<(d0) -> (d0 * 64)>" in texts
    # Multiples of a size shrink with it, because a collapsed dim is a product.
    assert "tensor<2x4xf16> [2, 4] affine_map<(d0) -> (d0 * 64)>" in texts


@pytest.mark.parametrize("kind", [0, 3, 9])
def test_planted_faults_are_found(kind):
    operations, _ = reduced(kind, 40)
    assert operations <= 5


def test_options_that_the_fault_does_not_need_are_removed(tmp_path, capsys):
    source = tmp_path / "a.mlir"
    source.write_text(random_module(0, 3))
    check = "echo '{options}' | grep -q 'b=2' && test -s {}"
    flags = ["--options", "a=1 b=2 c=3", "-o", str(tmp_path / "b.mlir")]
    assert spyre_reduce.main([str(source), "--check", check, *flags]) == 0
    assert "options: b=2\n" in capsys.readouterr().err


def test_a_check_without_the_fault_is_an_error(tmp_path, capsys):
    source = tmp_path / "a.mlir"
    source.write_text(random_module(0, 3))
    assert spyre_reduce.main([str(source), "--check", "false"]) == 1
    assert "does not exit with status 0 for the whole program" in capsys.readouterr().err


class _Layers(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(8, 8) for _ in range(6))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = torch.tanh(torch.relu(layer(x)) + x)
        return x.sin()


def test_an_exported_program_keeps_the_operations_of_the_fault(tmp_path, capsys):
    source, result = tmp_path / "a.pt2", tmp_path / "b.pt2"
    torch.export.save(torch.export.export(_Layers(), (torch.randn(4, 8),)), source)
    # Both operations are names in the archive's graph, so the check needs no start of PyTorch.
    text = "import sys, zipfile; z = zipfile.ZipFile(sys.argv[1]); t = b''.join(map(z.read, z.namelist())); "
    (tmp_path / "check.py").write_text(f"{text}sys.exit(not (b'aten.sin.' in t and b'aten.tanh.' in t))")
    check = f"{sys.executable} {tmp_path}/check.py {{}}"
    assert spyre_reduce.main([str(source), "--check", check, "-o", str(result)]) == 0
    assert "-> 2 operations" in capsys.readouterr().err
    smaller = torch.export.load(result)
    (inputs, _) = smaller.example_inputs
    assert torch.equal(smaller.module()(*inputs)[0], torch.sin(torch.tanh(*inputs)))
