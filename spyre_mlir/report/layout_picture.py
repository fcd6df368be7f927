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
from spyre_mlir.report.html import CHARACTER, MARGIN, Page

#: Pixels: a line of text, a row and a box of a grid (of one position, of several).
_LINE, _ROW, _TALL_ROW, _BOX, _WIDE_BOX = 19, 26, 44, 46, 84
#: Maximum number of rows that are drawn before a gap replaces the others, and maximum width of a grid in pixels: a
#: picture fits on a laptop's screen.
_LIMIT, _TALL_LIMIT, _GRID_WIDTH = 9, 8, 540
#: Pixels between displayed positions of a grid.
_GAP = 26

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


def picture(layout: StickLayout, dims: Sequence[int] | None = None, name: str = "") -> str:
    """Return the picture of a layout as the text of an SVG file.

    ``dims`` are the two dims to show, rows first; ``name`` is the name of the tensor, for the title. Raises
    ``ValueError`` for dims that cannot be shown and for a tensor without elements.
    """
    if sticks(layout) == 0:
        raise ValueError("A tensor without elements takes no memory: there is nothing to show.")
    page = Page()
    part = cut(layout, dims)
    rows, columns, right = _logical(page, part, MARGIN, 2 * MARGIN + _LINE)
    _one_stick(page, part, rows.end + MARGIN, right)
    page_left = max(page.right, right) + 2 * MARGIN
    here = [part.stick(r, c) for r in rows.shown for c in columns.shown]
    bottom = _device(page, part, here, page_left, 2 * MARGIN + _LINE)
    known = facts(layout)
    _legend(page, part, known, page_left, bottom + MARGIN)
    stick = "stick-sparse" if layout.stick_dim is None else f"stick {stick_text(layout)}"
    title = f"{name + ': ' if name else ''}{type_text(layout)}, {stick}"
    page.text(MARGIN, MARGIN + 6, title, "heading")
    listed = "; ".join(f"{name}: {value}" for name, value in known)
    description = (
        f"Left, the logical index ({_axes(part)}); each box is one stick with its id, counted in the order of "
        f"device memory. Right, device memory row by row. Hatched: padding. {listed}."
    )
    return page.svg(title, description)


def _fill(part: TensorSlice, stick: int) -> str:
    """Return the colour of a stick: one per row of device memory; shades alternate along the row.

    Sticks outside the displayed part are white.
    """
    if not part.has(stick):
        return _ELSEWHERE
    rows, columns = device_grid(part.layout)
    row, column = divmod(stick, columns) if rows > 1 and columns > 1 else (stick, 0)
    return _FILLS[row % len(_FILLS)][column % 2]


# -- the two grids ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Track:
    """Rows or columns of a grid, with their pixels; None is a gap."""

    positions: list[int | None]
    origin: float
    size: float

    @property
    def shown(self) -> list[int]:
        """The positions without the gaps."""
        return [position for position in self.positions if position is not None]

    def starts(self) -> Iterator[tuple[int | None, float]]:
        """Yield the (position, pixel) of each item that is shown."""
        x = self.origin
        for position in self.positions:
            yield position, x
            x += _GAP if position is None else self.size

    @property
    def end(self) -> float:
        """The pixel after the last item."""
        return self.origin + sum(_GAP if position is None else self.size for position in self.positions)


def _that_fit(width: float) -> int:
    """Return the number of columns of ``width`` pixels that fit in a grid."""
    return min(_LIMIT, int(_GRID_WIDTH / width))


def _logical(page: Page, part: TensorSlice, x: float, y: float) -> tuple[_Track, _Track, float]:
    """Draw the logical grid at (x, y); return its rows, its columns, and its right end."""
    page.text(x, y, "Logical index", "name")
    page.text(x, y + _LINE, _axes(part))
    widest = max(len(part.columns.text(part.columns.cells - 1)), 1) * CHARACTER
    width = max(_BOX if part.columns.step == 1 else _WIDE_BOX, _id_width(part.layout), widest)
    height, limit = (_ROW, _LIMIT) if part.rows.step == 1 else (_TALL_ROW, _TALL_LIMIT)
    positions, across_positions = (
        shown(side.cells, most, (side.valid_cells - 1, side.valid_cells))
        for side, most in ((part.rows, limit), (part.columns, _that_fit(width)))
    )
    labels = max((len(part.rows.text(row)) for row in positions if row is not None), default=0)
    columns = _Track(across_positions, x + labels * CHARACTER + 10, width)
    rows = _Track(positions, y + 3 * _LINE, height)
    _grid_labels(page, rows, columns, part.rows.text, part.columns.text)
    for row, column, left, top in _boxes(page, rows, columns):
        stick, down, across = part.stick(row, column), part.rows.filled(row), part.columns.filled(column)
        elements = round(down * part.rows.step) * round(across * part.columns.step)
        sides = [(part.rows, row), (part.columns, column)]
        where = ", ".join(f"d{side.dim} = {side.text(cell)}" for side, cell in sides if side.dim is not None)
        kind = "logical" if down == across == 1 else "logical partly"
        hatched = [(left, top, width, height)]
        if elements:
            hatched = [
                (left + across * width, top, (1 - across) * width, height),
                (left, top + down * height, across * width, (1 - down) * height),
            ]
        box = (left, top, width, height)
        _stick_box(page, part, kind, (stick, row, column, elements), where, box, hatched)
    return rows, columns, columns.end


def _device(page: Page, part: TensorSlice, here: Sequence[int], x: float, y: float) -> float:
    """Draw device memory at (x, y), sticks row by row, those in the logical grid (``here``) as far as they fit.

    Return the bottom end.
    """
    layout = part.layout
    down, across = device_grid(layout)
    width = max(_BOX, _id_width(layout))
    fit = _that_fit(width)
    positions, across_positions = (
        shown(count, limit, _few({divmod(stick, across)[index] for stick in here}, limit))
        for index, (count, limit) in enumerate(((down, _LIMIT), (across, fit)))
    )

    def row_text(row: int) -> str:
        """Format the coordinate of a row: all device dims except along the row and inside the stick."""
        outer = coordinate(layout, row * across)[: len(layout.outer_digits) - 1]
        return f"({', '.join(map(str, outer))})" if outer else ""

    axes = "one stick"
    if sticks(layout) > 1:
        *outer, inner = map(digit_text, layout.outer_digits)
        axes = f"({', '.join(outer)}) down, {inner} across" if outer else f"{inner} across"
    labels = max(len(row_text(row)) for row in positions if row is not None)
    columns = _Track(across_positions, x + labels * CHARACTER + 10, width)
    rows = _Track(positions, y + 3 * _LINE, _ROW)
    page.text(x, y, "Device memory, row by row", "name")
    page.text(x, y + _LINE, axes)
    _grid_labels(page, rows, columns, row_text, str)
    for row, column, left, top in _boxes(page, rows, columns):
        stick, box = row * across + column, (left, top, width, _ROW)
        slots = elements_of_stick(layout, stick)
        elements = sum(slot is not None for slot in slots)
        kind = "device" if part.has(stick) else "device elsewhere"
        kind += " partly" if elements < len(slots) else ""
        where = _held_text(slots) if elements else "padding"
        _stick_box(page, part, kind, (stick, row, column, elements), where, box, _without_element(slots, box))
    return rows.end


def _few(positions: set[int], limit: int) -> list[int]:
    """Return all positions if there are at most ``limit``, else the first ones and the last one."""
    ordered = sorted(positions)
    return ordered if len(ordered) <= limit else [*ordered[: limit // 2], ordered[-1]]


def _stick_box(
    page: Page,
    part: TensorSlice,
    kind: str,
    numbers: tuple[int, int, int, int],
    where: str,
    box: tuple[float, float, float, float],
    hatched: Iterable[tuple[float, float, float, float]],
) -> None:
    """Draw the box of a stick; ``numbers`` are its id, row, column and elements, ``where`` says where those are."""
    stick, row, column, elements = numbers
    x, y, width, height = box
    data = f'data-stick="{stick}" data-row="{row}" data-column="{column}" data-elements="{elements}"'
    tip = escape(where if elements else "padding")
    page.add(f'<g class="{kind}" {data}><title>stick {stick}: {tip}</title>')
    page.rectangle("box", *box, _fill(part, stick))
    for area in hatched:
        if area[2] > 0 and area[3] > 0:
            page.rectangle("padding", *area)
    page.rectangle("outline", *box)
    page.text(x + width / 2, y + height / 2 + 4, str(stick), "id", "middle")
    page.add("</g>")


def _without_element(
    lanes: _Lanes, box: tuple[float, float, float, float]
) -> Iterator[tuple[float, float, float, float]]:
    """Yield the areas of the element slots without an element of a stick drawn as ``box``."""
    x, y, width, height = box
    scale = width / len(lanes)
    for first, count, valid in _runs(lanes):
        if not valid:
            yield x + first * scale, y, count * scale, height


def _grid_labels(
    page: Page,
    rows: _Track,
    columns: _Track,
    row_text: Callable[[int], str],
    column_text: Callable[[int], str],
) -> None:
    for column, x in columns.starts():
        if column is not None:
            page.text(x + columns.size / 2, rows.origin - 7, column_text(column), "label", "middle")
    for row, top in rows.starts():
        if row is not None:
            page.text(columns.origin - 8, top + rows.size / 2 + 4, row_text(row), "label", "end")


def _boxes(page: Page, rows: _Track, columns: _Track) -> Iterator[tuple[int, int, float, float]]:
    """Yield (row, column, left, top) of each box; draw the dots of gaps."""
    for row, top in rows.starts():
        for column, x in columns.starts():
            if row is not None and column is not None:
                yield row, column, x, top
            elif row is None and column is not None:
                page.dots(x + columns.size / 2, top + _GAP / 2, across=False)
            elif row is not None:
                page.dots(x + _GAP / 2, top + rows.size / 2, across=True)


def _id_width(layout: StickLayout) -> float:
    return len(str(sticks(layout) - 1)) * 8 + 10


# -- one stick and the legend ----------------------------------------------------------------------------


def _one_stick(page: Page, part: TensorSlice, y: float, right: float) -> None:
    """Draw the element slots of one stick: the last stick along the stick dims, which has the padding."""
    width = max(right - MARGIN, 460)
    row, column = (side.valid_cells - 1 if side.step > 1 else 0 for side in (part.rows, part.columns))
    stick = part.stick(row, column)
    slots = elements_of_stick(part.layout, stick)
    scale = width / len(slots)
    page.text(MARGIN, y, f"Inside stick {stick}", "name")
    page.add(f'<g class="stick" data-stick="{stick}">')
    top = y + 12
    box = (MARGIN, top, width, _ROW)
    page.rectangle("box", *box, _fill(part, stick))
    for area in _without_element(slots, box):
        page.rectangle("padding", *area)
    page.rectangle("outline", *box)
    step = max(len(slots) // 64, 1)
    ticks = "".join(f"M {MARGIN + slot * scale:g} {top:g} v {_ROW}" for slot in range(step, len(slots), step))
    page.add(f'<path class="lane" d="{ticks}"/></g>', MARGIN + width, top + _ROW)
    # A line per run; of more than four runs only the first four.
    runs, lines = list(_runs(slots)), []
    for first, count, valid in runs[:4]:
        where = f"lanes {first} to {first + count - 1}" if count > 1 else f"lane {first}"
        lines.append(f"{where}: {_held_text(slots[first : first + count]) if valid else 'padding'}")
    lines += ["and so on"] if len(runs) > 4 else []
    for line, text in enumerate(lines):
        page.text(MARGIN, top + _ROW + (line + 1) * _LINE, text)


def _legend(page: Page, part: TensorSlice, known: Sequence[tuple[str, str]], x: float, y: float) -> None:
    for line, (name, value) in enumerate(known):
        page.text(x, y + line * _LINE, name, "name")
        page.text(x + 110, y + line * _LINE, value, "fact")
    y += (len(known) + 0.3) * _LINE
    swatches = [("padding", "", "padding: no element")] if padding_bytes(part.layout) else []
    if part.fixed:
        fixed = ", ".join(f"d{dim}" for dim in part.fixed)
        swatches.append(("box", _ELSEWHERE, f"{fixed} other than 0: not on the left"))
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


def _axes(part: TensorSlice) -> str:
    named = [(part.rows, "down"), (part.columns, "across")]
    words = [f"d{side.dim} ({side.size}) {way}" for side, way in named if side.dim is not None]
    return ", ".join([*words, *(f"d{dim} = 0" for dim in part.fixed)]) or "one element"


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

    def text(self, cell: int) -> str:
        """Format the first and last position that exist in a cell; in padding, the first and last padded position."""
        if self.dim is None:
            return ""
        first, last = cell * self.step, (cell + 1) * self.step - 1
        last = last if first >= self.size else min(last, self.size - 1)
        return str(first) if first == last else f"{first} to {last}"


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
        sized = [digit.dim for digit in reversed(layout.digits) if digit.dim is not None]
        order = sorted(dict.fromkeys([*sized, *range(rank)]), key=lambda dim: layout.shape[dim] == 1)
        # Logical order, as users write an index, not the order of memory.
        dims = sorted(order[:2])
    elif len(dims) != 2 or len(set(dims)) != 2 or not all(0 <= dim < rank for dim in dims):
        raise ValueError(f"The dims to show must be two different ones of the {rank} dims of the tensor.")
    sides = []
    for dim in dims:
        step = math.prod(digit.size(layout.shape) for digit in layout.stick_digits if digit.dim == dim)
        sides.append(Side(dim, layout.shape[dim], layout.extent(dim), step))
    return TensorSlice(layout, *[Side(None, 1, 1, 1)] * (2 - len(sides)), *sides)


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
    # Two from the front for each from the back: 0, the last, 1, 2, the second to last, 3, ..
    both_ends = (at for step in range(count) for at in (2 * step - 1, 2 * step, count - 1 - step) if at >= 0)
    while len(ends) < limit:
        ends.add(next(both_ends))
    positions: list[int | None] = []
    for position in sorted(ends):
        if position and position - 1 not in ends:
            # A gap of one position would need as much space as the position.
            positions.append(position - 1 if position - 2 in ends else None)
        positions.append(position)
    return positions


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
    no_host_dim = ", -1: no host dim" if -1 in layout.stride_map else ""
    return [
        ("tensor", type_text(layout)),
        ("stick", stick_text(layout)),
        ("map", map_text(layout)),
        ("device size", f"({', '.join(map(str, layout.device_size))})"),
        ("device strides", f"({', '.join(map(str, layout.device_strides))}) elements"),
        ("host strides", f"({', '.join(map(str, layout.stride_map))}) elements{no_host_dim}"),
        ("sticks", f"{sticks(layout):,} x {bytes_per_stick} bytes = {layout.bytes:,} bytes"),
        ("padding", f"{padding:,} bytes ({percent(padding, layout.bytes)})"),
    ]
