"""Every program end to end: PyTorch, the pipeline, the folder, the simulator, and the numbers.

Each program is imported once; modules and compiled programs are kept for the tests that follow.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from pathlib import Path

import jsonschema
import numpy as np
import pytest
import torch
from programs import FLOOR, PROGRAMS, check_close, error_bound

import spyre_mlir
from spyre_mlir.bundle import read_arrays, read_bundle
from spyre_mlir.bundle.validate import validate
from spyre_mlir.dialects import context
from spyre_mlir.frontend import Imported, import_torch

PUBLIC_SCHEMA = Path(__file__).parents[3] / "shared" / "data" / "sdscbundle-schema.json"

NAMES = list(PROGRAMS)
SOME = NAMES[::3]
DL16 = (
    "softmax_dim_0_63x65", "softmax_dim_last_63x65", "layernorm", "rmsnorm", "gelu_mlp", "swiglu_mlp", "sdpa",
    "matmul_67x71x256", "sum_1", "mean_0_2_of_3", "silu", "div", "where_gt", "transpose_3", "cat_columns",
)  # fmt: skip
STRICT = (
    "softmax_dim_0_63x65", "softmax_dim_last_63x65", "layernorm", "rmsnorm", "sdpa_mask_bool", "llama_block_small",
    "matmul_3d_2d", "sum_all_of_3", "var_last", "cast_float", "cast_float_sum", "rmsnorm_by_hand",
)  # fmt: skip


@functools.cache
def imported(name: str) -> tuple[torch.nn.Module, tuple[torch.Tensor, ...], Imported]:
    """The model, its inputs and the linalg: the slow step, done once."""
    model, inputs = PROGRAMS[name]()
    return model, inputs, import_torch(model, inputs, context=context())


@functools.cache
def compiled(
    name: str, sencores: int = 32, precision: str = "device", numerics: str = "ieee"
) -> spyre_mlir.Program:
    """A program of the linalg; the parameters of the model are its arrays."""
    _, inputs, program = imported(name)
    made = spyre_mlir.compile(program.module, sencores=sencores, precision=precision, numerics=numerics)
    operands = zip(program.arguments, program.operands(*inputs), strict=True)
    made.arrays.update({argument.name: array for argument, array in operands if argument.kind != "input"})
    return made


@functools.cache
def arrays(name: str, **options) -> list[np.ndarray]:
    """The results of a run, as arrays."""
    _, inputs, program = imported(name)
    operands = zip(program.arguments, program.operands(*inputs), strict=True)
    results = compiled(name, **options)(*(array for argument, array in operands if argument.kind == "input"))
    return list(results) if isinstance(results, tuple) else [results]


def check(name: str, **options) -> None:
    """No rule of a bundle is broken, and the numbers are those of PyTorch."""
    model, inputs, program = imported(name)
    assert not (findings := validate(compiled(name, **options).bundle)), "\n".join(map(str, findings))
    check_close(name, program.unflatten(arrays(name, **options)), model, inputs)


@pytest.mark.parametrize("name", NAMES)
def test_equals_pytorch(name):
    """On all cores, within four times the error that PyTorch itself makes in fp16."""
    check(name)


@pytest.mark.parametrize("name", NAMES)
def test_the_folder_is_the_bundle(name, tmp_path):
    """Written and read back it is the same bundle, and every design fits the public schema."""
    program = compiled(name)
    program.save(tmp_path / "bundle")
    assert read_bundle(tmp_path / "bundle") == program.bundle
    held = read_arrays(tmp_path / "bundle")
    assert held.keys() == program.arrays.keys()
    for path in (tmp_path / "bundle").glob("sdsc_*.json") if PUBLIC_SCHEMA.exists() else ():
        error = jsonschema.exceptions.best_match(_schema().iter_errors(json.loads(path.read_text())))
        assert error is None, f"{path.name}: {error}"


@functools.cache
def _schema() -> jsonschema.Draft202012Validator:
    return jsonschema.Draft202012Validator(json.loads(PUBLIC_SCHEMA.read_text()))


@pytest.mark.parametrize("sencores", [1, 7])
@pytest.mark.parametrize("name", SOME)
def test_fewer_cores_give_the_same_bits(name, sencores):
    """No reduction is divided, so how many cores there are changes no result, not by one bit."""
    check(name, sencores=sencores)
    program = compiled(name, sencores=sencores)
    assert all(design.cores <= sencores for design in program.bundle.designs.values())
    for few, many in zip(arrays(name, sencores=sencores), arrays(name), strict=True):
        assert few.tobytes() == many.tobytes()


@pytest.mark.parametrize("name", STRICT)
def test_strict_precision(name):
    """The types of the linalg are kept, fp32 where PyTorch computes in it: as good as PyTorch too."""
    check(name, precision="strict")


@pytest.mark.parametrize("name", DL16)
def test_bit_true_dl16(name):
    """DL16 has one bit less than fp16 and rounds the inputs too: four times the bound of fp16."""
    model, inputs, _ = imported(name)
    _within(arrays(name, numerics="dl16"), error_bound(model, inputs, FLOOR), 4)


def _within(results: Sequence[np.ndarray], bounds: list[tuple[torch.Tensor, float]], factor: float) -> None:
    for result, (reference, bound) in zip(results, bounds, strict=True):
        error = np.abs(result.astype(np.float64) - reference.numpy()).max()
        assert error <= factor * bound, f"off by {error:.3e}, more than {factor} * {bound:.3e}"
