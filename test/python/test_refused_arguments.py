# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Invalid arguments of public functions are a ``CompileError``, as documented."""

from __future__ import annotations

import typing
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import spyre_mlir
from spyre_mlir.bundle import write_bundle
from spyre_mlir.driver.compilation import CompileKeywords
from spyre_mlir.frontend import import_torch
from spyre_mlir.mlir import ir
from spyre_mlir.zoo.suite import FULL, program

TEXT = """func.func @main(%x: tensor<64xf16>) -> tensor<64xf16> {
  %e = tensor.empty() : tensor<64xf16>
  %y = linalg.exp ins(%x : tensor<64xf16>) outs(%e : tensor<64xf16>) -> tensor<64xf16>
  return %y : tensor<64xf16>
}"""

TEXT_FOR_A_NUMBER: typing.Any = "a"

HINTS = typing.get_type_hints(CompileKeywords)
CHOICES = [name for name, hint in HINTS.items() if "Literal" in str(hint)]


@pytest.fixture(scope="module")
def compiled() -> spyre_mlir.Program:
    return spyre_mlir.compile(TEXT)


@pytest.mark.parametrize("name", CHOICES)
def test_a_choice_of_compile_that_there_is_not(name: str) -> None:
    options: typing.Any = {name: "zz"}
    with pytest.raises(spyre_mlir.CompileError, match="zz"):
        spyre_mlir.compile(TEXT, **options)


def test_choices_are_found() -> None:
    assert {"numerics", "precision", "target", "matmul"} <= set(CHOICES)


def test_numerics_of_a_folder(compiled: spyre_mlir.Program, tmp_path: Path) -> None:
    folder = tmp_path / "exp.bundle"
    with pytest.raises(spyre_mlir.CompileError, match="'zz' is unknown"):
        write_bundle(compiled.bundle, folder, laid_out_for="zz")
    assert not folder.exists()
    compiled.save(folder)
    with pytest.raises(spyre_mlir.CompileError, match="'zz' is unknown"):
        spyre_mlir.Program.load(folder, numerics="zz")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: spyre_mlir.zeros(-1, 3), "no negative sizes"),
        (lambda: spyre_mlir.full((3,), TEXT_FOR_A_NUMBER), "filled with a number, not with 'a'"),
        (lambda: spyre_mlir.arange(0, 5, 0), "step of arange is 0"),
        (lambda: program("zz", FULL), "The suite has no 'zz'"),
        (lambda: spyre_mlir.load_eight_bits(torch.nn.Linear(3, 3), "none.safetensors"), "cannot be read"),
        (lambda: imported("zz"), "one of device, strict, not 'zz'"),
    ],
)
def test_functions(call: Callable[[], object], message: str) -> None:
    with pytest.raises(spyre_mlir.CompileError, match=message):
        call()


def imported(precision: str) -> object:
    return import_torch(torch.nn.Linear(4, 4), (torch.ones(4, 4),), context=ir.Context(), precision=precision)
