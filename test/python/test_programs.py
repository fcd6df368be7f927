# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Every program end to end: PyTorch, the pipeline, the folder, the simulator, and the numbers.

Each program is imported once; modules and results are kept for the tests that follow.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from dataclasses import dataclass

import jsonschema
import numpy as np
import pytest
import torch
from cpu_reference import CpuReference
from foreign_data import SCHEMA
from programs import FLOOR, PROGRAMS, check_close, error_bound
from public_schema import public_schema

import spyre_mlir
from spyre_mlir.bundle import read_arrays, read_bundle
from spyre_mlir.bundle.model import Design
from spyre_mlir.bundle.validate import Finding, validate
from spyre_mlir.dialects import context
from spyre_mlir.frontend import Imported, import_torch
from spyre_mlir.frontend.importer import operations

NAMES = list(PROGRAMS)
MOST = 32
CORES = (1, 2, 4, 7)
#: Of these every second one for each program, so that all are used.
IN_TURN = [(name, cores) for number, name in enumerate(NAMES) for cores in CORES[number % 2 :: 2]]
UNEVEN = (
    "softmax_dim_0_63x65", "softmax_dim_last_63x65", "softmax_dim_1_of_3", "layernorm_odd", "rmsnorm", "gelu_mlp",
    "swiglu_mlp", "linear_bias", "llama_block_small", "sdpa_mask_bool", "sdpa_grouped", "matmul_67x71x256",
    "matmul_1x4096x11", "matmul_4d", "matmul_vector", "sum_0", "amax_0_2_of_3", "mean_all_of_3", "mul_outer",
    "transpose_3", "slice_odd", "cat_columns", "pad_value", "merge_heads", "repeat_interleave", "cast_float_sum",
)  # fmt: skip
SHARING = (
    "softmax_dim_0_512x1024", "softmax_dim_0_63x65", "softmax_dim_1_of_3", "log_softmax_dim_0", "layernorm", "rmsnorm",
    "llama_block_small", "sum_0", "sum_all", "sum_0_2_of_3", "mean_all_of_3", "sum_whole", "mean_whole", "std_dim_0",
)  # fmt: skip
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


def compiled(name: str, **options) -> spyre_mlir.Program:
    """Compile the linalg of a program, by default on all cores; the parameters of the model are its arrays."""
    _, inputs, program = imported(name)
    made = spyre_mlir.compile(program.module, **{"sencores": MOST, **options})
    operands = zip(program.arguments, program.operands(*inputs), strict=True)
    made.arrays.update({argument.name: array for argument, array in operands if argument.kind != "input"})
    return made


@functools.cache
def on_all_cores(name: str) -> spyre_mlir.Program:
    """The program that two tests take."""
    return compiled(name)


@dataclass(frozen=True)
class Run:
    """Findings of a program, and its results, as arrays."""

    findings: list[Finding]
    cores: int
    shares_sums: bool
    results: list[np.ndarray]


@functools.cache
def ran(name: str, **options) -> Run:
    """A program compiled, validated and run; its module is not kept, it is large."""
    _, inputs, imported_ = imported(name)
    program = compiled(name, **options) if options else on_all_cores(name)
    operands = zip(imported_.arguments, imported_.operands(*inputs), strict=True)
    results = program(*(array for argument, array in operands if argument.kind == "input"))
    designs = list(program.bundle.designs.values())
    return Run(
        validate(program.bundle),
        max((design.cores for design in designs), default=0),
        any(map(shares_sums, designs)),
        list(results) if isinstance(results, tuple) else [results],
    )


def shares_sums(design: Design) -> bool:
    """Return whether cores split a reduced dim, except for a maximum or minimum."""
    scale = design.operands[-1].scale
    lacking = [label for label in design.sizes if scale.get(label, -1) < 0]
    return not design.opcode.startswith(("max", "min")) and any(design.slices[each] > 1 for each in lacking)


def check(name: str, **options) -> None:
    """The bundle is valid, it uses only cores of the device, and the numbers equal PyTorch."""
    model, inputs, program = imported(name)
    run = ran(name, **options)
    assert not run.findings, "\n".join(map(str, run.findings))
    assert run.cores <= options.get("sencores", MOST)
    check_close(name, program.bind(*inputs).finish(run.results), model, inputs)


def check_same_bits(name: str, **options) -> None:
    """The bits equal a run on one core, unless cores share a sum, which may round differently."""
    run = ran(name, **options)
    for result, alone in zip(run.results, ran(name, sencores=1).results, strict=True):
        assert run.shares_sums or result.tobytes() == alone.tobytes()


#: Dialects of an imported program, and floors of the CPU, which rounds after every linalg op: a layer norm's mean,
#: difference, variance, root and product, each up to 5e-4. The device fuses some of them.
DIALECTS = {"arith", "builtin", "func", "linalg", "math", "tensor"}
CPU_FLOORS = {"layernorm_odd": 2e-3}


@pytest.mark.sampled(12)
@pytest.mark.parametrize("name", NAMES)
def test_the_linalg_equals_pytorch(name):
    """Only upstream dialects, static shapes, nothing in f64, and PyTorch's numbers on the CPU."""
    model, inputs, program = imported(name)
    for operation in operations(program.module.operation):
        assert operation.name.split(".")[0] in DIALECTS, operation.name
        for value in operation.results:
            assert "f64" not in str(value.type) and "?" not in str(value.type), str(operation)
    call = program.bind(*inputs)
    results = call.finish(CpuReference(program.module)(*call.operands()))
    check_close(name, results, model, inputs, CPU_FLOORS.get(name, FLOOR))


@pytest.mark.sampled(100)
@pytest.mark.parametrize("name", NAMES)
def test_equals_pytorch(name):
    """On all cores, within four times the error that PyTorch itself makes in fp16."""
    check(name)


@pytest.mark.parametrize("name", NAMES)
def test_the_folder_is_the_bundle(name, tmp_path):
    """Written and read back it is the same bundle, and every design fits the SuperDSC schema."""
    program = on_all_cores(name)
    program.save(tmp_path / "bundle")
    assert read_bundle(tmp_path / "bundle") == program.bundle
    held = read_arrays(tmp_path / "bundle")
    assert held.keys() == program.arrays.keys()
    for path in (tmp_path / "bundle").glob("sdsc_*.json") if SCHEMA.exists() else ():
        error = jsonschema.exceptions.best_match(public_schema().iter_errors(json.loads(path.read_text())))
        assert error is None, f"{path.name}: {error}"


@pytest.mark.sampled(16)
@pytest.mark.parametrize(("name", "sencores"), IN_TURN)
def test_fewer_cores_equal_pytorch(name, sencores):
    """The results on 1, 2, 4 and 7 cores equal PyTorch, without findings of the simulator."""
    check(name, sencores=sencores)


@pytest.mark.sampled(12)
@pytest.mark.parametrize("options", [*({"sencores": cores} for cores in CORES[1:]), {}], ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_any_number_of_cores_gives_the_bits_of_one(name, options):
    """Slices are computed like the whole."""
    check_same_bits(name, **options)


@pytest.mark.parametrize("sencores", [*CORES[1:], MOST])
@pytest.mark.parametrize("name", UNEVEN)
def test_uneven_slices_give_the_same_numbers(name, sencores):
    """A last slice that is smaller than the others changes nothing."""
    check(name, sencores=sencores, uneven_splits=True)
    check_same_bits(name, sencores=sencores, uneven_splits=True)


@pytest.mark.exhaustive
def test_few_programs_share_sums():
    """The comparison of bits therefore covers most programs."""
    names = NAMES[::8]
    assert len([name for name in names if ran(name).shares_sums]) < len(names) / 3


@pytest.mark.parametrize("name", SHARING)
def test_cores_share_sums(name):
    """Separate divisions, so that cores add up parts of sums; the eligibility for LX follows from them."""
    check(name, co_optimizing_lx_planning=False)
    assert ran(name, co_optimizing_lx_planning=False).shares_sums


@pytest.mark.parametrize("name", SHARING)
def test_in_device_memory_equals_pytorch(name):
    """Without planning of LX all values are in device memory."""
    check(name, lx_planning=False)


@pytest.mark.parametrize("name", STRICT)
def test_strict_precision(name):
    """The types of the linalg are kept, fp32 where PyTorch computes in it: as good as PyTorch too."""
    check(name, precision="strict")


@pytest.mark.parametrize("name", DL16)
@pytest.mark.filterwarnings("ignore::spyre_mlir.RangeWarning")
def test_bit_true_dl16(name):
    """DL16 has one bit less than fp16 and rounds the inputs too: four times the bound of fp16."""
    model, inputs, _ = imported(name)
    _within(ran(name, numerics="dl16").results, error_bound(model, inputs, FLOOR), 4)


def _within(results: Sequence[np.ndarray], bounds: list[tuple[torch.Tensor, float]], factor: float) -> None:
    for result, (reference, bound) in zip(results, bounds, strict=True):
        error = np.abs(result.astype(np.float64) - reference.numpy()).max()
        assert error <= factor * bound, f"off by {error:.3e}, more than {factor} * {bound:.3e}"
