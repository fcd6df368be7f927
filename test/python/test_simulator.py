# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Whole programs on the simulator: numbers against numpy, and traffic against the plan."""

import numpy as np
import pytest
from bundles import add_bundle, loop_bundle, reduction_bundle
from simulator_programs import Program

from spyre_mlir.simulator import run

FP32, INT32 = "IEEE_FP32", "IEEE_INT32"
RNG = np.random.default_rng(11)


def half(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float16)


def close(found: np.ndarray, expected: np.ndarray, tolerance: float = 2e-3) -> None:
    np.testing.assert_allclose(found.astype(np.float64), expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("numerics", ["ieee", "dl16"])
def test_add_on_two_cores(numerics):
    x, y = half(128, 256), half(128, 256)
    result = run(add_bundle(), {"x": x, "y": y}, numerics)
    close(result.outputs["z"], x.astype(float) + y)
    assert result.outputs["z"].dtype == np.float16
    assert (result.statistics.read_bytes, result.statistics.write_bytes) == (2 << 16, 1 << 16)
    assert result.statistics.cores == 2


@pytest.mark.parametrize("numerics", ["ieee", "dl16"])
def test_a_masked_reduction_over_the_stick_from_lx(numerics):
    x = half(128, 200)
    result = run(reduction_bundle(), {"x": x}, numerics)
    close(result.outputs["s"], np.exp(x.astype(float)).sum(axis=1))
    assert result.statistics.lx_high_water_bytes == {0: 64 * 4 * 128, 1: 64 * 4 * 128}


def test_a_loop_of_tiles_with_addresses_by_affine_apply():
    x = half(1024, 256)
    result = run(loop_bundle(), {"x": x})
    close(result.outputs["z"], x + np.abs(x))
    assert result.statistics.opcodes == {"abs": 8, "add": 8}
    assert result.statistics.executes[1].read_bytes == 2 * x.nbytes


def softmax(rows: bool, splits: dict[str, int], lx: bool) -> Program:
    """Softmax of (512, 1024) along the rows (the stick) or the columns, with everything else in LX or HBM."""
    program, matrix = Program(), {"mb": 512, "out": 1024}
    vector = {"mb": 512} if rows else {"out": 1024}
    suffix = "" if rows else "nonstick"
    low, high = ({"lx": 0}, {"lx": 1 << 18}) if lx else ({}, {})
    program.tensor("x", matrix, kind="input")
    program.tensor("max", vector, **low)
    program.tensor("shifted", matrix, **high)
    program.tensor("e", matrix, **high)
    program.tensor("total", vector, **low)
    program.tensor("z", matrix, kind="result")
    for op, *names in (
        ("max" + suffix, "x", "max"),
        ("sub", "x", "max", "shifted"),
        ("exp", "shifted", "e"),
        ("sum" + suffix, "e", "total"),
        ("realdiv", "e", "total", "z"),
    ):
        program.op(op, *names, splits=splits)
    return program


@pytest.mark.parametrize("lx", [False, True])
@pytest.mark.parametrize(("rows", "splits"), [(True, {"mb": 32}), (True, {"mb": 5}), (False, {"out": 16})])
def test_softmax_on_many_cores_in_place_in_lx(rows, splits, lx):
    x = half(512, 1024)
    result = run(softmax(rows, splits, lx).bundle(), {"x": x})
    e = np.exp(x.astype(float))
    close(result.outputs["z"], e / e.sum(axis=1 if rows else 0, keepdims=True), 1e-3)
    if lx:
        assert result.statistics.read_bytes == 2 * x.nbytes
        assert result.statistics.write_bytes == x.nbytes


def matmul(splits: dict[str, int], **sizes: int) -> Program:
    program = Program()
    m, k, n = sizes["m"], sizes["k"], sizes["n"]
    batch = {"x": sizes["x"]} if "x" in sizes else {}
    program.tensor("a", {**batch, "mb": m, "in": k}, stick="in", kind="input")
    program.tensor("b", {**batch, "in": k, "out": n}, kind="input", rows={"in": -(-k // 64) * 64})
    program.tensor("c", {**batch, "mb": m, "out": n}, kind="result")
    masks = ("in",) if k % 64 else ()
    program.op("batchmatmul", "a", "b", "c", splits=splits, masks=masks)
    return program


@pytest.mark.parametrize(
    ("splits", "sizes"),
    [
        ({"mb": 2, "out": 2}, {"m": 65, "k": 128, "n": 200}),
        ({"in": 2, "mb": 3}, {"m": 65, "k": 128, "n": 64}),
        ({"x": 3}, {"x": 3, "m": 7, "k": 64, "n": 70}),
        ({"out": 2}, {"m": 5, "k": 70, "n": 128}),
    ],
    ids=["split M and N", "split K", "batch", "masked K"],
)
def test_matmul(splits, sizes):
    program = matmul(splits, **sizes)
    arrays = {name: half(*program.tensors[name].sizes.values()) for name in "ab"}
    result = run(program.bundle(), arrays)
    close(result.outputs["c"], np.matmul(arrays["a"].astype(float), arrays["b"].astype(float)), 1e-2)


def test_a_load_that_cores_share_counts_once():
    program = matmul({"mb": 4}, m=64, k=64, n=64)
    statistics = run(program.bundle(), {"a": half(64, 64), "b": half(64, 64)}).statistics
    assert statistics.read_bytes == 2 * 8192
    assert statistics.core_read_bytes == (1 + 4) * 8192


def test_a_split_contraction_is_written_once_by_the_last_core():
    program = matmul({"in": 2}, m=16, k=128, n=64)
    statistics = run(program.bundle(), {"a": half(16, 128), "b": half(128, 64)}).statistics
    assert statistics.write_bytes == 16 * 128


@pytest.mark.parametrize("value", [0.0, float("-inf")])
def test_a_mask_hides_padding_that_nobody_wrote(value):
    program = Program()
    program.tensor("x", {"mb": 10, "out": 70}, kind="input")
    program.tensor("e", {"mb": 10, "out": 70})
    program.tensor("s", {"mb": 10}, kind="result")
    program.op("neg", "x", "e")
    opcode = "sum" if value == 0 else "max"
    program.op(opcode, "e", "s", masks=("out",), mask_value=value)
    x = half(10, 70)
    expected = -x.astype(float).sum(axis=1) if value == 0 else -x.min(axis=1)
    close(run(program.bundle(), {"x": x}).outputs["s"], expected)


@pytest.mark.parametrize(("opcode", "fill"), [("sum", 0.0), ("max", float("-inf")), ("min", float("inf"))])
@pytest.mark.parametrize("numerics", ["ieee", "dl16"])
def test_padding_that_the_host_filled_with_the_neutral_value_may_be_read(opcode, fill, numerics):
    program = Program()
    program.tensor("x", {"mb": 10, "out": 70}, kind="input", fill=fill)
    program.tensor("s", {"mb": 10}, kind="result")
    program.op(opcode, "x", "s")
    x = half(10, 70)
    found = run(program.bundle(), {"x": x}, numerics).outputs["s"]
    close(found, getattr(x.astype(float), opcode)(axis=1), 1e-2)


def test_restickify_copies_bits():
    program = Program()
    program.tensor("x", {"mb": 128, "out": 64}, kind="input")
    program.tensor("z", {"mb": 128, "out": 64}, stick="mb", order=("out", "mb"), kind="result")
    program.op("ReStickifyOpHBM", "x", "z", splits={"mb": 2})
    bits = RNG.integers(0, 1 << 16, (128, 64), np.uint16)
    z = run(program.bundle(), {"x": bits.view(np.float16)}).outputs["z"]
    np.testing.assert_array_equal(z.view(np.uint16), bits)


def test_a_cast_and_integers():
    program = Program()
    program.tensor("x", {"mb": 6, "out": 100}, kind="input", data_format=FP32)
    program.tensor("y", {"mb": 6, "out": 100}, kind="input", data_format=INT32)
    program.tensor("i", {"mb": 6, "out": 100}, data_format=INT32)
    program.tensor("z", {"mb": 6, "out": 100}, kind="result", data_format=INT32)
    program.op("fp32toint32", "x", "i")
    program.op("muli32toi32", "i", "y", "z")
    x = (RNG.standard_normal((6, 100)) * 50).astype(np.float32)
    y = RNG.integers(-(2**20), 2**20, (6, 100), np.int32)
    result = run(program.bundle(), {"x": x, "y": y})
    np.testing.assert_array_equal(result.outputs["z"], np.trunc(x).astype(np.int32) * y)


def test_fp32_and_fp16_sticks_of_one_dim():
    program = Program()
    program.tensor("x", {"mb": 4, "out": 200}, kind="input")
    program.tensor("w", {"mb": 4, "out": 200}, data_format=FP32, rows={"out": 256})
    program.tensor("z", {"mb": 4, "out": 200}, kind="result")
    program.op("dl16tofp32", "x", "w", splits={"out": 4})
    program.op("fp32todl16", "w", "z", splits={"out": 4})
    x = half(4, 200)
    np.testing.assert_array_equal(run(program.bundle(), {"x": x}).outputs["z"], x)


def test_a_value_is_broadcast_from_lane_0_of_its_stick():
    program = Program()
    program.tensor("x", {"mb": 8, "out": 64}, kind="input")
    program.tensor("r", {"mb": 8}, kind="input")
    program.tensor("z", {"mb": 8, "out": 64}, kind="result")
    program.op("mul", "x", "r", "z", splits={"mb": 2})
    x, r = half(8, 64), half(8)
    close(run(program.bundle(), {"x": x, "r": r}).outputs["z"], x.astype(float) * r[:, None])


def test_inner_slices_of_one_tensor_are_no_conflict():
    program = Program()
    for name, kind in (("x", "input"), ("z", "result")):
        program.tensor(name, {"mb": 8, "out": 256}, order=("out", "mb"), kind=kind)
    program.op("abs", "x", "z", splits={"out": 4})
    x = half(8, 256)
    np.testing.assert_array_equal(run(program.bundle(), {"x": x}).outputs["z"], np.abs(x))
