# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Hints on locations: they travel with an op, leave its source position alone, and come off without a trace."""

from __future__ import annotations

import pytest

from spyre_mlir import dialects
from spyre_mlir.dialects.hint_attributes import (
    DIMS,
    TILING,
    dims_attr,
    dims_of,
    hints_attr,
    hints_in,
    hints_of,
    tiling_attr,
    tiling_of,
    with_hints,
    without_hints,
)
from spyre_mlir.mlir import ir, location_of
from spyre_mlir.tiling import Hint, TiledLoop

HINTS = (Hint(3, (("M", 8),)), Hint(7, (("K", 4), ("N", 2))))

LOCATIONS = {
    "file": 'loc("a.py":3:1)',
    "unknown": "loc(unknown)",
    "name": 'loc("matmul"("a.py":3:1))',
    "callsite": 'loc(callsite("a.py":3:1 at "b.py":9:2))',
    "fused": 'loc(fused["a.py":3:1, "b.py":9:2])',
    "metadata": 'loc(fused<{aten = "mm", node = "mm_1"}>["a.py":3:1])',
    "other metadata": 'loc(fused<"pass">["a.py":3:1])',
    "nested": 'loc(callsite(fused<{node = "mm"}>["a.py":3:1] at callsite("b.py":9:2 at "c.py":1:1)))',
}


@pytest.fixture(autouse=True)
def context():
    with dialects.context() as made, ir.Location.unknown():
        yield made


def located(text: str) -> ir.Location:
    """A location from its text."""
    module = ir.Module.parse(f"module {{ func.func private @f() {text} }}")
    return module.body.operations[0].operation.location


@pytest.mark.parametrize("text", LOCATIONS.values(), ids=LOCATIONS)
def test_hints_come_off_a_location(text: str) -> None:
    """With hints and without them again it is the same location."""
    before = located(text)
    hinted = with_hints(before, hints_attr(HINTS))
    attr = hints_in(hinted)
    assert hints_in(before) is None and attr is not None
    assert hints_of(attr, hinted) == HINTS
    assert without_hints(hinted) == before


@pytest.mark.parametrize("text", LOCATIONS.values(), ids=LOCATIONS)
def test_hints_do_not_move_a_location(text: str) -> None:
    """File, line and column equal the source."""
    before = located(text)
    assert location_of(with_hints(before, hints_attr(HINTS))) == location_of(before)


@pytest.mark.parametrize("around", ['callsite(@ at "b.py":9:2)', '"fusion"(@)', 'fused["b.py":9:2, @]'])
def test_hints_are_found_inside_of_a_location(around: str) -> None:
    """A pass may wrap a location that has hints; they are found, and come off, in there."""
    inner = 'fused<{sdsc.hints = [{id = 3 : i64, tiles = []}]}>["a.py":3:1]'
    wrapped = located(f"loc({around.replace('@', inner)})")
    attr = hints_in(wrapped)
    assert attr is not None
    assert hints_of(attr, wrapped) == (Hint(3, ()),)
    plain = '"a.py":3:1'
    assert without_hints(wrapped) == located(f"loc({around.replace('@', plain)})")


def test_other_metadata_stays() -> None:
    """Other entries of the dictionary with the hints are kept."""
    both = located('loc(fused<{node = "mm", sdsc.hints = [{id = 3 : i64, tiles = []}]}>["a.py":3:1])')
    assert without_hints(both) == located('loc(fused<{node = "mm"}>["a.py":3:1])')


def test_attributes_say_what_they_were_made_of() -> None:
    """Names and loops of an operation, written and read."""
    op = ir.Module.create().operation
    loops = (TiledLoop("3.M", 0, 8), TiledLoop("4.K", 2, 4))
    op.attributes[DIMS] = dims_attr([["M"], [], ["K", "N"]])
    op.attributes[TILING] = tiling_attr(loops)
    assert dims_of(op) == (("M",), (), ("K", "N"))
    assert tiling_of(op) == loops
    assert str(op.attributes[TILING]).startswith('[{dim = 0 : i64, loop = "3.M", tiles = 8 : i64}')
