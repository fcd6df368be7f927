# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Pickled programs: the loaded program has the results and the properties of the original."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import deviations
import numpy as np
import pytest
import torch
from torch import nn
from torch.utils import _pytree as pytree

import spyre_mlir
from spyre_mlir import CompileError, Program, RangeWarning
from spyre_mlir.errors import AlgorithmError
from spyre_mlir.scratchpad import PlanError
from spyre_mlir.simulator import SimulationError
from spyre_mlir.zoo import models as zoo

SOFTMAX = Path(__file__).parents[2] / "spyre_mlir" / "zoo" / "linalg" / "softmax.mlir"


def copied(program: Program) -> Program:
    return pickle.loads(pickle.dumps(program))


def equal(one: Any, other: Any) -> bool:
    """Return whether two results have the same structure, types and numbers."""
    pairs = zip(pytree.tree_leaves(one), pytree.tree_leaves(other), strict=True)
    return all(type(a) is type(b) and np.array_equal(np.asarray(a), np.asarray(b)) for a, b in pairs)


@pytest.mark.parametrize("name", ["gpt2", "llama_decode", "mixtral"])
def test_a_model_comes_back(name: str) -> None:
    """With its weights and its way to be called: views among its results, caches that it changes, several steps."""
    model, inputs = zoo.model(name, zoo.REDUCED)
    program = spyre_mlir.compile(model, inputs)
    restored = copied(program)
    assert restored.metrics() == copied(restored).metrics() == program.metrics()
    assert restored.summary() == program.summary(findings=False) and restored.findings == ()
    assert equal(
        deviations.call(restored, deviations.copied(inputs)),
        deviations.call(program, deviations.copied(inputs)),
    )


def test_a_module_comes_back(tmp_path: Path) -> None:
    """With its IR and its plan, which are made again when they are asked for, and its reports."""
    program = spyre_mlir.compile(SOFTMAX, sencores=4, layout_solver="greedy", cache=False)
    restored = copied(program)
    assert str(restored.module) == str(program.module) and restored.plan() == program.plan()
    assert restored.bundle == program.bundle and list(restored.passes) == list(program.passes)
    restored.report(tmp_path / "report.html")
    x = [np.ones(value.host_shape, value.host_dtype) for value in program.inputs]
    assert equal(restored(*x), program(*x))


@pytest.mark.parametrize("lay_out_weights", [False, True])
def test_a_folder_comes_back(tmp_path: Path, lay_out_weights: bool) -> None:
    model, inputs = nn.Linear(64, 32).half(), (torch.ones(8, 64).half(),)
    program = spyre_mlir.compile(model, inputs)
    program.save(tmp_path / "out", lay_out_weights=lay_out_weights)
    loaded = Program.load(tmp_path / "out")
    restored = copied(loaded)
    assert equal(restored(inputs[0].numpy()), loaded(inputs[0].numpy()))
    with pytest.raises(CompileError, match="has no IR"):
        _ = restored.module


def test_weights_that_were_replaced_come_back() -> None:
    """A weight in the memory of the model follows the model; another array is itself."""
    model, inputs = nn.Linear(64, 32).half(), (torch.ones(8, 64).half(),)
    program = spyre_mlir.compile(model, inputs)
    name = next(argument.name for argument in program.arguments if argument.host_shape == (32, 64))
    program.arrays[name] = np.zeros_like(program.arrays[name])
    assert equal(copied(program)(*inputs), program(*inputs))


def test_another_process_runs_it(tmp_path: Path) -> None:
    program = spyre_mlir.compile(SOFTMAX)
    (tmp_path / "program.pickle").write_bytes(pickle.dumps(program))
    code = "import pickle, sys; print(pickle.load(open(sys.argv[1], 'rb')).metrics()['predicted_us'])"
    command = [sys.executable, "-c", code, str(tmp_path / "program.pickle")]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert float(printed) == program.metrics()["predicted_us"]


class Noise(nn.Module):
    """A model that draws random numbers."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + torch.randn(x.shape).half()


def test_what_does_not_pickle_is_one_error() -> None:
    program = spyre_mlir.compile(Noise(), (torch.ones(8, 64).half(),))
    with pytest.raises(
        CompileError, match="The program cannot be pickled, because an input or a result of its model cannot"
    ):
        pickle.dumps(program)


@pytest.mark.parametrize(
    "error",
    [
        CompileError("no", "a.mlir:1:2", "aten.add", "layer"),
        SimulationError("range", "no", tensor="x", core=3, address=64),
        AlgorithmError("no"),
        PlanError("no"),
        RangeWarning("no"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_comes_back(error: Exception) -> None:
    """A worker process pickles its errors, and its pool breaks at an error that does not pickle."""
    for same in (pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)):
        assert (type(same), str(same), vars(same)) == (type(error), str(error), vars(error))


@pytest.mark.filterwarnings("error")
def test_a_model_comes_back_without_a_warning() -> None:
    x = torch.ones(3, 64).half()
    assert equal(copied(spyre_mlir.compile(nn.ReLU(), (x,)))(x), x)
