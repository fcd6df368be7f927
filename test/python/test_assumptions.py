# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Assumptions about designs are data: pages name them by id, and the conformance check prints those of a bundle."""

from __future__ import annotations

import importlib
import json
import re
import sys
from pathlib import Path

import pytest
import torch
from programs import PROGRAMS

import spyre_mlir
from spyre_mlir.bundle.assumptions import ASSUMPTIONS, assumptions_of_folder
from spyre_mlir.tools import spyre_validate

DOCS = Path(__file__).parents[2] / "docs"

#: A sentence that begins with the word, on a page of the manual; rates of a device file are values, not sentences.
ASSUMED = re.compile(r"\bAssumed\b(?! rates?)\*?(?: \(([A-Z]\d+(?:, [A-Z]\d+)*)\))?")


def without_id(text: str) -> list[str]:
    """The places of a page that say *Assumed* without the ids of known assumptions."""
    return [
        text[match.start() : match.end() + 40]
        for match in ASSUMED.finditer(text)
        if not match[1] or not set(match[1].split(", ")) <= ASSUMPTIONS.keys()
    ]


def test_pages_say_assumed_with_an_id():
    assert {path.name: found for path in DOCS.rglob("*.md") if (found := without_id(path.read_text()))} == {}


@pytest.mark.parametrize(
    "text", ["Assumed: slices overlap.", "*Assumed*: x", "Assumed (W99): x", "Assumed W3: x"]
)
def test_an_assumption_without_a_known_id_is_found(text):
    assert len(without_id(text)) == 1


def test_the_table_of_concurrency_has_the_sentences_of_the_data():
    page = (DOCS / "concurrency.md").read_text()
    rows = dict(re.findall(r"^\| (C\d) \| (.*) \|$", page, re.MULTILINE))
    assert rows == {key: entry.sentence for key, entry in ASSUMPTIONS.items() if key.startswith("C")}


def test_the_page_of_assumptions_lists_all():
    sys.path.insert(0, str(DOCS / "generate"))
    page = importlib.import_module("references").pages()["assumptions"]
    sys.path.pop(0)
    assert re.findall(r"^\| \*\*(\w+)\*\*", page, re.MULTILINE) == list(ASSUMPTIONS)
    assert all(
        entry.searched and re.fullmatch(r"\d{4}-\d\d-\d\d", entry.date) for entry in ASSUMPTIONS.values()
    )


def ids(program: spyre_mlir.Program, folder: Path) -> set[str]:
    program.save(folder)
    return {key for _, key in assumptions_of_folder(folder)}


def pooled(padding: int, size: int) -> spyre_mlir.Program:
    return spyre_mlir.compile(
        torch.nn.MaxPool2d(3, 2, padding), (torch.ones(1, 64, size, size).half(),), sencores=1
    )


def convolved(stride: int, padding: int, size: int, cores: int) -> spyre_mlir.Program:
    model = torch.nn.Conv2d(64, 64, 3, stride=stride, padding=padding).half()
    return spyre_mlir.compile(model, (torch.ones(1, 64, size, size).half(),), sencores=cores)


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        (lambda: pooled(0, 11), set()),
        (lambda: pooled(0, 12), {"W1"}),
        (lambda: pooled(1, 11), {"W2", "W3", "W4"}),
        (lambda: convolved(1, 0, 18, 2), set()),
        (lambda: convolved(1, 1, 16, 2), {"W3", "W4"}),
        (lambda: convolved(2, 1, 16, 2), {"W3", "W4", "W5", "W6"}),
    ],
)
def test_a_windowed_design_rests_on_its_assumptions(build, expected, tmp_path):
    assert {key for key in ids(build(), tmp_path / "program") if key[0] == "W"} == expected


def test_a_gather_and_eight_bits_rest_on_theirs(tmp_path):
    assert ids(spyre_mlir.compile(*PROGRAMS["embedding"]()), tmp_path / "gather") >= {"D3", "D4"}
    numbers = torch.ones(128, 256).half()
    assert ids(spyre_mlir.compile(lambda x: x.to(torch.int8), (numbers,)), tmp_path / "int8") >= {"E1", "E2"}


def test_the_tool_prints_the_id(tmp_path, capsys):
    convolved(1, 1, 16, 2).save(tmp_path / "program")
    assert spyre_validate.main([str(tmp_path / "program"), "--conformance"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any(
        re.match(r"\S*sdsc_\d+\.json: rests on assumption W3 \(padding\): positions outside", line)
        for line in lines
    )


def test_json_that_is_not_a_design_rests_on_none(tmp_path):
    (tmp_path / "sdsc_0.json").write_text(json.dumps({"x": 1}))
    assert list(assumptions_of_folder(tmp_path)) == []
