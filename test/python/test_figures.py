# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The table of figures: each output prints the figures of the table, and no others."""

from __future__ import annotations

import contextlib
import functools
import io
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import bundles
import numpy as np
import programs
import pytest
import torch
from looped import LOOPED, looped

import spyre_mlir
from spyre_mlir.experiments.results import TIMES
from spyre_mlir.report.difference import _change_rows, difference
from spyre_mlir.report.figures import figures, names_of
from spyre_mlir.report.page import page
from spyre_mlir.report.program_facts import program_facts
from spyre_mlir.report.summary import summarize
from spyre_mlir.tools import spyre_plan, spyre_run

#: Rows of a summary that are not figures.
WORDS = {"finding", "cause", "where", "change", "saves"}


class Stepped(torch.nn.Module):
    """A model with a function of the host between two bundles."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.other = torch.nn.Linear(64, 64), torch.nn.Linear(64, 64)

    def forward(self, x):
        return self.other(torch.sin(self.one(x)))


@functools.cache
def stepped() -> spyre_mlir.Program:
    return spyre_mlir.compile(Stepped().half(), (torch.ones(8, 64).half(),))


@functools.cache
def llama() -> spyre_mlir.Program:
    return spyre_mlir.compile(*programs.PROGRAMS["llama_block_small"]())


def tiled() -> spyre_mlir.Program:
    return looped(next(iter(LOOPED))).program


def facts_of_examples():
    return [llama().facts(), tiled().facts(), program_facts(bundles.add_bundle())]


def row_names(text: str) -> set[str]:
    """The names at the beginning of lines, before two blanks; steps are named by their kind."""
    names = {
        re.split(r"  +", line.strip())[0] for line in text.splitlines() if re.match(r"\s{0,2}\S.*  ", line)
    }
    return {re.sub(r"_\d+$", "", name) for name in names}


def rest_of(output: str, found: set[str]) -> set[str]:
    return set(names_of(output)) ^ found


def test_the_table_has_each_figure_once_with_its_unit_and_meaning():
    rows = figures()
    assert len({(each.output, each.name) for each in rows}) == len(rows)
    assert all(each.unit and len(each.covers) > 8 for each in rows)


def test_metrics_and_sweeps():
    assert tuple(stepped().metrics()) == names_of("metrics")
    assert set(TIMES) <= {*names_of("metrics"), *names_of("sweep")}


def test_summaries():
    """Names are at the beginning of a line of the two columns; deeper lines belong to a name."""
    program = llama()
    program(*programs.PROGRAMS["llama_block_small"]()[1])
    texts = [program.summary(), stepped().summary()]
    texts += [summarize(facts, 0.1) for facts in facts_of_examples()]
    found = set()
    for text in texts:
        for line in text.splitlines():
            width = 16
            name = re.sub(r"_\d+$", "", line[:width].strip())
            if name and line[width - 2 : width] == "  " and not line.startswith(" " * 4):
                found.add(name)
    found -= {"", "---", *WORDS}
    assert found <= set(names_of("summary")), found - set(names_of("summary"))
    # Waits for buffers depend on the plan; the ring and loops are in one of the examples each.
    assert set(names_of("summary")) - found <= {"buffer waits"}


def test_the_page():
    """Cards, and the columns of numbers of each table."""
    cards, columns = set(), {}
    for facts, bundle in ((program.facts(), program.bundle) for program in (llama(), tiled())):
        root = ElementTree.fromstring(page(facts, bundle).replace("<!DOCTYPE html>", ""))
        space = {"h": "http://www.w3.org/1999/xhtml"} if root.tag.startswith("{") else {}
        prefix = "h:" if space else ""
        cards |= {each.text for each in root.iterfind(f".//{prefix}dl/{prefix}div/{prefix}dt", space)}
        for each in root.iterfind(f".//{prefix}table[@id]", space):
            heads = each.iterfind(f".//{prefix}th[@class='number']", space)
            name = each.get("id").removesuffix("-table")
            columns.setdefault(name, set()).update("".join(head.itertext()) for head in heads)
    assert rest_of("report", cards) == set()
    for name in ("kinds", "operations", "modules", "placed", "remarks"):
        assert rest_of(f"report {name}", columns[name]) == set(), name


def test_the_page_of_several_steps():
    text = stepped().as_report("x").html()
    table = re.search(r'<table id="steps".*?</thead>', text, re.DOTALL)
    heads = re.findall(r"<th(?: [^>]*)?>(.*?)</th>", table[0])
    assert rest_of("report steps", set(heads) - {"step", "where"}) == set()


def test_differences():
    rows = _change_rows(difference(bundles.add_bundle(), bundles.loop_bundle()).totals)
    assert rest_of("diff", {name for name, *_ in rows}) == set()


@pytest.fixture
def folder(tmp_path) -> Path:
    llama().save(tmp_path / "bundle")
    return tmp_path / "bundle"


def printed(tool, *argv: str) -> str:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        assert tool.main(list(argv)) == 0
    return out.getvalue()


def test_runs(folder, tmp_path):
    text = printed(spyre_run, str(folder), "--random", "--stats")
    heads = re.split(r"  +", text.splitlines()[0].strip())
    names = {*heads, *(line.partition(":")[0] for line in text.splitlines() if ": " in line)}
    assert rest_of("run --stats", names - {"operation", "op"}) == set()
    text = printed(spyre_run, str(folder), "--timeline", str(tmp_path / "t.json"))
    names = row_names(text.partition("share")[0].rpartition("\n")[0]) - {"overlap"}
    assert names <= set(names_of("run --timeline"))
    assert set(names_of("run --timeline")) - names <= {"buffer waits"}


def test_plans(tmp_path):
    path = tmp_path / "buffers.csv"
    path.write_text("id,lower,upper,size\n" + "".join(f"b{k},{k},{k + 3},{64 * (k + 1)}\n" for k in range(6)))
    text = printed(spyre_plan, str(path), "--capacity", "700")
    names = {line[:12].strip() for line in text.splitlines() if not line.startswith(" ")}
    assert rest_of("plan", names - {"solver"}) == set()


def test_device_report():
    with spyre_mlir.device_report() as report:
        torch.ones(4, 64).half().to("spyre") + 1
    found = {name for name in names_of("device report") if re.search(rf"^{name} ", str(report), re.MULTILINE)}
    assert rest_of("device report", found) == set()


def test_numbers_of_the_table_agree_with_each_other():
    """The same figure under two names has one value."""
    program, facts = llama(), llama().facts()
    metrics = program.metrics()
    assert np.isclose(sum(kind.microseconds for kind in facts.kinds), metrics["predicted_us"], rtol=1e-6)
    assert facts.totals["bytes read"] == metrics["hbm_read_bytes"]
    assert facts.totals["LX peak (bytes)"] == metrics["lx_peak_bytes"]
    assert metrics["total_us"] >= metrics["predicted_us"]
