# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Removes results without readers from multi-result ``linalg.generic`` (the index of a max) and from loops."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from spyre_mlir.analysis.loops import LOOP, terminator
from spyre_mlir.dialects.structured import generic_without_body, use_empty
from spyre_mlir.mlir import ir
from spyre_mlir.passes.base import Pass
from spyre_mlir.records import dataclass
from spyre_mlir.rewriting.outlining import copied, read_by


@dataclass(frozen=True)
class DropDeadResults(Pass):
    """Drop unused results of ``linalg.generic``, and the operations that only these results need.

    torch-mlir gives each maximum an index as a second result. Softmax never reads the index, and the device does not
    have an operation for it.

        %v:2 = linalg.generic .. outs(%a, %b) {..}   ->   %v = linalg.generic .. outs(%a) {..}

    For an unused result a loop yields its iter_arg unchanged, which ``canonicalize`` removes:

        %v:2 = scf.for .. iter_args(%a, %b) { yield f(%a), g(%a, %b) }   ->   { yield f(%a), %b }
    """

    name: ClassVar[str] = "drop-dead-results"

    def run(self, module: ir.Operation) -> None:
        for loop in reversed(_operations(module, lambda op: op.name == LOOP)):  # outer loops first
            _carry_dead_values(loop)
        # Collected only now, because bodies of loops may have lost operations.
        for op in _operations(module, lambda op: op.name == "linalg.generic" and len(op.results) > 1):
            live = _live(op)
            if live and len(live) < len(op.results):
                self.remark(op, "rewrite", f"dropped results without a reader: {len(op.results) - len(live)}")
                _rebuild(op, live)


def _operations(module: ir.Operation, is_wanted: Callable[[ir.Operation], bool]) -> list[ir.Operation]:
    """Return the operations for which a predicate holds, inner operations before outer ones."""
    found: list[ir.Operation] = []

    def visit(op: ir.Operation) -> ir.WalkResult:
        if is_wanted(op):
            found.append(op)
        return ir.WalkResult.ADVANCE

    module.walk(visit)
    return found


def _carry_dead_values(loop: ir.Operation) -> None:
    """Make a loop yield an iter_arg unchanged if no live result of the loop depends on the value."""
    block = loop.regions[0].blocks[0]
    *body, end = [op.operation for op in block.operations]
    carried = list(block.arguments)[1:]
    live = {index for index, result in enumerate(loop.results) if not use_empty(result)}
    pending, needed = [end.operands[index] for index in live], set[ir.Value]()
    makers = {result: op for op in body for result in op.results}
    while pending:
        value = pending.pop()
        if value in needed:
            continue
        needed.add(value)
        if value in carried:
            pending.append(end.operands[carried.index(value)])
        elif value in makers:
            pending += read_by(makers[value])
    dead = [index for index, value in enumerate(carried) if index not in live and value not in needed]
    for index in dead:
        end.operands[index] = carried[index]
    # Erased now, before bodies of loops become functions that return the values.
    for op in reversed(body) if dead else ():
        if op.results and all(map(use_empty, op.results)):
            op.erase()


def _live(op: ir.Operation) -> list[int]:
    """Return the results with a reader, or whose accumulator a live result needs (the value with an index)."""
    block = op.regions[0].blocks[0]
    inputs = len(op.operands) - len(op.results)
    live = {index for index, result in enumerate(op.results) if not use_empty(result)}
    # The computation of a live result can read accumulators of other results, which are then live, too.
    while True:
        read = {value for inner in _needed(block, sorted(live)) for value in inner.operands}
        read |= {terminator(block).operands[index] for index in live}
        more = {index for index in range(len(op.results)) if block.arguments[inputs + index] in read} | live
        if more == live:
            return sorted(live)
        live = more


def _rebuild(op: ir.Operation, live: list[int]) -> None:
    """Replace a ``linalg.generic`` by one that computes only the results with the indices ``live``."""
    inputs = len(op.operands) - len(op.results)
    indices = [*range(inputs), *(inputs + index for index in live)]
    maps = list(op.attributes["indexing_maps"])
    old = op.regions[0].blocks[0]
    types, operands = [op.results[index].type for index in live], [op.operands[index] for index in indices]
    with ir.InsertionPoint(op), op.location:
        generic = generic_without_body(
            operands, types, [maps[index] for index in indices], op.attributes["iterator_types"]
        )
    new = ir.Block.create_at_start(generic.regions[0], [old.arguments[index].type for index in indices])
    values = {old.arguments[index]: new.arguments[position] for position, index in enumerate(indices)}
    needed, end = _needed(old, live), terminator(old)
    with ir.InsertionPoint(new):
        for inner in [inner.operation for inner in old.operations]:
            if inner in needed:
                copied(inner, values)
        yielded = [values.get(end.operands[index], end.operands[index]) for index in live]
        ir.Operation.create("linalg.yield", operands=yielded, loc=end.location)
    for position, index in enumerate(live):
        op.results[index].replace_all_uses_with(generic.results[position])
    op.erase()


def _needed(block: ir.Block, live: list[int]) -> set[ir.Operation]:
    """Return the ops of a body that the live yielded values depend on."""
    *body, end = [op.operation for op in block.operations]
    needed: set[ir.Operation] = set()
    pending = [end.operands[index] for index in live]
    while pending:
        owner = pending.pop().owner
        if isinstance(owner, ir.Block) or owner.operation in needed or owner.operation not in body:
            continue
        needed.add(owner.operation)
        pending.extend(owner.operation.operands)
    return needed
