"""What the engines do over time, as bars."""

from __future__ import annotations

from html import escape

from spyre_mlir.report.html import WIDTH, count, figure, legend, time_text
from spyre_mlir.report.lx_picture import FILLS
from spyre_mlir.report.program_facts import ProgramFacts
from spyre_mlir.report.svg import CHARACTER, Page
from spyre_mlir.report.tracks import Bar, Track, tracks

#: Pixels: names of tracks, a track, its bars; where the first begins.
_LEFT, _TRACK, _BAR, _TOP = 110, 30, 20, 36
_PLOT = WIDTH - _LEFT - 20

#: How opaque a bar is whose engine is idle nearly all the time.
_PALEST = 0.2

#: What is bright and belongs to no category: bars of several operations.
_SEVERAL = "#a3a3a3"


def panel(facts: ProgramFacts) -> str:
    """The tracks above an axis of time."""
    total = facts.timeline.run.total
    if not total:
        return "<p>The program takes no time.</p>"
    found = tracks(facts.timeline, max(total // _PLOT, 1))
    page = Page()
    x = legend(page, 8, 16, [*FILLS.items(), ("several operations", _SEVERAL)])
    page.text(x, 16, "load, compute, store: of core 0")
    bottom = _TOP + len(found) * _TRACK
    _axis(page, bottom, total)
    for number, track in enumerate(found):
        _track(page, facts, track, _TOP + number * _TRACK)
    note = (
        "<p>A load waits for its first byte before the memory reads. Bars too close to be told apart are one, as pale"
        " as the engine is idle in between. <code>spyre-run --timeline trace.json</code> writes the"
        " same for Perfetto, with all cores and counters.</p>"
    )
    return note + figure(page, "Timeline", walk=True)


def _axis(page: Page, bottom: float, total: int) -> None:
    step = _step(total / 8)
    for number in range(int(total / step) + 1):
        x = _x(number * step, total)
        page.add(f'<path class="tick" d="M {x:.2f} {_TOP - 4} V {bottom:.2f}"/>')
        page.text(x, bottom + 15, f"{number * step / 1e6:g}", anchor="middle")
    page.text(_LEFT - 10, bottom + 15, "time in µs", "name", "end")


def _step(least: float) -> float:
    """1, 2 or 5 times a power of ten that is at least so much."""
    power = 10 ** (len(str(int(least))) - 1)
    return next(power * factor for factor in (1, 2, 5, 10) if power * factor >= least)


def _x(time: float, total: int) -> float:
    return _LEFT + time / total * _PLOT


def _track(page: Page, facts: ProgramFacts, track: Track, top: float) -> None:
    page.text(_LEFT - 10, top + 19, track.name, "name", "end")
    for bar in track.bars:
        _bar(page, facts, bar, top + (_TRACK - _BAR) / 2, is_loop=track.name == "repeated")


def _bar(page: Page, facts: ProgramFacts, bar: Bar, top: float, is_loop: bool) -> None:
    total = facts.timeline.run.total
    x, width = _x(bar.begin, total), max((bar.end - bar.begin) / total * _PLOT, 0.6)
    operation = facts.operations[bar.first]
    alone = bar.first == bar.last and not is_loop
    told = operation.name if alone else f"steps {bar.first} to {bar.last}, {_what(bar, is_loop)}"
    begin, end = time_text(bar.begin / 1000), time_text(bar.end / 1000)
    fill = FILLS[operation.category] if alone else _SEVERAL
    page.add(f'<g class="item bar"><title>{escape(told)}\n{begin} to {end}</title>')
    # What is busy for a part of the time only is paler; an outline would hide what is narrow.
    paler = (
        ""
        if alone
        else f' style="fill-opacity:{_PALEST + (1 - _PALEST) * bar.busy / max(bar.end - bar.begin, bar.busy):.2f}"'
    )
    page.add(f"<g{paler}>")
    page.rectangle("work" if width > 3 else "narrow", x, top, width, _BAR, fill)
    page.add("</g>")
    text = operation.opcode if alone else _what(bar, is_loop)
    if len(text) * CHARACTER + 4 <= width:
        page.text(x + width / 2, top + 14, text, "inside", "middle")
    page.add("</g>")


def _what(bar: Bar, is_loop: bool) -> str:
    return f"{bar.bars:,} times more" if is_loop else count(bar.bars, "bar")
