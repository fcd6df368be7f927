# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Relayouts on the simulator: whole programs against numpy, random ones byte by byte against plain Python, errors."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
from bundles import relayout_bundle
from relayouts import LX_BYTES, memories, moved, oracle, random_relayout
from simulator_programs import Program, change_buffer, change_design, change_operand, failure

from spyre_mlir.bundle.model import Bundle, HeldSlices
from spyre_mlir.bundle.validate import validate
from spyre_mlir.simulator import run

FP32, INT32 = "IEEE_FP32", "IEEE_INT32"
RNG = np.random.default_rng(29)
X = RNG.standard_normal((128, 256)).astype(np.float16)
ROWS = tuple({"mb": core, "out": 0} for core in range(2))


def checked(program: Program, arrays: dict[str, np.ndarray]):
    """The run of a program that the validator has nothing against."""
    bundle = program.bundle()
    assert validate(bundle) == []
    return run(bundle, arrays)


def test_all_to_all():
    """Four cores have rows and need columns: a quarter of each is on its own core, the rest is sent over the ring."""
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
    """K of attention, produced by heads and keys, is sent to all cores of its head: each receives seven slices."""
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


@pytest.mark.parametrize(
    ("data_format", "dtype"), [("SEN169_FP16", np.float16), (FP32, np.float32), (INT32, np.int32)]
)
def test_last_slices_are_shorter(data_format, dtype):
    """Seven rows in two slices and five sticks in three: on each core the sticks lie as in a whole slice."""
    lanes = 128 // np.dtype(dtype).itemsize
    program, matrix = Program(), {"mb": 7, "out": 4 * lanes + 3}
    for name, more in (
        ("x", {"kind": "input"}),
        ("e", {"lx": 0}),
        ("t", {"lx": 4096}),
        ("z", {"kind": "result"}),
    ):
        program.tensor(name, matrix, data_format=data_format, **more)
    written = program.op("identity", "x", "e", splits={"mb": 2})
    program.relayout("e", "t", written, {"out": 3})
    program.op("identity", "t", "z", splits={"out": 3})
    x = RNG.integers(-100, 100, (7, 4 * lanes + 3)).astype(dtype)
    np.testing.assert_array_equal(checked(program, {"x": x}).outputs["z"], x)


def sums(cores: tuple[int, ...] = (12, 13, 14, 15)) -> Program:
    """z = x.sum(1) for x of (16, 64, 64): cores 12 to 15 finish the sums of four slices each; ``cores`` hold them."""
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
    """The last of four cores has a shared sum, which is sent to all sixteen."""
    result = checked(sums(), {"x": INTEGERS})
    np.testing.assert_array_equal(result.outputs["z"], INTEGERS.sum(1))
    assert result.statistics.relayout_bytes == 15 * 128  # the last sum is on its target core


def test_a_sparse_tensor():
    """One value per stick: the row sums of 8 cores, gathered by all cores."""
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


# Errors of a relayout; the simulator runs the bundles unchanged, even if the validator would refuse them.


def held(*core_slices: dict[str, int] | None, slices: dict[str, int] | None = None, **changes) -> Bundle:
    """The relayout of ``bundles``, of rows to columns on two cores, with another source."""
    own = HeldSlices(slices or {"mb": 2, "out": 1}, core_slices)
    return change_operand(relayout_bundle(), 0, "sdsc_1.json", held=own, **changes)


def test_a_part_that_nobody_wrote():
    """exp runs on core 0 only. The error is at the source: the first element that core 0 reads of core 1."""
    bundle = relayout_bundle()
    source, result = bundle.designs["sdsc_0.json"].operands
    bundle = change_design(
        bundle,
        sizes={"mb": 64, "out": 256},
        slices={"mb": 1, "out": 1},
        core_slices=ROWS[:1],
        operands=(replace(source, start=(-1,), gap={"mb": 64}), replace(result, start=(0,))),
    )
    error = failure(bundle, {"x": X})
    assert (error.kind, error.tensor, error.core, error.address) == ("uninitialised", "e", 1, 0)
    assert "its element mb 64, out 0 is read but was never written." in error.message
    rules = [(each.rule, each.message) for each in validate(bundle)]
    text = "Core 1 reads Tensor0 (buffer e) at byte 0 of lx, which nothing wrote before."
    assert rules == [("uninitialised-read", text)]


def test_a_part_that_was_overwritten():
    """Two buffers at one address: the relayout reads bytes of core 0 that were written through the other buffer."""
    program = Program()
    program.tensor("x", {"mb": 128, "out": 256}, kind="input")
    for name, address in (("e", 0), ("other", 0), ("t", 65536)):
        program.tensor(name, {"mb": 128, "out": 256}, lx=address)
    written = program.op("identity", "x", "e", splits={"mb": 2})
    program.op("identity", "x", "other", splits={"mb": 2})
    program.relayout("e", "t", written, {"out": 2})
    error = failure(program.bundle(), {"x": X})
    assert (error.kind, error.tensor, error.core, error.address) == ("stale", "e", 0, 0)
    assert (
        "its element mb 0, out 0 is read after its bytes were overwritten through buffer 'other'"
        in error.message
    )


def test_a_part_of_a_sum_is_no_source():
    """Cores 0 to 3 added up the first quarter of the rows only."""
    error = failure(sums(cores=(0, 1, 2, 3)).bundle(), {"x": INTEGERS})
    assert (error.kind, error.tensor, error.core) == ("uninitialised", "s", 0)
    assert (
        "its element x 0, out 0 is read but was never written (an earlier operation left a part"
        in error.message
    )


def test_a_split_sum_is_in_the_lx_of_the_finishing_core_only():
    """An operation on the same cores reads the result from LX: the first core does not have it."""
    program = Program()
    program.tensor("x", {"mb": 64, "out": 64}, kind="input")
    program.tensor("s", {"out": 64}, lx=0)
    program.tensor("z", {"mb": 4, "out": 64}, kind="result")
    program.op("sumnonstick", "x", "s", splits={"mb": 4})
    program.op("identity", "s", "z", splits={"mb": 4})
    error = failure(program.bundle(), {"x": INTEGERS[0]})
    assert (error.kind, error.tensor, error.core, error.address) == ("uninitialised", "s", 0, 0)
    rules = [(each.rule, each.message) for each in validate(program.bundle())]
    text = "Core 0 reads Tensor0 (buffer s) at byte 0 of lx, where a split reduction left parts of sums."
    assert rules == [("uninitialised-read", text)]


def test_cores_that_do_not_finish_a_sum_need_its_place_too():
    """Core 0 has 4 of 7 rows and the finishing core 3; the sum has the address of the last row of core 0."""
    program = Program()
    program.tensor("x", {"mb": 7, "out": 64}, kind="input")
    program.tensor("e", {"mb": 7, "out": 64}, lx=0)
    program.tensor("s", {"out": 64}, lx=384)
    program.op("identity", "x", "e", splits={"mb": 2})
    program.op("sumnonstick", "e", "s", splits={"mb": 2})
    error = failure(program.bundle(), {"x": X[:7, :64]})
    assert (error.kind, error.tensor, error.core, error.address) == ("overlap", "e", 0, 384)


def test_poison_stays_poison():
    """A sum may not read the padding slots of exp, after the relayout either."""
    program = Program()
    program.tensor("x", {"mb": 64, "out": 200}, kind="input")
    program.tensor("e", {"mb": 64, "out": 200}, lx=0)
    program.tensor("t", {"mb": 64, "out": 200}, lx=65536)
    program.tensor("s", {"mb": 64}, kind="result")
    written = program.op("exp", "x", "e", splits={"out": 4})
    program.relayout("e", "t", written, {"mb": 4})
    program.op("sum", "t", "s", splits={"mb": 4})
    error = failure(program.bundle(), {"x": X[:64, :200]})
    assert (error.kind, error.tensor) == ("padding", "t")
    assert "its element mb 0, out 200 is undefined padding" in error.message


def test_the_wanted_part_is_held_by_no_core():
    error = failure(held(ROWS[0], None), {"x": X})
    assert (error.kind, error.tensor, error.core) == ("not-held", "t", 0)
    assert "its element mb 64, out 0 is not in the LX of any core." in error.message


def test_no_core_holds_anything():
    assert failure(held(None, None), {"x": X}).kind == "not-held"


def test_source_and_result_overlap():
    """The last stick of the source overlaps; it is an error even if a core has read everything before."""
    bundle = change_operand(relayout_bundle(), 1, "sdsc_1.json", start=(32640, 32640))
    bundle = change_buffer(bundle, "t", offset=32640)
    error = failure(bundle, {"x": X})
    assert (error.kind, error.tensor, error.core) == ("overlap", "e", 0)
    assert "it overlaps the output 't'; expected source and result to be disjoint." in error.message


def test_the_source_is_larger_than_its_buffer():
    error = failure(held(ROWS[0], ROWS[0], slices={"mb": 1, "out": 1}), {"x": X})
    assert (error.kind, error.tensor) == ("out-of-bounds", "e")


BROKEN = {
    "a source without slices of its own": (
        change_operand(relayout_bundle(), 0, "sdsc_1.json", held=None),
        "Tensor0 does not say what each core holds of it; expected slices of its own.",
    ),
    "a result without slices of its own": (
        change_operand(relayout_bundle(), 1, "sdsc_1.json", held=None),
        "Tensor1 does not say what each core holds of it; expected slices of its own.",
    ),
    "slices of its own in another operation": (
        change_operand(relayout_bundle(), 0, "sdsc_2.json", held=HeldSlices({"mb": 1, "out": 2}, ROWS)),
        "Tensor0 has slices of its own; expected them only of the operands of a relayout.",
    ),
    "another number of cores": (
        held(*ROWS, None),
        "Tensor0 has the slices of 3 cores; expected the slices of 2.",
    ),
    "a slice that there is not": (
        held(ROWS[0], {"mb": 2, "out": 0}),
        "Tensor0 has on core 1 the slice 2 of mb; expected 0 to 1.",
    ),
    "no slices of a dim": (
        held(*ROWS, slices={"mb": 0, "out": 1}),
        "Tensor0 has 0 slices of a dim; expected at least 1.",
    ),
    "through HBM": (
        held(*ROWS, memory="hbm", start=(-1, -2)),
        "Tensor0 is in hbm; expected the source and the result of a relayout in lx.",
    ),
    "other dims": (
        held({"out": 0}, None, slices={"out": 1}, scale={"mb": -1, "out": 1}),
        "The output has the dim mb but the input does not.",
    ),
    "masks": (
        change_design(relayout_bundle(), "sdsc_1.json", masks={"out": (200, 56)}),
        "a relayout moves the bits as they are.",
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_design_that_is_no_relayout(case):
    bundle, text = BROKEN[case]
    error = failure(bundle, {"x": X})
    assert error.kind == "design" and text in error.message, error.message
