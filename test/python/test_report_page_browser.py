# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The page about a program in a real browser: pictures, tables, keys, the pointer, and links to operations."""

from __future__ import annotations

import functools
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterator
from pathlib import Path

import browser
import programs
import pytest
from browser import Browser
from test_report_page import PANELS, PROGRAMS, chain, facts_alone, made

import spyre_mlir
from spyre_mlir.driver.checking import ModuleComparison, ModuleComparisons
from spyre_mlir.report.page import page
from spyre_mlir.report.program_facts import ProgramFacts

pytestmark = [
    pytest.mark.documents,
    pytest.mark.skipif(browser.CHROMIUM is None, reason="no chromium is installed"),
]

NAMES = ["softmax", "llama_block"]
#: Programs that together have all pictures, with one that uses the ring.
PICTURES = [*NAMES, "relayout"]

#: Script: texts of a picture that overlap or exceed its edge, by the boxes of the browser.
COLLISIONS = """(() => {
  const found = [];
  for (const picture of document.querySelectorAll("svg")) {
    const frame = picture.getBoundingClientRect();
    const boxes = [...picture.querySelectorAll("text")]
      .map((text) => [text.textContent, text.getBoundingClientRect()]).filter(([, box]) => box.width > 0);
    boxes.forEach(([text, box], at) => {
      if (box.left < frame.left - 1 || box.right > frame.right + 1 || box.bottom > frame.bottom + 1)
        found.push(`'${text}' is cut off`);
      for (const [other, its] of boxes.slice(at + 1))
        if (box.left < its.right - 1 && its.left < box.right - 1
            && box.top < its.bottom - 2 && its.top < box.bottom - 2)
          found.push(`'${text}' lies over '${other}'`);
    });
  }
  return found;
})()"""

TIMELINE, LX = "#timeline-chart svg", "#lx-chart svg"


@pytest.fixture(scope="module")
def window(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """One browser for all tests; each test opens a separate page."""
    with Browser(tmp_path_factory.mktemp("browser") / "profile") as opened:
        yield opened


Shown = Callable[..., tuple[Browser, ProgramFacts]]


@pytest.fixture
def shown(window: Browser, tmp_path: Path) -> Iterator[Shown]:
    """Opens the page of a program, at an anchor; whatever a test does, the console stays silent."""

    def show(name: str, anchor: str = "") -> tuple[Browser, ProgramFacts]:
        facts, text = made(name)
        (tmp_path / "page.html").write_text(text, encoding="utf-8")
        window.open(tmp_path / "page.html", anchor)
        return window, facts

    window.errors.clear()
    yield show
    assert window.errors == []


def view(opened: Browser, chart: str) -> tuple[float, float]:
    first, last = map(float, opened.evaluate(f"document.querySelector('{chart}').dataset.view").split())
    return first, last


def focus(opened: Browser, selector: str) -> None:
    opened.evaluate(f"document.querySelector('{selector}').focus()")


def text(opened: Browser, selector: str) -> str:
    return opened.evaluate(f"document.querySelector('{selector}').textContent")


def is_hidden(opened: Browser, identifier: str) -> bool:
    return opened.evaluate(f"document.getElementById('{identifier}').offsetHeight === 0")


def across(opened: Browser, chart: str, part: float) -> float:
    """Return the pixels of a relative position of the plot of a chart."""
    left, right = map(float, opened.evaluate(f"document.querySelector('{chart}').dataset.plot").split())
    return left + part * (right - left)


def place(opened: Browser, chart: str, x: float, y: float) -> tuple[float, float]:
    """A point of a chart, given in its own pixels, as one of the window."""
    return tuple(
        opened.evaluate(
            f"(() => {{ const chart = document.querySelector('{chart}'); chart.scrollIntoView();"
            " const box = chart.getBoundingClientRect(), scale = box.width / chart.viewBox.baseVal.width;"
            f" return [box.left + {x} * scale, box.top + {y} * scale]; }})()"
        )
    )


@functools.cache
def longest(name: str) -> int:
    """The operation that computes longest, which is in the timeline where a pointer finds it."""
    facts, _ = made(name)
    return max(facts.operations, key=lambda each: each.execution.core_ps[0]).position


def middle_of_body(facts: ProgramFacts, position: int) -> float:
    """Return the relative position of the middle of an operation's bar on the compute track."""
    event = next(each for each in facts.timeline.run.events if each.job.position == position)
    middle = event.body_begin + facts.operations[position].execution.core_ps[0] / 2
    return middle / facts.timeline.run.total


# -- contents ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PICTURES)
def test_no_panel_is_empty_and_nothing_is_wider_than_the_window(shown, name):
    opened, facts = shown(name)
    heights = opened.evaluate("[...document.querySelectorAll('section')].map(s => s.offsetHeight)")
    left_out = [not facts.passes, not facts.timeline.links, not facts.findings]
    left_out.append(not any(operation.module for operation in facts.operations))
    assert len(heights) == len(PANELS) - sum(left_out) and min(heights) > 50
    drawn = opened.evaluate(
        "[...document.querySelectorAll('svg')].filter(s => s.getBoundingClientRect().height > 0)"
        ".map(s => s.querySelectorAll('text').length)"
    )
    assert min(drawn) > 0
    assert opened.evaluate("document.documentElement.scrollWidth") <= 1280


@pytest.mark.parametrize("name", ["softmax", "llama_block", "loop", "hints"])
def test_the_graph_has_each_operation_and_the_buffers_between_them(shown, name):
    """Open to the last level: each operation with its buffers and loops, each edge with its layout and its reasons."""
    opened, facts = shown(name)
    opened.evaluate("for (let n = 0; n < 9; n++) document.querySelector('.graph [data-do=level]').click()")
    items = opened.evaluate(
        "[...document.querySelectorAll('.graph .operation')].map(each => [Number(each.dataset.key),"
        " each.querySelector('title').textContent, each.querySelector('text').textContent])"
    )
    assert sorted(key for key, _, _ in items) == [operation.position for operation in facts.operations]
    for key, told, label in items:
        *operands, result = facts.operations[key].buffers
        assert f"{', '.join(operands)} → {result}" in told
        assert ("x 24" in label and "runs 24 times, in 8 x 3 iterations" in told) == (
            name == "hints" and key in (1, 2)
        )
    edges = opened.evaluate(
        "[...document.querySelectorAll('.graph .route title')].map(each => each.textContent)"
    )
    written, between = set(), set()
    for operation in facts.operations:
        between |= written & set(operation.buffers[:-1])
        written.add(operation.buffers[-1])
    told = "\n".join(edges)
    assert all(f"{buffer}: " in told for buffer in between)
    assert told.count("layout, innermost first: ") >= len(between)
    reasons = [each.reasons for each in facts.map.spilled if each.name in between]
    assert all(f"not in LX: {', '.join(each)}" in told for each in reasons if each)


@pytest.mark.parametrize("name", PICTURES)
@pytest.mark.parametrize("keys", ["", "+", "++", "++++]]", "+++++ArrowRight"])
def test_no_text_of_a_picture_lies_over_another(shown, name, keys):
    """At the first view of both charts and after some keys."""
    opened, _ = shown(name)
    for chart in (TIMELINE, LX):
        focus(opened, chart)
        for key in re.findall(r"ArrowRight|.", keys):
            opened.press(key)
    assert opened.evaluate(COLLISIONS) == []


def test_texts_that_do_lie_over_one_another_are_found(shown):
    """The check above finds a text that occurs twice in one place."""
    opened, _ = shown("softmax")
    opened.evaluate(
        "(() => { const t = document.querySelector('#graph svg text'); t.after(t.cloneNode(true)); })()"
    )
    (found,) = opened.evaluate(COLLISIONS)
    assert re.fullmatch(r"'(.+)' lies over '\1'", found)


def test_the_page_can_be_printed(shown):
    """All rows of a table that is cut on the screen are on paper, so a sheet is not enough."""
    opened, _ = shown("llama_block")
    assert 4 <= opened.print_pages() <= 30


def press_head(opened: Browser, column: int) -> None:
    """Sort the table of operations by a column, with the keyboard."""
    opened.evaluate(f"document.querySelectorAll('#operations-table th button')[{column}].focus()")
    opened.press("Enter")


# -- tables ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_a_table_sorts(shown, name):
    """By time the largest is first, and a click puts the smallest first; by step rows are in program order."""
    opened, facts = shown(name)
    slowest = sorted(facts.operations, key=lambda each: -round(each.execution.total_ns))
    column = "[...document.querySelectorAll('#operations-table tbody tr')].map(r => r.cells[{}].textContent)"
    times = [f"{each.execution.total_ns / 1000:,.3f}" for each in slowest]
    assert opened.evaluate(column.format(5)) == times
    press_head(opened, 5)
    assert opened.evaluate(column.format(5)) == times[::-1]
    press_head(opened, 5)
    assert opened.evaluate(column.format(5)) == times
    press_head(opened, 0)
    assert opened.evaluate(column.format(0)) == [str(each.position) for each in facts.operations]
    heads = (
        "[...document.querySelectorAll('#operations-table th')].map(each => each.getAttribute('aria-sort'))"
    )
    assert opened.evaluate(heads)[0] == "ascending" and set(opened.evaluate(heads)[1:]) == {"none"}


@pytest.mark.parametrize("name", NAMES)
def test_a_slash_leads_to_the_filter(shown, name):
    """Typing after the slash filters; Escape empties the box."""
    opened, facts = shown(name)
    opened.press("/")
    opcode = facts.operations[-1].opcode
    for letter in opcode.upper():
        opened.press(letter)
    seen = (
        "[...document.querySelectorAll('#operations-table tbody tr')]"
        ".filter(r => r.offsetHeight > 0).map(r => r.cells[1].textContent).sort()"
    )
    opcodes = sorted(each.opcode for each in facts.operations)
    assert opened.evaluate(seen) == [each for each in opcodes if opcode in each]
    opened.press("Escape")
    assert opened.evaluate(seen) == opcodes


@pytest.mark.parametrize("name", NAMES)
def test_remarks_are_filtered_by_pass(shown, name):
    opened, facts = shown(name)
    wanted = facts.remarks[-1].pass_name
    opened.evaluate(f"let pass = document.querySelector('#remarks select'); pass.value = '{wanted}'")
    opened.evaluate("pass.dispatchEvent(new Event('change'))")
    groups = {
        (each.pass_name, each.kind, each.op_name, each.reason, each.before, each.after)
        for each in facts.remarks
    }
    of_pass = sum(pass_name == wanted for pass_name, *_ in groups)
    assert text(opened, "#remarks .found") == f"{of_pass} of {len(groups)}"


def test_a_large_table_is_shown_in_parts(window, tmp_path):
    """The first 500 of 600 rows are shown; a button shows the rest and disappears."""
    (tmp_path / "page.html").write_text(page(*facts_alone(chain(600))), encoding="utf-8")
    rows = (
        "[...document.querySelectorAll('#operations-table tbody tr')].filter(r => r.offsetHeight > 0).length"
    )
    window.open(tmp_path / "page.html")
    assert window.evaluate(rows) == 500
    window.evaluate("document.querySelector('#operations .more').click()")
    assert window.evaluate(rows) == 600
    assert text(window, "#operations .found") == "600 of 600"
    assert window.evaluate("document.querySelector('#operations .more').hidden")


def test_arrow_keys_go_from_row_to_row(shown):
    """The third row is opened by Enter; in the order of the program it is the third."""
    opened, _ = shown("llama_block")
    press_head(opened, 0)
    focus(opened, "#operations .scroll")
    for _ in range(3):
        opened.press("ArrowDown")
    opened.press("Enter")
    assert opened.evaluate("location.hash") == "#op-2"


# -- charts ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("chart", [TIMELINE, LX])
def test_keys_zoom_and_move(shown, chart):
    """Plus halves the shown interval around its middle, the arrow moves it by a quarter, 0 shows all again."""
    opened, _ = shown("llama_block")
    first, last = view(opened, chart)
    focus(opened, chart)
    opened.press("+")
    quarter = (last - first) / 4
    assert view(opened, chart) == pytest.approx((first + quarter, last - quarter))
    opened.press("ArrowRight")
    assert view(opened, chart) == pytest.approx((first + 1.5 * quarter, last - 0.5 * quarter))
    opened.press("-")
    opened.press("-")
    assert view(opened, chart) == (first, last)
    opened.press("+")
    opened.press("0")
    assert view(opened, chart) == (first, last)


def test_the_wheel_zooms_where_the_pointer_is(shown):
    """The position under the pointer does not move."""
    opened, facts = shown("llama_block")
    x, y = place(opened, TIMELINE, across(opened, TIMELINE, 0.25), 50)
    opened.turn(x, y, -80)
    first, last = view(opened, TIMELINE)
    total = facts.timeline.run.total
    assert last - first < 0.8 * total
    assert first + 0.25 * (last - first) == pytest.approx(0.25 * total, rel=0.01)


def test_a_drag_moves_what_is_shown(shown):
    """A drag by a tenth of the width to the right moves the interval a tenth earlier, and opens no operation."""
    opened, _ = shown("llama_block")
    focus(opened, TIMELINE)
    opened.press("+")
    first, last = view(opened, TIMELINE)
    begin, end = (place(opened, TIMELINE, across(opened, TIMELINE, part), 50) for part in (0.5, 0.6))
    opened.drag(begin, end)
    assert view(opened, TIMELINE)[0] == pytest.approx(first - 0.1 * (last - first), rel=0.01)
    assert opened.evaluate("location.hash") == ""


@pytest.mark.parametrize("name", NAMES)
def test_the_pointer_tells_a_bar_and_a_click_opens_it(shown, name):
    """Its name, times, bytes and source; computing is the third track, after modules and load."""
    opened, facts = shown(name)
    operation = facts.operations[longest(name)]
    middle = across(opened, TIMELINE, middle_of_body(facts, operation.position))
    at = place(opened, TIMELINE, middle, 8 + 2.5 * 30)
    opened.point(*at)
    told = text(opened, "#hint")
    assert told.startswith(f"{operation.name}, compute of core 0\n") and "µs to" in told
    assert f"reads {operation.read_bytes:,} bytes, writes {operation.written_bytes:,} bytes" in told
    assert told.endswith(operation.execution.source)
    opened.click(*at)
    assert opened.evaluate("location.hash") == f"#op-{operation.position}"


def test_keys_go_from_buffer_to_buffer(shown):
    """In the map: N goes to the first buffer in LX and shows its details; Enter opens the operation that writes it."""
    opened, facts = shown("llama_block")
    focus(opened, LX)
    opened.press("n")
    first = facts.map.placed[0]
    told = text(opened, "#details")
    assert told.startswith(f"{first.name}: written by step {first.writer}: ")
    assert f"{first.bytes:,} bytes at {first.address:,} to {first.end:,}" in told
    opened.press("Enter")
    assert opened.evaluate("location.hash") == f"#op-{first.writer}"


@pytest.mark.parametrize(("name", "is_used"), [("softmax", False), ("llama_block", True)])
def test_one_choice_of_a_core_is_that_of_all_pictures(shown, name, is_used):
    """Core 31, by the keyboard: softmax runs on cores 0 to 7, the block on all."""
    opened, facts = shown(name)
    assert (max(each.cores for each in facts.operations) == 32) == is_used
    focus(opened, "#division input.core")
    for _ in range(31):
        opened.press("ArrowRight")
    cores = opened.evaluate("[...document.querySelectorAll('input.core')].map(i => i.value)")
    assert cores == ["31"] * 3
    owned = "[...document.querySelectorAll('.division:not([hidden]) .mine')].map(c => c.dataset.cores)"
    assert all("31" in each.split() for each in opened.evaluate(owned))
    assert (len(opened.evaluate(owned)) > 0) == is_used
    assert ("core 31 runs no operation" in text(opened, TIMELINE)) != is_used
    assert ("Core 31: load at most" in text(opened, LX)) == is_used


def test_a_chart_of_many_operations_draws_few_elements(window, tmp_path):
    """Of 3000 bars and boxes only visible ones are drawn; zoomed in, single ones are there."""
    (tmp_path / "page.html").write_text(page(*facts_alone(chain(3000))), encoding="utf-8")
    window.open(tmp_path / "page.html")
    count = "document.querySelector('{}').childElementCount"
    assert window.evaluate(count.format(TIMELINE)) < 2500 and window.evaluate(count.format(LX)) < 500
    focus(window, TIMELINE)
    for _ in range(10):
        window.press("+")
    assert "abs" in text(window, TIMELINE)
    assert window.errors == []


# -- operations --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_a_link_shows_all_about_an_operation(shown, name):
    """Design, line of bundle.mlir, source with its line, operands with layout and placement, remarks."""
    opened, facts = shown(name)
    operation = facts.operations[longest(name)]
    opened.evaluate(
        f"document.querySelector('#operations-table a[href=\"#op-{operation.position}\"]').click()"
    )
    told = text(opened, "#pane")
    assert text(opened, "#pane h2") == operation.name
    assert operation.design.filename in told and "sdscbundle.sdsc_execute" in told
    assert operation.execution.source in told
    file, line = operation.execution.source.split(":")[:2]
    source = Path(file).read_text(encoding="utf-8").splitlines()[int(line) - 1]
    assert text(opened, "#pane mark") == f"{line}  {source[:160]}\n"
    for buffer in operation.buffers:
        assert f": {buffer}" in told
    assert operation.facts["output layout"] in told
    assert opened.evaluate("document.querySelectorAll('#pane table')[1].rows.length") > 1


def test_an_operation_tells_why_its_operands_are_not_in_lx(shown):
    opened, facts = shown("llama_block", f"#op-{made('llama_block')[0].map.spilled[0].writer}")
    spilled = facts.map.spilled[0]
    assert f"{spilled.name} is not in LX: {', '.join(spilled.reasons)}." in text(opened, "#pane")


@pytest.mark.parametrize("selector", ["#roofline .point", "#remarks-table a", "#placed-table a"])
def test_operations_are_reached_from_everywhere(shown, selector):
    opened, _ = shown("llama_block")
    link = f"document.querySelector('{selector}')"
    opened.evaluate(f"{link}.dispatchEvent(new MouseEvent('click', {{bubbles: true, cancelable: true}}))")
    assert opened.evaluate("location.hash") == opened.evaluate(f"{link}.getAttribute('href')")
    assert not is_hidden(opened, "pane")


def test_an_address_with_an_operation_opens_it(shown):
    """A shared address opens the operation, with its division."""
    opened, facts = shown("llama_block", "#op-3")
    assert text(opened, "#pane h2") == facts.operations[3].name
    assert opened.evaluate("document.getElementById('divided').value") == "3"


def test_an_address_that_names_no_operation_opens_nothing(shown):
    opened, _ = shown("softmax", "#op-999")
    assert is_hidden(opened, "pane")


def test_back_and_forward_follow(shown):
    """Table, two operations, back to the first, back to none, forward; Escape closes and gives the focus back."""
    opened, facts = shown("llama_block")
    press_head(opened, 0)
    focus(opened, "#operations .scroll")
    for _ in range(2):
        opened.press("ArrowDown")
        opened.press("Enter")
        focus(opened, "#operations .scroll")
    assert text(opened, "#pane h2") == facts.operations[0].name
    opened.evaluate(
        "[...document.querySelectorAll('#pane button')].find(b => b.textContent.includes('next')).click()"
    )
    assert text(opened, "#pane h2") == facts.operations[1].name
    for move, heading in (("back", 0), ("forward", 1)):
        opened.travel(move)
        assert text(opened, "#pane h2") == facts.operations[heading].name
    opened.press("Escape")
    assert is_hidden(opened, "pane") and opened.evaluate("location.hash") == ""


def test_the_focus_is_in_the_pane_and_returns(shown):
    opened, _ = shown("softmax")
    focus(opened, LX)
    opened.press("n")
    opened.press("Enter")
    assert opened.evaluate("document.activeElement.id") == "pane"
    opened.press("Escape")
    assert opened.evaluate(f"document.activeElement === document.querySelector('{LX}')")


def test_a_source_that_is_gone_is_said_so(window, tmp_path):
    """For a bundle without remarks no line is reported; the page is otherwise the same."""
    (tmp_path / "page.html").write_text(made("add")[1], encoding="utf-8")
    window.open(tmp_path / "page.html", "#op-0")
    told = text(window, "#pane")
    assert "model.py:12" in told and "The file was missing" in told
    assert "There are no remarks for this source line" in told


# -- keys --------------------------------------------------------------------------------------------------


def test_a_question_mark_shows_the_keys(shown):
    opened, _ = shown("softmax")
    opened.press("?")
    assert opened.evaluate("document.getElementById('keys').open")
    opened.press("Escape")
    assert not opened.evaluate("document.getElementById('keys').open")


def test_tab_goes_down_the_page_and_shows_where_it_is(shown):
    """From section to section, each stop with a frame around it and a name."""
    opened, _ = shown("softmax")
    reached, unmarked = [], []
    here = (
        "(() => { const at = document.activeElement; const name = at.getAttribute('aria-label')"
        " || at.textContent || (at.labels || [])[0]?.textContent;"
        " return [at.closest('section')?.id || at.tagName, getComputedStyle(at).outlineStyle, name]; })()"
    )
    for _ in range(160):
        opened.press("Tab")
        where, outline, name = opened.evaluate(here)
        reached.append(where)
        unmarked += [] if outline != "none" and name else [where]
    sections = [each for each in dict.fromkeys(reached) if each not in ("A", "BUTTON", "BODY")]
    assert sections == [
        "graph",
        "division",
        "lx",
        "timeline",
        "roofline",
        "kinds",
        "operations",
        "provenance",
        "remarks",
        "passes",
    ]
    assert set(unmarked) <= {"BODY"}


def test_arrow_keys_go_from_point_to_point(shown):
    """In the roofline the arrow selects the first point and shows its tooltip; Escape leaves."""
    opened, _ = shown("softmax")
    focus(opened, "#roofline svg")
    opened.press("ArrowDown")
    assert text(opened, "#details") == text(opened, "#roofline .item title") != ""
    opened.press("Escape")
    assert is_hidden(opened, "details")


@pytest.mark.parametrize(
    "name", ["loop", "no operation", "reduction", "hints", "attention over tiles of keys"]
)
def test_other_programs_have_a_page_too(shown, name):
    assert name in PROGRAMS
    opened, _ = shown(name)
    assert opened.evaluate(COLLISIONS) == []


@pytest.mark.filterwarnings("ignore")
def test_the_graph_has_colours_of_time_bytes_and_errors_and_is_saved_as_svg(window, tmp_path):
    """More of the time, or a larger error, is darker; the file has styles of its own."""
    program = spyre_mlir.compile(*programs.PROGRAMS["llama_block_small"]())
    modules = {operation.module: 0.0 for operation in program.facts().operations if operation.module}
    worst = sorted(modules)[0]
    found = ModuleComparisons(ModuleComparison(path, float(path == worst), 1.0) for path in modules)
    path = program.report(tmp_path / "page.html", comparison=found)
    window.open(path)
    window.settle()

    def lightness(choice):
        window.evaluate(
            f"(() => {{ const s = document.querySelector('#module-graph select'); s.value = '{choice}';"
            " s.dispatchEvent(new Event('change')); })()"
        )
        return window.evaluate(
            "[...document.querySelectorAll('.graph .node > .shape')].map(each => each.style.fill).filter(Boolean)"
        )

    plain = lightness("kind")
    for choice in ("time", "bytes", "error"):
        fills = lightness(choice)
        assert len(set(fills)) > 1 and fills != plain
    window.evaluate(
        "URL.createObjectURL = (blob) => { blob.text().then((text) => { document.body.dataset.saved = text; });"
        " return '#'; }; document.querySelector('[data-do=save]').click()"
    )
    window.settle()
    saved = window.evaluate("document.body.dataset.saved")
    assert ElementTree.fromstring(saved).tag.endswith("svg") and "fill:" in saved
