# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Every misuse that the simulator must see, each in a good bundle with one thing broken."""

from dataclasses import replace

import numpy as np
import pytest
from bundles import add_bundle, loop_bundle, reduction_bundle
from simulator_programs import (
    FP16,
    Program,
    change_buffer,
    change_constant,
    change_design,
    change_manifest,
    change_operand,
    failure,
)

from spyre_mlir.bundle.model import Add, Buffer, Bundle, Constant, Execute
from spyre_mlir.simulator import run

X, Y = np.ones((128, 256), np.float16), np.ones((128, 256), np.float16)
ADD = {"x": X, "y": Y}
NARROW = {"x": np.ones((128, 200), np.float16)}
TALL = {"x": np.ones((1024, 256), np.float16)}


def without_execute(bundle: Bundle, index: int) -> Bundle:
    executes = [s for s in bundle.statements if isinstance(s, Execute)]
    statements = tuple(s for s in bundle.statements if s is not executes[index])
    uses = tuple(use for k, use in enumerate(bundle.manifest.uses) if k != index)
    return change_manifest(replace(bundle, statements=statements), uses=uses)


def test_an_error_names_operation_tensor_core_address_and_source():
    error = failure(change_constant(add_bundle(), "y_offset", 128 * 256 * 2), ADD)
    assert (error.kind, error.filename, error.tensor, error.core) == ("out-of-bounds", "sdsc_0.json", "y", 1)
    start = f"model.py:12:5: error: sdsc_0.json (add), tensor 'y', core 1, address {error.address:#x}: "
    assert str(error).startswith(start)


# Bytes that were not written, or not by this tensor.


def test_reading_what_was_never_written():
    error = failure(without_execute(reduction_bundle(), 0), NARROW)
    assert (error.kind, error.tensor, error.core, error.address) == ("uninitialised", "e", 0, 0)


def test_two_cores_that_write_one_part_of_the_pool():
    error = failure(change_constant(loop_bundle(), "a_offset", 0), TALL)
    assert error.kind == "write-conflict"


def test_unmasked_padding_reaches_a_sum():
    bundle = change_design(reduction_bundle(), "sdsc_1.json", masks={})
    error = failure(bundle, NARROW)
    assert (error.kind, error.tensor) == ("padding", "e")
    # Lane 8 of the fourth stick of row 0; the 64 rows of a core lie between two sticks.
    assert error.address == 3 * 64 * 128 + 8 * 2
    assert "element mb 0, out 200" in error.message


def test_a_mask_that_is_too_short():
    error = failure(change_design(reduction_bundle(), "sdsc_1.json", masks={"out": (200, 55)}), NARROW)
    assert error.kind == "padding" and "out 255" in error.message


def test_padding_rows_that_reach_a_contraction():
    program = Program()
    program.tensor("a", {"mb": 8, "in": 70}, stick="in", kind="input")
    program.tensor("b", {"in": 70, "out": 64}, kind="input", rows={"in": 128})
    program.tensor("w", {"in": 70, "out": 64}, rows={"in": 128})
    program.tensor("c", {"mb": 8, "out": 64}, kind="result")
    program.op("abs", "b", "w")
    program.op("batchmatmul", "a", "w", "c")
    error = failure(program.bundle(), {"a": np.ones((8, 70), np.float16), "b": np.ones((70, 64), np.float16)})
    assert (error.kind, error.tensor) == ("padding", "w")


def reduced_input(opcode: str, **fields) -> Program:
    """s = opcode(x, dim=1) for x of (4, 70), which the host lays out; lanes 70 to 127 are padding."""
    program = Program()
    program.tensor("x", {"mb": 4, "out": 70}, kind="input", **fields)
    program.tensor("s", {"mb": 4}, kind="result")
    program.op(opcode, "x", "s")
    return program


@pytest.mark.parametrize(("opcode", "fill"), [("sum", 2.0), ("max", 0.0), ("sum", float("nan"))])
def test_padding_that_the_host_filled_with_another_value_than_the_neutral_one(opcode, fill):
    error = failure(reduced_input(opcode, fill=fill).bundle(), {"x": np.ones((4, 70), np.float16)})
    assert (error.kind, error.tensor) == ("padding", "x")
    assert f"its element mb 0, out 70 is padding of dim 'out' and reads as {fill}" in error.message


def test_padding_that_the_host_does_not_fill():
    error = failure(reduced_input("sum", fill=None).bundle(), {"x": np.ones((4, 70), np.float16)})
    assert (error.kind, error.tensor) == ("padding", "x")
    assert "element mb 0, out 70 is undefined padding" in error.message


def test_a_mask_with_another_value_than_the_neutral_one():
    bundle, mask = reduced_input("max").bundle(), Constant("mask", FP16, 0)
    bundle = change_design(bundle, masks={"out": (70, 58)}, mask_constant=0, constants=(mask,))
    error = failure(bundle, {"x": np.ones((4, 70), np.float16)})
    assert error.kind == "padding" and "reads as 0.0, but 'max' needs -inf there" in error.message


def test_padding_left_by_an_operation_is_undefined_for_the_next():
    program = Program()
    program.tensor("x", {"mb": 4, "out": 70}, kind="input")
    program.tensor("t", {"mb": 4, "out": 70})
    program.tensor("z", {"mb": 4, "out": 128}, kind="result")
    program.op("abs", "x", "t")
    program.op("abs", "t", "z")
    design = program.designs["sdsc_1.json"]
    program.designs["sdsc_1.json"] = replace(design, padding={})
    error = failure(program.bundle(), {"x": np.ones((4, 70), np.float16)})
    assert error.kind == "uninitialised" and "left padding there" in error.message


def lx_program(second_address: int) -> Program:
    """x -> t (LX 0), u (LX at second_address); z = t + u."""
    program = Program()
    for name, fields in (
        ("x", {"kind": "input"}),
        ("t", {"lx": 0}),
        ("u", {"lx": second_address}),
        ("z", {"kind": "result"}),
    ):
        program.tensor(name, {"mb": 64, "out": 64}, **fields)
    program.op("abs", "x", "t", splits={"mb": 2})
    program.op("neg", "x", "u", splits={"mb": 2})
    program.op("add", "t", "u", "z", splits={"mb": 2})
    return program


def test_lx_buffers_that_overlap_in_time_and_place():
    arrays = {"x": np.ones((64, 64), np.float16)}
    assert run(lx_program(4096).bundle(), arrays).outputs["z"].sum() == 0
    error = failure(lx_program(4096 - 128).bundle(), arrays)
    assert (error.kind, error.tensor, error.core, error.address) == ("stale", "t", 0, 4096 - 128)
    assert "overwritten through buffer 'u'" in error.message


def test_pool_memory_that_was_given_away_too_early():
    program = Program()
    for name, fields in (("x", {"kind": "input"}), ("t", {}), ("z", {"kind": "result"})):
        program.tensor(name, {"mb": 64, "out": 64}, **fields)
    program.op("abs", "x", "t")
    program.op("neg", "x", "t")
    program.op("add", "t", "t", "z")
    bundle = program.bundle()
    bundle = change_manifest(
        bundle,
        buffers=(*bundle.manifest.buffers, Buffer("u", "t_base", 0, 8192)),
        uses=(("x", "t"), ("x", "u"), ("t", "u", "z")),
    )
    assert failure(bundle, {"x": np.ones((64, 64), np.float16)}).kind == "stale"


def test_a_result_that_is_not_written_whole():
    bundle = loop_bundle()
    shorter = change_constant(bundle, "tiles", 7)
    error = failure(shorter, TALL)
    assert (error.kind, error.tensor) == ("unwritten-result", "z")
    assert f"{128 * 256} elements" in error.message


# Addresses outside of the allocations.


def test_a_buffer_outside_its_allocation():
    error = failure(change_buffer(add_bundle(), "y", offset=128), ADD)
    assert (error.kind, error.tensor) == ("out-of-bounds", "y")


def test_writing_beyond_the_buffer():
    error = failure(change_buffer(add_bundle(), "z", bytes=128 * 256 * 2 - 128), ADD)
    assert (error.kind, error.tensor, error.core) == ("out-of-bounds", "z", 1)


def test_a_wrong_gap_leads_outside():
    assert failure(change_operand(add_bundle(), 0, gap={"mb": 1}), ADD).kind == "out-of-bounds"


def test_an_address_between_two_sticks():
    error = failure(change_constant(add_bundle(), "x_offset", 8192 - 64), ADD)
    assert (error.kind, error.core) == ("alignment", 1)


@pytest.mark.parametrize(
    ("changes", "kind"), [({"offset": 64}, "alignment"), ({"offset": 1625344 - 128}, "lx-capacity")]
)
def test_an_lx_buffer_at_a_bad_address(changes, kind):
    error = failure(change_buffer(reduction_bundle(), "e", **changes), NARROW)
    assert (error.kind, error.tensor) == (kind, "e")


def test_the_backend_fraction_moves_the_end_of_lx():
    bundle = change_operand(change_operand(reduction_bundle(), 1, start=(1703936,) * 2), 0, "sdsc_1.json",
                            start=(1703936,) * 2)  # fmt: skip
    bundle = change_buffer(bundle, "e", offset=1703936)
    assert failure(bundle, NARROW).kind == "lx-capacity"
    run(bundle, NARROW, lx_backend_fraction=0.0)


def test_lx_beyond_its_buffer_and_its_end():
    bundle = change_operand(reduction_bundle(), 1, start=(128, 128))
    assert failure(bundle, NARROW).kind == "out-of-bounds"
    bundle = change_operand(reduction_bundle(), 1, start=(1625344 - 128,) * 2)
    assert failure(bundle, NARROW).kind == "lx-capacity"


def test_a_span_that_a_core_cannot_address():
    program = Program()
    program.tensor("x", {"mb": 2, "out": 128}, kind="input")
    # Two columns of sticks, 256 MiB apart.
    program.tensor("z", {"mb": 2, "out": 128}, kind="result", rows={"mb": 2**21})
    program.op("abs", "x", "z")
    error = failure(program.bundle(), {"x": np.ones((2, 128), np.float16)})
    assert (error.kind, error.tensor) == ("span", "z")


# Cores that get in each other's way.


def test_two_cores_that_write_one_address():
    error = failure(change_constant(add_bundle(), "z_offset", 0), ADD)
    assert (error.kind, error.tensor, error.core) == ("write-conflict", "z", 1)


def test_two_cores_on_the_same_part_of_a_split_sum():
    program = Program()
    program.tensor("x", {"mb": 2, "out": 128}, kind="input")
    program.tensor("s", {"mb": 2}, kind="result")
    program.op("sum", "x", "s", splits={"out": 2})
    bundle = change_design(program.bundle(), core_slices=({"mb": 0, "out": 1},) * 2)
    error = failure(bundle, {"x": np.ones((2, 128), np.float16)})
    assert error.kind == "design" and "The cores 0 and 1 have the same slices" in error.message


def in_place(read_offset: int, write_offset: int) -> Bundle:
    """z = abs(x) in the memory of x, the second core reading and writing at the given offsets."""
    program = Program()
    program.tensor("x", {"mb": 16, "out": 64}, kind="input")
    program.tensor("z", {"mb": 16, "out": 64}, kind="result")
    program.op("abs", "x", "z", splits={"mb": 2})
    bundle = program.bundle()
    z = replace(bundle.manifest.arguments[1], parameter="arg_x")
    bundle = change_manifest(bundle, arguments=(bundle.manifest.arguments[0], z))
    statements = tuple(replace(s, lhs="x_base") if isinstance(s, Add) else s for s in bundle.statements)
    bundle = change_buffer(replace(bundle, statements=statements), "z", base="arg_x")
    return change_constant(change_constant(bundle, "o2", read_offset), "o4", write_offset)


def test_an_elementwise_operation_may_work_in_place():
    x = -np.ones((16, 64), np.float16)
    np.testing.assert_array_equal(run(in_place(1024, 1024), {"x": x}).outputs["z"], -x)


def test_a_core_reads_what_another_core_writes():
    error = failure(in_place(0, 1024), {"x": np.ones((16, 64), np.float16)})
    assert (error.kind, error.tensor, error.core) == ("race", "x", 1)


def lx_sum(address: int) -> Program:
    """The sum over the columns of a matrix in LX, its result at an address."""
    program = Program()
    program.tensor("x", {"mb": 16, "out": 64}, kind="input")
    program.tensor("t", {"mb": 16, "out": 64}, lx=0)
    program.tensor("s", {"out": 64}, lx=address)
    program.tensor("z", {"out": 64}, kind="result")
    program.op("abs", "x", "t")
    program.op("sumnonstick", "t", "s")
    program.op("identity", "s", "z")
    return program


def test_a_reduction_cannot_work_in_place():
    x = np.ones((16, 64), np.float16)
    assert (run(lx_sum(2048).bundle(), {"x": x}).outputs["z"] == 16).all()
    error = failure(lx_sum(0).bundle(), {"x": x})
    assert (error.kind, error.tensor, error.core, error.address) == ("overlap", "t", 0, 0)


def test_an_elementwise_operation_cannot_work_shifted():
    bundle = lx_program(4096).bundle()
    bundle = change_manifest(bundle, uses=(("x", "t"), ("t", "u"), ("t", "u", "z")))
    bundle = change_operand(bundle, 0, "sdsc_1.json", memory="lx", start=(0, 0))
    bundle = change_operand(change_buffer(bundle, "u", offset=128), 1, "sdsc_1.json", start=(128, 128))
    assert failure(bundle, {"x": np.ones((64, 64), np.float16)}).kind == "overlap"


def test_one_lane_cannot_become_all_lanes_in_place():
    """A sparse stick holds one value, which a dense result repeats: the same sticks, but not element for element."""
    program = Program()
    program.tensor("x", {"mb": 16, "out": 64}, kind="input")
    program.tensor("s", {"mb": 16}, lx=0)
    program.tensor("t", {"mb": 16, "out": 64}, lx=0)
    program.tensor("z", {"mb": 16, "out": 64}, kind="result")
    program.op("sum", "x", "s")
    program.op("add", "x", "s", "t")
    program.op("abs", "t", "z")
    error = failure(program.bundle(), {"x": np.ones((16, 64), np.float16)})
    assert (error.kind, error.tensor) == ("overlap", "s")
