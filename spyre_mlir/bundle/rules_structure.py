# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rules on the structure of designs and program; all other rules run only if these rules hold."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import accumulate, count, islice
from math import prod
from operator import attrgetter, mul

import numpy as np

from spyre_mlir.bundle import model
from spyre_mlir.bundle.context import Context, Diagnostic
from spyre_mlir.bundle.model import KernelArgument, Transfer
from spyre_mlir.bundle.rules_design import is_relayout
from spyre_mlir.bundle.transfer import Part, filled_parts, part_of, valid_parts
from spyre_mlir.errors import counted
from spyre_mlir.target.formats import DL16, FORMATS, FP8, FP32, INT8, INT32
from spyre_mlir.target.ops import DEVICE_OPS

ROLES = (model.INPUT, model.OUTPUT, model.KERNEL, model.KERNEL_IDX)


def known_opcode(design: model.Design) -> Iterator[str]:
    if design.opcode not in DEVICE_OPS:
        yield f"The operation {design.opcode!r} is not one of the device."


def arity(design: model.Design) -> Iterator[str]:
    op = DEVICE_OPS.get(design.opcode)
    if op is not None and len(design.operands) != op.arity + 1:
        inputs = len(design.operands) - 1
        takes = f"{design.opcode} takes {counted(op.arity, 'input')} and one output"
        yield f"{takes} but has {counted(inputs, 'input')}."


def dims_declared(design: model.Design) -> Iterator[str]:
    sizes = design.sizes.keys()
    complete = {"numWkSlicesPerDim_": design.slices, "dataStageParam_": design.shares}
    complete |= {f"the slices of core {c}": slices for c, slices in enumerate(design.core_slices)}
    for what, dims in complete.items():
        if dims.keys() != sizes:
            yield f"The dims of {what} are {_list(dims)}; expected the dims of N_, {_list(sizes)}."
    for what, dims in (("padding", design.padding), ("coordinate masks", design.masks)):
        for dim in sorted(dims.keys() - sizes):
            yield f"The {what} name the dim {dim}, which N_ does not declare."
    for dim, size in design.sizes.items():
        if size < 1 or design.shares.get(dim, 1) < 1 or design.slices.get(dim, 1) < 1:
            yield f"Size, slices and share of the dim {dim} must be at least 1."
        # Larger numbers would make the rules of later levels compute with huge arrays.
        elif max(size, design.shares.get(dim, 1), design.slices.get(dim, 1)) > design.target.hbm_bytes:
            yield f"Size, slices and share of the dim {dim} must be less than what the device memory holds."


def operand_dims(design: model.Design) -> Iterator[str]:
    for i, operand in enumerate(design.operands):
        for problem in _operand_dims(design, operand):
            yield f"Tensor{i} {problem}."


def _operand_dims(design: model.Design, operand: model.Operand) -> Iterator[str]:
    order = operand.dim_order
    for dim in order:
        if dim not in design.sizes:
            yield f"has the dim {dim}, which N_ does not declare"
    if len(set(order)) != len(order):
        yield f"lists a dim twice in its order {_list(order)}"
    if operand.stick_dim not in order:
        yield f"has the stick dim {operand.stick_dim}, which is not one of its dims {_list(order)}"
    if operand.scale.keys() != set(order):
        yield f"has scales for {_list(operand.scale)}; expected one for each of its dims {_list(order)}"
    for dim, scale in operand.scale.items():
        allowed = (1, -2) if dim == operand.stick_dim else (1, -1)
        if scale not in allowed:
            yield f"has scale {scale} on {dim}; expected {allowed[0]} or {allowed[1]} there"
    for dim, gap in operand.gap.items():
        if dim not in order or gap < 0 or operand.scale.get(dim, 1) != 1:
            yield f"has a gap of {gap} on {dim}; a gap is not negative and on a dim of scale 1"
        elif gap > design.target.hbm_bytes:
            yield f"has a gap of {gap} on {dim}, more than the device memory holds"
    for dim in operand.other_elements:
        if dim == operand.stick_dim or operand.scale.get(dim) != 1:
            yield f"has {dim} next to {operand.stick_dim} in its stick; expected another dim of scale 1"
    if operand.stick_elements < 1 or min(operand.other_elements.values(), default=1) < 1:
        yield f"has {operand.stick_elements} elements per stick; expected at least 1"


def core_mapping(design: model.Design) -> Iterator[str]:
    cores, slices = design.cores, prod(design.slices.values())
    if not 1 <= cores <= design.target.cores:
        yield f"It uses {cores} cores; expected 1 to {design.target.cores}."
    # The cores of a relayout are the cores with data before or after it, and several may have the same slice.
    relayout = is_relayout(design)
    if slices != cores and not relayout:
        yield f"Its dims have {slices} slices together; expected one for each of {cores} cores."
    seen: dict[tuple[int, ...], int] = {}
    for core, core_slices in enumerate(design.core_slices):
        for dim, index in core_slices.items():
            if not 0 <= index < design.slices.get(dim, 1):
                limit = design.slices.get(dim, 1)
                yield f"Core {core} has slice {index} of {dim}; expected 0 to {limit - 1}."
        other = seen.setdefault(tuple(core_slices.get(dim, 0) for dim in design.sizes), core)
        if other != core and not relayout:
            yield f"The cores {other} and {core} have the same slices; expected different ones."


def start_addresses(design: model.Design) -> Iterator[str]:
    for i, operand in enumerate(design.operands):
        if operand.memory not in ("hbm", "lx"):
            yield f"Tensor{i} is in {operand.memory!r}; expected 'hbm' or 'lx'."
        elif len(operand.start) != design.cores:
            starts = len(operand.start)
            yield f"Tensor{i} has {starts} start addresses; expected one per core of {design.cores}."
        elif operand.memory == "hbm" and max(operand.start) >= 0:
            yield f"Tensor{i} has the symbol id {max(operand.start)}; expected negative ids."
        elif operand.memory == "lx" and min(operand.start) < 0:
            yield f"Tensor{i} has the LX address {min(operand.start)}; expected none below 0."


def roles(design: model.Design) -> Iterator[str]:
    layouts: dict[str, tuple] = {}
    for i, operand in enumerate(design.operands):
        if operand.role not in ROLES:
            yield f"Tensor{i} has the role {operand.role!r}; expected one of {_list(ROLES)}."
        # The file has one set of dims and one stick dim per role, so the writer could not write a second set.
        layout = (set(operand.dim_order), operand.stick_dim, operand.stick_elements, operand.other_elements)
        if layouts.setdefault(operand.role, layout) != layout:
            yield f"Tensor{i} shares the role {operand.role} with a tensor of another layout."


def files_match(context: Context) -> Iterator[Diagnostic]:
    designs = context.bundle.designs
    executed = {execute.filename for execute in context.executes}
    for filename in sorted(executed - designs.keys()):
        yield f"The program executes {filename}, which is not in the bundle.", "bundle.mlir"
    for filename in sorted(designs.keys() - executed):
        yield "No execute of the program names this file.", filename
    for filename, design in designs.items():
        if design.filename != filename:
            yield (
                f"The root key has the index {design.index}; expected the index in the file's name.",
                filename,
            )


def values_defined(context: Context) -> Iterator[Diagnostic]:
    parameters = {parameter.name for parameter in context.bundle.parameters}
    if len(parameters) != len(context.bundle.parameters):
        yield "Two parameters have the same name.", "bundle.mlir"
    for problem in _undefined(context.bundle.statements, parameters, set(), inside=False):
        yield problem, "bundle.mlir"


def _undefined(
    statements: tuple[model.Statement, ...], parameters: set[str], outer: set[str], inside: bool
) -> Iterator[str]:
    defined = set(outer)
    for statement in statements:
        for used in model.operands_of(statement):
            if used not in defined:
                yield f"The value %{used} is not defined before its use."
        if isinstance(statement, model.Extract) and statement.parameter not in parameters:
            yield f"%{statement.result} extracts from %{statement.parameter}, which is not a parameter."
        if isinstance(statement, model.Allocate) and inside:
            yield f"%{statement.result} is allocated in a loop; expected allocations in the entry block only."
        if isinstance(statement, model.Apply):
            if len(statement.coefficients) != len(statement.dims) + len(statement.symbols):
                yield f"%{statement.result} needs one coefficient for each dim and symbol of its map."
        if isinstance(statement, model.Loop):
            yield from _undefined(statement.body, parameters, defined | {statement.induction}, inside=True)
        elif not isinstance(statement, model.Execute):
            if statement.result in defined or statement.result in parameters:
                yield f"The value %{statement.result} is defined twice."
            defined.add(statement.result)


def loop_bounds(context: Context) -> Iterator[Diagnostic]:
    constants = {
        statement.result: statement.value
        for statement in model.statements_in_order(context.bundle.statements)
        if isinstance(statement, model.IndexConstant)
    }
    for loop in model.statements_in_order(context.bundle.statements):
        if not isinstance(loop, model.Loop):
            continue
        where = f"bundle.mlir, loop over %{loop.induction}"
        bounds = (loop.lower, loop.upper, loop.step)
        unknown = [bound for bound in bounds if bound not in constants]
        if unknown:
            yield f"%{unknown[0]} is not an arith.constant; expected constant bounds and step.", where
            continue
        lower, upper, step = (constants[bound] for bound in bounds)
        # A step of 0 would never end, so it counts as no iteration, which is an error.
        trips = max(0, -(-(upper - lower) // step)) if step > 0 else 0
        if not 1 <= trips <= context.target.loop_iterations:
            yield f"It has {trips} iterations; expected 1 to {context.target.loop_iterations}.", where


def symbols_bound(context: Context) -> Iterator[Diagnostic]:
    for position, execute in enumerate(context.executes):
        where = f"bundle.mlir, execute {position} of {execute.filename}"
        ids = execute.symbol_ids
        if len(ids) != len(execute.operands):
            operands = len(execute.operands)
            yield f"It has {operands} operands for {len(ids)} symbol ids; expected as many.", where
        if len(set(ids)) != len(ids):
            yield "It binds a symbol id twice; expected each once.", where
        if ids and max(ids) >= 0:
            yield f"It binds the symbol id {max(ids)}; expected negative ids.", where
        design = context.bundle.designs.get(execute.filename)
        for i, operand in enumerate(design.operands if design else ()):
            for core, symbol in zip(count(), operand.start if operand.memory == "hbm" else ()):
                if symbol not in ids:
                    yield f"It does not bind the symbol {symbol} of Tensor{i} on core {core}.", where


def origins_match(context: Context) -> Iterator[Diagnostic]:
    manifest, expected = context.bundle.manifest, len(context.executes)
    if len(manifest.executes_from) not in (0, expected):
        count = len(manifest.executes_from)
        yield (
            f"It has {count} origins of executes; expected none, or one for each of {expected}.",
            "manifest.json",
        )
    for index in sorted({*manifest.executes_from} - {*range(len(manifest.origins))}):
        yield f"An execute has the origin {index}, but there are {len(manifest.origins)}.", "manifest.json"
    for index, origin in enumerate(manifest.origins):
        if origin.line < 0 or origin.column < 0:
            yield f"Line and column of the origin {index} are at least 0.", "manifest.json"


def uses_match(context: Context) -> Iterator[Diagnostic]:
    uses = context.bundle.manifest.uses
    if len(uses) != len(context.executes):
        expected = len(context.executes)
        yield f"It has {len(uses)} uses; expected one for each of {expected} executes.", "manifest.json"
        return
    for position, (execute, names) in enumerate(zip(context.executes, uses, strict=True)):
        where = f"manifest.json, use {position}"
        design = context.bundle.designs.get(execute.filename)
        if design and len(names) != len(design.operands):
            expected = len(design.operands)
            yield f"It names {len(names)} buffers; expected one for each of {expected} operands.", where
        for buffer in names:
            if buffer not in context.buffers:
                yield f"It names the buffer {buffer!r}, which the manifest does not have.", where


def _list(names: Iterable[str]) -> str:
    return ", ".join(names) or "none"


# Rules on the host's side: arguments, their sizes and their transfers.


KINDS = ("input", "parameter", "constant", "result")

#: The limit on the parts of a transfer; the ends of dims cut a transfer into a few parts per dim.
_MOST_PARTS = 1 << 14

_FLOATS = ("float16", "bfloat16", "float32", "float64", "bool")

#: The host element types that each device format accepts.
HOST_DTYPES = {
    DL16: _FLOATS,
    FP32: _FLOATS,
    INT32: ("int32", "int64", "int16", "int8", "uint8", "bool"),
    INT8: ("int8",),
    FP8: ("float8_e4m3fn",),
}


def arguments(context: Context) -> Iterator[Diagnostic]:
    """Check the names, kinds, types and transfers of the arguments, and that a parameter has one input at most."""
    parameters = {parameter.name for parameter in context.bundle.parameters}
    for parameter, sharing in context.arguments.items():
        inputs = [argument.name for argument in sharing if argument.kind != "result"]
        if len(inputs) > 1:
            text = f"The arguments {' and '.join(inputs)} are both given in %{parameter}"
            yield f"{text}; expected one of them.", "manifest.json"
    names = [argument.name for argument in context.bundle.manifest.arguments]
    if len(set(names)) != len(names):
        yield "Two arguments have the same name.", "manifest.json"
    for argument in context.bundle.manifest.arguments:
        where = f"manifest.json, argument {argument.name}"
        if argument.kind not in KINDS:
            yield f"Its kind is {argument.kind!r}; expected one of {', '.join(KINDS)}.", where
        if argument.parameter not in parameters:
            yield f"Its parameter %{argument.parameter} is not one of the program.", where
        for problem in _sizes(argument, context.target.stick_bytes):
            yield problem, where
    # An argument and a result that are updated in place share the same bytes.
    total = sum(max(argument.bytes for argument in sharing) for sharing in context.arguments.values())
    limit = context.target.hbm_bytes
    if total > limit:
        yield f"The arguments have {total} bytes together; expected at most {limit}.", "manifest.json"
    manifest = context.bundle.manifest
    kinds = {"demoted": manifest.demoted, "amplified": manifest.amplified, "of wide sums": manifest.wide_sums}
    for kind, indices in kinds.items():
        for index in indices:
            if not 0 <= index < len(manifest.uses):
                yield f"Execute {index} is {kind}, but there are {len(manifest.uses)}.", "manifest.json"
    if manifest.numerics is None and any(
        argument.host_dtype == "bfloat16" for argument in manifest.arguments
    ):
        yield "An argument is bfloat16, which needs the numerics 'dl16'; expected them.", "manifest.json"
    yield from _indices(context)


def _indices(context: Context) -> Iterator[Diagnostic]:
    """Check that each parameter that is not an address is an index in an input, below the largest value."""
    inputs = {
        argument.name: argument
        for argument in context.bundle.manifest.arguments
        if argument.kind != "result" and argument.source is None
    }
    largest = {
        parameter.name: parameter.max_value
        for parameter in context.bundle.parameters
        if parameter.max_value is not None
    }
    for index in context.bundle.manifest.indices:
        where, array = f"manifest.json, index {index.parameter}", inputs.get(index.argument)
        if largest.pop(index.parameter, None) != index.bounds.upper - 1:
            yield f"Its parameter is not one of max_value={index.bounds.upper - 1}.", where
        if not -index.bounds.upper <= index.bounds.lower <= 0 < index.bounds.upper:
            yield (
                f"Its bounds are {index.bounds.lower} and {index.bounds.upper}; expected -size or 0, and size.",
                where,
            )
        if array is None or array.data_format != INT32:
            yield f"Its argument {index.argument} is not an input of integers.", where
        elif not 0 <= index.element < prod(array.host_shape):
            yield f"Its argument {index.argument} has no element {index.element}.", where
    for name in largest:
        yield (
            f"%{name} is not an address; expected an index of the manifest that says its value.",
            "manifest.json",
        )


def sources(context: Context) -> Iterator[Diagnostic]:
    """Check that a source is an argument with its own array and the same type and shape on the host."""
    by_name = {
        argument.name: argument for argument in context.bundle.manifest.arguments if argument.source is None
    }
    on_host = attrgetter("kind", "host_dtype", "host_shape")
    for argument in context.bundle.manifest.arguments:
        if argument.source is None:
            continue
        where = f"manifest.json, argument {argument.name}"
        source = by_name.get(argument.source)
        if source is None:
            yield f"Its source {argument.source} is not an argument with an array of its own.", where
        elif "result" in (argument.kind, source.kind) or len({on_host(argument), on_host(source)}) > 1:
            yield f"Its source {argument.source} has another kind, type or shape on the host.", where


def _sizes(argument: KernelArgument, stick_bytes: int) -> Iterator[str]:
    allowed = HOST_DTYPES.get(argument.data_format)
    if allowed is None:
        yield f"Its format {argument.data_format!r} is unknown; expected one of {', '.join(HOST_DTYPES)}."
        return
    form = FORMATS[argument.data_format]
    if argument.host_dtype not in allowed:
        yield f"Its host type is {argument.host_dtype!r}; expected {' or '.join(allowed)}."
    if min((*argument.host_shape, *argument.device_size), default=1) < 1:
        yield "Its shape on the host or on the device has a dim without elements."
        return
    # The last dims of 8-bit formats may share one stick.
    lanes = list(accumulate(reversed(argument.device_size), mul))
    stick_elements = form.stick_elements(stick_bytes)
    if stick_elements not in (lanes if form.bytes == 1 else lanes[:1]):
        size = argument.device_size
        yield f"Its device size {size} does not end in a stick of {stick_elements} elements."
    expected = prod(argument.device_size) * form.bytes
    if argument.bytes != expected:
        yield f"It has {argument.bytes} bytes; expected {expected} for its device size."


def transfers(context: Context) -> Iterator[Diagnostic]:
    for argument in context.bundle.manifest.arguments:
        for problem in _transfer(argument, context.target.hbm_bytes):
            yield problem, f"manifest.json, argument {argument.name}"


def _transfer(argument: KernelArgument, hbm_bytes: int) -> Iterator[str]:
    """Yield what is wrong with the transfer of an argument between host memory and ``hbm_bytes`` of the device."""
    transfer = argument.transfer
    loops = len(transfer.ranges)
    if len(transfer.host_strides) != loops or len(transfer.device_strides) != loops:
        yield f"Its transfer has {loops} ranges; expected as many host and device strides."
        return
    steps = (*transfer.host_strides, *transfer.device_strides, transfer.host_offset)
    if min((*transfer.ranges, 1)) < 1 or min(steps) < 0:
        yield "Its transfer has a range below 1, or a negative stride or offset."
        return
    for loop_ids, weights, size in transfer.bounds:
        if len(loop_ids) != len(weights) or size < 1 or not set(loop_ids) <= set(range(loops)):
            yield "A bound of its transfer does not name loops with one weight each and a size."
            return
        # The loops of a bound are digits of a number.
        if not _are_distinct(
            (transfer.ranges[loop], weight) for weight, loop in zip(weights, loop_ids, strict=True)
        ):
            yield "A bound of its transfer counts a position of its dim twice."
            return
    steps = zip(transfer.ranges, transfer.device_strides, strict=True)
    last, elements = sum((count - 1) * stride for count, stride in steps), prod(argument.device_size)
    if last >= elements:
        yield f"Its transfer reaches device element {last}; expected less than {elements}."
        return
    yield from _one_to_one(argument, hbm_bytes)


def _one_to_one(argument: KernelArgument, hbm_bytes: int) -> Iterator[str]:
    """Check that a host element has one place on the device and vice versa; a result has all of its elements."""
    transfer = argument.transfer
    if not _are_distinct(zip(transfer.ranges, transfer.device_strides, strict=True)):
        yield "Its transfer goes to a device element twice."
        return
    # A wrong bound may cut a transfer into millions of parts, so counting stops at the limit.
    parts, elements = list(islice(valid_parts(transfer), _MOST_PARTS + 1)), prod(argument.host_shape)
    if len(parts) > _MOST_PARTS or elements > hbm_bytes:
        yield f"Its transfer is cut in more than {_MOST_PARTS} parts, or the host's array is larger than the device."
        return
    parts = [part for part in parts if all(count for _, count in part)]
    last = -1
    for part in parts:
        steps = zip(part, transfer.host_strides, strict=True)
        reached = sum((first + count - 1) * stride for (first, count), stride in steps)
        last = max(last, transfer.host_offset + reached)
    if last >= elements:
        yield f"Its transfer reaches host element {last}; expected less than {elements}."
    elif not _has_each_once(transfer, parts, elements):
        yield "Its transfer has a host element at several places."
    elif argument.kind == "result" and _elements(parts) != elements:
        yield f"Its transfer has {_elements(parts)} of the {elements} elements of the result; expected all."


def whole_inputs(context: Context) -> Iterator[Diagnostic]:
    """Check that all of an input goes to the device, with one argument or with several of one source."""
    arguments = context.bundle.manifest.arguments
    moved = dict.fromkeys((argument.array_name for argument in arguments), 0)
    for argument in arguments:
        moved[argument.array_name] += _elements(filled_parts(argument.transfer))
    for argument in arguments:
        elements = prod(argument.host_shape)
        is_input = argument.kind == "input" and argument.source is None
        if is_input and moved[argument.name] < elements:
            text = f"Its transfer has {moved[argument.name]} of the {elements} elements of the input"
            yield f"{text}; expected all.", f"manifest.json, argument {argument.name}"


def results(context: Context) -> Iterator[Diagnostic]:
    """Check that every buffer that is written is read, is a result, or is kept for the next bundle."""
    uses = [context.uses(step) for step in context.steps]
    read = {buffer for sources in uses for buffer in sources[:-1]}
    read |= {resident.buffer for resident in context.bundle.manifest.leaves}
    result_parameters = {
        argument.parameter for argument in context.bundle.manifest.arguments if argument.kind == "result"
    }
    for step, (*_, written) in zip(context.steps, uses, strict=True):
        if written not in read and context.buffers[written].base not in result_parameters:
            yield (
                f"It writes the buffer {written}, which nothing reads and which is not a result.",
                step.where,
            )


def _has_each_once(transfer: Transfer, parts: list[Part], elements: int) -> bool:
    """Return whether the positions of the parts map to distinct elements among the ``elements`` host elements."""
    if len(parts) == 1 and _are_distinct(
        (count, stride) for (_, count), stride in zip(parts[0], transfer.host_strides, strict=True)
    ):
        return True
    is_covered = np.zeros(elements, np.bool_)
    for part in parts:
        view = part_of(is_covered, transfer.host_offset, is_covered.dtype, transfer.host_strides, part)
        view[...] = True
    return int(np.count_nonzero(is_covered)) == _elements(parts)


def _are_distinct(dims: Iterable[tuple[int, int]]) -> bool:
    """Return whether dims of (extent, stride) have distinct positions: each stride exceeds the range of inner dims."""
    reach = 0
    for stride, extent in sorted((stride, extent) for extent, stride in dims if extent > 1):
        if stride <= reach:
            return False
        reach += stride * (extent - 1)
    return True


def _elements(parts: Iterable[Part]) -> int:
    return sum(prod(count for _, count in part) for part in parts)
