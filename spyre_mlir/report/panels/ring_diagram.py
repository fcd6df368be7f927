# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Panel of the load of each link of the ring, in both directions."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from spyre_mlir.report.html import WIDTH, figure
from spyre_mlir.report.program_facts import ProgramFacts
from spyre_mlir.report.ring_text import link_text, ring_text
from spyre_mlir.report.svg import Page
from spyre_mlir.timeline.links import LinkUse, busiest

#: Pixels: width of row names, top of the first row, height of a row and of the cores between both rows.
_LEFT, _TOP, _HEIGHT, _CORES = 150, 4, 22, 20

#: Colours of an idle link and of the busiest link.
_PALE, _DARK = (255, 255, 255), (8, 81, 156)


def panel(facts: ProgramFacts) -> str:
    """Return a row of clockwise links and a row of counter-clockwise links, with the cores between the rows."""
    uses = facts.timeline.links
    page = Page()
    for name, top, row in zip(
        ("clockwise →", "counter-clockwise ←"),
        (_TOP, _TOP + _HEIGHT + _CORES),
        ([use for use in uses if use.clockwise is way] for way in (True, False)),
        strict=True,
    ):
        page.text(_LEFT - 12, top + 15, name, "name", "end")
        _row(page, facts, row, top, busiest(uses))
    width = _width(len(uses) // 2)
    for core in range(len(uses) // 2):
        page.text(_LEFT + core * width, _TOP + _HEIGHT + 15, str(core), anchor="middle")
    page.text(WIDTH - 4, _TOP + _HEIGHT + 15, "0", anchor="end")
    note = (
        f"<p>{escape(ring_text(facts))}.</p><p>The darker a link between two cores, the longer it is busy with"
        " bytes of the program; the darkest is the busiest. What goes to several cores in one direction crosses a"
        " link once.</p>"
    )
    return note + figure(page, "Links of the ring", walk=True)


def _row(page: Page, facts: ProgramFacts, row: Sequence[LinkUse], top: int, busiest: LinkUse) -> None:
    width = _width(len(row))
    for use in row:
        page.add(f'<g class="item link"><title>{escape(link_text(facts, use))}</title>')
        page.rectangle(
            "sample", _LEFT + use.link * width, top, width, _HEIGHT, _fill(use.bytes / busiest.bytes)
        )
        page.add("</g>")


def _width(links: int) -> float:
    return (WIDTH - 8 - _LEFT) / links


def _fill(part: float) -> str:
    """Return the fill of a link that is busy for ``part`` of the busiest link's time; only idle links are white."""
    part = 0.1 + 0.9 * part if part else 0
    red, green, blue = (round(pale + part * (dark - pale)) for pale, dark in zip(_PALE, _DARK, strict=True))
    return f"#{red:02x}{green:02x}{blue:02x}"
