"""Relayouts on the simulator: whole programs against numpy, random ones byte by byte against plain Python, errors."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace

import numpy as np
import pytest
from bundles import relayout_bundle
from relayouts import LX_BYTES, memories, moved, oracle, random_relayout
from simulator_programs import Program, change_buffer, change_design, change_operand, failure

from spyre_mlir.bundle.model import Bundle, Execute, Held
from spyre_mlir.bundle.validate import validate
from spyre_mlir.simulator import run

FP32, INT32 = "IEEE_FP32", "IEEE_INT32"
RNG = np.random.default_rng(29)
X = RNG.standard_normal((128, 256)).astype(np.float16)
ROWS, COLUMNS = ({"mb": core, "out": 0} for core in range(2)), ({"mb": 0, "out": core} for core in range(2))


def checked(program: Program, arrays: dict[str, np.ndarray]):
    """The run of a program that the validator has nothing against."""
    bundle = program.bundle()
    assert validate(bundle) == []
    return run(bundle, arrays)


def test_all_to_all():
    """Four cores hold rows and want columns: a quarter of what each wants is its own, the rest goes over the ring."""
    program = Program()
    program.tensor("x", {"mb": 64, "out": 256}, kind="input")
    program.tensor("e", {"mb": 64, "out": 256}, lx=0)
    program.tensor("t", {"mb": 64, "out": 256}, lx=8192)
    program.tensor("z", {"mb": 64, "out": 256}, kind="result")
    written = program.op("identity", "x", "e", splits={"mb": 4})
    program.relayout("e", "t", written, {"out": 4})
    program.op("identity", "t", "z", splits={"out": 4})
    result = checked(program, {"x": X[:64]})
    np.testing.assert_array_equal(result.outputs["z"], X[:64])
    statistics = result.statistics
    assert (statistics.read_bytes, statistics.relayout_bytes, statistics.write_bytes) == (32768, 24576, 32768)


def test_grouped_all_gather():
    """K of attention, produced by heads and keys, goes to all cores of its head: each gets the keys of seven others."""
    program, keys = Program(), {"x": 4, "mb": 64, "out": 128}
    program.tensor("k", keys, kind="input")
    program.tensor("s1", keys, lx=0)
    program.tensor("s2", keys, lx=4096)
    program.tensor("z", {"y": 8, **keys}, kind="result")
    written = program.op("identity", "k", "s1", splits={"x": 4, "mb": 8})
    gathered = program.relayout("s1", "s2", written, {"x": 4}, copies=8)
    assert (gathered.cores, program.lx_bytes) == (32, {"s1": 2048, "s2": 16384})
    program.op("identity", "s2", "z", splits={"x": 4, "y": 8})
    k = RNG.standard_normal((4, 64, 128)).astype(np.float16)
    result = checked(program, {"k": k})
    np.testing.assert_array_equal(result.outputs["z"], np.broadcast_to(k, (8, 4, 64, 128)))
    assert result.statistics.relayout_bytes == 32 * 7 * 2048


@pytest.mark.parametrize(("data_format", "dtype"), [("SEN169_FP16", np.float16), (FP32, np.float32), (INT32, np.int32)])
def test_last_slices_are_shorter(data_format, dtype):
    """Seven rows in two slices and five sticks in three: on each core the sticks lie as in a whole slice."""
    lanes = 128 // np.dtype(dtype).itemsize
    program, matrix = Program(), {"mb": 7, "out": 4 * lanes + 3}
    for name, more in (("x", {"kind": "input"}), ("e", {"lx": 0}), ("t", {"lx": 4096}), ("z", {"kind": "result"})):
        program.tensor(name, matrix, data_format=data_format, **more)
    written = program.op("identity", "x", "e", splits={"mb": 2})
    program.relayout("e", "t", written, {"out": 3})
    program.op("identity", "t", "z", splits={"out": 3})
    x = RNG.integers(-100, 100, (7, 4 * lanes + 3)).astype(dtype)
    np.testing.assert_array_equal(checked(program, {"x": x}).outputs["z"], x)


def sums(cores: tuple[int, ...] = (3, 7, 11, 15)) -> Program:
    """z = x.sum(1) for x of (16, 64, 64), the sums over 4 slices of rows, 4 of columns; ``cores`` are said to hold them."""
    program = Program()
    program.tensor("x", {"x": 16, "mb": 64, "out": 64}, kind="input")
    program.tensor("s", {"x": 16, "out": 64}, lx=0)
    program.tensor("t", {"x": 16, "out": 64}, lx=4096)
    program.tensor("z", {"x": 16, "out": 64}, kind="result")
    written = program.op("sumnonstick", "x", "s", splits={"mb": 4, "x": 4})
    program.relayout("s", "t", written, {"x": 16}, cores=cores)
    program.op("identity", "t", "z", splits={"x": 16})
    return program


INTEGERS = RNG.integers(-8, 8, (16, 64, 64)).astype(np.float16)


def test_sources_on_a_few_finishing_cores():
    """A sum that four cores share is on the last of them; from there it goes to all sixteen."""
    result = checked(sums(), {"x": INTEGERS})
    np.testing.assert_array_equal(result.outputs["z"], INTEGERS.sum(1))
    assert result.statistics.relayout_bytes == (16 - 4) * 128


def test_a_sparse_tensor():
    """One value per stick: the row sums of 8 cores, gathered by all of them."""
    program = Program()
    program.tensor("x", {"mb": 20, "out": 64}, kind="input")
    program.tensor("s", {"mb": 20}, lx=0)
    program.tensor("t", {"mb": 20}, lx=1024)
    program.tensor("z", {"x": 7, "mb": 20}, kind="result")
    written = program.op("max", "x", "s", splits={"mb": 7})
    program.relayout("s", "t", written, {"mb": 1}, copies=7)
    program.op("identity", "t", "z", splits={"x": 7})
    x = RNG.integers(-100, 100, (20, 64)).astype(np.float16)
    np.testing.assert_array_equal(checked(program, {"x": x}).outputs["z"], np.broadcast_to(x.max(1), (7, 20)))


@pytest.mark.parametrize("seed", range(60))
def test_random_relayouts_byte_by_byte(seed):
    """Bits, tags and bytes moved of random distributions, sizes, orders, formats, starts and poison in the padding."""
    design = random_relayout(random.Random(seed))
    space, before = memories(design, np.random.default_rng(seed))
    expected, bytes_moved = oracle(design, before)
    assert moved(design, space) == bytes_moved
    for core, (data, tags) in expected.items():
        np.testing.assert_array_equal(space.lx(core).data[:LX_BYTES], data)
        np.testing.assert_array_equal(space.lx(core).shadow[:LX_BYTES].view(np.uint16), tags)
