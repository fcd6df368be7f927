# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The rules on relayouts over time and on random relayouts: cores read exactly the sticks that they wrote."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace

import bundles
import pytest
from bundle_edits import buffer, design, manifest, tensor
from relayouts import STICK_BYTES, diagnostics, held_sticks, random_relayout
from simulator_programs import Program

from spyre_mlir.bundle.core_slices import core_region, finishing_cores, holders, lx_bytes
from spyre_mlir.bundle.model import Buffer, HeldSlices
from spyre_mlir.bundle.validate import validate

RELAYOUT = bundles.relayout_bundle()
RANDOM = [random_relayout(random.Random(seed)) for seed in range(60)]


def only(bundle):
    """The one finding of a bundle."""
    (finding,) = validate(bundle)
    return finding.rule, finding.message


@pytest.mark.parametrize("design", RANDOM, ids=range(60))
def test_random_relayouts_are_good(design):
    assert diagnostics(design) == []


@pytest.mark.parametrize("design", RANDOM, ids=range(60))
def test_the_source_of_a_relayout_lies_by_its_own_slices(design):
    """The sticks of each core, and the bytes that all cores reserve for them, compared with plain Python."""
    source, _ = design.operands
    assert list(holders(design, source)) == [
        core for core in range(design.cores) if held_sticks(design, core)
    ]
    for core in holders(design, source):
        region = core_region(design, source, core)
        steps = [(count, stride) for stride, count in region.steps]
        places = itertools.product(*(range(0, count * stride, stride) for count, stride in steps))
        found = sorted(source.start[0] + sum(place) * STICK_BYTES for place in places)
        assert found == sorted(address for _, address in held_sticks(design, core))
        assert found[-1] < source.start[0] + lx_bytes(design, source)


def test_the_last_stick_of_a_whole_slice_is_the_end_of_what_is_reserved():
    """128 rows of 4 sticks on one core."""
    source = RELAYOUT.designs["sdsc_1.json"].operands[0]
    whole = replace(source, held=HeldSlices({"mb": 1, "out": 1}, ({"mb": 0, "out": 0}, None)))
    assert lx_bytes(RELAYOUT.designs["sdsc_1.json"], whole) == 128 * 4 * STICK_BYTES


def test_what_a_core_is_said_to_hold_it_wrote():
    """The relayout reads bytes that nothing wrote, if the result of exp is elsewhere in LX."""
    bundle = tensor(RELAYOUT, 0, 1, start=(65536, 65536))
    bundle = manifest(bundle, uses=(("x", "e"), ("u", "t"), ("t", "z")))
    bundle = manifest(bundle, buffers=(*bundle.manifest.buffers, Buffer("u", "lx", 65536, 32768)))
    text = "Core 0 reads Tensor0 (buffer u) at byte 65536 of lx, which nothing wrote before."
    assert only(bundle) == ("uninitialised-read", text)


def test_a_core_that_holds_nothing_need_not_have_written_anything():
    """exp runs on one core, which has all sources of the relayout."""
    bundle = design(
        RELAYOUT,
        slices={"mb": 1, "out": 1},
        shares={"mb": 128, "out": 256},
        core_slices=({"mb": 0, "out": 0},),
        operands=tuple(
            replace(each, start=each.start[:1]) for each in RELAYOUT.designs["sdsc_0.json"].operands
        ),
    )
    bundle = buffer(bundle, 1, bytes=65536)
    bundle = buffer(bundle, 2, offset=65536)
    bundle = tensor(bundle, 0, 1, held=HeldSlices({"mb": 1, "out": 1}, ({"mb": 0, "out": 0}, None)))
    bundle = tensor(bundle, 1, 1, start=(65536, 65536))
    assert validate(tensor(bundle, 0, 2, start=(65536, 65536))) == []


def test_source_and_result_are_live_at_once():
    bundle = tensor(buffer(RELAYOUT, 2, offset=16384), 1, 1, start=(16384, 16384))
    findings = {finding.rule: finding.message for finding in validate(bundle)}
    text = "The LX buffers e at 0 and t at 16384 overlap and are both live at execute 1."
    assert findings["lx-overlap"] == text and "relayout-overlap" in findings


def test_the_source_is_inside_its_buffer():
    text = "Core 0 touches Tensor0 in [0, 32768) of lx; expected to be inside [0, 16384) of the buffer e."
    findings = validate(buffer(RELAYOUT, 1, bytes=16384))
    assert ("operand-in-buffer", text) in [(finding.rule, finding.message) for finding in findings]
    assert {finding.where.split(",")[1] for finding in findings} == {
        " execute 0 of sdsc_0.json (exp)",
        " execute 1 of sdsc_1.json (shuffle)",
    }


def sums(reader_cores: int, first: int) -> Program:
    """A sum over the rows that four cores share, into LX; a relayout from ``first`` to ``reader_cores`` cores."""
    program = Program()
    program.tensor("x", {"mb": 64, "out": 256}, kind="input")
    program.tensor("s", {"out": 256}, lx=0)
    program.tensor("t", {"out": 256}, lx=1024)
    program.tensor("z", {"out": 256}, kind="result")
    written = program.op("sumnonstick", "x", "s", splits={"mb": 4})
    program.relayout("s", "t", written, {"out": reader_cores}, cores=(first,))
    program.op("identity", "t", "z", splits={"out": reader_cores})
    return program


def test_the_finishing_core_has_the_sum():
    program = sums(4, first=3)
    assert finishing_cores(program.designs["sdsc_0.json"]) == {3}
    assert validate(program.bundle()) == []


def test_another_core_has_a_part_of_the_sum():
    text = "Core 0 reads Tensor0 (buffer s) at byte 0 of lx, where a split reduction left parts of sums."
    assert only(sums(4, first=0).bundle()) == ("uninitialised-read", text)


def test_cores_that_make_the_same_must_not_write_it_to_one_place():
    """A dim of no operand counts copies: in LX each core has its own, in device memory they would race."""
    program = Program()
    program.tensor("x", {"mb": 8, "out": 64}, kind="input")
    program.tensor("e", {"mb": 8, "out": 64}, lx=0)
    program.tensor("z", {"x": 4, "mb": 8, "out": 64}, kind="result")
    program.op("identity", "x", "e", copies=4)
    program.op("identity", "e", "z", splits={"x": 4})
    assert validate(program.bundle()) == []
    program = Program()
    program.tensor("x", {"mb": 8, "out": 64}, kind="input")
    program.tensor("z", {"mb": 8, "out": 64}, kind="result")
    program.op("identity", "x", "z", copies=4)
    text = "Core 1 writes bytes of Tensor1 that another core writes too."
    assert only(program.bundle()) == ("write-conflict", text)
