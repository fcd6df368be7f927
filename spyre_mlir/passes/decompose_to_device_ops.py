# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Splits linalg ops into ops that each perform one device operation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import ClassVar

from spyre_mlir.analysis.failing_assertions import ASSERT, check_assertion
from spyre_mlir.analysis.loops import LOOP, body_block, offsets_of
from spyre_mlir.analysis.quantized_matmuls import check_one_byte, narrowing_cast
from spyre_mlir.diagnostics import error_at
from spyre_mlir.dialects import sdsc, stick
from spyre_mlir.dialects.indices import INDEX_ARGUMENT
from spyre_mlir.dialects.structured import (
    Structured,
    defining_op,
    device_op,
    element_of,
    rebuilt,
    shape_of,
    structured,
)
from spyre_mlir.dialects.targets import target_of
from spyre_mlir.dialects.torch_call import TorchCall, is_torch_call
from spyre_mlir.errors import CompileError
from spyre_mlir.layout.requests import why_not_a_layout
from spyre_mlir.mlir import ir, location_of, source_operation
from spyre_mlir.passes.base import Pass
from spyre_mlir.passes.verify_device_ops import verify_device_ops
from spyre_mlir.records import dataclass
from spyre_mlir.rewriting.body_decomposer import BodyDecomposer
from spyre_mlir.rewriting.body_operations import scalar_constant
from spyre_mlir.rewriting.linalg_values import Term, Terms, device_element
from spyre_mlir.rewriting.loop_bodies import CALL, callee_of
from spyre_mlir.rewriting.narrow_numbers import recast
from spyre_mlir.rewriting.outlining import read_by
from spyre_mlir.rewriting.tensor_builders import extracted

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

    def run(self, module: ir.Operation) -> None:
        for op in list(module.regions[0].blocks[0].operations):
            if op.operation.name != "func.func" or not op.operation.regions[0].blocks:
                continue
            if _is_on_device_types(op.operation):
                # The operations were named elsewhere, so their bodies must be checked against the names.
                verify_device_ops(op.operation, meaning=True)
            else:
                _FunctionDecomposer(op.operation).run()


class _FunctionDecomposer:
    """Rewrite of one function in place: new ops are inserted before each op, and replaced ops are erased at the end."""

    def __init__(self, func: ir.Operation) -> None:
        self.func = func
        self.block = func.regions[0].blocks[0]
        self.terms = Terms()
        self.replaced: list[ir.Operation] = []
        self.pinned: dict[ir.Value, ir.Attribute] = {}

    def run(self) -> None:
        if _has_bfloat(self.block):
            self.func.attributes[sdsc.BFLOAT] = ir.UnitAttr.get(self.func.context)
        self._arguments()
        for op in [op.operation for op in self.block.operations]:
            with ir.InsertionPoint(op), op.location:
                self._visit(op)
        for op in reversed(self.replaced):
            op.erase()
        # Last: only the device operations show whether an operation other than a matmul reads a one-byte tensor.
        for op in self.block.operations:
            check_one_byte(op.operation)

    # -- the host boundary ----------------------------------------------------------------------------

    def _arguments(self) -> None:
        declared = list(self.func.attributes["arg_attrs"]) if "arg_attrs" in self.func.attributes else []
        attributes = []
        for index, argument in enumerate(self.block.arguments):
            attrs = {entry.name: entry.attr for entry in ir.DictAttr(declared[index])} if declared else {}
            label = ir.StringAttr(attrs["spyre.name"]).value if "spyre.name" in attrs else f"arg{index}"
            kind = ir.StringAttr(attrs["spyre.kind"]).value if "spyre.kind" in attrs else "input"
            type_ = _static(argument.type, self.func)
            attrs[sdsc.HOST] = sdsc.host_attr(label, kind, str(type_.element_type))
            element = device_element(str(type_.element_type), self.func.location)
            device_type = ir.RankedTensorType.get(type_.shape, ir.Type.parse(element), type_.encoding)
            argument.set_type(_checked(label, device_type, self.func))
            attributes.append(ir.DictAttr.get(attrs))
            self.terms.bind(argument, argument)
        self.func.attributes["arg_attrs"] = ir.ArrayAttr.get(attributes)

    def _return(self, op: ir.Operation) -> None:
        attributes, values = [], []
        declared = ir.FunctionType(ir.TypeAttr(self.func.attributes["function_type"]).value).results
        for index, operand in enumerate(op.operands):
            # The declared type is used, because a returned argument already has its device type.
            type_ = _static(declared[index], op)
            attributes.append(
                ir.DictAttr.get(
                    {sdsc.HOST: sdsc.host_attr(f"result{index}", "result", str(type_.element_type))}
                )
            )
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
        types = ([argument.type for argument in self.block.arguments], [value.type for value in values])
        self.func.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(*types))
        self.func.attributes["res_attrs"] = ir.ArrayAttr.get(attributes)

    # -- ops ------------------------------------------------------------------------------------------

    def _visit(self, op: ir.Operation) -> None:
        # Gathers are handled first: a gather is also a linalg.generic, but its body reads by index.
        if (rows := gathered_rows(self.terms, op)) is not None:
            self.terms.bind(op.results[0], rows, is_private=True)
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
            self._clone(op)
        elif op.name == "tensor.cast":
            self._cast(op)
        elif op.name in _KEPT or _is_index(op):
            self._constant(op)
            return
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
        elif op.name == "func.return":
            self._return(op)
            return
        else:
            raise _refusal(op)
        self.replaced.append(op)

    def _constant(self, op: ir.Operation) -> None:
        value = op.results[0]
        if op.name == "arith.constant" and isinstance(value.type, ir.RankedTensorType):
            self.terms.bind_constant(op)
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
        self._retype(copy)
        if cast is None:
            self.terms.bind(op.results[0], copy.results[0])
        else:
            narrow = recast(cast, copy.results[0])
            self.terms.bind(op.results[0], narrow, is_private=True)

    def _retype(self, op: ir.Operation) -> None:
        type_, source = _static(op.results[0].type, op), ir.RankedTensorType(op.operands[0].type)
        # Upstream's verifier requires slices to have the encoding of their source.
        encoding = source.encoding if op.name == "tensor.extract_slice" else None
        op.results[0].set_type(ir.RankedTensorType.get(type_.shape, source.element_type, encoding))

    def _layout_request(self, op: ir.Operation) -> None:
        """Rebuild a ``stick.pin`` or ``stick.restickify`` at the same place on the device tensor."""
        if stick.TO not in op.attributes:
            raise error_at(
                op,
                f"'{op.name}' names no layout ('{stick.TO}'); IR whose layouts are chosen enters at level laid-out",
            )
        source = self.terms.materialize(op.operands[0], op.location)
        # A constant fill has no buffer that could have two layouts.
        if op.name == "stick.pin" and self.terms[op.operands[0]].splat is not None:
            source = self._separate_fill(op, source)
        copy = op.clone().operation
        copy.operands[0] = source
        copy.results[0].set_type(stick.without_layout(source.type))
        reason = why_not_a_layout(stick.requested_layout(copy))
        if reason is not None:
            raise error_at(op, f"a tensor of type {copy.results[0].type} cannot have this layout: {reason}")
        self.terms.bind(op.results[0], copy.results[0], is_private=op.name == "stick.restickify")

    def _separate_fill(self, op: ir.Operation, source: ir.Value) -> ir.Value:
        """Return a copy of a fill for a second layout: after CSE, fills with one number are one value."""
        layout = self.pinned.setdefault(op.operands[0], op.attributes[stick.TO])
        return source if layout == op.attributes[stick.TO] else self.terms.copied(source, op.location)

    def _clone(self, op: ir.Operation) -> None:
        """Replace a copy that an earlier pass made."""
        source = self.terms.materialize(op.operands[0], op.location)
        self.terms.bind(op.results[0], self.terms.copied(source, op.location), is_private=True)

    def _cast(self, op: ir.Operation) -> None:
        """Drop a cast between static types of one shape: it changes the encoding, which only an argument has."""
        _static(op.results[0].type, op)
        self.terms.alias(op.results[0], op.operands[0])

    def _concat(self, op: ir.Operation) -> None:
        dim = ir.IntegerAttr(op.attributes["dim"]).value
        shape = list(_static(op.results[0].type, op).shape)
        sources = [
            self.terms.private_buffer(operand, op.location, sole_reader=True) for operand in op.operands
        ]
        element = ir.RankedTensorType(sources[0].type).element_type
        whole = ir.Operation.create("tensor.empty", results=[ir.RankedTensorType.get(shape, element)]).result
        start = 0
        for source in sources:
            offsets = [0] * len(shape)
            offsets[dim] = start
            sizes = list(ir.RankedTensorType(source.type).shape)
            whole = insert_slice(source, whole, offsets, sizes)
            start += sizes[dim]
        self.terms.bind(op.results[0], whole, is_private=True)

    def _pad(self, op: ir.Operation) -> None:
        low = list(ir.DenseI64ArrayAttr(op.attributes["static_low"]))
        high = list(ir.DenseI64ArrayAttr(op.attributes["static_high"]))
        # Dynamic amounts are negative here, because upstream marks them with a negative number in static lists.
        if min(*low, *high, 0) < 0:
            raise error_at(op, "a pad by a negative or dynamic amount has no device operation")
        shape = list(_static(op.results[0].type, op).shape)
        terminator = list(op.regions[0].blocks[0].operations)[-1].operation
        value = self.terms.scalar(terminator.operands[0])
        if value is None:
            raise error_at(op, "a pad needs a constant value")
        part = self.terms.materialize(op.operands[0], op.location)
        element = str(ir.RankedTensorType(part.type).element_type)
        whole = self.terms.filled(shape, element, value, op.location)
        sizes = list(ir.RankedTensorType(part.type).shape)
        self.terms.bind(op.results[0], _with_copy(part, whole, low, sizes, op.location), is_private=True)

    def _insert_slice(self, op: ir.Operation) -> None:
        attrs = [
            list(ir.DenseI64ArrayAttr(op.attributes["static_" + key]))
            for key in ("offsets", "sizes", "strides")
        ]
        indices = list(op.operands)[2:]
        if any(step != 1 for step in attrs[2]) or any(offsets_of(index) is None for index in indices):
            text = "an insert_slice needs constants or run-time indices as offsets, and unit strides"
            raise error_at(op, text)
        self.terms.bind(op.results[0], _inserted(self.terms, op, attrs, indices), is_private=True)


def _inserted(
    terms: Terms, op: ir.Operation, attrs: list[list[int]], indices: Sequence[ir.Value]
) -> ir.Value:
    """Insert the part of an op into its buffer, through a copy unless the buffer is an iter_arg of a loop.

    ``attrs`` begin with the static offsets and sizes.
    """
    # The buffer of an iter_arg is written before a part of it is computed, so no copy is needed.
    is_carried = op.parent.operation.name == LOOP
    private = partial(terms.private_buffer, location=op.location, sole_reader=True)
    part = private(op.operands[0]) if is_carried else terms.materialize(op.operands[0], op.location)
    insert = insert_slice if is_carried else partial(_with_copy, location=op.location)
    return insert(part, private(op.operands[1]), attrs[0], attrs[1], indices=indices)


def _with_copy(
    part: ir.Value,
    whole: ir.Value,
    offsets: list[int],
    sizes: list[int],
    location: ir.Location,
    indices: Sequence[ir.Value] = (),
) -> ir.Value:
    """Insert a copy of a part. The copy is made after the whole is written; otherwise the whole would overwrite it."""
    return insert_slice(sdsc.clone(part, location), whole, offsets, sizes, indices)


def insert_slice(
    source: ir.Value, whole: ir.Value, offsets: list[int], sizes: list[int], indices: Sequence[ir.Value] = ()
) -> ir.Value:
    """Build ``tensor.insert_slice`` with static sizes and unit strides; ``indices`` are its dynamic offsets."""
    maker = defining_op(source)
    if maker is not None and maker.name == "tensor.insert_slice":
        # A buffer that is assembled from parts cannot itself be a part.
        source = sdsc.clone(source, ir.Location.current)
    attributes = {
        "static_offsets": ir.DenseI64ArrayAttr.get(offsets),
        "static_sizes": ir.DenseI64ArrayAttr.get(sizes),
        "static_strides": ir.DenseI64ArrayAttr.get([1] * len(sizes)),
        "operandSegmentSizes": ir.DenseI32ArrayAttr.get([1, 1, len(indices), 0, 0]),
    }
    operands = [source, whole, *indices]
    return ir.Operation.create(
        "tensor.insert_slice", results=[whole.type], operands=operands, attributes=attributes
    ).result


def _is_index(op: ir.Operation) -> bool:
    """Return whether an operation computes an index from loop variables."""
    return bool(op.results) and isinstance(op.results[0].type, ir.IndexType)


def _refusal(op: ir.Operation) -> CompileError:
    """Return the error about an op that has no device operation."""
    if op.name == ASSERT:
        check_assertion(op)
    name = TorchCall.of(op).operator if is_torch_call(op) else op.name
    return error_at(op, f"'{name}' has no device operation; {_advice(op)}")


def _advice(op: ir.Operation) -> str:
    """Return the advice for an op that is not linalg: the upstream pass that lowers its dialect, if there is one."""
    if any(isinstance(value.type, ir.MemRefType) for value in (*op.operands, *op.results)):
        return "a program works on tensors, as it is before bufferization"
    if op.name == ASSERT:
        return "the host checks assertions"
    if is_torch_call(op):
        return "PyTorch's own kernel computes it"
    passes = _LOWERINGS.get(op.name.partition(".")[0])
    return f"{passes} makes linalg of it" if passes else "expected linalg on static tensors"


def _has_bfloat(block: ir.Block) -> bool:
    """Return whether any tensor of a function has bf16 elements, which the device types do not record."""
    results = (result for op in block.operations for result in op.operation.results)
    return any(element_of(value) == "bf16" for value in (*block.arguments, *results))


def _is_on_device_types(func: ir.Operation) -> bool:
    """Return whether a function is at level *device-ops* or later, according to its argument attributes."""
    return "arg_attrs" in func.attributes and sdsc.HOST in str(func.attributes["arg_attrs"])


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


def _checked(label: str, type_: ir.RankedTensorType, func: ir.Operation) -> ir.RankedTensorType:
    """Return the type of an argument; ``CompileError`` that names the argument if its layout is invalid."""
    try:
        layout = stick.layout_of(type_, target_of(func))
        reason = why_not_a_layout(layout) if layout is not None else None
    except ValueError as error:
        reason = str(error)
    if reason is not None:
        raise CompileError(
            f"argument '{label}' cannot have this layout: {reason}", location_of(func.location)
        )
    return type_


def _static(type_: ir.Type, op: ir.Operation) -> ir.RankedTensorType:
    if not isinstance(type_, ir.RankedTensorType):
        raise error_at(op, f"{type_} is no ranked tensor; arguments and results of a program are tensors")
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
        buffers.append(_buffer(terms, value, loop.location, frozenset(buffers)))
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
        raise error_at(
            call, "a program is one function; what it calls has a body and is private, to be inlined"
        )
    for number, value in enumerate(list(call.operands)):
        call.operands[number] = terms.materialize(value, call.location)
    types = ir.FunctionType(ir.TypeAttr(callee.attributes["function_type"]).value).results
    for result, type_ in zip(call.results, types, strict=True):
        result.set_type(type_)
        terms.bind(result, result, is_private=True)


def _buffer(
    terms: Terms, value: ir.Value, location: ir.Location, unavailable: frozenset[ir.Value]
) -> ir.Value:
    """Return the initial value of an iter_arg, in a buffer that the loop may write."""
    if not _is_empty(value):
        return terms.private_buffer(value, location, unavailable, sole_reader=True)
    element = device_element(str(ir.RankedTensorType(value.type).element_type), location)
    type_ = ir.RankedTensorType.get(shape_of(value), ir.Type.parse(element))
    return ir.Operation.create("tensor.empty", results=[type_]).result


def _is_empty(value: ir.Value) -> bool:
    """Return whether a value is an uninitialized buffer."""
    maker = defining_op(value)
    return maker is not None and maker.name == "tensor.empty"


# Lookups in a table: ``tensor.extract`` at an index that is data, as in ``embedding`` and ``index_select``.

#: Represents the dim of the table that is indexed by data.
_ROW = -1


def gathered_rows(terms: Terms, op: ir.Operation) -> ir.Value | None:
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
    dims = [
        _iteration_dim(index, generic, rows) for index, rows in zip(indices, shape_of(source), strict=True)
    ]
    if dims.count(_ROW) != 1 or not _is_gather(generic, shape_of(source), dims):
        return None
    rank, row = len(generic.extents), dims.index(_ROW)
    rows, table = shape_of(source)[row], terms.materialize(source, op.location)
    positions = terms.materialize(generic.inputs[0], op.location)
    if _position_of(indices[row]) != generic.body.arguments[0]:
        positions = _from_the_end(terms, positions, rows, op.location)
    return device_op(
        "gather",
        [positions, table],
        [generic.maps[0], tuple(rank if dim == _ROW else dim for dim in dims)],
        [*generic.extents, rows],
        element_of(table),
        location=op.location,
        reduced=[rank],
    )


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
        number, dim = _number(index), _counted_dim(index)
        if number is not None and not 0 <= number < size:
            return None
        if number is None and (dim is None or dim in dims or generic.extents[dim] != size):
            return None
        offsets.append(0 if number is None else int(number))
        dims.append(dim)
    result_dims = [dim for dim in dims if dim is not None]
    sizes = [1 if dim is None else generic.extents[dim] for dim in dims]
    table = terms.materialize(source, op.location)
    part = extracted(table, offsets, sizes, [1] * len(sizes), [generic.extents[dim] for dim in result_dims])
    return Term(part, tuple(result_dims))


def _from_the_end(terms: Terms, positions: ir.Value, rows: int, location: ir.Location) -> ir.Value:
    """Count positions below 0 from the end: p + rows * (p < 0), in f32 because the device cannot compare integers."""
    shape = shape_of(positions)
    every = tuple(range(len(shape)))

    def emit(opcode: str, element: str, *inputs: ir.Value) -> ir.Value:
        maps = [every if shape_of(value) else () for value in inputs]
        return device_op(opcode, inputs, maps, shape, element, location=location)

    numbers = emit("int32tofp32", "f32", positions)
    below = emit("fp32toint32", "i32", emit("lesserthan", "f32", numbers, terms.constant(0, "f32")))
    return emit(
        "addi32toi32", "i32", positions, emit("muli32toi32", "i32", below, terms.constant(rows, "i32"))
    )


def _extract_of(generic: Structured, inputs: int = 1) -> ir.Operation | None:
    """Return the ``tensor.extract`` that an op with ``inputs`` inputs yields; None if there is none."""
    if len(generic.inputs) != inputs or generic.reduced:
        return None
    yielded = list(generic.body.operations)[-1].operation.operands[0]
    extract = defining_op(yielded)
    return extract if extract is not None and extract.name == "tensor.extract" else None


def _iteration_dim(index: ir.Value, generic: Structured, rows: int) -> int | None:
    """Return the iteration dim that is the index, ``_ROW`` if the index is the input; None for any other index."""
    if (counted := _counted_dim(index)) is not None:
        return counted
    position, argument = _position_of(index), generic.body.arguments[0]
    is_input = position is not None and (
        position == argument or _counts_from_the_end(position, argument, rows)
    )
    return _ROW if is_input else None


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


def _counts_from_the_end(position: ir.Value, argument: ir.Value, rows: int) -> bool:
    """Return whether a position is ``argument < 0 ? argument + rows : argument``."""
    select = defining_op(position)
    if select is None or select.name != "arith.select" or select.operands[2] != argument:
        return False
    below, wrapped = (defining_op(value) for value in list(select.operands)[:2])
    if below is None or below.name != "arith.cmpi" or wrapped is None or wrapped.name != "arith.addi":
        return False
    is_below = ir.IntegerAttr(below.attributes["predicate"]).value == _LESS
    compared, added = ((op.operands[0], _number(op.operands[1])) for op in (below, wrapped))
    return is_below and compared == (argument, 0) and added == (argument, rows)


#: The predicate of ``arith.cmpi`` for signed integers.
_LESS = 2


def _number(value: ir.Value) -> float | None:
    op = defining_op(value)
    return None if op is None else scalar_constant(op)


def _is_gather(generic: Structured, table: tuple[int, ...], dims: Sequence[int | None]) -> bool:
    """Return whether an op reads whole rows: its dims are the dims of positions and rows, each in full."""
    rows = [dim for dim in dims if dim != _ROW]
    positions = [dim for dim in generic.maps[0] if dim is not None]
    everything = list(range(len(generic.extents)))
    return (
        None not in rows
        and generic.maps[-1] == tuple(everything)
        and sorted(str(dim) for dim in (*rows, *positions)) == sorted(map(str, everything))
        and all(
            dim == _ROW or generic.extents[dim or 0] == size for dim, size in zip(dims, table, strict=True)
        )
    )
