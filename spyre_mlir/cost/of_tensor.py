# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Cost to move and to convert whole tensors, before it is decided how operations are divided.

Prices are whole picoseconds by ``model.py``.
"""

from __future__ import annotations

import functools

from spyre_mlir.cost.cost_model import operation_cost, stream_ns
from spyre_mlir.cost.of_space import even_work
from spyre_mlir.cost.units import picoseconds
from spyre_mlir.cost.work import OperandWork, OperationWork
from spyre_mlir.division.distribute import work_distribution
from spyre_mlir.layout.space import Space
from spyre_mlir.target.target import Target


@functools.cache
def pass_cost(target: Target, moved_bytes: int, run_bytes: int) -> int:
    """To move an operand of an operation once: its bytes in its runs, all cores at work in one direction.

    Not the wait for its first byte: that does not depend on the layout, and what stays in LX waits for none.
    """
    # Reading or writing makes no difference: all of it goes in one direction.
    operand = OperandWork(False, moved_bytes, -(-moved_bytes // target.cores), 1, run_bytes)
    work = OperationWork(
        target, "identity", target.cores, sticks_per_core=0, multiply_adds_per_core=0, rows_per_core=0, parts=1,
        outputs_per_core=0, results=0, broadcast=False, operands=(operand,),
    )  # fmt: skip
    return picoseconds(stream_ns(work, operand))


def wait_cost(target: Target) -> int:
    """To wait for the first byte of an operand in device memory."""
    return picoseconds(target.hbm_access_ns)


def copy_cost(opcode: str, space: Space) -> int:
    """An operation that reads one layout of a tensor and writes another, divided as ``work-distribution`` does.

    Both are in device memory, so it waits for the first byte of each: few bytes less are no reason for a copy.
    """
    splits = work_distribution(space.units, space.reduced, space.target.cores)
    return picoseconds(operation_cost(even_work(opcode, space, splits)).total_ns)
