"""Control flow of ``scf``, and assertions."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from spyre_mlir.host.block import Frame, Kernel, Scope, failure, integer, only_block
from spyre_mlir.mlir import ir


def for_rule(op: ir.Operation, scope: Scope) -> Kernel:
    """The body runs for each index from the lower to the upper bound; it carries values."""
    body = scope.block(only_block(op), "scf.yield", op)

    def kernel(
        frame: Frame, lower: NDArray, upper: NDArray, step: NDArray, *carried: NDArray
    ) -> list[NDArray]:
        bounds = [integer(each) for each in (lower, upper, step)]
        if bounds[2] < 1:
            raise failure(op, f"has the step {bounds[2]}")
        values = list(carried)
        for index in range(*bounds):
            frame.charge(op, body)
            values = body.run(frame, [np.array(index, dtype=np.asarray(lower).dtype), *values])
        return values

    return kernel


def if_rule(op: ir.Operation, scope: Scope) -> Kernel:
    chosen = scope.block(only_block(op, 0), "scf.yield", op)
    has_other = len(list(op.regions[1].blocks)) > 0
    if not has_other and len(op.results):
        raise failure(op, "has results but no else")
    other = scope.block(only_block(op, 1), "scf.yield", op) if has_other else None

    def kernel(frame: Frame, condition: NDArray) -> list[NDArray]:
        branch = chosen if integer(condition) else other
        return [] if branch is None else branch.run(frame)

    return kernel


def while_rule(op: ir.Operation, scope: Scope) -> Kernel:
    """The first region gives a condition and values; while it holds, the second makes new ones of those."""
    before = scope.block(only_block(op, 0), "scf.condition", op)
    after = scope.block(only_block(op, 1), "scf.yield", op)

    def kernel(frame: Frame, *carried: NDArray) -> list[NDArray]:
        values = list(carried)
        while True:
            frame.charge(op, before)
            condition, *passed = before.run(frame, values)
            if not integer(condition):
                return passed
            frame.charge(op, after)
            values = after.run(frame, passed)

    return kernel


def assert_rule(op: ir.Operation, scope: Scope) -> Kernel:
    message = ir.StringAttr(op.attributes["msg"]).value

    def kernel(frame: Frame, condition: NDArray) -> tuple[()]:
        if not np.all(condition):
            raise failure(op, f"does not hold: {message}")
        return ()

    return kernel


RULES = {"scf.for": for_rule, "scf.if": if_rule, "scf.while": while_rule, "cf.assert": assert_rule}
