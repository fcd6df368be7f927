# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A model imported at two sizes: corresponding values and operations of both modules, from the results back.

A ``PairWalk`` proves a property of the pair by rules on the names of operations: that the larger program may run in
place of the smaller program (``check_padding_safety``), or that both are one program of run-time sizes
(``mark_symbolic``).
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch

from spyre_mlir.analysis.integer_ranges import IntegerRanges, Interval
from spyre_mlir.analysis.symbolic_dims import SymbolicAnalysis, is_fill
from spyre_mlir.analysis.view_ops import reassociation_of
from spyre_mlir.dialects.indices import SIZES, SYMBOLIC, sizes_attr, symbolic_attr
from spyre_mlir.dialects.sdsc import RUNS
from spyre_mlir.dialects.structured import defining_op, element_of, maker_of, shape_of, use_empty
from spyre_mlir.errors import CompileError
from spyre_mlir.frontend.importer import Imported
from spyre_mlir.frontend.padding_masks import (
    GENERALIZE,
    MaskedOperand,
    PaddingMasks,
    is_replaceable,
    masked_operands,
)
from spyre_mlir.frontend.signature import INPUT
from spyre_mlir.layout.space import SymbolicDim, SymbolicDims
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

    def check_types(self) -> None:
        """Require equal element types and ranks, and sizes that do not shrink."""
        small, large = self
        fits = element_of(small) == element_of(large) and len(shape_of(small)) == len(shape_of(large))
        if not fits or any(one > other for one, other in self.shapes):
            op = defining_op(small)
            location = "" if op is None else location_of(op.location)
            raise DifferentPrograms("the model has tensors of another form at another size", location)


class OpPair(NamedTuple):
    """Two corresponding operations of the programs."""

    small: ir.Operation
    large: ir.Operation

    @property
    def operands(self) -> list[ValuePair]:
        """Corresponding operands."""
        return _pairs(self.small.operands, self.large.operands)

    @property
    def results(self) -> list[ValuePair]:
        """Corresponding results."""
        return _pairs(self.small.results, self.large.results)

    @property
    def terminators(self) -> list[OpPair]:
        """Terminators of the regions, which have one block each."""
        ends = ([_end_of(region.blocks[0]) for region in op.regions] for op in self)
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


def _pairs(small: Iterable[ir.Value], large: Iterable[ir.Value]) -> list[ValuePair]:
    return [ValuePair(*pair) for pair in zip(small, large, strict=True)]


def _end_of(block: ir.Block) -> ir.Operation:
    return block.operations[-1].operation


def _dim_of(op: ir.Operation) -> int:
    return ir.IntegerAttr(op.attributes["dim"]).value


def _main_of(module: ir.Operation) -> ir.Operation:
    """Return the function of a module."""
    ops = [entry.operation for entry in module.regions[0].blocks[0].operations]
    return next(op for op in ops if op.name == "func.func")


def leading_slices(shape: Iterable[int]) -> tuple[slice, ...]:
    """Index of the leading part of each dim, for an array of at least this shape."""
    return tuple(slice(size) for size in shape)


#: Requirement on two corresponding operations; raises ``DifferentPrograms``.
Rule = Callable[[OpPair], Any]


# Rules that both proofs share.


def _unchanged(ops: OpPair) -> None:
    """Require equal operations on tensors of equal shapes."""
    ops.same()
    if any(pair.differing for pair in (*ops.operands, *ops.results)):
        raise ops.fail(f"'{ops.small.name}' may combine its elements")
    # Regions of control flow take tensors as block arguments, which must not grow either.
    types = [
        [argument.type for region in op.regions for argument in region.blocks[0].arguments] for op in ops
    ]
    if types[0] != types[1]:
        raise ops.fail(f"'{ops.small.name}' has tensors of another form at another size")


def _anything(ops: OpPair) -> None:
    """Accept any pair: the op reads nothing, or single elements by their position."""


def _equal_constant(ops: OpPair) -> None:
    """Require equal numbers."""
    values = [op.attributes["value"] for op in ops]
    # A splat of another shape contains the same number.
    if all(isinstance(value, ir.DenseElementsAttr) and value.is_splat for value in values):
        values = [ir.DenseElementsAttr(value).get_splat_value() for value in values]
    if values[0] != values[1]:
        raise ops.fail("the model has other numbers at another size")


def _longer_reductions(ops: OpPair) -> list[int]:
    """Require that corresponding iterations access the same positions; return the dims of reductions that differ."""
    ops.same("iterator_types", "operandSegmentSizes")
    extents = _extents_of(ops.small), _extents_of(ops.large)

    def is_first(result: ir.AffineExpr, extents: Mapping[int, int]) -> bool:
        if isinstance(result, ir.AffineConstantExpr):
            return result.value == 0
        return isinstance(result, ir.AffineDimExpr) and extents.get(result.position) == 1

    for small, large in zip(*map(indexing_maps, ops), strict=True):
        if small.n_dims != large.n_dims or len(small.results) != len(large.results):
            raise ops.fail("an operation has another form at another size")
        for one, other in zip(small.results, large.results, strict=True):
            # A dim of size 1 and the constant 0 are equal indices.
            if one != other and not (is_first(one, extents[0]) and is_first(other, extents[0])):
                raise ops.fail("an operation reads other elements at another size")
    kinds = [str(kind) for kind in ir.ArrayAttr(ops.small.attributes["iterator_types"])]
    return [
        dim
        for dim, kind in enumerate(kinds)
        if extents[0].get(dim) != extents[1].get(dim) and "parallel" not in kind
    ]


def _extents_of(op: ir.Operation) -> dict[int, int]:
    """Size of each iteration dim that is a dim of some operand."""
    extents = {}
    for operand, map_ in zip(op.operands, indexing_maps(op), strict=True):
        for result, size in zip(map_.results, shape_of(operand), strict=True):
            if isinstance(result, ir.AffineDimExpr):
                extents[result.position] = size
    return extents


def _same_slice(ops: OpPair) -> None:
    """Require equal offsets and strides."""
    for attribute in ("static_offsets", "static_strides"):
        if any(small != large for small, large in ops.numbers(attribute)):
            raise ops.fail("a slice takes other positions at another size")


def _along_one_dim(ops: OpPair) -> None:
    """Require that the dim along which an op scans or sorts has the same size in both programs."""
    ops.same()
    if ir.IntegerAttr(ops.small.attributes["dimension"]).value in ops.operands[0].differing:
        raise ops.fail("an operation combines its elements")


class PairWalk:
    """Walk over two functions, from their results back to their arguments, by ``rules`` keyed by operation name.

    Operations without a rule must be equal, on tensors of equal shapes.
    """

    def __init__(self, smaller: Imported, larger: Imported) -> None:
        self.rules: dict[str, Rule] = {
            "linalg.index": lambda ops: ops.same("dim"),
            "stick.pin": OpPair.same,
            "stick.restickify": OpPair.same,
            "tensor.empty": _anything,
            "tensor.extract_slice": _same_slice,
            "tm_tensor.scan": _along_one_dim,
            "tm_tensor.sort": _along_one_dim,
        }
        self.seen: set[ValuePair] = set()
        self.waiting: list[ValuePair] = []
        # Operations whose regions are assumed to have corresponding arguments.
        self.blocks: set[OpPair] = set()
        # Copies in which structured operations are generic; a copied module is alive only while it is referenced.
        self.modules = []
        for imported in (smaller, larger):
            assert imported.module is not None
            self.modules.append(imported.module.operation.clone().operation)
            with imported.module.context:
                PassManager.parse(GENERALIZE).run(self.modules[-1])
        self.functions = OpPair(*map(_main_of, self.modules))
        #: Parameters and constants by argument index.
        self.data: dict[int, tuple[torch.Tensor, torch.Tensor]] = {
            number: (small.tensor, large.tensor)
            for number, (small, large) in enumerate(zip(smaller.arguments, larger.arguments, strict=True))
            if small.tensor is not None and large.tensor is not None
        }

    def run(self) -> None:
        """Visit every pair of values that a result depends on, once."""
        self._wait_for_ends(self.functions)
        while self.waiting:
            pair = self.waiting.pop()
            if pair in self.seen:
                continue
            self.seen.add(pair)
            pair.check_types()
            if any(defining_op(value) is None for value in pair):
                self._argument(pair)
                continue
            ops = OpPair(*map(maker_of, pair))
            indices = [ir.OpResult(value).result_number for value in pair]
            if ops.small.name != ops.large.name or indices[0] != indices[1]:
                raise ops.fail(f"'{ops.small.name}' is '{ops.large.name}' at another size")
            counts = [(len(op.operands), len(op.results), len(op.regions)) for op in ops]
            if counts[0] != counts[1]:
                raise ops.fail(f"'{ops.small.name}' has other operands at another size")
            if any(len(region.blocks) != 1 for op in ops for region in op.regions):
                raise ops.fail(f"the control flow of '{ops.small.name}' is not looked into")
            for corresponding in (*ops.operands, *ops.results):
                corresponding.check_types()
            self.rules.get(ops.small.name, _unchanged)(ops)
            self.note(ops)
            self._wait_for_ends(ops)
            self.waiting += ops.operands

    def note(self, ops: OpPair) -> None:
        """Record two corresponding operations."""

    def note_data(self, pair: ValuePair) -> None:
        """Record a parameter or a constant."""

    def _wait_for_ends(self, ops: OpPair) -> None:
        """Queue the operands of the regions' terminators; the arguments of the regions are assumed to correspond."""
        self.blocks.add(ops)
        for end in ops.terminators:
            if end.small.name != end.large.name or len(end.small.operands) != len(end.large.operands):
                raise ops.fail(f"'{ops.small.name}' gives something else at another size")
            end.same()
            self.waiting += end.operands

    def _argument(self, pair: ValuePair) -> None:
        """Check arguments of the function, or of a region of an operation that was visited earlier.

        A parameter or a constant of the smaller program must be the leading part of the larger one.
        """
        if not all(isinstance(value.owner, ir.Block) for value in pair):
            raise DifferentPrograms("the model uses its inputs in another way at another size")
        small, large = (ir.BlockArgument(value) for value in pair)
        owners = OpPair(*(argument.owner.owner.operation for argument in (small, large)))
        number = small.arg_number
        if owners not in self.blocks or number != large.arg_number:
            raise owners.fail("the model uses its inputs in another way at another size")
        if owners == self.functions and number in self.data:
            part, whole = self.data[number]
            first = whole[leading_slices(part.shape)] if part.dtype == whole.dtype else None
            # Parameters of both imports are the same tensors; this check avoids comparing weights.
            is_itself = (
                first is not None and part.data_ptr() == first.data_ptr() and part.stride() == first.stride()
            )
            if first is None or not (is_itself or torch.equal(part, first)):
                raise DifferentPrograms("the model has other constants at another size")
            self.note_data(pair)


def _check_arguments(smaller: Imported, larger: Imported) -> None:
    """Require inputs with equal names; the elements of data, which may be a part of a buffer, are compared."""
    names = [
        [each.name if each.tensor is None or each.kind == INPUT else "" for each in imported.arguments]
        for imported in (smaller, larger)
    ]
    if names[0] != names[1]:
        raise DifferentPrograms("the model has other constants at another size")


# Proof that a program computes the leading part of the same program for larger tensors, so padding is safe.
#
# The larger program may run in place of the smaller program, with padded inputs and cut results, if every tensor of the
# smaller program equals the leading part of the corresponding larger tensor, whatever the other elements are. This is
# proven op by op, from the results back to the arguments, by rules such as
#
# - an elementwise operation, a contraction: a reduced dim of different size has a mask (``padding_masks.py``);
# - a reshape: of the merged dims, only the outermost dim has a different size;
# - a concatenation: only the last part has a different size along the dim.
#
# Everything else must be equal in both programs: a model that divides by its number of rows, or takes the last row,
# cannot be padded.
#
# Padding rows are copies of the last row, so a lookup by the values of inputs stays in bounds for them. A lookup by
# positions and constants alone stays in bounds as well, because the model is valid at the larger size. An index that
# combines both, such as the sum of a position and an input, may be outside its table in the padding: its range must be
# known (``analysis/integer_ranges.py``).


def check_padding_safety(smaller: Imported, larger: Imported, has_masks: bool = False) -> PaddingMasks:
    """Return the masks with which ``larger`` may run in place of ``smaller``; ``DifferentPrograms`` if it may not.

    Without ``has_masks``, ``larger`` must need none. Both are in one MLIR context.
    """
    _check_arguments(smaller, larger)
    # A model without a module computes nothing: it returns views of its inputs.
    if smaller.module is None or larger.module is None:
        return PaddingMasks()
    walk = _PaddingWalk(smaller, larger, has_masks)
    walk.run()
    return walk.masks()


#: Origins of a value: positions and running sums, and inputs of the program.
_COUNTED, _INPUT = 1, 2


class _PaddingWalk(PairWalk):
    """Walk that proves that every tensor of the smaller program is the leading part of the larger tensor.

    A rule raises unless equal leading parts of the operands imply equal leading parts of the results.
    """

    def __init__(self, smaller: Imported, larger: Imported, has_masks: bool) -> None:
        super().__init__(smaller, larger)
        self.has_masks = has_masks
        self.rules |= {
            "arith.constant": self._constant,
            "linalg.generic": self._generic,
            "tm_tensor.scan": self._scan,
            "tensor.cast": OpPair.same,
            "tensor.collapse_shape": self._reshape,
            "tensor.concat": self._concatenation,
            "tensor.expand_shape": self._reshape,
            "tensor.extract": _anything,
            "tensor.insert_slice": self._insertion,
            "tensor.pad": self._pad,
        }
        # Values of the larger program whose padding is not a copy of the last position: positions and running sums.
        self.counted: set[ir.Value] = set()
        self.lookups: list[OpPair] = []
        # Reductions over padding, with the iteration dim, and scalar constants of other numbers.
        self.padded: list[tuple[OpPair, int]] = []
        self.numbers: list[OpPair] = []

    def run(self) -> None:
        super().run()
        if not self.lookups or not self.counted:
            return
        origins = self._origins()
        ranges = IntegerRanges(
            {
                argument: Interval(int(large.min()), int(large.max()))
                for argument in self.functions.large.regions[0].blocks[0].arguments
                if (large := self.data.get(argument.arg_number, (None, None))[1]) is not None
                and large.numel()
                and large.dtype in (torch.int32, torch.int64)
            }
        )
        for ops in self.lookups:
            table, *indices = ops.large.operands
            for index, size in zip(indices, shape_of(table), strict=True):
                if origins[index] != _COUNTED | _INPUT:
                    continue
                found = ranges.of(index)
                if found is None or found.lower < 0 or found.upper >= size:
                    raise ops.fail(
                        "it looks up by a position and an input, which may be outside in the padding"
                    )

    def _origins(self) -> dict[ir.Value, int]:
        """Return, for each value of the larger program, whether it depends on counted values, on inputs, or on both.

        A number or a mask that a call passes is an input.
        """
        passed = {ops.large for ops, _ in self.padded} | {ops.large for ops in self.numbers}
        body = self.functions.large.regions[0].blocks[0]
        origins = {value: 0 if value.arg_number in self.data else _INPUT for value in body.arguments}
        origins |= dict.fromkeys(self.counted, _COUNTED)

        def visit(block: ir.Block) -> None:
            for op in (entry.operation for entry in block.operations):
                origin = _INPUT if op in passed else 0
                for operand in op.operands:
                    origin |= origins[operand]
                for region in op.regions:
                    arguments = region.blocks[0].arguments
                    if op.name == "linalg.generic":
                        origins.update(zip(arguments, map(origins.__getitem__, op.operands), strict=True))
                    else:
                        # A loop may carry values from one iteration to the next.
                        origins.update(dict.fromkeys(arguments, _COUNTED | _INPUT))
                    visit(region.blocks[0])
                    origin |= origins_of_end(region.blocks[0])
                for result in op.results:
                    origins[result] = origins.get(result, 0) | origin

        def origins_of_end(block: ir.Block) -> int:
            return functools.reduce(operator.or_, (origins[value] for value in _end_of(block).operands), 0)

        visit(body)
        return origins

    def note_data(self, pair: ValuePair) -> None:
        if pair.differing:
            self.counted.add(pair.large)

    def note(self, ops: OpPair) -> None:
        """Record lookups, and values whose padding is not a copy of the last position."""
        if ops.small.name == "tensor.extract":
            self.lookups.append(ops)
        elif self._counts(ops):
            self.counted.update(ops.large.results)

    @staticmethod
    def _counts(ops: OpPair) -> bool:
        """Return whether an op of padded size creates positions, sums along them, or takes more of its source."""
        if ops.small.name == "linalg.index":
            sizes = []
            for index in ops:
                around = index.parent.operation
                while around.name != "linalg.generic":
                    around = around.parent.operation
                sizes.append(_extents_of(around)[_dim_of(index)])
            return sizes[0] != sizes[1]
        if ops.small.name == "tm_tensor.scan":
            return bool(ops.operands[0].differing)
        if ops.small.name != "tensor.extract_slice":
            return False
        places = zip(
            ops.numbers("static_offsets"),
            ops.numbers("static_sizes"),
            ops.numbers("static_strides"),
            ops.operands[0].shapes,
            strict=True,
        )
        return any(
            small != large and offset + (small - 1) * stride + 1 < end
            for (offset, _), (small, large), (stride, _), (end, _) in places
        )

    def _generic(self, ops: OpPair) -> None:
        """Require that corresponding iterations access the same positions, and that longer reductions have masks."""
        for dim in _longer_reductions(ops):
            is_outermost = ops.large.parent.operation == self.functions.large
            if not self.has_masks or not is_outermost or masked_operands(ops.large, dim) is None:
                raise ops.fail("an operation combines its elements")
            self.padded.append((ops, dim))

    def _constant(self, ops: OpPair) -> None:
        """Require equal numbers, or a scalar that the larger program can read from an input."""
        try:
            _equal_constant(ops)
        except DifferentPrograms:
            constant = ops.large.results[0]
            is_outermost = ops.large.parent.operation == self.functions.large
            if not (self.has_masks and is_outermost and is_replaceable(constant)):
                raise
            self.numbers.append(ops)

    @staticmethod
    def _scan(ops: OpPair) -> None:
        """Require that padding follows what a scan has combined, and that nothing reads its last value."""
        _, last = ops.large.results
        if not use_empty(last):
            _along_one_dim(ops)
        ops.same()

    def masks(self) -> PaddingMasks:
        """Return the masks of the reductions over padding; reductions of equal sizes share a mask."""
        if not self.padded and not self.numbers:
            return PaddingMasks()
        # Two values of the smaller program may be one value of the larger program, which has one mask or number.
        changed = {ops.large for ops, _ in self.padded} | {ops.large for ops in self.numbers}
        smaller: dict[ir.Value, ir.Value] = {}
        for pair in self.seen:
            if (
                defining_op(pair.large) in changed
                and smaller.setdefault(pair.large, pair.small) != pair.small
            ):
                raise DifferentPrograms("two values of the model are one value at another size")
        block = self.functions.large.regions[0].blocks[0]
        numbers = {op.operation: number for number, op in enumerate(block.operations)}
        extents: dict[tuple[int, int], int] = {}
        operands = set()
        for ops, dim in self.padded:
            sizes = _extents_of(ops.small)[dim], _extents_of(ops.large)[dim]
            mask = extents.setdefault(sizes, len(extents))
            for operand, place in masked_operands(ops.large, dim) or ():
                operands.add(MaskedOperand(numbers[ops.large], operand, place, mask))
        values = {
            numbers[ops.large]: (ops.small.attributes["value"].value, str(ops.large.results[0].type))
            for ops in self.numbers
        }
        constants = tuple(sorted(values))
        return PaddingMasks(
            tuple(sorted(operands)), tuple(extents), constants, tuple(values[number] for number in constants)
        )

    @staticmethod
    def _reshape(ops: OpPair) -> None:
        """Require that only the outermost dim of a merge or split is padded, which keeps the row-major order."""
        ops.same("reassociation")
        source, result = ops.operands[0], ops.results[0]
        whole = result if ops.small.name == "tensor.expand_shape" else source
        for number, dims in enumerate(reassociation_of(ops.small)):
            padded = [index for index, dim in enumerate(dims) if dim in whole.differing]
            outer = [whole.shapes[dim][0] for dim in dims[: padded[0]]] if padded else []
            part = source if whole is result else result
            is_padded = number in part.differing
            if len(padded) > 1 or any(size != 1 for size in outer) or is_padded != bool(padded):
                raise ops.fail("a reshape merges the padded dim into another dim")

    @staticmethod
    def _insertion(ops: OpPair) -> None:
        """Require that a source that grows in the larger program extends to the end of the destination."""
        _same_slice(ops)
        whole = ops.operands[1]
        places = zip(ops.numbers("static_offsets"), ops.numbers("static_sizes"), whole.shapes, strict=True)
        for (offset, _), (small, large), (end, _) in places:
            if small != large and offset + small != end:
                raise ops.fail("an insertion covers other positions at another size")

    @staticmethod
    def _concatenation(ops: OpPair) -> None:
        ops.same("dim")
        if any(_dim_of(ops.small) in pair.differing for pair in ops.operands[:-1]):
            raise ops.fail("a concatenation appends elements after the padding")

    @staticmethod
    def _pad(ops: OpPair) -> None:
        padded = ops.operands[0].differing
        low, high = ops.numbers("static_low"), ops.numbers("static_high")
        if any(one != other for one, other in (*low, *high)) or any(high[dim] != (0, 0) for dim in padded):
            raise ops.fail("a pad operation appends elements after the padding")


# Proof that a model imported at two sizes is one program with run-time sizes, and the marks of its symbolic dims.
#
# Corresponding operations are equal except for the sizes of tensors, and each size that differs is a multiple of one
# run-time size in both programs. Constants of the smaller program are the leading elements of the larger constants. The
# dims of arguments and constants that differ are marked (``sdsc.symbolic``). The dims that the rules of
# ``analysis/symbolic_dims.py``, which the compiler uses, derive from the marks must be the dims that differ, for every
# value. So a compiled program is correct at a size if the model, imported at that size, passes.


class SizePair(NamedTuple):
    """A run-time size: its granularity, and its value in the smaller and in the larger program."""

    granularity: int
    small: int
    large: int


def mark_symbolic(smaller: Imported, larger: Imported, sizes: Mapping[str, SizePair]) -> None:
    """Mark the dims of ``larger`` that follow the run-time ``sizes``; ``DifferentPrograms`` if this is not proven.

    The larger program has the largest sizes. Both programs are in one MLIR context.
    """
    walk = check_symbolic(smaller, larger, sizes)
    assert larger.module is not None
    walk.mark(_main_of(larger.module.operation))


def check_symbolic(smaller: Imported, larger: Imported, sizes: Mapping[str, SizePair]) -> SizeWalk:
    """Raise ``DifferentPrograms`` unless ``smaller`` is the program ``larger`` at smaller sizes."""
    _check_arguments(smaller, larger)
    if smaller.module is None or larger.module is None:
        raise DifferentPrograms("the model computes nothing on the device")
    walk = SizeWalk(smaller, larger, sizes)
    walk.run()
    return walk


def _sources(func: ir.Operation) -> Iterator[ir.Operation]:
    """The tensors that a function creates without tensor inputs: constants of several numbers, and positions."""
    for op in (entry.operation for entry in func.regions[0].blocks[0].operations):
        reads = any(isinstance(operand.type, ir.RankedTensorType) for operand in _inputs(op))
        is_tensor = len(op.results) == 1 and isinstance(op.results[0].type, ir.RankedTensorType)
        if is_tensor and op.name in ("arith.constant", "linalg.generic") and not reads:
            if not is_fill(op.results[0]):
                yield op


def _inputs(op: ir.Operation) -> list[ir.Value]:
    """The operands of an op, without its destination."""
    return list(op.operands)[:-1] if op.name == "linalg.generic" else list(op.operands)


class SizeWalk(PairWalk):
    """Walk that finds the dims that follow run-time sizes: for ``arguments`` by index, for ``sources`` by order.

    A rule raises unless the operations are equal except for the sizes of their tensors.
    """

    def __init__(self, smaller: Imported, larger: Imported, sizes: Mapping[str, SizePair]) -> None:
        super().__init__(smaller, larger)
        self.rules |= {
            "arith.constant": self._constant,
            "linalg.generic": self._generic,
            "tensor.collapse_shape": lambda ops: ops.same("reassociation"),
            "tensor.concat": self._concatenation,
            "tensor.expand_shape": lambda ops: ops.same("reassociation"),
            "tensor.extract": self._lookup,
            "tensor.insert_slice": self._insertion,
            "tensor.pad": self._pad,
        }
        self.sizes = sizes
        self.arguments: dict[int, SymbolicDims] = {}
        self.sources: dict[int, SymbolicDims] = {}

    def run(self) -> None:
        super().run()
        func = self.functions.large
        # Include arguments that nothing reads: a call passes them at its sizes.
        arguments = _pairs(*(func.regions[0].blocks[0].arguments for func in self.functions))
        visited = (pair for pair in self.seen if isinstance(pair.large.type, ir.RankedTensorType))
        dims = {
            pair.large: {dim: self._followed(pair, dim) for dim in pair.differing}
            for pair in (*visited, *arguments)
        }
        self.arguments = {number: dims[pair.large] for number, pair in enumerate(arguments)}
        sources = enumerate(_sources(func))
        self.sources = {number: dims.get(op.results[0], {}) for number, op in sources}
        self.mark(func)
        # The analysis of the marked program must find, for every value, the dims that differ.
        try:
            analysis = SymbolicAnalysis(func)
        except CompileError as error:
            raise DifferentPrograms(error.message, error.location) from error
        for value, expected in dims.items():
            op = defining_op(value)
            in_function = (
                value.owner == func.regions[0].blocks[0] if op is None else op.parent.operation == func
            )
            if in_function and not is_fill(value) and analysis.of(value) != expected:
                location = "" if op is None else str(op.location)
                raise DifferentPrograms(
                    "a tensor does not follow the sizes of what it is computed from", location
                )

    def mark(self, func: ir.Operation) -> None:
        """Write the run-time sizes of a function, and the dims of arguments and sources that follow them."""
        with func.context:
            maxima = {name: (size.granularity, size.large) for name, size in self.sizes.items()}
            func.attributes[SIZES] = sizes_attr(maxima)
            entries = []
            for number, entry in enumerate(ir.ArrayAttr(func.attributes["arg_attrs"])):
                named = {item.name: item.attr for item in ir.DictAttr(entry)}
                if self.arguments.get(number):
                    # The run lengths describe the largest size only.
                    named.pop(RUNS, None)
                    named[SYMBOLIC] = symbolic_attr(self.arguments[number])
                entries.append(ir.DictAttr.get(named))
            func.attributes["arg_attrs"] = ir.ArrayAttr.get(entries)
            for number, op in enumerate(_sources(func)):
                if self.sources.get(number):
                    op.attributes[SYMBOLIC] = symbolic_attr(self.sources[number])

    def _followed(self, pair: ValuePair, dim: int) -> SymbolicDim:
        """Return the run-time size that a dim of the larger value follows."""
        small, large = pair.shapes[dim]
        fitting = [
            SymbolicDim(name, size.granularity, size.large, large // size.large)
            for name, size in self.sizes.items()
            if large % size.large == 0 and large // size.large * size.small == small != large
        ]
        if len(fitting) != 1:
            op = defining_op(pair.large)
            location = "" if op is None else str(op.location)
            raise DifferentPrograms(
                f"a dim of {small} and {large} elements is not a multiple of exactly one size", location
            )
        return fitting[0]

    @staticmethod
    def _constant(ops: OpPair) -> None:
        """Require that the smaller constant is the leading part of the larger constant."""
        if not ops.results[0].shapes or not ops.results[0].differing or is_fill(ops.large.results[0]):
            _equal_constant(ops)
            return
        small, large = (np.array(ir.DenseElementsAttr(op.attributes["value"])) for op in ops)
        if not np.array_equal(small, large[leading_slices(small.shape)]):
            raise ops.fail("the model has other numbers at another size")

    @staticmethod
    def _generic(ops: OpPair) -> None:
        """Require equal accesses, and a longer reduction to read more than fills, which do not have sizes."""
        if _longer_reductions(ops) and all(is_fill(value) for value in _inputs(ops.large)):
            raise ops.fail("an operation counts its elements")

    @staticmethod
    def _insertion(ops: OpPair) -> None:
        """Require that a differing slice fills the destination, or starts at 0 in a destination of fixed size."""
        _same_slice(ops)
        places = zip(
            ops.numbers("static_sizes"), ops.numbers("static_offsets"), ops.operands[1].shapes, strict=True
        )
        for (small, large), (offset, _), ends in places:
            is_begin = not offset and ends[0] == ends[1] and large < ends[1]
            if small != large and (small, large) != ends and not is_begin:
                raise ops.fail("an insertion covers other positions at another size")

    @staticmethod
    def _concatenation(ops: OpPair) -> None:
        ops.same("dim")
        if any(_dim_of(ops.small) in pair.differing for pair in ops.operands):
            raise ops.fail("a concatenation joins tensors along a dim of variable size")

    @staticmethod
    def _lookup(ops: OpPair) -> None:
        if ops.operands[0].differing:
            raise ops.fail("a table has another size")

    @staticmethod
    def _pad(ops: OpPair) -> None:
        low, high = ops.numbers("static_low"), ops.numbers("static_high")
        if any(one != other for one, other in (*low, *high)):
            raise ops.fail("a pad operation has other widths at another size")
        if any(low[dim] != (0, 0) or high[dim] != (0, 0) for dim in ops.operands[0].differing):
            raise ops.fail("a pad operation extends a dim of variable size")
