# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Check whether an iter_arg can stay in one buffer, in which each yielded value overwrites the previous value."""

from __future__ import annotations

from collections.abc import Sequence

from spyre_mlir.analysis.loops import LOOP, CarriedValue, ancestor_in, block_of, body_block, initial_of
from spyre_mlir.analysis.view_ops import VIEWS, place_of, step_of
from spyre_mlir.dialects.structured import DESTINATION, defining_op, structured
from spyre_mlir.mlir import ir


def why_not_in_place(loop: ir.Operation, carried: CarriedValue) -> str | None:
    """Return why the yielded value cannot overwrite the iter_arg; None if it can.

    It can if only insertions and inner loops update the buffer. It also can if the operation that computes the value
    reads the iter_arg element by element or not at all, and no later operation reads the iter_arg.
    """
    value = carried.yielded
    # A chain of insertions and inner loops leads from the iter_arg to a value in its buffer.
    origin: ir.Value | None = value
    while origin is not None and origin != carried.argument:
        op = defining_op(origin)
        is_insertion = op is not None and op.name == "tensor.insert_slice"
        before = None if op is None else initial_of(origin)
        origin = op.operands[1] if op is not None and is_insertion else before
    if origin is not None:
        return None
    producer = defining_op(value)
    if producer is None or producer.block != body_block(loop):
        return "the next value is not computed in the iteration"
    if producer.name in (LOOP, "tensor.insert_slice", *VIEWS):
        return "the next value is assembled in another buffer"
    if any(use.owner.operation.name in (LOOP, "tensor.insert_slice") for use in value.uses):
        return "the next value is also inserted into another buffer"
    if sum(use.owner.operation.name == "scf.yield" for use in value.uses) > 1:
        return "the next value is yielded twice"
    if not _reads_in_place(producer, carried.argument):
        return "the next value overwrites elements that its computation reads later"
    if is_read_from(carried.argument, producer, [producer]):
        return "the current value is read after the next value is written"
    return None


def why_not_over(op: ir.Operation, operand: ir.Value) -> str | None:
    """Return why the result of an operation cannot overwrite one of its operands; None if it can."""
    if op.name != "linalg.generic" or block_of(operand) != op.block:
        return "the result is not computed from the operand in one block"
    if not _reads_in_place(op, operand):
        return "the result overwrites elements that its computation reads later"
    return "the operand is read later" if is_read_from(operand, op, [op]) else None


def _reads_in_place(producer: ir.Operation, argument: ir.Value) -> bool:
    """Return whether an operation reads each element of a value only to compute the same element of its result."""
    if producer.name != "linalg.generic":
        # A clone reads and writes in the same order; other copies permute elements.
        return producer.name == "sdsc.clone" or argument not in list(producer.operands)
    generic = structured(producer)
    assert generic is not None
    operand_dims = [
        dims for value, dims in zip(generic.inputs, generic.maps, strict=False) if value == argument
    ]
    return not operand_dims or (
        not generic.reduced and all(dims == generic.maps[-1] for dims in operand_dims)
    )


def is_read_from(value: ir.Value, first: ir.Operation, writers: Sequence[ir.Operation]) -> bool:
    """Return whether ``first``, an op in the same block, or a later op reads a value or a view of it.

    ``writers``, which update the buffer, and operands that are only destinations are ignored.
    """
    for use in value.uses:
        user = use.owner.operation
        if user in writers or names_place(user, use.operand_number):
            continue
        if user.name in (*VIEWS, "stick.pin"):
            if is_read_from(user.results[0], first, writers):
                return True
            continue
        # A reader inside a loop reads whenever the loop runs.
        ancestor = ancestor_in(first.block, user)
        if ancestor == first or first.is_before_in_block(ancestor):
            return True
    return False


def names_place(user: ir.Operation, operand: int) -> bool:
    """Return whether an operand is only the destination of a result: no element of the operand is read."""
    return user.name in DESTINATION and operand == len(user.operands) - 1


def updated_slices(producer: ir.Operation, insertion: ir.Operation) -> list[ir.Operation]:
    """Return the slices of an insertion's region that only ``producer`` reads, element by element.

    These slices are updated in place: reading them does not keep the buffer alive.
    """
    generic = structured(producer)
    if generic is None or generic.reduced:
        return []
    return [
        op
        for value, dims in zip(generic.inputs, generic.maps, strict=False)
        if (op := defining_op(value)) is not None
        and dims == generic.maps[-1]
        and all(use.owner.operation == producer for use in value.uses)
        and op.name == "tensor.extract_slice"
        and step_of(op) == place_of(insertion)
        and list(op.operands)[1:] == list(insertion.operands)[2:]
    ]
