# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Operands placed in LX by hand: the numbers of device memory, and less traffic by exactly their bytes."""

from __future__ import annotations

import functools
import random

import pytest
import torch
from lx_programs import (
    DIVISIONS,
    FUNCTIONS,
    Executed,
    divided,
    eligible,
    executed,
    one_behind_the_other,
    place,
)

import spyre_mlir
from spyre_mlir.bundle.core_slices import lx_bytes
from spyre_mlir.bundle.design_json import from_json, to_json
from spyre_mlir.bundle.model import Design, Execute
from spyre_mlir.bundle.validate import validate
from spyre_mlir.dialects import context
from spyre_mlir.errors import CompileError
from spyre_mlir.lowering.export import export
from spyre_mlir.mlir import ir
from spyre_mlir.pipelines import run_pipeline
from spyre_mlir.simulator import SimulationError
from spyre_mlir.target.ops import FP32

SOFTMAX = "softmax of 512 x 1024"
OVERLAPPED = ("softmax over columns", "layer norm", "matmul and pointwise", "broadcast")
MATRIX, VECTOR = 512 * 1024 * 2, 1024 * 2


@functools.cache
def in_device_memory(name: str, cores: int, uneven: bool = False) -> Executed:
    return executed(divided(name, cores, uneven), name, {})


@functools.cache
def in_lx(name: str, cores: int, uneven: bool = False) -> Executed:
    """Place all eligible buffers in LX one after the other; a buffer must fit on all cores."""
    text = divided(name, cores, uneven)
    sizes = eligible(ir.Module.parse(text, context()))
    fitting = {number: size for number, size in sizes.items() if size < 1 << 18}
    return executed(text, name, one_behind_the_other(fitting))


def designs_of(program: Executed) -> list[Design]:
    """The design of each execution, in program order."""
    statements = [each for each in program.bundle.statements if isinstance(each, Execute)]
    return [program.bundle.designs[each.filename] for each in statements]


@pytest.mark.parametrize(("cores", "uneven"), DIVISIONS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_bits_are_those_of_device_memory(name, cores, uneven):
    """The result is equal bit for bit, without a finding, and the saved bytes are the bytes of the operands in LX."""
    without, with_lx = in_device_memory(name, cores, uneven), in_lx(name, cores, uneven)
    assert with_lx.bits == without.bits
    assert not (findings := validate(with_lx.bundle)), "\n".join(map(str, findings))
    assert without.moved_bytes - with_lx.moved_bytes == with_lx.saved_bytes


@pytest.mark.exhaustive
def test_most_programs_have_something_in_lx():
    """The comparison is not empty: on one core all programs have buffers in LX, on more cores those sliced alike."""
    saved = {(name, each): in_lx(name, *each).saved_bytes for name in FUNCTIONS for each in DIVISIONS}
    assert all(saved[name, DIVISIONS[0]] for name in FUNCTIONS)
    assert sum(map(bool, saved.values())) > len(saved) * 2 / 3


@pytest.mark.parametrize(("cores", "uneven"), DIVISIONS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_an_operand_in_lx_is_a_slice(name, cores, uneven):
    """One literal address for all cores, no gap, and the bytes of its buffer: whole sticks of a share.

    A value cast from fp16 is padded to whole sticks of fp16, which are two sticks of f32 each.
    """
    program = in_lx(name, cores, uneven)
    buffers = {buffer.name: buffer for buffer in program.bundle.manifest.buffers}
    for design, names in zip(designs_of(program), program.bundle.manifest.uses, strict=True):
        for operand, buffer in zip(design.operands, map(buffers.get, names), strict=True):
            assert buffer is not None and (operand.memory == "lx") == (buffer.base == "lx")
            if operand.memory == "lx":
                assert set(operand.start) == {buffer.offset}
                if operand.data_format == FP32:
                    assert lx_bytes(design, operand) <= buffer.bytes
                    continue
                assert not operand.gap and lx_bytes(design, operand) == buffer.bytes


# -- softmax, by hand ---------------------------------------------------------------------------------

#: Bytes in LX during maxnonstick, sub, exp, sumnonstick and realdiv, and the remaining traffic in bytes
#: ("Scratchpad (LX) optimization", optimizations on softmax).
STAGES = {
    "all in device memory": ({}, 8 * MATRIX + 4 * VECTOR),
    "reductions in LX": ({0: 0, 3: 2048}, 8 * MATRIX),
    "exp takes the place of sub": ({0: 0, 3: 2048, 1: 4096, 2: 4096}, 3 * MATRIX),
}


@pytest.mark.parametrize("stage", STAGES)
def test_softmax_stage_by_stage(stage):
    addresses, moved = STAGES[stage]
    program = executed(divided(SOFTMAX, 1), SOFTMAX, addresses)
    assert program.bits == in_device_memory(SOFTMAX, 1).bits
    assert program.moved_bytes == moved
    assert validate(program.bundle) == []


def test_the_folder_says_lx():
    """The design of exp, in place: allocated in LX at a literal address, and nowhere else."""
    program = executed(divided(SOFTMAX, 1), SOFTMAX, {1: 4096, 2: 4096})
    exp = designs_of(program)[2]
    (dsc,) = (body := to_json(exp))["2_exp"]["dscs_"]
    for index, node in enumerate(dsc["exp"]["scheduleTree_"]):
        assert node["name_"] == f"allocate-Tensor{index}_lx" and node["component_"] == "lx"
        assert node["startAddressCoreCorelet_"]["data_"] == {"[0, 0, 0]": "4096"}
        assert "isStartAddrSymbolic_" not in node and "backGapCore_" not in node
    assert [set(each["memOrg_"]) for each in dsc["exp"]["labeledDs_"]] == [{"lx"}, {"lx"}]
    assert from_json(body, exp.filename, exp.target) == exp


def test_what_is_in_lx_is_no_operand_of_the_program():
    """exp from LX to LX has no address operand; sub has the two addresses of x and of the maxima."""
    program = executed(divided(SOFTMAX, 1), SOFTMAX, {1: 4096, 2: 4096})
    executes = [each for each in program.bundle.statements if isinstance(each, Execute)]
    assert [len(each.operands) for each in executes] == [2, 2, 0, 1, 2]
    assert all(parameter.name.startswith("arg_") for parameter in program.bundle.parameters)


def test_a_smaller_last_slice_has_the_strides_of_a_full_one():
    """130 rows on 7 cores are slices of 19 and one of 16; sticks of columns are 19 rows apart on all cores."""
    program = in_lx("softmax over columns", 7, True)
    exp = designs_of(program)[2]
    label = next(label for label, count in exp.slices.items() if count == 7)
    assert (exp.sizes[label], exp.shares[label]) == (130, 19)
    assert lx_bytes(exp, exp.operands[0]) == 19 * 2 * 128


# -- who may lie over whom ----------------------------------------------------------------------------


@functools.cache
def verdicts(name: str, cores: int, seed: int) -> tuple[bool, bool, bool]:
    """Return whether the pass, the validator and the simulator accept random addresses, some of them shared."""
    rng = random.Random(f"{name} {cores} {seed}")
    text = divided(name, cores)
    module = ir.Module.parse(text, context())
    sizes = {number: size for number, size in eligible(module).items() if size < 1 << 18}
    slots = [0, *(rng.randrange(1 << 11) * 128 for _ in sizes)]
    addresses = {number: rng.choice(slots) for number in sizes}
    place(module, addresses)
    try:
        run_pipeline(module, "verify-scratchpad")
        accepted = True
    except CompileError as error:
        assert "of LX overlap" in error.message
        accepted = False
    run_pipeline(module, "convert-sdsc-to-sdscbundle")
    valid = not validate(export(module)[0])
    try:
        ran = executed(text, name, addresses, checks="").bits == in_device_memory(name, cores).bits
    except SimulationError:
        ran = False
    return accepted, valid, ran


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("name", OVERLAPPED)
def test_three_checks_agree_on_who_overlaps(name, seed):
    """The pass checks the IR, the validator the bundle and the simulator the bytes, with independent code."""
    accepted, valid, ran = verdicts(name, 4, seed)
    assert accepted == valid and (ran or not accepted)


def test_some_random_addresses_are_right_and_some_are_wrong():
    accepted = [verdicts(name, 4, seed)[0] for name in OVERLAPPED for seed in range(12)]
    assert 5 < sum(accepted) < len(accepted) - 5


def test_lx_ends_where_the_backend_begins():
    """The last address for 2048 bytes is 1,625,344 - 2048; a backend that keeps nothing leaves more."""
    last = 1625344 - 2048
    executed(divided(SOFTMAX, 1), SOFTMAX, {0: last})
    with pytest.raises(
        CompileError, match=r"bytes 1623424 to 1625472 are not inside the 1625344 usable bytes"
    ):
        executed(divided(SOFTMAX, 1), SOFTMAX, {0: last + 128})
    module = ir.Module.parse(divided(SOFTMAX, 1), context())
    place(module, {0: last + 128})
    run_pipeline(module, "attach-target{lx-frac-avail=0},verify-scratchpad")
    run_pipeline(module, "convert-sdsc-to-sdscbundle,verify-bundle")
    with pytest.raises(CompileError, match="lx-address"):
        run_pipeline(module, "attach-target{lx-frac-avail=0.2},verify-bundle")


def test_a_program_runs_in_the_lx_that_it_was_planned_for():
    """1,835,008 bytes fit LX only if the backend reserves nothing; the simulator has the same capacity."""
    x = torch.ones(512, 1792, dtype=torch.float16)
    options = {"sencores": 1, "lx_planning": True, "verify_each": True, "tile_for_lx": False}
    program = spyre_mlir.compile(lambda x: torch.exp(x).abs(), (x,), lx_frac_avail=0.0, **options)
    assert any(buffer.base == "lx" for buffer in program.bundle.manifest.buffers)
    program(x)
    assert program.last_run is not None
    assert program.last_run.statistics.lx_high_water_bytes == {0: 512 * 1792 * 2}
    program = spyre_mlir.compile(lambda x: torch.exp(x).abs(), (x,), lx_frac_avail=0.2, **options)
    assert all(buffer.base != "lx" for buffer in program.bundle.manifest.buffers)


class _ScaledKeys(torch.nn.Module):
    """A restickify of keys to 64 rows, of which a scaling reads and writes 16."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("keys", torch.randn(2, 4, 16, 16, generator=torch.manual_seed(0)).half())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.scaled_dot_product_attention(x, self.keys, self.keys)


def test_a_part_of_what_cores_hold_is_not_overwritten_in_place():
    """Rows of the result are closer to each other in LX than rows of the operand are."""
    model, x = _ScaledKeys(), torch.randn(2, 4, 3, 16, generator=torch.manual_seed(1)).half()
    program = spyre_mlir.compile(model, (x,), sencores=3, precision="strict")
    assert not validate(program.bundle)
    torch.testing.assert_close(program(x), model(x), rtol=0.01, atol=0.01)
