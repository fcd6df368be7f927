# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Splits linalg ops into ops that each perform one device operation."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import ClassVar

import numpy as np

from spyre_mlir.analysis.aliasing import attributes_of
from spyre_mlir.analysis.loops import LOOP, body_block, offsets_of, terminator
from spyre_mlir.analysis.quantized_matmuls import PRODUCTS, check_one_byte, narrowing_cast
from spyre_mlir.diagnostics import error_at
from spyre_mlir.dialects import sdsc, stick
from spyre_mlir.dialects.indices import INDEX_ARGUMENT
from spyre_mlir.dialects.structured import (
    Map,
    Structured,
    defining_op,
    device_op,
    element_of,
    rebuilt,
    shape_of,
    structured,
    use_empty,
)
from spyre_mlir.dialects.targets import target_of
from spyre_mlir.dialects.torch_call import TorchCall, is_torch_call
from spyre_mlir.errors import CompileError
from spyre_mlir.layout.requests import why_not_a_layout
from spyre_mlir.mlir import ir, location_of, source_operation
from spyre_mlir.passes.base import Pass
from spyre_mlir.passes.outline_host_functions import ASSERT, check_assertion
from spyre_mlir.passes.verify_device_ops import verify_device_ops
from spyre_mlir.records import dataclass
from spyre_mlir.rewriting import body_operations as scalar
from spyre_mlir.rewriting.body_operations import READS_SIGN, scalar_of
from spyre_mlir.rewriting.linalg_values import Term, Terms, device_element, number_tensor
from spyre_mlir.rewriting.outlining import CALL, callee_of, read_by, set_function_type
from spyre_mlir.rewriting.tensor_builders import (
    DYNAMIC,
    collapsed,
    constant,
    element_type,
    elementwise,
    empty,
    expanded,
    extracted,
    inserted,
)
from spyre_mlir.target.element_types import ONE_BYTE, cast_between, widening_block
from spyre_mlir.target.formats import DL16_SMALLEST, FP8_MAX, FP8_NORMAL, FP8_STEP, fits_fp16
from spyre_mlir.target.ops import DEVICE_OPS, FP32, Kind

_MOVED = {"tensor.expand_shape", "tensor.collapse_shape", "tensor.extract_slice", "sdsc.windows"}
_KEPT = {"tensor.empty", "arith.constant", INDEX_ARGUMENT}
_TOSA = "func.func(tosa-to-linalg-named,tosa-to-linalg,tosa-to-tensor,tosa-to-arith)"
#: For each dialect the upstream passes that lower its ops to linalg, as a flag of ``spyre-opt``.
_LOWERINGS = {
    "arith": "--convert-elementwise-to-linalg",
    "math": "--convert-elementwise-to-linalg",
    "tosa": f'--pass-pipeline="builtin.module({_TOSA})"',
}
_REQUESTS = {"stick.pin", "stick.restickify"}


@dataclass(frozen=True)
class DecomposeToDeviceOps(Pass):
    """Give each device operation a separate op, in the device's types.

    A body of k scalar ops becomes k ops, each over only the dims that it needs. Transposes and broadcasts
    are folded into the indexing maps of their readers. A contraction becomes one ``batchmatmul``. Reductions over
    the last dim and over other dims are two operations. Concat and pad become insertions into one buffer.
    fp16, bf16 and booleans become ``f16`` (booleans 0.0 and 1.0), integers ``i32``; int8 and fp8 stay, for matmuls.

    Before: static shapes, generic form (``linalg-generalize-named-ops``), single results
    (``drop-dead-results``). After: each compute op carries ``sdsc.op``; arguments and results carry
    ``sdsc.host``. An op without a device operation is an error at its source line.
    """

    name: ClassVar[str] = "decompose-to-device-ops"

    def run_on(self, func: ir.Operation) -> None:
        if "arg_attrs" in func.attributes and sdsc.HOST in str(func.attributes["arg_attrs"]):
            # At level device-ops or later. The operations were named elsewhere, so their bodies must be checked.
            verify_device_ops(func, meaning=True)
        else:
            _FunctionDecomposer(func).run()


class _FunctionDecomposer:
    """Rewrite of one function in place: new ops are inserted before each op, and replaced ops are erased at the end."""

    def __init__(self, func: ir.Operation) -> None:
        self.func = func
        self.block = func.regions[0].blocks[0]
        self.terms = Terms()
        self.replaced: list[ir.Operation] = []
        self.pinned: dict[ir.Value, ir.Attribute] = {}

    def run(self) -> None:
        results = [result for op in self.block.operations for result in op.operation.results]
        # The device types do not record bf16.
        if any(element_of(value) == "bf16" for value in (*self.block.arguments, *results)):
            self.func.attributes[sdsc.BFLOAT] = ir.UnitAttr.get(self.func.context)
        attributes = []
        for index, argument in enumerate(self.block.arguments):
            attrs = attributes_of(argument)
            label = ir.StringAttr(attrs["spyre.name"]).value if "spyre.name" in attrs else f"arg{index}"
            kind = ir.StringAttr(attrs["spyre.kind"]).value if "spyre.kind" in attrs else "input"
            type_ = _static(argument.type, self.func)
            attrs[sdsc.HOST] = sdsc.host_attr(label, kind, str(type_.element_type))
            element = device_element(str(type_.element_type), self.func.location)
            device_type = ir.RankedTensorType.get(type_.shape, ir.Type.parse(element), type_.encoding)
            try:
                layout = stick.layout_of(device_type, target_of(self.func))
                reason = why_not_a_layout(layout) if layout is not None else None
            except ValueError as error:
                reason = str(error)
            if reason is not None:
                text = f"argument '{label}' cannot have this layout: {reason}"
                raise CompileError(text, location_of(self.func.location))
            argument.set_type(device_type)
            attributes.append(ir.DictAttr.get(attrs))
            self.terms.bind(argument, argument)
        self.func.attributes["arg_attrs"] = ir.ArrayAttr.get(attributes)
        for op in [op.operation for op in self.block.operations]:
            with ir.InsertionPoint(op), op.location:
                self._visit(op)
        for op in reversed(self.replaced):
            op.erase()
        # Last: only the device operations show whether an operation other than a matmul reads a one-byte tensor.
        for op in self.block.operations:
            check_one_byte(op.operation)

    # -- the host boundary ----------------------------------------------------------------------------

    def _return(self, op: ir.Operation) -> None:
        attributes, values = [], []
        declared = ir.FunctionType(ir.TypeAttr(self.func.attributes["function_type"]).value).results
        for index, operand in enumerate(op.operands):
            # The declared type is used, because a returned argument already has its device type.
            host_element = str(_static(declared[index], op).element_type)
            host = sdsc.host_attr(f"result{index}", "result", host_element)
            attributes.append(ir.DictAttr.get({sdsc.HOST: host}))
            # The return does not belong to a module, so new ops get the location of the op that computes the result.
            location = operand.location if source_operation(operand.location) else op.location
            with location:
                value = self.terms.private_buffer(operand, location, frozenset(values))
                # After CSE both results would be one value, but each result needs a separate kernel argument.
                if any(_are_equivalent(value, other) for other in values):
                    value = self.terms.copied(value, location)
            values.append(value)
        for index, value in enumerate(values):
            op.operands[index] = value
        set_function_type(self.func)
        self.func.attributes["res_attrs"] = ir.ArrayAttr.get(attributes)

    # -- ops ------------------------------------------------------------------------------------------

    def _visit(self, op: ir.Operation) -> None:
        """Bind the results of an op to device operations, views or terms that later ops complete."""
        # Gathers are handled first: a gather is also a linalg.generic, but its body reads by index.
        if (rows := gathered_rows(self.terms, op)) is not None:
            self.terms.bind_term(op.results[0], rows)
        elif (part := looked_up_part(self.terms, op)) is not None:
            self.terms.bind_term(op.results[0], part, is_private=False)
        elif op.name == "linalg.generic" and sdsc.OP in op.attributes:
            self._named(op)
        elif op.name == "linalg.generic":
            self.terms.bind_term(op.results[0], BodyDecomposer(self.terms, op).run())
        elif op.name in _MOVED:
            self._view(op)
        elif op.name in _REQUESTS:
            self._layout_request(op)
        elif op.name == "sdsc.clone":
            source = self.terms.materialize(op.operands[0], op.location)
            self.terms.bind(op.results[0], self.terms.copied(source, op.location), is_private=True)
        elif op.name == "tensor.cast":
            # A cast between static types of one shape changes the encoding, which only an argument has.
            _static(op.results[0].type, op)
            self.terms.alias(op.results[0], op.operands[0])
        elif op.name in _KEPT or (op.results and isinstance(op.results[0].type, ir.IndexType)):
            # Empty tensors and indices stay; a constant tensor is rebuilt in the device's type.
            if op.name != "arith.constant" or not isinstance(op.results[0].type, ir.RankedTensorType):
                return
            self.terms.bind_constant(op)
        elif op.name == LOOP:
            rewrite_loop(self.terms, op, self._visit)
            return
        elif op.name == CALL:
            rewrite_call(self.terms, op)
            return
        elif op.name == "tensor.concat":
            self._concat(op)
        elif op.name == "tensor.pad":
            self._pad(op)
        elif op.name == "tensor.insert_slice":
            self._insert_slice(op)
        elif op.name == "tm_tensor.scan":
            self._scan(op)
        elif op.name == "func.return":
            self._return(op)
            return
        else:
            if op.name == ASSERT:
                check_assertion(op)
            name = TorchCall.of(op).operator if is_torch_call(op) else op.name
            raise error_at(op, f"'{name}' has no device operation; {_advice(op)}")
        self.replaced.append(op)

    def _named(self, op: ir.Operation) -> None:
        """Rebuild on device tensors an operation that an earlier pass named."""
        generic = structured(op)
        assert generic is not None
        inputs = [self.terms.materialize(value, op.location) for value in generic.inputs]
        result = rebuilt(generic, inputs, element=device_element(element_of(generic.result), op.location))
        self.terms.bind(op.results[0], result, is_private=True)

    def _view(self, op: ir.Operation) -> None:
        source = self.terms.materialize(op.operands[0], op.location)
        # No operation changes the layout of 8-bit elements, so the cast to 8 bits is moved after the view.
        cast = narrowing_cast(source)
        copy = op.clone().operation
        copy.operands[0] = source if cast is None else cast.inputs[0]
        type_, source_type = _static(op.results[0].type, copy), ir.RankedTensorType(copy.operands[0].type)
        # Upstream's verifier requires slices to have the encoding of their source.
        encoding = source_type.encoding if op.name == "tensor.extract_slice" else None
        copy.results[0].set_type(ir.RankedTensorType.get(type_.shape, source_type.element_type, encoding))
        if cast is None:
            self.terms.bind(op.results[0], copy.results[0])
        else:
            constants = sdsc.constants_of(cast.op)
            element = element_of(cast.result)
            narrow = elementwise(cast.opcode, copy.results[0], element, cast.op.location, constants)
            self.terms.bind(op.results[0], narrow, is_private=True)

    def _layout_request(self, op: ir.Operation) -> None:
        """Rebuild a ``stick.pin`` or ``stick.restickify`` at the same place on the device tensor."""
        if stick.TO not in op.attributes:
            raise error_at(
                op,
                f"'{op.name}' has no layout ('{stick.TO}'); IR with chosen layouts enters at level laid-out",
            )
        source = self.terms.materialize(op.operands[0], op.location)
        # After CSE, fills with one number are one value, which has no buffer that could have two layouts.
        if op.name == "stick.pin" and self.terms[op.operands[0]].splat is not None:
            layout = self.pinned.setdefault(op.operands[0], op.attributes[stick.TO])
            if layout != op.attributes[stick.TO]:
                source = self.terms.copied(source, op.location)
        copy = op.clone().operation
        copy.operands[0] = source
        copy.results[0].set_type(stick.without_layout(source.type))
        reason = why_not_a_layout(stick.requested_layout(copy))
        if reason is not None:
            raise error_at(op, f"a tensor of type {copy.results[0].type} cannot have this layout: {reason}")
        self.terms.bind(op.results[0], copy.results[0], is_private=op.name == "stick.restickify")

    def _concat(self, op: ir.Operation) -> None:
        dim = ir.IntegerAttr(op.attributes["dim"]).value
        shape = list(_static(op.results[0].type, op).shape)
        sources = [
            self.terms.private_buffer(operand, op.location, sole_reader=True) for operand in op.operands
        ]
        whole = empty(shape, element_type(sources[0]))
        start = 0
        for source in sources:
            offsets = [0] * len(shape)
            offsets[dim] = start
            whole = _inserted(source, whole, offsets)
            start += shape_of(source)[dim]
        self.terms.bind(op.results[0], whole, is_private=True)

    def _pad(self, op: ir.Operation) -> None:
        low = list(ir.DenseI64ArrayAttr(op.attributes["static_low"]))
        high = list(ir.DenseI64ArrayAttr(op.attributes["static_high"]))
        # Dynamic amounts are negative here, because upstream marks them with a negative number in static lists.
        if min(*low, *high, 0) < 0:
            raise error_at(op, "a pad by a negative or dynamic amount has no device operation")
        shape = list(_static(op.results[0].type, op).shape)
        value = scalar_of(terminator(op.regions[0].blocks[0]).operands[0])
        if value is None:
            raise error_at(op, "a pad needs a constant value")
        part = self.terms.materialize(op.operands[0], op.location)
        whole = self.terms.filled(shape, element_of(part), value, op.location)
        # The part is copied after the whole is written; otherwise the whole would overwrite the part.
        whole = _inserted(sdsc.clone(part, op.location), whole, low)
        self.terms.bind(op.results[0], whole, is_private=True)

    def _scan(self, op: ir.Operation) -> None:
        """Add the elements before each element, at distances 1, 2, 4 and so on, in log2(size) steps."""
        # Partial sums stay in f32; partial products would be rounded in each step.
        body = [inner.operation.name for inner in op.regions[0].blocks[0].operations]
        is_sum = body[0] == "arith.addf" and len(body) == 2 and use_empty(op.results[1])
        if not is_sum or not ir.BoolAttr(op.attributes["inclusive"]).value:
            raise error_at(
                op, f"'{op.name}' has no device operation; only sums that include each element have"
            )
        if self.terms[op.operands[2]].splat != 0:
            raise error_at(op, "a scan on the device begins with 0")
        dim = ir.IntegerAttr(op.attributes["dimension"]).value
        value, shape = self.terms.materialize(op.operands[0], op.location), list(shape_of(op.results[0]))
        element, every = device_element(element_of(op.results[0]), op.location), tuple(range(len(shape)))
        size, distance = shape[dim], 1
        while distance < size:
            offsets, first, later = [0] * len(shape), list(shape), list(shape)
            offsets[dim], first[dim], later[dim] = distance, distance, size - distance
            pair = [extracted(value, offsets, later), extracted(value, [0] * len(shape), later)]
            sums = device_op("add", pair, [every, every], later, element, location=op.location)
            whole = empty(shape, element_type(value))
            begin = sdsc.clone(extracted(value, [0] * len(shape), first), op.location)
            value = _inserted(sums, _inserted(begin, whole, [0] * len(shape)), offsets)
            distance *= 2
        self.terms.bind(op.results[0], value, is_private=size > 1)

    def _insert_slice(self, op: ir.Operation) -> None:
        """Insert a part into its buffer, through a copy unless the buffer is an iter_arg of a loop."""
        offsets, sizes, strides = (
            list(ir.DenseI64ArrayAttr(op.attributes["static_" + key]))
            for key in ("offsets", "sizes", "strides")
        )
        indices = iter(list(op.operands)[2:])
        if any(step != 1 for step in strides) or any(offsets_of(index) is None for index in op.operands[2:]):
            raise error_at(
                op, "an insert_slice needs constants or run-time indices as offsets, and unit strides"
            )
        mixed = [next(indices) if offset == DYNAMIC else offset for offset in offsets]
        private = partial(self.terms.private_buffer, location=op.location, sole_reader=True)
        # The buffer of an iter_arg is written before a part of it is computed, so no copy is needed.
        if _is_whole(op):
            part, whole = (
                private(op.operands[0]),
                empty(
                    shape_of(op.results[0]), element_type(self.terms.materialize(op.operands[0], op.location))
                ),
            )
        elif op.parent.operation.name == LOOP:
            part, whole = private(op.operands[0]), private(op.operands[1])
        else:
            part, whole = self.terms.materialize(op.operands[0], op.location), self._buffer(op)
            part = sdsc.clone(part, op.location)
        self.terms.bind(op.results[0], _inserted(part, whole, mixed, sizes), is_private=True)

    def _buffer(self, op: ir.Operation) -> ir.Value:
        """Return the buffer of an insertion; an uninitialized one is filled with zeros, the numbers on the host."""
        if not _is_empty(op.operands[1]):
            return self.terms.private_buffer(op.operands[1], op.location, sole_reader=True)
        element = device_element(element_of(op.results[0]), op.location)
        return self.terms.filled(shape_of(op.results[0]), element, 0.0, op.location)


def _is_whole(op: ir.Operation) -> bool:
    """Return whether an insertion into an uninitialized tensor begins a row of insertions that write all of it."""
    written = sum(map(math.prod, _disjoint_insertions(op)))
    return _is_empty(op.operands[1]) and written == math.prod(shape_of(op.results[0]))


def _disjoint_insertions(op: ir.Operation) -> list[list[int]]:
    """Return the sizes of an insertion and of the insertions after it that alone read its result, while disjoint."""
    boxes: list[tuple[list[int], list[int]]] = []
    while op.name == "tensor.insert_slice":
        offsets, sizes = (
            list(ir.DenseI64ArrayAttr(op.attributes[f"static_{key}"])) for key in ("offsets", "sizes")
        )
        overlaps = any(
            all(a < b + m and b < a + n for a, n, b, m in zip(offsets, sizes, *box, strict=True))
            for box in boxes
        )
        if DYNAMIC in (*offsets, *sizes) or overlaps:
            break
        boxes.append((offsets, sizes))
        uses = list(op.results[0].uses)
        if len(uses) != 1 or uses[0].operand_number != 1:
            break
        op = uses[0].owner.operation
    return [sizes for _, sizes in boxes]


def _inserted(
    part: ir.Value, whole: ir.Value, offsets: Sequence[int | ir.Value], sizes: Sequence[int] | None = None
) -> ir.Value:
    """Insert a part into a buffer; a buffer that is itself assembled from parts is copied first."""
    maker = defining_op(part)
    if maker is not None and maker.name == "tensor.insert_slice":
        part = sdsc.clone(part, ir.Location.current)
    return inserted(part, whole, offsets, sizes)


def _advice(op: ir.Operation) -> str:
    """Return the advice for an op that is not linalg: the upstream pass that lowers its dialect, if there is one."""
    if any(isinstance(value.type, ir.MemRefType) for value in (*op.operands, *op.results)):
        return "a program uses tensors, as before bufferization"
    if op.name == ASSERT:
        return "the host checks assertions"
    if is_torch_call(op):
        return "PyTorch's own kernel computes it"
    passes = _LOWERINGS.get(op.name.partition(".")[0])
    return f"{passes} converts it to linalg" if passes else "expected linalg on static tensors"


def _are_equivalent(one: ir.Value, other: ir.Value) -> bool:
    """Return whether CSE would merge two values, for example values that differ only in their host types."""
    if one == other:
        return True
    makers = [maker for value in (one, other) if (maker := defining_op(value)) is not None]
    if len(makers) < 2 or one.type != other.type or makers[0].name != makers[1].name:
        return False
    first, second = ({name: maker.attributes[name] for name in maker.attributes} for maker in makers)
    operands = [list(maker.operands) for maker in makers]
    return first == second and len(operands[0]) == len(operands[1]) and all(map(_are_equivalent, *operands))


def _static(type_: ir.Type, op: ir.Operation) -> ir.RankedTensorType:
    if not isinstance(type_, ir.RankedTensorType):
        raise error_at(op, f"{type_} is not a ranked tensor; arguments and results of a program are tensors")
    if not ir.RankedTensorType(type_).has_static_shape:
        raise error_at(op, f"type {type_} has no static shape; the device needs all sizes at compile time")
    if 0 in ir.RankedTensorType(type_).shape:
        raise error_at(op, f"type {type_} has no elements; there is nothing to compute")
    return ir.RankedTensorType(type_)


# Loops on the device's tensors, while linalg becomes device operations.


def rewrite_loop(terms: Terms, loop: ir.Operation, visit: Callable[[ir.Operation], None]) -> None:
    """Convert the iter_args of a loop to device tensors; ``visit`` rewrites each operation of its body."""
    initial = range(3, len(loop.operands))
    carried = [loop.operands[number] for number in initial]
    # Values that the body reads from outside are materialized before the loop, so that later ops can use them, too.
    for value in dict.fromkeys(list(read_by(loop))[len(loop.operands) :]):
        if isinstance(value.type, ir.RankedTensorType) and not _is_empty(value):
            terms.bind(value, terms.materialize(value, loop.location))
    buffers: list[ir.Value] = []
    for number, value in zip(initial, carried, strict=True):
        if _is_empty(value):
            element = device_element(element_of(value), loop.location)
            buffers.append(empty(shape_of(value), ir.Type.parse(element)))
        else:
            buffers.append(terms.private_buffer(value, loop.location, frozenset(buffers), sole_reader=True))
        loop.operands[number] = buffers[-1]
    block = body_block(loop)
    for argument, buffer in zip(list(block.arguments)[1:], buffers, strict=True):
        argument.set_type(buffer.type)
        terms.bind(argument, argument, is_private=True)
    *ops, end = [op.operation for op in block.operations]
    for op in ops:
        with ir.InsertionPoint(op), op.location:
            visit(op)
    with ir.InsertionPoint(end), end.location:
        for number, value in enumerate(list(end.operands)):
            end.operands[number] = terms.materialize(value, end.location)
    for result, buffer in zip(loop.results, buffers, strict=True):
        result.set_type(buffer.type)
        terms.bind(result, result, is_private=True)


def rewrite_call(terms: Terms, call: ir.Operation) -> None:
    """Convert operands and results of a call to the device tensors of its callee; each result has a separate buffer.

    The callee is an outlined loop body. It precedes the function, so it has already been rewritten.
    """
    callee = callee_of(call)
    if callee is None or "sym_visibility" not in callee.attributes:
        raise error_at(call, "a program is one function; a callee must be private and have a body")
    for number, value in enumerate(list(call.operands)):
        call.operands[number] = terms.materialize(value, call.location)
    types = ir.FunctionType(ir.TypeAttr(callee.attributes["function_type"]).value).results
    for result, type_ in zip(call.results, types, strict=True):
        result.set_type(type_)
        terms.bind(result, result, is_private=True)


def _is_empty(value: ir.Value) -> bool:
    """Return whether a value is an uninitialized buffer."""
    maker = defining_op(value)
    return maker is not None and maker.name == "tensor.empty"


# Lookups in a table: ``tensor.extract`` at an index that is data, as in ``embedding`` and ``index_select``.

#: Represents the dim of the table that is indexed by data.
_ROW = -1


def gathered_rows(terms: Terms, op: ir.Operation) -> Term | None:
    """Rewrite a lookup as a gather; None for another op, or a lookup that does not gather rows.

        %y = linalg.generic ins(%i : tensor<3xi64>) outs(..) { tensor.extract %table[%in, %d1] }
    ->  %y = linalg.generic ins(%i, %table) outs(..) {sdsc.op = #sdsc.op<"gather", {}>}, reduced over the rows

    One dim of the table is indexed by the single input; each other dim is indexed in full by a separate iteration dim.
    The result has all iteration dims in order. Negative indices are not supported (PyTorch's embedding refuses them),
    unless the lookup itself counts them from the end, as ``table[index]`` does: they are then converted first.
    """
    generic = structured(op)
    extract = None if generic is None else _extract_of(generic)
    if generic is None or extract is None:
        return None
    source, *indices = extract.operands
    shape, argument = shape_of(source), generic.body.arguments[0]
    dims = list[int | None]()
    for index, size in zip(indices, shape, strict=True):
        dim, position = _counted_dim(index), _position_of(index)
        # A dim of one element may be read at 0.
        if dim is None and not (size == 1 and scalar_of(index) == 0):
            if position is None or not (position == argument or _is_wrapped(position, argument, size)):
                return None
            dim = _ROW
        dims.append(dim)
    if dims.count(_ROW) != 1:
        return None
    rank, row = len(generic.extents), dims.index(_ROW)
    # Whole rows: the iteration dims are the dims of the positions and of the rows, each in full.
    places = (*dims, *generic.maps[0])
    read = [dim for dim in places if dim not in (None, _ROW)]
    unread = [dim for dim, extent in enumerate(generic.extents) if extent == 1 and dim not in read]
    if generic.maps[-1] != tuple(range(rank)) or sorted([*read, *unread]) != list(range(rank)):
        return None
    if any(
        dim not in (None, _ROW) and generic.extents[dim] != size
        for dim, size in zip(dims, shape, strict=True)
    ):
        return None
    table = terms.materialize(source, op.location)
    positions = terms.materialize(generic.inputs[0], op.location)
    if _position_of(indices[row]) != argument:
        # p + rows * (p < 0), compared in f32 because the device cannot compare integers.
        every = tuple(range(len(shape_of(positions))))

        def emit(opcode: str, element: str, *inputs: ir.Value) -> ir.Value:
            maps = [every if shape_of(value) else () for value in inputs]
            return device_op(opcode, inputs, maps, shape_of(positions), element, location=op.location)

        numbers = emit("int32tofp32", "f32", positions)
        below = emit("fp32toint32", "i32", emit("lesserthan", "f32", numbers, number_tensor(0, "f32")))
        offset = emit("muli32toi32", "i32", below, number_tensor(shape[row], "i32"))
        positions = emit("addi32toi32", "i32", positions, offset)
    kept = tuple(dim for dim in range(rank) if dim not in unread)
    result = device_op(
        "gather",
        [positions, table],
        [generic.maps[0], tuple(rank if dim == _ROW else dim for dim in dims)],
        [*generic.extents, shape[row]],
        element_of(table),
        location=op.location,
        reduced=[rank],
        result_map=kept,
    )
    return Term(result, kept)


def looked_up_part(terms: Terms, op: ir.Operation) -> Term | None:
    """Return the slice that a lookup at known positions reads, with the dims of the result; None for another op.

    %y = linalg.generic outs(..) { tensor.extract %table[%c3, %d1] }    -> row 3 of the table, for all of d0
    """
    generic = structured(op)
    extract = None if generic is None else _extract_of(generic, inputs=0)
    if generic is None or extract is None or generic.maps[-1] != tuple(range(len(generic.extents))):
        return None
    source, *indices = extract.operands
    shape, offsets, dims = shape_of(source), [], []
    for index, size in zip(indices, shape, strict=True):
        number, dim = scalar_of(index), _counted_dim(index)
        if number is not None and not 0 <= number < size:
            return None
        if number is None and (dim is None or dim in dims or generic.extents[dim] != size):
            return None
        offsets.append(0 if number is None else int(number))
        dims.append(dim)
    result_dims = [dim for dim in dims if dim is not None]
    sizes = [1 if dim is None else generic.extents[dim] for dim in dims]
    table = terms.materialize(source, op.location)
    part = extracted(table, offsets, sizes, reduced_shape=[generic.extents[dim] for dim in result_dims])
    return Term(part, tuple(result_dims))


def _extract_of(generic: Structured, inputs: int = 1) -> ir.Operation | None:
    """Return the ``tensor.extract`` that an op with ``inputs`` inputs yields; None if there is none."""
    if len(generic.inputs) != inputs or generic.reduced:
        return None
    yielded = list(generic.body.operations)[-1].operation.operands[0]
    extract = defining_op(yielded)
    return extract if extract is not None and extract.name == "tensor.extract" else None


def _counted_dim(index: ir.Value) -> int | None:
    """Return the iteration dim that an index is (``linalg.index``); None if it is not one."""
    op = defining_op(index)
    return (
        ir.IntegerAttr(op.attributes["dim"]).value if op is not None and op.name == "linalg.index" else None
    )


def _position_of(index: ir.Value) -> ir.Value | None:
    """Return the integer that an index is cast from; None if it is not a cast."""
    op = defining_op(index)
    return op.operands[0] if op is not None and op.name == "arith.index_cast" else None


def _is_wrapped(position: ir.Value, argument: ir.Value, rows: int) -> bool:
    """Return whether a position is ``argument < 0 ? argument + rows : argument``."""
    select = defining_op(position)
    if select is None or select.name != "arith.select" or select.operands[2] != argument:
        return False
    below, wrapped = (defining_op(value) for value in list(select.operands)[:2])
    if below is None or below.name != "arith.cmpi" or wrapped is None or wrapped.name != "arith.addi":
        return False
    # The predicate 2 is "less" of signed integers.
    is_below = ir.IntegerAttr(below.attributes["predicate"]).value == 2
    compared, added = ((op.operands[0], scalar_of(op.operands[1])) for op in (below, wrapped))
    return is_below and compared == (argument, 0) and added == (argument, rows)


# Decompose a ``linalg.generic`` into device operations: scalar ops of the body, the reduction, the contraction.


#: Operations in which a constant is a scale; in others an error below the device's smallest number is acceptable.
_SCALING = ("mul", "realdiv", "reciprocal")

#: The intermediate element type of a cast in two steps. Values cast to 8 bits are already numbers of the 8-bit format.
_BETWEEN = {
    ("f16", "i32"): "f32", ("i32", "f16"): "f32", ("i32", "i8"): "f32", ("i32", "f8E4M3FN"): "f32",
    ("f32", "i8"): "f16", ("f32", "f8E4M3FN"): "f16", ("f8E4M3FN", "f32"): "f16", ("f8E4M3FN", "i32"): "f16",
}  # fmt: skip

#: Constants of casts without scaling: numbers are scaled before the cast.
_CAST_CONSTANTS = {"csqint8ch": {"scaleact": 1.0, "shiftact": 0.0}}


@dataclass(frozen=True)
class Node:
    """A scalar of the body: a constant, or a device tensor over some iteration dims (in ``dims`` order)."""

    value: ir.Value | None
    dims: tuple[int | None, ...] = ()
    constant: float | None = None

    @property
    def element(self) -> str:
        assert self.value is not None
        return element_of(self.value)

    def tensor(self, element: str) -> ir.Value:
        """Return the device tensor; for a constant, a rank-0 tensor of this element type."""
        if self.value is not None:
            return self.value
        assert self.constant is not None
        return number_tensor(self.constant, element)


class NodeBuilder:
    """Build device operations for one ``linalg`` op at the current insertion point."""

    def __init__(self, op: ir.Operation, extents: Sequence[int]) -> None:
        self.op = op
        self.extents = extents

    def emit(self, opcode: str, nodes: list[Node], element: str | None = None, **constants: float) -> Node:
        """Build one device operation over the dims of its operands."""
        element = element or next(node.element for node in nodes if node.value is not None)
        described = DEVICE_OPS.get(opcode)
        if element in ONE_BYTE and not (DEVICE_OPS[opcode].kind is Kind.CAST or DEVICE_OPS[opcode].is_copy):
            raise error_at(
                self.op, f"'{opcode}' does not support {element}: only matmuls, casts and copies support it"
            )
        is_wide = any(node.constant is not None and not fits_fp16(node.constant) for node in nodes)
        if element == "f16" and is_wide and described is not None and FP32 in described.formats:
            # fp16 cannot represent the constant, so the operation runs in f32 and its result is rounded.
            wide = []
            for node in nodes:
                # The device would round a smaller constant to 0, which is harmless only in a scale.
                if node.constant and abs(node.constant) < DL16_SMALLEST and opcode not in _SCALING:
                    node = Node(None, constant=math.copysign(DL16_SMALLEST, node.constant))
                wide.append(self.cast(node, "f32", self.op))
            return self.cast(self.emit(opcode, wide, "f32", **constants), "f16", self.op)
        # In the order of the operand with the most dims, so that it is not transposed. Other dims come where the
        # iteration has them: at the end they would be the stick dim of the result.
        widest = max(nodes, key=lambda node: len(node.dims))
        dims = [dim for dim in widest.dims if dim is not None]
        for dim in sorted({dim for node in nodes for dim in node.dims if dim is not None} - set(dims)):
            later = (index for index, other in enumerate(dims) if other > dim)
            dims.insert(next(later, len(dims)), dim)
        return self._build(opcode, nodes, dims, element, constants)

    def _build(
        self,
        opcode: str,
        nodes: Sequence[Node],
        dims: list[int],
        element: str,
        constants: Mapping[str, float] | None = None,
        reduced: Sequence[int] = (),
    ) -> Node:
        """Build one device operation over ``dims``, of which some are ``reduced``."""
        where: dict[int | None, int | None] = {None: None, **{dim: index for index, dim in enumerate(dims)}}
        result = device_op(
            opcode,
            [node.tensor(element) for node in nodes],
            [tuple(where[dim] for dim in node.dims) for node in nodes],
            [self.extents[dim] for dim in dims],
            element,
            location=self.op.location,
            reduced=[index for index, dim in enumerate(dims) if dim in reduced],
            constants=constants,
        )
        return Node(result, tuple(dim for dim in dims if dim not in reduced))

    def cast(self, node: Node, element: str, op: ir.Operation) -> Node:
        """Cast a node to another element type with one or more casts of the device."""
        if node.value is None or node.element == element:
            return node
        if (node.element, element) in _BETWEEN:
            return self.cast(self.cast(node, _BETWEEN[node.element, element], op), element, op)
        try:
            opcode = cast_between(node.element, element)
        except KeyError:
            raise error_at(op, f"a cast from {node.element} to {element} has no device operation") from None
        return self.emit(opcode, [node], element, **_CAST_CONSTANTS.get(opcode, {}))

    def broadcast(self, node: Node, missing: list[int]) -> Node:
        """Broadcast a node along reduced dims that it does not have."""
        dims = sorted({*(dim for dim in node.dims if dim is not None), *missing})
        return self._build("identity", [node], dims, node.element)

    def reduce(self, node: Node, reduced: Sequence[int | None], opcode: str) -> Node:
        """Reduce some dims of a node."""
        assert node.value is not None
        shape = shape_of(node.value)
        result = device_op(
            opcode,
            [node.value],
            [tuple(range(len(shape)))],
            shape,
            node.element,
            location=self.op.location,
            reduced=[position for position, dim in enumerate(node.dims) if dim in reduced],
        )
        return Node(result, tuple(dim for dim in node.dims if dim not in reduced))

    def matmul(self, lhs: Node, rhs: Node, contracted: int, element: str) -> Node:
        """Multiply two nodes and sum over a dim of both."""
        dims = sorted({dim for node in (lhs, rhs) for dim in node.dims if dim is not None})
        opcode = PRODUCTS["f16" if lhs.element == "f32" else lhs.element]
        return self._build(opcode, [lhs, rhs], dims, element, reduced=[contracted])


class BodyDecomposer:
    """Decompose the body of one op; ``run`` returns the term of its result."""

    def __init__(self, terms: Terms, op: ir.Operation) -> None:
        generic = structured(op)
        if generic is None:
            why = "several results" if len(op.results) > 1 else "an indexing map that computes indices"
            raise error_at(op, f"a linalg.generic with {why} has no device operation")
        self.terms = terms
        self.generic: Structured = generic
        self.op = op
        self.builder = NodeBuilder(op, generic.extents)
        self.nodes: dict[ir.Value, Node] = {}
        #: Conditions that are false exactly where a comparison of the body is true.
        self.complements: dict[ir.Value, Node] = {}

    def run(self) -> Term:
        body = self.generic.body
        inputs = zip(list(body.arguments)[:-1], self.generic.inputs, self.generic.maps, strict=False)
        # An input that the body does not read has a shape but may not have values: the window of a pooling.
        self.nodes.update(
            (number, self._node(value, dims)) for number, value, dims in inputs if not use_empty(number)
        )
        *ops, terminator = [op.operation for op in body.operations]
        yielded = terminator.operands[0]
        accumulator = body.arguments[len(body.arguments) - 1]
        if self.generic.reduced:
            return self._reduction(ops, yielded, accumulator)
        # Most bodies overwrite their destination, which then is not an operand.
        if any(accumulator in list(op.operands) for op in ops) or yielded == accumulator:
            self.nodes[accumulator] = self._node(self.generic.output, self.generic.maps[-1])
        self._elementwise(ops)
        node = self._lookup(yielded)
        # A boolean has the format of the compared values, but as a result of the op it is fp16.
        return self._term(self.builder.cast(node, "f16", self.op) if str(yielded.type) == "i1" else node)

    # -- nodes ----------------------------------------------------------------------------------------

    def _node(self, value: ir.Value, dims: Map) -> Node:
        """Return an operand as a node over the iteration dims, through the dim selection of its term."""
        term = self.terms[value]
        if term.value is None:
            return Node(None, constant=term.splat)
        return Node(term.value, tuple(None if dim is None else dims[dim] for dim in term.dims))

    def _lookup(self, value: ir.Value) -> Node:
        if value in self.nodes:
            return self.nodes[value]
        return Node(None, constant=self.terms[value].splat)

    def _term(self, node: Node) -> Term:
        """Return a node as the term of the op's result: convert iteration dims to result dims."""
        if node.value is None:
            return Term(None, splat=node.constant)
        where = {dim: position for position, dim in enumerate(self.generic.maps[-1]) if dim is not None}
        return Term(node.value, tuple(None if dim is None else where[dim] for dim in node.dims))

    # -- elementwise ----------------------------------------------------------------------------------

    def _elementwise(self, ops: list[ir.Operation]) -> None:
        for op in ops:
            self.nodes[op.results[0]] = self._scalar(op)

    def _scalar(self, op: ir.Operation) -> Node:
        number = scalar.scalar_constant(op)
        if number is not None:
            return Node(None, constant=number)
        if op.name == "tensor.extract" and len(op.operands) == 1:
            return self._node(op.operands[0], ())
        if op.name in scalar.CASTS:
            return self._cast(op)
        nodes = [self._lookup(operand) for operand in op.operands]
        if op.name in ("math.fpowi", "math.powf"):
            return self._power(op, *nodes)
        if op.name == "math.roundeven" and nodes[0].value is not None:
            return rounded(self.builder, nodes[0], op)
        if op.name == "arith.cmpf":
            return self._comparison(op, *nodes)
        if op.name in scalar.WITHOUT_NAN:
            # If one of the numbers is NaN, the other.
            element = next((node.element for node in nodes if node.value is not None), "f32")
            result = self._apply(scalar.WITHOUT_NAN[op.name], nodes)
            for node, other in (nodes[::-1], nodes):
                result = self._apply("where3", [self._apply("equal", [node, node]), result, other], element)
            return result
        if op.name == "arith.select" and op.operands[0] in self.complements:
            nodes = [self.complements[op.operands[0]], nodes[2], nodes[1]]
        return self._apply(self._opcode(op), nodes, str(op.results[0].type))

    def _apply(self, opcode: str, nodes: list[Node], result: str = "") -> Node:
        """Return an operation on nodes, or its value if all nodes are constants."""
        if all(node.value is None for node in nodes):
            values = [node.constant for node in nodes if node.constant is not None]
            return Node(None, constant=scalar.wrapped(scalar.fold(opcode, values), result))
        if opcode == "where3":
            return self._where(nodes, result)
        # The device has a reciprocal operation, which does not need a constant in memory.
        if opcode == "realdiv" and nodes[0].constant == 1.0:
            return self.builder.emit("reciprocal", nodes[1:])
        # Booleans have the format of the compared values, here the format of the first operand.
        first = next((node.element for node in nodes if node.value is not None), "")
        return self.builder.emit(opcode, [self.builder.cast(node, first, self.op) for node in nodes])

    def _where(self, nodes: list[Node], result: str) -> Node:
        """Emit ``where3``, which requires its condition in the element type of its values."""
        condition, *values = nodes
        if condition.value is None:
            return values[0] if condition.constant else values[1]
        element = next((value.element for value in values if value.value is not None), None)
        element = element or device_element(result, self.op.location)
        return self.builder.emit(
            "where3", [self.builder.cast(node, element, self.op) for node in nodes], element
        )

    def _opcode(self, op: ir.Operation) -> str:
        if op.name == "arith.cmpi" and str(op.operands[0].type) == "i1":
            return scalar.LOGICAL_COMPARISONS[ir.IntegerAttr(op.attributes["predicate"]).value]
        result = str(op.results[0].type)
        if op.name in scalar.LOGICAL and result == "i1":
            return scalar.LOGICAL[op.name]
        if op.name not in scalar.DIRECT:
            raise error_at(op, f"'{op.name}' has no device operation; see the device-operation table")
        # An overflow of the device's 32 bits would not be detected.
        if op.name in scalar.INTEGER and result == "i64":
            raise error_at(
                op, f"'{op.name}' on 64-bit integers has no device operation; the device has 32-bit integers"
            )
        return scalar.DIRECT[op.name]

    def _comparison(self, op: ir.Operation, first: Node, second: Node) -> Node:
        """Build an ``arith.cmpf``, and record its complement if the complement needs one operation less."""
        predicate = ir.IntegerAttr(op.attributes["predicate"]).value
        if predicate in scalar.COMPARISONS:
            return self._apply(scalar.COMPARISONS[predicate], [first, second])
        if predicate in (7, 14):  # "ord": both are numbers; "uno": not both
            same, combine = ("equal", "mul") if predicate == 7 else ("notequal", "maximum")
            return self._apply(combine, [self._apply(same, [node, node]) for node in (first, second)])
        if predicate in scalar.COMPLEMENTS:
            opposite = self._apply(scalar.COMPARISONS[scalar.COMPLEMENTS[predicate]], [first, second])
        elif predicate in (6, 8):  # "one": smaller or larger; "ueq": neither
            sides = [self._apply(opcode, [first, second]) for opcode in ("lesserthan", "greaterthan")]
            opposite = self._apply("maximum", sides)
            if predicate == 6:
                return opposite
        else:
            return Node(None, constant=float(predicate == 15))
        self.complements[op.results[0]] = opposite
        return self._apply("equal", [opposite, Node(None, constant=0.0)])

    def _power(self, op: ir.Operation, base: Node, exponent: Node) -> Node:
        """Return a power as a chain of products, roots or a reciprocal."""
        if exponent.constant is not None and base.value is None:
            with np.errstate(all="ignore"):
                return Node(None, constant=float(np.float64(base.constant or 0.0) ** exponent.constant))
        chain = scalar.power(exponent.constant) if exponent.constant is not None else None
        if chain is None:
            raise error_at(
                op, "a power with this exponent has no device operation; 1, 2, 3, 4, 0.5, -0.5 and -1 have"
            )
        node = base
        for step in chain:
            if step == "mul":
                node = self._apply("mul", [node, base])
            elif step == "square":
                node = self._apply("mul", [node, node])
            elif step != "identity":
                node = self._apply(step, [node])
        return node

    def _cast(self, op: ir.Operation) -> Node:
        node = self._lookup(op.operands[0])
        if node.constant is not None:
            return Node(None, constant=scalar.cast_constant(op, node.constant))
        element = str(op.results[0].type)
        if op.name in ("arith.trunci", "arith.fptosi") and element == "i1":
            raise error_at(op, "the lowest bit of an integer has no device operation")
        if op.name == "arith.trunci" and element in ONE_BYTE:
            raise error_at(op, "the lowest 8 bits of an integer have no device operation")
        if element == "f64":
            element = "f32"  # a scalar that the importer widens with extf before a comparison or truncf
        if element in ONE_BYTE:
            node = representable(self.builder, node, element, op)
        elif node.element == "i8" and element != "i8":
            node = widened(node, op)
        node = as_read(self.builder, node, op)
        return self.builder.cast(node, device_element(element, op.location), op)

    # -- reductions -----------------------------------------------------------------------------------

    def _reduction(self, ops: list[ir.Operation], yielded: ir.Value, accumulator: ir.Value) -> Term:
        """Return the term of a reduction: its body without the combination, reduced by one device operation."""
        combine = next((op for op in ops if op.results[0] == yielded), None)
        if combine is not None and combine.name == "arith.addi":
            return self._integer_sum(ops, combine, accumulator)
        combination = scalar.combination(combine.name) if combine is not None else None
        if combine is None or combination is None or accumulator not in list(combine.operands):
            raise error_at(
                self.op, "this reduction has no device operation; sums, products, minima and maxima have"
            )
        source = next(operand for operand in combine.operands if operand != accumulator)
        others = [op for op in ops if op != combine]
        if any(accumulator in list(op.operands) for op in others):
            raise error_at(self.op, "a reduction that uses its accumulator twice has no device operation")
        element = device_element(str(accumulator.type), self.op.location)
        node = self._contraction(others, source) if combine.name == "arith.addf" else None
        if node is None:
            self._elementwise(others)
            operand = self.builder.cast(self._lookup(source), element, self.op)
            if combine.name in scalar.WITHOUT_NAN:
                is_number = self._apply("equal", [operand, operand])
                neutral = Node(None, constant=combination.neutral)
                operand = self._apply("where3", [is_number, operand, neutral], operand.element)
            node = self._reduce(operand, combination)
        # Device reductions begin with the neutral element; any other initial value is combined with the result.
        init = self._node(self.generic.output, self.generic.maps[-1])
        if init.value is None and scalar.is_neutral(combine.name, init.constant, element):
            return self._term(node)
        operands = [node, self.builder.cast(init, element, self.op)]
        return self._term(self.builder.emit(combination.elementwise, operands, element))

    def _reduce(self, node: Node, combination: scalar.Combination) -> Node:
        """Reduce the last dim with the opcode over the stick, and other dims with the opcode over other dims."""
        over_stick, over_others = combination.over_stick, combination.over_others
        if node.value is None:
            raise error_at(self.op, "a reduction of a constant has no device operation")
        missing = [dim for dim in self.generic.reduced if dim not in node.dims]
        if missing:
            node = self.builder.broadcast(node, missing)
        reduced = [dim for dim in node.dims if dim in self.generic.reduced]
        last = node.dims[-1]
        # The last dim first, which leaves fewer elements for the other dims.
        if last in reduced and over_stick != over_others:
            node = self.builder.reduce(node, [last], over_stick)
            reduced.remove(last)
        return self.builder.reduce(node, reduced, over_others) if reduced else node

    def _integer_sum(self, ops: list[ir.Operation], combine: ir.Operation, accumulator: ir.Value) -> Term:
        """Return a sum of products of int8 that starts at 0; other integer sums do not have a device operation."""
        source = next((operand for operand in combine.operands if operand != accumulator), accumulator)
        init = self._node(self.generic.output, self.generic.maps[-1])
        starts_at_0 = init.value is None and not init.constant
        node = self._contraction(ops, source) if starts_at_0 else None
        if node is None or node.element != "i32":
            raise error_at(self.op, "a sum of integers has no device operation, except in a matmul of int8")
        return self._term(node)

    def _contraction(self, ops: list[ir.Operation], source: ir.Value) -> Node | None:
        """Return ``sum_k a[.., k] * b[.., k]`` of two inputs as one batchmatmul; None for another reduction."""
        generic, makers = self.generic, {op.results[0]: op for op in ops}
        product = makers.get(source)
        if product is None or product.name not in ("arith.mulf", "arith.muli") or len(generic.reduced) != 1:
            return None
        (contracted,) = generic.reduced
        if generic.extents[contracted] == 1:
            return None  # one product, no sum
        factors = []
        for value in product.operands:
            cast = makers.get(value)
            is_widened = cast is not None and cast.name in ("arith.extf", "arith.extsi")
            node = self.nodes.get(cast.operands[0] if cast is not None and is_widened else value)
            if node is None or node.value is None:
                return None
            factors.append(node)
        lhs, rhs = factors
        rows, columns = set(lhs.dims) - set(rhs.dims), set(rhs.dims) - set(lhs.dims)
        is_matmul = contracted in lhs.dims and contracted in rhs.dims and bool(rows or columns)
        if is_matmul and not (rows and columns):
            # Matrix times vector: if the contracted dim is in the stick, a product and a sum are enough.
            is_matmul = (rhs if columns else lhs).dims[-1] != contracted
        # The precision policy decides whether the operands of an f32 matmul may be rounded to fp16.
        is_f32 = lhs.element == "f32" and bool(rows and columns)
        if lhs.element != rhs.element or not (is_f32 or lhs.element in PRODUCTS):
            if is_matmul and rows and columns:
                text = f"a matmul supports fp16, fp8 or int8, not {lhs.element} x {rhs.element}; cast the operands"
                raise error_at(self.op, text)
            return None
        if lhs.element in ONE_BYTE and not (rows or columns):
            raise error_at(self.op, f"a matmul of {lhs.element} needs rows or columns")
        if lhs.element not in ONE_BYTE and not is_matmul:
            return None
        element = device_element(str(source.type), self.op.location)
        return self.builder.matmul(lhs, rhs, contracted, element)


# Casts of integers.


def widened(node: Node, op: ir.Operation) -> Node:
    """Return a node of int8 in fp16, by a product with the unit matrix: the device has no such cast.

        w : [rows, inner] i8  ->  sum over k of eye[b, j, k] * w[n, b, k] : [b, j, n] f16, where inner = b * block

    The product is exact, because each sum has one nonzero product, and the array multiplies int8 faster than memory
    supplies it. Columns become rows, which is the order that a matmul requires for the weight of a linear layer.
    ``CompileError`` for a shape that the product does not support.
    """
    assert node.value is not None
    if narrowing_cast(node.value) is not None:
        # The columns are not in pairs, and the operand of the cast may contain integers of more than 8 bits.
        raise error_at(op, "a cast from i8 of a value that the device cast to i8 has no device operation")
    shape = shape_of(node.value)
    block = widening_block(shape, target_of(op).stick_bytes)
    if block is None:
        raise error_at(op, f"a cast from i8 to f16 has no device operation for the shape {list(shape)}")
    *batches, rows, inner = shape
    rank, count = len(batches), inner // block
    groups = [*([dim] for dim in range(rank + 1)), [rank + 1, rank + 2]]
    source = expanded(node.value, groups, [*batches, rows, count, block])
    # One unit matrix per batch, copied from a matrix that the host provides.
    type_ = ir.RankedTensorType.get([block, block], ir.IntegerType.get_signless(8))
    one = constant(ir.DenseElementsAttr.get(np.eye(block, dtype=np.int8), type=type_))
    sizes = [*batches, count, block, block]
    units = device_op("identity", [one], [(rank + 1, rank + 2)], sizes, "i8", location=op.location)
    product = device_op(
        "batchmatmulint8",
        [units, source],
        [(*range(rank + 1), rank + 1, rank + 3), (*range(rank), rank + 2, rank, rank + 3)],
        [*batches, count, block, rows, block],
        "f16",
        location=op.location,
        reduced=[rank + 3],
    )
    merged = collapsed(product, [*([dim] for dim in range(rank)), [rank, rank + 1], [rank + 2]])
    *lead, row, column = node.dims
    return Node(merged, (*lead, column, row))


def as_read(builder: NodeBuilder, node: Node, op: ir.Operation) -> Node:
    """Return the operand of a cast as the cast reads it: for casts of integers, as signed or unsigned numbers.

    On the device booleans are 0 and 1, other integers are signed, and bytes are 16-bit floats, which hold 0 to 255.
    """
    element, reads_sign = str(op.operands[0].type), READS_SIGN.get(op.name)
    if reads_sign is None or reads_sign == (element != "i1"):
        return node
    if element == "i1":
        return builder.emit("neg", [node])
    if element != "i8":
        text = (
            f"'{op.name}' of {element} has no device operation: the device's integers have 32 bits and a sign"
        )
        raise error_at(op, text)
    is_negative = builder.emit("lesserthan", [node, Node(None, constant=0.0)])
    lacking = builder.emit("mul", [is_negative, Node(None, constant=256.0)])
    return builder.emit("add", [node, lacking])


# Rounding of f32 numbers to fewer digits, in f32: the casts that follow are exact, so that numbers are rounded once.
#
# The device casts f32 to 8 bits through DL16, and does not have a rounding to integers. Here both are sums and
# products, each of which the device rounds to nearest, ties to even.

#: x * 2^20 + x - x * 2^20 keeps the first 4 of 24 bits: the bits of an FP8 number (Dekker 1971, Veltkamp's splitting).
_SPLITTER = 2.0**20 + 1

#: In f32 the last place of numbers from 2^23 to 2^24 is 1, and larger numbers are integers.
_INTEGERS = 2.0**23
#: The sum of ``_UNIT`` and a number of a magnitude below 2^22 lies between 2^23 and 2^24.
_UNIT = 1.5 * _INTEGERS


def representable(builder: NodeBuilder, node: Node, element: str, op: ir.Operation) -> Node:
    """Return a node rounded, as in PyTorch, to numbers that an element type of one byte represents."""
    if element == "i8":
        # Towards zero, as for any integer type.
        return builder.cast(node, "i32", op)
    if node.value is None or node.element not in ("f32", "i32"):
        return node  # the cast of the device rounds once
    # Ties go to even; larger numbers saturate to the largest number.
    x = builder.emit("maximum", [builder.cast(node, "f32", op), Node(None, constant=-FP8_MAX)])
    x = builder.emit("minimum", [x, Node(None, constant=FP8_MAX)])
    scaled = builder.emit("mul", [x, Node(None, constant=_SPLITTER)])
    normal = builder.emit("sub", [scaled, builder.emit("sub", [scaled, x])])
    return _below(builder, x, FP8_NORMAL, _to_multiple(builder, x, FP8_STEP), normal)


def rounded(builder: NodeBuilder, node: Node, op: ir.Operation) -> Node:
    """Return a node rounded to integers, ties to even, computed in f32."""
    x = builder.cast(node, "f32", op)
    if node.element != "f32":
        # Numbers of 16 bits are integers from 2^22 on.
        near_0 = _below(builder, x, _INTEGERS / 2, _to_multiple(builder, x, 1.0), x)
        return builder.cast(near_0, node.element, op)
    # The magnitude is rounded, because the last place of a sum with 2^23 is 1 only for positive numbers.
    integers, zero = Node(None, constant=_INTEGERS), Node(None, constant=0.0)
    size = builder.emit("abs", [x])
    whole = builder.emit("sub", [builder.emit("add", [size, integers]), integers])
    is_negative = builder.emit("lesserthan", [x, zero])
    signed = builder.emit("where3", [is_negative, builder.emit("neg", [whole]), whole])
    return builder.emit("where3", [builder.emit("lesserthan", [size, integers]), signed, x])


def _to_multiple(builder: NodeBuilder, x: Node, step: float) -> Node:
    """Round small numbers to multiples of a power of two: adding a large number rounds off all smaller digits."""
    large = Node(None, constant=_UNIT * step)
    return builder.emit("sub", [builder.emit("add", [x, large]), large])


def _below(builder: NodeBuilder, x: Node, limit: float, inner: Node, outer: Node) -> Node:
    """Return ``inner`` where the magnitude of x is below a limit, ``outer`` elsewhere."""
    is_small = builder.emit("lesserthan", [builder.emit("abs", [x]), Node(None, constant=limit)])
    return builder.emit("where3", [is_small, inner, outer])
