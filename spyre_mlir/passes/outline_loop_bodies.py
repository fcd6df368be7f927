# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Outlines the bodies of loops to functions, so that the passes up to *tiled* see straight-line code."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import ClassVar

from spyre_mlir.analysis.aliasing import functions
from spyre_mlir.analysis.loops import body_block, terminator
from spyre_mlir.dialects.structured import defining_op
from spyre_mlir.mlir import ir
from spyre_mlir.passes.base import Pass
from spyre_mlir.records import dataclass
from spyre_mlir.rewriting.outlining import Outlined, dim_sizes_of, is_free, loops_in, producers, read_by


@dataclass(frozen=True)
class OutlineLoopBodies(Pass):
    """Outline the body of each ``scf.for`` to a private function; ``inline-loop-bodies`` inlines it again.

    Slices at offsets that depend on the loop variable stay in the loop, and so do inner loops that read the variable.

    Before:
        scf.for %i .. { %x = slice %xs[%i]; %y = exp(%x); insert %y into %ys[%i] }
    After:
        func private @loop_body_0(%x) { return exp(%x) }
        scf.for %i .. { %x = slice %xs[%i]; %y = call @loop_body_0(%x); insert %y into %ys[%i] }
    """

    name: ClassVar[str] = "outline-loop-bodies"

    def run(self, module: ir.Operation) -> None:
        """Rewrite ``module`` in place."""
        numbers = itertools.count()
        for func in functions(module):
            for loop in list(loops_in(func.regions[0].blocks[0])):
                _outline(func, loop, numbers)


def _outline(func: ir.Operation, loop: ir.Operation, numbers: Iterator[int]) -> None:
    """Replace runs of operations of a loop body by calls of private functions before ``func``.

    Operations that read a run-time index, such as slices and inner loops that use the loop variable, stay in the loop.
    A run ends before an operation that reads a slice, at a run-time index, of a result of the run.
    """
    group: list[ir.Operation] = []
    deferred: list[ir.Operation] = []
    for op in [op.operation for op in body_block(loop).operations][:-1]:
        if is_free(op):
            continue
        reads = list(producers(op))
        is_addressed = any(
            isinstance(value.type, ir.IndexType)
            and ((producer := defining_op(value)) is None or producer.name != "arith.constant")
            for value in read_by(op)
        )
        if is_addressed:
            if any(producer in group or producer in deferred for producer in reads):
                deferred.append(op)
            continue
        if any(producer in deferred for producer in reads):
            _call(func, group, deferred, op, numbers)
            group, deferred = [], []
        group.append(op)
    _call(func, group, deferred, terminator(body_block(loop)), numbers)


def _call(
    func: ir.Operation,
    group: list[ir.Operation],
    deferred: list[ir.Operation],
    before: ir.Operation,
    numbers: Iterator[int],
) -> None:
    """Outline a group as a function; move its call and then the ops of ``deferred`` before operation ``before``."""
    if not group:
        return
    # Operations of the function read an argument with a layout through its cast, as in the program.
    outlined = Outlined(group, lambda op: is_free(op) or op.name == "tensor.cast")
    name = f"loop_body_{next(numbers)}"
    with ir.InsertionPoint(func), func.location:
        callee = outlined.build(name, [ir.DictAttr.get({})] * len(outlined.arguments))
    callee.attributes["sym_visibility"] = ir.StringAttr.get("private")
    for key, value in dim_sizes_of(func).items():
        callee.attributes[key] = value
    with ir.InsertionPoint(before), group[0].location:
        call = outlined.call(name, outlined.arguments)
    for old, new in zip(outlined.results, call.results, strict=True):
        old.replace_all_uses_with(new)
    for op in deferred:
        op.move_before(before)
    for op in reversed(group):
        op.erase()
