"""Proof that a program computes the first part of the same program for larger tensors, so that padding is safe.

A model is imported at two sizes. If every tensor of the smaller program equals the first positions of that of the
larger one in each dim, whatever the others hold, then the larger one may run in place of the smaller one: its inputs
are padded, its results are cut. That is shown op by op, from the results back to the arguments, by rules such as

- an elementwise operation, a contraction: no dim of other size is reduced;
- a reshape: of the dims that become one, only the outermost has another size;
- a concatenation: only the last part has another size there.

Everything else must be the same in both: a model that divides by its number of rows, or takes the last of them, cannot
be padded.

Rows that pad are copies of the last one, so a lookup by the values of inputs stays in bounds for them. A lookup by
position need not, so a program that counts positions and looks up is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import torch

from spyre_mlir.dialects.structured import defining_op, element_of, maker_of, shape_of
from spyre_mlir.frontend.importer import Imported
from spyre_mlir.mlir import PassManager, indexing_maps, ir, location_of

_DYNAMIC = ir.ShapedType.get_dynamic_size()


def leading_slices(shape: Iterable[int]) -> tuple[slice, ...]:
    """Index of the first positions of each dim, for an array of at least this shape."""
    return tuple(slice(size) for size in shape)


class UnsafePadding(Exception):
    """A program that is not shown to be safe under padding: a clause that says why, and where."""

    def __init__(self, reason: str, location: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.location = location


class _ValuePair(NamedTuple):
    """A value of the smaller program, and the value of the larger one whose first positions should equal it."""

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


class _OpPair(NamedTuple):
    """Two corresponding operations of the programs."""

    small: ir.Operation
    large: ir.Operation

    @property
    def operands(self) -> list[_ValuePair]:
        """Corresponding operands."""
        return _pairs(self.small.operands, self.large.operands)

    @property
    def results(self) -> list[_ValuePair]:
        """Corresponding results."""
        return _pairs(self.small.results, self.large.results)

    @property
    def terminators(self) -> list[_OpPair]:
        """Terminators of the regions, which have one block each."""
        ends = ([region.blocks[0].operations[-1].operation for region in op.regions] for op in self)
        return [_OpPair(*pair) for pair in zip(*ends, strict=True)]

    def fail(self, reason: str) -> UnsafePadding:
        """Error at the location of the operation."""
        return UnsafePadding(reason, location_of(self.small.location))

    def same(self, *attributes: str) -> None:
        """Require attributes of equal value; all of them if none is named."""
        names = attributes or sorted({name for op in self for name in op.attributes})
        for name in names:
            values = [op.attributes[name] if name in op.attributes else None for op in self]
            if values[0] != values[1]:
                raise self.fail(f"'{self.small.name}' does something else at another size")

    def numbers(self, attribute: str) -> list[tuple[int, int]]:
        """Numbers of an attribute in both; operands in place of numbers are refused."""
        small, large = (list(ir.DenseI64ArrayAttr(op.attributes[attribute])) for op in self)
        if _DYNAMIC in (*small, *large):
            raise self.fail(f"'{self.small.name}' takes positions that are computed")
        return list(zip(small, large, strict=True))


def _pairs(small: Iterable[ir.Value], large: Iterable[ir.Value]) -> list[_ValuePair]:
    return [_ValuePair(*pair) for pair in zip(small, large, strict=True)]


def check_padding_safety(smaller: Imported, larger: Imported) -> None:
    """Raise ``UnsafePadding`` unless ``larger`` may run in place of ``smaller``; both are in one context."""
    names = [[argument.name for argument in imported.arguments] for imported in (smaller, larger)]
    if names[0] != names[1]:
        raise UnsafePadding("the model has other constants at another size")
    if smaller.module is None or larger.module is None:
        # Nothing is computed: the model returns views of its inputs.
        return
    modules = [_generalized(module) for module in (smaller.module, larger.module)]
    proof = _Proof(_OpPair(*map(_function, modules)))
    for number, (small, large) in enumerate(zip(smaller.arguments, larger.arguments, strict=True)):
        if small.tensor is not None and large.tensor is not None:
            proof.data[number] = small.tensor, large.tensor
    proof.run()


def _generalized(module: ir.Module) -> ir.Operation:
    """Copy of a module in which structured operations are generic."""
    copy = module.operation.clone().operation
    with module.context:
        PassManager.parse("builtin.module(func.func(linalg-generalize-named-ops))").run(copy)
    return copy


def _function(module: ir.Operation) -> ir.Operation:
    """The function of a module."""
    ops = [entry.operation for entry in module.regions[0].blocks[0].operations]
    return next(op for op in ops if op.name == "func.func")


class _Proof:
    """Walk over both functions, from their results back to their arguments."""

    def __init__(self, functions: _OpPair) -> None:
        self.functions = functions
        # Of arguments that are not inputs.
        self.data: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        self.seen: set[_ValuePair] = set()
        self.waiting: list[_ValuePair] = []
        # Their regions are assumed to have corresponding arguments.
        self.blocks: set[_OpPair] = set()
        self.counting: _OpPair | None = None
        self.looking_up: _OpPair | None = None

    def run(self) -> None:
        """Visit every pair of values that a result depends on, once."""
        self._wait_for_ends(self.functions)
        while self.waiting:
            pair = self.waiting.pop()
            if pair not in self.seen:
                self.seen.add(pair)
                _check_types(pair)
                self._visit(pair)
        # Each is safe alone: only a counted position may be outside of a table.
        if self.counting and self.looking_up:
            raise self.looking_up.fail("it may look up what padded positions do not have")

    def _wait_for_ends(self, ops: _OpPair) -> None:
        """Queue the terminators' operands of an operation's regions, whose arguments are assumed to correspond."""
        self.blocks.add(ops)
        for end in ops.terminators:
            if end.small.name != end.large.name or len(end.small.operands) != len(end.large.operands):
                raise ops.fail(f"'{ops.small.name}' gives something else at another size")
            end.same()
            self.waiting += end.operands

    def _visit(self, pair: _ValuePair) -> None:
        """Check the defining operations of a pair by the rule of their name, and queue their operands."""
        if any(defining_op(value) is None for value in pair):
            self._argument(pair)
            return
        ops = _OpPair(*map(maker_of, pair))
        if ops.small.name != ops.large.name or _number(pair.small) != _number(pair.large):
            raise ops.fail(f"'{ops.small.name}' is '{ops.large.name}' at another size")
        _check_form(ops)
        rule = _RULES.get(ops.small.name, _unchanged)
        rule(ops)
        self._note(ops)
        self._wait_for_ends(ops)
        self.waiting += ops.operands

    def _argument(self, pair: _ValuePair) -> None:
        """Check arguments of the function, or of a region of an operation that was visited before."""
        if not all(isinstance(value.owner, ir.Block) for value in pair):
            raise UnsafePadding("the model uses its inputs in another way at another size")
        small, large = (ir.BlockArgument(value) for value in pair)
        owners = _OpPair(*(argument.owner.owner.operation for argument in (small, large)))
        number = small.arg_number
        if owners not in self.blocks or number != large.arg_number:
            raise owners.fail("the model uses its inputs in another way at another size")
        if owners == self.functions and number in self.data:
            self._check_data(number, pair)

    def _check_data(self, number: int, pair: _ValuePair) -> None:
        """Require that a parameter or constant starts with the one of the smaller program."""
        small, large = self.data[number]
        if small.dtype != large.dtype or not _equal(small, large[leading_slices(small.shape)]):
            raise UnsafePadding("the model has other constants at another size")
        if pair.differing:
            self.counting = self.functions

    def _note(self, ops: _OpPair) -> None:
        """Record whether an operation looks up by position, or counts positions that are padded."""
        looks_up = ops.small.name == "tensor.extract"
        if looks_up:
            self.looking_up = ops
        for dim, pair in enumerate(ops.operands, start=-1):
            defining_ops = [defining_op(value) for value in pair]
            if any(op is None or op.name != "linalg.index" for op in defining_ops):
                continue
            count = _padded_count(_OpPair(*map(maker_of, pair)))
            # An index below the size of the table stays in bounds, padded or not.
            if count and not (looks_up and count <= shape_of(ops.large.operands[0])[dim]):
                self.counting = ops


def _check_types(pair: _ValuePair) -> None:
    """Require equal element types and ranks, and sizes that do not shrink."""
    small, large = pair
    fits = element_of(small) == element_of(large) and len(shape_of(small)) == len(shape_of(large))
    if not fits or any(one > other for one, other in pair.shapes):
        raise UnsafePadding("the model has tensors of another form at another size", _location(small))


def _check_form(ops: _OpPair) -> None:
    """Require equal numbers of operands, results and regions of one block."""
    counts = [(len(op.operands), len(op.results), len(op.regions)) for op in ops]
    if counts[0] != counts[1]:
        raise ops.fail(f"'{ops.small.name}' has other operands at another size")
    if any(len(region.blocks) != 1 for op in ops for region in op.regions):
        raise ops.fail(f"the control flow of '{ops.small.name}' is not looked into")
    for pair in (*ops.operands, *ops.results):
        _check_types(pair)


def _location(value: ir.Value) -> str:
    op = defining_op(value)
    return "" if op is None else location_of(op.location)


def _number(value: ir.Value) -> int:
    return ir.OpResult(value).result_number


def _equal(one: torch.Tensor, other: torch.Tensor) -> bool:
    # Parameters of both imports are the same tensors: this saves comparing weights.
    is_itself = one.data_ptr() == other.data_ptr() and one.stride() == other.stride()
    return is_itself or torch.equal(one, other)


# -- rules --------------------------------------------------------------------------------------------
#
# A rule raises unless equal first positions of the operands imply those of the results.


def _unchanged(ops: _OpPair) -> None:
    """Require the same operation on tensors of the same shape."""
    ops.same()
    if any(pair.differing for pair in (*ops.operands, *ops.results)):
        raise ops.fail(f"'{ops.small.name}' is not known to keep its elements apart")
    # Regions of control flow take tensors as block arguments, which must not grow either.
    types = [
        [argument.type for region in op.regions for argument in region.blocks[0].arguments] for op in ops
    ]
    if types[0] != types[1]:
        raise ops.fail(f"'{ops.small.name}' has tensors of another form at another size")


def _anything(ops: _OpPair) -> None:
    """Accept: the op reads nothing, or single elements by their position."""


def _elementwise(ops: _OpPair) -> None:
    ops.same()


def _constant(ops: _OpPair) -> None:
    values = [op.attributes["value"] for op in ops]
    # A splat of another shape has the same numbers.
    if all(isinstance(value, ir.DenseElementsAttr) and value.is_splat for value in values):
        values = [ir.DenseElementsAttr(value).get_splat_value() for value in values]
    if values[0] != values[1]:
        raise ops.fail("the model has other numbers at another size")


def _generic(ops: _OpPair) -> None:
    """Require that corresponding iterations access the same positions, and that no reduction is longer."""
    ops.same("iterator_types", "operandSegmentSizes")
    extents = _extents(ops.small), _extents(ops.large)
    _check_maps(ops, extents[0])
    kinds = [str(kind) for kind in ir.ArrayAttr(ops.small.attributes["iterator_types"])]
    for dim, kind in enumerate(kinds):
        if extents[0].get(dim) != extents[1].get(dim) and "parallel" not in kind:
            raise ops.fail("an operation combines its elements")


def _check_maps(ops: _OpPair, extents: Mapping[int, int]) -> None:
    """Require equal maps, where a dim of size 1 and the position 0 count as equal."""
    maps = [indexing_maps(op) for op in ops]
    for small, large in zip(*maps, strict=True):
        if small.n_dims != large.n_dims or len(small.results) != len(large.results):
            raise ops.fail("an operation has another form at another size")
        for one, other in zip(small.results, large.results, strict=True):
            if one != other and not (_is_first(one, extents) and _is_first(other, extents)):
                raise ops.fail("an operation reads other elements at another size")


def _is_first(result: ir.AffineExpr, extents: Mapping[int, int]) -> bool:
    """Return whether a result of a map is always 0."""
    if isinstance(result, ir.AffineConstantExpr):
        return result.value == 0
    return isinstance(result, ir.AffineDimExpr) and extents.get(result.position) == 1


def _extents(op: ir.Operation) -> dict[int, int]:
    """Size of each iteration dim that some operand has as one of its dims."""
    extents = {}
    for operand, map_ in zip(op.operands, indexing_maps(op), strict=True):
        for result, size in zip(map_.results, shape_of(operand), strict=True):
            if isinstance(result, ir.AffineDimExpr):
                extents[result.position] = size
    return extents


def _index(ops: _OpPair) -> None:
    ops.same("dim")


def _padded_count(ops: _OpPair) -> int:
    """Size of the dim that a ``linalg.index`` counts in the larger program, if it is padded; 0 otherwise."""
    dim = ir.IntegerAttr(ops.small.attributes["dim"]).value
    small, large = (_extents(_structured_around(op))[dim] for op in ops)
    return large if small != large else 0


def _structured_around(op: ir.Operation) -> ir.Operation:
    around = op.parent.operation
    return around if around.name == "linalg.generic" else _structured_around(around)


def _reshape(ops: _OpPair) -> None:
    """Require that only the outermost of dims that are merged or split is padded: the row-major order is then kept."""
    ops.same("reassociation")
    source, result = ops.operands[0], ops.results[0]
    whole = result if ops.small.name == "tensor.expand_shape" else source
    groups = ops.small.attributes["reassociation"]
    for number, group in enumerate(groups):
        dims = [ir.IntegerAttr(dim).value for dim in group]
        padded = [index for index, dim in enumerate(dims) if dim in whole.differing]
        outer = [whole.shapes[dim][0] for dim in dims[: padded[0]]] if padded else []
        part = source if whole is result else result
        if len(padded) > 1 or any(size != 1 for size in outer) or (number in part.differing) != bool(padded):
            raise ops.fail("a reshape puts it inside of another dim")


def _slice(ops: _OpPair) -> None:
    for attribute in ("static_offsets", "static_strides"):
        if any(small != large for small, large in ops.numbers(attribute)):
            raise ops.fail("a slice takes other positions at another size")


def _insertion(ops: _OpPair) -> None:
    """Require that a source that is larger in the larger program reaches to the end of the destination."""
    _slice(ops)
    whole = ops.operands[1]
    places = zip(ops.numbers("static_offsets"), ops.numbers("static_sizes"), whole.shapes, strict=True)
    for (offset, _), (small, large), (end, _) in places:
        if small != large and offset + small != end:
            raise ops.fail("an insertion covers other positions at another size")


def _concatenation(ops: _OpPair) -> None:
    ops.same("dim")
    dim = ir.IntegerAttr(ops.small.attributes["dim"]).value
    if any(dim in pair.differing for pair in ops.operands[:-1]):
        raise ops.fail("a concatenation puts something behind it")


def _pad(ops: _OpPair) -> None:
    padded = ops.operands[0].differing
    low, high = ops.numbers("static_low"), ops.numbers("static_high")
    if any(one != other for one, other in (*low, *high)) or any(high[dim] != (0, 0) for dim in padded):
        raise ops.fail("a padding puts something behind it")


def _along_one_dim(ops: _OpPair) -> None:
    """Require that the dim along which an op scans or sorts is not padded."""
    ops.same()
    if ir.IntegerAttr(ops.small.attributes["dimension"]).value in ops.operands[0].differing:
        raise ops.fail("an operation combines its elements")


_RULES: dict[str, Callable[[_OpPair], Any]] = {
    "arith.constant": _constant,
    "linalg.generic": _generic,
    "linalg.index": _index,
    "stick.pin": _elementwise,
    "stick.restickify": _elementwise,
    "tensor.cast": _elementwise,
    "tensor.collapse_shape": _reshape,
    "tensor.concat": _concatenation,
    "tensor.empty": _anything,
    "tensor.expand_shape": _reshape,
    "tensor.extract": _anything,
    "tensor.extract_slice": _slice,
    "tensor.insert_slice": _insertion,
    "tensor.pad": _pad,
    "tm_tensor.scan": _along_one_dim,
    "tm_tensor.sort": _along_one_dim,
}
