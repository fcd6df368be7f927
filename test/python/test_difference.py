# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Differences between two bundles: totals against the simulator, the matching, and the two reports."""

from __future__ import annotations

import functools
import itertools
import re
import xml.etree.ElementTree as ElementTree
from dataclasses import replace

import bundles
import numpy as np
import pytest
import torch
from bundle_edits import design, manifest, program, tensor
from looped import looped
from programs import Apply
from simulator_programs import Program

import spyre_mlir
from spyre_mlir.bundle.model import Add, Bundle, Constant, DebugHandle, Extract, IndexConstant
from spyre_mlir.errors import CompileError
from spyre_mlir.report.difference import Change, Difference, Pair, difference, facts_difference, page, text
from spyre_mlir.simulator import run

MATRIX = 128 * 256 * 2


def chained(*operations: tuple[str, int], cores: int = 1, lx: bool = False) -> Bundle:
    """Return a sequence of operations of one input, (opcode, source line) each; their results are in LX or the pool."""
    written = Program()
    written.tensor("x", {"mb": 128, "out": 256}, kind="input")
    names = ["x", *(f"t{number}" for number in range(len(operations) - 1)), "y"]
    for number, name in enumerate(names[1:-1]):
        written.tensor(name, {"mb": 128, "out": 256}, **({"lx": number % 2 * MATRIX} if lx else {}))
    written.tensor("y", {"mb": 128, "out": 256}, kind="result")
    for (opcode, _), (source, target) in zip(operations, itertools.pairwise(names), strict=True):
        written.op(opcode, source, target, splits={"mb": cores})
    made = written.bundle()
    for number, (opcode, line) in enumerate(operations):
        made = design(made, number, debug=DebugHandle(opcode, "model.py", line))
    return made


@functools.cache
def softmax(cores: int, lx: bool) -> spyre_mlir.Program:
    model = Apply(lambda x: torch.softmax(x, 0)).half()
    inputs = (torch.zeros(512, 1024).half(),)
    return spyre_mlir.compile(model, inputs, sencores=cores, lx_planning=lx)


def matches(found: Difference) -> list[tuple[int | None, int | None]]:
    """The positions of matched operations."""
    sides = ((pair.before, pair.after) for pair in found.operations)
    return [(a and a.position, b and b.position) for a, b in sides]


def changed(pair: Pair) -> dict[str, tuple]:
    return {change.what: (change.before, change.after) for change in pair.changes}


def only(pairs: tuple[Pair, ...]) -> Pair:
    """The one that is not the same."""
    (found,) = (pair for pair in pairs if pair.status != "same")
    return found


# -- totals ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", bundles.GOOD)
def test_a_bundle_against_itself_is_no_difference(name):
    made = bundles.GOOD[name]()
    found = difference(made, made)
    assert not found and {pair.status for pair in (*found.operations, *found.buffers)} == {"same"}
    assert text(found).count("no difference") == 3


@pytest.mark.parametrize("cores", [1, 32])
def test_the_totals_of_softmax_are_those_of_the_simulator(cores):
    """A leaves all in device memory, B plans LX."""
    programs = [softmax(cores, lx) for lx in (False, True)]
    found = difference(*(program.bundle for program in programs))
    totals = {change.what: (change.before, change.after) for change in found.totals}
    ran = [run(each.bundle, {"inputs_0": np.zeros((512, 1024), np.float16)}).statistics for each in programs]
    assert totals["bytes read"] == tuple(each.read_bytes for each in ran)
    assert totals["bytes written"] == tuple(each.write_bytes for each in ran)
    highest = tuple(max(each.lx_high_water_bytes.values(), default=0) for each in ran)
    assert totals["LX peak (bytes)"] == highest
    assert totals["operations"] == tuple(len(each.executes) for each in ran)
    assert totals["buffers in the pool"] == (4, 0) and totals["buffers in LX"][0] == 0
    opcodes = {change.what: (change.before, change.after) for change in found.opcodes}
    assert opcodes == {name: (ran[0].opcodes[name], ran[1].opcodes[name]) for name in ran[1].opcodes}


def test_bytes_are_those_of_the_simulator_with_the_runs_of_a_loop():
    """Bytes of operations, and of the buffer that one operation writes once and another reads in each run."""
    made = bundles.loop_bundle(tiles=8)
    ran = run(made, {"x": np.zeros((1024, 256), np.float16)}).statistics
    found = difference(made, made)
    for pair in found.operations:
        execute = ran.executes[pair.one.position]
        counted = (execute.read_bytes, execute.write_bytes, execute.runs)
        assert tuple(pair.one.facts[what] for what in ("bytes read", "bytes written", "runs")) == counted
    (tile,) = (pair.one.facts for pair in found.buffers if pair.one.name == "a")
    assert (tile["bytes written"], tile["bytes read"]) == (8 * MATRIX, 8 * MATRIX)


def test_loops_are_told():
    """The reports compare all iterations of the loop of 8 tiles with all iterations of the loop of 4 tiles."""
    before, after = bundles.loop_bundle(8), bundles.loop_bundle(4)
    found = difference(before, after)
    assert [change for change in found.totals if change.what == "loops"] == [Change("loops", 1, 1)]
    for pair in found.operations:
        told = {change.what: (change.before, change.after) for change in pair.changes}
        assert told["iterations"] == ("8", "4") and "runs" not in told
    lines = text(difference(bundles.add_bundle(), after)).splitlines()
    assert any(
        line.startswith("only in B  -  0  abs") and "cores 2; iterations 4; bytes" in line for line in lines
    )
    assert re.search(r"^loops +0 +1$", "\n".join(lines), re.MULTILINE)


def test_an_untiled_program_is_matched_with_its_tiles():
    """(a + b) * c in 4 tiles: both operations are pairs, the sum is in LX."""
    program = looped("tiled for LX")
    untiled = spyre_mlir.compile(program.copy(), **{**vars(program.options), "tile_for_lx": False})
    found = difference(untiled.bundle, program.program.bundle)
    assert [pair.status for pair in found.operations] == ["changed", "changed"]
    for pair in found.operations:
        told = {change.what: (change.before, change.after) for change in pair.changes}
        assert told["iterations"] == ("", "4")
    (buffer,) = (pair for pair in found.buffers if pair.status == "changed" and not pair.one.is_argument)
    assert [change.after for change in buffer.changes if change.what == "memory"] == ["LX"]


def test_times_of_operations_add_up_to_the_total():
    made = softmax(32, True).bundle
    found = difference(made, made)
    total = next(change.before for change in found.totals if change.what == "time (us)")
    times = [pair.one.facts["time (us)"] for pair in found.operations]
    assert min(times) > 0 and sum(times) == pytest.approx(total, abs=0.001 * len(times))


def test_percent_of_a_total():
    """With LX the traffic of the pool is zero; a percentage of zero is not reported."""
    found = difference(chained(("exp", 1), ("abs", 2)), chained(("exp", 1), ("abs", 2), lx=True))
    percents = {change.what: change.percent for change in found.totals}
    assert (percents["operations"], percents["pool (bytes)"], percents["LX peak (bytes)"]) == (0, -100, None)
    assert percents["bytes read"] == percents["bytes written"] == -50


# -- matching ----------------------------------------------------------------------------------------------

BASE = (("exp", 1), ("abs", 2), ("neg", 3))


def test_an_operation_that_is_added():
    """The operation is in the middle; only B has its result, although the names of B's buffers have shifted."""
    found = difference(chained(*BASE), chained(BASE[0], ("sqrt", 9), *BASE[1:]))
    assert matches(found) == [(0, 0), (None, 1), (1, 2), (2, 3)]
    names = {(pair.before and pair.before.name, pair.after and pair.after.name) for pair in found.buffers}
    assert names == {("x", "x"), ("y", "y"), ("t0", "t0"), (None, "t1"), ("t1", "t2")}


def test_an_operation_that_is_removed():
    found = difference(chained(*BASE), chained(BASE[0], BASE[2]))
    assert matches(found) == [(0, 0), (1, None), (2, 1)]
    assert [pair.before.name for pair in found.buffers if pair.status == "only in A"] == ["t1"]


def test_repeated_operations_are_matched_in_order():
    """Two of three layers of one loop of the source, and the middle one without its abs."""
    layer = (("exp", 1), ("abs", 2))
    assert matches(difference(chained(*layer * 3), chained(*layer * 2)))[:4] == [(k, k) for k in range(4)]
    found = difference(chained(*layer * 3), chained(*layer, layer[0], *layer))
    assert matches(found) == [(0, 0), (1, 1), (2, 2), (3, None), (4, 3), (5, 4)]


def test_lines_that_moved_are_no_difference():
    """Among operations at the same position, the opcode decides."""
    before = chained(("exp", 1), ("abs", 2), ("exp", 3))
    assert not difference(before, chained(("exp", 1), ("abs", 12), ("exp", 13)))


def test_the_line_decides_among_operations_of_one_opcode():
    found = difference(chained(("exp", 1), ("exp", 2), ("exp", 3)), chained(("exp", 2), ("exp", 3)))
    assert matches(found) == [(0, None), (1, 0), (2, 1)]


def test_folders_of_sources_do_not_count():
    """Two checkouts of one model; by the opcode alone the first two would match."""
    elsewhere = chained(("exp", 2), ("exp", 3))
    for number, line in enumerate((2, 3)):
        elsewhere = design(elsewhere, number, debug=DebugHandle("exp", "old/model.py", line))
    found = difference(chained(("exp", 1), ("exp", 2), ("exp", 3)), elsewhere)
    assert matches(found) == [(0, None), (1, 0), (2, 1)]


# -- changes -----------------------------------------------------------------------------------------------


def test_a_division_that_changed():
    found = difference(chained(BASE[0]), chained(BASE[0], cores=2))
    facts = changed(only(found.operations))
    assert facts.keys() <= {"cores", "slices", "time (us)"}
    assert (facts["cores"], facts["slices"]) == ((1, 2), ("1", "mb 2 x 64"))


def test_memory_and_address_of_operands_and_buffers():
    found = difference(chained(*BASE), chained(*BASE, lx=True))
    facts = changed(found.operations[1])
    assert (facts["input 0"], facts["output"]) == (("pool", "LX 0"), ("pool", f"LX {MATRIX}"))
    assert (facts["bytes read"], facts["bytes written"]) == ((MATRIX, 0), (MATRIX, 0))
    (second,) = (pair for pair in found.buffers if pair.before and pair.before.name == "t1")
    assert changed(second)["memory"] == ("pool", "LX") and changed(second)["bytes read"] == (MATRIX, 0)


def test_a_part_of_a_buffer_is_told_by_where_it_begins():
    """The fact of an operand has the byte offset in the buffer; only the buffer has its address in the pool."""
    before = bundles.add_bundle()
    later = (Extract("base", "arg0"), IndexConstant("skip", 256), Add("x_0", "base", "skip"))
    found = difference(before, program(before, "x_0", *later))
    assert changed(only(found.operations))["input 0"] == ("x", "x from byte 256")
    places = {pair.one.facts["output"] for pair in difference(softmax(1, False).bundle, before).operations}
    assert places == {"pool", "result0", "z"}


def test_reasons_of_a_buffer():
    before = chained(*BASE)
    spilled = [
        replace(each, reasons=("too large",) * each.name.startswith("t")) for each in before.manifest.buffers
    ]
    found = difference(before, manifest(before, buffers=tuple(spilled)))
    assert [changed(pair) for pair in found.buffers if pair.changes] == [{"not in LX": ("", "too large")}] * 2


def test_an_order_of_dims_that_changed():
    before = tensor(bundles.add_bundle(), 1, role="KERNEL")
    found = difference(before, tensor(before, 1, dim_order=("out", "mb")))
    facts = changed(only(found.operations))
    assert facts["input 1 layout"] == ("mb out (stick out)", "out mb (stick out)")


def test_cores_that_change_places():
    """The same slices on other cores; the map is not reported where the division reports it."""
    before = bundles.add_bundle()
    swapped = before.designs["sdsc_0.json"].core_slices[::-1]
    found = difference(before, design(before, core_slices=swapped))
    assert changed(only(found.operations)) == {"core map": ("mb 0 1", "mb 1 0")}


def test_constants_of_an_operation():
    before = bundles.reduction_bundle()
    changes = {"constants": (Constant("samv-maskvalue", bundles.FP16, 1),)}
    found = difference(before, design(before, 1, **changes))
    assert changed(only(found.operations)).keys() == {"constants"}


def test_an_operand_that_is_another_buffer_of_the_same_memory():
    """t1 replaces t0 as operand: both are in the pool, so only the name differs."""
    before = chained(*BASE)
    uses = (*before.manifest.uses[:2], ("t0", "y"))
    after = manifest(before, uses=uses)
    assert changed(difference(before, after).operations[2])["input 0 buffer"] == ("t1", "t0")


def test_an_argument_in_another_layout():
    before = bundles.add_bundle()
    x, *others = before.manifest.arguments
    found = difference(before, manifest(before, arguments=(replace(x, device_size=(128, 4, 64)), *others)))
    assert changed(only(found.buffers)) == {"device size": ("(4, 128, 64)", "(128, 4, 64)")}


def test_a_bundle_that_does_not_fit_together_is_an_error():
    made = bundles.add_bundle()
    with pytest.raises(CompileError, match="frobnicate"):
        difference(made, design(made, opcode="frobnicate"))


# -- reports -----------------------------------------------------------------------------------------------


def test_the_text_has_a_line_for_each_thing_that_changed():
    found = difference(softmax(32, False).bundle, softmax(32, True).bundle)
    lines = text(found, "off", "on").splitlines()
    told = [line for line in lines if line.startswith(("changed", "only in"))]
    differing = [pair for pair in (*found.operations, *found.buffers) if pair.status != "same"]
    assert lines[:2] == ["A: off", "B: on"] and len(told) == len(differing)


def test_the_page_says_what_the_text_says():
    """The page is XML without external references; each differing object is a group of rows, each change one row."""
    found = difference(softmax(32, False).bundle, softmax(32, True).bundle)
    made = page(found, "a<b", "on")
    root = ElementTree.fromstring(made.removeprefix("<!DOCTYPE html>"))
    assert (
        "http" not in made
        and "<script" not in made
        and root.findtext(".//title") == "Difference of a<b and on"
    )
    groups = root.findall(".//table[@id='operations']/tbody")
    operations = [pair for pair in found.operations if pair.status != "same"]
    assert [group.findtext("tr/td") for group in groups] == [pair.status for pair in operations]
    rows = [len(group.findall("tr")) for group in groups]
    assert all(len(pair.changes) in (0, count) for pair, count in zip(operations, rows, strict=True))
    totals = [row.findtext("td") for row in root.findall(".//table[@id='totals']/tbody/tr")]
    assert totals == [change.what for change in found.totals]


def test_names_with_markup_are_escaped():
    before = chained(*BASE)
    handle = DebugHandle("", "a&<b>.py", 3)
    found = difference(before, design(chained(*BASE, cores=2), 0, debug=handle))
    assert "a&amp;&lt;b&gt;.py:3" in page(found)


def test_the_headline_has_the_time_first_and_what_explains_it():
    found = difference(softmax(32, False).bundle, softmax(32, True).bundle)
    before, after = found.total_us
    percent = 100 * (before - after) / before
    assert found.headline.startswith(f"B takes {percent:.1f} % less: {before:,.1f} -> {after:,.1f} us, ")
    assert "% less bytes read" in found.headline and "in device memory less" in found.headline
    back = difference(softmax(32, True).bundle, softmax(32, False).bundle)
    assert " % more: " in back.headline and 'class="headline loss"' in page(back)
    assert text(found).splitlines()[2] == found.headline and 'class="headline gain"' in page(found)


def test_small_differences_of_times_are_folded_and_times_are_summed_by_module():
    program = softmax(32, True)
    facts = program.facts()
    first, *others = facts.operations
    shifted = replace(first, facts={**first.facts, "time (us)": first.facts["time (us)"] + 0.001})
    others = [
        replace(each, origin=replace(each.origin, module=f"layers.{k}")) for k, each in enumerate(others)
    ]
    found = facts_difference(facts, replace(facts, operations=(shifted, *others)))
    (changed,) = [pair for pair in found.operations if pair.status == "changed"]
    assert found.is_noise(changed) and found.modules() == []
    lines = text(found).splitlines()
    assert not [line for line in lines if line.startswith("changed")]
    assert "1 operation more, whose time differs by at most 0.2% of the program's" in lines
    slower = replace(others[0], facts={**others[0].facts, "time (us)": others[0].facts["time (us)"] + 50})
    found = facts_difference(facts, replace(facts, operations=(first, slower, *others[1:])))
    assert [change.what for change in found.modules()] == ["layers.0"]
