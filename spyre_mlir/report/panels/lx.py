# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Panel of the scratchpads: a map over time, drawn by the script of the page, and tables of all buffers."""

from __future__ import annotations

from collections.abc import Sequence

from spyre_mlir.report.html import FILTER, MORE, Cell, Column, Steps, chart, count, legend_line, table
from spyre_mlir.report.lx_map import LxMap, PlacedBuffer, SpilledBuffer
from spyre_mlir.report.lx_picture import FILLS, NOTHING
from spyre_mlir.report.program_facts import ProgramFacts

#: Maximum number of buffers in a table, so that the page stays small.
_MOST = 2000

_SPILLED = (
    Column("buffer", 12),
    Column("written by", 6),
    Column("steps", 8),
    Column("bytes", 9, is_number=True),
    Column("read (B)", 9, is_number=True),
    Column("written (B)", 9, is_number=True),
    Column("why it is not in LX", 47),
)
_PLACED = (
    Column("buffer", 20),
    Column("written by", 10),
    Column("steps", 12),
    Column("address", 12, is_number=True),
    Column("bytes", 12, is_number=True),
    Column("cores", 8, is_number=True),
    Column("in place of", 26),
)


def panel(facts: ProgramFacts) -> str:
    """Return the chart, and below it the buffers in device memory and the buffers in LX."""
    map_ = facts.map
    if not map_.steps:
        return "<p>The program has no operation, so nothing is in the scratchpads.</p>"
    return "\n".join(
        [
            f"<p>{_summary(map_)} Boxes are what the chosen core holds, over the steps of the program; a box drawn over"
            " half a step of another takes its place. Ctrl and the wheel zoom, drag moves, a click on a box shows the"
            " operation that writes it.</p>",
            legend_line((f"written by: {name}", fill) for name, fill in FILLS.items()),
            chart("lx-chart", "LX map", facts.timeline.target.device_cores, stretches=True),
            "<h3>Not in LX</h3>",
            *_spilled(map_),
            "<h3>In LX</h3>",
            *_placed(map_),
        ]
    )


def _summary(map_: LxMap) -> str:
    return (
        f"{count(len(map_.placed), 'buffer')} in LX, in {count(len(map_.chains), 'place')}, {len(map_.spilled):,}"
        f" spilled to device memory. The highest ends at {map_.peak:,} of {map_.capacity:,} bytes per core."
    )


def _spilled(map_: LxMap) -> list[str]:
    if not map_.spilled:
        return ["<p>Every buffer of this program that is no argument or result is in LX.</p>"]
    note = "Bytes are those of all cores; read and written is what a run moves, a load that several cores share once."
    return _listing(note, "spilled-table", _SPILLED, list(map(_spilled_row, map_.spilled_by_traffic)))


def _spilled_row(buffer: SpilledBuffer) -> tuple[Cell, ...]:
    return (
        buffer.name,
        _writer(buffer.writer),
        f"{buffer.first} to {buffer.last}",
        buffer.bytes,
        buffer.read_bytes,
        buffer.written_bytes,
        "; ".join(buffer.reasons) or "the bundle does not say",
    )


def _placed(map_: LxMap) -> list[str]:
    if not map_.chains:
        return [f"<p>{NOTHING}</p>"]
    note = "Bytes and addresses are those of one core, the same on all cores that hold the buffer."
    rows = [_placed_row(buffer, map_.parents.get(buffer.name, "")) for buffer in map_.placed]
    return _listing(note, "placed-table", _PLACED, rows)


def _placed_row(buffer: PlacedBuffer, parent: str) -> tuple[Cell, ...]:
    steps = f"{buffer.first} to {buffer.last}"
    return buffer.name, _writer(buffer.writer), steps, buffer.address, buffer.bytes, buffer.cores, parent


def _writer(step: int | None) -> Cell:
    return "never written" if step is None else Steps((step,))


def _listing(
    note: str, identifier: str, columns: Sequence[Column], rows: Sequence[Sequence[Cell]]
) -> list[str]:
    left_out = len(rows) - _MOST
    return [
        f"<p>{note}{f' The first {_MOST:,} of {len(rows):,} buffers.' if left_out > 0 else ''}</p>",
        '<div class="listing">',
        f'<p class="scripted" hidden="hidden">{FILTER}</p>',
        table(identifier, columns, rows[:_MOST]),
        MORE,
        "</div>",
    ]
