# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Moves operations that wait for device memory directly after operations that compute."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar

from spyre_mlir.analysis import loads
from spyre_mlir.analysis.aliasing import functions, is_compute
from spyre_mlir.analysis.buffer_uses import Usage
from spyre_mlir.analysis.core_ownership import Divided
from spyre_mlir.analysis.kept_usage import usage_of
from spyre_mlir.analysis.loops import LOOP
from spyre_mlir.cost.cost_model import compute_ns, memory_ns
from spyre_mlir.cost.work import OperationWork
from spyre_mlir.mlir import ir
from spyre_mlir.passes.base import EvaluatingPass, Evaluator
from spyre_mlir.records import dataclass
from spyre_mlir.remarks import Remarks


@dataclass(frozen=True)
class HoistLoads(EvaluatingPass):
    """Move an operation that reads only host data after an earlier operation that computes longer than the load takes.

    The memory is idle then, and the loads of the next operation begin early (``timeline/events.py``). Typical
    loads are restickifies of tiles in loops. A load stays in its block and after its producers; at most one is placed
    after each operation. ``compare`` keeps the order only if the timeline of the planned program is shorter.

    Before, level *divided*:
        %s = matmul(%q, %k); %e = exp(%s); %t = restickify(%v); %o = matmul(%t, %e)
    After:
        %s = matmul(%q, %k); %t = restickify(%v); %e = exp(%s); %o = matmul(%t, %e)
    """

    name: ClassVar[str] = "hoist-loads"
    is_evaluated: ClassVar[bool] = True
    compare: bool = True

    def decide_on(self, func: ir.Operation, evaluator: Evaluator) -> None:
        moves = list(_moves(usage_of(func)))
        if moves and self.compare:
            before, after = loads.module_of(func), loads.module_of(func)
            # Remarks about a copy are not remarks about the program.
            with Remarks().collecting():
                for load, earlier in list(_moves(Usage(functions(after.operation)[0]))):
                    loads.move_behind(load.op, earlier.op)
            old, new = evaluator.time(before), evaluator.time(after)
            # If the time is unknown, the new order is taken.
            if old is not None and (new is None or new.nanoseconds >= old.nanoseconds):
                return
        for load, earlier in moves:
            self.remark(load.op, "hoist", f"its loads overlap '{earlier.opcode}'")
        for load, earlier in moves:
            loads.move_behind(load.op, earlier.op)


def _moves(usage: Usage) -> Iterator[tuple[Divided, Divided]]:
    """Yield each operation to move, and the operation after which it is placed."""
    known = {user.op.results[0]: user for user in usage.ops}
    for block in loads.nested_blocks(usage.memory.block):
        ops = [op.operation for op in block.operations]
        divided = [known.get(op.results[0]) if is_compute(op) else None for op in ops]
        work_by_op = [None if user is None else loads.work_of(user) for user in divided]
        occupied: set[int] = set()
        for index, (user, work) in enumerate(zip(divided, work_by_op, strict=True)):
            if user is None or work is None or not loads.only_loads(usage, user, work):
                continue
            behind = _anchor(ops, index, work_by_op, occupied)
            earlier = None if behind is None else divided[behind]
            if behind is not None and earlier is not None:
                occupied.add(behind)
                yield user, earlier


def _anchor(
    ops: Sequence[ir.Operation], index: int, work_by_op: Sequence[OperationWork | None], occupied: set[int]
) -> int | None:
    """Return the nearest earlier, non-adjacent operation that computes longer than ``index`` loads; None if none."""
    needed = {ops.index(op) for op in loads.needed_in_block(ops[index]) if op in ops}
    moved = work_by_op[index]
    assert moved is not None
    between = False
    for before in range(index - 1, -1, -1):
        # An operation must not move before the producers of its operands.
        if before in needed and work_by_op[before] is not None:
            return None
        work = work_by_op[before]
        if work is None:
            # A loop contains loads that use the memory themselves.
            if ops[before].name == LOOP:
                return None
            continue
        # After its predecessor the operation would not move, and one operation hides only one load.
        if between and before not in occupied and compute_ns(work) >= memory_ns(moved):
            return before
        between = True
    return None
