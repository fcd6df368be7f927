# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rules for control flow of ``scf``, and for assertions."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from spyre_mlir.errors import FailedAssertionError
from spyre_mlir.host.block import BlockScope, Frame, Kernel, failure, integer, only_block
from spyre_mlir.mlir import ir, location_of, source_note


def for_rule(op: ir.Operation, scope: BlockScope) -> Kernel:
    """Rule for ``scf.for``: the body runs for each index from the lower to the upper bound, on its iter_args."""
    body = scope.block(only_block(op), "scf.yield", op)

    def kernel(
        frame: Frame, lower: NDArray[Any], upper: NDArray[Any], step: NDArray[Any], *iter_args: NDArray[Any]
    ) -> list[NDArray[Any]]:
        """Run the loop; return the yielded values of its last iteration."""
        bounds = [integer(bound) for bound in (lower, upper, step)]
        if bounds[2] < 1:
            raise failure(op, f"has the step {bounds[2]}")
        values = list(iter_args)
        for index in range(*bounds):
            # Bounds are data, so a loop can be stopped only while it runs.
            frame.charge(op, body)
            values = body.run(frame, [np.array(index, dtype=np.asarray(lower).dtype), *values])
        return values

    return kernel


def if_rule(op: ir.Operation, scope: BlockScope) -> Kernel:
    """Rule for ``scf.if``, whose else region may be missing if it has no results."""
    chosen = scope.block(only_block(op, 0), "scf.yield", op)
    has_other = len(list(op.regions[1].blocks)) > 0
    if not has_other and len(op.results):
        raise failure(op, "has results but no else")
    other = scope.block(only_block(op, 1), "scf.yield", op) if has_other else None

    def kernel(frame: Frame, condition: NDArray[Any]) -> list[NDArray[Any]]:
        """Run the branch of the condition."""
        branch = chosen if integer(condition) else other
        return [] if branch is None else branch.run(frame)

    return kernel


def while_rule(op: ir.Operation, scope: BlockScope) -> Kernel:
    """Rule for ``scf.while``: while the first region's condition holds, the second computes new iter_args."""
    before = scope.block(only_block(op, 0), "scf.condition", op)
    after = scope.block(only_block(op, 1), "scf.yield", op)

    def kernel(frame: Frame, *iter_args: NDArray[Any]) -> list[NDArray[Any]]:
        """Run the loop; return the values that the first region passes on when its condition fails."""
        values = list(iter_args)
        while True:
            frame.charge(op, before)
            condition, *passed = before.run(frame, values)
            if not integer(condition):
                return passed
            frame.charge(op, after)
            values = after.run(frame, passed)

    return kernel


def assert_rule(op: ir.Operation, scope: BlockScope) -> Kernel:
    """Rule for ``cf.assert``: ``FailedAssertionError`` with its message if the condition fails."""
    message = ir.StringAttr(op.attributes["msg"]).value

    def kernel(frame: Frame, condition: NDArray[Any]) -> tuple[()]:
        """Check the condition."""
        if not np.all(condition):
            place = location_of(op.location), "", source_note(op.location, "module")
            raise FailedAssertionError(f"An assertion does not hold: {message.rstrip('.')}.", *place)
        return ()

    return kernel


RULES = {"scf.for": for_rule, "scf.if": if_rule, "scf.while": while_rule, "cf.assert": assert_rule}
