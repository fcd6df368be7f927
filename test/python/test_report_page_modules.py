# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Modules on the page about a program: the graph, the table and the timeline fold together."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from pathlib import Path

import browser
import pytest
import torch
from browser import Browser
from test_report_page import chain, facts_alone
from test_report_page_browser import COLLISIONS, TIMELINE
from torch import nn

import spyre_mlir
from spyre_mlir.report.page import page
from spyre_mlir.report.page_data import MODULE, module_rows_of

LAYERS = 4


class Layer(nn.Module):
    """A normalization and two linear layers, with a residual connection."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(128), nn.Linear(128, 256), nn.Linear(256, 128)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(torch.relu(self.up(self.norm(x))))


class Stack(nn.Module):
    """Equal layers and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.layers, self.head = nn.ModuleList(Layer() for _ in range(LAYERS)), nn.Linear(128, 64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


@functools.cache
def stack() -> spyre_mlir.Program:
    torch.manual_seed(0)
    return spyre_mlir.compile(Stack().half().eval(), (torch.zeros(64, 128).half(),))


@functools.cache
def stack_page() -> str:
    return page(stack().facts(), stack().bundle, "stack")


@pytest.fixture(scope="module")
def window(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("browser") / "profile") as opened:
        yield opened


@pytest.fixture
def opened(window: Browser, tmp_path: Path) -> Iterator[Browser]:
    """The page of the stack, all modules closed; the console stays silent."""
    (tmp_path / "page.html").write_text(stack_page(), encoding="utf-8")
    window.errors.clear()
    window.open(tmp_path / "page.html")
    window.evaluate("document.querySelector('.graph [data-do=close]').click()")
    yield window
    assert window.errors == []


def needs_browser(test: Callable[..., None]) -> Callable[..., None]:
    """Mark a test that runs in a browser."""
    without = pytest.mark.skipif(browser.CHROMIUM is None, reason="no chromium is installed")
    return pytest.mark.documents(without(test))


NODES = "[...document.querySelectorAll('.graph .node')].map(each => each.querySelector('text').textContent)"
ROWS = "[...document.querySelectorAll('#modules-table tbody tr')].map(each => each.cells[0].textContent)"


def test_the_rows_of_modules_have_each_operation_once():
    """Each operation is one of the first of equal modules or one of its copies, of which the graph shows the first."""
    facts = stack().facts()
    rows = [dict(zip(MODULE, row, strict=True)) for row in module_rows_of(facts.operations)]
    assert rows[0]["$path"] == "(model)" and rows[0]["parent"] == -1
    others = [pair for row in rows for pair in row["others"]]
    positions = [position for row in rows for position in row["positions"]]
    assert sorted((*positions, *dict(others))) == list(range(len(facts.operations)))
    pairs = [
        (facts.operations[position], facts.operations[first]) for position, first in others if first >= 0
    ]
    assert all((other.opcode, other.shape) == (first.opcode, first.shape) for other, first in pairs)
    assert len(pairs) > 0.8 * len(others)
    assert rows[0]["ps"] == sum(operation.execution.shares.total for operation in facts.operations)
    assert any(row["copies"] > 1 for row in rows)


@needs_browser
def test_a_click_opens_a_module_everywhere(opened):
    """In the graph, the table and the timeline; another closes it."""
    before = opened.evaluate(NODES)
    assert before == opened.evaluate(ROWS) == ["▸ layers.0 .. 3 x 4", "▸ head"]
    click = "document.querySelector('.graph .module').dispatchEvent(new MouseEvent('click', {bubbles: true}))"
    opened.evaluate(click)
    opened.settle()
    inside = opened.evaluate(NODES)
    assert sorted(inside) == sorted(opened.evaluate(ROWS))
    assert {"▾ layers.0 .. 3 x 4", "▸ norm x 4", "▸ up x 4", "▸ down x 4", "▸ head"} < set(inside)
    assert opened.evaluate("document.querySelector('.graph .module').getAttribute('aria-expanded')") == "true"
    assert "up x 4" in opened.evaluate(f"document.querySelector('{TIMELINE}').textContent")
    assert opened.evaluate(COLLISIONS) == []
    opened.evaluate("document.querySelector('#modules-table button[aria-expanded=true]').click()")
    assert opened.evaluate(NODES) == before


@needs_browser
def test_keys_walk_through_the_graph(opened):
    """The right arrow opens a module and enters it, the left one goes back; Enter opens an operation."""
    opened.evaluate("document.querySelector('.graph .node[tabindex=\"0\"]').focus()")
    here = "document.activeElement.querySelector('text').textContent"
    outer = opened.evaluate(here)
    opened.press("ArrowRight")
    assert opened.evaluate(here) == outer.replace("▸", "▾")
    opened.press("ArrowRight")
    inner = opened.evaluate(here)
    assert inner != outer and opened.evaluate("document.activeElement.getAttribute('aria-level')") != "1"
    opened.press("ArrowLeft")
    opened.press("ArrowLeft")
    assert opened.evaluate(here) == outer
    opened.evaluate(
        "document.querySelectorAll('.graph [data-do=level]').forEach(b => { b.click(); b.click(); })"
    )
    opened.evaluate("document.querySelector('.graph .operation').focus()")
    opened.press("Enter")
    assert opened.evaluate("location.hash") == "#op-" + opened.evaluate(
        "document.querySelector('.graph .operation').dataset.key"
    )


@needs_browser
def test_a_search_opens_what_it_finds(opened):
    """Enter selects match by match and opens the modules around it."""
    opened.evaluate("document.querySelector('.graph input').focus()")
    for letter in "down":
        opened.press(letter)
    assert "found" in opened.evaluate("document.querySelector('.graph .matches').textContent")
    opened.press("Enter")
    marked = "document.querySelector('.graph .found text').textContent"
    assert "down" in opened.evaluate(marked)
    assert any("norm" in each for each in opened.evaluate(NODES))


@needs_browser
def test_the_graph_zooms_and_fits(opened):
    width = "document.querySelector('.graph svg').getBoundingClientRect().width"
    before = opened.evaluate(width)
    opened.evaluate("document.querySelector('.graph [data-do=in]').click()")
    assert opened.evaluate(width) == pytest.approx(1.25 * before, rel=0.01)
    opened.evaluate("document.querySelector('.graph [data-do=level]').click()")
    opened.evaluate("document.querySelector('.graph [data-do=level]').click()")
    opened.evaluate("document.querySelector('.graph [data-do=all]').click()")
    frame = "document.querySelector('.graph .picture')"
    assert opened.evaluate(f"{frame}.scrollHeight <= {frame}.clientHeight + 1")
    assert opened.evaluate(f"{frame}.scrollWidth <= {frame}.clientWidth + 1")


@needs_browser
def test_a_program_without_modules_has_a_graph_of_parts(window, tmp_path):
    """A sequence of 3000 operations is grouped; a search opens the group of its match."""
    (tmp_path / "page.html").write_text(page(*facts_alone(chain(3000))), encoding="utf-8")
    window.errors.clear()
    window.open(tmp_path / "page.html")
    assert 1 < len(window.evaluate(NODES)) <= 60
    window.evaluate("document.querySelector('.graph input').value = 'step 2999'")
    window.evaluate("document.querySelector('.graph input').dispatchEvent(new Event('input'))")
    window.evaluate("document.querySelector('.graph input').focus()")
    window.press("Enter")
    assert window.evaluate("document.querySelector('.graph .found').dataset.key") == "2999"
    assert window.errors == []
