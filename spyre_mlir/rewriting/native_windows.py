# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Native windows: convolutions and poolings as one device operation, which slides the windows itself."""

from __future__ import annotations

from collections.abc import Sequence

from spyre_mlir.analysis.windows import Window, Windowed
from spyre_mlir.dialects import sdsc
from spyre_mlir.dialects.structured import (
    Map,
    defining_op,
    device_op,
    element_of,
    maker_of,
    shape_of,
    structured,
)
from spyre_mlir.mlir import ir
from spyre_mlir.records import dataclass
from spyre_mlir.rewriting import body_operations as scalar
from spyre_mlir.rewriting.linalg_values import device_element
from spyre_mlir.rewriting.tensor_builders import expanded, extracted, transposed
from spyre_mlir.rewriting.window_unrolling import Unrolling, iterated_by, padded
from spyre_mlir.target.sliding import Sliding

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
        inputs, maps = [self._slid()], [self._slid_map()]
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
        value = transposed(self.pad.value, self.order)
        shape, steps = list(shape_of(value)), [1] * len(self.order)
        for place, dim in enumerate(self.order):
            index = indices[dim]
            if isinstance(index, Window) and index not in self.windows:
                shape[place], steps[place] = extents[index.output], index.stride
        reduced_shape = [size for size in shape if size > 1]
        if reduced_shape != list(shape_of(value)):
            value = extracted(value, [0] * len(shape), shape, steps, reduced_shape)
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

    def _slid_map(self) -> Map:
        return self._numbered(self._slid_dims())

    # -- the weight and the result --------------------------------------------------------------------

    def _weight(self, value: ir.Value, dims: Map) -> tuple[ir.Value, list[int]]:
        """Return the weight in the order of the iteration dims, features last, without dims of one element."""
        order = sorted(
            (dim for dim in dims if dim is not None),
            key=lambda dim: (dim in self.windowed.result, dim in self.windowed.reduced, dims.index(dim)),
        )
        value = transposed(value, [dims.index(dim) for dim in order])
        sized = [dim for dim in order if self.windowed.extents[dim] > 1]
        if sized != order:
            shape = shape_of(value)
            sizes = [self.windowed.extents[dim] for dim in sized]
            value = extracted(value, [0] * len(shape), shape, [1] * len(shape), sizes)
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
            result = expanded(result, groups, [windowed.extents[dim] for dim in order])
        return transposed(result, [order.index(dim) for dim in whole])


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
        # A strided slice cannot have padding. Other forms handle a single position, and a window only of padding.
        if window not in windows:
            if sliding.is_padded(count):
                return None
        elif count == 1 or sliding.has_empty(count):
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
    return _product(windowed)


def _product(windowed: Windowed) -> str | None:
    """Return the convolution opcode of a sum of products with a weight; None if its dims are not a convolution's."""
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
    *_, terminator = [op.operation for op in body.operations]
    accumulator = list(body.arguments)[-1]
    combine = defining_op(terminator.operands[0])
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
