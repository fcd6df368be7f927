# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The page about a program: its numbers against the simulator and the plan, its form."""

from __future__ import annotations

import functools
import itertools
import json
import random
import re
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import bundles
import numpy as np
import programs
import pytest
import torch
from looped import LOOPED, looped
from programs import Apply
from simulator_programs import Program
from test_lx_map import SVG, extents

import spyre_mlir
from spyre_mlir.bundle import read_bundle
from spyre_mlir.bundle.folder import read_remarks, write_bundle
from spyre_mlir.bundle.model import Bundle, Manifest
from spyre_mlir.bundle.validate import validate
from spyre_mlir.errors import CompileError
from spyre_mlir.remarks import Remark, Remarks
from spyre_mlir.report.lx_map import lx_map, picture
from spyre_mlir.report.page import PANELS, ResultAxis, lx_page, owners, page
from spyre_mlir.report.program_facts import ProgramFacts, program_facts
from spyre_mlir.report.timeline_picture import tracks
from spyre_mlir.simulator import run
from spyre_mlir.timeline import timeline

X = np.zeros((512, 1024), np.float16)


@functools.cache
def softmax() -> spyre_mlir.Program:
    return spyre_mlir.compile(Apply(lambda x: torch.softmax(x, 0)).half(), (torch.from_numpy(X),), sencores=8)


@functools.cache
def llama_block() -> spyre_mlir.Program:
    model, inputs = programs.PROGRAMS["llama_block"]()
    return spyre_mlir.compile(model, inputs)


def facts_of(program: spyre_mlir.Program) -> tuple[ProgramFacts, Bundle]:
    return program.facts(), program.bundle


def facts_alone(bundle: Bundle) -> tuple[ProgramFacts, Bundle]:
    """Return the facts of a bundle without other information."""
    return program_facts(bundle), bundle


def chain(operations: int) -> Bundle:
    """A sequence of operations on one core; half of their results are in LX."""
    rng, program = random.Random(operations), Program()
    names = ["x", *(f"t{number}" for number in range(operations))]
    program.tensor("x", {"mb": 64, "out": 64}, kind="input")
    for number, name in enumerate(names[1:]):
        place = {"lx": number % 2 * 8192} if rng.random() < 0.5 else {}
        program.tensor(name, {"mb": 64, "out": 64}, **place)
    for read, written in itertools.pairwise(names):
        program.op(rng.choice(("exp", "abs", "neg")), read, written)
    return program.bundle()


PROGRAMS: dict[str, Callable[[], tuple[ProgramFacts, Bundle]]] = {
    "softmax": lambda: facts_of(softmax()),
    "llama_block": lambda: facts_of(llama_block()),
    **{name: lambda make=make: facts_alone(make()) for name, make in bundles.GOOD.items()},
    **{name: lambda name=name: facts_of(looped(name).program) for name in LOOPED},
    "chain of 400": lambda: facts_alone(chain(400)),
    "relayout": lambda: facts_alone(bundles.relayout_bundle()),
    "no operation": lambda: facts_alone(Bundle((), (), {}, Manifest((), (), ()))),
}


@functools.cache
def made(name: str) -> tuple[ProgramFacts, str]:
    facts, bundle = PROGRAMS[name]()
    return facts, page(facts, bundle, name)


def parsed(text: str) -> ElementTree.Element:
    return ElementTree.fromstring(text)


def data_of(root: ElementTree.Element) -> dict[str, Any]:
    """Return the data that the script of the page draws."""
    (found,) = (each for each in root.iter("script") if each.get("id") == "data")
    return json.loads(found.text or "")


def section(root: ElementTree.Element, name: str) -> ElementTree.Element:
    (found,) = (each for each in root.iter("section") if each.get("id") == name)
    return found


def rows(root: ElementTree.Element, table: str) -> list[list[str]]:
    (found,) = (each for each in root.iter("table") if each.get("id") == table)
    return [["".join(cell.itertext()) for cell in row] for row in found.findall("tbody/tr")]


def operation_rows(root: ElementTree.Element) -> list[dict[str, str]]:
    """The rows of the table of operations by the names of its columns, in the order of the program."""
    (table,) = (each for each in root.iter("table") if each.get("id") == "operations-table")
    names = ["".join(head.itertext()) for head in table.iter("th")]
    found = [dict(zip(names, row, strict=True)) for row in rows(root, "operations-table")]
    return sorted(found, key=lambda row: int(row["step"].replace(",", "")))


def numbers(table: list[dict[str, str]], column: str) -> list[int]:
    return [int(row[column].replace(",", "")) for row in table]


# -- numbers -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_operation_is_in_the_table_once(name):
    facts, text = made(name)
    table = operation_rows(parsed(text))
    assert [(row["step"], row["operation"]) for row in table] == [
        (str(step.position), step.opcode) for step in facts.map.steps
    ]


@pytest.mark.parametrize(
    ("name", "bundle", "arrays"),
    [
        ("softmax", lambda: softmax().bundle, {"inputs_0": X}),
        ("loop", bundles.loop_bundle, {"x": np.zeros((1024, 256), np.float16)}),
    ],
)
def test_traffic_is_that_of_the_simulator(name, bundle, arrays):
    """Each row of the table, its sum and the summary; the runs of a loop count."""
    ran = run(bundle(), arrays).statistics
    root = parsed(made(name)[1])
    table = operation_rows(root)
    executes = [ran.executes[position] for position in sorted(ran.executes)]
    assert numbers(table, "read (B)") == [each.read_bytes for each in executes]
    assert numbers(table, "written (B)") == [each.write_bytes for each in executes]
    told = f"{ran.read_bytes:,} bytes read, {ran.write_bytes:,} written"
    assert told in "".join(section(root, "summary").itertext())


@pytest.mark.parametrize("name", PROGRAMS)
def test_traffic_and_spills_are_those_of_the_plan(name):
    facts, text = made(name)
    root = parsed(text)
    table = operation_rows(root)
    assert (
        sum(numbers(table, "read (B)")) + sum(numbers(table, "written (B)"))
        == facts.map.argument_traffic + facts.map.spilled_traffic
    )
    assert sum(numbers(table, "spill (B)")) == facts.map.spilled_traffic
    assert f"which move {facts.map.spilled_traffic:,} bytes" in "".join(section(root, "summary").itertext())


def test_loops_are_on_the_page():
    """Brackets over the LX map, how often each operation runs in the table and what opens on a click."""
    _, text = made("hints")
    root = parsed(text)
    runs = [8, 24, 24, 8]
    assert numbers(operation_rows(root), "runs") == runs
    assert "8 x 3 iterations" in "".join(section(root, "summary").itertext())
    data = data_of(root)
    field = data["fields"]["operation"].index("$iterations")
    assert [data["texts"][row[field]] for row in data["operations"]] == ["8", "8 x 3", "8 x 3", "8"]
    assert data["lx"]["loops"] == [[0, 3, 8, 0], [1, 2, 3, 1]]


def test_a_loop_of_thousands_of_iterations_is_a_small_page():
    """Repeated iterations are shown once: 65,000 iterations take the space of 100, except for longer numbers."""
    short, long = (page(*facts_alone(bundles.loop_bundle(tiles))) for tiles in (100, 65_000))
    assert len(long) < len(short) + 1000


def test_the_time_of_the_operations_is_that_of_the_timeline():
    facts, text = made("llama_block")
    table = operation_rows(parsed(text))
    times = [float(row["time (µs)"].replace(",", "")) for row in table]
    assert sum(times) == pytest.approx(facts.timeline.total_ns / 1000, abs=0.001 * len(times))
    assert sum(float(row["share (%)"]) for row in table) == pytest.approx(100, abs=0.05 * len(table))


def test_the_table_of_operations_begins_with_what_takes_longest():
    """With its shape and its type: the matmul of the block by its largest weights, in the dims of the device."""
    times = [
        float(row[5].replace(",", "")) for row in rows(parsed(made("llama_block")[1]), "operations-table")
    ]
    assert times == sorted(times, reverse=True)
    table = operation_rows(parsed(made("llama_block")[1]))
    product = next(row for row in table if (row["module"], row["operation"]) == ("q", "batchmatmul"))
    assert [product[name] for name in ("module", "shape", "dtype")] == [
        "q",
        "in 512, mb 512, out 128",
        "fp16",
    ]
    assert table[1]["dtype"] == "fp16 → fp32"


def test_a_core_owns_its_part_of_the_result():
    """Over mb in 4 and out in 2: what each element's core is, by the slices of the design."""
    program = Program()
    program.tensor("x", {"mb": 128, "out": 256}, kind="input")
    program.tensor("z", {"mb": 128, "out": 256}, kind="result")
    design = program.op("exp", "x", "z", splits={"mb": 4, "out": 2})
    found = owners(design)
    assert (found.rows, found.columns) == (ResultAxis("out", 256, 2, 128), ResultAxis("mb", 128, 4, 32))
    for core, own in enumerate(design.core_slices):
        assert found.cells[own["out"]][own["mb"]] == (core,)


def test_cores_that_split_a_reduced_dim_share_a_part():
    program = Program()
    program.tensor("a", {"mb": 128, "in": 256}, stick="in", kind="input")
    program.tensor("b", {"in": 256, "out": 128}, kind="input")
    program.tensor("c", {"mb": 128, "out": 128}, kind="result")
    found = owners(program.op("batchmatmul", "a", "b", "c", splits={"mb": 2, "in": 4}))
    assert [axis.dim for axis in found.reduced] == ["in"] and found.rows is None
    assert found.cells == (((0, 2, 4, 6), (1, 3, 5, 7)),)


@pytest.mark.parametrize("least", [1, 10**5, 10**6, 10**9])
def test_bars_that_are_put_together_lose_nothing(least):
    """Merged bars keep all time and all bars, for any resolution; no short bar is too close to the bar before."""
    found = timeline(llama_block().bundle)
    exact, merged = (tracks(found, width) for width in (0, least))
    assert exact.keys() == merged.keys() and "compute" in exact
    for name, bars in merged.items():
        assert sum(bar.bars for bar in bars) == len(exact[name])
        assert sum(bar.busy for bar in bars) == sum(bar.end - bar.begin for bar in exact[name])
        assert all(
            after.begin - before.begin >= least or after.end - after.begin >= least
            for before, after in itertools.pairwise(bars)
        )
        assert all(0 <= bar.begin < bar.end <= found.run.total for bar in bars)


# -- form --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_page_is_one_file_of_well_formed_xml(name):
    """The page loads no files: links are internal; identifiers are unique, no panel is empty."""
    facts, text = made(name)
    root = parsed(text)
    assert all(each.get("href", "#").startswith("#") and each.get("src") is None for each in root.iter())
    assert set(re.findall(r"\w+://[^\"<\s]+", text)) <= {"http://www.w3.org/2000/svg"}
    assert "@import" not in text and not re.search(r"url\((?!#)", text)
    identifiers = [each.get("id") for each in root.iter() if each.get("id")]
    assert len(identifiers) == len(set(identifiers))
    shown = [each for each in root.iter("section")]
    measured = name in ("softmax", "llama_block", *LOOPED)
    there = {"passes": measured, "ring": any(each.execution.links for each in facts.operations)}
    there |= {"findings": bool(facts.findings), "modules": any(each.module for each in facts.operations)}
    there["provenance"] = there["kinds"] = bool(facts.operations)
    wanted = [each for each, *_ in PANELS if there.get(each, True)]
    assert [each.get("id") for each in shown] == wanted
    assert all(len("".join(each.itertext())) > len(each.findtext("h2", "")) + 20 for each in shown)


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("panel", ["division", "ring", "roofline"])
def test_texts_of_a_picture_do_not_overlap(name, panel):
    """Checked with estimated widths of texts; a browser measures the texts of all pictures."""
    facts, text = made(name)
    if panel == "ring" and not facts.timeline.links:
        return
    # Pictures that the script draws do not have a width yet.
    pictures = [each for each in section(parsed(text), panel).iter(f"{SVG}svg") if each.get("width")]
    for drawn in pictures:
        for one, other in itertools.combinations(extents(drawn), 2):
            apart = one[3] <= other[1] or other[3] <= one[1] or one[4] <= other[2] or other[4] <= one[2]
            assert apart, f"'{one[0]}' lies over '{other[0]}'"
        assert int(drawn.get("width", "")) <= 1240


def test_the_links_of_the_ring_say_what_they_carry():
    """Two cores exchange a quarter of a tensor of 64 KiB; other links carry nothing."""
    facts, text = made("relayout")
    panel = section(parsed(text), "ring")
    told = [title.text or "" for title in panel.iter(f"{SVG}title")]
    share = 16384 / 192 / facts.timeline.total_ns
    assert [told[0], told[32]] == [
        f"core {way}: 16,384 bytes, {share:.1%} of the time" for way in ("0 to 1", "1 to 0")
    ]
    assert told[31] == "core 31 to 0: 0 bytes, 0.0% of the time" and len(told) == 64
    assert "1 shuffle; most from core 0 to 1: 16,384 bytes." in "".join(panel.itertext())
    fills = [rect.get("fill") for rect in panel.iter(f"{SVG}rect")]
    assert fills[0] == fills[32] != fills[1] and len(set(fills)) == 2


def test_names_with_markup_are_escaped():
    bundle = bundles.add_bundle()
    names = {each.name: f"<{each.name}&" for each in bundle.manifest.buffers}
    renamed = tuple(replace(each, name=names[each.name]) for each in bundle.manifest.buffers)
    uses = tuple(tuple(names[name] for name in use) for use in bundle.manifest.uses)
    odd = replace(bundle, manifest=replace(bundle.manifest, buffers=renamed, uses=uses))
    root = parsed(page(program_facts(odd, [Remark("a<b", "f&g:1", "op", "kind", "]]> why")]), odd, "a<b"))
    assert root.findtext("head/title") == "Report of a<b"
    assert rows(root, "remarks-table")[0][0] == "a<b"
    assert {"<x&", "<y&"} <= set(data_of(root)["texts"])


def test_the_same_program_gives_the_same_page():
    assert page(*PROGRAMS["softmax"](), "softmax") == made("softmax")[1]


def test_a_program_of_5000_operations_is_small():
    """The page has merged bars; benchmarks/pages.py measures seconds."""
    bundle = chain(5000)
    text = page(program_facts(bundle), bundle)
    assert len(text.encode()) < 5_000_000
    root = parsed(text)
    assert len(rows(root, "operations-table")) == 5000
    assert sum(1 for _ in root.iter(f"{SVG}g")) < 10_000


def test_a_program_writes_its_page(tmp_path):
    assert softmax().report(tmp_path / "softmax.html") == tmp_path / "softmax.html"
    assert (tmp_path / "softmax.html").read_text(encoding="utf-8") == made("softmax")[1]
    with pytest.raises(CompileError, match="cannot be written"):
        softmax().report(tmp_path / "nowhere" / "page.html")


def test_a_bundle_that_does_not_fit_together_is_an_error():
    bundle = bundles.add_bundle()
    with pytest.raises(CompileError, match="uses"):
        program_facts(replace(bundle, manifest=replace(bundle.manifest, uses=())))


# -- remarks -----------------------------------------------------------------------------------------------


def test_remarks_are_saved_beside_the_bundle_and_change_nothing(tmp_path):
    """The folder reads back as the same bundle, is valid, and is the same when it is written again."""
    program = softmax()
    for folder in ("a", "b"):
        program.save(tmp_path / folder)
    assert read_bundle(tmp_path / "a") == program.bundle and not validate(read_bundle(tmp_path / "a"))
    assert read_remarks(tmp_path / "a") == program.remarks != []
    first, second = ((tmp_path / folder / "remarks.jsonl").read_bytes() for folder in ("a", "b"))
    assert first == second


def test_a_folder_without_remarks_has_none(tmp_path):
    write_bundle(bundles.add_bundle(), tmp_path / "a")
    assert not (tmp_path / "a" / "remarks.jsonl").exists() and read_remarks(tmp_path / "a") == []
    assert "There are no decisions" in made("add")[1]


@pytest.mark.parametrize("line", ["{", "[]", '{"pass_name": "a"}', '{"pass_name": 1}', "null"])
def test_a_damaged_line_of_remarks_is_an_error(tmp_path, line):
    good = Remarks([Remark("a", "b", "c", "d", "e", 1, 2.5)]).json_lines()
    (tmp_path / "remarks.jsonl").write_text(f"{good}{line}\n")
    with pytest.raises(CompileError, match="Line 2 is not a remark"):
        read_remarks(tmp_path)


def test_a_remark_with_a_wrong_type_is_an_error():
    text = Remarks([Remark("a", "b", "c", "d", "e", 1)]).json_lines().replace('"e"', "5")
    with pytest.raises(ValueError, match="Line 1 is not a remark: a field has the wrong type"):
        Remarks.from_json_lines(text)


def test_the_table_has_every_remark_and_the_passes_their_times():
    program = llama_block()
    root = parsed(made("llama_block")[1])
    table = rows(root, "remarks-table")
    # Equal decisions are one row, with their number.
    groups = Counter(
        (each.pass_name, each.kind, each.op_name, each.reason, each.before, each.after)
        for each in program.remarks
    )
    assert [(row[0], row[1], row[3], row[4]) for row in table] == [
        (pass_name, kind, reason, f"{number:,}")
        for (pass_name, kind, _, reason, *_), number in groups.items()
    ]
    assert len(groups) < len(program.remarks)
    bars = [text for text in section(root, "passes").iter(f"{SVG}text") if " ms, " in (text.text or "")]
    assert len(bars) == len(program.passes) > 10


HOSTILE = '</script><script>alert(1)</script><img src=x onerror="alert(2)">\'&amp;'


@functools.cache
def hostile() -> spyre_mlir.Program:
    """Return a program whose argument and file have names that a browser would run."""
    name = json.dumps(HOSTILE)
    text = f"""func.func @main(%x: tensor<64x64xf16> {{spyre.name = {_mlir(name)}}}) -> tensor<64x64xf16> {{
  %e = tensor.empty() : tensor<64x64xf16>
  %y = linalg.exp ins(%x : tensor<64x64xf16>) outs(%e : tensor<64x64xf16>) -> tensor<64x64xf16> loc(#at)
  %z = linalg.tanh ins(%y : tensor<64x64xf16>) outs(%e : tensor<64x64xf16>) -> tensor<64x64xf16> loc(#at)
  return %z : tensor<64x64xf16>
}}
#at = loc({_mlir(name)}:3:4)
"""
    return spyre_mlir.compile(text, sencores=2)


def _mlir(name: str) -> str:
    return name.replace('\\"', "\\22")


def check_harmless(text: str) -> None:
    """The page is well-formed, and has no elements or handlers but its own."""
    root = parsed(text)
    assert not [element for element in root.iter() if element.tag.endswith("img")]
    scripts = [element for element in root.iter() if element.tag.endswith("script")]
    assert all("alert(1)" not in (each.text or "") for each in scripts if each.get("type") is None)
    assert not [key for element in root.iter() for key in element.keys() if key.startswith("on")]
    assert "<script>alert" not in text and "<img" not in text


def test_names_from_files_are_text_on_the_page():
    """Names of arguments, places in the source, remarks: none of them is markup or ends the data of the script."""
    program = hostile()
    remarks = [Remark(HOSTILE, f"{HOSTILE}:1:2", HOSTILE, HOSTILE, HOSTILE, 1.0, 2.0), *program.remarks]
    facts = program_facts(program.bundle, remarks)
    text = page(facts, program.bundle, HOSTILE)
    assert HOSTILE in json.dumps(data_of(parsed(text)), ensure_ascii=False).replace('\\"', '"')
    check_harmless(text)


def test_names_from_files_are_text_on_the_other_pages():
    """The map of the scratchpads and the comparison of two bundles."""
    bundle = hostile().bundle
    for text in (lx_page(*facts_alone(bundle), HOSTILE), picture(lx_map(bundle))):
        check_harmless(text)
