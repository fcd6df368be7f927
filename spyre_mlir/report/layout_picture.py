# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A picture of a stick layout as SVG: the logical grid with stick ids, and next to it device memory in order.

The same layout gives the same picture, byte for byte. Every box has its numbers as attributes
(``data-stick``, ``data-row``, ``data-column``, ``data-elements``) and a tooltip.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from html import escape
from itertools import groupby

from spyre_mlir.layout import Digit, StickLayout
from spyre_mlir.layout.listing import padding_bytes, percent, stick_text
from spyre_mlir.records import dataclass
from spyre_mlir.report.svg import CHARACTER, GAP, MARGIN, GridTrack, Page

#: Pixels: a line of text, a row and a box of a grid (of one position, of several).
_LINE, _ROW, _TALL_ROW, _BOX, _WIDE_BOX = 19, 26, 44, 46, 84
#: Maximum number of rows that are drawn before a gap replaces the others, and maximum width of a grid in pixels: a
#: picture fits on a laptop's screen.
_LIMIT, _TALL_LIMIT, _GRID_WIDTH = 9, 8, 540

#: Fills of the rows of device memory, each with a second shade for every other stick. Neighbours also differ in
#: luminance, and dark text has a contrast of at least 7 on each fill.
_FILLS = (
    ("#9ecae1", "#b7d7ea"),
    ("#ffeda0", "#fff6cf"),
    ("#fc9f83", "#fdb9a3"),
    ("#dadaeb", "#ebeaf4"),
    ("#85cc87", "#a5dba2"),
    ("#fdd0a2", "#fee3c8"),
)
_ELSEWHERE = "#ffffff"

_Lanes = Sequence[tuple[int, ...] | None]
_Words = Callable[[int], str]


def picture(layout: StickLayout, dims: Sequence[int] | None = None, name: str = "") -> str:
    """Return the picture of a layout as the text of an SVG file.

    ``dims`` are the two dims to show, rows first; ``name`` is the name of the tensor, for the title. Raises
    ``ValueError`` for dims that cannot be shown and for a tensor without elements.
    """
    if sticks(layout) == 0:
        raise ValueError("A tensor without elements takes no memory: there is nothing to show.")
    page = Page()
    part = cut(layout, dims)
    paint = _Paint(layout, part)
    right, bottom = _logical(page, paint, MARGIN, 2 * MARGIN + _LINE)
    _one_stick(page, paint, bottom + MARGIN, right)
    page_left = max(page.right, right) + 2 * MARGIN
    _, bottom = _device(page, paint, page_left, 2 * MARGIN + _LINE)
    _legend(page, paint, page_left, bottom + MARGIN)
    title = _title(layout, name)
    page.text(MARGIN, MARGIN + 6, title, "heading")
    return page.svg(title, _description(layout, part))


def _title(layout: StickLayout, name: str) -> str:
    stick = "stick-sparse" if layout.stick_dim is None else f"stick {stick_text(layout)}"
    return f"{name + ': ' if name else ''}{type_text(layout)}, {stick}"


def _description(layout: StickLayout, part: TensorSlice) -> str:
    known = "; ".join(f"{name}: {value}" for name, value in facts(layout))
    return (
        f"Left, the logical index ({_axes(part)}); each box is one stick with its id, counted in the order of "
        f"device memory. Right, device memory row by row. Hatched: padding. {known}."
    )


@dataclass(frozen=True)
class _Paint:
    """Colours of the sticks of one layout; sticks outside the displayed part are white."""

    layout: StickLayout
    part: TensorSlice

    def fill(self, stick: int) -> str:
        """Return the colour of a stick: one per row of device memory; shades alternate along the row."""
        if not self.part.has(stick):
            return _ELSEWHERE
        rows, columns = device_grid(self.layout)
        row, column = divmod(stick, columns) if rows > 1 and columns > 1 else (stick, 0)
        return _FILLS[row % len(_FILLS)][column % 2]


def _rows(part: TensorSlice) -> list[int | None]:
    side = part.rows
    limit = _LIMIT if side.step == 1 else _TALL_LIMIT
    return shown(side.cells, limit, (side.valid_cells - 1, side.valid_cells))


def _columns(part: TensorSlice) -> list[int | None]:
    side = part.columns
    limit = _that_fit(_logical_width(part))
    return shown(side.cells, limit, (side.valid_cells - 1, side.valid_cells))


def _that_fit(width: float) -> int:
    """Return the number of columns of ``width`` pixels that fit in a grid."""
    return min(_LIMIT, int(_GRID_WIDTH / width))


def _logical_width(part: TensorSlice) -> float:
    widest = max(len(_span(part.columns, part.columns.cells - 1)), 1) * CHARACTER
    return max(_BOX if part.columns.step == 1 else _WIDE_BOX, _id_width(part.layout), widest)


def _device_rows_and_columns(part: TensorSlice, width: float) -> tuple[list[int | None], list[int | None]]:
    """Return the rows and columns of device memory to draw: those in the logical grid, as far as they fit."""
    down, across = device_grid(part.layout)
    here = [part.stick(r, c) for r in _rows(part) if r is not None for c in _columns(part) if c is not None]
    rows, columns = ({divmod(stick, across)[k] for stick in here} for k in (0, 1))
    fit = _that_fit(width)
    return shown(down, _LIMIT, _few(rows, _LIMIT)), shown(across, fit, _few(columns, fit))


def _few(positions: set[int], limit: int) -> list[int]:
    """Return all positions if there are at most ``limit``, else the first ones and the last one."""
    ordered = sorted(positions)
    return ordered if len(ordered) <= limit else [*ordered[: limit // 2], ordered[-1]]


# -- the two grids ------------------------------------------------------------------------------------


def _logical(page: Page, paint: _Paint, x: float, y: float) -> tuple[float, float]:
    """Draw the logical grid at (x, y); return its right and bottom end."""
    part = paint.part
    page.text(x, y, "Logical index", "name")
    page.text(x, y + _LINE, _axes(part))
    labels = max((len(_span(part.rows, row)) for row in _rows(part) if row is not None), default=0)
    width = _logical_width(part)
    height = _ROW if part.rows.step == 1 else _TALL_ROW
    columns = GridTrack(_columns(part), x + labels * CHARACTER + 10, width)
    rows = GridTrack(_rows(part), y + 3 * _LINE, height)
    _grid_labels(
        page, rows, columns, lambda row: _span(part.rows, row), lambda column: _span(part.columns, column)
    )
    for row, column, column_x, top in _boxes(page, rows, columns):
        _logical_box(page, paint, row, column, (column_x, top, width, height))
    return columns.end, rows.end


def _logical_box(page: Page, paint: _Paint, row: int, column: int, place: tuple[float, ...]) -> None:
    part, (x, y, width, height) = paint.part, place
    stick = part.stick(row, column)
    down, across = part.rows.filled(row), part.columns.filled(column)
    elements = round(down * part.rows.step) * round(across * part.columns.step)
    where = _where(part, row, column) if elements else "padding"
    kind = "logical" if down == across == 1 else "logical partly"
    page.add(_group(kind, stick, row, column, elements, where))
    page.rectangle("box", x, y, width, height, paint.fill(stick))
    if not elements:
        page.rectangle("padding", x, y, width, height)
    else:
        _hatch(page, x + across * width, y, (1 - across) * width, height)
        _hatch(page, x, y + down * height, across * width, (1 - down) * height)
    page.rectangle("outline", x, y, width, height)
    page.text(x + width / 2, y + height / 2 + 4, str(stick), "id", "middle")
    page.add("</g>")


def _hatch(page: Page, x: float, y: float, width: float, height: float) -> None:
    if width > 0 and height > 0:
        page.rectangle("padding", x, y, width, height)


def _device(page: Page, paint: _Paint, x: float, y: float) -> tuple[float, float]:
    """Draw device memory at (x, y), sticks row by row; return its right and bottom end."""
    layout = paint.layout
    across = device_grid(layout)[1]
    width = max(_BOX, _id_width(layout))
    positions, across_positions = _device_rows_and_columns(paint.part, width)
    labels = [_device_row(layout, row * across) for row in positions if row is not None]
    columns = GridTrack(across_positions, x + max(map(len, labels)) * CHARACTER + 10, width)
    rows = GridTrack(positions, y + 3 * _LINE, _ROW)
    page.text(x, y, "Device memory, row by row", "name")
    page.text(x, y + _LINE, _device_axes(layout))
    _grid_labels(page, rows, columns, lambda row: _device_row(layout, row * across), str)
    for row, column, column_x, top in _boxes(page, rows, columns):
        _device_box(page, paint, row, column, (column_x, top, width, _ROW))
    return columns.end, rows.end


def _device_box(page: Page, paint: _Paint, row: int, column: int, place: tuple[float, ...]) -> None:
    layout, (x, y, width, height) = paint.layout, place
    stick = row * device_grid(layout)[1] + column
    slots = elements_of_stick(layout, stick)
    elements = sum(slot is not None for slot in slots)
    where = _held_text(slots) if elements else "padding"
    kind = "device" if paint.part.has(stick) else "device elsewhere"
    kind += " partly" if elements < len(slots) else ""
    page.add(_group(kind, stick, row, column, elements, where))
    page.rectangle("box", x, y, width, height, paint.fill(stick))
    _hatch_lanes(page, slots, (x, y, width, height))
    page.rectangle("outline", x, y, width, height)
    page.text(x + width / 2, y + height / 2 + 4, str(stick), "id", "middle")
    page.add("</g>")


def _hatch_lanes(page: Page, lanes: _Lanes, place: tuple[float, ...]) -> None:
    """Hatch the element slots without an element of a stick drawn at ``place``."""
    x, y, width, height = place
    scale = width / len(lanes)
    for first, count, valid in _runs(lanes):
        if not valid:
            page.rectangle("padding", x + first * scale, y, count * scale, height)


def _grid_labels(
    page: Page, rows: GridTrack, columns: GridTrack, row_text: _Words, column_text: _Words
) -> None:
    for column, x in columns.starts():
        if column is not None:
            page.text(x + columns.size / 2, rows.origin - 7, column_text(column), "label", "middle")
    for row, top in rows.starts():
        if row is not None:
            page.text(columns.origin - 8, top + rows.size / 2 + 4, row_text(row), "label", "end")


def _boxes(page: Page, rows: GridTrack, columns: GridTrack) -> Iterator[tuple[int, int, float, float]]:
    """Yield (row, column, left, top) of each box; draw the dots of gaps."""
    for row, top in rows.starts():
        for column, x in columns.starts():
            if row is not None and column is not None:
                yield row, column, x, top
            elif row is None and column is not None:
                page.dots(x + columns.size / 2, top + GAP / 2, across=False)
            elif row is not None:
                page.dots(x + GAP / 2, top + rows.size / 2, across=True)


def _group(kind: str, stick: int, row: int, column: int, elements: int, where: str) -> str:
    numbers = f'data-stick="{stick}" data-row="{row}" data-column="{column}" data-elements="{elements}"'
    return f'<g class="{kind}" {numbers}><title>stick {stick}: {escape(where)}</title>'


def _id_width(layout: StickLayout) -> float:
    return len(str(sticks(layout) - 1)) * 8 + 10


# -- one stick and the legend ----------------------------------------------------------------------------


def _one_stick(page: Page, paint: _Paint, y: float, right: float) -> None:
    """Draw the element slots of one stick: the last stick along the stick dims, which has the padding."""
    part, width = paint.part, max(right - MARGIN, 460)
    row, column = (side.valid_cells - 1 if side.step > 1 else 0 for side in (part.rows, part.columns))
    stick = part.stick(row, column)
    slots = elements_of_stick(paint.layout, stick)
    scale = width / len(slots)
    page.text(MARGIN, y, f"Inside stick {stick}", "name")
    page.add(f'<g class="stick" data-stick="{stick}">')
    top = y + 12
    page.rectangle("box", MARGIN, top, width, _ROW, paint.fill(stick))
    _hatch_lanes(page, slots, (MARGIN, top, width, _ROW))
    page.rectangle("outline", MARGIN, top, width, _ROW)
    step = max(len(slots) // 64, 1)
    ticks = "".join(f"M {MARGIN + slot * scale:g} {top:g} v {_ROW}" for slot in range(step, len(slots), step))
    page.add(f'<path class="lane" d="{ticks}"/></g>', MARGIN + width, top + _ROW)
    for line, text in enumerate(_stick_lines(slots)):
        page.text(MARGIN, top + _ROW + (line + 1) * _LINE, text)


def _stick_lines(lanes: _Lanes) -> list[str]:
    """Format the elements of a stick, a line per run; of more than four runs only the first four."""
    runs = list(_runs(lanes))
    lines = []
    for first, count, valid in runs[:4]:
        where = f"lanes {first} to {first + count - 1}" if count > 1 else f"lane {first}"
        lines.append(f"{where}: {_held_text(lanes[first : first + count]) if valid else 'padding'}")
    return [*lines, "and so on"] if len(runs) > 4 else lines


def _legend(page: Page, paint: _Paint, x: float, y: float) -> None:
    for line, (name, value) in enumerate(facts(paint.layout)):
        page.text(x, y + line * _LINE, name, "name")
        page.text(x + 110, y + line * _LINE, value, "fact")
    y += (len(facts(paint.layout)) + 0.3) * _LINE
    swatches = [("padding", "", "padding: no element")] if padding_bytes(paint.layout) else []
    fixed = [f"d{dim}" for dim in paint.part.fixed]
    if fixed:
        swatches.append(("box", _ELSEWHERE, f"{', '.join(fixed)} other than 0: not on the left"))
    for kind, fill, text in swatches:
        page.rectangle(kind, x, y, 24, 14, fill)
        page.rectangle("outline", x, y, 24, 14)
        page.text(x + 32, y + 11, text)
        x += 32 + len(text) * CHARACTER + 16


def _runs(lanes: _Lanes) -> Iterator[tuple[int, int, bool]]:
    """Yield (first slot, count, whether the slots have elements) of runs of element slots."""
    index = 0
    for valid, group in groupby(lanes, key=lambda slot: slot is not None):
        count = len(list(group))
        yield index, count, valid
        index += count


# -- words ---------------------------------------------------------------------------------------------


def _span(side: Side, cell: int) -> str:
    if side.dim is None:
        return ""
    first, last = side.span(cell)
    return str(first) if first == last else f"{first} to {last}"


def _where(part: TensorSlice, row: int, column: int) -> str:
    spans = [(part.rows, row), (part.columns, column)]
    return ", ".join(f"d{side.dim} = {_span(side, cell)}" for side, cell in spans if side.dim is not None)


def _axes(part: TensorSlice) -> str:
    named = [(part.rows, "down"), (part.columns, "across")]
    words = [f"d{side.dim} ({side.size}) {way}" for side, way in named if side.dim is not None]
    return ", ".join([*words, *(f"d{dim} = 0" for dim in part.fixed)]) or "one element"


def _device_axes(layout: StickLayout) -> str:
    if sticks(layout) == 1:
        return "one stick"
    *outer, inner = map(digit_text, layout.outer_digits)
    down = f"({', '.join(outer)}) down, " if outer else ""
    return f"{down}{inner} across"


def _device_row(layout: StickLayout, stick: int) -> str:
    """Format the coordinate of a row of sticks: all device dims except along the row and inside the stick."""
    outer = coordinate(layout, stick)[: len(layout.outer_digits) - 1]
    return f"({', '.join(map(str, outer))})" if outer else ""


def _held_text(lanes: _Lanes) -> str:
    """Format the logical indices of the first and last element: ``(0, 192) to (0, 239)``."""
    indices = [slot for slot in lanes if slot is not None]
    first, last = (f"({', '.join(map(str, index))})" for index in (indices[0], indices[-1]))
    return first if first == last else f"{first} to {last}"


# Data of a picture of a layout: its sticks, their positions in device memory, and their elements.
#
# This section has only numbers; the drawing is above. A *stick id* counts the sticks of a tensor in the order of
# device memory, from 0.


@dataclass(frozen=True)
class Side:
    """One side of the logical grid: ``dim`` in steps of the number of its positions in one stick.

    ``size`` positions exist, ``capacity`` positions fit on the device. ``dim`` is None if the tensor has no dim for
    this side.
    """

    dim: int | None
    size: int
    capacity: int
    step: int

    @property
    def cells(self) -> int:
        """Grid cells along this side, padding included."""
        return -(-self.capacity // self.step)

    @property
    def valid_cells(self) -> int:
        """Grid cells that hold an element."""
        return -(-self.size // self.step)

    def filled(self, cell: int) -> float:
        """Return the fraction of a cell's positions that exist."""
        return min(max(self.size - cell * self.step, 0), self.step) / self.step

    def span(self, cell: int) -> tuple[int, int]:
        """Return the first and last position that exist in a cell; in padding, the first and last padded position."""
        first, last = cell * self.step, (cell + 1) * self.step - 1
        return first, last if first >= self.size else min(last, self.size - 1)


@dataclass(frozen=True)
class TensorSlice:
    """The displayed two-dimensional part of a tensor: all other dims are at index 0."""

    layout: StickLayout
    rows: Side
    columns: Side

    @property
    def fixed(self) -> list[int]:
        """The dims that are fixed at index 0, except dims of size 1."""
        sides = (self.rows.dim, self.columns.dim)
        return [dim for dim, size in enumerate(self.layout.shape) if dim not in sides and size > 1]

    def has(self, stick: int) -> bool:
        """Return whether a stick is in this part: its first slot has index 0 in all fixed dims."""
        digits = zip(self.layout.digits, coordinate(self.layout, stick), strict=True)
        return not any(place for digit, place in digits if digit.dim in self.fixed)

    def stick(self, row: int, column: int) -> int:
        """Return the id of the stick that contains the first element of a cell."""
        return stick_of(self.layout, self.index(row, column))

    def index(self, row: int, column: int) -> list[int]:
        """Return the logical index of a cell's first element."""
        index = [0] * len(self.layout.shape)
        for side, cell in ((self.rows, row), (self.columns, column)):
            if side.dim is not None:
                index[side.dim] = cell * side.step
        return index


def cut(layout: StickLayout, dims: Sequence[int] | None = None) -> TensorSlice:
    """Return the part to show: ``dims`` (rows, columns), by default the dims whose sticks are neighbours in memory.

    The default dims are the stick dim and the innermost other device dim, in logical order; for a tensor of rank 2,
    both dims. Raises ``ValueError`` if ``dims`` are not two different dims of the tensor.
    """
    rank = len(layout.shape)
    if dims is None:
        dims = _telling_dims(layout)
    elif len(dims) != 2 or len(set(dims)) != 2 or not all(0 <= dim < rank for dim in dims):
        raise ValueError(f"The dims to show must be two different ones of the {rank} dims of the tensor.")
    sides = [_side(layout, dim) for dim in dims]
    return TensorSlice(layout, *[Side(None, 1, 1, 1)] * (2 - len(sides)), *sides)


def _telling_dims(layout: StickLayout) -> list[int]:
    rank = len(layout.shape)
    sized = [digit.dim for digit in reversed(layout.digits) if digit.dim is not None]
    order = sorted(dict.fromkeys([*sized, *range(rank)]), key=lambda dim: layout.shape[dim] == 1)
    # In logical order, as users write an index, not in the order of memory.
    return sorted(order[:2])


def _side(layout: StickLayout, dim: int) -> Side:
    step = math.prod(digit.size(layout.shape) for digit in layout.stick_digits if digit.dim == dim)
    return Side(dim, layout.shape[dim], layout.extent(dim), step)


def stick_of(layout: StickLayout, index: Sequence[int]) -> int:
    """Return the id of the stick that contains a logical index, which may be in the padding."""
    digits = zip(layout.digits, layout.device_strides, strict=True)
    offset = sum(stride * digit.of(index[digit.dim]) for digit, stride in digits if digit.dim is not None)
    return offset // layout.elements_per_stick


def coordinate(layout: StickLayout, stick: int, slot: int = 0) -> tuple[int, ...]:
    """Return the device coordinate of an element slot of a stick."""
    rest, digits = stick * layout.elements_per_stick + slot, []
    for stride in layout.device_strides:
        digits.append(rest // stride)
        rest %= stride
    return tuple(digits)


def elements_of_stick(layout: StickLayout, stick: int) -> list[tuple[int, ...] | None]:
    """Return the logical index of the element in each element slot of a stick; None for a slot without an element."""
    lanes = range(layout.elements_per_stick)
    return [layout.to_host(coordinate(layout, stick, slot)) for slot in lanes]


def sticks(layout: StickLayout) -> int:
    """Return the number of sticks of a tensor."""
    return math.prod(layout.device_size) // layout.elements_per_stick


def device_grid(layout: StickLayout) -> tuple[int, int]:
    """Return rows and columns of the device array of sticks; all dims except the innermost one form the rows."""
    columns = math.prod(digit.size(layout.shape) for digit in layout.outer_digits[-1:])
    return sticks(layout) // columns, columns


def shown(count: int, limit: int, keep: Iterable[int] = ()) -> list[int | None]:
    """Return the positions to draw of ``count``: all if at most ``limit``, else the first and last ones; None is a gap.

    Positions in ``keep`` have priority over others.
    """
    if count <= limit:
        return list(range(count))
    ends = {position for position in keep if 0 <= position < count}
    for position in _from_both_ends(count):
        if len(ends) >= limit:
            break
        ends.add(position)
    positions: list[int | None] = []
    for position in sorted(ends):
        if position and position - 1 not in ends:
            # A gap of one position would need as much space as the position.
            positions.append(position - 1 if position - 2 in ends else None)
        positions.append(position)
    return positions


def _from_both_ends(count: int) -> Iterator[int]:
    """Yield 0, the last, 1, 2, the second to last, 3, 4, ..: two from the front for each from the back."""
    for step in range(count):
        yield from (2 * step - 1,) if step else ()
        yield from (2 * step, count - 1 - step)


def type_text(layout: StickLayout) -> str:
    """Format the tensor type without its layout: ``tensor<512x240xf16>``."""
    return f"tensor<{'x'.join([*map(str, layout.shape), layout.dtype])}>"


def map_text(layout: StickLayout) -> str:
    """Format the layout as the IR attribute does: ``(d0, d1) -> (d1 floordiv 64, d0, d1 mod 64)``."""
    dims = ", ".join(f"d{dim}" for dim in range(len(layout.shape)))
    return f"({dims}) -> ({', '.join(map(digit_text, layout.digits))})"


def digit_text(digit: Digit) -> str:
    """Format one device dim as an expression of the logical index: ``d1 floordiv 64``."""
    if digit.dim is None:
        return "0"
    text = f"d{digit.dim}"
    if digit.divisor != 1:
        text += f" floordiv {digit.divisor}"
    if digit.modulus is None:
        return text
    return f"({text}) mod {digit.modulus}" if digit.divisor != 1 else f"{text} mod {digit.modulus}"


def facts(layout: StickLayout) -> list[tuple[str, str]]:
    """Return names and values of the facts about a layout, for a legend."""
    padding, bytes_per_stick = padding_bytes(layout), layout.bytes // sticks(layout)
    return [
        ("tensor", type_text(layout)),
        ("stick", stick_text(layout)),
        ("map", map_text(layout)),
        ("device size", f"({', '.join(map(str, layout.device_size))})"),
        ("device strides", f"({', '.join(map(str, layout.device_strides))}) elements"),
        ("host strides", _host_strides(layout)),
        ("sticks", f"{sticks(layout):,} x {bytes_per_stick} bytes = {layout.bytes:,} bytes"),
        ("padding", f"{padding:,} bytes ({percent(padding, layout.bytes)})"),
    ]


def _host_strides(layout: StickLayout) -> str:
    none = ", -1: no host dim" if -1 in layout.stride_map else ""
    return f"({', '.join(map(str, layout.stride_map))}) elements{none}"
