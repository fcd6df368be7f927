# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""docs/specification.md: its names exist, its numbers have tests; and numbers that no other test checks."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

import spyre_mlir
from spyre_mlir import passes
from spyre_mlir.pipelines.spyre import SpyrePipeline
from spyre_mlir.scratchpad import LifetimeBoundBuffer, MemorySpace, solver
from spyre_mlir.scratchpad.fitting import LargestFirstSolver
from spyre_mlir.target.target import default_target
from spyre_mlir.tiling import NamedDim
from spyre_mlir.tiling.names import labels, split, whole

pytestmark = pytest.mark.documents

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "specification.md").read_text(encoding="utf-8")
MEBIBYTE = 1 << 20

#: Documents, by their headings on the page.
DOCUMENTS = (
    "Tiled tensors (RFC 0047)",
    "Work Division Planning",
    "Scratchpad (LX) optimization",
    "Working Set Reduction",
    "PlanMemory, order by size (PTOAS #885)",
    "Bundles of other writers",
)
CODE = re.compile(r"`([^`]+)`")

# -- the page -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Row:
    """A statement of a document: the cells of a line of the page."""

    statement: str
    met_by: str
    shown_by: str
    differs: str


def cells(heading: str) -> list[list[str]]:
    """Return the lines of all tables below a heading, without the heads of the tables."""
    section = PAGE.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split(" |")] for line in lines[2:]]


def rows(heading: str) -> list[Row]:
    return [Row(*each) for each in cells(heading)]


def options() -> set[str]:
    """Return options of the pipeline and of all passes, as written in text."""
    owners = [SpyrePipeline, *passes.load_all().values()]
    return {name.replace("_", "-") for owner in owners for name in owner.__dataclass_fields__}


SOURCE = "\n".join(
    path.read_text(encoding="utf-8")
    for path in sorted((ROOT / "spyre_mlir").rglob("*"))
    if path.suffix in (".py", ".toml")
)
OPTIONS = options()


def is_there(name: str) -> bool:
    """Return whether a name is a file of the compiler, a pass, an option, a public name, or in the source."""
    if name.endswith((".py", ".toml")):
        return (ROOT / name).is_file() or (ROOT / "spyre_mlir" / name).is_file()
    if name.startswith("spyre_mlir."):
        public = name.removeprefix("spyre_mlir.")
        return public in spyre_mlir.__all__ or (ROOT / "spyre_mlir" / public).is_dir()
    words = re.split(r"[=(]", name.removeprefix("--"))[0]
    return words in OPTIONS or passes.find(words) is not None or words.removeprefix("torch.ops.") in SOURCE


def is_test(name: str) -> bool:
    """Return whether a test of pytest or of lit exists, ``file::function`` or a path in test/."""
    path, _, function = name.partition("::")
    if path.startswith("test_"):
        text = (ROOT / "test" / "python" / path).read_text(encoding="utf-8")
        return not function or f"def {function}(" in text
    return path.endswith((".mlir", ".test")) and (ROOT / "test" / path).is_file()


@pytest.mark.parametrize("document", DOCUMENTS)
def test_what_the_page_names_exists(document: str) -> None:
    """Modules, passes and options in the second column, tests in the third."""
    missing = [
        (row.statement, name)
        for row in rows(document)
        for column, exists in ((row.met_by, is_there), (row.shown_by, is_test))
        for name in CODE.findall(column)
        if not exists(name)
    ]
    assert missing == []


@pytest.mark.parametrize("document", DOCUMENTS)
def test_each_statement_is_shown_or_said_not_to_be_met(document: str) -> None:
    """Only statements that are not ours have no test; statements with a number always have one."""
    table = rows(document)
    assert len(table) >= 15
    for row in table:
        shown = CODE.findall(row.shown_by)
        assert shown or row.differs.startswith("*Not ours*"), row.statement
        assert CODE.findall(row.met_by) or row.differs.startswith(("*Not ours*", "*Not met*")), row.statement


@pytest.mark.parametrize("document", DOCUMENTS)
def test_a_number_stands_in_a_test_that_is_named(document: str) -> None:
    """A number of two digits or more, with or without its commas."""
    for row in rows(document):
        numbers = re.findall(r"\d[\d,.]*\d", CODE.sub("", row.statement))
        if numbers and not row.differs.startswith("*Not ours*"):
            text = "".join(map(text_of, CODE.findall(row.shown_by)))
            plain = (each.replace(",", "") for each in numbers)
            found = (re.search(rf"(?<![\d.]){re.escape(each)}(?!\d)", text) for each in plain)
            assert any(found), row.statement


def text_of(test: str) -> str:
    """The file of a test, numbers without their separators."""
    path = test.partition("::")[0]
    file = ROOT / "test" / ("python" if path.startswith("test_") else "") / path
    return file.read_text(encoding="utf-8").replace("_", "").replace(",", "")


def test_our_names_exist() -> None:
    """The table from the names of torch-spyre to ours."""
    table = cells("Names")
    missing = [name for _, ours, *_ in table for name in CODE.findall(ours) if not is_there(name)]
    assert len(table) >= 30 and missing == []


def test_a_name_that_is_not_there_is_found() -> None:
    absent = ("layout/no_such.py", "no-such-pass", "spyre_mlir.no_such", "sdsc.no_such")
    assert not any(map(is_there, absent))
    assert not is_test("test_layout.py::test_no_such") and not is_test("passes/no-such.mlir")


# -- numbers of the page ------------------------------------------------------------------------------


def test_the_part_of_lx_that_a_program_may_use() -> None:
    """About 1.6 MB.

    int(2 MiB * 0.8) of "Scratchpad (LX) optimization" is 1,677,721; 64 KiB of that are not ours, 1,625,344 are left.
    """
    assert default_target().lx_bytes == 2 << 20
    assert (
        default_target().usable_lx_bytes
        == default_target().with_backend_fraction(0.2).usable_lx_bytes
        == 1_625_344
    )
    assert default_target().usable_lx_bytes < int((2 << 20) * (1 - 0.2)) == 1_677_721


def softmax(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x, -1)


def moved_bytes(program: spyre_mlir.Program) -> int:
    return sum(each.read_bytes + each.written_bytes for each in program.timeline().executions)


#: How much better the stages of softmax are than the first one, and the options that make them.
STAGES: tuple[tuple[dict[str, Any], float], ...] = (
    ({"lx_planning": False}, 1.0),
    ({"clone_inputs": False, "in_place": False, "lx_ops": ("maxnonstick", "sumnonstick")}, 1.0),
    ({"clone_inputs": False}, 2.7),
    ({}, 4.0),
)


def test_speedups_of_softmax() -> None:
    """Bytes of (512, 1024) along dim 0 on one core; stage 3 moves 62 % less, stage 4 a quarter."""
    x = torch.empty(512, 1024, dtype=torch.float16)
    moved = [
        moved_bytes(spyre_mlir.compile(lambda x: torch.softmax(x, 0), (x,), sencores=1, **options))
        for options, _ in STAGES
    ]
    assert [round(moved[0] / each, 1) for each in moved] == [speedup for _, speedup in STAGES]
    assert int(100 * (1 - moved[2] / moved[0])) == 62 and round(100 * moved[3] / moved[0]) == 25


def test_a_tensor_of_4_mb_fits_four_cores() -> None:
    """(1024, 2048) of fp16: 256 rows, 1 MB, per core; one core alone sends results through device memory."""
    x = torch.empty(1024, 2048, dtype=torch.float16)
    four = spyre_mlir.compile(softmax, (x,), sencores=4)
    assert {each.bytes for each in four.bundle.manifest.buffers if each.base == "lx"} >= {MEBIBYTE}
    assert moved_bytes(four) == 2 * 4 * MEBIBYTE
    one = spyre_mlir.compile(softmax, (x,), sencores=1, tile_for_lx=False)
    assert moved_bytes(one) > 2 * 4 * MEBIBYTE


#: Bytes of the tiles in the two tests of PTOAS #885, and of their memory.
TILES = {
    "with reuse": ((262144 // 8, 262144 // 8, 1048576 // 8), 1572864 // 8),
    "without reuse": ((8 << 10, 16 << 10, 24 << 10), 192 << 10),  # together 48 KB of 192
}


@pytest.mark.parametrize("name", TILES)
def test_the_largest_tile_is_at_0(name: str) -> None:
    """Three tiles, live together: by size the largest one, in the order of time the first one is at offset 0."""
    sizes, capacity = TILES[name]
    buffers = [
        LifetimeBoundBuffer(f"tile{at}", size, start_time=0, end_time=2) for at, size in enumerate(sizes)
    ]
    by_size = LargestFirstSolver().plan(buffers, MemorySpace(capacity))
    assert by_size.addresses["tile2"] == 0 and len(by_size.addresses) == 3
    in_time = solver("greedy").plan(buffers, MemorySpace(capacity))
    assert in_time.addresses["tile0"] == 0 and in_time.peak == by_size.peak == sum(sizes)


Lives = dict[str, tuple[int, int, int]]


def staircase(sizes: Sequence[int]) -> Lives:
    """Return a copy of each step that dies when its result is made, and the results, which live to the end."""
    end = 2 * len(sizes) + 2
    copies = {f"copy{at}": (size, 2 * at, 2 * at + 2) for at, size in enumerate(sizes)}
    return copies | {f"result{at}": (size, 2 * at + 1, end) for at, size in enumerate(sizes)}


def experts(sizes: Sequence[int]) -> Lives:
    """Return experts in sequence: tokens, two projections, their product; the hidden state is live throughout."""
    lives = {"hidden": (60, 0, 4 * len(sizes) + 1)}
    for at, size in enumerate(sizes):
        lives[f"tokens{at}"] = (2 * size, 4 * at, 4 * at + 3)
        lives |= {f"{name}{at}": (size, 4 * at + 1, 4 * at + 4) for name in ("up", "gate")}
        lives[f"down{at}"] = (2 * size, 4 * at + 3, 4 * at + 5)
    return lives


#: The target patterns: size, start and end of each buffer, in some unit.
PATTERNS: dict[str, Lives] = {
    "fragmentation": {"a": (1, 0, 3), "b": (1, 1, 5), "c": (2, 3, 5)},
    "staircase up": staircase(range(1, 8)),
    "staircase down": {"z": (1, 0, 99), **staircase(range(5, 0, -1))},
    "grouped-query attention": {
        "q": (16, 0, 2), "k": (2, 0, 2), "scores": (32, 1, 4), "maximum": (1, 2, 4),
        "weights": (32, 3, 6), "denominators": (1, 4, 6), "v": (2, 6, 8), "output": (16, 7, 9),
    },
    "mixture of experts": experts((20, 15, 35, 3, 4)),
}  # fmt: skip


@pytest.mark.parametrize("name", PATTERNS)
def test_the_target_patterns(name: str) -> None:
    """In a memory of the load, the least that can do, all buffers have a place; greedy leaves some out."""
    buffers = [
        LifetimeBoundBuffer(name, 128 * size, start_time=start, end_time=end)
        for name, (size, start, end) in PATTERNS[name].items()
    ]
    load = solver("greedy").plan(buffers, MemorySpace(1 << 30)).load
    plans = {name: solver(name).plan(buffers, MemorySpace(load)) for name in ("portfolio", "greedy")}
    assert not plans["portfolio"].spilled and plans["portfolio"].peak == load
    assert plans["greedy"].spilled


def test_tiles_of_one_size_keep_their_order() -> None:
    """The sort is stable: uniform sizes lie as they do in the order of time."""
    buffers = [LifetimeBoundBuffer(f"tile{at}", 4096, start_time=0, end_time=2) for at in range(4)]
    plans = [solver(name).plan(buffers, MemorySpace(1 << 16)) for name in ("largest-first", "greedy")]
    assert plans[0].addresses == plans[1].addresses == {f"tile{at}": 4096 * at for at in range(4)}


def test_the_order_of_names_is_significant() -> None:
    """The flat x viewed as 64 x 256 has M and K if it is named so, and neither if it is named K, M."""
    m, k = NamedDim("M", 64), NamedDim("K", 256)
    assert [labels(parts) for parts in split(whole([m, k]), [64, 256])] == [("M",), ("K",)]
    assert [labels(parts) for parts in split(whole([k, m]), [64, 256])] == [(), ()]


def test_the_order_of_passes() -> None:
    """Layouts, spans, work distribution, scratchpads, as torch-spyre has them; names and tiles before them."""
    names = [step.name for _, pipeline in SpyrePipeline().stages() for step in pipeline.steps]
    published = ("choose-layouts", "span-reduction", "work-distribution", "scratchpad-planning")
    tiling = ("propagate-named-dims", "lower-hints", "coarse-tiling")
    order = [*tiling, *published[:3], "joint-planning", "clone-outputs", "clone-inputs", published[3]]
    assert sorted(order, key=names.index) == order


@pytest.mark.parametrize(
    ("variable", "field", "text", "value", "default"),
    [
        ("SENCORES", "cores", "4", 4, 32),
        ("LX_PLANNING", "lx_planning", "0", False, True),
        ("CO_OPTIMIZING_LX_PLANNING", "co_optimizing_lx_planning", "0", False, True),
        ("LAYOUT_SOLVER", "layout_solver", "greedy", "greedy", "portfolio"),
        ("DXP_LX_FRAC_AVAIL", "lx_backend_fraction", "0.5", 0.5, 0.2),
    ],
)
def test_variables_of_the_environment(monkeypatch, variable, field, text, value, default) -> None:
    """The variables of torch-spyre, with our defaults: scratchpads and co-optimisation are on."""
    holder = default_target if hasattr(default_target(), field) else SpyrePipeline
    monkeypatch.delenv(variable, raising=False)
    assert getattr(holder(), field) == default
    monkeypatch.setenv(variable, text)
    assert getattr(holder(), field) == value
