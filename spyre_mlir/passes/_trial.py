"""What a group of operations would cost tiled in one way or another: the real passes on the group alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from spyre_mlir.dialects import sdsc
from spyre_mlir.dialects.hints import TILING, tiling_attr
from spyre_mlir.dialects.structured import defining_op
from spyre_mlir.errors import CompileError
from spyre_mlir.layout import StickLayout
from spyre_mlir.mlir import ir
from spyre_mlir.passes import find
from spyre_mlir.passes._memory import functions
from spyre_mlir.passes._prices import Price, price_of
from spyre_mlir.passes._tile_nests import RESCALED, RUNNING
from spyre_mlir.passes._usage import Usage
from spyre_mlir.remarks import Remarks
from spyre_mlir.tiling.hints import TiledLoop
from spyre_mlir.timing import scope

#: The loops of each operation, by its result; those without an entry are not tiled.
Tiling = Mapping[ir.Value, Sequence[TiledLoop]]


@dataclass
class Trials:
    """Prices groups on so many cores and so much of LX; equal groups are priced once."""

    sencores: int
    lx_frac_avail: float
    prices: dict[str, Price | None] = field(default_factory=dict)

    def price(self, ops: Sequence[ir.Operation], tiling: Tiling) -> Price | None:
        """The price of ops of one block, in order; None if they cannot be compiled so."""
        module = _outlined(ops, tiling)
        text = str(module)
        if text not in self.prices:
            with Remarks().collecting():
                self.prices[text] = self._price(module.operation)
        return self.prices[text]

    @scope("trial")
    def _price(self, module: ir.Operation) -> Price | None:
        try:
            for name, options in self._passes():
                found = find(name)
                assert found is not None
                with scope(name):
                    found(**options).run(module)
        except CompileError:
            return None
        return price_of(Usage(functions(module)[0]))

    def _passes(self) -> Iterator[tuple[str, Mapping[str, Any]]]:
        cores, room = {"sencores": self.sencores}, {"lx_frac_avail": self.lx_frac_avail}
        yield from (("coarse-tiling", {}), ("choose-layouts", {}), ("resolve-padding", {}))
        yield from (("span-reduction", cores), ("work-distribution", cores), ("verify-divided", {}))
        yield "joint-planning", {**room, "compare": False}
        yield "sink-restickify", room
        yield "hoist-loads", {**room, "compare": False}
        yield from ((name, room) for name in ("clone-outputs", "clone-inputs"))
        yield "scratchpad-planning", room


def default_bytes(shape: Sequence[int], dtype: str) -> int:
    """Bytes of a tensor in its default layout: what there is to go by before layouts are chosen."""
    return StickLayout.for_tensor(tuple(shape), dtype).bytes


def _outlined(ops: Sequence[ir.Operation], tiling: Tiling) -> ir.Module:
    """A module of one function: what the ops read from outside are arguments, what is read outside results."""
    with ops[0].context, ir.Location.unknown():
        return _Outline(ops, tiling).module()


class _Outline:
    def __init__(self, ops: Sequence[ir.Operation], tiling: Tiling) -> None:
        self.ops = ops
        self.tiling = tiling
        self.names: dict[str, int] = {}
        self.inside = list(self._inside())
        own = {op.results[0] for op in self.inside}
        self.outside = list(
            dict.fromkeys(value for op in self.inside for value in op.operands if value not in own)
        )
        self.left = [value for value in (op.results[0] for op in ops) if self._is_read_outside(value, own)]

    def _inside(self) -> Iterator[ir.Operation]:
        """The ops and, before each, the views, constants and empty tensors that it needs."""
        seen: set[ir.Value] = set()
        for op in self.ops:
            yield from self._needed(op, seen)

    def _needed(self, op: ir.Operation, seen: set[ir.Value]) -> Iterator[ir.Operation]:
        if op.results[0] in seen:
            return
        seen.add(op.results[0])
        for value in (*op.operands, *_captured(op)):
            before = defining_op(value)
            if before is not None and sdsc.OP not in before.attributes:
                yield from self._needed(before, seen)
        yield op

    def _is_read_outside(self, value: ir.Value, own: set[ir.Value]) -> bool:
        users = [use.owner.operation for use in value.uses]
        return any(not user.results or user.results[0] not in own for user in users)

    def module(self) -> ir.Module:
        made = ir.Module.create()
        types, results = [value.type for value in self.outside], [value.type for value in self.left]
        with ir.InsertionPoint(made.body):
            func = ir.Operation.create(
                "func.func",
                regions=1,
                attributes={
                    "sym_name": ir.StringAttr.get("group"),
                    "function_type": ir.TypeAttr.get(ir.FunctionType.get(types, results)),
                    "arg_attrs": ir.ArrayAttr.get(
                        [_host(f"arg{n}", value) for n, value in enumerate(self.outside)]
                    ),
                    "res_attrs": ir.ArrayAttr.get(
                        [_host(f"result{n}", value, "result") for n, value in enumerate(self.left)]
                    ),
                },
            )
        block = ir.Block.create_at_start(func.regions[0], types)
        values = dict(zip(self.outside, block.arguments, strict=True))
        with ir.InsertionPoint(block):
            for op in self.inside:
                self._copy(op, values)
            ir.Operation.create("func.return", operands=[values[value] for value in self.left])
        return made

    def _copy(self, op: ir.Operation, values: dict[ir.Value, ir.Value]) -> None:
        made = op.clone().operation
        self._rename(made)
        for number, operand in enumerate(op.operands):
            made.operands[number] = values[operand]
        for inner in _inner(made):
            for number, operand in enumerate(inner.operands):
                if operand in values:
                    inner.operands[number] = values[operand]
        if TILING in made.attributes:
            del made.attributes[TILING]
        loops = [replace(loop, loop=self._known_as(loop.loop)) for loop in self.tiling.get(op.results[0], ())]
        if loops:
            made.attributes[TILING] = tiling_attr(loops)
        values[op.results[0]] = made.results[0]

    def _rename(self, op: ir.Operation) -> None:
        """Leaves no names on an op that tell groups apart which are the same."""
        for name in (sdsc.NAME, sdsc.HISTORY):
            if name in op.attributes:
                del op.attributes[name]
        for name in (RUNNING, RESCALED):
            if name in op.attributes:
                op.attributes[name] = ir.StringAttr.get(
                    self._known_as(ir.StringAttr(op.attributes[name]).value)
                )

    def _known_as(self, name: str) -> str:
        return str(self.names.setdefault(name, len(self.names)))


def _host(label: str, value: ir.Value, kind: str = "") -> ir.DictAttr:
    """The boundary of an argument: a parameter where the program's is one, else an input."""
    element = str(ir.RankedTensorType(value.type).element_type)
    return ir.DictAttr.get({sdsc.HOST: sdsc.host_attr(label, kind or _kind(value), element)})


def _kind(value: ir.Value) -> str:
    if not isinstance(value.owner, ir.Block):
        return "input"
    func = value.owner.owner.operation
    if "arg_attrs" not in func.attributes:
        return "input"
    named = ir.DictAttr(ir.ArrayAttr(func.attributes["arg_attrs"])[ir.BlockArgument(value).arg_number])
    return ir.StringAttr(named[sdsc.HOST].kind).value if sdsc.HOST in named else "input"


def _inner(op: ir.Operation) -> Iterator[ir.Operation]:
    for region in op.regions:
        for block in region.blocks:
            yield from (each.operation for each in block.operations)


def _captured(op: ir.Operation) -> Iterator[ir.Value]:
    """What the body of an op takes from outside of it: constants."""
    for inner in _inner(op):
        for value in inner.operands:
            maker = defining_op(value)
            if maker is not None and maker.name == "arith.constant" and maker.block == op.block:
                yield value
