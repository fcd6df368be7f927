# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The program as a graph: operations from top to bottom in order, buffers as columns from writer to last reader."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from html import escape

from spyre_mlir.records import dataclass
from spyre_mlir.report.bundle_facts import ADDRESS, BYTES, MEMORY, BufferFacts, operand_name
from spyre_mlir.report.html import WIDTH, anchor, bytes_text, count, figure, fitting, legend, time_text
from spyre_mlir.report.lx_picture import FILLS, runs_text
from spyre_mlir.report.program_facts import Operation, ProgramFacts
from spyre_mlir.report.svg import CHARACTER, Page

#: Maximum number of operations that are drawn in order.
LARGEST = 300

#: Colours of buffers by memory; in ``bundle_facts``, "pool" is device memory that is not an argument.
_MEMORIES = {"LX": "#2171b5", "pool": "#c2410c", "argument": "#6b6b6b"}
_MEMORY_NAMES = {"LX": "LX", "pool": "device memory", "argument": "argument or result"}

#: Pixels: top of the first row, height of a row, height of an operation's box, widths of columns.
_TOP, _ROW, _BOX, _OPCODE, _TIME = 62, 26, 20, 160, 150
_COLUMN, _COLUMNS = 11, 330


#: Buttons of the graph of modules: their actions and names.
_BUTTONS = (
    ("level", "open a level"), ("close", "close all"), ("in", "zoom in +"), ("out", "zoom out -"), ("all", "fit 0"),
)  # fmt: skip


def panel(facts: ProgramFacts) -> str:
    """Return the graph of modules, and below it the operations in order if the program is not large."""
    if not facts.operations:
        return "<p>The program has no operation.</p>"
    if len(facts.operations) > LARGEST:
        return _modules()
    return f"{_modules()}<h3>Operations in order</h3>{_in_order(facts)}"


def _modules() -> str:
    buttons = "".join(f'<button type="button" data-do="{do}">{name}</button>' for do, name in _BUTTONS)
    keys = "arrow keys go and open, Enter opens, plus and minus zoom"
    return "\n".join(
        [
            "<p>What is below reads what is above. Modules of the model are boxes that open with a click; equal"
            " layers are one, with how many there are. A line is what one writes and the other reads; the bar at the"
            " foot of a box is its share of the time. Ctrl and the wheel zoom, drag moves.</p>",
            '<div class="graph" id="module-graph"><noscript><p>Without its script the page does not draw this graph.'
            '</p></noscript><p class="tools scripted" hidden="hidden">',
            f'{buttons}<label>Find <input type="search"/></label> <span class="matches" role="status"></span></p>',
            f'<div class="picture"><svg xmlns="http://www.w3.org/2000/svg" role="tree" aria-label="Modules: {keys}">'
            "</svg></div></div>",
        ]
    )


def _in_order(facts: ProgramFacts) -> str:
    note = (
        "<p>Time goes down. A lane is a buffer, from the operation that writes it to the one that reads it last; a"
        " circle is where an argument is read first, x 8 that loops run an operation 8 times. Hover for layouts,"
        " addresses and reasons, or use the arrow keys. A click on an operation shows all about it.</p>"
    )
    drawn = figure(_Drawing(facts).draw(), "Operations in order", walk=True)
    return f'{note}<div class="scroll" tabindex="-1">{drawn}</div>'


@dataclass
class _Drawing:
    """One drawing: the buffers by name, and pixels that depend on the number of columns."""

    facts: ProgramFacts

    def __post_init__(self) -> None:
        self.page = Page()
        self.buffers: Mapping[str, BufferFacts] = {item.name: item for item in self.facts.buffers}
        self.columns = buffer_columns([item.facts.buffers for item in self.facts.operations])
        used = 1 + max(column.number for column in self.columns)
        self.pitch = min(_COLUMN, _COLUMNS / used)
        self.box_x = 14 + used * self.pitch
        self.slices = self.box_x + _OPCODE + 14
        self.names = max(self.slices + 200, WIDTH - _TIME - 470)
        self.time = WIDTH - _TIME

    def draw(self) -> Page:
        """Draw the graph, a row per operation."""
        x = legend(self.page, 8, 16, FILLS.items())
        legend(self.page, x, 16, ((name, _MEMORIES[key]) for key, name in _MEMORY_NAMES.items()))
        for column_x, name in ((self.box_x, "operation"), (self.slices, "cores: dim slices x elements"),
                         (self.names, "reads → writes"), (self.time, "time, of all runs")):  # fmt: skip
            self.page.text(column_x, _TOP - 14, name, "name")
        for column in self.columns:
            self._column(column)
        longest = max(op.execution.total_ns for op in self.facts.operations)
        for operation in self.facts.operations:
            self._row(operation, longest)
        return self.page

    # -- operations ------------------------------------------------------------------------------------

    def _row(self, operation: Operation, longest: float) -> None:
        page, top = self.page, _TOP + operation.position * _ROW
        place = f'href="#{anchor(operation.position)}" data-operation="{operation.position}"'
        page.add(f'<a class="item row" {place}>')
        page.add(f"<title>{escape(_operation_text(operation))}</title>")
        page.rectangle("ground", self.box_x, top, WIDTH - self.box_x, _ROW)
        page.rectangle("node", self.box_x, top + (_ROW - _BOX) / 2, _OPCODE, _BOX, FILLS[operation.category])
        base = top + _ROW / 2 + 4
        times = f"x {operation.runs:,}" if operation.iterations else ""
        room = _OPCODE - 12 - len(times) * CHARACTER
        page.text(self.box_x + 7, base, fitting(f"{operation.position}  {operation.opcode}", room), "inside")
        if times:
            page.text(self.box_x + _OPCODE - 5, base, times, "inside", "end")
        split = f"{operation.cores}: {operation.slices}" if operation.slices else f"{operation.cores}"
        page.text(self.slices, base, fitting(split, self.names - self.slices - 8))
        *operands, result = operation.facts.buffers
        room = self.time - self.names - 8
        page.text(self.names, base, fitting(f"{', '.join(operands)} → {result}", room))
        width = (_TIME - 76) * operation.execution.total_ns / max(longest, 1e-9)
        page.rectangle("time", self.time, top + 8, max(width, 0.5), _ROW - 16)
        page.text(WIDTH, base, time_text(operation.execution.total_ns), anchor="end")
        page.add("</a>", WIDTH, top + _ROW)

    # -- buffers ---------------------------------------------------------------------------------------

    def _column(self, column: BufferColumn) -> None:
        buffer = self.buffers[column.buffer]
        colour = _MEMORIES.get(str(buffer.facts[MEMORY]), _MEMORIES["pool"])
        x = self.box_x - 10 - (column.number + 0.5) * self.pitch
        # Writes first: the arrow heads below belong to the reads, which follow the writes.
        heights = [self._write_y(row) for row in column.writes] + [
            self._read_y(*read) for read in column.reads
        ]
        path = f"M {x:.2f} {min(heights):.2f} V {max(heights):.2f}"
        path += "".join(f" M {x:.2f} {y:.2f} H {self.box_x:.2f}" for y in heights)
        heads = "".join(
            f" M {self.box_x - 5:.2f} {y - 2.5:.2f} L {self.box_x:.2f} {y:.2f} L {self.box_x - 5:.2f} {y + 2.5:.2f} Z"
            for y in heights[len(column.writes) :]
        )
        self.page.add(f'<g class="item lane" data-buffer="{escape(buffer.name)}" style="color:{colour}">')
        self.page.add(f"<title>{escape(self._buffer_text(buffer, column))}</title>")
        self.page.add(f'<path class="reach" d="{path}"/><path class="line" d="{path}"/>')
        if heads:
            self.page.add(f'<path class="arrow" d="{heads.strip()}"/>')
        if not column.writes or min(heights) < self._write_y(min(column.writes)):
            self.page.add(f'<circle class="argument" cx="{x:.2f}" cy="{min(heights):.2f}" r="3"/>')
        self.page.add("</g>")

    def _read_y(self, row: int, operand: int) -> float:
        """Return the pixel of an operand: operands arrive in the upper part of a box, one below another."""
        operands = len(self.facts.operations[row].facts.buffers) - 1
        return _TOP + row * _ROW + (_ROW - _BOX) / 2 + 3 + 10 * operand / operands

    def _write_y(self, row: int) -> float:
        return _TOP + row * _ROW + (_ROW + _BOX) / 2 - 3

    def _buffer_text(self, buffer: BufferFacts, column: BufferColumn) -> str:
        facts = buffer.facts
        memory = str(facts[MEMORY])
        lines = [f"{buffer.name}: {_MEMORY_NAMES.get(memory, memory)}, {facts[BYTES]:,} bytes"]
        lines += [
            f"at address {facts[ADDRESS]:,}" + (" of each core" if memory == "LX" else " of its allocation")
        ]
        lines += [
            f"read {facts['bytes read']:,} bytes, written {facts['bytes written']:,} bytes in device memory"
        ]
        lines += [f"layout, innermost first: {layout}" for layout in self._layouts(column)]
        reasons = str(facts["not in LX"])
        return "\n".join([*lines, *([f"not in LX: {reasons}"] if reasons else [])])

    def _layouts(self, column: BufferColumn) -> Sequence[str]:
        """Return the layouts in which operations use a buffer, without repetitions."""
        seen = [self._layout(row, len(self.facts.operations[row].facts.buffers) - 1) for row in column.writes]
        seen += [self._layout(*read) for read in column.reads]
        return list(dict.fromkeys(seen))

    def _layout(self, row: int, operand: int) -> str:
        facts = self.facts.operations[row].facts
        name = operand_name(facts.buffers, operand)
        return f"{facts.facts[f'{name} layout']}, {facts.facts[f'{name} format']}"


def _operation_text(operation: Operation) -> str:
    split = f": {operation.slices}" if operation.slices else ""
    lines = [operation.name, f"{count(operation.cores, 'core')}{split}"]
    lines += [runs_text(operation.facts.step)] if operation.iterations else []
    lines += [f"{time_text(operation.execution.total_ns)}, bound by {operation.execution.bound_by}"]
    lines += [f"reads {bytes_text(operation.read_bytes)}, writes {bytes_text(operation.written_bytes)}"]
    return "\n".join([*lines, *([operation.source] if operation.source else [])])


# Columns of the buffers in the graph of a program: operations are rows in order, a buffer is a column next to them.
#
# A row has two halves: operands are read in the first, the result is written in the second. A buffer occupies its
# column from its first write or read to its last read; nothing else is in this part of the column.


@dataclass(frozen=True)
class BufferColumn:
    """A buffer in column ``number``; column 0 is next to the operations.

    ``writes`` are the rows that write the buffer; ``reads`` are (row, operand index). ``first`` and ``last`` count
    half rows.
    """

    buffer: str
    number: int
    writes: tuple[int, ...]
    reads: tuple[tuple[int, int], ...]
    first: int
    last: int


def buffer_columns(uses: Sequence[Sequence[str]]) -> list[BufferColumn]:
    """Return the columns of a program, by their begin; ``uses`` are the buffers of each row, the result last."""
    writes: dict[str, list[int]] = {}
    reads: dict[str, list[tuple[int, int]]] = {}
    for row, (*operands, result) in enumerate(uses):
        for number, buffer in enumerate(operands):
            reads.setdefault(buffer, []).append((row, number))
        writes.setdefault(result, []).append(row)
    spans = []
    for buffer in dict.fromkeys((*writes, *reads)):
        halves = [2 * row for row, _ in reads.get(buffer, [])] + [
            2 * row + 1 for row in writes.get(buffer, [])
        ]
        spans.append((min(halves), max(halves), buffer))
    columns, free, busy = [], list[int](), list[tuple[int, int]]()
    for first, last, buffer in sorted(spans):
        # Columns that ended before this buffer begins are free again.
        while busy and busy[0][0] < first:
            heapq.heappush(free, heapq.heappop(busy)[1])
        # Use the free column nearest to the operations, to keep the picture narrow.
        number = heapq.heappop(free) if free else len(busy)
        heapq.heappush(busy, (last, number))
        columns.append(
            BufferColumn(
                buffer, number, tuple(writes.get(buffer, ())), tuple(reads.get(buffer, ())), first, last
            )
        )
    return columns
