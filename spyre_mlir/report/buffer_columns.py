# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Columns of the buffers in the graph of a program: operations are rows in order, a buffer is a column beside them.

A row has two halves: operands are read in the first, the result is written in the second. A buffer takes its column
from where it is written, or read first, to where it is read last; nothing else is in the column meanwhile.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from spyre_mlir.records import dataclass


@dataclass(frozen=True)
class BufferColumn:
    """A buffer in column ``number``, 0 being next to the operations.

    ``writes`` are the rows that write it, ``reads`` rows with the number of the operand; ``first`` and ``last`` are
    halves of rows.
    """

    buffer: str
    number: int
    writes: tuple[int, ...]
    reads: tuple[tuple[int, int], ...]
    first: int
    last: int


def buffer_columns(uses: Sequence[Sequence[str]]) -> list[BufferColumn]:
    """The columns of a program, by where they begin; ``uses`` are the buffers of each row, the result last."""
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
        # The free column nearest to the operations keeps the picture narrow.
        number = heapq.heappop(free) if free else len(busy)
        heapq.heappush(busy, (last, number))
        columns.append(
            BufferColumn(
                buffer, number, tuple(writes.get(buffer, ())), tuple(reads.get(buffer, ())), first, last
            )
        )
    return columns
