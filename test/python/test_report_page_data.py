# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Data for the script of the page: lines of the bundle and of sources, remarks by operation, owners, bars."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace

import bundles
import pytest
from simulator_programs import Program
from test_report_page import llama_block, made, softmax

from spyre_mlir.bundle.folder import write_bundle
from spyre_mlir.bundle.model import KERNEL, Origin
from spyre_mlir.remarks import Remark
from spyre_mlir.report.page_data import execute_lines, json_text, page_data, remark_steps, source_lines
from spyre_mlir.report.program_facts import ProgramFacts, program_facts


def rows(data, kind: str, name: str | None = None) -> list[dict]:
    """Rows with the names of their fields, texts in place of their numbers."""
    fields = data["fields"][kind]
    return [
        {
            field.lstrip("$"): data["texts"][value] if field.startswith("$") else value
            for field, value in zip(fields, row, strict=True)
        }
        for row in data[name or f"{kind}s"]
    ]


@pytest.mark.parametrize("make", [*bundles.GOOD.values(), lambda: softmax().bundle])
def test_lines_of_executes_are_those_of_the_file(tmp_path, make):
    """Each is the line of its execute; the lines before it are addresses; no line occurs twice."""
    bundle = make()
    write_bundle(bundle, tmp_path / "a")
    lines = (tmp_path / "a" / "bundle.mlir").read_text(encoding="utf-8").splitlines()
    found = execute_lines(bundle)
    assert [each.last for each in found] == [
        number for number, line in enumerate(lines, 1) if "sdsc_execute" in line
    ]
    for each in found:
        assert lines[each.last - 1].strip().startswith(each.text.removesuffix(" …"))
        assert all("arith." in line or "affine." in line for line in lines[each.first - 1 : each.last - 1])
    assert all(before.last < after.first for before, after in itertools.pairwise(found))


def test_lines_around_a_place_are_those_of_the_source(tmp_path):
    (tmp_path / "a.py").write_text("".join(f"line {number}\n" for number in range(1, 31)))
    found = source_lines([(str(tmp_path / "a.py"), 2), (str(tmp_path / "a.py"), 20)])
    assert found == {
        str(tmp_path / "a.py"): {number: f"line {number}" for number in (*range(1, 7), *range(16, 25))}
    }


def test_lines_end_where_an_editor_ends_them(tmp_path):
    """A form feed does not end a line, and a Windows line end counts once; bytes that are not text are replaced."""
    (tmp_path / "a.py").write_bytes(b"one\x0c\r\ntwo \xff\r\nthree\n")
    (found,) = source_lines([(str(tmp_path / "a.py"), 2)]).values()
    assert found == {1: "one\x0c", 2: "two \N{REPLACEMENT CHARACTER}", 3: "three", 4: ""}


@pytest.mark.parametrize("file", ["-", "no such file", "."])
def test_a_source_that_cannot_be_read_has_no_lines(file):
    assert source_lines([(file, 1)]) == {file: {}}


def test_of_many_places_only_the_lines_themselves_are_told(tmp_path):
    path = tmp_path / "a.py"
    path.write_text("x\n" * 9000)
    assert sorted(source_lines((str(path), at) for at in range(1, 9001, 3))[str(path)]) == [
        *range(1, 9001, 3)
    ]


def test_remarks_are_about_the_operations_of_their_line():
    """All of them, or those whose opcode begins the reason; a remark of another line is about none."""
    program = softmax()
    place = program.remarks[0].op_location
    remarks = [
        Remark("p", place, "op", "kind", "something"),
        Remark("p", place, "op", "kind", "'exp' runs on 8 cores"),
        Remark("p", place.replace(".py:", ".py:9"), "op", "kind", "something"),
        Remark("p", "", "op", "kind", "something"),
    ]
    facts = program_facts(program.bundle, remarks)
    exp = [each.position for each in facts.operations if each.opcode == "exp"]
    every = tuple(range(len(facts.operations)))
    assert remark_steps(facts) == [every, tuple(exp), (), ()]


def test_remarks_are_about_the_operations_of_their_module():
    """Two executes of one line, as of a layer that is called twice, have the remarks of their own modules."""
    bundle = bundles.add_bundle()
    (execute,) = (each for each in bundle.statements if hasattr(each, "filename"))
    twice = replace(
        bundle,
        statements=(*bundle.statements, execute),
        manifest=replace(bundle.manifest, uses=bundle.manifest.uses * 2),
    )
    origins = [Origin("model.py", 12, 5, module=module) for module in ("layers.0", "layers.1")]
    twice = replace(twice, manifest=twice.manifest.with_origins(origins))
    remarks = [
        Remark("p", "model.py:12:5", "op", "kind", "why", module=module)
        for module in ("layers.1", "layers.2")
    ]
    assert remark_steps(program_facts(twice, remarks)) == [(1,), ()]


def test_owners_of_operands_say_what_cores_share():
    """A matmul in 2 slices of rows and 4 of the reduced dim, on 8 cores."""
    program = Program()
    program.tensor("a", {"mb": 128, "in": 256}, stick="in", kind="input")
    program.tensor("b", {"in": 256, "out": 128}, kind="input")
    program.tensor("c", {"mb": 128, "out": 128}, kind="result")
    program.op("batchmatmul", "a", "b", "c", splits={"mb": 2, "in": 4})
    bundle = program.bundle()
    (filename, design), *_ = bundle.designs.items()
    left, right, result = design.operands
    design = replace(design, operands=(left, replace(right, role=KERNEL), result))
    bundle = replace(bundle, designs={filename: design})
    data = page_data(program_facts(bundle), bundle)
    (operation,) = rows(data, "operation")
    told = rows({**data, "operands": operation["operands"]}, "operand")
    assert [each["owners"] for each in told] == [
        "mb 2 x 64, in 4 x 64", "in 4 x 64; 2 cores share each part", "mb 2 x 64; 4 cores add up each part",
    ]  # fmt: skip


def test_owners_of_what_a_shuffle_takes_are_those_that_hold_it():
    """exp writes rows, abs reads columns; the data also has the load of each link, from core to core."""
    bundle = bundles.relayout_bundle()
    data = page_data(program_facts(bundle), bundle)
    shuffle = rows(data, "operation")[1]
    told = rows({**data, "operands": shuffle["operands"]}, "operand")
    assert [each["owners"] for each in told] == ["mb 2 x 64", "out 2 x 128"]
    carried = [link for link in data["timeline"]["links"] if link[2]]
    assert carried == [(0, 1, 16384, 85333), (1, 0, 16384, 85333)]
    assert len(data["timeline"]["links"]) == 64


def _facts(name: str) -> tuple[ProgramFacts, dict]:
    program = {"softmax": softmax, "llama_block": llama_block}[name]()
    return made(name)[0], page_data(made(name)[0], program.bundle)


@pytest.mark.parametrize("name", ["softmax", "llama_block"])
def test_bars_are_those_of_the_events(name):
    """The bars of the first core: its times of computation, restored from differences."""
    facts, data = _facts(name)
    found = dict(data["timeline"]["tracks"][0])["compute"]
    begins = [*itertools.accumulate(gap for gap, *_ in found)]
    events = sorted(
        (each.body_begin, facts.operations[each.job.position].execution.core_ps[0], each.job.position)
        for each in facts.timeline.run.events
    )
    told = [(begin, length, operation) for begin, (_, length, operation) in zip(begins, found, strict=True)]
    assert told == [each for each in events if each[1]]


def test_a_core_has_tracks_of_what_it_runs_only():
    """The first operation is on four cores, the second on two. The memory has one track for all cores: it reads and
    writes for both, because a core does not have the results of another."""
    program = Program()
    program.tensor("x", {"mb": 128, "out": 256}, kind="input")
    program.tensor("y", {"mb": 128, "out": 256})
    program.tensor("z", {"mb": 128, "out": 256}, kind="result")
    program.op("exp", "x", "y", splits={"mb": 4})
    program.op("neg", "y", "z", splits={"mb": 2})
    bundle = program.bundle()
    data = page_data(program_facts(bundle), bundle)["timeline"]
    assert data["groups"] == ((0, 1), (2, 3))
    for tracks, own in zip(data["tracks"], ([0, 1], [0]), strict=True):
        on = {name: [bar[2] for bar in bars] for name, bars in tracks}
        assert on["load"] == on["compute"] == on["store"] == own
        assert on["memory read"] == on["memory write"] == [0, 1]


@pytest.mark.parametrize("name", ["softmax", "llama_block"])
def test_operations_and_boxes_are_those_of_the_facts(name):
    facts, data = _facts(name)
    buffers = [each["name"] for each in rows(data, "buffer")]
    for operation, row in zip(facts.operations, rows(data, "operation"), strict=True):
        operands = rows({**data, "operands": row["operands"]}, "operand")
        assert [buffers[each["buffer"]] for each in operands] == list(operation.buffers)
        assert (row["opcode"], row["read"], row["ps"]) == (
            operation.opcode, operation.read_bytes, operation.execution.shares.total,
        )  # fmt: skip
    boxes = rows({**data, "boxes": data["lx"]["boxes"]}, "box", "boxes")
    assert [(buffers[each["buffer"]], each["address"], each["last"]) for each in boxes] == [
        (each.name, each.address, each.last) for each in facts.map.placed
    ]


def test_markup_in_data_is_no_markup():
    text = json_text({"a": "</script><!-- & ]]>"})
    assert not set("<>&") & set(text) and json.loads(text) == {"a": "</script><!-- & ]]>"}
