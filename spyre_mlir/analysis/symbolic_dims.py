# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Symbolic dims: the dims of values that follow a run-time size, from arguments through operations and views."""

from __future__ import annotations

import math
from collections.abc import Sequence

from spyre_mlir.analysis.loops import LOOP, initial_of
from spyre_mlir.analysis.view_ops import VIEWS, place_of, step_of
from spyre_mlir.diagnostics import error_at
from spyre_mlir.dialects.indices import SYMBOLIC, sizes_of, symbolic_of
from spyre_mlir.dialects.structured import Known, Structured, defining_op, shape_of, structured
from spyre_mlir.layout.space import SymbolicDim, SymbolicDims
from spyre_mlir.layout.view_transforms import Collapse, Expand, Slice, Transpose, ViewTransform
from spyre_mlir.mlir import indexing_maps, ir

#: Operations whose result has the dims of their first operand.
_SAME_DIMS = ("sdsc.clone", "sdsc.shuffle", "stick.restickify", "stick.pin")


class SymbolicAnalysis:
    """The symbolic dims of the values of one function; ``is_empty`` if the function has no run-time sizes."""

    def __init__(self, func: ir.Operation, known: Known | None = None) -> None:
        self.sizes = sizes_of(func)
        self._known: Known = {} if known is None else known
        self._dims: dict[ir.Value, SymbolicDims] = {}
        self._parts: set[ir.Value] = set()
        if self.sizes:
            self._visit(func.regions[0].blocks[0])

    @property
    def is_empty(self) -> bool:
        """Whether no dim in the function is symbolic."""
        return not self.sizes

    def of(self, value: ir.Value) -> SymbolicDims:
        """Return the symbolic dims of a value."""
        if self.is_empty:
            return {}
        if value not in self._dims:
            op = defining_op(value)
            # A pass has built this op after the analysis ran; its operands are known or also new.
            self._dims[value] = self._argument(value) if op is None else self._result(op, value)
        return self._dims[value]

    def is_part(self, value: ir.Value) -> bool:
        """Return whether a value is a fixed part of a symbolic dim; slices of the whole dim begin elsewhere."""
        return bool(self.of(value) or self._parts) and value in self._parts

    def iteration(self, generic: Structured) -> SymbolicDims:
        """Return the symbolic iteration dims of an operation.

        Raise ``CompileError`` if operands contradict each other: a dim cannot follow two sizes, or a size and no size.
        """
        dims: SymbolicDims = {}
        for value, operand in zip(generic.inputs, generic.maps, strict=False):
            symbolic = self.of(value)
            for position, dim in enumerate(operand):
                if dim is not None and position in symbolic:
                    self._meet(generic.op, dims, dim, symbolic[position])
        for value, operand in zip(generic.inputs, generic.maps, strict=False):
            symbolic = self.of(value)
            missing = (
                dim for position, dim in enumerate(operand) if dim in dims and position not in symbolic
            )
            dim = next(missing, None)
            if dim is not None and not is_fill(value):
                size = f"the run-time size '{dims[dim].name}' for one operand and no size for another"
                raise error_at(generic.op, f"dim {dim} follows {size}")
        return dims

    def of_pieces(self, value: ir.Value, sizes: Sequence[int]) -> SymbolicDims:
        """Return the symbolic dims of the space of a copy of a value; ``sizes`` may be pieces of the value's dims."""
        dims: SymbolicDims = {}
        symbolic, piece = self.of(value), 0
        for dim, extent in enumerate(shape_of(value) if symbolic else ()):
            first, count = piece, sizes[piece]
            piece += 1
            while count < extent:
                count *= sizes[piece]
                piece += 1
            if dim in symbolic:
                inner = math.prod(sizes[first + 1 : piece])
                dims[first] = _divided(defining_op(value) or value.owner.owner, symbolic[dim], inner)
        return dims

    # -- walk -----------------------------------------------------------------------------------------

    def _visit(self, block: ir.Block) -> None:
        for op in (item.operation for item in block.operations):
            for value in op.results:
                if isinstance(value.type, ir.RankedTensorType):
                    self.of(value)
            for region in op.regions if op.name == LOOP else ():
                self._visit(region.blocks[0])

    def _argument(self, value: ir.Value) -> SymbolicDims:
        argument = ir.BlockArgument(value)
        owner = argument.owner.owner.operation
        if owner.name == LOOP:
            initial = initial_of(value)
            return {} if initial is None else self.of(initial)
        if "arg_attrs" not in owner.attributes:
            return {}
        attributes = ir.DictAttr(ir.ArrayAttr(owner.attributes["arg_attrs"])[argument.arg_number])
        if SYMBOLIC not in attributes:
            return {}
        return symbolic_of(attributes[SYMBOLIC], self.sizes, shape_of(value), owner.location)

    def _result(self, op: ir.Operation, value: ir.Value) -> SymbolicDims:
        if SYMBOLIC in op.attributes:
            return symbolic_of(op.attributes[SYMBOLIC], self.sizes, shape_of(op.results[0]), op.location)
        if op.name in VIEWS:
            return self._viewed(op, step_of(op), self.of(op.operands[0]))
        if op.name in _SAME_DIMS:
            return self.of(op.operands[0])
        if op.name == "tensor.insert_slice":
            # A buffer's dims: symbolic if a part fills the buffer; a larger buffer begins with the part.
            part, whole, place = self.of(op.operands[0]), dict(self.of(op.operands[1])), place_of(op)
            shape, is_fresh = shape_of(op.operands[1]), is_fill(op.operands[1])
            dims = [dim for dim in range(len(shape)) if dim not in place.dropped]
            for position, symbolic in part.items():
                dim = dims[position]
                is_whole = place.sizes[dim] == shape[dim]
                if is_whole and (is_fresh or dim in whole):
                    self._meet(op, whole, dim, symbolic)
                elif is_whole or dim in whole or place.offsets[dim] or place.steps[dim] != 1:
                    # Such a part covers the whole buffer at the largest size, but only a part of it at other sizes.
                    raise error_at(op, f"a part of the run-time size '{symbolic.name}' is concatenated")
                else:
                    self._parts.add(op.operands[0])
            return whole
        if op.name == "tensor.concat":
            return self._concatenated(op)
        if op.name == "tensor.pad":
            source = self.of(op.operands[0])
            for name in ("static_low", "static_high"):
                if any(ir.DenseI64ArrayAttr(op.attributes[name])[dim] for dim in source):
                    raise error_at(op, "a dim that follows a run-time size is padded")
            return source
        if op.name == LOOP:
            initial = initial_of(value)
            return {} if initial is None else self.of(initial)
        generic = structured(op, self._known)
        if generic is not None:
            return _of_map(self.iteration(generic), generic.maps[-1])
        return self._of_several(op, value) if op.name == "linalg.generic" else self._of_other(op)

    def _of_several(self, op: ir.Operation, value: ir.Value) -> SymbolicDims:
        """Return the dims of one of several results, or of a result whose maps do not only select dims."""
        inputs, _ = op.attributes["operandSegmentSizes"]
        maps = [
            [expr.position if isinstance(expr, ir.AffineDimExpr) else None for expr in map_.results]
            for map_ in indexing_maps(op)
        ]
        dims: SymbolicDims = {}
        for operand, map_ in zip(list(op.operands)[:inputs], maps, strict=False):
            for position, symbolic in self.of(operand).items():
                dim = map_[position]
                if dim is None:
                    raise error_at(
                        op, f"a tensor of the run-time size '{symbolic.name}' is not read in order"
                    )
                self._meet(op, dims, dim, symbolic)
        return _of_map(dims, maps[inputs + ir.OpResult(value).result_number])

    def _of_other(self, op: ir.Operation) -> SymbolicDims:
        """Return the dims of the result of an op without a rule: none; its operands must not be symbolic."""
        for operand in op.operands:
            if isinstance(operand.type, ir.RankedTensorType) and self.of(operand):
                # The destination of a fill is written, not read.
                if op.name == "linalg.fill":
                    return self.of(operand)
                raise error_at(op, f"'{op.name}' of a tensor whose size is known only at run time")
        return {}

    def _concatenated(self, op: ir.Operation) -> SymbolicDims:
        dims: SymbolicDims = {}
        along = ir.IntegerAttr(op.attributes["dim"]).value
        for part in op.operands:
            for dim, symbolic in self.of(part).items():
                if dim == along:
                    raise error_at(op, f"a part of the run-time size '{symbolic.name}' is concatenated")
                self._meet(op, dims, dim, symbolic)
        return dims

    def _viewed(self, op: ir.Operation, step: ViewTransform, source: SymbolicDims) -> SymbolicDims:
        """Return the symbolic dims of a view of a tensor with the symbolic dims ``source``; {} if the view has none."""
        if op.operands[0] in self._parts:
            self._parts.add(op.results[0])
        if not source:
            return {}
        if isinstance(step, Transpose):
            return {new: source[old] for new, old in enumerate(step.permutation) if old in source}
        dims: SymbolicDims = {}
        shape = shape_of(op.operands[0])
        if isinstance(step, Expand):
            # The outermost part of more than one position follows the size of its dim.
            for dim, group in enumerate(step.groups):
                if dim in source:
                    several = [part for part in group if step.shape[part] > 1] or [group[0]]
                    inner_count = math.prod(step.shape[part] for part in several[1:])
                    dims[several[0]] = _divided(op, source[dim], inner_count)
            return dims
        if isinstance(step, Collapse):
            # A merged dim follows the size of its outermost part; inner parts are fixed.
            for dim, group in enumerate(step.groups):
                several = [part for part in group if shape[part] > 1] or [group[0]]
                inner = next((part for part in several[1:] if part in source), None)
                if inner is not None:
                    size = f"of the run-time size '{source[inner].name}'"
                    raise error_at(op, f"dim {inner}, {size}, is not the outermost of the merged dims")
                if several[0] in source:
                    dims[dim] = source[several[0]].scaled(math.prod(shape[part] for part in several[1:]))
            return dims
        if not isinstance(step, Slice):
            raise error_at(op, "windows slide over a tensor whose size is known only at run time")
        kept = [dim for dim in range(len(shape)) if dim not in step.dropped]
        for dim, symbolic in source.items():
            if step.sizes[dim] == shape[dim] and dim in kept:
                dims[kept.index(dim)] = symbolic
                continue
            # A part of a symbolic dim must exist at every size.
            end = step.offsets[dim] + (step.sizes[dim] - 1) * step.steps[dim] + 1
            if end > symbolic.step:
                least = f"{symbolic.step}, the least run-time size '{symbolic.name}'"
                raise error_at(op, f"a slice to position {end} exceeds {least}")
            self._parts.add(op.results[0])
        return dims

    def _meet(self, op: ir.Operation, dims: SymbolicDims, dim: int, symbolic: SymbolicDim) -> None:
        """Record the size of a dim; ``CompileError`` if the dim already has another size."""
        if dims.setdefault(dim, symbolic) != symbolic:
            one, other = (
                f"{size.factor} times the run-time size '{size.name}'" for size in (dims[dim], symbolic)
            )
            raise error_at(op, f"dim {dim} follows {one} for one operand and {other} for another")


def _divided(op: ir.Operation, symbolic: SymbolicDim, inner: int) -> SymbolicDim:
    """Return the dim that counts pieces of ``inner`` elements of a symbolic dim."""
    divided = symbolic.divided(inner)
    if divided is None:
        raise error_at(op, f"a dim of the run-time size '{symbolic.name}' is split into pieces of {inner}")
    return divided


def _of_map(dims: SymbolicDims, map_: Sequence[int | None]) -> SymbolicDims:
    """Return the symbolic dims of a tensor, given the iteration's symbolic dims and the tensor's map."""
    return {position: dims[dim] for position, dim in enumerate(map_) if dim is not None and dim in dims}


def is_fill(value: ir.Value) -> bool:
    """Return whether a tensor is undefined or all its elements are equal: its parts are then interchangeable."""
    op = defining_op(value)
    if op is None or not isinstance(value.type, ir.RankedTensorType):
        return False
    if op.name == "arith.constant":
        attribute = op.attributes["value"]
        return isinstance(attribute, ir.DenseElementsAttr) and attribute.is_splat
    if op.name == "linalg.generic":
        body = {inner.operation.name for inner in op.regions[0].blocks[0].operations}
        if not body.isdisjoint(("linalg.index", "tensor.extract")):
            return False
        kinds = ir.ArrayAttr(op.attributes["iterator_types"])
        inputs = list(op.operands)[:-1]
        tensors = (operand for operand in inputs if isinstance(operand.type, ir.RankedTensorType))
        return all("parallel" in str(kind) for kind in kinds) and all(map(is_fill, tensors))
    return op.name in ("tensor.empty", "linalg.fill")
