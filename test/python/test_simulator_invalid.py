# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Bundles that do not make sense: designs, operands, manifests and programs that the simulator refuses."""

from dataclasses import replace

import numpy as np
import pytest
from bundle_edits import argument, transfer
from bundles import add_bundle
from simulator_programs import Program, change_design, change_manifest, change_operand, failure

from spyre_mlir.bundle.model import Add, Allocate, Buffer, Bundle, Constant, IndexConstant, Loop
from spyre_mlir.errors import CompileError
from spyre_mlir.simulator import run

MASK = Constant("mask", "SEN169_FP16", 0)
ADD = {"x": np.ones((128, 256), np.float16), "y": np.ones((128, 256), np.float16)}


def test_symbols_must_be_bound_once():
    bundle = change_operand(add_bundle(), 0, start=(-1, -99))
    error = failure(bundle, ADD)
    assert (error.kind, error.tensor) == ("symbol", "x")
    execute = bundle.statements[-1]
    twice = replace(execute, symbol_ids=(-1, -1, -3, -4, -5, -6))
    error = failure(replace(bundle, statements=(*bundle.statements[:-1], twice)), ADD)
    assert error.kind == "symbol" and "two addresses" in error.message
    short = replace(execute, symbol_ids=(-1,))
    error = failure(replace(bundle, statements=(*bundle.statements[:-1], short)), ADD)
    assert error.kind == "symbol" and "do not pair" in error.message


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"opcode": "fma"}, "not one of the device"),
        ({"opcode": "abs"}, "takes 1 input"),
        ({"opcode": "addi32toi32"}, "expected IEEE_INT32"),
        ({"opcode": "realdiv", "core_slices": ()}, "uses 0 cores"),
        ({"core_slices": ({"mb": 0, "out": 0},)}, "expected one for each of 1 cores"),
        ({"masks": {"out": (250, 10)}, "mask_constant": 0, "constants": (MASK,)}, "not inside [0, 256)"),
        ({"masks": {"out": (250, 6)}}, "expected the number of one of its constants"),
        ({"shares": {"mb": 64, "out": 100}}, "do not cover the 256 elements of out"),
        ({"shares": {"mb": 128, "out": 256}}, "do not cover the 128 elements of mb"),
    ],
)
def test_designs_that_cannot_run(changes, message):
    assert message in failure(change_design(add_bundle(), **changes), ADD).message


def test_a_missing_constant():
    program = Program()
    program.tensor("x", {"mb": 4, "out": 64}, kind="input")
    program.tensor("z", {"mb": 4, "out": 64}, kind="result")
    program.op("clip", "x", "z", constants={"clipMin": 0.0})
    assert "'clipMax'" in failure(program.bundle(), {"x": np.ones((4, 64), np.float16)}).message


def test_inputs_have_one_format():
    bundle = change_operand(add_bundle(), 1, data_format="IEEE_FP32", stick_elements=32)
    assert "the format IEEE_FP32; expected SEN169_FP16" in failure(bundle, ADD).message


def test_an_elementwise_operation_cannot_lose_a_dim():
    bundle = change_operand(add_bundle(), 2, scale={"mb": 1, "out": -2})
    assert "it has 1 reduced dim [out]; expected none" in failure(bundle, ADD).message


def test_the_result_format_follows_from_the_operation():
    bundle = change_operand(add_bundle(), 2, data_format="IEEE_FP32", stick_elements=32)
    assert "the format IEEE_FP32; expected SEN169_FP16" in failure(bundle, ADD).message


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"stick_elements": 32}, "expected 64"),
        ({"dim_order": ("mb", "out", "x")}, "N_ does not declare"),
        ({"dim_order": ("mb",)}, "not one of its dims"),
        ({"scale": {"mb": 1, "out": -1}}, "expected 1 or -2"),
        ({"gap": {"mb": -1}}, "a gap is not negative"),
        ({"gap": {"out": 10}}, "expected whole sticks"),
        ({"memory": "lx", "start": (0, 0)}, "its buffer is in hbm"),
        ({"data_format": "FP17"}, "expected SEN169_FP16"),
    ],
)
def test_operands_that_cannot_be_placed(changes, message):
    error = failure(change_operand(add_bundle(), 1, **changes), ADD)
    assert message in error.message and error.tensor == "y"


def test_a_contracted_dim_must_be_in_both_inputs():
    program = Program()
    program.tensor("a", {"mb": 8, "in": 64}, stick="in", kind="input")
    program.tensor("b", {"out": 64}, kind="input")
    program.tensor("c", {"mb": 8, "out": 64}, kind="result")
    program.op("batchmatmul", "a", "b", "c")
    arrays = {"a": np.ones((8, 64), np.float16), "b": np.ones(64, np.float16)}
    assert "it has no contracted dim; expected at least 1" in failure(program.bundle(), arrays).message


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"uses": ()}, "names 0 buffers"),
        ({"uses": (("x", "y", "w"),)}, "does not describe this buffer"),
        ({"buffers": (Buffer("x", "nowhere", 0, 128),)}, "not a parameter or an allocation"),
        ({"buffers": (Buffer("x", "arg0", 0, 128),) * 2}, "described twice"),
    ],
)
def test_manifests_that_do_not_fit(changes, message):
    assert message in failure(change_manifest(add_bundle(), **changes), ADD).message


def loop(lower: int, upper: int, step: int, *body) -> Bundle:
    bundle = add_bundle()
    values = (IndexConstant("l", lower), IndexConstant("u", upper), IndexConstant("s", step))
    return replace(bundle, statements=(*bundle.statements, *values, Loop("i", "l", "u", "s", body)))


@pytest.mark.parametrize(
    ("bundle", "message"),
    [
        (loop(0, 4, 0), "the step"),
        (loop(0, 65536, 1), "65535 are possible"),
        (loop(0, 1, 1, Allocate("p", 128)), "entry block"),
        (loop(0, 1, 1, Add("p", "i", "q")), "'%q' is used before"),
        (
            replace(change_manifest(add_bundle(), buffers=()), parameters=()),
            "is not a parameter of the bundle",
        ),
        (replace(add_bundle(), designs={}), "no file 'sdsc_0.json'"),
        (replace(add_bundle(), statements=(Allocate("p", 2**34),)), "exceed"),
    ],
)
def test_programs_that_cannot_run(bundle, message):
    assert message in failure(bundle, ADD).message


def test_a_mask_value_is_a_constant_of_the_design():
    mask = {"masks": {"out": (200, 56)}, "mask_constant": 0}
    constants = (Constant("mask", "SEN169_FP16", 1 << 16),)
    with pytest.raises(CompileError, match="are not a value of the format"):
        run(change_design(add_bundle(), constants=constants, **mask), ADD)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"data_format": "FP17"}, "its data format 'FP17' is unknown"),
        ({"host_dtype": "zzz"}, "its type on the host, 'zzz', is unknown"),
        ({"host_dtype": "O"}, "its type on the host, 'O', is unknown"),
        ({"host_shape": (-1, 256)}, "a size is negative"),
    ],
)
def test_arguments_that_cannot_be_moved(changes, message):
    """The error is also raised for a result, before the run."""
    for number in (0, 2):
        assert message in failure(argument(add_bundle(), number, **changes), ADD).message


@pytest.mark.parametrize(
    "changes", [{"ranges": (4, 128)}, {"bounds": (((7,), (1,), 3),)}, {"bounds": (((0,), (0,), 3),)}]
)
def test_transfers_whose_loops_do_not_fit(changes):
    assert "two strides for each loop" in failure(transfer(add_bundle(), 2, **changes), ADD).message
