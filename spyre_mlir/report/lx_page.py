# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The page of the scratchpads of a program: the picture, and tables of the buffers, in one HTML file.

The page loads nothing from elsewhere. The page is also XML, so that tools can read it; without its script it shows
core 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from html import escape

from spyre_mlir.report.lx_map import LxMap, PlacedBuffer, SpilledBuffer
from spyre_mlir.report.lx_picture import NOTHING, cores_text, picture, title, writer_text

_STYLE = """
body { font: 13px 'DejaVu Sans', Verdana, Arial, sans-serif; color: #1a1a1a; margin: 8px 16px 32px; }
svg { max-width: 100%; height: auto; display: block; }
/* The picture shows it. */
h1 { position: absolute; width: 1px; height: 1px; margin: 0; overflow: hidden; clip-path: inset(50%); }
h2 { font-size: 15px; margin: 20px 0 6px; }
table { border-collapse: collapse; font-size: 12px; }
th, td { border-bottom: 1px solid #d9d9d9; padding: 3px 14px 3px 0; text-align: left; vertical-align: top; }
.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
p { margin: 6px 0; }
"""

#: Script that shows the buffers of the chosen cores. It has no character that XML would escape.
_SCRIPT = """
const chooser = document.getElementById("cores");
function show() {
  const core = Number(chooser.value);
  for (const shape of document.querySelectorAll(".shape"))
    shape.style.display = Number(shape.dataset.cores) > core ? "" : "none";
  for (const curves of document.querySelectorAll(".occupancy"))
    curves.style.display = Number(curves.dataset.core) === core ? "inline" : "none";
}
chooser.addEventListener("change", show);
document.getElementById("choice").hidden = false;
show();
"""

_Cell = str | int | tuple[str, ...]


def page(map_: LxMap, name: str = "") -> str:
    """Return the page of a map as the text of an HTML file. ``name`` is the name of the bundle, for the title."""
    parts = [
        "<!DOCTYPE html>",
        f'<html lang="en"><head><meta charset="utf-8"/><title>{escape(title(name))}</title>',
        f"<style>{_STYLE}</style></head><body>",
        f"<h1>{escape(title(name))}</h1>",
        _choice(map_),
        picture(map_, name, every_core=True).rstrip(),
        "<h2>Not in LX</h2>",
        *_spilled(map_),
        "<h2>In LX</h2>",
        *_placed(map_),
        f"<script>{_SCRIPT}</script>",
        "</body></html>",
    ]
    return "\n".join(parts) + "\n"


def _choice(map_: LxMap) -> str:
    """Return the selection of a core; cores that hold the same buffers are one entry."""
    options = "".join(
        f'<option value="{first}">{cores_text(first, last)}</option>' for first, last in map_.core_groups()
    )
    return f'<p id="choice" hidden="hidden"><label>Show <select id="cores">{options}</select></label></p>'


def _spilled(map_: LxMap) -> Iterator[str]:
    if not map_.spilled:
        yield "<p>Every buffer of this program that is no argument or result is in LX.</p>"
        return
    yield "<p>Bytes are those of all cores; traffic is what a run moves, a load that several cores share once.</p>"
    names = ("buffer", "written by", "steps", "bytes", "read", "written", "why it is not in LX")
    yield from _table("spilled", names, (_spilled_row(map_, buffer) for buffer in map_.spilled_by_traffic))


def _spilled_row(map_: LxMap, buffer: SpilledBuffer) -> Sequence[_Cell]:
    return (
        buffer.name,
        writer_text(map_, buffer.writer),
        f"{buffer.first} to {buffer.last}",
        buffer.bytes,
        buffer.read_bytes,
        buffer.written_bytes,
        buffer.reasons or ("the bundle does not say",),
    )


def _placed(map_: LxMap) -> Iterator[str]:
    if not map_.chains:
        yield f"<p>{NOTHING}</p>"
        return
    yield "<p>Bytes and addresses are those of one core, the same on all cores that hold the buffer.</p>"
    names = ("buffer", "written by", "steps", "address", "bytes", "cores", "in place of", "source")
    rows = (_placed_row(map_, buffer, map_.parents.get(buffer.name, "")) for buffer in map_.placed)
    yield from _table("placed", names, rows)


def _placed_row(map_: LxMap, buffer: PlacedBuffer, parent: str) -> Sequence[_Cell]:
    source = "" if buffer.writer is None else map_.steps[buffer.writer].source
    return (
        buffer.name,
        writer_text(map_, buffer.writer),
        f"{buffer.first} to {buffer.last}",
        buffer.address,
        buffer.bytes,
        buffer.cores,
        parent,
        source,
    )


def _table(identifier: str, names: Sequence[str], rows: Iterable[Sequence[_Cell]]) -> Iterator[str]:
    """Yield a table; numbers have separators, and several texts of a cell are below one another."""
    cells = list(rows)
    numeric = [isinstance(cell, int) for cell in cells[0]]
    heads = (
        f'<th class="number">{escape(name)}</th>' if number else f"<th>{escape(name)}</th>"
        for name, number in zip(names, numeric, strict=True)
    )
    yield f'<table id="{identifier}"><thead><tr>{"".join(heads)}</tr></thead><tbody>'
    for row in cells:
        yield f"<tr>{''.join(map(_cell, row))}</tr>"
    yield "</tbody></table>"


def _cell(value: _Cell) -> str:
    if isinstance(value, int):
        return f'<td class="number">{value:,}</td>'
    lines = (value,) if isinstance(value, str) else value
    return f"<td>{'<br/>'.join(map(escape, lines))}</td>"
