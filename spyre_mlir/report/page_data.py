# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Data for the script of the page about a program: one compact JSON value.

Rows of one kind are lists, and their field names are stored once. A field whose name begins with ``$`` is a text,
stored as its index in one list of all texts, because many operations have equal texts. Times are picoseconds.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from math import prod
from pathlib import Path
from typing import Any

from spyre_mlir.bundle.core_slices import holders, operand_shares, operand_splits
from spyre_mlir.bundle.model import Bundle, Origin
from spyre_mlir.bundle.program_text import print_program
from spyre_mlir.records import dataclass
from spyre_mlir.report.lx_map import FILLS, LxMap
from spyre_mlir.report.modules import ModuleNode, module_tree
from spyre_mlir.report.program_facts import (
    ADDRESS,
    BYTES,
    MEMORY,
    READ,
    WRITTEN,
    Operation,
    ProgramFacts,
    operand_name,
)
from spyre_mlir.report.timeline_picture import tracks

Json = dict[str, Any]

#: A timeline with more than this number of events merges bars closer than this part of the program's time.
_MOST_EVENTS, _FINEST = 10_000, 20_000

#: File, line, column and module.
_Place = tuple[str, int, int, str]

_LOCATION = re.compile(r"(.*?):(\d+)(?::(\d+))?")

_OPERATION = (
    "$opcode", "$category", "cores", "$slices", "runs", "$iterations", "ps", "alonePs", "$bound", "work", "read",
    "written", "spilled", "file", "line", "column", "$module", "$first", "$shape", "$dtype", "$design", "firstLine",
    "lastLine", "$text", "operands", "remarks",
)  # fmt: skip
_OPERAND = ("buffer", "$name", "$layout", "$format", "$place", "$owners", "bytes")
_BUFFER = ("$name", "$memory", "address", "bytes", "read", "written", "$reasons")
_BOX = ("buffer", "writer", "address", "bytes", "first", "last", "cores", "parent")


#: Fields of a module. Positions are of the operations that are in no submodule of the first of equal modules.
#: ``others`` are pairs: an operation of another equal module, and the operation of the first that computes the same,
#: or -1.
MODULE = (
    "$name", "$path", "parent", "first", "copies", "count", "ps", "bytes", "work", "positions", "others",
)  # fmt: skip


def page_data(facts: ProgramFacts, bundle: Bundle) -> Json:
    """Return the data of the page; the same program and sources give the same value."""
    return _Writer(facts, bundle).data()


def json_text(data: Json | list[str]) -> str:
    """Format as JSON that contains no markup of HTML or XML."""
    # Compact and in UTF-8: large programs have a hundred thousand numbers.
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def remark_steps(facts: ProgramFacts) -> list[tuple[int, ...]]:
    """Return the operations of each remark: the operations from its line of the source.

    If the reason begins with the name of one of their opcodes, only operations with this opcode are returned.
    """
    by_place: dict[_Place, list[Operation]] = {}
    for operation in facts.operations:
        if operation.origin.file:
            by_place.setdefault(_place(operation.origin), []).append(operation)
    steps = []
    for remark in facts.remarks:
        match, operations = _LOCATION.fullmatch(remark.op_location), list[Operation]()
        if match is not None:
            place = match[1], int(match[2]), int(match[3] or 0), remark.module
            operations = by_place.get(place, operations)
        named = [operation for operation in operations if remark.reason.startswith(f"'{operation.opcode}'")]
        steps.append(tuple(operation.position for operation in named or operations))
    return steps


def _place(origin: Origin) -> _Place:
    return origin.file, origin.line, origin.column, origin.module


class _Writer:
    """Builds the rows, and collects their texts."""

    def __init__(self, facts: ProgramFacts, bundle: Bundle) -> None:
        self.facts, self.bundle = facts, bundle
        self.texts: dict[str, int] = {}
        self.buffers = {item.name: number for number, item in enumerate(facts.buffers)}
        # For the path of each module the path of the first equal module, which may be the module itself.
        firsts: dict[str, str] = {}
        waiting = [root] if (root := module_tree(facts.operations)) else []
        while waiting:
            node = waiting.pop()
            firsts |= dict.fromkeys(node.paths, node.paths[0])
            waiting.extend(node.children)
        self.equal = firsts
        self.lines = execute_lines(bundle)
        origins = (operation.origin for operation in facts.operations)
        self.sources = source_lines((origin.file, origin.line) for origin in origins if origin.file)
        self.files = {file: number for number, file in enumerate(self.sources)}

    def data(self) -> Json:
        """Return the data of the page as JSON values."""
        facts = self.facts
        remarks: list[list[int]] = [[] for _ in facts.operations]
        for number, positions in enumerate(remark_steps(facts)):
            for position in positions:
                remarks[position].append(number)
        buffer_facts = (MEMORY, ADDRESS, BYTES, READ, WRITTEN, "not in LX")
        return {
            "fills": FILLS,
            "deviceCores": self.bundle.target.device_cores,
            "fields": {
                "operation": _OPERATION,
                "operand": _OPERAND,
                "buffer": _BUFFER,
                "box": _BOX,
                "module": MODULE,
            },
            "operations": [
                self._operation(operation, remarks[operation.position]) for operation in facts.operations
            ],
            "buffers": [
                self._row(_BUFFER, (buffer.name, *(buffer.facts[name] for name in buffer_facts)))
                for buffer in facts.buffers
            ],
            "modules": [self._row(MODULE, row) for row in module_rows_of(facts.operations)],
            "errors": self._errors(),
            "levels": self._levels(),
            "sources": list(self.sources.items()),
            "timeline": self._timeline(),
            "lx": self._lx(facts.map),
            "texts": list(self.texts),
        }

    def _errors(self) -> dict[str, float]:
        """Return the errors by module, and by the label of equal modules the largest of them."""
        errors = dict(self.facts.errors)
        waiting = [root] if errors and (root := module_tree(self.facts.operations)) else []
        while waiting:
            node = waiting.pop()
            if known := [self.facts.errors[path] for path in node.paths if path in self.facts.errors]:
                errors[node.label] = max(known)
            waiting.extend(node.children)
        return errors

    def _text(self, text: str) -> int:
        return self.texts.setdefault(text, len(self.texts))

    def _row(self, names: Iterable[str], values: Iterable[Any]) -> list[Any]:
        pairs = zip(names, values, strict=True)
        return [self._text(value) if name.startswith("$") else value for name, value in pairs]

    def _operation(self, operation: Operation, remarks: list[int]) -> list[Any]:
        """Return the row of an operation for the page, with the indices of its remarks."""
        lines, execution, origin = self.lines[operation.position], operation.execution, operation.origin
        values = (
            operation.opcode,
            operation.category,
            operation.cores,
            operation.slices,
            operation.runs,
            operation.iterations,
            execution.shares.total,
            execution.alone_ps,
            execution.bound_by,
            operation.roofline.operations,
            operation.read_bytes,
            operation.written_bytes,
            operation.spilled_bytes,
            self.files.get(origin.file, -1),
            origin.line,
            origin.column,
            origin.module,
            self.equal.get(origin.module, origin.module),
            operation.shape,
            operation.dtype,
            operation.design.filename,
            lines.first,
            lines.last,
            lines.text,
            [self._operand(operation, number) for number in range(len(operation.design.operands))],
            remarks,
        )
        return self._row(_OPERATION, values)

    def _operand(self, operation: Operation, number: int) -> list[Any]:
        name = operand_name(operation.buffers, number)
        design, operand = operation.design, operation.design.operands[number]
        slices, shares = operand_splits(design, operand), operand_shares(design, operand)
        divided = [dim for dim in operand.dim_order if operand.scale[dim] == 1 and slices[dim] > 1]
        split = ", ".join(f"{dim} {slices[dim]} x {shares[dim]}" for dim in divided) or "whole"
        sharing = len(holders(design, operand)) // prod(slices[dim] for dim in divided)
        if sharing == 1:
            owners = split
        else:
            is_result = number == len(design.operands) - 1
            owners = f"{split}; {sharing} cores {'add up' if is_result else 'share'} each part"
        values = (
            self.buffers[operation.buffers[number]],
            name,
            str(operation.facts[f"{name} layout"]),
            str(operation.facts[f"{name} format"]),
            str(operation.facts[name]),
            owners,
            operation.execution.work.operands[number].bytes,
        )
        return self._row(_OPERAND, values)

    def _levels(self) -> list[tuple[str, list[list[int]]]]:
        """Return the lines of each level: the file number, line, column and module of the origin, and the text.

        The result contains only lines that a device operation comes from; of equal modules, only the lines of the
        first module.
        """
        origins = (operation.origin for operation in self.facts.operations)
        known = {(*_place(origin)[:3], self.equal.get(origin.module, origin.module)) for origin in origins}
        return [
            (
                level,
                [
                    [self.files.get(line.origin.file, -1), line.origin.line, line.origin.column,
                     self._text(line.origin.module), self._text(line.text)]
                    for line in lines
                    if _place(line.origin) in known
                ],
            )
            for level, lines in self.facts.levels.items()
        ]  # fmt: skip

    def _timeline(self) -> Json:
        """Return the tracks of each group of cores. A bar has the time since the previous bar's begin, its duration,
        and its operation; a merged bar has the first and last operation, the number of bars and the busy time."""
        timeline = self.facts.timeline
        total = timeline.run.total
        # Bars below this width cannot be distinguished on a screen and only make the page large.
        least = 0 if len(timeline.run.events) <= _MOST_EVENTS else total // _FINEST
        groups = []
        for group in range(len(timeline.core_groups)):
            rows: dict[str, list[list[int]]] = {}
            for name, bars in tracks(timeline, least, group).items():
                before = 0
                for bar in sorted(bars, key=lambda item: item.begin):
                    is_one = bar.bars == 1 and bar.first == bar.last
                    merged = () if is_one else (bar.last, bar.bars, bar.busy)
                    row = [bar.begin - before, bar.end - bar.begin, bar.first, *merged]
                    rows.setdefault(name, []).append(row)
                    before = bar.begin
            groups.append(list(rows.items()))
        return {
            "total": total,
            "groups": timeline.core_groups,
            "tracks": groups,
            "links": [(*link.cores, link.bytes, link.busy_ps) for link in timeline.links],
        }

    def _lx(self, map_: LxMap) -> Json:
        numbers = {buffer.name: number for number, buffer in enumerate(map_.placed)}
        parents = {name: numbers[parent] for name, parent in map_.parents.items()}
        occupancies = [(first, last, map_.occupancy(first)) for first, last in map_.core_groups()]
        return {
            "capacity": map_.capacity,
            "bytes": map_.lx_bytes,
            "peak": map_.peak,
            "loops": [(item.first, item.last, item.count, item.depth) for item in map_.loops],
            "boxes": [
                (self.buffers[item.name], item.writer, item.address, item.bytes, item.first, item.last,
                 item.cores, parents.get(item.name, -1))
                for item in map_.placed
            ],
            "groups": [(first, last, each.load, each.high_water) for first, last, each in occupancies],
        }  # fmt: skip


# Lines of source files around the lines that a program comes from, if the files can be read.

#: Number of lines shown before and after a line that a program comes from. Maximum lines of all files together, so
#: that a page stays small; maximum characters of a line; maximum bytes of a file that is read.
_AROUND, _MOST_LINES, _CHARACTERS, _LARGEST = 4, 12_000, 160, 1 << 24


def source_lines(places: Iterable[tuple[str, int]]) -> dict[str, dict[int, str]]:
    """Return by file the text of the lines around each place (file, line from 1); unreadable files are empty."""
    lines: dict[str, set[int]] = {}
    for file, line in places:
        lines.setdefault(file, set()).add(line)
    around = _AROUND if sum(map(len, lines.values())) * (2 * _AROUND + 1) <= _MOST_LINES else 0
    shown: dict[str, dict[int, str]] = {}
    for file, numbers in lines.items():
        texts = _lines_of(Path(file))
        # A set, since the surroundings of neighbouring lines overlap.
        near = {number for line in numbers for number in range(line - around, line + around + 1)}
        inside = (number for number in sorted(near) if 1 <= number <= len(texts))
        shown[file] = {number: texts[number - 1][:_CHARACTERS] for number in inside}
    return shown


def _lines_of(file: Path) -> list[str]:
    try:
        if not file.is_file() or file.stat().st_size > _LARGEST:
            return []
        # splitlines would also end a line at a form feed.
        return file.read_text(encoding="utf-8", errors="replace").split("\n")
    except OSError:
        return []


# Lines of the operations of a bundle in the text of its `bundle.mlir`.

#: Maximum shown characters of an execute, which has thousands with an address for each core of each operand.
_LINE_CHARACTERS = 100


@dataclass(frozen=True)
class ExecuteLines:
    """``last`` is the line of an execute, from 1; ``first`` is the line of the first address computed only for it.

    ``text`` is the beginning of the execute.
    """

    first: int
    last: int
    text: str


def execute_lines(bundle: Bundle) -> list[ExecuteLines]:
    """Return the lines of each execute, in program order."""
    executes = list[ExecuteLines]()
    first = 1
    for number, line in enumerate(print_program(bundle.parameters, bundle.statements).split("\n"), 1):
        text = line.strip()
        if text.startswith("sdscbundle.sdsc_execute"):
            is_long = len(text) > _LINE_CHARACTERS
            shown = text[:_LINE_CHARACTERS] + " …" if is_long else text
            executes.append(ExecuteLines(first, number, shown))
        # Any other statement ends the addresses before an execute.
        if not (text.startswith("%") and ("arith." in text or "affine.apply" in text)):
            first = number + 1
    return executes


# The tree of modules as rows for the script of the page.


def module_rows_of(operations: Sequence[Operation]) -> list[tuple[Any, ...]]:
    """Return the rows, parents before their children; a program without modules is one row with all operations."""
    rows: list[tuple[Any, ...]] = []
    _add(rows, module_tree(operations) or ModuleNode(("",), tuple(operations), ()), -1, "")
    return rows


def _add(rows: list[tuple[Any, ...]], node: ModuleNode, parent: int, outer: str) -> None:
    """Append a module and the modules inside it to the rows of the page; ``parent`` is the row of the outer module."""
    index, work = len(rows), node.work
    of_first = [operation for operation in node.operations if operation.module == node.paths[0]]
    others = [operation for operation in node.operations if operation.module != node.paths[0]]
    # Equal modules compute the same, but their moves and copies may differ.
    firsts = {key: operation.position for key, operation in zip(_keys(of_first), of_first, strict=True)}
    pairs = [
        (operation.position, firsts.get(key, -1))
        for key, operation in zip(_keys(others), others, strict=True)
    ]
    # The label without the path of the outer module; if it is a number, with the name of the list.
    name = node.label.removeprefix(f"{outer}.") if outer else node.label
    if outer and name[0].isdecimal():
        name = f"{outer.rpartition('.')[2]}.{name}"
    every = node.all_operations
    rows.append(
        (
            name,
            node.label,
            parent,
            every[0].position if every else 0,
            node.times,
            work.executes,
            work.picoseconds,
            work.bytes,
            work.operations,
            [operation.position for operation in of_first],
            pairs,
        )
    )
    for child in node.children:
        # Modules that contain only one other node, such as a list of equal layers, have no row.
        while not child.operations and len(child.children) == 1:
            (child,) = child.children
        _add(rows, child, index, node.label if parent >= 0 else "")


def _keys(operations: Sequence[Operation]) -> list[tuple[str, str, int]]:
    """Return for each operation its opcode, its shape, and the number of equal operations before it in its module."""
    seen = Counter[tuple[str, str, str]]()
    keys: list[tuple[str, str, int]] = []
    for operation in operations:
        key = operation.module, operation.opcode, operation.shape
        keys.append((operation.opcode, operation.shape, seen[key]))
        seen[key] += 1
    return keys
