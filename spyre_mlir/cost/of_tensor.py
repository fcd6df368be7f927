# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Cost to move and to convert whole tensors, before operations are divided.

Costs are whole picoseconds from ``cost_model.py``.
"""

from __future__ import annotations

import functools

from spyre_mlir.cost.cost_model import operation_cost, stream_ns
from spyre_mlir.cost.of_space import even_work
from spyre_mlir.cost.units import picoseconds
from spyre_mlir.cost.work import OperandWork, OperationWork
from spyre_mlir.division.slices import work_distribution
from spyre_mlir.layout.space import Space
from spyre_mlir.target.target import Target


@functools.cache
def pass_cost(target: Target, moved_bytes: int, run_bytes: int) -> int:
    """Return the cost to move an operand once: its bytes in its runs, with all cores and in one direction.

    The wait for the first byte is excluded: it does not depend on the layout, and an operand in LX does not wait.
    """
    # Reading and writing cost the same, because all bytes go in one direction.
    operand = OperandWork(False, moved_bytes, -(-moved_bytes // target.cores), 1, run_bytes)
    work = OperationWork(
        target, "identity", target.cores, sticks_per_core=0, multiply_adds_per_core=0, rows_per_core=0, parts=1,
        outputs_per_core=0, results=0, broadcast=False, operands=(operand,),
    )  # fmt: skip
    return picoseconds(stream_ns(work, operand))


def wait_cost(target: Target) -> int:
    """Return the cost of the wait for the first byte of an operand in device memory."""
    return picoseconds(target.hbm_access_ns)


def copy_cost(opcode: str, space: Space) -> int:
    """Return the cost of a copy from one layout of a tensor to another, divided as ``work-distribution`` does.

    Both layouts are in device memory, so the copy waits for the first byte of each: it does not pay for few bytes.
    """
    splits = work_distribution(space.units, space.reduced, space.target.cores)
    return picoseconds(operation_cost(even_work(opcode, space, splits)).total_ns)
