# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Writes weights of exponentials before a matmul as a softmax and a factor per row, which follows the matmul."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar

from spyre_mlir.analysis.attention_pattern import FINITE_LOW, producer_of, splat_of
from spyre_mlir.analysis.tile_nests import in_format
from spyre_mlir.dialects import sdsc
from spyre_mlir.dialects.hint_attributes import hints_in
from spyre_mlir.dialects.structured import (
    Map,
    Structured,
    defining_op,
    device_op,
    element_of,
    maker_of,
    rebuilt,
    shape_of,
    structured,
    use_empty,
)
from spyre_mlir.dialects.targets import target_of
from spyre_mlir.mlir import ir
from spyre_mlir.passes.base import Pass
from spyre_mlir.records import dataclass
from spyre_mlir.rewriting.outlining import default_bytes, read_by
from spyre_mlir.rewriting.tensor_builders import collapsed, constant, element_type, expanded
from spyre_mlir.target.ops import DEVICE_OPS, Kind

_MAXIMUM, _MATMUL = "max", "batchmatmul"


@dataclass(frozen=True)
class FactorSoftmax(Pass):
    """Write exponentials of scores that are shifted and divided per row as a softmax times a factor per row.

    With m = max(s) over the keys, l = sum(exp(s - m)), and a shift c and a divisor t that are equal for all keys:

        exp(s - c)            = exp(m - c) * exp(s - m)
        sum(exp(s - c))       = exp(m - c) * l
        max(s - c)            = m - c
        (exp(s - c) / t) @ v  = (exp(m - c) * l / t) * (softmax(s) @ v)

    So a softmax with more columns than the matmul reads (attention sinks), with a divisor that adds a constant, or with
    another shift than its maximum becomes the form for which ``online-softmax`` searches for tiles. Shifts may follow
    each other. Scores that fit in half of the scratchpads stay as they are, because they need no tiles.

    A row whose scores are all -infinity has the weight 0, if its shift is finite: lower scores become a finite number.

    Before, with ``%t`` from ``%sink`` and the sum:
        %c = maximum(%m, %sink); %e = exp(%s - %c); %l = sum(%e); %t = %l + exp(%sink - %c); %o = (%e / %t) @ %v
    After:
        %e = exp(%s - %m); %l = sum(%e); %p = (%e / %l) @ %v
        %c = maximum(%m, %sink); %f = exp(%m - %c) * %l; %t = %f + exp(%sink - %c); %o = %p * (%f / %t)
    """

    name: ClassVar[str] = "factor-softmax"

    def run_on(self, func: ir.Operation) -> None:
        for op in [op_view.operation for op_view in func.regions[0].blocks[0].operations]:
            weights = None if sdsc.opcode_of(op) != "exp" else _Weights.of(op)
            if weights is not None:
                weights.rewrite()
                self.remark(op, "rewrite", "a softmax, with a factor per row after the matmul")


@dataclass(frozen=True)
class _Product:
    """A matmul of divided exponentials: the division, the views of its result, and the operand of the matmul."""

    division: Structured
    views: tuple[ir.Operation, ...]
    matmul: Structured
    side: int


@dataclass(frozen=True)
class _Weights:
    """Exponentials of shifted scores, and the operations that read them, up to matmuls.

    Attributes:
        exp: The exponential.
        shifts: The subtractions between the scores and the exponential, in order.
        maximum: The maximum of the unshifted scores over the keys, the last dim.
        maxima: The maxima of shifted scores over the keys, with the number of shifts.
        sums: The sums of the exponentials over the keys.
        products: The matmuls, in block order.
    """

    exp: Structured
    shifts: tuple[Structured, ...]
    maximum: Structured
    maxima: tuple[tuple[Structured, int], ...]
    sums: tuple[Structured, ...]
    products: tuple[_Product, ...]

    @classmethod
    def of(cls, op: ir.Operation) -> _Weights | None:
        """Return the weights of an exponential; None if it has another form, or is a plain softmax already."""
        exp, target = structured(op), target_of(op)
        # Hints choose the loops of the operations that the program has.
        if exp is None or element_of(exp.result) != "f16" or hints_in(op.location) is not None:
            return None
        size = default_bytes(target, shape_of(exp.result), element_of(exp.result)) // target.cores
        whole = tuple(range(len(exp.extents)))
        rows = whole[:-1]
        if size <= target.usable_lx_bytes // 2 or exp.maps != (whole, whole):
            return None
        shifts, value = list[Structured](), exp.inputs[0]
        while (shift := _made_by(value, "sub")) is not None and whole == shift.maps[0] == shift.maps[-1]:
            if whole[-1] in shift.maps[1]:
                break  # the other operand differs between keys, so the difference is the score
            shifts.insert(0, shift)
            value = shift.inputs[0]
        maxima = [
            (reader, count)
            for count, scores in enumerate([value, *(shift.result for shift in shifts)])
            for reader in _readers(scores)
            if reader.opcode == _MAXIMUM and reader.maps == (whole, rows)
        ]
        if not maxima:
            return None
        # Shifts before the first maximum belong to the scores.
        first = maxima[0][1]
        maxima, shifts = [(reader, count - first) for reader, count in maxima], shifts[first:]
        if not shifts:
            return None
        value = shifts[0].inputs[0]
        sums, products = list[Structured](), list[_Product]()
        for reader in _readers_through_casts(exp.result):
            if reader is not None and reader.opcode == "sum" and reader.maps == (whole, rows):
                sums.append(reader)
                continue
            if (
                reader is None
                or reader.opcode != "realdiv"
                or reader.maps[0] != whole
                or whole[-1] in reader.maps[1]
            ):
                return None
            found = list(_products(reader, reader.result, ()))
            if None in found:
                return None
            products += [product for product in found if product is not None]
        maximum = maxima[0][0]
        divisors = {product.division.inputs[1] for product in products}
        is_plain = len(shifts) == len(sums) == 1 and shifts[0].inputs[1] == maximum.result
        if not products or (is_plain and divisors == {sums[0].result}):
            return None
        order = {op.operation: index for index, op in enumerate(op.block.operations)}
        products.sort(key=lambda product: order[product.matmul.op])
        changed = [*(reader.op for reader, _ in maxima), *(shift.op for shift in shifts)]
        inside = set(_forward(changed, products[0].matmul.op))
        made = {maximum.result, *(result for each in inside for result in each.results)}
        matmuls = {product.matmul.op for product in products}
        read = [operand for product in products for operand in product.matmul.inputs if operand in made]
        is_read = any(use.owner.operation not in inside | matmuls for each in made for use in each.uses)
        # The matmuls precede the statistics, and a program that reads them elsewhere would see the finite number.
        if len(read) > len(products) or (is_read and _may_be_infinite(value)):
            return None
        return cls(exp, tuple(shifts), maximum, tuple(maxima[1:]), tuple(sums), tuple(products))

    def rewrite(self) -> None:
        """Write the softmax and its matmuls, and after them the factors; erase unused operations."""
        first, dims = self.products[0].matmul.op, tuple(range(len(self.exp.extents)))
        rows, shape, element = dims[:-1], self.exp.extents, element_of(self.exp.result)
        changed = [
            self.maximum.op,
            *(reader.op for reader, _ in self.maxima),
            *(each.op for each in self.shifts),
        ]
        # The new softmax is written before the first matmul, so these operations and their readers move after it.
        depends, last = _forward(changed, first), self.products[-1].matmul.op
        replaced, scores = [*_forward(changed, last), last], self.shifts[0].inputs[0]
        with ir.InsertionPoint(first), self.exp.op.location as location:

            def build(
                opcode: str, inputs: Sequence[ir.Value], *maps: Map, reduced: Sequence[int] = ()
            ) -> ir.Value:
                return device_op(opcode, inputs, maps, shape, element, location=location, reduced=reduced)

            if _may_be_infinite(scores):
                # Without it the maximum of a row that a mask hides would be -infinity, and the difference NaN.
                number = ir.FloatAttr.get(ir.F16Type.get(), FINITE_LOW)
                low = constant(
                    ir.DenseElementsAttr.get_splat(ir.RankedTensorType.get([], number.type), number)
                )
                scores = build("maximum", [scores, low], dims, ())
            maximum = rebuilt(self.maximum, [scores])
            exp = build("exp", [build("sub", [scores, maximum], dims, rows)], dims)
            total = build("sum", [exp], dims, reduced=dims[-1:])
            maker_of(total).attributes[sdsc.DEMOTED] = ir.UnitAttr.get(first.context)
            softmax = build("realdiv", [exp, total], dims, rows)
        results = [self._product(softmax, product) for product in self.products]
        # The factors are needed after the matmul. Between the softmax and the matmul they would separate the loops.
        for op in depends:
            op.move_before(first)
        self.maximum.result.replace_all_uses_with(maximum)
        shifted = [maximum]
        for shift in self.shifts:
            with ir.InsertionPoint(shift.op):
                shifted.append(_on_rows(shift, [shifted[-1], shift.inputs[1]]))
        with ir.InsertionPoint(self.exp.op):
            factor = _on_rows(self.exp, [shifted[-1]])
        for reduction, count in self.maxima:
            reduction.result.replace_all_uses_with(shifted[count])
        for reduction in self.sums:
            with ir.InsertionPoint(reduction.op):
                reduction.result.replace_all_uses_with(_times(factor, total, element_of(reduction.result)))
        for product, result in zip(self.products, results, strict=True):
            self._scale(product, result, factor, total)
        for op in reversed(replaced):
            if all(map(use_empty, op.results)):
                op.erase()

    def _product(self, softmax: ir.Value, product: _Product) -> ir.Value:
        """Write the matmul of the softmax, without casts between the two."""
        with ir.InsertionPoint(product.matmul.op):
            value = softmax
            for view in product.views:
                copy = view.clone().operation
                copy.operands[0] = value
                copy.results[0].set_type(
                    ir.RankedTensorType.get(shape_of(view.results[0]), element_type(value))
                )
                value = copy.results[0]
            inputs = list(product.matmul.inputs)
            inputs[product.side] = value
            return rebuilt(product.matmul, inputs)

    def _scale(self, product: _Product, result: ir.Value, factor: ir.Value, total: ir.Value) -> None:
        """Multiply the rows of a matmul by factor * total / divisor, and replace the original matmul."""
        division, matmul = product.division, product.matmul
        divisor = division.inputs[1]
        with ir.InsertionPoint(division.op):
            scale = _on_rows(division, [_times(factor, total, element_of(divisor)), divisor])
        with ir.InsertionPoint(matmul.op), matmul.op.location as location:
            scale = in_format(scale, element_of(result))
            dims = [dim for dim in matmul.maps[product.side] if dim is not None and dim not in matmul.reduced]
            columns = matmul.maps[-1]
            scale = reshaped(scale, [matmul.extents[dim] for dim in dims])
            maps = [tuple(range(len(columns))), tuple(columns.index(dim) for dim in dims)]
            scaled = device_op(
                "mul", [result, scale], maps, shape_of(result), element_of(result), location=location
            )
        matmul.result.replace_all_uses_with(scaled)


def _may_be_infinite(scores: ir.Value) -> bool:
    """Return whether an operand other than the matmul's result, such as a mask, may make scores -infinity."""
    while (op := producer_of(scores)) is not None and (generic := structured(op)) is not None:
        if generic.opcode == _MATMUL:
            return False
        tensors = [value for value in generic.inputs if splat_of(value) is None]
        if len(tensors) != 1:
            return True
        scores = tensors[0]
    return True


def _made_by(value: ir.Value, opcode: str) -> Structured | None:
    op = defining_op(value)
    return structured(op) if op is not None and sdsc.opcode_of(op) == opcode else None


def _readers(value: ir.Value) -> list[Structured]:
    """Return the device operations that read a value directly."""
    views = (structured(use.owner.operation) for use in value.uses)
    return [generic for generic in views if generic is not None and generic.opcode]


def _readers_through_casts(value: ir.Value) -> Iterator[Structured | None]:
    """Yield the readers of a value and of its casts; None for a reader that is not a device operation."""
    for use in value.uses:
        generic = structured(use.owner.operation)
        if generic is not None and generic.opcode and DEVICE_OPS[generic.opcode].kind is Kind.CAST:
            yield from _readers_through_casts(generic.result)
        else:
            yield generic if generic is not None and generic.opcode else None


def _products(
    division: Structured, value: ir.Value, views: tuple[ir.Operation, ...]
) -> Iterator[_Product | None]:
    """Yield the matmuls that contract the keys of a division's result; None for another reader."""
    keys = division.extents[-1]
    for use in value.uses:
        user = use.owner.operation
        generic = structured(user)
        if user.name in ("tensor.expand_shape", "tensor.collapse_shape"):
            is_kept = shape_of(user.results[0])[-1] == keys
            yield from _products(division, user.results[0], (*views, user)) if is_kept else iter([None])
        elif generic is None or not generic.opcode:
            yield None
        elif DEVICE_OPS[generic.opcode].kind is Kind.CAST:
            yield from _products(division, generic.result, views)
        else:
            side = use.operand_number
            is_matmul = generic.opcode == _MATMUL and generic.maps[side][-1:] == generic.reduced
            yield _Product(division, views, generic, side) if is_matmul else None


def _forward(changed: Sequence[ir.Operation], end: ir.Operation) -> list[ir.Operation]:
    """Return some operations and the operations that depend on them, before ``end`` in its block, in block order."""
    values, found = set[ir.Value](), list[ir.Operation]()
    for op in (op_view.operation for op_view in end.block.operations):
        if op == end:
            return found
        if op in changed or any(operand in values for operand in read_by(op)):
            values.update(op.results)
            found.append(op)
    return found


def _on_rows(generic: Structured, inputs: Sequence[ir.Value]) -> ir.Value:
    """Build an elementwise operation without its last dim, the keys."""
    rows = tuple(range(len(generic.extents) - 1))
    maps = [rows, *generic.maps[1:-1]]
    element = element_of(inputs[0])
    location = generic.op.location
    return device_op(generic.opcode, inputs, maps, generic.extents[:-1], element, location=location)


def _times(factor: ir.Value, total: ir.Value, element: str) -> ir.Value:
    """Build the product of two tensors of one shape in another element type."""
    inputs, shape = [in_format(factor, element), in_format(total, element)], shape_of(factor)
    dims = tuple(range(len(shape)))
    return device_op("mul", inputs, [dims, dims], shape, element, location=maker_of(factor).location)


def reshaped(value: ir.Value, shape: Sequence[int]) -> ir.Value:
    """Build a view of a tensor with another shape of as many elements."""
    if list(shape) == list(shape_of(value)):
        return value
    flat = collapsed(value, [range(len(shape_of(value)))])
    return expanded(flat, [range(len(shape))], shape)
