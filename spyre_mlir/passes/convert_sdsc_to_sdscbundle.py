"""Lowers placed device operations to a SuperDSC bundle."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from spyre_mlir.analysis.aliasing import (
    AliasAnalysis,
    Place,
    all_ops,
    argument_attributes,
    functions,
    is_compute,
    is_in_lx,
)
from spyre_mlir.analysis.bundle_sequence import bundle_number
from spyre_mlir.analysis.core_ownership import (
    SHUFFLE,
    PartialAccesses,
    def_use_edges,
    divided_ops,
    partial_accesses_of,
    uses_of_buffers,
    written_distribution,
)
from spyre_mlir.analysis.loops import LOOP, body_block, nested_ops, trip_count
from spyre_mlir.bundle.model import Buffer, Bundle, Design, IndexBounds, KernelArgument, Manifest, Transfer
from spyre_mlir.bundle.plain import to_plain
from spyre_mlir.diagnostics import error_at
from spyre_mlir.dialects import sdsc, sdscbundle, stick
from spyre_mlir.dialects.attributes import to_attribute
from spyre_mlir.dialects.structured import defining_op, shape_of
from spyre_mlir.division import CoreView, Division, core_view, mismatch
from spyre_mlir.division.ownership import local_bytes
from spyre_mlir.division.relayout import Distribution, relayout
from spyre_mlir.division.subviews import Subview, subview_of
from spyre_mlir.errors import CompileError
from spyre_mlir.layout.host_transfer import dma_tuples
from spyre_mlir.layout.host_view import HostView
from spyre_mlir.layout.padding import States
from spyre_mlir.layout.space import Space
from spyre_mlir.layout.stick_layout import ELEMENT_BYTES
from spyre_mlir.lowering.debug_handles import debug_handle
from spyre_mlir.lowering.design_builder import DesignBuilder, identity_of
from spyre_mlir.lowering.export import assembled
from spyre_mlir.mlir import ir, location_of
from spyre_mlir.passes.base import Pass
from spyre_mlir.target.device import device
from spyre_mlir.target.element_types import DATA_FORMATS, ELEMENT_TYPES
from spyre_mlir.target.formats import BIT_TRUE

_HOST_DTYPES = {name: element.host for name, element in ELEMENT_TYPES.items() if element.device is not None}

#: The base of buffers in LX (``bundle/model.py``).
LX = "lx"


@dataclass(frozen=True)
class _Address:
    """Address in device memory: ``offset`` bytes from a base, plus bytes per iteration for each loop variable."""

    base: str
    offset: int
    moves: tuple[tuple[ir.Value, int], ...] = ()


@dataclass(frozen=True)
class ConvertSdscToSdscbundle(Pass):
    """Turn each device operation into one ``sdscbundle.sdsc_execute`` and its design.

    The function becomes ``@sdsc_bundle`` with one run-time parameter per argument, constant and result;
    every operand of every core in device memory is an address: base + offset + what each iteration of the loops
    around it adds. One in LX is a literal of the
    design, the same on all cores; that a reader finds there what it reads is what ``verify-ownership`` checks.
    Designs, the host's manifest and the values of constants are attributes of the module. Operations with the
    same design share one file.

    Before: level *placed*, one function. After: only the ops of the public interface.
    """

    name: ClassVar[str] = "convert-sdsc-to-sdscbundle"

    def run(self, module: ir.Operation) -> None:
        lowering = _Lowering(module)
        lowering.run()
        lowering.write_attributes()


def bundle_of(module: ir.Operation) -> Bundle:
    """Return the bundle of a placed module without its attributes, for evaluation; the module is at no level then."""
    lowering = _Lowering(module)
    return assembled(lowering.run(), lowering.designs, lowering.manifest)


class _Lowering:
    """Lowering of one function, which is replaced by ``@sdsc_bundle``."""

    def __init__(self, module: ir.Operation) -> None:
        funcs = functions(module)
        if len(funcs) != 1:
            raise CompileError(f"a bundle is made of one function with a body, this module has {len(funcs)}")
        self.module = module
        (func,) = funcs
        self.func = func
        self.memory = AliasAnalysis(func)
        self.ops = all_ops(func)
        self.arguments: list[KernelArgument] = []
        self.constants: dict[str, ir.Attribute] = {}
        self.buffers: dict[ir.Value, Buffer] = {}
        self.intermediates = 0
        self.uses: list[tuple[str, ...]] = []
        self.cuts: list[int] = []  # the executes that begin another bundle
        self.demoted: list[int] = []
        self.amplified: list[int] = []
        self.has_bfloat = sdsc.BFLOAT in func.attributes
        self.designs: dict[str, Design] = {}
        self.files: dict[tuple, str] = {}
        self.addresses: dict[_Address, ir.Value] = {}
        self.symbols: dict[_Address, int] = {}
        self.bases: dict[str, ir.Value] = {}
        self.core_views: dict[ir.Value, CoreView] = {}  # what the cores have of a buffer in LX
        self.pieces: dict[ir.Value, PartialAccesses] = {}  # buffers in LX that operations touch in parts
        self.variables: dict[ir.Value, ir.Value] = {}  # of the loops: the old one and its count from 0

    def run(self) -> ir.Operation:
        """Lower the function and return the new one."""
        self._check_owners()
        self._declare_arguments()
        location = self.func.location
        with location, ir.InsertionPoint(self.func):
            types = [sdscbundle.input_arg_type() for _ in self.arguments]
            entry = ir.Operation.create(
                "func.func",
                regions=1,
                attributes={
                    "sym_name": ir.StringAttr.get(sdscbundle.ENTRY),
                    "function_type": ir.TypeAttr.get(ir.FunctionType.get(types, [])),
                },
            )
            block = ir.Block.create_at_start(entry.regions[0], types)
            with ir.InsertionPoint(block):
                self._bases(block)
                self._lower_bundles()
                ir.Operation.create("func.return")
        self.func.erase()
        return entry

    def _check_owners(self) -> None:
        """Refuse a reader of LX that finds another core's part: in a bundle nothing could detect that any more."""
        if not any(isinstance(sdsc.placement_of(op), sdsc.LxAttr) for op in self.ops):
            return
        divided = divided_ops(self.memory, self.ops)
        for edge in def_use_edges(self.memory, divided):
            if edge.is_illegal:
                raise edge.error()
        for user in divided:
            root = self.memory.place(user.values[-1]).buffer
            if is_in_lx(root):
                self.core_views[root] = written_distribution(
                    user.space, len(user.values) - 1, user.division
                ).complete
        for root, uses in uses_of_buffers(self.memory, divided).items():
            pieces = partial_accesses_of(root, uses) if is_in_lx(root) else None
            if pieces is not None:
                self.pieces[root] = pieces

    # -- arguments and buffers ------------------------------------------------------------------------

    def _declare_arguments(self) -> None:
        values = self.func.regions[0].blocks[0].arguments
        for number, (value, named) in enumerate(zip(values, argument_attributes(self.func), strict=True)):
            host = self._host_of(named, f"argument {number}")
            source = _text(named[sdsc.SOURCE]) if sdsc.SOURCE in named else None
            fill = self._fill(stick.padding_of(named))
            attributes = ir.DictAttr.get(named, self.func.context)
            view, bounds = sdsc.host_view_of(attributes, shape_of(value)), sdsc.index_bounds_of(attributes)
            texts = _text(host.label), _text(host.kind), _text(host.dtype)
            self._declare(value, *texts, fill, source, view, bounds)
        for op in self.ops:
            if op.name == "arith.constant" and isinstance(op.results[0].type, ir.RankedTensorType):
                label = f"constant{len(self.constants)}"
                type_ = ir.RankedTensorType(op.results[0].type)
                self.constants[label] = _without_layout(op.attributes["value"], type_)
                fill = self._fill(stick.padding_of(op.attributes))
                self._declare(op.results[0], label, "constant", str(type_.element_type), fill)
        results = list(self.func.attributes["res_attrs"]) if "res_attrs" in self.func.attributes else []
        returned = list(self.ops[-1].operands)
        for number, value in enumerate(returned):
            named = {entry.name: entry.attr for entry in ir.DictAttr(results[number])} if results else {}
            host = self._host_of(named, f"result {number}")
            self._declare(value, _text(host.label), "result", _text(host.dtype))

    def _host_of(self, named: Mapping[str, ir.Attribute], what: str) -> sdsc.HostAttr:
        """Return the host attribute of an argument or a result."""
        host = named.get(sdsc.HOST)
        if not isinstance(host, sdsc.HostAttr):
            raise error_at(self.func, f"{what} does not say what the host makes of it (sdsc.host)")
        if (_text(host.kind) == "result") != what.startswith("result"):
            raise error_at(self.func, f"{what} is of the kind '{_text(host.kind)}' in its sdsc.host")
        if any(argument.name == _text(host.label) for argument in self.arguments):
            raise error_at(
                self.func, f"{what} has the name '{_text(host.label)}' of another in its sdsc.host"
            )
        return host

    def _fill(self, states: States) -> float | None:
        """Return the number that the host writes into the padding of an argument, so that all its states hold."""
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
    ) -> None:
        if dtype not in _HOST_DTYPES:
            known = ", ".join(_HOST_DTYPES)
            raise error_at(self.func, f"'{label}' has the host type '{dtype}'; known here are {known}")
        place = self.memory.place(value)
        layout = self.memory.layout(place.buffer) if kind != "result" else self._result_layout(value)
        view = view or HostView.whole(layout.shape)
        if view.last >= math.prod(view.array_shape):
            raise error_at(
                self.func,
                f"the sdsc.host_view of '{label}' ends behind its array of {list(view.array_shape)}",
            )
        tuples = dma_tuples(layout, view)
        parameter = f"arg_{len(self.arguments)}_base_addr"
        size = self.memory.layout(place.buffer).bytes
        self.arguments.append(
            KernelArgument(
                name=label,
                kind=kind,
                parameter=parameter,
                host_dtype=_HOST_DTYPES[dtype],
                host_shape=view.array_shape,
                data_format=DATA_FORMATS[layout.dtype],
                device_size=layout.device_size,
                bytes=size,
                transfer=Transfer(
                    tuples.ranges, tuples.host_strides, tuples.device_strides, tuples.bounds, view.offset
                ),
                fill=fill,
                source=source,
                index_bounds=IndexBounds(*index_bounds) if index_bounds else None,
            )
        )
        self.buffers[place.buffer] = Buffer(label, parameter, 0, size)

    def _result_layout(self, value: ir.Value):
        """Return the layout through which the host reads a result, which may be a view of its buffer."""
        layout = self.memory.layout(value)
        if layout.bytes != self.memory.layout(self.memory.place(value).buffer).bytes:
            raise CompileError("a result must fill its whole buffer", location_of(self.ops[-1].location))
        return layout

    def _buffer(self, value: ir.Value, lx_bytes: int) -> Buffer:
        """Return the buffer of a root value: an argument's, or the one its placement names, of ``lx_bytes`` in LX."""
        if value not in self.buffers:
            owner = defining_op(value)
            placement = sdsc.placement_of(owner) if owner else None
            if placement is None:
                raise error_at(owner or self.func, "this buffer has no placement; run place-in-hbm first")
            if isinstance(placement, sdsc.HbmAttr) and _text(placement.base) not in self.bases:
                raise error_at(
                    owner, f"this buffer lies in '{_text(placement.base)}', which the program has not"
                )
            name = f"buffer{self.intermediates}"
            self.intermediates += 1
            if isinstance(placement, sdsc.LxAttr):
                address = ir.IntegerAttr(placement.address).value
                self.buffers[value] = Buffer(name, LX, address, lx_bytes)
            else:
                offset, size = ir.IntegerAttr(placement.offset).value, self.memory.layout(value).bytes
                reasons = sdsc.spilled_of(owner)
                self.buffers[value] = Buffer(name, _text(placement.base), offset, size, reasons)
        return self.buffers[value]

    def _bases(self, block: ir.Block) -> None:
        for argument, value in zip(self.arguments, block.arguments, strict=True):
            self.bases[argument.parameter] = sdscbundle.input_arg_extract(value)
        size = (
            ir.IntegerAttr(self.func.attributes[sdsc.POOL_BYTES]).value
            if sdsc.POOL_BYTES in self.func.attributes
            else 0
        )
        if size:
            self.bases["pool"] = sdscbundle.device_mem_allocate(size)

    # -- operations -----------------------------------------------------------------------------------

    def _lower_bundles(self) -> None:
        """Lower the executions of the function, and record where another bundle begins among them."""
        current: int | None = None
        for op in (op_view.operation for op_view in self.memory.block.operations):
            number, first = bundle_number(op), len(self.uses)
            self._lower_op(op)
            if number is not None and len(self.uses) > first:
                if first and number != current:
                    self.cuts.append(first)
                current = number

    def _lower(self, block: ir.Block) -> None:
        """Lower the executions of a block and of the loops in it, at the current insertion point."""
        for op in (op_view.operation for op_view in block.operations):
            self._lower_op(op)

    def _lower_op(self, op: ir.Operation) -> None:
        if op.name == LOOP:
            self._loop(op)
        elif is_compute(op):
            self._execute(op)

    def _loop(self, op: ir.Operation) -> None:
        """Lower a loop to one from 0 by 1 without iter_args: those are in buffers, its bounds in addresses."""
        body = body_block(op)
        if not any(is_compute(inner) for inner in nested_ops(body)):
            return
        trips = trip_count(op)
        if trips > device().loop_iterations:
            raise error_at(op, f"a loop runs at most {device().loop_iterations} times, not {trips}")
        bounds = [self._index(bound) for bound in (0, trips, 1)]
        loop = ir.Operation.create("scf.for", operands=bounds, regions=1, loc=op.location)
        block = ir.Block.create_at_start(loop.regions[0], [ir.IndexType.get()])
        self.variables[body.arguments[0]] = block.arguments[0]
        outside = self.addresses.copy()
        with ir.InsertionPoint(block):
            self._lower(body)
            ir.Operation.create("scf.yield")
        self.addresses = outside  # what was computed inside is not there outside

    def _index(self, value: int) -> ir.Value:
        index = ir.IndexType.get()
        attributes = {"value": ir.IntegerAttr.get(index, value)}
        return ir.Operation.create("arith.constant", results=[index], attributes=attributes).result

    def _execute(self, op: ir.Operation) -> None:
        opcode, space, values = self.memory.space(op)
        if sdsc.DIVISION not in op.attributes:
            raise error_at(op, "this operation has no division; run work-distribution first")
        division = sdsc.division_of(op)
        places = [self.memory.place(value) for value in values]
        buffers = [
            self._buffer(place.buffer, self._lx_bytes(place.buffer, space, operand, division))
            for operand, place in enumerate(places)
        ]
        in_lx = [operand for operand, buffer in enumerate(buffers) if buffer.base == LX]
        parts = {} if opcode == SHUFFLE else self._parts(places, space, division)
        constants = sdsc.constants_of(op) if sdsc.OP in op.attributes else {}
        bound: dict[int, ir.Value] = {}

        def start(operand: int, core: int, offset: int) -> int:
            buffer = buffers[operand]
            if operand in in_lx:
                return buffer.offset + offset
            moves = {
                variable: elements * ELEMENT_BYTES[space.views[operand].dtype]
                for variable, elements in places[operand].moves.items()
            }
            symbol, value = self._address(_Address(buffer.base, buffer.offset + offset, tuple(moves.items())))
            bound[symbol] = value
            return symbol

        sources = {0: self._source(op, space, division)} if opcode == SHUFFLE else {}
        addressed = self.memory.addressed_space(op)
        builder = DesignBuilder(
            opcode, addressed, division, constants, sdsc.masks_of(op), in_lx, sources, parts
        )
        design = builder.build(len(self.designs), start, debug_handle(op, opcode))
        filename = self._file(design)
        sdscbundle.sdsc_execute(filename, list(bound.values()), list(bound), op.location)
        if sdsc.DEMOTED in op.attributes:
            self.demoted.append(len(self.uses))
        if sdsc.AMPLIFIED in op.attributes:
            self.amplified.append(len(self.uses))
        self.uses.append(tuple(buffer.name for buffer in buffers))

    def _lx_bytes(self, root: ir.Value, space: Space, operand: int, division: Division) -> int:
        """Return the bytes per core that a buffer takes if it is in LX."""
        if root not in self.pieces:
            return local_bytes(space, operand, division)
        holder = self.pieces[root].holder
        assert holder is not None
        user, operand = holder
        return local_bytes(user.space, operand, user.division)

    def _parts(self, places: Sequence[Place], space: Space, division: Division) -> dict[int, Subview]:
        """Return the subviews of the operands that access a part of what a core holds of a buffer in LX."""
        subviews = {}
        for operand, place in enumerate(places):
            if place.buffer in self.pieces:
                whole, accessed = self.pieces[place.buffer].view, core_view(space, operand, division)
                if mismatch(whole, accessed) is not None:
                    subviews[operand] = subview_of(whole, accessed)
        return subviews

    def _source(self, op: ir.Operation, space: Space, division: Division) -> Distribution:
        """Return the distribution over cores from which a shuffle copies."""
        root = self.memory.place(op.operands[0]).buffer
        plan = relayout(space, self.core_views[root], division) if root in self.core_views else None
        if plan is None:
            raise error_at(op, "a shuffle takes slices that are in LX, but its source is not there")
        return plan.source

    def _address(self, address: _Address) -> tuple[int, ir.Value]:
        """Return the symbol and the value of an address, one of each per distinct address."""
        if address not in self.addresses:
            self.addresses[address] = self._computed(address)
        symbol = self.symbols.setdefault(address, -(len(self.symbols) + 1))
        return symbol, self.addresses[address]

    def _computed(self, address: _Address) -> ir.Value:
        value, index = self.bases[address.base], ir.IndexType.get()
        if address.offset:
            operands = [value, self._index(address.offset)]
            value = ir.Operation.create("arith.addi", results=[index], operands=operands).result
        if not address.moves:
            return value
        moved: ir.AffineExpr = ir.AffineSymbolExpr.get(0)
        for dim, (_, stride) in enumerate(address.moves):
            moved = moved + ir.AffineDimExpr.get(dim) * stride
        map_ = ir.AffineMap.get(len(address.moves), 1, [moved])
        variables = [self.variables[variable] for variable, _ in address.moves]
        return ir.Operation.create(
            "affine.apply",
            results=[index],
            operands=[*variables, value],
            attributes={"map": ir.AffineMapAttr.get(map_)},
        ).result

    def _file(self, design: Design) -> str:
        """Return the file of a design: an earlier one that says the same, debug handle aside."""
        key = identity_of(design)
        if key not in self.files:
            self.files[key] = design.filename
            self.designs[design.filename] = design
        return self.files[key]

    @property
    def manifest(self) -> Manifest:
        has_bfloat = self.has_bfloat or any(argument.host_dtype == "bfloat16" for argument in self.arguments)
        return Manifest(
            tuple(self.arguments),
            tuple(self.buffers.values()),
            tuple(self.uses),
            demoted=tuple(self.demoted),
            amplified=tuple(self.amplified),
            numerics=BIT_TRUE if has_bfloat else None,
        )

    def write_attributes(self) -> None:
        """Write designs, manifest, cuts and constants as attributes of the module."""
        with self.module.context:
            self.module.attributes[sdscbundle.DESIGNS] = to_attribute(
                {filename: to_plain(design) for filename, design in self.designs.items()}
            )
            self.module.attributes[sdscbundle.MANIFEST] = to_attribute(to_plain(self.manifest))
            if self.cuts:
                self.module.attributes[sdscbundle.CUTS] = to_attribute(self.cuts)
            if self.constants:
                self.module.attributes[sdscbundle.CONSTANTS] = ir.DictAttr.get(self.constants)


def _text(attr: ir.Attribute) -> str:
    return ir.StringAttr(attr).value


def _without_layout(attr: ir.Attribute, type_: ir.RankedTensorType) -> ir.Attribute:
    plain = ir.RankedTensorType.get(type_.shape, type_.element_type)
    if attr.is_splat:
        return ir.DenseElementsAttr.get_splat(plain, attr.get_splat_value())
    text = str(attr)
    return ir.Attribute.parse(text[: text.rindex(" : ")] + f" : {plain}")
