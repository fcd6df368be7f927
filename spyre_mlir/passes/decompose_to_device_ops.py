# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Splits linalg ops into ops that each perform one device operation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import ClassVar

from spyre_mlir.analysis.aliasing import attributes_of
from spyre_mlir.analysis.failing_assertions import ASSERT, check_assertion
from spyre_mlir.analysis.loops import LOOP, body_block, offsets_of, terminator
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
from spyre_mlir.rewriting.body_operations import scalar_of
from spyre_mlir.rewriting.linalg_values import Term, Terms, device_element, number_tensor
from spyre_mlir.rewriting.outlining import CALL, callee_of, read_by, set_function_type
from spyre_mlir.rewriting.tensor_builders import (
    DYNAMIC,
    element_type,
    elementwise,
    empty,
    extracted,
    inserted,
)

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
        if op.parent.operation.name == LOOP:
            part, whole = private(op.operands[0]), private(op.operands[1])
        else:
            part, whole = self.terms.materialize(op.operands[0], op.location), private(op.operands[1])
            part = sdsc.clone(part, op.location)
        self.terms.bind(op.results[0], _inserted(part, whole, mixed, sizes), is_private=True)


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
    shape, argument = shape_of(source), generic.body.arguments[0]
    dims = []
    for index, size in zip(indices, shape, strict=True):
        dim, position = _counted_dim(index), _position_of(index)
        if dim is None:
            if position is None or not (position == argument or _is_wrapped(position, argument, size)):
                return None
            dim = _ROW
        dims.append(dim)
    if dims.count(_ROW) != 1:
        return None
    rank, row = len(generic.extents), dims.index(_ROW)
    # Whole rows: the iteration dims are the dims of the positions and of the rows, each in full.
    read = [*(dim for dim in dims if dim != _ROW), *(dim for dim in generic.maps[0] if dim is not None)]
    if generic.maps[-1] != tuple(range(rank)) or sorted(read) != list(range(rank)):
        return None
    if any(dim != _ROW and generic.extents[dim] != size for dim, size in zip(dims, shape, strict=True)):
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
    return device_op(
        "gather",
        [positions, table],
        [generic.maps[0], tuple(rank if dim == _ROW else dim for dim in dims)],
        [*generic.extents, shape[row]],
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
