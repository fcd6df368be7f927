# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Indirect access: positions, which are data, must be rows of the table, and only these rows are moved."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spyre_mlir.simulator.access import Access, access_error, element_text
from spyre_mlir.simulator.plan import Plan


def check_positions(plan: Plan, accesses: Sequence[Access], operands: Sequence[NDArray[Any]]) -> None:
    """Check that every position is a row of the table; the error names the first core and position that is not."""
    assert plan.op.index is not None and plan.op.table is not None
    positions = operands[plan.op.index].view(np.int32)
    access, rows = accesses[plan.op.index], _rows(plan, operands[plan.op.table].shape)
    wrong = (positions < 0) | (positions >= rows)
    if not wrong.any():
        return
    position = tuple(int(i) for i in np.argwhere(wrong)[0])
    text = (
        f"{element_text(plan, access.box, position)} is {positions[position]}, but the table has {rows} rows."
    )
    raise access_error(plan, access, "position", text, access.box.whole.address_of(position, access.address))


def rows_bytes(plan: Plan, positions: Access, table: Access) -> int:
    """Return the bytes of the rows that a core reads of a table."""
    # Rows have equal sizes; a row is moved once for each position that names it.
    return table.box.accessed_bytes // _rows(plan, table.box.extents) * math.prod(positions.box.valid)


def _rows(plan: Plan, extents: Sequence[int]) -> int:
    """Return the number of rows of a table: the extent of the dim that the result lacks."""
    return extents[plan.work.reduced[0]]
