# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The map of the scratchpads: its numbers against handwritten bundles and plans of the compiler, and its drawing."""

from __future__ import annotations

import functools
import itertools
import random
import re
import xml.etree.ElementTree as ElementTree
from dataclasses import replace

import bundles
import lx_programs
import numpy as np
import pytest
import torch
from bundle_edits import design, manifest
from programs import Apply
from simulator_programs import Program
from test_layout_picture import _luminance

import spyre_mlir
from spyre_mlir import dialects
from spyre_mlir.bundle.context import Context
from spyre_mlir.bundle.model import Buffer, Bundle, Execute, IndexConstant, Loop, Manifest
from spyre_mlir.bundle.rules_memory import lx_overlap
from spyre_mlir.errors import CompileError
from spyre_mlir.mlir import ir
from spyre_mlir.report.lx_map import FILLS, LxMap, MapLoop, Occupancy, PlacedBuffer, lx_map, picture
from spyre_mlir.report.page import lx_page
from spyre_mlir.report.page_data import page_data
from spyre_mlir.report.program_facts import program_facts
from spyre_mlir.simulator import run

SVG = "{http://www.w3.org/2000/svg}"
MATRIX = 128 * 256 * 2


def by_hand() -> Bundle:
    """Four operations on two cores: a is in LX at 0, b in place of a, r above them, p in device memory."""
    program = Program()
    rows, column = {"mb": 128, "out": 256}, {"mb": 128}
    program.tensor("x", rows, kind="input")
    program.tensor("y", rows, kind="result")
    program.tensor("a", rows, lx=0)
    program.tensor("b", rows, lx=0)
    program.tensor("r", column, lx=65536)
    program.tensor("p", rows)
    program.op("exp", "x", "a", splits={"mb": 2})
    program.op("max", "a", "r", splits={"mb": 2})
    program.op("sub", "a", "r", "b", splits={"mb": 2})
    program.op("abs", "b", "p", splits={"mb": 2})
    program.op("add", "p", "x", "y", splits={"mb": 2})
    return program.bundle()


def chained(*buffers: tuple[str, int, int]) -> Bundle:
    """exp of exp of .. of (64 * rows, 64) on one core: a buffer is its name, rows of 128 bytes and its address."""
    program = Program()
    program.tensor("x", {"mb": 64, "out": 64}, kind="input")
    for name, rows, address in buffers:
        program.tensor(name, {"mb": rows, "out": 64}, lx=address)
    for source, target in itertools.pairwise(["x", *(name for name, *_ in buffers)]):
        program.op("exp", source, target)
    return program.bundle()


@functools.cache
def softmax(cores: int) -> spyre_mlir.Program:
    model = Apply(lambda x: torch.softmax(x, 0)).half()
    return spyre_mlir.compile(model, (torch.zeros(512, 1024).half(),), sencores=cores)


# -- numbers ---------------------------------------------------------------------------------------------


def test_lives_addresses_and_cores():
    found = {each.name: each for each in lx_map(by_hand()).placed}
    facts = {name: (b.writer, b.address, b.bytes, b.first, b.last, b.cores) for name, b in found.items()}
    assert facts == {
        "a": (0, 0, MATRIX // 2, 0, 2, 2),
        "r": (1, 65536, 64 * 128, 1, 2, 2),
        "b": (2, 0, MATRIX // 2, 2, 3, 2),
    }


def test_what_takes_the_place_of_another_is_in_its_chain():
    chains = lx_map(by_hand()).chains
    assert [[buffer.name for buffer in chain] for chain in chains] == [["a", "b"], ["r"]]


def test_load_counts_a_pair_in_place_once():
    """a and b share 32,768 bytes at step 2; r is above a gap of the same size."""
    taken = lx_map(by_hand()).occupancy(1)
    assert taken.load == (32768, 32768 + 8192, 32768 + 8192, 32768, 0)
    assert taken.high_water == (32768, 65536 + 8192, 65536 + 8192, 32768, 0)
    assert taken.fragmentation == (0, 32768, 32768, 0, 0) and taken.peak == 73728
    assert lx_map(by_hand()).occupancy(2) == Occupancy((0,) * 5, (0,) * 5)


def test_a_pair_in_place_on_different_cores_counts_once():
    """The parent is on cores 0 and 1, the child on core 0 alone: no chain, but the same bytes at the handover."""
    parent = PlacedBuffer("parent", 0, 0, 4096, 0, 2, 2)
    child = PlacedBuffer("child", 2, 0, 4096, 2, 3, 1)
    steps = lx_map(by_hand()).steps
    taken = LxMap(steps, (), ((parent,), (child,)), (), 0, 1 << 20, 1 << 21).occupancy(0)
    assert taken.load == (4096, 4096, 4096, 4096, 0) == taken.high_water
    assert min(taken.fragmentation) == 0


def test_a_smaller_child_leaves_its_parent_whole_at_the_handover():
    """The last byte of a buffer counts until the operation that reads it last is done."""
    made = chained(("a", 64, 0), ("b", 64, 0), ("c", 64, 8192))
    smaller = [replace(each, bytes=4096) if each.name == "b" else each for each in made.manifest.buffers]
    found = lx_map(manifest(made, buffers=tuple(smaller)))
    assert [len(chain) for chain in found.chains] == [2, 1]
    assert found.occupancy(0).load == (8192, 8192, 4096 + 8192)


def test_what_comes_later_at_the_same_address_is_no_chain():
    """b is written when a is already dead, d by an operation that reads c at another address."""
    found = lx_map(chained(("a", 64, 0), ("c", 64, 8192), ("b", 64, 0), ("d", 64, 16384)))
    assert [[buffer.name for buffer in chain] for chain in found.chains] == [["a"], ["c"], ["b"], ["d"]]


def test_what_a_loop_reads_lives_to_its_end():
    """e, written before the loop, is read by its first operation; f is local to the second one."""
    made = bundles.reduction_bundle()
    first, second = (each for each in made.statements if isinstance(each, Execute))
    bounds = [IndexConstant(name, value) for name, value in (("zero", 0), ("four", 4), ("one", 1))]
    before = [each for each in made.statements if not isinstance(each, Execute)]
    loop = Loop("i", "zero", "four", "one", (second, first))
    buffers = (*made.manifest.buffers, Buffer("f", "lx", 32768, 32768))
    uses = (("x", "e"), ("e", "s"), ("x", "f"))
    looped = replace(
        made,
        statements=(*before, *bounds, first, loop),
        manifest=Manifest(made.manifest.arguments, buffers, uses),
    )
    found = lx_map(looped)
    assert {each.name: (each.first, each.last) for each in found.placed} == {"e": (0, 2), "f": (2, 2)}
    assert [(each.first, each.last, each.count, each.depth) for each in found.loops] == [(1, 2, 4, 0)]
    assert [step.runs for step in found.steps] == [1, 4, 4]


def test_nests_are_told_by_their_innermost_loops():
    """Two loops in a loop that also has other steps, and a loop after it."""
    loops = (MapLoop(0, 5, 8, 0), MapLoop(1, 2, 3, 1), MapLoop(3, 4, 2, 1), MapLoop(6, 6, 5, 0))
    assert replace(lx_map(bundles.add_bundle()), loops=loops).nests() == [(8, 3), (8, 2), (5,)]


def test_spilled_buffers_have_bytes_traffic_and_reasons():
    made = by_hand()
    reasons = ("no reader in LX", "too large: of a size")
    named = [replace(each, reasons=reasons if each.name == "p" else ()) for each in made.manifest.buffers]
    found = lx_map(manifest(made, buffers=tuple(named)))
    (spilled,) = found.spilled
    assert (spilled.name, spilled.writer, spilled.first, spilled.last) == ("p", 3, 3, 4)
    assert (spilled.bytes, spilled.read_bytes, spilled.written_bytes) == (MATRIX, MATRIX, MATRIX)
    assert spilled.reasons == reasons and found.argument_traffic == 3 * MATRIX


@pytest.mark.parametrize(
    ("name", "cores"), [("two matmuls", 4), ("matmul and pointwise", 32), ("layer norm", 7), ("heads", 4)]
)
def test_traffic_is_what_the_simulator_counts(name, cores):
    """All in device memory, and with what may be in LX there."""
    text = lx_programs.divided(name, cores, cores == 7)
    module = ir.Module.parse(text, dialects.context())
    places = lx_programs.one_behind_the_other(lx_programs.eligible(module))
    for addresses in ({}, places):
        ran = lx_programs.executed(text, name, addresses)
        found = lx_map(ran.bundle)
        assert found.argument_traffic + found.spilled_traffic == ran.moved_bytes
        assert len(found.placed) == len(addresses)


@pytest.mark.parametrize("cores", [1, 32])
def test_the_plan_of_softmax(cores):
    """The report of the planner equals the simulator; exp is in place of sub, and sub in place of the clone."""
    program = softmax(cores)
    found = lx_map(program.bundle)
    ran = run(program.bundle, {"inputs_0": np.zeros((512, 1024), np.float16)}).statistics
    told = [remark.kind for remark in program.remarks if remark.pass_name == "scratchpad-planning"]
    assert len(found.placed) == told.count("in LX") and not found.spilled
    assert found.argument_traffic + found.spilled_traffic == ran.read_bytes + ran.write_bytes
    assert {core: found.occupancy(core).peak for core in ran.lx_high_water_bytes} == ran.lx_high_water_bytes
    chains = [[found.steps[b.writer or 0].category for b in chain] for chain in found.chains]
    assert ["clone", "pointwise", "pointwise"] in chains and chains.count(["reduction"]) == 2


def test_the_reasons_are_those_of_the_planner():
    """Without capacity in LX: reasons of all buffers except the result, which is not a buffer of the program."""
    model = Apply(lambda x: torch.softmax(x, -1)).half()
    program = spyre_mlir.compile(model, (torch.zeros(64, 64).half(),), lx_frac_avail=1.0)
    told = {remark.reason for remark in program.remarks if remark.kind == "spill"}
    reasons = {"; ".join(buffer.reasons) for buffer in lx_map(program.bundle).spilled}
    assert reasons and "" not in reasons and reasons < told


def test_the_capacity_is_what_the_backend_leaves():
    assert lx_map(by_hand()).capacity == 1625344
    assert lx_map(by_hand(), 0.0).capacity == 2097152 - 65536


def test_a_bundle_that_does_not_fit_together_is_an_error():
    with pytest.raises(CompileError, match="2 uses; expected one for each of 5 executes"):
        lx_map(manifest(by_hand(), uses=by_hand().manifest.uses[:2]))
    with pytest.raises(CompileError, match="frobnicate"):
        lx_map(design(by_hand(), opcode="frobnicate"))


# -- drawing -----------------------------------------------------------------------------------------------


def drawn(found: LxMap) -> ElementTree.Element:
    return ElementTree.fromstring(picture(found))


def texts(root: ElementTree.Element) -> list[str]:
    return [text.text or "" for text in root.iter(f"{SVG}text")]


def boxes(root: ElementTree.Element) -> dict[str, tuple[float, float, float, float]]:
    """x, y, width and height of each buffer; each has one box."""
    groups = [group for group in root.iter(f"{SVG}g") if group.get("class") == "buffer"]
    names = [group.get("data-buffer", "") for group in groups]
    assert len(names) == len(set(names))
    rectangles = [group.find(f"{SVG}rect") for group in groups]
    return {
        name: tuple(float(r.get(key, "")) for key in ("x", "y", "width", "height"))  # type: ignore[misc]
        for name, r in zip(names, rectangles, strict=True)
        if r is not None
    }


def random_chain(seed: int, steps: int) -> Bundle:
    """Return a chain whose buffers are in random slots of their size, many in place of the buffer before."""
    rng = random.Random(seed)
    slot, buffers = 0, []
    for number in range(steps):
        slot = slot if rng.random() < 0.4 else rng.randrange(1 << rng.randint(1, 7))
        buffers.append((f"b{number}", 64, slot * 8192))
    return chained(*buffers)


MAPS = {
    "by hand": lambda: by_hand(),
    "softmax on 1 core": lambda: softmax(1).bundle,
    "softmax on 32 cores": lambda: softmax(32).bundle,
    "nothing in LX": bundles.loop_bundle,
    **{f"chain of {steps}": functools.partial(random_chain, steps, steps) for steps in (1, 7, 40, 60, 500)},
}


@functools.cache
def map_of(name: str) -> LxMap:
    return lx_map(MAPS[name]())


def page(bundle: Bundle, name: str = "") -> str:
    return lx_page(program_facts(bundle), bundle, name)


@pytest.mark.parametrize("name", MAPS)
def test_each_buffer_is_one_box(name):
    """The buffers of a chain begin in the middle of the step in which they take the address."""
    found = map_of(name)
    places = boxes(drawn(found))
    assert set(places) == {buffer.name for buffer in found.placed}
    for chain in found.chains:
        for parent, child in itertools.pairwise(chain):
            left, right = places[parent.name][0], places[parent.name][0] + places[parent.name][2]
            column = 1070 / len(found.steps)
            assert left < places[child.name][0] == pytest.approx(right - column / 2, abs=0.1)


def test_boxes_are_to_scale():
    """A handwritten map: a pair in place meets in the middle of step 2; a quarter of the bytes is a quarter high."""
    places = boxes(drawn(lx_map(by_hand())))
    (left, a_top, _, a_height), b, r = (places[name] for name in "abr")
    column = (b[0] - left) / 2.5
    assert r[0] == pytest.approx(left + column, abs=0.1) and r[2] == pytest.approx(2 * column, abs=0.1)
    assert b[0] + b[2] == pytest.approx(left + 4 * column, abs=0.1)
    assert a_height == b[3] == pytest.approx(4 * r[3], abs=0.1)
    assert a_top == pytest.approx(r[1] + r[3] + a_height, abs=0.1)


def extents(root: ElementTree.Element) -> list[tuple[str, float, float, float, float]]:
    """Return text, left, top, right and bottom of displayed texts; 6.2 pixels a character, 9 above the line."""
    found = []
    for element in root.iter(f"{SVG}text"):
        text = element.text or ""
        width = len(text) * (9.5 if element.get("class") == "heading" else 6.2)
        before = {"start": 0, "middle": width / 2, "end": width}[element.get("text-anchor", "start")]
        turned = re.match(r"translate\((\S+) (\S+)\) rotate\(-90\)", element.get("transform", ""))
        if turned:
            x, y = map(float, turned.groups())
            found.append((text, x - 9, y - width + before, x + 2, y + before))
        else:
            x, y = float(element.get("x", "")), float(element.get("y", ""))
            found.append((text, x - before, y - 9, x - before + width, y + 2))
    return found


@pytest.mark.parametrize("name", MAPS)
def test_the_load_lies_below_the_high_water(name):
    """Fragmentation of valid bundles, in which no buffers overlap, is never negative."""
    assert list(lx_overlap(Context(MAPS[name]()))) == []
    assert min(map_of(name).occupancy(0).fragmentation) >= 0


@pytest.mark.parametrize("name", MAPS)
def test_texts_do_not_overlap(name):
    root = drawn(map_of(name))
    for one, other in itertools.combinations(extents(root), 2):
        apart = one[3] <= other[1] or other[3] <= one[1] or one[4] <= other[2] or other[4] <= one[2]
        assert apart, f"'{one[0]}' lies over '{other[0]}'"
    assert int(root.get("width", "")) <= 1250 and int(root.get("height", "")) <= 800


@pytest.mark.parametrize(("steps", "every"), [(7, 1), (40, 2), (60, 3), (500, 22)])
def test_labels_of_steps_thin_out(steps, every):
    """As many labels as fit are shown, at equal distances."""
    shown = [
        text.split()[0]
        for text in texts(drawn(map_of(f"chain of {steps}")))
        if re.fullmatch(r"\d+( exp)?", text)
    ]
    assert shown == [str(step) for step in range(0, steps, every)]


def test_tooltips_say_where_a_buffer_comes_from():
    debug = bundles.DebugHandle("0", "model.py", 12, 5)
    root = drawn(lx_map(design(by_hand(), 2, debug=debug)))
    tips = [g.findtext(f"{SVG}title") for g in root.iter(f"{SVG}g") if g.get("class") == "buffer"]
    assert tips[2] == (
        "b: sub (step 2)\n32,768 bytes at 0 to 32,768\nlive from step 2 to 3, on 2 cores\n"
        "in place of a\nmodel.py:12:5"
    )


def test_a_buffer_beyond_the_capacity_is_drawn_above_its_line():
    root = drawn(lx_map(by_hand(), 0.98))
    _, top, _, _ = boxes(root)["r"]
    (line,) = (path for path in root.iter(f"{SVG}path") if path.get("class") == "capacity")
    assert top < float(line.get("d", "").split()[2])


def test_fills_have_contrast():
    """The contrast of WCAG is 7 to 1 for texts on fills, and adjacent fills of the legend differ in grey too."""
    light = [_luminance(fill) for fill in FILLS.values()]
    assert all((each + 0.05) / (_luminance("#1a1a1a") + 0.05) >= 7 for each in light)
    assert all(abs(one - other) >= 0.04 for one, other in itertools.pairwise(light))


# -- the page ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MAPS)
def test_the_page_is_one_file_of_well_formed_xml(name):
    """The page loads no files: it has no source and no link, except the name of the language of the picture."""
    text = page(MAPS[name]())
    root = ElementTree.fromstring(text)
    assert not any({"src", "{http://www.w3.org/1999/xlink}href"} & set(each.keys()) for each in root.iter())
    assert all(each.get("href", "#").startswith("#") for each in root.iter())
    assert set(re.findall(r"\w+://[^\"<\s]+", text)) == {"http://www.w3.org/2000/svg"}
    assert "@import" not in text and not re.search(r"url\((?!#)", text)


def test_the_tables_list_each_buffer_and_why_it_is_spilled():
    made = by_hand()
    named = [
        replace(each, reasons=("too <large>", "lost") if each.name == "p" else ())
        for each in made.manifest.buffers
    ]
    root = ElementTree.fromstring(page(manifest(made, buffers=tuple(named)), "a<b"))
    tables = {table.get("id"): list(table.iter("tr"))[1:] for table in root.iter("table")}
    assert [["".join(cell.itertext()) for cell in row] for row in tables["spilled-table"]] == [
        ["p", "abs (step 3)", "3 to 4", "65,536", "65,536", "65,536", "too <large>; lost"]
    ]
    assert [row[0].text for row in tables["placed-table"]] == ["a", "r", "b"]
    assert root.findtext("head/title") == "LX map of a<b"


def test_the_chosen_core_has_its_own_curves():
    """A program on 2 cores whose last operation runs on one: core 1 holds less."""
    program = Program()
    program.tensor("x", {"mb": 128, "out": 256}, kind="input")
    program.tensor("a", {"mb": 128, "out": 256}, lx=0)
    program.tensor("b", {"mb": 128, "out": 256}, lx=65536)
    program.op("exp", "x", "a", splits={"mb": 2})
    program.op("exp", "x", "b")
    bundle = program.bundle()
    facts = program_facts(bundle)
    assert facts.map.core_groups() == [(0, 0), (1, 1)]
    groups = page_data(facts, bundle)["lx"]["groups"]
    assert [(first, last, max(high)) for first, last, _, high in groups] == [(0, 0, 131072), (1, 1, 32768)]
    root = ElementTree.fromstring(page(bundle))
    sliders = [each for each in root.iter("input") if each.get("class") == "core"]
    assert [(each.get("min"), each.get("max")) for each in sliders] == [("0", "31")]


def test_a_program_without_buffers_in_lx_says_so():
    assert "No buffer of this program is in LX." in page(MAPS["nothing in LX"]())
    assert "No buffer of this program is in LX." in picture(map_of("nothing in LX"))
    empty = Bundle((), (), {}, Manifest((), (), ()))
    assert "0 steps. 0 buffers in LX" in picture(lx_map(empty))
    assert "nothing is in the scratchpads" in page(empty)
