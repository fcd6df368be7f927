# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The picture of a layout: its numbers against placement by padding and transposing, and that it can be read."""

from __future__ import annotations

import itertools
import math
import random
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import numpy as np
import pytest
from layout_cases import (
    ELEMENTS,
    positions_by_order,
    positions_by_sticks,
    random_form,
    random_order,
    random_shape,
)

from spyre_mlir import dialects
from spyre_mlir.dialects import stick
from spyre_mlir.layout import StickLayout
from spyre_mlir.report.layout_picture import _FILLS, map_text, picture, shown
from spyre_mlir.target.target import default_target
from spyre_mlir.tools import spyre_report

DOCS = Path(__file__).parents[2] / "docs"
SVG = "{http://www.w3.org/2000/svg}"


class Drawn:
    """Parsed picture: {stick: (row, column, elements)} of each grid."""

    def __init__(self, layout: StickLayout, **options) -> None:
        self.root = ElementTree.fromstring(picture(layout, **options))
        self.logical = self.boxes("logical")
        self.device = self.boxes("device")

    def groups(self, kind: str) -> list[ElementTree.Element]:
        return [g for g in self.root.iter(f"{SVG}g") if kind in g.get("class", "").split()]

    def boxes(self, kind: str) -> list[tuple[int, int, int, int]]:
        """(stick, row, column, elements) of each box, as drawn."""
        names = ("data-stick", "data-row", "data-column", "data-elements")
        return [tuple(int(group.get(name, "")) for name in names) for group in self.groups(kind)]  # type: ignore[misc]


def texts(element: ElementTree.Element) -> list[str]:
    return [text.text or "" for text in element.iter(f"{SVG}text")]


@pytest.mark.parametrize("seed", range(100))
def test_a_matrix_is_drawn_as_the_words_of_the_manual_place_it(seed):
    """Each logical box has the stick of its first element, each device box the number of its elements."""
    rng = random.Random(seed)
    shape, dtype = (rng.randint(1, 8), rng.choice((1, 8, 33, 64, 100, 250))), rng.choice(list(ELEMENTS))
    shape = shape[:: rng.choice((1, -1))]
    order, outermost, per_stick = random_order(rng, 2), rng.random() < 0.5, ELEMENTS[dtype]
    sticks = positions_by_order(shape, per_stick, order, outermost)[0] // per_stick
    drawn = Drawn(StickLayout.for_tensor(default_target(), shape, dtype, order, outermost))
    steps = [per_stick if dim == order[-1] else 1 for dim in (0, 1)]
    for number, row, column, elements in drawn.logical:
        part = sticks[row * steps[0] : (row + 1) * steps[0], column * steps[1] : (column + 1) * steps[1]]
        assert set(part.ravel()) == {number} and part.size == elements
    for number, _, _, elements in drawn.device:
        assert elements == np.count_nonzero(sticks == number)


@pytest.mark.parametrize("seed", range(60))
def test_other_ranks_show_two_dims_at_index_0_of_the_others(seed):
    """The dims may be chosen; of rank 0 and 1 there is one row."""
    rng = random.Random(seed)
    rank = (0, 1, 3, 4, 5)[seed % 5]
    shape, order = random_shape(rng, rank, 1000), random_order(rng, rank)
    sticks = positions_by_order(shape, 64, order, False)[0] // 64
    dims = sorted(rng.sample(range(rank), 2)) if rank > 2 else list(range(rank))
    drawn = Drawn(
        StickLayout.for_tensor(default_target(), shape, "f16", order), dims=dims if rank > 2 else None
    )
    for number, row, column, _ in drawn.logical:
        index = [0] * rank
        for dim, at in zip(reversed(dims), (column, row), strict=False):
            index[dim] = at * (64 if [dim] == order[-1:] else 1)
        assert sticks[tuple(index)] == number


def test_several_dims_in_the_stick():
    """A stick of int8 that holds 2 rows of 64 columns is one box of the grid."""
    layout = StickLayout.for_tensor(default_target(), (7, 150), "i8", sticks=((0, 2), (1, 64)))
    sticks = positions_by_sticks((7, 150), ((0, 2), (1, 64)), [0, 1], False)[0] // 128
    drawn = Drawn(layout)
    assert len(drawn.logical) == 4 * 3
    for number, row, column, elements in drawn.logical:
        part = sticks[row * 2 : row * 2 + 2, column * 64 : column * 64 + 64]
        assert set(part.ravel()) == {number} and part.size == elements


@pytest.mark.parametrize("seed", range(100))
def test_device_memory_is_drawn_in_order(seed):
    """The id and the label of a stick are its row-by-row index; both ends of memory are drawn."""
    layout = random_form(random.Random(seed))
    drawn = Drawn(layout)
    across = math.prod([digit.size(layout.shape) for digit in layout.outer_digits][-1:])
    assert all(number == row * across + column for number, row, column, _ in drawn.device)
    numbers = [number for number, *_ in drawn.device]
    assert numbers == sorted(set(numbers)) and {0, layout.bytes // 128 - 1} <= set(numbers)
    assert [int(texts(group)[0]) for group in drawn.groups("device")] == numbers


def test_padding_is_hatched():
    """240 of fp16 leave 16 of 64 lanes of the last stick of a row: a quarter of its box."""
    drawn = Drawn(StickLayout.for_tensor(default_target(), (512, 240), "f16"))
    for group in [*drawn.groups("logical"), *drawn.groups("device")]:
        width = {r.get("class"): float(r.get("width", "")) for r in group.iter(f"{SVG}rect")}
        padded = int(group.get("data-stick", "")) >= 3 * 512
        assert width.get("padding", 0) == (width["box"] / 4 if padded else 0)


def test_rows_of_padding_are_drawn_as_padding():
    """71 rows in room for 128: the last row with elements and the first one without are both to be seen."""
    drawn = Drawn(StickLayout.for_tensor(default_target(), (71, 64), "f16").padded(0, 128))
    elements = {row: elements for _, row, _, elements in drawn.logical}
    assert elements == {row: 64 if row < 71 else 0 for row in elements}
    assert {0, 70, 71, 127} <= set(elements)


@pytest.mark.parametrize("order", [None, [0, 1, 2, -1], [2, 1, 0]])
def test_a_big_tensor_is_drawn_with_gaps(order):
    """Nine gigabytes of memory are fewer than 200 boxes on a laptop's screen."""
    layout = StickLayout.for_tensor(default_target(), (32, 8192, 17408), "f16", order)
    drawn = Drawn(layout)
    assert len(drawn.logical) < 100 and len(drawn.device) < 100
    assert max(number for number, *_ in drawn.device) == layout.bytes // 128 - 1
    assert int(drawn.root.get("width", "")) <= 1440 and int(drawn.root.get("height", "")) <= 800
    assert any(True for _ in drawn.root.iter(f"{SVG}circle"))


@pytest.mark.parametrize(
    ("count", "limit", "keep", "expected"),
    [
        (4, 4, (), [0, 1, 2, 3]),
        (9, 4, (), [0, 1, 2, None, 8]),
        (100, 6, (), [0, 1, 2, 3, None, 98, 99]),
        (100, 5, (50, 51), [0, 1, None, 50, 51, None, 99]),
        (6, 5, (), [0, 1, 2, 3, 4, 5]),  # a gap of one position is shown
        (9, 5, (9,), [0, 1, 2, None, 7, 8]),  # there is no position 9
    ],
)
def test_first_and_last_positions_are_shown(count, limit, keep, expected):
    assert shown(count, limit, keep) == expected


@pytest.mark.parametrize("seed", range(30))
def test_the_map_is_written_as_in_ir(seed):
    layout = random_form(random.Random(seed))
    with dialects.context():
        assert map_text(layout) == str(stick.affine_map(layout))


def test_the_legend_says_what_follows_from_the_layout():
    """The numbers of the row 5x100x150 of docs/layouts.md."""
    words = texts(Drawn(StickLayout.for_tensor(default_target(), (5, 100, 150), "f16")).root)
    assert {"(100, 3, 5, 64)", "(150, 64, 15000, 1) elements", "1,500 x 128 bytes = 192,000 bytes"} <= set(
        words
    )
    assert "42,000 bytes (21.9 %)" in words and "d0 (5) down, d2 (150) across, d1 = 0" in words


def test_the_picture_can_be_read_without_seeing_it():
    """A title, a description, a tooltip for each box; names are escaped."""
    drawn = Drawn(StickLayout.for_tensor(default_target(), (4, 100), "f16"), name="a<b&c")
    assert drawn.root.get("role") == "img" and drawn.root.get("aria-labelledby") == "title description"
    title, description = drawn.root.find(f"{SVG}title"), drawn.root.find(f"{SVG}desc")
    assert title is not None and title.text == "a<b&c: tensor<4x100xf16>, stick d1 x 64"
    assert description is not None and "padding: 224 bytes" in (description.text or "")
    tips = [group.findtext(f"{SVG}title") for group in drawn.groups("device")]
    assert tips[4:6] == ["stick 4: (0, 64) to (0, 99)", "stick 5: (1, 64) to (1, 99)"]


def test_fills_have_contrast_in_greyscale_too():
    """The luminance contrast of WCAG is 7 to 1 for text on each fill; adjacent rows differ by a tenth of the scale."""
    light = [[_luminance(fill) for fill in pair] for pair in _FILLS]
    assert all((each + 0.05) / (_luminance("#1a1a1a") + 0.05) >= 7 for pair in light for each in pair)
    neighbours = itertools.pairwise([*light, light[0]])
    assert all(abs(first[0] - second[0]) >= 0.1 for first, second in neighbours)


def _luminance(colour: str) -> float:
    channels = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return float(np.dot(linear, (0.2126, 0.7152, 0.0722)))


def test_what_cannot_be_drawn_is_an_error():
    layout = StickLayout.for_tensor(default_target(), (4, 4), "f16")
    for dims in ([0], [0, 0], [0, 2], [-1, 0], [0, 1, 1]):
        with pytest.raises(ValueError, match="must be two different ones of the 2 dims"):
            picture(layout, dims)
    with pytest.raises(ValueError, match="there is nothing to show"):
        picture(StickLayout.for_tensor(default_target(), (4, 0), "f16"))


# -- docs/layouts.md ----------------------------------------------------------------------------------

PAGE = (DOCS / "layouts.md").read_text(encoding="utf-8")
PICTURES = re.findall(r"^spyre-report (--layout .*?) -o (docs/.*\.svg)$", PAGE, re.MULTILINE)


@pytest.mark.parametrize(("arguments", "path"), PICTURES)
def test_the_pictures_of_the_page_are_up_to_date(arguments, path, capsys):
    """The commands on the page write the pictures in its folder."""
    assert spyre_report.main(arguments.split()) == 0
    assert capsys.readouterr().out == (DOCS.parent / path).read_text(encoding="utf-8")


def test_the_page_shows_each_of_its_pictures():
    assert [f"docs/{name}" for name in re.findall(r"!\[.*?\]\((.*?)\)", PAGE)] == [p for _, p in PICTURES]
    assert len(PICTURES) >= 2
