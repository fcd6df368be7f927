# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The page about a program in windows of several widths, light and dark, and for who uses no mouse or no screen."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator
from pathlib import Path

import browser
import pytest
from browser import Browser
from test_report_page import made, softmax
from test_report_page_browser import COLLISIONS

from spyre_mlir.report.findings import ProgramFinding
from spyre_mlir.report.page import page
from spyre_mlir.report.program_facts import program_facts

pytestmark = [
    pytest.mark.documents,
    pytest.mark.skipif(browser.CHROMIUM is None, reason="no chromium is installed"),
]

CHECKS = Path(__file__).with_name("page_checks.js").read_text(encoding="utf-8")

WIDTHS, SCHEMES = (380, 800, 1440, 2560), ("light", "dark")

#: The file of axe-core, a checker of accessibility by others; used where somebody has it.
AXE = os.environ.get("AXE_CORE", "")

FINDINGS = (
    ProgramFinding(
        "28 of 32 cores are idle",
        "The dim mb of 197 rows has no divisor that gives more than one slice to a core.",
        "blocks.3.attn",
        "model.py:88:9",
        "spyre_mlir.compile(model, inputs, uneven_splits=True)",
        58.0,
        44.1,
    ),
    ProgramFinding(
        "The weights are float32", "Each is converted.", "", "", "model = model.half()", 58.0, 57.5
    ),
)


@pytest.fixture(scope="module")
def window(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("browser") / "profile") as opened:
        yield opened


@functools.cache
def with_findings() -> str:
    program = softmax()
    return page(program_facts(program.bundle, program.remarks, findings=FINDINGS), program.bundle, "findings")


def text_of(name: str) -> str:
    return with_findings() if name == "findings" else made(name)[1]


def show(window: Browser, folder: Path, name: str, width: int, scheme: str, anchor: str = "") -> None:
    (folder / "page.html").write_text(text_of(name), encoding="utf-8")
    window.errors.clear()
    window.appear(width, scheme)
    window.open(folder / "page.html", anchor)
    window.evaluate(f"{CHECKS}; 0")
    window.settle()


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", ["findings", "llama_block", "relayout", "no operation"])
def test_nothing_overlaps_or_is_cut_and_all_is_accessible(window, tmp_path, name, width, scheme):
    """Texts inside and outside of pictures, by the boxes that the browser gives them; the console is silent."""
    show(window, tmp_path, name, width, scheme)
    assert window.evaluate("checks.layout()") == []
    assert window.evaluate(COLLISIONS) == []
    assert window.evaluate("checks.accessibility()") == []
    assert window.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert window.errors == []


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("width", WIDTHS)
def test_the_pane_of_an_operation_fits_too(window, tmp_path, width, scheme):
    show(window, tmp_path, "llama_block", width, scheme, "#op-8")
    box = window.evaluate("(b => [b.left, b.right])(document.getElementById('pane').getBoundingClientRect())")
    assert 0 <= box[0] < box[1] <= width
    assert window.evaluate("checks.accessibility()") == []
    # The page goes on under the pane, so only the texts of the pane are measured.
    window.evaluate("document.querySelectorAll('header, main').forEach(each => each.hidden = true)")
    assert window.evaluate("checks.layout()") == []


@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_ground_is_that_of_the_system(window, tmp_path, scheme):
    show(window, tmp_path, "softmax", 1440, scheme)
    red = window.evaluate("Number(getComputedStyle(document.body).backgroundColor.match(/[0-9]+/)[0])")
    assert (red > 200) == (scheme == "light")


@pytest.mark.parametrize(
    ("edit", "fault"),
    [
        ("main.querySelector('h2').style.marginBottom = '-20px'", "lies over"),
        ("main.querySelector('p').style.width = '3000px'", "<p"),
        ("main.querySelector('p').style.cssText = 'width: 20px; overflow-wrap: anywhere'", "is broken"),
        ("main.querySelector('button').textContent = ''", "no name"),
        ("main.querySelector('p').style.color = '#8a8a8a'", "pale"),
        ("main.querySelector('h3').outerHTML = '<h5>5</h5><h4>4</h4>'", "skips a level"),
        ("main.querySelector('h3').id = 'pane'", "two of #pane"),
        ("main.querySelector('th').removeAttribute('scope')", "no scope"),
        ("main.after('stray')", "outside of landmarks"),
        (
            "main.querySelector('.scroll:has(table)').removeAttribute('tabindex');"
            " all('th button').forEach(b => b.remove())",
            "scrolls and has no focus",
        ),
    ],
)  # fmt: skip
def test_faults_are_seen(window, tmp_path, edit, fault):
    """Each check finds a planted fault."""
    show(window, tmp_path, "llama_block", 800, "light")
    window.evaluate(
        "(() => { const main = document.querySelector('main'), all = s => document.querySelectorAll(s);"
        f" {edit}; }})()"
    )
    told = window.evaluate("[...checks.layout(), ...checks.accessibility()]")
    assert any(fault in each for each in told), told


@pytest.mark.skipif(not AXE, reason="AXE_CORE does not name the file of axe-core")
@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize(
    ("name", "anchor"), [("findings", ""), ("llama_block", ""), ("llama_block", "#op-8")]
)
def test_axe_finds_nothing(window, tmp_path, name, anchor, scheme):
    show(window, tmp_path, name, 1440, scheme, anchor)
    window.evaluate(Path(AXE).read_text(encoding="utf-8") + "; 0")
    told = window.evaluate(
        "axe.run().then(r => r.violations.map(v => [v.id, v.impact, v.nodes.slice(0, 3).map(n => n.html)]))"
    )
    assert told == []


def test_findings_come_first_and_their_change_is_copied(window, tmp_path):
    """Findings are in the order of their savings; without access to the clipboard, the text is selected."""
    show(window, tmp_path, "findings", 1440, "light")
    assert window.evaluate("document.querySelector('main section').id") == "findings"
    told = window.evaluate("[...document.querySelectorAll('.findings li')].map(each => each.innerText)")
    assert [each.splitlines()[0] for each in told] == [finding.problem for finding in FINDINGS]
    for part in ("blocks.3.attn at model.py:88:9", "saves 13.900 µs, 24%", "58.000 µs become 44.100 µs"):
        assert part in told[0]
    window.evaluate(
        "Object.defineProperty(navigator, 'clipboard', {value: {writeText: async (t) => { window.copied = t; }}})"
    )
    window.evaluate("document.querySelector('.copy').click()")
    window.settle()
    assert window.evaluate("window.copied") == FINDINGS[0].change


def test_a_program_without_findings_has_no_such_panel():
    assert 'id="findings"' not in made("softmax")[1]
