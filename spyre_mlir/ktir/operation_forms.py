# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The forms of operations in KTIR, by kind: elementwise, reductions, products, windows, relayouts and gathers."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence

from spyre_mlir.bundle.model import WindowDim
from spyre_mlir.dialects import ktdp
from spyre_mlir.dialects.structured import element_of, shape_of
from spyre_mlir.errors import CompileError
from spyre_mlir.ktir.memory_tiles import SCRATCHPADS, dense_strides
from spyre_mlir.ktir.operand_tiles import TileDigit, refined, shape_of_digits
from spyre_mlir.ktir.operation_lowering import OperationLowering, Tensor
from spyre_mlir.ktir.tensor_builder import TensorBuilder
from spyre_mlir.mlir import ir
from spyre_mlir.records import dataclass
from spyre_mlir.rewriting.tensor_builders import inserted
from spyre_mlir.target.expressions import SCALARS, Expression, applications_of
from spyre_mlir.target.formats import constant_value
from spyre_mlir.target.ops import Kind, scalar_expression

Digits = Sequence[TileDigit]


def elementwise(lowering: OperationLowering) -> None:
    """Build an operation on the elements at each position; this includes copies and restickifies."""
    if lowering.steps:
        lowering.loop(lambda part, _: elementwise(part))
        return
    digits = lowering.digits(len(lowering.tiles) - 1)
    inputs = [lowering.arranged(lowering.tensor(k), digits) for k in range(lowering.op.arity)]
    lowering.store(Tensor(computed(lowering, inputs), digits))


def computed(lowering: OperationLowering, inputs: Sequence[ir.Value], is_wide: bool = False) -> ir.Value:
    """Build the expression of the operation on tensors of one shape, in f32 if its intermediate results would round."""
    op, build = lowering.op, lowering.build
    if op.expression is None or isinstance(op.expression, str):
        return build.cast(inputs[0], "f32") if is_wide else inputs[0]
    expression = scalar_expression(op.expression)
    is_wide = is_wide or rounds_between(expression)
    constants = {c.name: constant_value(c.bits, c.data_format) for c in lowering.design.constants}
    element = "f32" if is_wide and element_of(inputs[0]) == "f16" else element_of(inputs[0])
    names = {name: constants[name] for name in op.constants}
    # ktir-cpu charges a tensor that is used twice until the function ends, but tensors of a body only with the body.
    if element != "i32" and (is_repeated(expression) or len(set(inputs)) < len(inputs)):
        return body_of_expression(
            build, dict(zip(op.operands, inputs, strict=True)), names, expression, element
        )
    values = [value if element_of(value) != "f16" else build.cast(value, element) for value in inputs]
    known: dict[Expression, ir.Value] = {
        **dict(zip(op.operands, values, strict=True)),
        **{name: build.filled(shape_of(values[0]), element, number) for name, number in names.items()},
    }
    return TensorExpressions(build, known, shape_of(values[0])).value(expression)


def reduction(lowering: OperationLowering) -> None:
    """Build a reduction: first over the data of each core, then over the cores that share a result."""
    if not lowering.steps:
        _store_reduced(lowering, _reduced(lowering))
        return
    if lowering.steps[0].digit.label not in lowering.reduced:
        lowering.loop(lambda part, _: reduction(part))
        return
    element = "f32" if _is_sum(lowering) else lowering.elements[0]

    def body(part: OperationLowering, before: ir.Value | None) -> ir.Value:
        assert before is not None
        value = part.build.cast(_reduced(part), element)
        return part.build.op(_combine(part), before.type, before, value)

    total = lowering.build.filled(shape_of_digits(_kept(lowering)), element, lowering.neutral)
    _store_reduced(lowering, lowering.loop(body, total))


def _combine(lowering: OperationLowering) -> str:
    assert lowering.op.combine is not None
    return SCALARS[lowering.op.combine].op


def _is_sum(lowering: OperationLowering) -> bool:
    return lowering.op.combine in ("add", "mul")


def _kept(lowering: OperationLowering) -> tuple[TileDigit, ...]:
    return tuple(digit for digit in lowering.digits(0) if digit.label not in lowering.reduced)


def _reduced(lowering: OperationLowering) -> ir.Value:
    """Build the reduction of this core's data."""
    source = lowering.tensor(0)
    value = computed(lowering, [source.value], is_wide=_is_sum(lowering))
    dims = [dim for dim, digit in enumerate(source.digits) if digit.label in lowering.reduced]
    value = lowering.build.reduced(value, dims, _combine(lowering), lowering.neutral)
    return lowering.build.reshaped(value, shape_of_digits(_kept(lowering)))


def _store_reduced(lowering: OperationLowering, value: ir.Value | None) -> None:
    assert value is not None
    value = _of_groups(lowering, value, _combine(lowering), lowering.neutral)
    lowering.store(Tensor(value, _kept(lowering)))


def _of_groups(lowering: OperationLowering, value: ir.Value, combine: str, neutral: float) -> ir.Value:
    """Build the combination of partial results, if cores share a result."""
    groups = _groups(lowering)
    if len(groups[0]) == 1:
        return value
    identity = lowering.build.filled(shape_of(value), element_of(value), neutral)
    return lowering.state.cores.combined(value, identity, combine, groups)


def _groups(lowering: OperationLowering) -> list[list[int]]:
    """Return the groups of cores that share a result, each by increasing slice of the reduced dims."""
    design, reduced = lowering.design, lowering.reduced
    groups: dict[tuple[int, ...], list[int]] = {}
    for core, slices in enumerate(design.core_slices):
        key = tuple(index for label, index in slices.items() if label not in reduced)
        groups.setdefault(key, []).append(core)
    return list(groups.values())


# -- products -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ProductDigits:
    """The digits of a batched matrix product: the digits of batches, rows, the contracted dim, and columns."""

    batch: tuple[TileDigit, ...]
    rows: tuple[TileDigit, ...]
    inner: tuple[TileDigit, ...]
    columns: tuple[TileDigit, ...]

    @classmethod
    def of(cls, lowering: OperationLowering, left: Digits, right: Digits) -> ProductDigits:
        """Return the digits of a product of two operands with these digits."""
        labels = [{digit.label for digit in digits} for digits in (left, right)]
        reduced = lowering.reduced
        if (labels[0] ^ labels[1]) & reduced:
            raise CompileError(
                f"'{lowering.design.opcode}' contracts a dim that is missing from one of its operands."
            )
        return cls(
            _digits(left, labels[0] & labels[1] - reduced),
            _digits(left, labels[0] - labels[1]),
            _digits(left, labels[0] & reduced),
            _digits(right, labels[1] - labels[0]),
        )

    @property
    def result(self) -> tuple[TileDigit, ...]:
        """The digits of the result."""
        return (*self.batch, *self.rows, *self.columns)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the result as matrices."""
        sizes = [math.prod(shape_of_digits(group)) for group in (self.batch, self.rows, self.columns)]
        return tuple(sizes if self.batch else sizes[1:])

    def multiplied(self, lowering: OperationLowering, left: Tensor, right: Tensor, out: ir.Value) -> ir.Value:
        """Build ``out``, of the shape of the result, plus the product."""
        lhs = _matrices(lowering, left, self.batch, self.rows, self.inner)
        rhs = _matrices(lowering, right, self.batch, self.inner, self.columns)
        return lowering.build.matmul(lhs, rhs, out)


def product(lowering: OperationLowering) -> None:
    """Build a batched matrix product, over the part of the contracted dims that a core has."""
    if not lowering.steps:
        store_product(lowering, *_multiplied(lowering))
        return
    if lowering.steps[0].digit.label not in lowering.reduced:
        lowering.loop(lambda part, _: product(part))
        return
    digits = ProductDigits.of(lowering, lowering.digits(0), lowering.digits(1))
    total = lowering.build.filled(digits.shape, "f32", 0)
    store_product(lowering, digits, lowering.loop(lambda part, out: _multiplied(part, out)[1], total))


def _multiplied(lowering: OperationLowering, out: ir.Value | None = None) -> tuple[ProductDigits, ir.Value]:
    """Build the product of this core's data, plus ``out``."""
    left, right = lowering.tensor(0), lowering.tensor(1)
    digits = ProductDigits.of(lowering, left.digits, right.digits)
    if out is None:
        is_split = len(_groups(lowering)[0]) > 1
        out = lowering.build.filled(digits.shape, "f32" if is_split else element_of(left.value), 0)
    return digits, digits.multiplied(lowering, left, right, out)


def store_product(lowering: OperationLowering, digits: ProductDigits, value: ir.Value | None) -> None:
    """Store a product, or the sum of the products of the cores that share it."""
    assert value is not None
    value = _of_groups(lowering, value, "arith.addf", 0.0)
    lowering.store(Tensor(lowering.build.reshaped(value, shape_of_digits(digits.result)), digits.result))


def _digits(digits: Digits, labels: set[str]) -> tuple[TileDigit, ...]:
    """Return the digits of some labels, grouped by label."""
    found = [digit for digit in digits if digit.label in labels]
    order = list(dict.fromkeys(digit.label for digit in found))
    return tuple(sorted(found, key=lambda digit: (order.index(digit.label), -digit.weight)))


def _matrices(lowering: OperationLowering, tensor: Tensor, *groups: tuple[TileDigit, ...]) -> ir.Value:
    """Return a tensor as matrices, with a dim for each group of digits; an empty group of batches has no dim."""
    batch, rows, columns = groups
    value = lowering.arranged(tensor, (*batch, *rows, *columns))
    sides = [math.prod(shape_of_digits(group)) for group in (rows, columns)]
    lead = [math.prod(shape_of_digits(batch))] if batch else []
    return lowering.build.reshaped(value, (*lead, *sides))


# Expressions of the table of device operations as ops on whole tensors.

#: Functions whose result is exact or one of their operands: they do not need a wider type.
_EXACT = frozenset(("maximum", "minimum", "where3", "abs", "neg", "floor"))
_NOT_EQUAL = SCALARS["notequal"].predicate
#: The largest float32 below the largest int32.
_LARGEST = 2147483520.0


def rounds_between(expression: Expression) -> bool:
    """Return whether an expression has several steps that round, which the device computes in a wider type."""
    names = [application[0] for application in applications_of(expression)]
    rounding = [name for name in names if name not in _EXACT and SCALARS[name].predicate is None]
    return len(rounding) > 1


def is_repeated(expression: Expression) -> bool:
    """Return whether an expression contains a name or a subexpression twice."""
    parts = Counter(_parts(expression))
    return any(count > 1 for part, count in parts.items() if not isinstance(part, float | int))


def _parts(expression: Expression) -> Iterator[Expression]:
    yield expression
    if isinstance(expression, tuple):
        for argument in expression[1:]:
            yield from _parts(argument)


class TensorExpressions:
    """Builder of the expressions of one operation; ``values`` are the values of expressions that are already built.

    ``shape`` is the shape of the operation's tensors, None for the numbers of a body.
    """

    def __init__(
        self, build: TensorBuilder, values: Mapping[Expression, ir.Value], shape: Sequence[int] | None
    ) -> None:
        self.build, self.shape = build, shape
        self.values: dict[Expression, ir.Value] = dict(values)
        type_ = next(iter(values.values())).type
        self.element = str(type_ if shape is None else ir.RankedTensorType(type_).element_type)

    def value(self, expression: Expression) -> ir.Value:
        """Return the tensor that an expression computes."""
        if expression not in self.values:
            self.values[expression] = self._built(expression)
        return self.values[expression]

    def _built(self, expression: Expression) -> ir.Value:
        if not isinstance(expression, tuple):
            if isinstance(expression, str):
                raise CompileError(f"The operation has no value for '{expression}'.")
            if self.shape is None:
                return self.build.scalar(expression, self.element)
            return self.build.filled(self.shape, self.element, expression)
        function, *arguments = expression
        if function == "where3":
            chosen, *others = arguments
            return self._select(self._truth(chosen), *map(self.value, others))
        if SCALARS[function].predicate is not None:
            numbers = (self.value(number) for number in (1.0, 0.0))
            return self._select(self._truth(expression), *numbers)
        operands = [self.value(argument) for argument in arguments]
        cast = _CASTS.get(function)
        if cast is not None:
            return cast(self.build, operands[0])
        scalar = SCALARS[function]
        name = scalar.integer_op if self.element == "i32" else scalar.op
        if not name:
            raise CompileError(f"'{function}' of integers is not an operation of KTIR.")
        return self.build.op(name, operands[0].type, *operands)

    def _truth(self, expression: Expression) -> ir.Value:
        predicate = SCALARS[expression[0]].predicate if isinstance(expression, tuple) else None
        if isinstance(expression, tuple) and predicate is not None:
            return self._compare(predicate, *map(self.value, expression[1:]))
        return self._compare(_NOT_EQUAL or 0, self.value(expression), self.value(0.0))

    def _compare(self, predicate: int, lhs: ir.Value, rhs: ir.Value) -> ir.Value:
        type_ = ir.Type.parse("i1") if self.shape is None else self.build.type(self.shape, "i1")
        return self.build.op(
            "arith.cmpf", type_, lhs, rhs, predicate=ir.IntegerAttr.get(self.build.i64, predicate)
        )

    def _select(self, truth: ir.Value, chosen: ir.Value, other: ir.Value) -> ir.Value:
        return self.build.op("arith.select", chosen.type, truth, chosen, other)


def body_of_expression(
    build: TensorBuilder,
    inputs: Mapping[str, ir.Value],
    constants: Mapping[str, float],
    expression: Expression,
    element: str,
) -> ir.Value:
    """Build an expression as the body of one ``linalg.generic``, in numbers of an element type.

    The constants are tensors without dims: ktir-cpu rounds numbers of a body to f16.
    """
    tensors = list(dict.fromkeys(inputs.values()))
    numbers = [*dict.fromkeys([*constants.values(), *_numbers(expression)])]
    scalars = [build.filled((), element, number) for number in numbers]
    type_ = ir.Type.parse(element)

    def body(args: Sequence[ir.Value], _: Callable[[int], ir.Value]) -> ir.Value:
        wide = [build.widened(arg, type_) for arg in args[: len(tensors)]]
        of_tensor = dict(zip(tensors, wide, strict=True))
        values: dict[Expression, ir.Value] = {name: of_tensor[value] for name, value in inputs.items()}
        of_number = dict(zip(numbers, args[len(tensors) :], strict=False))
        values |= {name: of_number[number] for name, number in constants.items()}
        values |= of_number
        return TensorExpressions(build, values, None).value(expression)

    out = build.empty(shape_of(tensors[0]), element)
    return build.generic([*tensors, *scalars], out, body)


def _numbers(expression: Expression) -> Iterator[float]:
    """Yield the numbers of an expression, including the numbers of its truth values."""
    if not isinstance(expression, tuple):
        if not isinstance(expression, str):
            yield float(expression)
        return
    if expression[0] == "where3":
        yield 0.0
    elif SCALARS[expression[0]].predicate is not None:
        yield from (1.0, 0.0)
    for argument in expression[1:]:
        yield from _numbers(argument)


def _to_float(build: TensorBuilder, value: ir.Value) -> ir.Value:
    """Build a cast from int32, element by element: ktir-cpu would treat the cast of a tensor as a cast to f16."""
    out = build.empty(shape_of(value), "f32")
    return build.generic([value], out, lambda args, _: build.op("arith.sitofp", ir.F32Type.get(), args[0]))


def _to_integer(build: TensorBuilder, value: ir.Value) -> ir.Value:
    """Build a cast to int32, which clamps numbers to the range of int32 and converts NaN to 0."""
    shape = shape_of(value)
    zero, low, high = (build.filled(shape, "f32", number) for number in (0, -(2.0**31), _LARGEST))
    i1 = build.type(shape, "i1")
    ordered = build.op("arith.cmpf", i1, value, value, predicate=ir.IntegerAttr.get(build.i64, 7))
    number = build.op("arith.select", value.type, ordered, value, zero)
    number = build.op("arith.minimumf", value.type, build.op("arith.maximumf", value.type, number, low), high)
    return build.op("arith.fptosi", build.type(shape, "i32"), number)


_CASTS: dict[str, Callable[[TensorBuilder, ir.Value], ir.Value]] = {
    "dl16tofp32": lambda build, value: build.cast(value, "f32"),
    "fp32todl16": lambda build, value: build.cast(value, "f16"),
    "fp32toint32": _to_integer,
    "int32tofp32": _to_float,
}


def convolution(lowering: OperationLowering) -> None:
    """Build a convolution that contracts channels: the sum of one product per window position."""
    windows = _PaddedOperand.of(lowering)
    kernel = [digit for digit in lowering.digits(1) if digit.label not in windows.kernels]
    digits = ProductDigits.of(lowering, windows.digits, kernel)

    def body(number: ir.Value, total: ir.Value | None) -> ir.Value:
        steps = windows.positions(number)
        assert total is not None
        return digits.multiplied(lowering, windows.tensor(steps), lowering.at(steps).tensor(1), total)

    # Each product rounds to f16, but the sum does not.
    store_product(lowering, digits, windows.loop(lowering.build.filled(digits.shape, "f32", 0), body))


def pooling(lowering: OperationLowering) -> None:
    """Build a pooling: the combination of the elements at all window positions, one position at a time."""
    build, combine = lowering.build, lowering.op.combine
    assert combine is not None
    windows = _PaddedOperand.of(lowering)
    shape = shape_of_digits(windows.digits)

    def body(number: ir.Value, total: ir.Value | None) -> ir.Value:
        steps = windows.positions(number)
        assert total is not None
        others = [lowering.at(steps).tensor(k) for k in range(1, lowering.op.arity)]
        inputs = [
            windows.tensor(steps).value,
            *(lowering.arranged(other, windows.digits) for other in others),
        ]
        value = build.cast(computed(lowering, inputs, is_wide=combine == "add"), element_of(total))
        return build.op(SCALARS[combine].op, total.type, total, value)

    total = build.filled(shape, "f32" if combine == "add" else lowering.elements[0], lowering.neutral)
    lowering.store(Tensor(windows.loop(total, body), windows.digits))


@dataclass(frozen=True)
class _PaddedDim:
    """A dim of the padded operand, of ``size`` positions: ``count`` are in a view, ``held`` come from its memory.

    ``window`` slides along it, if any does; ``offsets`` are the positions of padding before the data of each core.
    """

    label: str
    weight: int
    size: int
    count: int
    held: int
    offsets: tuple[int, ...] = ()
    window: WindowDim | None = None


class _PaddedOperand:
    """The first operand with its padding, in LX from element ``base`` on; ``digits`` are the digits of its views."""

    def __init__(self, lowering: OperationLowering, dims: list[_PaddedDim], base: int) -> None:
        self.lowering, self.dims, self.base = lowering, dims, base
        self.windows = [dim.window for dim in dims if dim.window is not None]
        self.count = math.prod(window.extent for window in self.windows)
        self.kernels = frozenset(window.kernel for window in self.windows)
        self.strides = dense_strides([dim.size for dim in dims])
        viewed = [TileDigit(dim.label, dim.weight, dim.count) for dim in dims]
        # The operation does not have weights for a dim that has one position in every memory.
        self.digits = refined(viewed, {dim.label: (1,) for dim in dims} | lowering.weights)

    @classmethod
    def of(cls, lowering: OperationLowering) -> _PaddedOperand:
        """Copy the operand into a buffer of neutral numbers in LX."""
        # The dims of the padded operand: first the dims with one position in memory, then the axes in memory.
        operand, tile = lowering.design.operands[0], lowering.tiles[0]
        known = {axis.dim for axis in tile.axes}
        dims = [_slid(lowering, label, None) for label in operand.windows if label not in known]
        for number, axis in enumerate(tile.axes):
            if axis.dim not in operand.windows:
                count = tile.shape[number]
                dims.append(_PaddedDim(axis.dim, axis.divisor, count, count, count))
            elif axis.divisor > 1 or axis.dim == operand.stick_dim:
                raise CompileError(f"The windows of '{lowering.design.opcode}' slide along its sticks.")
            else:
                dims.append(_slid(lowering, axis.dim, number))
        shape, element = [dim.size for dim in dims], lowering.elements[0]
        build, memory = lowering.build, lowering.state.memory
        padded = cls(lowering, dims, memory.stage(element, math.prod(shape)))
        view = memory.local_view(build.number(padded.base), shape, padded.strides, element)
        value = build.reshaped(_valid_positions(lowering), [dim.held for dim in dims])
        if shape_of(value) != tuple(shape):
            zeros = [build.number(0)] * len(dims)
            memory.store_to(view, zeros, build.filled(shape, element, lowering.neutral))
        cores = lowering.state.cores
        offsets = [cores.value([*dim.offsets, *[0] * (cores.cores - len(dim.offsets))]) for dim in dims]
        memory.store_to(view, offsets, value)
        return padded

    def loop(self, initial: ir.Value, body: Callable[[ir.Value, ir.Value | None], ir.Value]) -> ir.Value:
        """Build a loop over the window positions, with one iter_arg."""
        lowering = self.lowering
        value = lowering.state.memory.counted_loop(lowering.build.number(self.count), initial, body)
        assert value is not None
        return value

    def positions(self, number: ir.Value) -> dict[TileDigit, ir.Value]:
        """Build the position along each dim of the window from the index of a window position."""
        build, positions = self.lowering.build, {}
        rest = self.count
        for window in self.windows:
            value = number
            if rest < self.count:
                value = build.op("arith.remui", build.index, value, build.number(rest))
            rest //= window.extent
            if rest > 1:
                value = build.op("arith.divui", build.index, value, build.number(rest))
            positions[TileDigit(window.kernel, 1, 1)] = value
        return positions

    def tensor(self, positions: Mapping[TileDigit, ir.Value]) -> Tensor:
        """Load the elements of all windows at one window position."""
        numbers = {digit.label: number for digit, number in positions.items()}
        lowering = self.lowering
        build, memory, element = lowering.build, lowering.state.memory, lowering.elements[0]
        base, strides = build.number(self.base), []
        for dim, stride in zip(self.dims, self.strides, strict=True):
            strides.append(stride * (dim.window.stride if dim.window else 1))
            if dim.window is not None:
                base = build.add(base, build.times(numbers[dim.window.kernel], stride * dim.window.dilation))
        counts = [dim.count for dim in self.dims]
        view = memory.local_view(base, counts, strides, element)
        value = memory.load_from(view, [build.number(0)] * len(counts), counts, element)
        return Tensor(build.reshaped(value, shape_of_digits(self.digits)), self.digits)


def _slid(lowering: OperationLowering, label: str, axis: int | None) -> _PaddedDim:
    """Return the dim along which a window slides; its positions in memory are along an axis."""
    design, tile = lowering.design, lowering.tiles[0]
    window, share = design.operands[0].windows[label], design.shares[label]
    offsets = []
    for core in sorted(tile.firsts):
        first = design.core_slices[core][label] * share * window.stride - window.before
        offsets.append((0 if axis is None else tile.firsts[core][axis]) - first)
    held = 1 if axis is None else tile.shape[axis]
    size = max((share - 1) * window.stride + window.reach, max(offsets) + held)
    return _PaddedDim(label, 1, size, share, held, tuple(offsets), window)


def _valid_positions(lowering: OperationLowering) -> ir.Value:
    """Load the operand, with neutral numbers where a core has fewer positions along a window than others."""
    tensor, tile = lowering.tensor(0), lowering.tiles[0]
    # A load from memory already gives 0 there.
    if lowering.neutral == 0 and not lowering.is_tensor(0):
        return tensor.value
    build, cores = lowering.build, lowering.state.cores
    ends = {}
    for number, axis in enumerate(tile.axes):
        counts = [tile.counts[core][number] for core in sorted(tile.counts)]
        if axis.dim in lowering.design.operands[0].windows and set(counts) != {tile.shape[number]}:
            ends[axis.dim] = cores.value([*counts, *[0] * (cores.cores - len(counts))])
    return lowering.bounded(tensor.value, tensor.digits, ends, dict.fromkeys(ends, build.number(0)))


# Operations that move elements between cores, or from rows of a table, in KTIR.


def relayout(lowering: OperationLowering) -> None:
    """Build a relayout: every core puts its data where other cores can read it, and loads the part that it needs."""
    state, build, memory = lowering.state, lowering.build, lowering.state.memory
    source = lowering.tiles[0]
    element = lowering.elements[0]
    strides = dense_strides(source.shape)
    if lowering.is_tensor(0):
        value = lowering.loaded(0)
        base = build.number(memory.new_stage(element, math.prod(source.shape)))
        memory.store_to(
            memory.local_view(base, source.shape, strides, element), [build.number(0)] * len(strides), value
        )
    else:
        place = lowering.place(0)
        address = next(each for each in place.addresses if each is not None)
        size = lowering.design.target.stick_bytes // lowering.design.operands[0].elements_per_stick
        base = build.number(SCRATCHPADS[element] + address.offset // size)
        strides = [axis.stride for axis in source.axes]
    lowering.state.cores.synchronize()
    view = _distributed(lowering, base, strides)
    value = memory.load(lowering.place(1), view)
    digits = refined(lowering.tiles[1].digits, lowering.weights)
    lowering.store(Tensor(build.reshaped(value, shape_of_digits(digits)), digits))
    # Later stores must not overwrite data that other cores still read; in a loop, this includes the next iteration.
    if state.loops or not lowering.is_tensor(0):
        lowering.state.cores.synchronize()


def _distributed(lowering: OperationLowering, base: ir.Value, strides: Sequence[int]) -> ir.Value:
    """Build one view of the data of all cores, each part once."""
    build, memory, source = lowering.build, lowering.state.memory, lowering.tiles[0]
    element = lowering.elements[0]
    holders: dict[tuple[int, ...], int] = {}
    for core, firsts in source.firsts.items():
        holders.setdefault(firsts, core)
    parts = [
        memory.new_view(
            base, source.shape, strides, element, ktdp.LOCAL, core, memory.box(source.counts[core], firsts)
        )
        for firsts, core in holders.items()
    ]
    type_ = ir.MemRefType.get([axis.size for axis in source.axes], ir.Type.parse(element))
    return build.op("ktdp.construct_distributed_memory_view", type_, *parts)


def gather(lowering: OperationLowering) -> None:
    """Build an indirect access: rows of a table by their positions, which are data."""
    build, memory, state = lowering.build, lowering.state.memory, lowering.state
    index, table = lowering.tiles[0], lowering.tiles[1]
    (label,) = lowering.reduced
    if any(lowering.design.operands[k].memory == "lx" for k in (0, 1)):
        raise CompileError("The positions and the table of a lookup are in device memory.")
    rows = [axis for axis in table.axes if axis.dim == label]
    if any(axis.divisor > 1 for axis in rows) or len(rows) > 1:
        raise CompileError("A lookup reads rows of a table that are not in its sticks.")
    places = [lowering.place(k) for k in (0, 1)]
    views = [memory.part_view(place) for place in places]
    columns = [number for number, axis in enumerate(table.axes) if axis.dim != label]
    digits = (*index.digits, *(table.digits[number] for number in columns))
    names = [f"%d{dim}" for dim in range(len(digits))]
    position = f"ind(1, {', '.join(names[: len(index.axes)])})"
    others = dict(zip(columns, names[len(index.axes) :], strict=True))
    subscripts = ", ".join(
        f"({others[number]})" if number in others else position for number in range(len(table.axes))
    )
    shape = tuple(digit.count for digit in digits)

    def part(counts: Sequence[int] | None) -> ir.Value:
        if counts is None:
            return build.filled(shape, lowering.elements[1], 0)
        tile = build.op(
            "ktdp.construct_indirect_access_tile",
            ktdp.tile_type(counts),
            *reversed(views),
            subscripts=ir.StringAttr.get(subscripts),
            variables=ir.StringAttr.get(", ".join(names)),
            variables_space_set=memory.box(counts),
            variables_space_order=ir.AffineMapAttr.get(ir.AffineMap.get_identity(len(counts))),
        )
        value = build.op("ktdp.load", build.type(counts, lowering.elements[1]), tile)
        if tuple(counts) == shape:
            return value
        return inserted(value, build.filled(shape, lowering.elements[1], 0), [0] * len(shape))

    # The positions along the dims of the tile that each core reads; None for a core that does not read.
    counts: list[tuple[int, ...] | None] = [None] * state.cores.cores
    for core, positions in index.counts.items():
        counts[core] = (*positions, *(table.counts[core][number] for number in columns))
    value = memory.branches(counts, part, build.type(shape, lowering.elements[1]))
    assert value is not None
    kept = refined(digits, lowering.weights)
    lowering.store(Tensor(build.reshaped(value, shape_of_digits(kept)), kept))


FORMS: dict[Kind, Callable[[OperationLowering], None]] = {
    Kind.POINTWISE: elementwise,
    Kind.CAST: elementwise,
    Kind.RESTICKIFY: elementwise,
    Kind.REDUCE_STICK: reduction,
    Kind.REDUCE_OTHER: reduction,
    Kind.MATMUL: product,
    Kind.CONVOLUTION: convolution,
    Kind.POOLING: pooling,
    Kind.RELAYOUT: relayout,
    Kind.GATHER: gather,
}
