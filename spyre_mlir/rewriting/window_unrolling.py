# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Window unrolling: unroll an op with sliding windows into a chain of ops without windows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NoReturn

from spyre_mlir.analysis.loops import terminator
from spyre_mlir.analysis.view_ops import reassociation_of
from spyre_mlir.analysis.windows import Window, Windowed
from spyre_mlir.diagnostics import error_at
from spyre_mlir.dialects import sdsc, stick
from spyre_mlir.dialects.structured import (
    Map,
    defining_op,
    device_op,
    element_of,
    filled,
    maker_of,
    shape_of,
    structured,
    use_empty,
)
from spyre_mlir.dialects.targets import target_of
from spyre_mlir.layout.host_transfer import HostView
from spyre_mlir.layout.rules import RULES, Role
from spyre_mlir.layout.stick_layout import elements_per_stick
from spyre_mlir.layout.view_transforms import Collapse, Expand, Transpose
from spyre_mlir.mlir import ir
from spyre_mlir.records import dataclass
from spyre_mlir.rewriting import body_operations as scalar
from spyre_mlir.rewriting import tensor_builders
from spyre_mlir.rewriting.linalg_values import device_element
from spyre_mlir.rewriting.outlining import copied
from spyre_mlir.rewriting.tensor_builders import collapsed, consecutive, expanded, transposed
from spyre_mlir.target.ops import Kind
from spyre_mlir.target.sliding import Sliding

#: Maximum number of row dims that a matmul of the device accepts.
MOST_ROWS = next(limit.maximum or 0 for limit in RULES[Kind.MATMUL].dim_counts if limit.role is Role.ROW)


class Unrolling:
    """The chain of one op, such as a convolution or a pooling.

    A *tap* is one position of the kernel, and ``tap_dims`` are its iteration dims. ``merged`` are the iteration dims
    that become one row dim, ``order`` the dims of the source in the order of its transpose.
    """

    def __init__(self, windowed: Windowed) -> None:
        self.windowed = windowed
        self.body = windowed.op.regions[0].blocks[0]
        # The scalar op that combines positions of the kernel.
        body = windowed.op.regions[0].blocks[0]
        *ops, end = [op.operation for op in body.operations]
        accumulator = list(body.arguments)[-1]
        uses = [use.owner.operation for use in accumulator.uses]
        combine = next((op for op in ops if op.results[0] == end.operands[0]), None)
        # Another use of the accumulator would depend on the order of taps.
        if combine is None or uses != [combine] or scalar.combination(combine.name) is None:
            _refuse(windowed.op, "sums, products, minima and maxima")
        if not isinstance(accumulator.type, ir.FloatType):
            _refuse(windowed.op, "windows of floating-point numbers")
        self.combine = combine
        self.merged = self._merged()
        self.order = self._order()
        windowed = self.windowed
        sliding = [iterated_by(windowed.indices[dim]) for dim in self.order]
        outputs = [dim for dim in sliding if dim in windowed.result]
        outputs += [dim for dim in windowed.result if dim not in outputs and dim is not None]
        self.tap_dims = tuple(dim for dim in (*outputs, *windowed.reduced) if dim not in self.merged[1:])

    def run(self) -> ir.Value:
        source = self._source()
        neutral = self._neutral([self._extent(dim) for dim in self.tap_dims if dim in self.windowed.result])
        result = None
        for row in self.windowed.rows():
            partial = neutral
            for number, tap in enumerate(row):
                partial = self._tap(source, tap, partial, is_first=number == 0)
            result = partial if result is None else self._combined(result, partial)
        assert result is not None
        return self._finished(self._restored(result))

    def as_matmul(self, form: Im2Col) -> ir.Value:
        """Build one matmul instead of a chain."""
        source, weight = form.source(), form.weight()
        rows = len(form.rows)
        neutral = self._neutral([*shape_of(source)[:rows], shape_of(weight)[0]])
        operands = {True: (source, (*range(rows), rows + 1)), False: (weight, (rows, rows + 1))}
        read = [operands[dims is None] for dims in self.windowed.others]
        maps = [*(dims for _, dims in read), tuple(range(rows + 1))]
        matmul = tensor_builders.generic_op([value for value, _ in read], neutral, maps, rows + 2, 1)
        self._write(matmul, list(self.body.arguments), alone=False)
        return self._finished(form.restored(matmul.results[0]))

    def _finished(self, result: ir.Value) -> ir.Value:
        """Return the result of all taps, combined with the initial value of the destination unless that is neutral."""
        *_, destination = self.windowed.op.operands
        maker = defining_op(destination)
        if maker is not None and maker.name == "linalg.fill":
            number = scalar.scalar_of(maker.operands[0])
            element = device_element(str(self.combine.results[0].type), self.combine.location)
            if number is not None and scalar.is_neutral(self.combine.name, number, element):
                return result
        every = tuple(range(len(shape_of(destination))))
        if maker is None or maker.name != "linalg.broadcast":
            return self._combined(result, destination, every)
        # A broadcast, as of a bias, is read by its dims instead of being written to memory.
        added = list(ir.DenseI64ArrayAttr(maker.attributes["dimensions"]))
        return self._combined(result, maker.operands[0], tuple(dim for dim in every if dim not in added))

    # -- the op ---------------------------------------------------------------------------------------

    def _merged(self) -> tuple[int, ...]:
        """Return the output dims that become one row dim: of all windows but the last, and the images; or ()."""
        windowed, extents = self.windowed, self.windowed.extents
        outputs = [window.output for window in windowed.windows]
        rows = [dim for dim in (*outputs, *windowed.images) if extents[dim] > 1]
        # Only a matmul limits the number of row dims; a pooling may have any number.
        contracts = any(extents[dim] > 1 for dim in windowed.reduced)
        return (*outputs[:-1], *windowed.images) if contracts and len(rows) > MOST_ROWS else ()

    def _order(self) -> tuple[int, ...]:
        """Return the dims of the source in the order of its transpose: windows and images first, channels last."""
        indices = self.windowed.indices
        windows = [dim for dim, index in enumerate(indices) if isinstance(index, Window)]
        images = [indices.index(dim) for dim in self.merged if dim in self.windowed.images]
        first = [*windows[:-1], *images, *windows[-1:]]
        return (*first, *(dim for dim in range(len(indices)) if dim not in first))

    def _dims(self, iterated: Sequence[int | None]) -> Map:
        """Return the map of a tap's operand, given the iteration dims of the op that index the operand."""
        unmerged = (dim for dim in iterated if dim not in self.merged[1:])
        return tuple(None if dim is None else self.tap_dims.index(dim) for dim in unmerged)

    def _extent(self, dim: int) -> int:
        """Return the size of an iteration dim of a tap."""
        merged = self.merged if dim in self.merged else (dim,)
        return math.prod(self.windowed.extents[iteration_dim] for iteration_dim in merged)

    # -- the source -----------------------------------------------------------------------------------

    def _source(self) -> ir.Value:
        """Return the transposed source; a pad becomes a pad of the transpose, so that the transpose stays a view."""
        value = self.windowed.inputs[self.windowed.source]
        pad = padded(value)
        if pad is None:
            return tensor_builders.transposed(value, self.order)
        inner, number, amounts = pad
        low, high = ([amount[dim] for dim in self.order] for amount in amounts)
        shape = [shape_of(value)[dim] for dim in self.order]
        for position, dim in enumerate(self.order):
            # Pad to whole steps; otherwise each strided slice would need a copy.
            rest = -shape[position] % self._stride(dim)
            high[position] += rest
            shape[position] += rest
        return tensor_builders.constant_pad(
            tensor_builders.transposed(inner, self.order), number, low, high, shape
        )

    def _stride(self, dim: int) -> int:
        """Return the stride of a tap in a dim of the source, in elements."""
        index = self.windowed.indices[dim]
        return index.stride if isinstance(index, Window) and self.windowed.extents[index.output] > 1 else 1

    def _slice(self, source: ir.Value, tap: dict[int, int]) -> ir.Value:
        """Return the slice of the source that one tap reads, with rows and images as one dim if they are merged."""
        offsets, sizes, strides = [], [], []
        for dim in self.order:
            index = self.windowed.indices[dim]
            sliding = isinstance(index, Window)
            offsets.append(index.dilation * tap[index.kernel] if sliding else 0)
            sizes.append(self.windowed.extents[iterated_by(index)])
            strides.append(self._stride(dim))
        part = tensor_builders.extracted(source, offsets, sizes, strides)
        if not self.merged:
            return part
        if strides[0] > 1 or len(self.windowed.windows) > 2:
            # The rows of the slice are not contiguous in the source.
            part = sdsc.clone(part, self.windowed.op.location)
        groups = [list(range(len(self.merged))), *([dim] for dim in range(len(self.merged), len(sizes)))]
        return tensor_builders.collapsed(part, groups)

    def _other(self, value: ir.Value, dims: Map, tap: dict[int, int]) -> ir.Value:
        """Return the part of another input, such as a weight, that belongs to a tap."""
        if not any(dim in tap for dim in dims):
            return value
        shape = shape_of(value)
        offsets = [tap.get(dim, 0) if dim is not None else 0 for dim in dims]
        sizes = [1 if dim in tap else size for dim, size in zip(dims, shape, strict=True)]
        tap_shape = [size for dim, size in zip(dims, shape, strict=True) if dim not in tap]
        return tensor_builders.extracted(value, offsets, sizes, reduced_shape=tap_shape)

    # -- taps -----------------------------------------------------------------------------------------

    def _tap(self, source: ir.Value, tap: dict[int, int], before: ir.Value, is_first: bool) -> ir.Value:
        """Build one tap, combined with the previous taps."""
        windowed, arguments = self.windowed, list(self.body.arguments)
        inputs, maps, read = [], [], []
        for operand, (value, dims) in enumerate(zip(windowed.inputs, windowed.others, strict=True)):
            if use_empty(arguments[operand]):
                continue
            read.append(arguments[operand])
            if dims is None:
                inputs.append(self._slice(source, tap))
                maps.append(self._dims([iterated_by(windowed.indices[dim]) for dim in self.order]))
            else:
                inputs.append(self._other(value, dims, tap))
                maps.append(self._dims([dim for dim in dims if dim not in tap]))
        rank, reduced = len(self.tap_dims), len(windowed.reduced)
        maps.append(tuple(range(rank - reduced)))
        tap_op = tensor_builders.generic_op(inputs, before, maps, rank, reduced)
        self._write(tap_op, [*read, arguments[-1]], alone=is_first and not reduced)
        return tap_op.results[0]

    def _write(self, tap_op: ir.Operation, arguments: list[ir.Value], alone: bool) -> None:
        """Write the body of a tap; if the tap is ``alone``, without the combination with a neutral element."""
        block = ir.Block.create_at_start(tap_op.regions[0], [argument.type for argument in arguments])
        values = dict(zip(arguments, block.arguments, strict=True))
        accumulator = arguments[-1]
        with ir.InsertionPoint(block):
            for op in [op.operation for op in self.body.operations]:
                if alone and op == self.combine:
                    operand = next(operand for operand in op.operands if operand != accumulator)
                    values[op.results[0]] = values.get(operand, operand)
                    continue
                copied(op, values)

    # -- the result -----------------------------------------------------------------------------------

    def _neutral(self, shape: Sequence[int]) -> ir.Value:
        """Build a tensor of the neutral element, for the first tap of a row."""
        element = tensor_builders.element_type(self.windowed.op.results[0])
        combination = scalar.combination(self.combine.name)
        assert combination is not None
        number = tensor_builders.constant(ir.FloatAttr.get(element, combination.neutral))
        return filled(number, tensor_builders.empty(shape, element))

    def _restored(self, result: ir.Value) -> ir.Value:
        """Return the result in the dims and order of the op."""
        outputs = [dim for dim in self.tap_dims if dim in self.windowed.result]
        if self.merged:
            position = outputs.index(self.merged[0])
            outputs[position : position + 1] = self.merged
            groups = [[dim] for dim in range(len(outputs) - len(self.merged) + 1)]
            groups[position] = list(range(position, position + len(self.merged)))
            groups[position + 1 :] = [[dim + len(self.merged) - 1] for (dim,) in groups[position + 1 :]]
            result = tensor_builders.expanded(result, groups, [self.windowed.extents[dim] for dim in outputs])
        return tensor_builders.transposed(
            result, [outputs.index(dim) for dim in self.windowed.result if dim is not None]
        )

    def _combined(self, result: ir.Value, other: ir.Value, dims: Map | None = None) -> ir.Value:
        """Combine two partial results, or the result of all taps with an initial value that has only ``dims``."""
        every = tuple(range(len(shape_of(result))))
        maps = [every, every if dims is None else dims, every]
        combined = tensor_builders.generic_op(
            [result, other], tensor_builders.empty_like(result), maps, len(every), 0
        )
        return tensor_builders.with_body(
            combined, lambda arguments: tensor_builders.scalar_op(self.combine.name, arguments[:2])
        )


def _refuse(op: ir.Operation, what: str) -> NoReturn:
    raise error_at(op, f"the windows of this '{op.name}' have no device operation; {what} have")


def iterated_by(index: int | Window | None) -> int:
    """Return the iteration dim of an index: the output dim of a window, or the dim itself."""
    assert index is not None
    return index.output if isinstance(index, Window) else index


def padded(value: ir.Value) -> tuple[ir.Value, ir.Operation, tuple[list[int], list[int]]] | None:
    """Return the source of a pad, its constant, and the low and high amounts; None for another value.

    The pad may be followed by an ``expand_shape`` that splits dims without padding, such as channels into groups.
    """
    op = defining_op(value)
    groups = None
    if op is not None and op.name == "tensor.expand_shape":
        groups = reassociation_of(op)
        op = defining_op(op.operands[0])
    if op is None or op.name != "tensor.pad" or len(op.operands) != 1:
        return None
    number = defining_op(terminator(op.regions[0].blocks[0]).operands[0])
    if number is None or number.name != "arith.constant":
        return None
    low, high = (list(ir.DenseI64ArrayAttr(op.attributes[name])) for name in ("static_low", "static_high"))
    if groups is None:
        return op.operands[0], number, (low, high)
    if any(len(group) > 1 and (low[position] or high[position]) for position, group in enumerate(groups)):
        return None
    shape = list(shape_of(value))
    for position, group in enumerate(groups):
        shape[group[0]] = shape_of(op.operands[0])[position] if len(group) == 1 else shape[group[0]]
    low, high = (
        [amount[position] for position, group in enumerate(groups) for _ in group] for amount in (low, high)
    )
    return tensor_builders.expanded(op.operands[0], groups, shape), number, (low, high)


# Native windows: convolutions and poolings as one device operation, which slides the windows itself.


#: Device operations that combine the elements of windows without a weight, keyed by the combining scalar op.
_POOLINGS = {"arith.maximumf": "maxpoolfwd", "arith.maxnumf": "maxpoolfwd", "arith.addf": "avgpoolfwd"}

#: Maximum number of windows that an operation slides: along rows and along columns.
_MOST_WINDOWS = 2


@dataclass(frozen=True)
class _Pad:
    """The tensor that windows slide over, without padding, and the amount of padding before each dim of it."""

    value: ir.Value
    before: Sequence[int]


class NativeWindows(Unrolling):
    """One operation instead of the chain:

        y[n, i, j, f] = sum over p, q, c of x[n, s*i + d*p - b, s*j + d*q - b, c] * w[p, q, c, f]

    The operand is a view of the source as windows (``sdsc.windows``). The operation handles positions beyond the ends
    of the source as padding, so no padded copy is needed in memory. Dims of one element are omitted.
    """

    def __init__(self, windowed: Windowed, opcode: str, pad: _Pad) -> None:
        super().__init__(windowed)
        self.opcode, self.pad = opcode, pad
        extents = windowed.extents
        #: Windows of more than one position; windows of one position become strided slices.
        self.windows = [window for window in windowed.windows if extents[window.kernel] > 1]
        outputs = [window.output for window in windowed.windows]
        others = [dim for dim in windowed.result if dim is not None and dim not in outputs]
        dims = [*others[:-1], *outputs, *others[-1:], *windowed.kernel, *windowed.reduced]
        self.dims = [dim for dim in dims if extents[dim] > 1]

    def run(self) -> ir.Value:
        windowed, extents = self.windowed, self.windowed.extents
        inputs, maps = [self._slid()], [self._numbered(self._slid_dims())]
        for value, dims in zip(windowed.inputs, windowed.others, strict=True):
            if dims is not None and self.opcode not in _POOLINGS.values():
                weight, order = self._weight(value, dims)
                inputs.append(weight)
                maps.append(self._numbered(order))
        reduced = {*windowed.kernel, *windowed.reduced}
        result = device_op(
            self.opcode,
            inputs,
            maps,
            [extents[dim] for dim in self.dims],
            element_of(windowed.op.results[0]),
            location=windowed.op.location,
            reduced=[number for number, dim in enumerate(self.dims) if dim in reduced],
            constants={"nmap": 1.0} if self.opcode == "avgpoolfwd" else None,
        )
        sdsc.inherit(maker_of(result), windowed.op)
        return self._finished(self._restored(result))

    def _merged(self) -> tuple[int, ...]:
        return ()

    def _numbered(self, dims: Sequence[int]) -> Map:
        return tuple(self.dims.index(dim) for dim in dims)

    # -- the source -----------------------------------------------------------------------------------

    def _order(self) -> tuple[int, ...]:
        """Return the dims of the source in the order images, dims that windows slide along, channels."""
        indices = self.windowed.indices
        windows = [dim for dim, index in enumerate(indices) if isinstance(index, Window)]
        others = [dim for dim in range(len(indices)) if dim not in windows]
        # Channels are the contracted dim, or else the last dim without a window, which is mostly in the stick.
        others.sort(key=lambda dim: indices[dim] in self.windowed.reduced)
        return (*others[:-1], *windows, *others[-1:])

    def _slid(self) -> ir.Value:
        """Return the source as windows: transpose, drop dims of one element, then add the windows."""
        indices, extents = self.windowed.indices, self.windowed.extents
        value = tensor_builders.transposed(self.pad.value, self.order)
        shape, steps = list(shape_of(value)), [1] * len(self.order)
        for place, dim in enumerate(self.order):
            index = indices[dim]
            if isinstance(index, Window) and index not in self.windows:
                shape[place], steps[place] = extents[index.output], index.stride
        reduced_shape = [size for size in shape if size > 1]
        if reduced_shape != list(shape_of(value)):
            value = tensor_builders.extracted(value, [0] * len(shape), shape, steps, reduced_shape)
        slid = [dim for dim in self._sized(shape) if indices[dim] in self.windows]
        windows = [index for index in (indices[dim] for dim in slid) if isinstance(index, Window)]
        sizes = [extents[dim] for dim in self._slid_dims()]
        return sdsc.windows(
            value,
            sizes,
            [self._sized(shape).index(dim) for dim in slid],
            [window.stride for window in windows],
            [window.dilation for window in windows],
            [self.pad.before[dim] for dim in slid],
        )

    def _sized(self, shape: Sequence[int]) -> list[int]:
        return [dim for dim, size in zip(self.order, shape, strict=True) if size > 1]

    def _slid_dims(self) -> list[int]:
        """Return the iteration dims of the source as windows."""
        dims = []
        for dim in self.order:
            index = self.windowed.indices[dim]
            dims.append(iterated_by(index))
            if isinstance(index, Window):
                dims.append(index.kernel)
        return [dim for dim in dims if self.windowed.extents[dim] > 1]

    # -- the weight and the result --------------------------------------------------------------------

    def _weight(self, value: ir.Value, dims: Map) -> tuple[ir.Value, list[int]]:
        """Return the weight in the order of the iteration dims, features last, without dims of one element."""
        order = sorted(
            (dim for dim in dims if dim is not None),
            key=lambda dim: (dim in self.windowed.result, dim in self.windowed.reduced, dims.index(dim)),
        )
        value = tensor_builders.transposed(value, [dims.index(dim) for dim in order])
        sized = [dim for dim in order if self.windowed.extents[dim] > 1]
        if sized != order:
            shape = shape_of(value)
            sizes = [self.windowed.extents[dim] for dim in sized]
            value = tensor_builders.extracted(value, [0] * len(shape), shape, reduced_shape=sizes)
        return value, sized

    def _restored(self, result: ir.Value) -> ir.Value:
        windowed = self.windowed
        dims = [dim for dim in self.dims if dim in windowed.result]
        whole = [dim for dim in windowed.result if dim is not None]
        # Dims of one element are split off the first of the other dims.
        order = [*(dim for dim in whole if dim not in dims), *dims]
        if len(order) > len(dims):
            extra = len(order) - len(dims)
            groups = [list(range(extra + 1)), *([dim] for dim in range(extra + 1, len(order)))]
            result = tensor_builders.expanded(result, groups, [windowed.extents[dim] for dim in order])
        return tensor_builders.transposed(result, [order.index(dim) for dim in whole])


def native_windows(windowed: Windowed) -> NativeWindows | None:
    """Return the builder of the device operation for an op with windows; None if the device does not have one."""
    opcode = _opcode(windowed)
    if opcode is None:
        return None
    pad = _pad(windowed, windowed.inputs[windowed.source])
    if pad is None or element_of(pad.value) not in ("f16", "bf16"):
        return None
    windows = [window for window in windowed.windows if windowed.extents[window.kernel] > 1]
    if not 1 <= len(windows) <= _MOST_WINDOWS:
        return None
    for window in windowed.windows:
        dim, count = windowed.indices.index(window), windowed.extents[window.output]
        steps = (window.stride, window.dilation, pad.before[dim], shape_of(pad.value)[dim])
        sliding = Sliding(windowed.extents[window.kernel], *steps)
        # A strided slice cannot have padding. Other forms handle a single position, a source of one element, which
        # layouts omit, and a window only of padding.
        if window not in windows:
            if sliding.is_padded(count):
                return None
        elif count == 1 or steps[-1] == 1 or sliding.has_empty(count):
            return None
    return NativeWindows(windowed, opcode, pad)


def _opcode(windowed: Windowed) -> str | None:
    """Return the device operation that combines the elements of a window like the body; None if there is none."""
    combine, term = _term(windowed)
    if combine is None or term is None:
        return None
    arguments = list(windowed.op.regions[0].blocks[0].arguments)
    source = arguments[windowed.source]
    if term == source:
        return None if windowed.reduced else _POOLINGS.get(combine)
    product = defining_op(term)
    if (
        combine != "arith.addf"
        or product is None
        or product.name != "arith.mulf"
        or len(windowed.inputs) != 2
    ):
        return None
    if {_uncast(operand) for operand in product.operands} != set(arguments[:2]):
        return None
    # A sum of products with a weight: a convolution, unless its dims are of another kind.
    weight = next(dims for dims in windowed.others if dims is not None)
    extents, result = windowed.extents, set(windowed.result)
    channels = {index for index in windowed.indices if isinstance(index, int)}
    features = [dim for dim in weight if dim is not None and dim in result - channels and extents[dim] > 1]
    groups = [dim for dim in channels & set(weight) & result if extents[dim] > 1]
    contracted = [dim for dim in windowed.reduced if extents[dim] > 1]
    known = {*windowed.kernel, *windowed.reduced, *features, *groups}
    if any(dim not in known and extents[dim] > 1 for dim in weight if dim is not None):
        return None
    if not set(windowed.kernel) <= set(weight):
        return None
    if len(contracted) == 1 and len(features) == 1 and set(contracted) <= channels & set(weight):
        return None if len(groups) > 1 else "conv2d"
    return "depthwiseconv2dnative" if not contracted and not features and len(groups) == 1 else None


def _term(windowed: Windowed) -> tuple[str | None, ir.Value | None]:
    """Return the scalar op that combines positions, and the value that it combines, without casts."""
    body = windowed.op.regions[0].blocks[0]
    accumulator = list(body.arguments)[-1]
    combine = defining_op(terminator(body).operands[0])
    if combine is None or len(combine.operands) != 2 or accumulator not in list(combine.operands):
        return None, None
    (term,) = [operand for operand in combine.operands if operand != accumulator] or [None]
    return combine.name, None if term is None else _uncast(term)


def _uncast(value: ir.Value) -> ir.Value:
    op = defining_op(value)
    return op.operands[0] if op is not None and op.name == "arith.extf" else value


def _pad(windowed: Windowed, source: ir.Value) -> _Pad | None:
    """Return the source without its padding; None if the padding is not neutral or not along windows."""
    pad = padded(source)
    if pad is None:
        return _Pad(_narrowed(source), [0] * len(windowed.indices))
    inner, number, (low, high) = pad
    combine, _ = _term(windowed)
    assert combine is not None
    value = scalar.scalar_constant(number)
    element = device_element(element_of(source), windowed.op.location)
    if value is None or not scalar.is_neutral(combine, value, element):
        return None
    slid = [isinstance(index, Window) for index in windowed.indices]
    if any((low[dim] or high[dim]) and not slid[dim] for dim in range(len(slid))):
        return None
    return _Pad(_narrowed(inner), low)


def _narrowed(value: ir.Value) -> ir.Value:
    """Return the 16-bit source of an f32 tensor, if any: the device accumulates in more than 16 bits anyway."""
    op = defining_op(value)
    generic = None if op is None else structured(op)
    if generic is None or len(generic.inputs) != 1 or generic.maps[0] != generic.maps[-1] or generic.reduced:
        return value
    body = [op.operation.name for op in generic.body.operations]
    return generic.inputs[0] if body == ["arith.extf", "linalg.yield"] else value


# im2col: a convolution with adjacent windows becomes one matmul of an argument that the host reorders.


@dataclass(frozen=True)
class Im2Col:
    """A convolution as ``y[rows, f] = sum over k of x[rows, k] * w[f, k]``.

    ``rows`` are the result's iteration dims that the source has, in groups that become one dim each; ``feature`` is the
    result's dim that the weight has. ``contracted`` are all other dims, which become one dim in the weight's order.
    """

    windowed: Windowed
    rows: tuple[tuple[int, ...], ...]
    feature: int
    contracted: tuple[int, ...]

    def source(self) -> ir.Value:
        """Return the matrix of windows, ``[rows, contracted]``: a view of the source."""
        value = self.windowed.inputs[self.windowed.source]
        expand, order, collapse = self._steps()
        value = expanded(value, expand.groups, expand.shape)
        return collapsed(transposed(value, order.permutation), collapse.groups)

    def weight(self) -> ir.Value:
        """Return the weight, features first."""
        pairs = zip(self.windowed.inputs, self.windowed.others, strict=True)
        ((value, dims),) = ((value, dims) for value, dims in pairs if dims is not None)
        order = [dims.index(dim) for dim in (self.feature, *self.contracted)]
        return collapsed(transposed(value, order), [[0], range(1, len(order))])

    def restored(self, result: ir.Value) -> ir.Value:
        """Return the result in the dims and order of the op."""
        dims = [*(dim for group in self.rows for dim in group), self.feature]
        shape = [self.windowed.extents[dim] for dim in dims]
        result = expanded(result, consecutive(map(len, [*self.rows, (self.feature,)])), shape)
        return transposed(result, [dims.index(dim) for dim in self.windowed.result if dim is not None])

    def fit(self) -> bool:
        """Return whether the source is an argument that the host can write as the matrix of windows."""
        value = self.windowed.inputs[self.windowed.source]
        if not isinstance(value.owner, ir.Block) or stick.has_layout(value.type):
            return False
        view: HostView | None = HostView.whole(shape_of(value))
        for step in self._steps():
            view = view and view.after(step)
        element = str(ir.RankedTensorType(value.type).element_type)
        # The host transfers whole sticks: a window must not begin inside a stick.
        return view is not None and view.gathers_sticks(
            elements_per_stick(target_of(self.windowed.op), element)
        )

    def _steps(self) -> tuple[Expand, Transpose, Collapse]:
        """Return the view operations: split windows, move rows before contracted dims, merge the dims of each group."""
        extents = self.windowed.extents
        indices = (index for index in self.windowed.indices if index is not None)
        split = [(index.output, index.kernel) if isinstance(index, Window) else (index,) for index in indices]
        dims = [dim for group in split for dim in group]
        groups = [*self.rows, self.contracted]
        order = tuple(dims.index(dim) for group in groups for dim in group)
        shape = tuple(extents[dim] for dim in dims)
        merged = Collapse(consecutive(map(len, groups)))
        return Expand(consecutive(map(len, split)), shape), Transpose(order), merged


def im2col_of(windowed: Windowed, most_rows: int) -> Im2Col | None:
    """Match a convolution; None if its windows overlap or leave gaps, or the host cannot write the matrix."""
    weights = [dims for dims in windowed.others if dims is not None]
    if len(weights) != 1:
        return None
    shape = shape_of(windowed.inputs[windowed.source])
    for window in windowed.windows:
        # Each element of a dim is in exactly one window.
        size, kernel = shape[windowed.indices.index(window)], windowed.extents[window.kernel]
        is_adjacent = window.dilation == 1 and window.stride == kernel
        if not is_adjacent or size != windowed.extents[window.output] * kernel:
            return None
    (weight,) = weights
    outputs = {window.output for window in windowed.windows}
    channels = {index for index in windowed.indices if isinstance(index, int)}
    rows = tuple(dim for dim in windowed.result if dim in outputs or dim in channels - set(weight))
    features = [dim for dim in windowed.result if dim not in rows and dim is not None]
    contracted = tuple(dim for dim in weight if dim not in windowed.result and dim is not None)
    shared = set(contracted) == {*windowed.kernel, *windowed.reduced} and not channels & set(features)
    if None in weight or not shared or len(features) != 1:
        return None
    # A matmul of the device accepts few row dims: if there are more, they are merged into one.
    fits = sum(windowed.extents[dim] > 1 for dim in rows) <= most_rows
    groups = tuple((dim,) for dim in rows) if fits else (rows,)
    candidate = Im2Col(windowed, groups, features[0], contracted)
    return candidate if candidate.fit() else None
