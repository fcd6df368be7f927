# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Proof that a model imported at two sizes is one program with run-time sizes, and the marks of its symbolic dims.

Both modules are walked from the results back: corresponding operations are equal except for the sizes of tensors, and
each size that differs is a multiple of one run-time size in both. Constants of the smaller program are the leading
elements of the larger constants. The dims of arguments and constants that differ are marked (``sdsc.symbolic``). The
dims that the rules of ``analysis/symbolic_dims.py``, which the compiler uses, derive from the marks must be the dims
that differ, for every value. So a compiled program is correct at a size if the model, imported at that size, passes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np
import torch

from spyre_mlir.analysis.symbolic_dims import SymbolicAnalysis, is_fill
from spyre_mlir.dialects.sdsc import RUNS
from spyre_mlir.dialects.structured import defining_op
from spyre_mlir.dialects.symbolic_sizes import SIZES, SYMBOLIC, sizes_attr, symbolic_attr
from spyre_mlir.errors import CompileError
from spyre_mlir.frontend.importer import Imported
from spyre_mlir.frontend.module_pairs import (
    DifferentPrograms,
    OpPair,
    PairWalk,
    Rule,
    ValuePair,
    along_one_dim,
    anything,
    begins_with,
    check_arguments,
    elementwise,
    equal_constant,
    leading_slices,
    main_of,
    pairs,
    same_accesses,
    same_dim,
    same_slice,
    unchanged,
)
from spyre_mlir.layout.space import SymbolicDim, SymbolicDims
from spyre_mlir.mlir import ir


class SizePair(NamedTuple):
    """A run-time size: its granularity, and its value in the smaller and in the larger program."""

    granularity: int
    small: int
    large: int


def mark_symbolic(smaller: Imported, larger: Imported, sizes: Mapping[str, SizePair]) -> None:
    """Mark the dims of ``larger`` that follow the run-time ``sizes``; ``DifferentPrograms`` if this is not proven.

    The larger program has the largest sizes. Both programs are in one MLIR context.
    """
    walk = _proven(smaller, larger, sizes)
    assert larger.module is not None
    func = main_of(larger.module.operation)
    with func.context:
        _mark(func, walk.arguments, walk.sources, walk.maxima)


def check_symbolic(smaller: Imported, larger: Imported, sizes: Mapping[str, SizePair]) -> None:
    """Raise ``DifferentPrograms`` unless ``smaller`` is the program ``larger`` at smaller sizes."""
    _proven(smaller, larger, sizes)


def _proven(smaller: Imported, larger: Imported, sizes: Mapping[str, SizePair]) -> _SizeWalk:
    check_arguments(smaller, larger)
    if smaller.module is None or larger.module is None:
        raise DifferentPrograms("the model computes nothing on the device")
    walk = _SizeWalk(smaller, larger, sizes)
    walk.run()
    return walk


def _mark(
    func: ir.Operation,
    arguments: Mapping[int, SymbolicDims],
    sources: Mapping[int, SymbolicDims],
    maxima: Mapping[str, tuple[int, int]],
) -> None:
    """Write the run-time sizes of a function, and the dims of arguments and sources that follow them."""
    func.attributes[SIZES] = sizes_attr(maxima)
    entries = []
    for number, entry in enumerate(ir.ArrayAttr(func.attributes["arg_attrs"])):
        named = {item.name: item.attr for item in ir.DictAttr(entry)}
        if arguments.get(number):
            # The run lengths describe the largest size only.
            named.pop(RUNS, None)
            named[SYMBOLIC] = symbolic_attr(arguments[number])
        entries.append(ir.DictAttr.get(named))
    func.attributes["arg_attrs"] = ir.ArrayAttr.get(entries)
    for number, op in enumerate(_sources(func)):
        if sources.get(number):
            op.attributes[SYMBOLIC] = symbolic_attr(sources[number])


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


class _SizeWalk(PairWalk):
    """Walk that finds the dims that follow run-time sizes: for ``arguments`` by index, for ``sources`` by order."""

    def __init__(self, smaller: Imported, larger: Imported, sizes: Mapping[str, SizePair]) -> None:
        super().__init__(smaller, larger)
        self.rules = _RULES
        self.sizes = sizes
        self.maxima = {name: (size.granularity, size.large) for name, size in sizes.items()}
        self.arguments: dict[int, SymbolicDims] = {}
        self.sources: dict[int, SymbolicDims] = {}

    def run(self) -> None:
        super().run()
        blocks = [func.regions[0].blocks[0] for func in self.functions]
        # Include arguments that nothing reads: a call passes them at its sizes.
        arguments = pairs(*(block.arguments for block in blocks))
        visited = (pair for pair in self.seen if _is_tensor(pair.large))
        dims = {pair.large: self._dims(pair) for pair in (*visited, *arguments)}
        self.arguments = {number: dims[pair.large] for number, pair in enumerate(arguments)}
        sources = enumerate(_sources(self.functions.large))
        self.sources = {number: dims.get(op.results[0], {}) for number, op in sources}
        with self.functions.large.context:
            _mark(self.functions.large, self.arguments, self.sources, self.maxima)
        self._compare(dims)

    def unknown(self, ops: OpPair) -> None:
        unchanged(ops)

    def check_data(self, pair: ValuePair, small: torch.Tensor, large: torch.Tensor) -> None:
        if not begins_with(large, small):
            raise DifferentPrograms("the model has other constants at another size")

    def _compare(self, dims: Mapping[ir.Value, SymbolicDims]) -> None:
        """Require that the analysis of the marked program finds, for every value, the dims that differ."""
        try:
            analysis = SymbolicAnalysis(self.functions.large)
        except CompileError as error:
            raise DifferentPrograms(error.message, error.location) from error
        for value, expected in dims.items():
            op = defining_op(value)
            in_function = (
                value.owner == self.functions.large.regions[0].blocks[0]
                if op is None
                else (op.parent.operation == self.functions.large)
            )
            if in_function and not is_fill(value) and analysis.of(value) != expected:
                location = "" if op is None else str(op.location)
                raise DifferentPrograms(
                    "a tensor does not follow the sizes of what it is computed from", location
                )

    def _dims(self, pair: ValuePair) -> SymbolicDims:
        """Return the dims of the larger value that follow a run-time size."""
        return {dim: self._followed(pair, dim) for dim in pair.differing}

    def _followed(self, pair: ValuePair, dim: int) -> SymbolicDim:
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
                f"a dim of {small} and of {large} positions is no multiple of one size", location
            )
        return fitting[0]


def _is_tensor(value: ir.Value) -> bool:
    return isinstance(value.type, ir.RankedTensorType)


# -- rules --------------------------------------------------------------------------------------------
#
# A rule raises unless the operations are equal except for the sizes of their tensors.


def _constant(ops: OpPair) -> None:
    """Require that the smaller constant is the leading part of the larger constant."""
    if not ops.results[0].shapes or not ops.results[0].differing or is_fill(ops.large.results[0]):
        equal_constant(ops)
        return
    small, large = (np.array(ir.DenseElementsAttr(op.attributes["value"])) for op in ops)
    if not np.array_equal(small, large[leading_slices(small.shape)]):
        raise ops.fail("the model has other numbers at another size")


def _generic(ops: OpPair) -> None:
    """Require equal accesses, and a longer reduction to read more than fills, which do not have sizes."""
    small, large = same_accesses(ops)
    kinds = [str(kind) for kind in ir.ArrayAttr(ops.small.attributes["iterator_types"])]
    longer = [
        dim for dim, kind in enumerate(kinds) if small.get(dim) != large.get(dim) and "parallel" not in kind
    ]
    if longer and all(is_fill(value) for value in _inputs(ops.large)):
        raise ops.fail("an operation counts its elements")


def _reshape(ops: OpPair) -> None:
    ops.same("reassociation")


def _insertion(ops: OpPair) -> None:
    """Require that a differing slice fills the destination, or starts at offset 0 of a destination of fixed size."""
    same_slice(ops)
    places = zip(
        ops.numbers("static_sizes"), ops.numbers("static_offsets"), ops.operands[1].shapes, strict=True
    )
    for (small, large), (offset, _), ends in places:
        is_begin = not offset and ends[0] == ends[1] and large < ends[1]
        if small != large and (small, large) != ends and not is_begin:
            raise ops.fail("an insertion covers other positions at another size")


def _concatenation(ops: OpPair) -> None:
    ops.same("dim")
    dim = ir.IntegerAttr(ops.small.attributes["dim"]).value
    if any(dim in pair.differing for pair in ops.operands):
        raise ops.fail("a concatenation puts a tensor of another size beside others")


def _lookup(ops: OpPair) -> None:
    if ops.operands[0].differing:
        raise ops.fail("a table has another size")


def _pad(ops: OpPair) -> None:
    low, high = ops.numbers("static_low"), ops.numbers("static_high")
    if any(one != other for one, other in (*low, *high)):
        raise ops.fail("a padding is another one at another size")
    if any(low[dim] != (0, 0) or high[dim] != (0, 0) for dim in ops.operands[0].differing):
        raise ops.fail("a padding puts something beside it")


_RULES: Mapping[str, Rule] = {
    "arith.constant": _constant,
    "linalg.generic": _generic,
    "linalg.index": same_dim,
    "stick.pin": elementwise,
    "stick.restickify": elementwise,
    "tensor.collapse_shape": _reshape,
    "tensor.concat": _concatenation,
    "tensor.empty": anything,
    "tensor.expand_shape": _reshape,
    "tensor.extract": _lookup,
    "tensor.extract_slice": same_slice,
    "tensor.insert_slice": _insertion,
    "tensor.pad": _pad,
    "tm_tensor.scan": along_one_dim,
    "tm_tensor.sort": along_one_dim,
}
