# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Provenance of device operations: their lines at each level, and the linked panes of the page."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import Browser
from test_report_page_modules import needs_browser, stack, stack_page

from spyre_mlir.bundle.model import LevelLine, Origin, levels_from_json, levels_to_json
from spyre_mlir.dialects import context, parsed
from spyre_mlir.pipelines.run import level_lines
from spyre_mlir.report.page import page
from spyre_mlir.report.page_data import page_data
from spyre_mlir.report.program_facts import program_facts

MODULE = """
#map = affine_map<(d0, d1) -> (d0, d1)>
func.func @main(%x: tensor<64x64xf16>) -> tensor<64x64xf16> {
  %e = tensor.empty() : tensor<64x64xf16> loc(#a)
  %y = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<64x64xf16>) outs(%e : tensor<64x64xf16>) {
  ^bb0(%in: f16, %out: f16):
    %0 = math.exp %in : f16 loc(#a)
    %1 = arith.negf %0 : f16 loc(#a)
    linalg.yield %1 : f16 loc(#a)
  } -> tensor<64x64xf16> loc(#a)
  %t = linalg.transpose ins(%y : tensor<64x64xf16>) outs(%e : tensor<64x64xf16>) permutation = [1, 0] loc(#b)
  return %t : tensor<64x64xf16>
}
#inner = loc("a model.py":3:4)
#outer = loc("main.py":9:1)
#a = loc(fused<{aten = "aten.exp", module = "layers.0"}>[callsite(#inner at #outer)])
#b = loc("b.mlir":7:2)
"""


def test_a_line_is_an_operation_with_what_is_inside():
    """The line omits maps, types of regions and empty members; its location is the innermost call."""
    lines = level_lines(parsed(MODULE, context()).operation)
    assert lines[0] == LevelLine(
        Origin("a model.py", 3, 4, "aten.exp", "layers.0"),
        "%1 = linalg.generic {math.exp, arith.negf} ins(%arg0 : tensor<64x64xf16>) outs(%0 : tensor<64x64xf16>)",
    )
    assert lines[1].origin == Origin("b.mlir", 7, 2) and "linalg.transpose" in lines[1].text
    assert len(lines) == 2


def test_levels_are_the_same_behind_json():
    levels = stack().facts().levels
    assert levels.keys() == {"input", "device-ops", "placed"}
    assert levels_from_json(levels_to_json(levels)) == levels


def test_each_device_operation_has_a_line_at_each_level():
    """An operation of equal modules has the line of the first."""
    data = page_data(stack().facts(), stack().bundle)
    first, line = (data["fields"]["operation"].index(name) for name in ("$first", "line"))
    places = {(row[line], data["texts"][row[first]]) for row in data["operations"]}
    for level, lines in data["levels"]:
        assert {(line[1], data["texts"][line[3]]) for line in lines} == places, level


@pytest.fixture(scope="module")
def window(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("browser") / "profile") as opened:
        yield opened


def show(window: Browser, folder: Path, text: str) -> Browser:
    (folder / "page.html").write_text(text, encoding="utf-8")
    window.errors.clear()
    window.open(folder / "page.html")
    return window


def chosen(opened: Browser, pane: str) -> list[str]:
    """The lines that are marked in a pane."""
    marked = f"document.querySelectorAll('#{pane} [aria-selected=true]')"
    return opened.evaluate(f"[...{marked}].map(line => line.textContent)")


def matmul(facts) -> int:
    return next(operation.position for operation in facts.operations if operation.opcode == "batchmatmul")


@needs_browser
@pytest.mark.parametrize("level", ["input", "device-ops", "placed", "bundle.mlir"])
def test_the_panes_follow_a_device_operation(window, tmp_path, level):
    """The panes show its source line, its lines at the level, and its entry in the bundle."""
    facts = stack().facts()
    position = matmul(facts)
    opened = show(window, tmp_path, stack_page())
    opened.evaluate(f"document.getElementById('level').value = '{level}'")
    opened.evaluate("document.getElementById('level').dispatchEvent(new Event('change'))")
    opened.evaluate(f"document.getElementById('device-{position}').click()")
    operation = facts.operations[position]
    assert [line.split()[0] for line in chosen(opened, "device-lines")] == [str(position)]
    source = Path(operation.origin.file).read_text(encoding="utf-8").splitlines()[operation.origin.line - 1]
    assert [line.split("  ", 1)[1] for line in chosen(opened, "source-lines")] == [source]
    wanted = {"input": "linalg.matmul", "bundle.mlir": "sdscbundle.sdsc_execute"}.get(level, "batchmatmul")
    assert any(wanted in line for line in chosen(opened, "level-lines"))
    told = opened.evaluate("document.getElementById('chosen').innerText")
    for part in (operation.module, operation.design.filename, f":{operation.origin.line}\n", "bundle.mlir"):
        assert part in told
    assert opened.errors == []


@needs_browser
def test_a_line_of_the_source_marks_what_it_became(window, tmp_path):
    """The second linear layer is in one line with the first; both modules are marked, by keys as by a click."""
    facts = stack().facts()
    line = facts.operations[matmul(facts)].origin.line
    opened = show(window, tmp_path, stack_page())
    opened.evaluate("document.getElementById('source-lines').focus()")
    reached = []
    while len(reached) < 40 and f"source-{line}" not in reached:
        opened.press("ArrowDown")
        reached.append(opened.evaluate("document.activeElement.getAttribute('aria-activedescendant')"))
    assert reached[-1] == f"source-{line}"
    of_line = [operation for operation in facts.operations if operation.origin.line == line]
    assert [int(text.split()[0]) for text in chosen(opened, "device-lines")] == [
        each.position for each in of_line
    ]
    assert len(chosen(opened, "level-lines")) > 1


@needs_browser
def test_an_operation_that_is_opened_is_chosen(window, tmp_path):
    opened = show(window, tmp_path, stack_page())
    opened.evaluate("document.querySelector('#operations-table a').click()")
    position = opened.evaluate("location.hash").removeprefix("#op-")
    assert [line.split()[0] for line in chosen(opened, "device-lines")] == [position]


def test_a_page_without_levels_says_so():
    """A page of a folder has only the source, the text of the program and the operations."""
    program = stack()
    text = page(program_facts(program.bundle, program.remarks), program.bundle)
    assert "The other levels are known if the report is written right after the compilation." in text
    assert "The other levels are known" not in stack_page()
