# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The public names of the package: arguments of ``compile``, results of a program, and errors of both."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import spyre_mlir
from spyre_mlir import CompileError, Program
from spyre_mlir.bundle import read_arrays, read_bundle
from spyre_mlir.mlir import ir
from spyre_mlir.simulator import run

ADD = """func.func @main(%x: tensor<3x65xf16>, %y: tensor<3x65xf16>) -> tensor<3x65xf16> {
  %e = tensor.empty() : tensor<3x65xf16>
  %z = linalg.add ins(%x, %y : tensor<3x65xf16>, tensor<3x65xf16>) outs(%e : tensor<3x65xf16>) -> tensor<3x65xf16>
  return %z : tensor<3x65xf16>
}"""
#: A function of no operation, for types.
NOTHING = "func.func @main(%x: T) -> T {\n  return %x : T\n}"
X = np.arange(195, dtype=np.float16).reshape(3, 65)


def half(*shape: int) -> torch.Tensor:
    return torch.ones(shape).half()


@pytest.fixture(scope="module")
def add() -> Program:
    return spyre_mlir.compile(ADD)


@pytest.fixture(scope="module")
def linear() -> Program:
    torch.manual_seed(0)
    return spyre_mlir.compile(nn.Linear(64, 65).half(), (half(3, 64),), sencores=4)


# -- inputs of compile --------------------------------------------------------------------------------


def test_mlir_in_three_forms(tmp_path):
    """Text, a path (as a text and as a Path) and a module give one program; the module is not changed."""
    (tmp_path / "add.mlir").write_text(ADD)
    module = ir.Module.parse(ADD, ir.Context())
    before = str(module)
    for source in (ADD, tmp_path / "add.mlir", str(tmp_path / "add.mlir"), module):
        np.testing.assert_array_equal(spyre_mlir.compile(source)(X, X), 2 * X)
    assert str(module) == before


def test_modules_and_functions_give_what_they_give(linear):
    """Tensors in give tensors out, of the type of the model; results have its structure."""
    result = linear(half(3, 64))
    assert isinstance(result, torch.Tensor) and result.dtype == torch.float16 and result.shape == (3, 65)
    program = spyre_mlir.compile(
        lambda x, y: {"sum": x + y, "pair": (x, [y * 2, 3]), "none": None}, (half(5), half(5))
    )
    result = program(half(5), half(5) * 2)
    assert list(result) == ["sum", "pair", "none"] and result["none"] is None
    assert isinstance(result["pair"], tuple) and result["pair"][1][1] == 3
    assert result["sum"].tolist() == [3.0] * 5 and result["pair"][1][0].tolist() == [4.0] * 5


def test_exported_programs_and_nested_inputs():
    """An ExportedProgram needs no example inputs; dicts and tuples of tensors are inputs too."""
    exported = torch.export.export(nn.ReLU(), (half(3),))
    assert spyre_mlir.compile(exported)(-half(3)).tolist() == [0, 0, 0]
    program = spyre_mlir.compile(lambda p: p["a"] - p["b"][0], ({"a": half(4), "b": (half(4),)},))
    assert program({"a": half(4) * 3, "b": (half(4),)}).tolist() == [2.0] * 4


def test_mlir_with_several_results_gives_a_tuple():
    text = ADD.replace("-> tensor<3x65xf16> {", "-> (tensor<3x65xf16>, tensor<3x65xf16>) {")
    text = text.replace("return %z : ", "return %z, %x : tensor<3x65xf16>, ")
    first, second = spyre_mlir.compile(text)(X, X)
    np.testing.assert_array_equal(first, 2 * X)
    np.testing.assert_array_equal(second, X)


# -- properties of a program --------------------------------------------------------------------------


def test_sencores_is_32_unless_the_option_or_the_environment_says_so(monkeypatch):
    cores = lambda program: max(design.cores for design in program.bundle.designs.values())  # noqa: E731
    text = ADD.replace("3x65", "7680x64")
    assert cores(spyre_mlir.compile(text)) == 32
    assert cores(spyre_mlir.compile(text, sencores=5)) == 5
    monkeypatch.setenv("SENCORES", "3")
    assert cores(spyre_mlir.compile(text)) == 3
    assert cores(spyre_mlir.compile(text, sencores=6)) == 6


def test_traffic_is_what_the_run_moved(add):
    """Two operands of three rows of two sticks, the result as large; by operation and in all."""
    add(X, X)
    traffic = add.traffic()
    assert (traffic.read_bytes, traffic.written_bytes) == (2 * 3 * 2 * 128, 3 * 2 * 128)
    assert traffic.by_op == (("add", traffic.read_bytes, traffic.written_bytes),)


def test_traffic_adds_up():
    program = spyre_mlir.compile(lambda x: torch.softmax(x, -1), (half(65, 130),))
    program(half(65, 130))
    traffic = program.traffic()
    assert len(traffic.by_op) == len(program.bundle.manifest.uses) > 3
    assert traffic.read_bytes == sum(read for _, read, _ in traffic.by_op)
    assert traffic.written_bytes == sum(written for _, _, written in traffic.by_op)


def test_module_and_remarks(linear):
    """The module is the IR at the bundle level; a remark states a decision, its pass and its reason."""
    names = {op.operation.name for op in linear.module.body.operations[0].regions[0].blocks[0].operations}
    assert "sdscbundle.sdsc_execute" in names and not any(name.startswith("linalg") for name in names)
    assert {remark.pass_name for remark in linear.remarks} >= {"place-in-hbm"}
    assert all(remark.kind and remark.reason for remark in linear.remarks)


def test_summary_tells_the_facts(linear):
    """The summary is one page; after a run it has the simulated traffic, too."""
    linear(half(3, 64))
    summary = linear.summary()
    assert "1 batchmatmul" in summary
    assert f"{linear.traffic().read_bytes:,} bytes read, " in summary
    assert len(summary.splitlines()) < 40


def test_a_saved_program_runs_without_the_compiler(linear, tmp_path):
    """The folder holds the parameters; the simulator needs nothing else."""
    torch.manual_seed(1)
    x = torch.randn(3, 64).half()
    linear.save(tmp_path / "linear")
    bundle, arrays = read_bundle(tmp_path / "linear"), read_arrays(tmp_path / "linear")
    (name,) = (argument.name for argument in bundle.manifest.arguments if argument.kind == "input")
    (result,) = run(bundle, {**arrays, name: x.numpy()}).outputs.values()
    np.testing.assert_array_equal(result, linear(x).numpy())


def test_saving_twice_replaces(add, linear, tmp_path):
    """A bundle replaces a bundle; a folder with other things in it is left alone."""
    add.save(tmp_path / "out")
    linear.save(str(tmp_path / "out"))
    assert read_bundle(tmp_path / "out") == linear.bundle
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("keep")
    refused(lambda: add.save(tmp_path / "mine"), "left alone")


# -- refusals -----------------------------------------------------------------------------------------


def refused(action: Callable, words: str) -> CompileError:
    """Assert that the action raises a CompileError whose message is one sentence with these words."""
    with pytest.raises(CompileError) as raised:
        action()
    message = raised.value.message
    assert words in message and "\n" not in message and len(message) < 600
    return raised.value


CALLS = {
    "too few": ((X,), {}, "takes 2 inputs, not 1"),
    "too many": ((X, X, X), {}, "takes 2 inputs, not 3"),
    "by name": ((X,), {"y": X}, "by position"),
    "another shape": ((X, X[:2]), {}, "has shape [2, 65], but the argument has [3, 65]"),
    "another rank": ((X, X.reshape(-1)), {}, "has shape [195], but the argument has [3, 65]"),
    "another type": ((X, X.astype(np.float32)), {}, "is float32, but the argument is float16"),
    "a list": ((X, X.tolist()), {}, "is float64, but the argument is float16"),
    "a ragged list": ((X, [[1], [2, 3]]), {}, "is not an array"),
    "a text": ((X, "x"), {}, "but the argument is float16"),
    "nothing": ((X, None), {}, "is object, but the argument is float16"),
}


@pytest.mark.parametrize("case", CALLS)
def test_wrong_inputs_of_mlir(add, case):
    inputs, named, words = CALLS[case]
    refused(lambda: add(*inputs, **named), words)


MODEL_CALLS = {
    "too few": ((), {}, "takes 1 input, not 0"),
    "too many": ((half(3, 64), half(3, 64)), {}, "takes 1 input, not 2"),
    "another structure": (({"x": half(3, 64)},), {}, "inputs of the structure"),
    "another shape": ((half(4, 64),), {}, "has shape [4, 64], but the argument has [3, 64]"),
    "another type": ((torch.ones(3, 64),), {}, "is float32, but the argument is float16"),
    "no tensor": ((1,), {}, "must be a tensor, not an int"),
    "a tensor without numbers": ((half(3, 64).to("meta"),), {}, "is not an array: Cannot copy out of meta"),
    "a sparse tensor": ((half(3, 64).to_sparse(),), {}, "is not an array: can't convert Sparse"),
}


@pytest.mark.parametrize("case", MODEL_CALLS)
def test_wrong_inputs_of_a_model(linear, case):
    inputs, named, words = MODEL_CALLS[case]
    refused(lambda: linear(*inputs, **named), words)


def test_tensors_that_numpy_takes_in_another_form_alone(add, linear):
    """Tensors with a gradient, or with lazily negated numbers, for a module and for a model."""
    x = torch.from_numpy(X.copy())
    for same in (x.clone().requires_grad_(), nn.Parameter(x), torch._neg_view(-x)):
        np.testing.assert_array_equal(add(same, X), 2 * X)
    assert torch.equal(linear(torch._neg_view(-half(3, 64))), linear(half(3, 64)))


OPTIONS = {
    "unknown": ({"nonsense": 3}, "has no option 'nonsense'; its options: one_bundle, sencores, "),
    "no cores": ({"sencores": 0}, "the device has 1 to 32 cores"),
    "too many cores": ({"sencores": 33}, "the device has 1 to 32 cores"),
    "cores in words": ({"sencores": "two"}, "must be an integer, not 'two'"),
    "half a core": ({"sencores": 2.5}, "must be an integer, not '2.5'"),
    "another precision": ({"precision": "low"}, "must be one of device, strict, not 'low'"),
    "a flag in words": ({"verify_each": "maybe"}, "must be True or False"),
    "another target": ({"target": "ktri"}, "must be one of bundle, ktir, not 'ktri' (did you mean 'ktir'?)"),
    "another numerics": ({"numerics": "fp16"}, "must be one of ieee, dl16, not 'fp16'"),
    "a fallback in words": ({"fallback": "maybe"}, "must be True or False, not 'maybe'"),
    "a cache in a folder": ({"cache": "/tmp"}, "must be True or False, not '/tmp'"),
    "bundles by number": ({"one_bundle": 3}, "must be True or False, not '3'"),
    "layouts in a list": ({"layouts": [{"stick_dims": [0]}]}, "is a mapping from names"),
    "layouts by an array": ({"layouts": X}, "is a mapping from names"),
    "one pass": ({"passes": 3}, "takes passes by level"),
    "a plan at a number": ({"save_plan": 3}, "'save_plan' must be a text, not 3"),
    "a class for its name": ({"division": int}, "'division' must be a text, not <class 'int'>"),
    "no cost model": ({"cost_model": ""}, "There is no cost model ''"),
    "no tiling": ({"tiling": ""}, "There is no tiling ''"),
}


@pytest.mark.parametrize("case", OPTIONS)
def test_wrong_options(case):
    options, words = OPTIONS[case]
    refused(lambda: spyre_mlir.compile(ADD, **options), words)


def test_values_of_options_are_those_of_their_texts():
    """A list where a tuple is declared, and a word for a flag; a program without fallback refuses host operations."""
    assert spyre_mlir.compile(ADD, lx_ops=["add"], cache="false").is_one_bundle
    refused(
        lambda: spyre_mlir.compile(ADD.replace("f16", "f64"), fallback="false"), "not supported by the device"
    )


def test_a_program_of_a_folder_has_known_numerics(add, tmp_path):
    add.save(tmp_path / "add")
    refused(lambda: Program.load(tmp_path / "add", numerics="fp16"), "choose one of ieee, dl16")


PROGRAMS = {
    "not mlir": ("func.func @main( {", "expected"),
    "not even nearly": ("hello", "neither the text of a module"),
    "no file": ("/nonexistent/add.mlir", "/nonexistent/add.mlir"),
    "nothing": ("", "one function"),
    "an unknown dialect": ('"foo.bar"() : () -> ()', "unregistered dialect"),
    "a dynamic shape": (NOTHING.replace("T", "tensor<?x65xf16>"), "no static shape"),
    "no shape": (NOTHING.replace("T", "tensor<*xf16>"), "not a ranked tensor"),
    "no elements": (ADD.replace("3x65", "0x65"), "no elements"),
    "f64": (ADD.replace("f16", "f64"), "f64 is not supported by the device"),
    "i8": (ADD.replace("f16", "i8"), "does not support i8: only matmuls, casts and copies support it"),
    "complex": (ADD.replace("f16", "complex<f32>"), "complex<f32> is not supported by the device"),
    "a scalar": (NOTHING.replace("T", "f32"), "f32"),
    "a memref": (NOTHING.replace("T", "memref<3xf16>"), "memref<3xf16>"),
    "two functions": (ADD + ADD.replace("@main", "@other"), "one function"),
    "no model": (3, "not an int"),
}


@pytest.mark.parametrize("case", PROGRAMS)
def test_wrong_programs(case):
    source, words = PROGRAMS[case]
    refused(lambda: spyre_mlir.compile(source, fallback=False), words)


def test_an_error_in_mlir_has_its_place(tmp_path):
    """File, line and column of what cannot be compiled."""
    path = tmp_path / "bad.mlir"
    path.write_text(ADD.replace("linalg.add ins(%x, %y", "linalg.add ins(%x, %q"))
    error = refused(lambda: spyre_mlir.compile(path), "undeclared SSA value")
    assert error.location == f"{path}:3:27"


MODELS = {
    "no inputs": (nn.Linear(64, 65).half(), (), "cannot be called with these example inputs: missing"),
    "a bare tensor": (nn.Linear(64, 65).half(), half(3, 64), "are a tuple of tensors, or a mapping"),
    "a wrong shape": (
        nn.Linear(64, 65).half(),
        (half(3, 63),),
        "PyTorch cannot run this: a and b must have same reduction dim",
    ),
    "f64": (lambda x: x + 1, (torch.ones(3).double(),), "f64 is not supported by the device"),
    "a dynamic result": (torch.nonzero, (half(3),), "depends on values"),
    "a branch on data": (lambda x: x + 1 if x.sum() > 0 else x, (half(3),), "depends on the values"),
    "an operation without a form": (lambda x: torch.sort(x)[0], (half(3, 5),), "tm_tensor.sort"),
    "a model that raises": (lambda x: 1 / 0, (half(3),), "division by zero"),
}


@pytest.mark.parametrize("case", MODELS)
def test_wrong_models(case):
    model, inputs, words = MODELS[case]
    refused(lambda: spyre_mlir.compile(model, inputs, fallback=False), words)


def test_traffic_needs_a_run():
    refused(lambda: spyre_mlir.compile(ADD).traffic(), "has not run yet")


# -- determinism --------------------------------------------------------------------------------------

SAVE = """
import sys
from programs import PROGRAMS
import spyre_mlir
for name in ("llama_block_small", "sdpa_mask_bool", "cat_columns"):
    spyre_mlir.compile(*PROGRAMS[name]()).save(f"{sys.argv[1]}/{name}")
"""


def test_fresh_processes_write_the_same_bytes(tmp_path):
    """With any seed of Python's hashes, every file of a bundle has the same bytes."""
    here = Path(__file__).parent
    started = []
    for seed in ("0", "4242"):
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(here)}
        started.append(subprocess.Popen([sys.executable, "-c", SAVE, tmp_path / seed], env=environment))
    assert [process.wait() for process in started] == [0, 0]
    folders = [
        {path.relative_to(tmp_path / seed): path.read_bytes() for path in (tmp_path / seed).rglob("*.*")}
        for seed in ("0", "4242")
    ]
    assert len(folders[0]) > 20 and folders[0] == folders[1]
