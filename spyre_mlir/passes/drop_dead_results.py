# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Removes results of multi-result ``linalg.generic`` without a reader (the index of every max)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from spyre_mlir.dialects.structured import use_empty
from spyre_mlir.mlir import ir
from spyre_mlir.passes.base import Pass


@dataclass(frozen=True)
class DropDeadResults(Pass):
    """Drop results of ``linalg.generic`` that have no use, with what only they need.

    torch-mlir gives each maximum an index as a second result; softmax never reads it and the device has no
    operation for it.

        %v:2 = linalg.generic .. outs(%a, %b) {..}   ->   %v = linalg.generic .. outs(%a) {..}
    """

    name: ClassVar[str] = "drop-dead-results"

    def run(self, module: ir.Operation) -> None:
        candidates: list[ir.Operation] = []

        def visit(op: ir.Operation) -> ir.WalkResult:
            if op.name == "linalg.generic" and len(op.results) > 1:
                candidates.append(op)
            return ir.WalkResult.ADVANCE

        module.walk(visit)
        for op in candidates:
            live = _live(op)
            if live and len(live) < len(op.results):
                self.remark(op, "rewrite", f"dropped {len(op.results) - len(live)} results without a reader")
                _rebuild(op, live)


def _live(op: ir.Operation) -> list[int]:
    """Return the results with a reader, or whose accumulator a live body reads (the value beside an index)."""
    block = op.regions[0].blocks[0]
    inputs = len(op.operands) - len(op.results)
    live = {index for index, result in enumerate(op.results) if not use_empty(result)}
    # A live body can read accumulators of other results, which make these live in turn.
    while True:
        needed = _needed(block, sorted(live))
        terminator = list(block.operations)[-1].operation
        read = {value for inner in needed for value in inner.operands} | {
            terminator.operands[index] for index in live
        }
        more = {index for index in range(len(op.results)) if block.arguments[inputs + index] in read} | live
        if more == live:
            return sorted(live)
        live = more


def _rebuild(op: ir.Operation, live: list[int]) -> None:
    inputs = len(op.operands) - len(op.results)
    indices = [*range(inputs), *(inputs + index for index in live)]
    maps = list(op.attributes["indexing_maps"])
    old = op.regions[0].blocks[0]
    attributes = {
        "indexing_maps": ir.ArrayAttr.get([maps[index] for index in indices]),
        "iterator_types": op.attributes["iterator_types"],
        "operandSegmentSizes": ir.DenseI32ArrayAttr.get([inputs, len(live)]),
    }
    generic = ir.Operation.create(
        "linalg.generic",
        results=[op.results[index].type for index in live],
        operands=[op.operands[index] for index in indices],
        attributes=attributes,
        regions=1,
        loc=op.location,
        ip=ir.InsertionPoint(op),
    )
    new = ir.Block.create_at_start(generic.regions[0], [old.arguments[index].type for index in indices])
    values = {old.arguments[index]: new.arguments[position] for position, index in enumerate(indices)}
    _copy_needed(old, new, values, live)
    for position, index in enumerate(live):
        op.results[index].replace_all_uses_with(generic.results[position])
    op.erase()


def _needed(block: ir.Block, live: list[int]) -> set[ir.Operation]:
    """Return the ops of a body that the live yields need."""
    *body, terminator = [op.operation for op in block.operations]
    needed: set[ir.Operation] = set()
    pending = [terminator.operands[index] for index in live]
    while pending:
        owner = pending.pop().owner
        if isinstance(owner, ir.Block) or owner.operation in needed or owner.operation not in body:
            continue
        needed.add(owner.operation)
        pending.extend(owner.operation.operands)
    return needed


def _copy_needed(old: ir.Block, new: ir.Block, values: dict[ir.Value, ir.Value], live: list[int]) -> None:
    """Copy the ops that the live yields need, in order."""
    *body, terminator = [op.operation for op in old.operations]
    needed = _needed(old, live)
    with ir.InsertionPoint(new):
        for op in body:
            if op not in needed:
                continue
            copy = op.clone().operation
            for index, operand in enumerate(op.operands):
                if operand in values:
                    copy.operands[index] = values[operand]
            values.update(zip(op.results, copy.results, strict=True))
        operands = [values.get(terminator.operands[index], terminator.operands[index]) for index in live]
        ir.Operation.create("linalg.yield", operands=operands, loc=terminator.location)
