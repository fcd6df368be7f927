# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Outlining: move operations of a function into a new function; values that cross the border are arguments, results."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from spyre_mlir.analysis.aliasing import attributes_of, functions
from spyre_mlir.analysis.loops import LOOP, body_block, induction, terminator, trip_count
from spyre_mlir.analysis.tile_nests import RESCALED, RUNNING
from spyre_mlir.dialects import sdsc, stick
from spyre_mlir.dialects.hint_attributes import DIM_SIZES, TILING, tiling_attr
from spyre_mlir.dialects.structured import defining_op, element_of
from spyre_mlir.dialects.targets import empty_module
from spyre_mlir.layout import StickLayout
from spyre_mlir.mlir import ir
from spyre_mlir.rewriting.tensor_builders import index_constant
from spyre_mlir.target.target import Target
from spyre_mlir.tiling.hint_tree import TiledLoop

#: Ops that cost nothing: each function that needs one gets a copy.
_FREE = {"arith.constant", "tensor.empty"}


def is_free(op: ir.Operation) -> bool:
    """Return whether an op is copied into every function that reads it.

    Constants, scalars with their operands, and casts of arguments to another layout are free.
    """
    if op.name in _FREE or (op.name == "tensor.cast" and defining_op(op.operands[0]) is None):
        return True
    if op.name == "linalg.fill":
        return all(producer is not None and is_free(producer) for producer in map(defining_op, op.operands))
    return bool(op.results) and not any(isinstance(value.type, ir.RankedTensorType) for value in op.results)


def is_constant(op: ir.Operation) -> bool:
    """Return whether an op is free, or a structured operation on free ops alone, such as the fill of a sum's tensor.

    A cast of an argument is not a constant.
    """
    if op.name != "linalg.generic":
        return is_free(op) and op.name != "tensor.cast"
    return all(
        (producer := defining_op(value)) is not None and is_constant(producer) for value in read_by(op)
    )


def read_by(op: ir.Operation) -> Iterator[ir.Value]:
    """Yield the values that an op reads: its operands, and values from outside that its regions use."""
    yield from op.operands
    yield from _captured(op, op)


def _captured(op: ir.Operation, outermost: ir.Operation) -> Iterator[ir.Value]:
    for region in op.regions:
        for block in region.blocks:
            for inner in block.operations:
                for value in inner.operation.operands:
                    if not _is_inside(value, outermost):
                        yield value
                yield from _captured(inner.operation, outermost)


def _is_inside(value: ir.Value, op: ir.Operation) -> bool:
    owner = value.owner
    parent = owner.owner.operation if isinstance(owner, ir.Block) else owner.operation.parent.operation
    while parent is not None and parent.name != "builtin.module":
        if parent == op:
            return True
        parent = parent.parent.operation
    return False


def producers(op: ir.Operation) -> Iterator[ir.Operation]:
    """Yield the ops whose results an op reads, through free ops."""
    for value in read_by(op):
        producer = defining_op(value)
        if producer is None:
            continue
        if is_free(producer):
            yield from producers(producer)
        else:
            yield producer


class Outlined:
    """A group of ops of one block, in order, as a function: ``arguments`` and ``results`` are values of the block.

    Operations that the group reads and that are ``copied`` become a part of the function.
    """

    def __init__(self, ops: Sequence[ir.Operation], copied: Callable[[ir.Operation], bool] = is_free) -> None:
        self.inside: list[ir.Operation] = []
        self._copied = copied
        self._seen: set[ir.Operation] = set()
        results = {value for op in ops for value in op.results}
        for op in ops:
            self._add(op, results)
        defined = {value for op in self.inside for value in op.results}
        read = (value for op in self.inside for value in read_by(op))
        self.arguments = list(dict.fromkeys(value for value in read if value not in defined))
        inside = set(self.inside)
        self.results = [
            value
            for op in ops
            for value in op.results
            if any(user_in_block(use, op) not in inside for use in value.uses)
        ]

    def _add(self, op: ir.Operation, group: set[ir.Value]) -> None:
        """Add an op after the copied ops that it reads."""
        if op in self._seen:
            return
        self._seen.add(op)
        for value in read_by(op):
            producer = defining_op(value)
            if producer is not None and value not in group and self._copied(producer):
                self._add(producer, group)
        self.inside.append(op)

    def build(
        self,
        name: str,
        argument_attrs: Sequence[ir.DictAttr],
        result_attrs: Sequence[ir.DictAttr] = (),
        layouts: bool = True,
        prepare: Callable[[ir.Operation, ir.Operation], None] | None = None,
    ) -> ir.Operation:
        """Build the function at the current insertion point.

        The arguments keep their layouts if ``layouts`` is true; ``prepare`` is called with each op and its copy.
        """
        types = [value.type if layouts else stick.without_layout(value.type) for value in self.arguments]
        function_type = ir.FunctionType.get(types, [value.type for value in self.results])
        attributes: dict[str, ir.Attribute] = {
            "sym_name": ir.StringAttr.get(name),
            "function_type": ir.TypeAttr.get(function_type),
            "arg_attrs": ir.ArrayAttr.get(list(argument_attrs)),
        }
        if result_attrs:
            attributes["res_attrs"] = ir.ArrayAttr.get(list(result_attrs))
        func = ir.Operation.create("func.func", regions=1, attributes=attributes)
        block = ir.Block.create_at_start(func.regions[0], types)
        values: dict[ir.Value, ir.Value] = dict(zip(self.arguments, block.arguments, strict=True))
        with ir.InsertionPoint(block):
            for op in self.inside:
                source = values.get(op.operands[0]) if op.name == "tensor.cast" else None
                if source is not None and source.type == op.results[0].type:
                    # The argument does not have the layout that the cast removes.
                    values[op.results[0]] = source
                    continue
                copy = copied(op, values)
                if prepare is not None:
                    prepare(op, copy)
            ir.Operation.create("func.return", operands=[values[value] for value in self.results])
        return func

    def call(self, name: str, operands: Sequence[ir.Value]) -> ir.Operation:
        """Build a call of the function ``name`` at the current insertion point."""
        results = [value.type for value in self.results]
        attributes = {"callee": ir.FlatSymbolRefAttr.get(name)}
        return ir.Operation.create("func.call", results, list(operands), attributes)


def program_of(ops: Sequence[ir.Operation], *, arguments: bool = False) -> ir.Module:
    """Build a program from a group of ops.

    Its arguments are inputs of the program; with ``arguments``, arguments of the function around the ops keep their
    attributes, which distinguish weights from inputs. Tensors that are filled with constants are copied.
    """
    outlined = Outlined(ops, is_constant)
    with outlined.inside[0].context, ir.Location.unknown():
        module = empty_module(outlined.inside[0])
        attributes = [_argument_attributes(value) if arguments else {} for value in outlined.arguments]
        for entry in attributes:
            # The index of a result of the whole program.
            entry.pop(sdsc.UPDATED, None)
        with ir.InsertionPoint(module.body):
            outlined.build("main", list(map(ir.DictAttr.get, attributes)), layouts=False)
        return module


def user_in_block(use: ir.OpOperand, neighbour: ir.Operation) -> ir.Operation:
    """Return the op in the block of ``neighbour`` that contains the use, as an operand or in its regions."""
    user = use.owner.operation
    while user.block != neighbour.block:
        user = user.parent.operation
    return user


def block_order(one: ir.Operation, other: ir.Operation) -> int:
    """Compare the positions of two operations of a block, as a key of a sort."""
    return 0 if one == other else -1 if one.is_before_in_block(other) else 1


def replace_operands(op: ir.Operation, values: Mapping[ir.Value, ir.Value]) -> None:
    """Replace operands of an op, and of the ops in its regions, that are keys of ``values``."""
    for number, operand in enumerate(op.operands):
        if operand in values:
            op.operands[number] = values[operand]
    for region in op.regions:
        for block in region.blocks:
            for inner in block.operations:
                replace_operands(inner.operation, values)


def copied(op: ir.Operation, values: dict[ir.Value, ir.Value]) -> ir.Operation:
    """Copy an op to the insertion point, with operands replaced by ``values``, and add its results to ``values``."""
    copy = op.clone().operation
    replace_operands(copy, values)
    values.update(zip(op.results, copy.results, strict=True))
    return copy


def dim_sizes_of(func: ir.Operation) -> dict[str, ir.Attribute]:
    """Return the attributes of a function that outlined functions inherit: the sizes of named dims."""
    return {DIM_SIZES: func.attributes[DIM_SIZES]} if DIM_SIZES in func.attributes else {}


def set_function_type(func: ir.Operation) -> None:
    """Update the type of a function from its arguments and returned values."""
    block = func.regions[0].blocks[0]
    types = [value.type for value in block.arguments], [value.type for value in terminator(block).operands]
    func.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(*types))


# Loops, and functions that are outlined loop bodies.


CALL = "func.call"


def loops_in(block: ir.Block) -> Iterator[ir.Operation]:
    """Yield the loops of a block, inner loops before the loops around them."""
    for op in [op.operation for op in block.operations]:
        if op.name == LOOP:
            yield from loops_in(body_block(op))
            yield op


def callee_of(call: ir.Operation) -> ir.Operation | None:
    """Return the function of a call; None if it has no body."""
    name, module = ir.FlatSymbolRefAttr(call.attributes["callee"]).value, call
    while module.name != "builtin.module":
        module = module.parent.operation
    found = (func for func in functions(module) if ir.StringAttr(func.attributes["sym_name"]).value == name)
    return next(found, None)


def blocks_of(func: ir.Operation) -> list[ir.Block]:
    """Return the block of a function, and the blocks of its loops."""
    block = func.regions[0].blocks[0]
    return [block, *map(body_block, loops_in(block))]


def unroll(loop: ir.Operation) -> list[ir.Operation]:
    """Unroll a loop with a known trip count; return the operations of all iterations."""
    numbers = induction(loop)
    block = body_block(loop)
    *body, end = [op.operation for op in block.operations]
    carried, copies = list(loop.operands)[3:], []
    for trip in range(numbers.count):
        with ir.InsertionPoint(loop), loop.location:
            variable = index_constant(numbers.first + trip * numbers.step)
            values = dict(zip(block.arguments, [variable, *carried], strict=True))
            for op in body:
                copies.append(copied(op, values))
            carried = [values.get(value, value) for value in end.operands]
    for old, new in zip(loop.results, carried, strict=True):
        old.replace_all_uses_with(new)
    loop.erase()
    return copies


def unroll_loops(func: ir.Operation, most: int) -> None:
    """Unroll the loops of a function that run at most ``most`` operations."""
    for loop in list(loops_in(func.regions[0].blocks[0])):
        if operations_run(loop) <= most:
            unroll(loop)


def operations_run(loop: ir.Operation) -> int:
    """Return the number of operations that a loop with known trip counts runs, over all iterations."""
    inner = (
        operations_run(op.operation) if op.operation.name == LOOP else 1 for op in body_block(loop).operations
    )
    return trip_count(loop) * sum(inner)


# Groups: operations of a function with some tiling, as separate programs that can be evaluated.


#: The loops of each operation, keyed by its result; operations without an entry are not tiled.
Tiling = Mapping[ir.Value, Sequence[TiledLoop]]


def default_bytes(target: Target, shape: Sequence[int], dtype: str) -> int:
    """Return the bytes of a tensor in its default layout, as an estimate before layouts are chosen."""
    return StickLayout.for_tensor(target, tuple(shape), dtype).bytes


def group_module(ops: Sequence[ir.Operation], tiling: Tiling) -> ir.Module:
    """Build a module of one function with copies of operations of one block, in order, and the views that they read.

    Values from outside become arguments, values read outside become results. Equal groups give equal text.
    """
    names: dict[str, int] = {}

    def prepare(op: ir.Operation, copy: ir.Operation) -> None:
        """Set the loops of a copy; names, which differ between groups that cost the same, become numbers or go."""
        for name in (sdsc.NAME, sdsc.HISTORY, TILING):
            if name in copy.attributes:
                del copy.attributes[name]
        for name in (RUNNING, RESCALED):
            if name in copy.attributes:
                label = ir.StringAttr(copy.attributes[name]).value
                copy.attributes[name] = ir.StringAttr.get(_number(label, names))
        loops = [replace(loop, loop=_number(loop.loop, names)) for loop in tiling.get(op.results[0], ())]
        if loops:
            copy.attributes[TILING] = tiling_attr(loops)

    with ops[0].context, ir.Location.unknown():
        outlined = Outlined(ops, copied=lambda op: sdsc.OP not in op.attributes)
        module = empty_module(ops[0])
        with ir.InsertionPoint(module.body):
            outlined.build(
                "group",
                [_host(f"arg{number}", value) for number, value in enumerate(outlined.arguments)],
                [_host(f"result{number}", value, "result") for number, value in enumerate(outlined.results)],
                prepare=prepare,
            )
    return module


def _number(name: str, names: dict[str, int]) -> str:
    return str(names.setdefault(name, len(names)))


def _argument_attributes(value: ir.Value) -> dict[str, ir.Attribute]:
    """Return the attributes of an argument of a function; empty for another value."""
    owner = value.owner.owner if isinstance(value.owner, ir.Block) else None
    return attributes_of(value) if owner is not None and owner.operation.name == "func.func" else {}


def _host(label: str, value: ir.Value, kind: str = "") -> ir.DictAttr:
    """Build the host attribute of an argument: of the program's argument, or of an intermediate of the program."""
    attributes = _argument_attributes(value)
    host = attributes.get(sdsc.HOST)
    kind = kind or ("intermediate" if host is None else ir.StringAttr(host.kind).value)
    entries = {sdsc.HOST: sdsc.host_attr(label, kind, element_of(value))}
    # The numbers of a mask determine the tiles that cost nothing.
    if sdsc.RUNS in attributes:
        entries |= {name: attributes[name] for name in (sdsc.RUNS, sdsc.HOST_VIEW) if name in attributes}
    return ir.DictAttr.get(entries)
