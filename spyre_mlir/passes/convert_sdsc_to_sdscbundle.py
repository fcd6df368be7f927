# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Lowers placed device operations to a SuperDSC bundle."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

from spyre_mlir.analysis import core_ownership
from spyre_mlir.analysis.aliasing import (
    AliasAnalysis,
    Place,
    all_ops,
    argument_attributes,
    functions,
    is_compute,
    is_in_lx,
)
from spyre_mlir.analysis.kept_usage import usage_of
from spyre_mlir.analysis.loops import LOOP, body_block, bundle_number, nested_ops, trip_count
from spyre_mlir.bundle import model
from spyre_mlir.bundle.json_fields import to_plain
from spyre_mlir.diagnostics import error_at
from spyre_mlir.dialects import sdsc, sdscbundle, stick
from spyre_mlir.dialects.attributes import to_attribute
from spyre_mlir.dialects.indices import (
    INDEX_ARGUMENT,
    SYMBOLIC_HOST,
    array_of_index,
    bounds_of_index,
    element_of_index,
    symbolic_of,
)
from spyre_mlir.dialects.structured import defining_op, shape_of
from spyre_mlir.dialects.targets import target_of
from spyre_mlir.division import CoreView, Division, core_view, mismatch
from spyre_mlir.division.ownership import Subview, local_bytes, subview_of
from spyre_mlir.division.relayout import Relayout, relayout
from spyre_mlir.errors import CompileError
from spyre_mlir.layout.host_transfer import HostView, dma_tuples
from spyre_mlir.layout.padding import States
from spyre_mlir.layout.space import Space, SymbolicDims
from spyre_mlir.layout.stick_layout import ELEMENT_BYTES
from spyre_mlir.lowering.design_builder import Slopes, design_template
from spyre_mlir.lowering.export import assembled, parameter_name
from spyre_mlir.mlir import ir, location_of, source_note
from spyre_mlir.passes.base import Pass
from spyre_mlir.records import dataclass
from spyre_mlir.rewriting.tensor_builders import affine_apply, index_constant, retyped, scalar_op
from spyre_mlir.target.element_types import DATA_FORMATS, ELEMENT_TYPES
from spyre_mlir.target.formats import BIT_TRUE


@dataclass(frozen=True)
class ConvertSdscToSdscbundle(Pass):
    """Turn each device operation into one ``sdscbundle.sdsc_execute`` and its design.

    The function becomes ``@sdsc_bundle`` with one run-time parameter per argument, constant and result. For each core,
    an operand in device memory is an address: base + offset + a stride per iteration of each enclosing loop. An operand
    in LX has a literal address in the design, which is the same on all cores; ``verify-ownership`` checks that a
    reader finds its data there. Designs, the host's manifest and the values of constants are attributes of the module.
    Operations with the same design share one file; the manifest has the origin of each.

    Before: level *placed*, one function. After: only the ops of the SuperDSC specification.
    """

    name: ClassVar[str] = "convert-sdsc-to-sdscbundle"

    def run(self, module: ir.Operation) -> None:
        lowering = _Lowering(module)
        lowering.run()
        with module.context:
            designs = {filename: to_plain(design) for filename, design in lowering.designs.items()}
            module.attributes[sdscbundle.DESIGNS] = to_attribute(designs)
            module.attributes[sdscbundle.MANIFEST] = to_attribute(to_plain(lowering.manifest))
            if lowering.cuts:
                module.attributes[sdscbundle.CUTS] = to_attribute(lowering.cuts)
            if lowering.buffers.constants:
                module.attributes[sdscbundle.CONSTANTS] = ir.DictAttr.get(lowering.buffers.constants)


def bundle_of(module: ir.Operation) -> model.Bundle:
    """Return the bundle of a placed module for evaluation. The bundle is not attached, so the module is at no level."""
    lowering = _Lowering(module)
    return assembled(lowering.run(), lowering.designs, lowering.manifest)


class _Lowering:
    """Lowering of one function, which is replaced by ``@sdsc_bundle``."""

    def __init__(self, module: ir.Operation) -> None:
        funcs = functions(module)
        if len(funcs) != 1:
            count = f"this module has {len(funcs)}; compile one public func.func per file"
            raise CompileError(f"a bundle needs one function with a body, but {count}")
        self.module = module
        (func,) = funcs
        self.func = func
        self.lx = LxContents(func)
        self.memory = self.lx.memory
        self.buffers = KernelBuffers(func, self.memory, all_ops(func))
        self.addresses = AddressTable()
        self.uses: list[tuple[str, ...]] = []
        self.locations: list[ir.Location] = []
        self.cuts: list[int] = []  # the executes that begin another bundle
        #: For each mark, the executes of the operations with that mark.
        self.marked: dict[str, list[int]] = {sdsc.DEMOTED: [], sdsc.AMPLIFIED: [], sdsc.WIDE_SUM: []}
        self.has_bfloat = sdsc.BFLOAT in func.attributes
        self.designs: dict[str, model.Design] = {}
        self.files: dict[tuple, str] = {}

    def run(self) -> ir.Operation:
        """Lower the function and return the new one."""
        parameters, indices, sizes = self.buffers.parameters, self.buffers.indices, self.buffers.sizes
        with self.func.location, ir.InsertionPoint(self.func):
            types = [sdscbundle.input_arg_type() for _ in parameters]
            types += [sdscbundle.input_arg_type(1, index.bounds.upper - 1) for index in indices.values()]
            types += [sdscbundle.input_arg_type(size.granularity, size.max_value) for size in sizes]
            attributes = {
                "sym_name": ir.StringAttr.get(sdscbundle.ENTRY),
                "function_type": ir.TypeAttr.get(ir.FunctionType.get(types, [])),
            }
            entry = ir.Operation.create("func.func", regions=1, attributes=attributes)
            block = ir.Block.create_at_start(entry.regions[0], types)
            with ir.InsertionPoint(block):
                table, arguments = self.addresses, iter(block.arguments)
                for name in parameters:
                    table.bases[name] = sdscbundle.input_arg_extract(next(arguments))
                if pool_bytes := sdsc.pool_bytes_of(self.func):
                    table.bases["pool"] = sdscbundle.device_mem_allocate(pool_bytes)
                for index in indices:
                    table.variables[index] = sdscbundle.input_arg_extract(next(arguments))
                for size in sizes:
                    value = sdscbundle.input_arg_extract(next(arguments))
                    table.sizes[size.name] = table.variables[value] = value
                current: int | None = None
                for op in (op_view.operation for op_view in self.memory.block.operations):
                    number, first = bundle_number(op), len(self.uses)
                    self._lower_op(op)
                    # Loops and views without executes do not belong to a bundle; the first bundle needs no cut.
                    if number is not None and len(self.uses) > first:
                        if first and number != current:
                            self.cuts.append(first)
                        current = number
                ir.Operation.create("func.return")
        self.func.erase()
        return entry

    # -- operations -----------------------------------------------------------------------------------

    def _lower_op(self, op: ir.Operation) -> None:
        """Lower an operation, or a loop to one from 0 by 1 without iter_args: iter_args are buffers."""
        if is_compute(op):
            self._execute(op)
        # Views become addresses in the bundle, so a loop that contains only views would execute nothing.
        if op.name != LOOP or not any(is_compute(inner) for inner in nested_ops(body_block(op))):
            return
        body, trips, most = body_block(op), trip_count(op), target_of(op).loop_iterations
        if trips > most:
            raise error_at(op, f"a loop runs at most {most} times, not {trips}")
        # Addresses contain the first value and the step, so all loops count from 0 by 1.
        bounds = [index_constant(bound) for bound in (0, trips, 1)]
        loop = ir.Operation.create("scf.for", operands=bounds, regions=1, loc=op.location)
        block = ir.Block.create_at_start(loop.regions[0], [ir.IndexType.get()])
        with ir.InsertionPoint(block), self.addresses.in_loop(body.arguments[0], block.arguments[0]):
            for inner in body.operations:
                self._lower_op(inner.operation)
            ir.Operation.create("scf.yield")

    def _execute(self, op: ir.Operation) -> None:
        """Write the execute of an operation with its addresses, and its design unless an equal one exists."""
        opcode, space, values = self.memory.space(op)
        division = self.memory.division(op)
        places = [self.memory.place(value) for value in values]
        buffers = [
            self.buffers.buffer(
                place.buffer,
                self.lx.bytes_per_core(place.buffer, space, operand, division),
                self.addresses.bases,
            )
            for operand, place in enumerate(places)
        ]
        in_lx = tuple(operand for operand, buffer in enumerate(buffers) if buffer.base == LX)
        parts = {} if opcode == core_ownership.SHUFFLE else self.lx.subviews(places, space, division)
        constants = sdsc.constants_of(op) if sdsc.OP in op.attributes else {}
        relayout = self.lx.relayout(op, space, division) if opcode == core_ownership.SHUFFLE else None
        # A gather addresses all rows of its table, but the divided space has only the rows that it moves.
        addressed = self.memory.addressed_space(op)
        numbers = tuple(constants.items()), tuple(sdsc.masks_of(op).items())
        design, key, slopes = design_template(
            opcode, addressed, division, *numbers, in_lx, relayout, tuple(parts.items())
        )
        bound: dict[int, ir.Value] = {}
        starts = [
            self._starts(
                buffers[operand], places[operand], space.views[operand].dtype, described.start, moves, bound
            )
            for operand, (described, moves) in enumerate(
                zip(design.operands, slopes or [()] * len(buffers), strict=True)
            )
        ]
        if not self.memory.symbolic.is_empty:
            if any(self.memory.symbolic.is_part(values[operand]) for operand in in_lx):
                raise error_at(op, "a part of a dim that follows a run-time size is read in LX")
        symbolic = {}
        # Both are in the order of the dims of the space.
        for (label, size), (_, dim) in zip(design.symbolic.items(), addressed.symbolic, strict=True):
            symbol, bound_size = self.addresses.size_symbol(dim.name, dim.factor)
            bound[symbol] = bound_size
            symbolic[label] = replace(size, symbol=symbol)
        design = replace(design, symbolic=symbolic) if symbolic else design
        filename = self._file(design, (key, *starts), op)
        sdscbundle.sdsc_execute(filename, list(bound.values()), list(bound), op.location)
        for mark, executions in self.marked.items():
            if mark in op.attributes:
                executions.append(len(self.uses))
        self.uses.append(tuple(buffer.name for buffer in buffers))
        self.locations.append(op.location)

    def _starts(
        self,
        buffer: model.Buffer,
        place: Place,
        element: str,
        offsets: Sequence[int],
        slopes: Sequence[Slopes],
        bound: dict[int, ir.Value],
    ) -> tuple[int, ...]:
        """Return an operand's start on each core: LX addresses, or symbols whose values are added to ``bound``."""
        if buffer.base == LX:
            return tuple(buffer.offset + offset for offset in offsets)
        pairs = list(zip(offsets, slopes or [()] * len(offsets), strict=True))
        symbols = {}
        # Many cores start at the same address.
        for pair in dict.fromkeys(pairs):
            address = self._device_address(buffer, place, element, *pair)
            symbols[pair], value = self.addresses.symbol(address)
            bound[symbols[pair]] = value
        return tuple(symbols[pair] for pair in pairs)

    def _device_address(
        self, buffer: model.Buffer, place: Place, element: str, offset: int, slopes: Slopes
    ) -> DeviceAddress:
        """Return the address of a byte of a buffer in device memory, which moves with loops and run-time sizes.

        ``offset`` is the offset at the largest sizes; ``slopes`` are the bytes by which it moves with each size.
        """
        moves = [(variable, elements * ELEMENT_BYTES[element]) for variable, elements in place.moves.items()]
        most = {size.name: size.max_value for size in self.buffers.sizes}
        for name, slope in slopes:
            moves.append((self.addresses.sizes[name], slope))
            offset -= slope * most[name]
        return DeviceAddress(buffer.base, buffer.offset + offset, tuple(moves))

    def _file(self, template: model.Design, key: tuple, op: ir.Operation) -> str:
        """Return the file of a design with its starts (the end of ``key``); equal designs share a file."""
        # Loops unrolled at compile time repeat one design at other addresses, which are given by symbols.
        if key not in self.files:
            operands = [
                replace(operand, start=start)
                for operand, start in zip(template.operands, key[1:], strict=True)
            ]
            debug = debug_handle(op, template.opcode)
            design = replace(template, index=len(self.designs), operands=tuple(operands), debug=debug)
            self.files[key] = design.filename
            self.designs[design.filename] = design
        return self.files[key]

    @property
    def manifest(self) -> model.Manifest:
        has_bfloat = self.has_bfloat or any(
            argument.host_dtype == "bfloat16" for argument in self.buffers.arguments
        )
        return model.Manifest(
            tuple(self.buffers.arguments),
            tuple(self.buffers.buffers.values()),
            tuple(self.uses),
            demoted=tuple(self.marked[sdsc.DEMOTED]),
            amplified=tuple(self.marked[sdsc.AMPLIFIED]),
            wide_sums=tuple(self.marked[sdsc.WIDE_SUM]),
            numerics=BIT_TRUE if has_bfloat else None,
            indices=tuple(self.buffers.indices.values()),
            sizes=tuple(self.buffers.sizes),
        ).with_origins(map(origin_of, self.locations))


# The debug handle and the origin of an operation: source line, ATen op and module, from the location of the op.


def origin_of(location: ir.Location) -> model.Origin:
    """Return the origin that a location contains."""
    # From the right: a path may contain colons.
    place = location_of(location).rsplit(":", 2)
    file, line, column = (place[0], int(place[1]), int(place[2])) if len(place) == 3 else ("", 0, 0)
    return model.Origin(file, line, column, source_note(location, "aten"), source_note(location, "module"))


def debug_handle(op: ir.Operation, opcode: str) -> model.DebugHandle:
    """Return the debug handle that the bundle records for the origin of an operation."""
    origin = origin_of(op.location)
    place = (origin.file, str(origin.line), str(origin.column)) if origin.file else ()
    chain = (note for note in (origin.module, origin.aten_op) if note)
    return model.DebugHandle(
        id=":".join((*place, opcode)),
        file=origin.file or None,
        line=origin.line,
        column=origin.column,
        aten_op=origin.aten_op or None,
        ir_chain=(*chain, op.name, opcode),
        transforms=sdsc.history_of(op),
    )


# Contents of the scratchpads of a placed function: the part of a buffer on each core, and the parts that are accessed.


class LxContents:
    """Core views of the buffers in LX, by root value; ``CompileError`` if a reader would find another core's part.

    The check is done here because such an error cannot be detected in a bundle.
    """

    def __init__(self, func: ir.Operation) -> None:
        ops = all_ops(func)
        self.core_views: dict[ir.Value, CoreView] = {}
        self.partial: dict[
            ir.Value, core_ownership.PartialAccesses
        ] = {}  # buffers that operations access in parts
        # Ownership is costly to compute, and only buffers in LX need it.
        if not any(isinstance(sdsc.placement_of(op), sdsc.LxAttr) for op in ops):
            self.memory = AliasAnalysis(func)
            return
        usage = usage_of(func)
        memory, divided = usage.memory, usage.ops
        self.memory = memory
        for edge in usage.edges:
            if edge.is_illegal:
                raise edge.error()
        for user in divided:
            root = memory.place(user.values[-1]).buffer
            if is_in_lx(root):
                self.core_views[root] = core_ownership.written_distribution(
                    user.space, len(user.values) - 1, user.division
                ).complete
        for root, uses in core_ownership.uses_of_buffers(memory, divided).items():
            accesses = core_ownership.partial_accesses_of(root, uses) if is_in_lx(root) else None
            if accesses is not None:
                self.partial[root] = accesses

    def bytes_per_core(self, root: ir.Value, space: Space, operand: int, division: Division) -> int:
        """Return the bytes per core of a buffer if it is in LX."""
        if root not in self.partial:
            return local_bytes(space, operand, division)
        holder = self.partial[root].holder
        assert holder is not None
        user, operand = holder
        return local_bytes(user.space, operand, user.division)

    def subviews(self, places: Sequence[Place], space: Space, division: Division) -> dict[int, Subview]:
        """Return the subviews of the operands that access only a part of a core's buffer in LX."""
        subviews: dict[int, Subview] = {}
        for operand, place in enumerate(places):
            if place.buffer in self.partial:
                whole, accessed = self.partial[place.buffer].view, core_view(space, operand, division)
                # An access to the whole buffer needs no subview: the slices of a core are contiguous.
                if mismatch(whole, accessed) is not None:
                    subviews[operand] = subview_of(whole, accessed)
        return subviews

    def relayout(self, op: ir.Operation, space: Space, division: Division) -> Relayout:
        """Return the distributions over cores of the source and the result of a shuffle."""
        root = self.memory.place(op.operands[0]).buffer
        plan = relayout(space, self.core_views[root], division) if root in self.core_views else None
        if plan is None:
            raise error_at(op, "the source of a shuffle must be in LX")
        return plan


# Addresses in device memory as SSA values of a bundle, each with the symbol that represents it in designs.


@dataclass(frozen=True)
class DeviceAddress:
    """Address in device memory: ``offset`` bytes from a base, plus bytes per iteration for each loop variable.

    A run-time index moves an address in the same way as a loop variable.
    """

    base: str
    offset: int
    moves: tuple[tuple[ir.Value, int], ...] = ()


class AddressTable:
    """Symbols and values of addresses, one of each per distinct address; a value is built at its first use."""

    def __init__(self) -> None:
        self.bases: dict[str, ir.Value] = {}
        self.symbols: dict[DeviceAddress, int] = {}
        self.values: dict[DeviceAddress, ir.Value] = {}
        # loop variables, mapped to counts from 0; indices; run-time sizes, mapped to themselves
        self.variables: dict[ir.Value, ir.Value] = {}
        self.sizes: dict[str, ir.Value] = {}
        self._size_symbols: dict[tuple[str, int], tuple[int, ir.Value]] = {}

    def size_symbol(self, name: str, factor: int) -> tuple[int, ir.Value]:
        """Return the symbol and the value of a multiple of a run-time size."""
        key = name, factor
        if key not in self._size_symbols:
            size, symbol = self.sizes[name], self._next_symbol
            # Built after the size, so that it dominates all uses.
            with ir.InsertionPoint.after(size.owner):
                scaled = ir.AffineMap.get(1, 0, [ir.AffineDimExpr.get(0) * factor])
                value = size if factor == 1 else affine_apply(scaled, [size])
            self._size_symbols[key] = symbol, value
        return self._size_symbols[key]

    @contextlib.contextmanager
    def in_loop(self, variable: ir.Value, count: ir.Value) -> Iterator[None]:
        """Map a loop variable to its count in the bundle, and discard the values built in the body at the end."""
        self.variables[variable] = count
        # Values of the body do not dominate uses after the loop. Symbols denote addresses, not values, and are kept.
        outside = self.values.copy()
        yield
        self.values = outside

    def symbol(self, address: DeviceAddress) -> tuple[int, ir.Value]:
        """Return the symbol and the value of an address."""
        if address not in self.values:
            value = self.bases[address.base]
            if address.offset:
                value = scalar_op("arith.addi", [value, index_constant(address.offset)])
            if address.moves:
                moved: ir.AffineExpr = ir.AffineSymbolExpr.get(0)
                for dim, (_, stride) in enumerate(address.moves):
                    moved = moved + ir.AffineDimExpr.get(dim) * stride
                variables = [self.variables[variable] for variable, _ in address.moves]
                value = affine_apply(ir.AffineMap.get(len(variables), 1, [moved]), [*variables, value])
            self.values[address] = value
        return self.symbols.setdefault(address, self._next_symbol), self.values[address]

    @property
    def _next_symbol(self) -> int:
        # Negative numbers, so that a design can distinguish symbols from addresses in LX.
        return -(len(self.symbols) + len(self._size_symbols) + 1)


# Kernel arguments and buffers of a bundle: the arrays that the host passes, and the placement of each value.


_HOST_DTYPES = {name: element.host for name, element in ELEMENT_TYPES.items() if element.device is not None}

#: The base of buffers in LX (``bundle/model.py``).
LX = "lx"


class KernelBuffers:
    """Kernel arguments, constants and buffers of a placed function.

    ``arguments`` are in the order of the run-time ``parameters``: arguments, constants, results. ``buffers`` has an
    entry per root value; the entry of an intermediate is added by the first ``buffer`` call. ``indices`` are the
    parameters after them, which the host reads from arrays. ``CompileError`` if a bundle cannot express the program.
    """

    def __init__(self, func: ir.Operation, memory: AliasAnalysis, ops: Sequence[ir.Operation]) -> None:
        self.func, self.memory, self.ops = func, memory, ops
        self.arguments: list[model.KernelArgument] = []
        self.parameters: list[str] = []
        self._names: set[str] = set()
        self.constants: dict[str, ir.Attribute] = {}
        self.buffers: dict[ir.Value, model.Buffer] = {}
        self.intermediates = 0
        values = self.func.regions[0].blocks[0].arguments
        for number, (value, named) in enumerate(zip(values, argument_attributes(self.func), strict=True)):
            host = self._host_of(named, f"argument {number}")
            source = _text(named[sdsc.SOURCE]) if sdsc.SOURCE in named else None
            fill = self._fill(stick.padding_of(named))
            attributes = ir.DictAttr.get(named, self.func.context)
            view, bounds = sdsc.host_view_of(attributes, shape_of(value)), sdsc.index_bounds_of(attributes)
            texts, dims = (_text(host.label), _text(host.kind), _text(host.dtype)), SymbolicDims()
            # Weights have their largest sizes.
            if not self.memory.symbolic.is_empty and texts[1] == "input":
                dims = self.memory.symbolic.of(value)
                if SYMBOLIC_HOST in attributes:
                    sizes, mark = self.memory.symbolic.sizes, attributes[SYMBOLIC_HOST]
                    dims = symbolic_of(mark, sizes, view.array_shape, self.func.location)
            self._declare(value, *texts, fill, source, view, bounds, _extents(dims))
        for op in self.ops:
            if op.name == "arith.constant" and isinstance(op.results[0].type, ir.RankedTensorType):
                label = f"constant{len(self.constants)}"
                type_ = ir.RankedTensorType(op.results[0].type)
                plain = ir.RankedTensorType.get(type_.shape, type_.element_type)
                self.constants[label] = retyped(op.attributes["value"], plain)
                fill = self._fill(stick.padding_of(op.attributes))
                self._declare(op.results[0], label, "constant", str(type_.element_type), fill)
        results = list(self.func.attributes["res_attrs"]) if "res_attrs" in self.func.attributes else []
        returned = list(self.ops[-1].operands)
        for number, value in enumerate(returned):
            named = {entry.name: entry.attr for entry in ir.DictAttr(results[number])} if results else {}
            host = self._host_of(named, f"result {number}")
            symbolic = _extents(self.memory.symbolic.of(value))
            self._declare(value, _text(host.label), "result", _text(host.dtype), symbolic=symbolic)
        taken, device = sum(buffer.bytes for buffer in self.buffers.values()), self.memory.target.hbm_bytes
        if taken > device:
            raise error_at(self.func, f"arguments and results take {taken} bytes, the device has {device}")
        #: The indices that the host reads. Their parameters follow all arguments and results.
        self.indices: dict[ir.Value, model.RuntimeIndex] = {}
        for op in self.ops:
            if op.name == INDEX_ARGUMENT:
                parameter = parameter_name(len(self.parameters) + len(self.indices), is_address=False)
                facts = array_of_index(op), element_of_index(op), model.IndexBounds(*bounds_of_index(op))
                self.indices[op.results[0]] = model.RuntimeIndex(parameter, *facts)
        first = len(self.parameters) + len(self.indices)
        #: The run-time sizes of the function. Their parameters are the last ones.
        self.sizes = [
            model.RuntimeSize(parameter_name(number, is_address=False), name, *bounds)
            for number, (name, bounds) in enumerate(self.memory.symbolic.sizes.items(), first)
        ]

    def _host_of(self, named: Mapping[str, ir.Attribute], what: str) -> sdsc.HostAttr:
        """Return the host attribute of an argument or a result."""
        host = named.get(sdsc.HOST)
        if not isinstance(host, sdsc.HostAttr):
            raise error_at(self.func, f"{what} has no host array (sdsc.host)")
        if (_text(host.kind) == "result") != what.startswith("result"):
            raise error_at(self.func, f"{what} is of the kind '{_text(host.kind)}' in its sdsc.host")
        # The host passes arrays by name, so two arguments must not share one.
        if _text(host.label) in self._names:
            raise error_at(
                self.func, f"{what} has the name '{_text(host.label)}' of another in its sdsc.host"
            )
        return host

    def _fill(self, states: States) -> float | None:
        """Return the number that the host writes into the padding of an argument to satisfy all padding states."""
        values = sorted({state for state in states.values() if state is not None})
        if len(values) > 1:
            raise error_at(self.func, f"the host fills padding with one value, but an argument has {values}")
        return values[0] if values else None

    def _declare(
        self,
        value: ir.Value,
        label: str,
        kind: str,
        dtype: str,
        fill: float | None = None,
        source: str | None = None,
        view: HostView | None = None,
        index_bounds: tuple[int, int, str] | None = None,
        symbolic: tuple[model.SymbolicExtent, ...] = (),
    ) -> None:
        """Add an argument of the manifest for the buffer of ``value``, with its transfer between host and device.

        ``kind`` is input, parameter, constant or result; ``dtype`` is the host type, ``fill`` the padding's number.
        ``CompileError`` for a host type without a device format, or a result that does not fill its buffer.
        """
        if dtype not in _HOST_DTYPES:
            known = ", ".join(_HOST_DTYPES)
            raise error_at(self.func, f"'{label}' has the host type '{dtype}'; known here are {known}")
        place = self.memory.place(value)
        whole = self.memory.layout(place.buffer)
        # The host reads a result through its own layout: a result may be a view of its buffer.
        layout = whole if kind != "result" else self.memory.layout(value)
        # Bytes outside the view would be copied to the host as elements.
        if layout.bytes != whole.bytes:
            raise CompileError("a result must fill its whole buffer", location_of(self.ops[-1].location))
        view = view or HostView.whole(layout.shape)
        if view.last >= math.prod(view.array_shape):
            raise error_at(
                self.func,
                f"the sdsc.host_view of '{label}' exceeds its array of shape {list(view.array_shape)}",
            )
        known = self.buffers.get(place.buffer)
        # A result that updates an argument in place shares the parameter of the argument.
        parameter = known.base if known else parameter_name(len(self.parameters), is_address=True)
        if known is None:
            self.parameters.append(parameter)
        self._names.add(label)
        copy = dma_tuples(layout, view)
        self.arguments.append(
            model.KernelArgument(
                name=label,
                kind=kind,
                parameter=parameter,
                host_dtype=_HOST_DTYPES[dtype],
                host_shape=view.array_shape,
                data_format=DATA_FORMATS[layout.dtype],
                device_size=layout.device_size,
                bytes=whole.bytes,
                transfer=model.Transfer(
                    copy.ranges, copy.host_strides, copy.device_strides, copy.bounds, view.offset
                ),
                fill=fill,
                source=source,
                index_bounds=model.IndexBounds(*index_bounds) if index_bounds else None,
                symbolic=symbolic,
            )
        )
        self.buffers.setdefault(place.buffer, model.Buffer(label, parameter, 0, whole.bytes))

    def buffer(self, value: ir.Value, lx_bytes: int, bases: Collection[str]) -> model.Buffer:
        """Return the buffer of a root value: the buffer of an argument, or the buffer at the value's placement.

        ``lx_bytes`` is the size per core if the placement is in LX, ``bases`` are the memories of the program.
        """
        if value not in self.buffers:
            owner = defining_op(value)
            placement = sdsc.placement_of(owner) if owner else None
            if owner is None or placement is None:
                raise error_at(owner or self.func, "this buffer has no placement; run place-in-hbm first")
            if isinstance(placement, sdsc.HbmAttr) and _text(placement.base) not in bases:
                raise error_at(
                    owner, f"this buffer is in '{_text(placement.base)}', which is not in the program"
                )
            name = f"buffer{self.intermediates}"
            self.intermediates += 1
            if isinstance(placement, sdsc.LxAttr):
                address = ir.IntegerAttr(placement.address).value
                self.buffers[value] = model.Buffer(name, LX, address, lx_bytes)
            else:
                offset, size = ir.IntegerAttr(placement.offset).value, self.memory.layout(value).bytes
                reasons = sdsc.spilled_of(owner)
                self.buffers[value] = model.Buffer(name, _text(placement.base), offset, size, reasons)
        return self.buffers[value]


def _extents(dims: SymbolicDims) -> tuple[model.SymbolicExtent, ...]:
    return tuple(model.SymbolicExtent(dim, size.name, size.factor) for dim, size in sorted(dims.items()))


def _text(attr: ir.Attribute) -> str:
    return ir.StringAttr(attr).value
