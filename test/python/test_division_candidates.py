# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The divisions that operations on parts of a buffer are tried with."""

from __future__ import annotations

from spyre_mlir.division import Division, core_view
from spyre_mlir.division.ownership import subview_mismatch
from spyre_mlir.division_search.division_candidates import DividedOp, SharedBuffer, division_candidates
from spyre_mlir.layout import BufferView, StickLayout
from spyre_mlir.layout.space import refined
from spyre_mlir.target.target import default_target

SHAPE = (7, 32, 64)


def copied(rows: slice, *splits: int) -> DividedOp:
    """A copy of some rows of all bands, divided so."""
    whole = BufferView.of(StickLayout.for_tensor(default_target(), SHAPE, "f16", (0, 1, 2)))
    part = whole.slice((0, rows.start, 0), (SHAPE[0], rows.stop - rows.start, SHAPE[2]), (1, 1, 1))
    space = refined([part, BufferView.of(StickLayout.for_tensor(default_target(), part.shape, "f16"))])
    return DividedOp("identity", space, Division.mixed_radix(splits))


def test_parts_of_rows_are_divided_by_bands():
    """Rows are cut, bands are not: 7 slices of these, in which the parts are in one place on each core."""
    works = [copied(slice(0, 32), 1, 32, 1), copied(slice(1, 29), 1, 28, 1), copied(slice(2, 30), 7, 4, 1)]
    touched = SharedBuffer(tuple((at, 0) for at in range(3)), in_parts=True)
    found = division_candidates(works, [touched], 8)
    assert all((7, 1, 1) in [each.division.splits for each in some] for some in found)
    bands = Division.mixed_radix((7, 1, 1))
    held, *parts = (core_view(work.space, 0, bands) for work in works)
    assert all(subview_mismatch(held, part) is None for part in parts)


def test_other_buffers_are_not_divided_so():
    """If all operations access the whole buffer, each division suits it, and the candidates do not change."""
    works = [copied(slice(0, 32), 1, 32, 1), copied(slice(0, 32), 7, 4, 1)]
    found = division_candidates(works, [SharedBuffer(((0, 0), (1, 0)))], 8)
    assert all((7, 1, 1) not in [each.division.splits for each in some] for some in found)
