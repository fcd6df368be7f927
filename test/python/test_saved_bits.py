# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A program that was saved, pickled or cached gives the bits that the program itself gives."""

from __future__ import annotations

import itertools
import json
import pickle
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import spyre_mlir
from spyre_mlir import CompileError
from spyre_mlir.driver.program import Program
from spyre_mlir.frontend.signature import to_numpy

W = torch.linspace(-2, 2, 4096).reshape(64, 64)

PROGRAMS = {
    "attention": lambda x: torch.softmax(x @ x.transpose(0, 1), -1) @ x,
    "weights": lambda x: torch.nn.functional.gelu(x @ W.to(x.dtype)) + 0.3,
    "sums": lambda x: (torch.exp(x) * 1.7).sum(-1) / 3,
    "host": lambda x: torch.cumsum(x.sort(-1).values * 1.3, -1) * 0.7,
    "types": lambda x: (x.float() * 1.1).to(x.dtype) * 3.3,
}
DTYPES = [torch.float16, torch.bfloat16, torch.float32]
OPTIONS = [*itertools.product([None, "ieee", "dl16"], ["device", "strict"])]
CASES = [(name, dtype, *options) for name in PROGRAMS for dtype in DTYPES for options in OPTIONS]


def bits(value: Any, dtype: torch.dtype) -> bytes:
    tensor = value if isinstance(value, Tensor) else torch.from_numpy(np.array(value))
    return np.ascontiguousarray(to_numpy(tensor.to(dtype))).tobytes()


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    ("name", "dtype", "numerics", "precision"), CASES, ids=lambda value: str(value).removeprefix("torch.")
)
def test_bits(name, dtype, numerics, precision, tmp_path, monkeypatch):
    torch.manual_seed(0)
    monkeypatch.setenv("SPYRE_CACHE_DIR", str(tmp_path / "cache"))
    x = torch.randn(8, 64).to(dtype)

    def compiled() -> Program:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return spyre_mlir.compile(
                PROGRAMS[name], (x,), numerics=numerics, precision=precision, sencores=2, cache=True
            )

    try:
        program = compiled()
    except CompileError:
        pytest.skip("no such program")
    result = program(x)
    expected = bits(result, result.dtype)
    program.save(tmp_path / "saved")
    program.save(tmp_path / "laid_out", lay_out_weights=True)
    loaded = [Program.load(tmp_path / folder) for folder in ("saved", "laid_out")]
    assert [each.numerics for each in loaded] == [program.numerics] * 2
    assert [bits(each(to_numpy(x)), result.dtype) for each in loaded] == [expected] * 2
    loaded[0].save(tmp_path / "again")
    assert Program.load(tmp_path / "again").numerics == program.numerics
    for other in (pickle.loads(pickle.dumps(program)), compiled()):
        assert bits(other(x), result.dtype) == expected


def test_the_caller_may_choose_other_numerics(tmp_path):
    program = spyre_mlir.compile(lambda x: x * 1.7, (W.half(),), numerics="dl16")
    program.save(tmp_path / "saved")
    assert Program.load(tmp_path / "saved").numerics == "dl16"
    assert Program.load(tmp_path / "saved", "ieee").numerics == "ieee"


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.int32])
@pytest.mark.parametrize("device", ["cpu", "spyre"])
def test_a_loaded_program_returns_tensors_for_tensors(
    dtype: torch.dtype, device: str, tmp_path: Path
) -> None:
    """The results of the compiled program, of its type and on the device of the inputs; arrays give arrays."""
    x = torch.arange(-64, 64).reshape(2, 64).to(dtype)
    program = spyre_mlir.compile(lambda x, y: (x + y, x.clone().abs()), (x, x), sencores=2)
    program.save(tmp_path / "program")
    loaded = spyre_mlir.load(tmp_path / "program")
    for result, expected in zip(loaded(x.to(device), x.to(device)), program(x, x), strict=True):
        assert result.device.type == device and result.dtype == dtype
        assert torch.equal(result.cpu(), expected)
    if dtype != torch.bfloat16:
        assert {type(result) for result in loaded(x.numpy(), x.numpy())} == {np.ndarray}


@pytest.mark.parametrize(
    "function", [lambda x: x + 1, lambda x: torch.sort(x + 1).values], ids=["bundle", "steps"]
)
def test_a_loaded_program_returns_unsigned_numbers(function, tmp_path: Path) -> None:
    x = torch.arange(100, dtype=torch.uint8) + 150
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = spyre_mlir.compile(function, (x,), sencores=2)
    program.save(tmp_path / "program")
    loaded = spyre_mlir.load(tmp_path / "program")
    assert loaded(x).dtype == torch.uint8 and torch.equal(loaded(x), program(x))


def test_a_loaded_program_refuses_tensors_whose_sign_it_does_not_know(tmp_path: Path) -> None:
    """250 would come back as -6 from a folder that does not name unsigned results; the bits are right."""
    x = torch.arange(100, dtype=torch.uint8) + 150
    program = spyre_mlir.compile(lambda x: x + 1, (x,), sencores=2)
    program.save(tmp_path / "program")
    path = tmp_path / "program" / "program.json"
    plain = json.loads(path.read_text())
    assert [value.pop("is_unsigned") for value in plain["results"]] == [True]
    path.write_text(json.dumps(plain))
    loaded = spyre_mlir.load(tmp_path / "program")
    with pytest.raises(CompileError, match="integers without signs"):
        loaded(x)
    assert torch.equal(loaded(x.view(torch.int8)).view(torch.uint8), program(x))
