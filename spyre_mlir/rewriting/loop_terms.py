# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Loops on the device's tensors, while linalg becomes device operations."""

from __future__ import annotations

from collections.abc import Callable

from spyre_mlir.analysis.loops import body_block
from spyre_mlir.diagnostics import error_at
from spyre_mlir.dialects.structured import defining_op, shape_of
from spyre_mlir.mlir import ir
from spyre_mlir.rewriting.linalg_values import Terms, device_element
from spyre_mlir.rewriting.loop_bodies import callee_of
from spyre_mlir.rewriting.outlining import read_by


def rewrite_loop(terms: Terms, loop: ir.Operation, visit: Callable[[ir.Operation], None]) -> None:
    """Let a loop carry device tensors; ``visit`` rewrites each operation of its body."""
    initial = range(3, len(loop.operands))
    carried = [loop.operands[number] for number in initial]
    # Before the loop: what the body reads from outside is there for what comes behind it, too.
    for value in dict.fromkeys(list(read_by(loop))[len(loop.operands) :]):
        if isinstance(value.type, ir.RankedTensorType) and not _is_empty(value):
            terms.bind(value, terms.materialize(value, loop.location))
    buffers: list[ir.Value] = []
    for number, value in zip(initial, carried, strict=True):
        buffers.append(_buffer(terms, value, loop.location, frozenset(buffers)))
        loop.operands[number] = buffers[-1]
    block = body_block(loop)
    for argument, buffer in zip(list(block.arguments)[1:], buffers, strict=True):
        argument.set_type(buffer.type)
        terms.bind(argument, argument, is_private=True)
    *ops, end = [op.operation for op in block.operations]
    for op in ops:
        with ir.InsertionPoint(op), op.location:
            visit(op)
    with ir.InsertionPoint(end), end.location:
        for number, value in enumerate(list(end.operands)):
            end.operands[number] = terms.materialize(value, end.location)
    for result, buffer in zip(loop.results, buffers, strict=True):
        result.set_type(buffer.type)
        terms.bind(result, result, is_private=True)


def rewrite_call(terms: Terms, call: ir.Operation) -> None:
    """Let a call take and give the device tensors of its callee, whose results are in buffers of their own.

    The callee, the body of a loop, comes before the function and is rewritten already.
    """
    callee = callee_of(call)
    if callee is None or "sym_visibility" not in callee.attributes:
        raise error_at(
            call, "a program is one function; what it calls has a body and is private, to be inlined"
        )
    for number, value in enumerate(list(call.operands)):
        call.operands[number] = terms.materialize(value, call.location)
    types = ir.FunctionType(ir.TypeAttr(callee.attributes["function_type"]).value).results
    for result, type_ in zip(call.results, types, strict=True):
        result.set_type(type_)
        terms.bind(result, result, is_private=True)


def _buffer(
    terms: Terms, value: ir.Value, location: ir.Location, unavailable: frozenset[ir.Value]
) -> ir.Value:
    """The initial value of what a loop carries, in a buffer that it may write."""
    if not _is_empty(value):
        return terms.private_buffer(value, location, unavailable, sole_reader=True)
    element = device_element(str(ir.RankedTensorType(value.type).element_type), location)
    type_ = ir.RankedTensorType.get(shape_of(value), ir.Type.parse(element))
    return ir.Operation.create("tensor.empty", results=[type_]).result


def _is_empty(value: ir.Value) -> bool:
    """Return whether a value is a buffer without numbers."""
    maker = defining_op(value)
    return maker is not None and maker.name == "tensor.empty"
