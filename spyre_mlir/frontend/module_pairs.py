# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A model imported at two sizes: corresponding values and operations of both modules, from the results back.

A ``PairWalk`` proves a property of the pair by rules on the names of operations: that the larger program may run in
place of the smaller program (``padding_safety.py``), or that both are one program of run-time sizes
(``symbolic_modules.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import torch

from spyre_mlir.dialects.structured import defining_op, element_of, maker_of, shape_of
from spyre_mlir.frontend.importer import Imported
from spyre_mlir.mlir import PassManager, indexing_maps, ir, location_of

_DYNAMIC = ir.ShapedType.get_dynamic_size()


class DifferentPrograms(Exception):
    """Raised if the required property of programs of two sizes is not proven: a reason as a clause, and a location."""

    def __init__(self, reason: str, location: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.location = location


class ValuePair(NamedTuple):
    """A value of the smaller program, and the corresponding value of the larger program."""

    small: ir.Value
    large: ir.Value

    @property
    def shapes(self) -> list[tuple[int, int]]:
        """Size of each dim in both programs."""
        return list(zip(shape_of(self.small), shape_of(self.large), strict=True))

    @property
    def differing(self) -> list[int]:
        """Dims that are larger in the larger program."""
        return [dim for dim, (small, large) in enumerate(self.shapes) if small != large]


class OpPair(NamedTuple):
    """Two corresponding operations of the programs."""

    small: ir.Operation
    large: ir.Operation

    @property
    def operands(self) -> list[ValuePair]:
        """Corresponding operands."""
        return pairs(self.small.operands, self.large.operands)

    @property
    def results(self) -> list[ValuePair]:
        """Corresponding results."""
        return pairs(self.small.results, self.large.results)

    @property
    def terminators(self) -> list[OpPair]:
        """Terminators of the regions, which have one block each."""
        ends = ([region.blocks[0].operations[-1].operation for region in op.regions] for op in self)
        return [OpPair(*pair) for pair in zip(*ends, strict=True)]

    def fail(self, reason: str) -> DifferentPrograms:
        """Return an error at the location of the operation."""
        return DifferentPrograms(reason, location_of(self.small.location))

    def same(self, *attributes: str) -> None:
        """Require attributes of equal value; all attributes if none is named."""
        names = attributes or sorted({name for op in self for name in op.attributes})
        for name in names:
            values = [op.attributes[name] if name in op.attributes else None for op in self]
            if values[0] != values[1]:
                raise self.fail(f"'{self.small.name}' does something else at another size")

    def numbers(self, attribute: str) -> list[tuple[int, int]]:
        """Numbers of an attribute in both operations; operands in place of numbers are rejected."""
        small, large = (list(ir.DenseI64ArrayAttr(op.attributes[attribute])) for op in self)
        if _DYNAMIC in (*small, *large):
            raise self.fail(f"'{self.small.name}' takes positions that are computed")
        return list(zip(small, large, strict=True))


def pairs(small: Iterable[ir.Value], large: Iterable[ir.Value]) -> list[ValuePair]:
    """Corresponding values of two sequences."""
    return [ValuePair(*pair) for pair in zip(small, large, strict=True)]


#: Requirement on two corresponding operations; raises ``DifferentPrograms``.
Rule = Callable[[OpPair], Any]


class PairWalk:
    """Walk over two functions, from their results back to their arguments.

    ``rules`` are keyed by operation name; ``unknown`` is the rule for all other operations. ``data`` contains the
    parameters and constants by argument index.
    """

    rules: Mapping[str, Rule]

    def __init__(self, smaller: Imported, larger: Imported) -> None:
        self.data: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        self.seen: set[ValuePair] = set()
        self.waiting: list[ValuePair] = []
        # Operations whose regions are assumed to have corresponding arguments.
        self.blocks: set[OpPair] = set()
        # A copied module is alive only while it is referenced.
        self.modules = [generalized(imported) for imported in (smaller, larger)]
        self.functions = OpPair(*map(main_of, self.modules))
        for number, (small, large) in enumerate(zip(smaller.arguments, larger.arguments, strict=True)):
            if small.tensor is not None and large.tensor is not None:
                self.data[number] = small.tensor, large.tensor

    def run(self) -> None:
        """Visit every pair of values that a result depends on, once."""
        self.wait_for_ends(self.functions)
        while self.waiting:
            pair = self.waiting.pop()
            if pair not in self.seen:
                self.seen.add(pair)
                check_types(pair)
                self._visit(pair)

    def unknown(self, ops: OpPair) -> None:
        """Check operations without a rule."""
        raise NotImplementedError

    def note(self, ops: OpPair) -> None:
        """Record two corresponding operations."""

    def check_data(self, pair: ValuePair, small: torch.Tensor, large: torch.Tensor) -> None:
        """Check a parameter or a constant."""
        raise NotImplementedError

    def wait_for_ends(self, ops: OpPair) -> None:
        """Queue the operands of the regions' terminators; the arguments of the regions are assumed to correspond."""
        self.blocks.add(ops)
        for end in ops.terminators:
            if end.small.name != end.large.name or len(end.small.operands) != len(end.large.operands):
                raise ops.fail(f"'{ops.small.name}' gives something else at another size")
            end.same()
            self.waiting += end.operands

    def _visit(self, pair: ValuePair) -> None:
        """Check the defining operations of a pair by the rule for their name, and queue their operands."""
        if any(defining_op(value) is None for value in pair):
            self._argument(pair)
            return
        ops = OpPair(*map(maker_of, pair))
        if ops.small.name != ops.large.name or _number(pair.small) != _number(pair.large):
            raise ops.fail(f"'{ops.small.name}' is '{ops.large.name}' at another size")
        _check_form(ops)
        self.rules.get(ops.small.name, self.unknown)(ops)
        self.note(ops)
        self.wait_for_ends(ops)
        self.waiting += ops.operands

    def _argument(self, pair: ValuePair) -> None:
        """Check arguments of the function, or of a region of an operation that was visited earlier."""
        if not all(isinstance(value.owner, ir.Block) for value in pair):
            raise DifferentPrograms("the model uses its inputs in another way at another size")
        small, large = (ir.BlockArgument(value) for value in pair)
        owners = OpPair(*(argument.owner.owner.operation for argument in (small, large)))
        number = small.arg_number
        if owners not in self.blocks or number != large.arg_number:
            raise owners.fail("the model uses its inputs in another way at another size")
        if owners == self.functions and number in self.data:
            self.check_data(pair, *self.data[number])


def check_arguments(smaller: Imported, larger: Imported) -> None:
    """Require arguments with equal names."""
    names = [[argument.name for argument in imported.arguments] for imported in (smaller, larger)]
    if names[0] != names[1]:
        raise DifferentPrograms("the model has other constants at another size")


def generalized(imported: Imported) -> ir.Operation:
    """Copy of a module in which structured operations are generic."""
    assert imported.module is not None
    copy = imported.module.operation.clone().operation
    with imported.module.context:
        PassManager.parse("builtin.module(func.func(linalg-generalize-named-ops))").run(copy)
    return copy


def main_of(module: ir.Operation) -> ir.Operation:
    """Return the function of a module."""
    ops = [entry.operation for entry in module.regions[0].blocks[0].operations]
    return next(op for op in ops if op.name == "func.func")


def check_types(pair: ValuePair) -> None:
    """Require equal element types and ranks, and sizes that do not shrink."""
    small, large = pair
    fits = element_of(small) == element_of(large) and len(shape_of(small)) == len(shape_of(large))
    if not fits or any(one > other for one, other in pair.shapes):
        raise DifferentPrograms("the model has tensors of another form at another size", _location(small))


def _check_form(ops: OpPair) -> None:
    """Require equal numbers of operands, results and regions, and regions of one block."""
    counts = [(len(op.operands), len(op.results), len(op.regions)) for op in ops]
    if counts[0] != counts[1]:
        raise ops.fail(f"'{ops.small.name}' has other operands at another size")
    if any(len(region.blocks) != 1 for op in ops for region in op.regions):
        raise ops.fail(f"the control flow of '{ops.small.name}' is not looked into")
    for pair in (*ops.operands, *ops.results):
        check_types(pair)


def _location(value: ir.Value) -> str:
    op = defining_op(value)
    return "" if op is None else location_of(op.location)


def _number(value: ir.Value) -> int:
    return ir.OpResult(value).result_number


def leading_slices(shape: Iterable[int]) -> tuple[slice, ...]:
    """Index of the leading part of each dim, for an array of at least this shape."""
    return tuple(slice(size) for size in shape)


def begins_with(large: torch.Tensor, small: torch.Tensor) -> bool:
    """Return whether the leading part of a tensor equals a smaller tensor."""
    if small.dtype != large.dtype:
        return False
    first = large[leading_slices(small.shape)]
    # Parameters of both imports are the same tensors; this check avoids comparing weights.
    is_itself = small.data_ptr() == first.data_ptr() and small.stride() == first.stride()
    return is_itself or torch.equal(small, first)


# -- rules --------------------------------------------------------------------------------------------


def unchanged(ops: OpPair) -> None:
    """Require equal operations on tensors of equal shapes."""
    ops.same()
    if any(pair.differing for pair in (*ops.operands, *ops.results)):
        raise ops.fail(f"'{ops.small.name}' is not known to keep its elements apart")
    # Regions of control flow take tensors as block arguments, which must not grow either.
    types = [
        [argument.type for region in op.regions for argument in region.blocks[0].arguments] for op in ops
    ]
    if types[0] != types[1]:
        raise ops.fail(f"'{ops.small.name}' has tensors of another form at another size")


def anything(ops: OpPair) -> None:
    """Accept any pair: the op reads nothing, or single elements by their position."""


def elementwise(ops: OpPair) -> None:
    """Require equal attributes."""
    ops.same()


def same_dim(ops: OpPair) -> None:
    """Require the same dim."""
    ops.same("dim")


def equal_constant(ops: OpPair) -> None:
    """Require equal numbers."""
    values = [op.attributes["value"] for op in ops]
    # A splat of another shape contains the same number.
    if all(isinstance(value, ir.DenseElementsAttr) and value.is_splat for value in values):
        values = [ir.DenseElementsAttr(value).get_splat_value() for value in values]
    if values[0] != values[1]:
        raise ops.fail("the model has other numbers at another size")


def same_accesses(ops: OpPair) -> tuple[dict[int, int], dict[int, int]]:
    """Require that corresponding iterations access the same positions; return the extents of both operations."""
    ops.same("iterator_types", "operandSegmentSizes")
    extents = extents_of(ops.small), extents_of(ops.large)
    maps = [indexing_maps(op) for op in ops]
    for small, large in zip(*maps, strict=True):
        if small.n_dims != large.n_dims or len(small.results) != len(large.results):
            raise ops.fail("an operation has another form at another size")
        for one, other in zip(small.results, large.results, strict=True):
            # A dim of size 1 and the constant 0 are equal indices.
            if one != other and not (_is_first(one, extents[0]) and _is_first(other, extents[0])):
                raise ops.fail("an operation reads other elements at another size")
    return extents


def _is_first(result: ir.AffineExpr, extents: Mapping[int, int]) -> bool:
    """Return whether a result of a map is always 0."""
    if isinstance(result, ir.AffineConstantExpr):
        return result.value == 0
    return isinstance(result, ir.AffineDimExpr) and extents.get(result.position) == 1


def extents_of(op: ir.Operation) -> dict[int, int]:
    """Size of each iteration dim that is a dim of some operand."""
    extents = {}
    for operand, map_ in zip(op.operands, indexing_maps(op), strict=True):
        for result, size in zip(map_.results, shape_of(operand), strict=True):
            if isinstance(result, ir.AffineDimExpr):
                extents[result.position] = size
    return extents


def same_slice(ops: OpPair) -> None:
    """Require equal offsets and strides."""
    for attribute in ("static_offsets", "static_strides"):
        if any(small != large for small, large in ops.numbers(attribute)):
            raise ops.fail("a slice takes other positions at another size")


def along_one_dim(ops: OpPair) -> None:
    """Require that the dim along which an op scans or sorts has the same size in both programs."""
    ops.same()
    if ir.IntegerAttr(ops.small.attributes["dimension"]).value in ops.operands[0].differing:
        raise ops.fail("an operation combines its elements")
