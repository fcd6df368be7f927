# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Panel of the cores that own the parts of the result of a chosen operation."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from spyre_mlir.bundle.model import Design
from spyre_mlir.records import dataclass
from spyre_mlir.report.html import WIDTH, core_choice, figure
from spyre_mlir.report.program_facts import Operation, ProgramFacts
from spyre_mlir.report.svg import CHARACTER, Page

#: Pixels: width of row labels, top of the cells, minimum width of a cell, height of a cell.
_LEFT, _TOP, _LEAST, _HEIGHT = 70, 40, 30, 24

#: Maximum number of pictures in a page, so that it stays small; further pictures are omitted.
_MOST = 200


def panel(facts: ProgramFacts) -> str:
    """Return a selection of operations and a picture for each division; initially the longest operation is shown."""
    if not facts.operations:
        return "<p>The program has no operation.</p>"
    cores = facts.timeline.target.device_cores
    shown = max(facts.operations, key=lambda op: (op.execution.total_ns, -op.position))
    numbers: dict[Owners, int] = {}
    of_operation: dict[int, int] = {}
    of_design: dict[str, Owners] = {}
    for operation in (shown, *facts.operations):
        name = operation.design.filename
        division = (
            of_design[name] if name in of_design else of_design.setdefault(name, owners(operation.design))
        )
        if division in numbers or len(numbers) < _MOST:
            of_operation[operation.position] = numbers.setdefault(division, len(numbers))
    options = (
        _option(op, of_operation[op.position], op is shown)
        for op in facts.operations
        if op.position in of_operation
    )
    left_out = len(facts.operations) - len(of_operation)
    return "\n".join(
        [
            "<p>A cell is a part of the result, along the two dims that are split most; colour and numbers say which"
            " cores own it; what the chosen core owns has a bold frame."
            f" Shown first is step {shown.position}, {escape(shown.opcode)}, which takes longest.</p>",
            '<p class="tools scripted" hidden="hidden">',
            f'<label>Operation <select id="divided">{"".join(options)}</select></label>',
            f" {left_out:,} operations are left out." if left_out else "",
            f"{core_choice(cores)}</p>",
            *(_division(division, number, cores) for division, number in numbers.items()),
        ]
    )


def _option(operation: Operation, number: int, selected: bool) -> str:
    chosen = ' selected="selected"' if selected else ""
    name = f"{operation.position}: {operation.opcode}"
    return f'<option value="{operation.position}" data-division="{number}"{chosen}>{escape(name)}</option>'


def _division(owners: Owners, number: int, cores: int) -> str:
    hidden = ' hidden="hidden"' if number else ""
    words = "".join(f"<p>{escape(sentence)}</p>" for sentence in _sentences(owners))
    return f'<div class="division" data-division="{number}"{hidden}>{words}{_picture(owners, cores)}</div>'


def _sentences(owners: Owners) -> list[str]:
    sentences = [
        f"Cores of a cell also split {_axis_text(axis)}, which is not shown." for axis in owners.others
    ]
    sentences += [
        f"The reduced dim {_axis_text(axis)} is split too: the cores of a cell add up what they have."
        for axis in owners.reduced
    ]
    whole = "The whole result is one part." if owners.rows is None and owners.columns is None else ""
    return [*([whole] if whole else []), *sentences]


def _picture(owners: Owners, device_cores: int) -> str:
    page = Page()
    texts = [[_cores_text(cores) for cores in row] for row in owners.cells]
    longest = max(len(text) for row in texts for text in row)
    across = len(owners.cells[0])
    width = min(max(_LEAST, longest * CHARACTER + 10), (WIDTH - _LEFT) / across)
    if owners.columns is not None:
        page.text(_LEFT, 14, f"{_axis_text(owners.columns)} →", "name")
    if owners.rows is not None:
        page.text(0, _TOP + len(texts) * _HEIGHT + 18, f"↓ {_axis_text(owners.rows)}", "name")
    for column in range(across if owners.columns else 0):
        page.text(_LEFT + (column + 0.5) * width, _TOP - 8, str(column), anchor="middle")
    for row, line in enumerate(texts):
        top = _TOP + row * _HEIGHT
        if owners.rows is not None:
            page.text(_LEFT - 10, top + 16, str(row), anchor="end")
        for column, text in enumerate(line):
            box, cores = (_LEFT + column * width, top, width), owners.cells[row][column]
            _cell(page, box, cores, text, 360 / device_cores)
    return figure(page, "Division map")


def _cell(page: Page, box: tuple[float, float, float], cores: Sequence[int], text: str, hue: float) -> None:
    """Draw the cell of ``cores`` in a box of x, y and width; ``hue`` is the number of degrees from core to core."""
    x, y, width = box
    owning = " ".join(map(str, cores))
    # Text that does not fit into the cell is in its tooltip.
    title = "" if len(text) * CHARACTER <= width else f"<title>cores {owning}</title>"
    page.add(f'<g class="cell" data-cores="{owning}">{title}')
    fill = f"hsl({hue * cores[0]:.0f},65%,{78 if cores[0] % 2 else 86}%)" if cores else "#ffffff"
    page.rectangle("owner", x, y, width, _HEIGHT, fill)
    if len(text) * CHARACTER <= width:
        page.text(x + width / 2, y + 16, text, "inside", "middle")
    page.add("</g>")


def _axis_text(axis: ResultAxis) -> str:
    return f"{axis.dim}: {axis.size:,} elements in {axis.slices} slices of {axis.share:,}"


def _cores_text(cores: Sequence[int]) -> str:
    """Format cores, with neighbours as ranges: ``0-3 8``."""
    runs: list[list[int]] = []
    for core in cores:
        if runs and runs[-1][-1] == core - 1:
            runs[-1].append(core)
        else:
            runs.append([core])
    return " ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


# Cores that own the parts of an operation's result, as a grid over the two dims with the most slices.


@dataclass(frozen=True)
class ResultAxis:
    """A dim of the result: its name, elements with padding, slices and elements per slice."""

    dim: str
    size: int
    slices: int
    share: int


@dataclass(frozen=True)
class Owners:
    """``cells[row][column]`` are the cores that own this slice of the two dims; an axis that is None is not split.

    ``others`` are further split dims, whose slices the cores of a cell share among them. ``reduced`` are split
    reduction dims: the cores of a cell add up their partial sums.
    """

    rows: ResultAxis | None
    columns: ResultAxis | None
    cells: tuple[tuple[tuple[int, ...], ...], ...]
    others: tuple[ResultAxis, ...]
    reduced: tuple[ResultAxis, ...]


def owners(design: Design) -> Owners:
    """Return the owners of the result of a design; of equally split dims the inner one is horizontal."""
    result = design.operands[-1]
    split = [_axis(design, dim) for dim, count in design.slices.items() if count > 1]
    inner_first = [dim for dim in result.dim_order if result.scale[dim] == 1]
    dims = sorted(
        (axis for axis in split if axis.dim in inner_first),
        key=lambda axis: (-axis.slices, inner_first.index(axis.dim)),
    )
    # A page has two directions, so further dims are described in words.
    columns, rows = (*dims[:2], None, None)[:2]
    cores = _cores(design, rows, columns)
    return Owners(
        rows=rows,
        columns=columns,
        cells=tuple(
            tuple(tuple(cores.get((row, column), ())) for column in _slices(columns)) for row in _slices(rows)
        ),
        others=tuple(dims[2:]),
        reduced=tuple(axis for axis in split if axis.dim not in inner_first),
    )


def _axis(design: Design, dim: str) -> ResultAxis:
    return ResultAxis(dim, design.sizes[dim], design.slices[dim], design.shares[dim])


def _slices(axis: ResultAxis | None) -> range:
    return range(axis.slices if axis else 1)


def _cores(
    design: Design, rows: ResultAxis | None, columns: ResultAxis | None
) -> dict[tuple[int, int], list[int]]:
    """Return the cores of each slice of both dims, in order; a dim that is not split has slice 0."""
    cores: dict[tuple[int, int], list[int]] = {}
    for core, slices in enumerate(design.core_slices):
        row, column = (slices[axis.dim] if axis else 0 for axis in (rows, columns))
        cores.setdefault((row, column), []).append(core)
    return cores
