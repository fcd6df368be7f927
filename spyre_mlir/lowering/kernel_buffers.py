# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Kernel arguments and buffers of a bundle: the arrays that the host passes, and the placement of each value."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence

from spyre_mlir.analysis.aliasing import AliasAnalysis, argument_attributes
from spyre_mlir.bundle.model import (
    Buffer,
    IndexBounds,
    KernelArgument,
    RuntimeIndex,
    RuntimeSize,
    SymbolicExtent,
    Transfer,
)
from spyre_mlir.diagnostics import error_at
from spyre_mlir.dialects import sdsc, stick
from spyre_mlir.dialects.indices import INDEX_ARGUMENT, array_of_index, bounds_of_index, element_of_index
from spyre_mlir.dialects.structured import defining_op, shape_of
from spyre_mlir.dialects.symbolic_sizes import SYMBOLIC_HOST, symbolic_of
from spyre_mlir.errors import CompileError
from spyre_mlir.layout.host_transfer import dma_tuples
from spyre_mlir.layout.host_view import HostView
from spyre_mlir.layout.padding import States
from spyre_mlir.layout.symbolic import SymbolicDims
from spyre_mlir.lowering.export import parameter_name
from spyre_mlir.mlir import ir, location_of
from spyre_mlir.rewriting.tensor_builders import retyped
from spyre_mlir.target.element_types import DATA_FORMATS, ELEMENT_TYPES

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
        self.arguments: list[KernelArgument] = []
        self.parameters: list[str] = []
        self._names: set[str] = set()
        self.constants: dict[str, ir.Attribute] = {}
        self.buffers: dict[ir.Value, Buffer] = {}
        self.intermediates = 0
        self._declare_arguments()
        self._declare_constants()
        self._declare_results()
        taken, device = sum(buffer.bytes for buffer in self.buffers.values()), self.memory.target.hbm_bytes
        if taken > device:
            raise error_at(self.func, f"arguments and results take {taken} bytes, the device has {device}")
        #: The indices that the host reads. Their parameters follow all arguments and results.
        self.indices: dict[ir.Value, RuntimeIndex] = {}
        for op in self.ops:
            if op.name == INDEX_ARGUMENT:
                parameter = parameter_name(len(self.parameters) + len(self.indices), is_address=False)
                facts = array_of_index(op), element_of_index(op), IndexBounds(*bounds_of_index(op))
                self.indices[op.results[0]] = RuntimeIndex(parameter, *facts)
        first = len(self.parameters) + len(self.indices)
        #: The run-time sizes of the function. Their parameters are the last ones.
        self.sizes = [
            RuntimeSize(parameter_name(number, is_address=False), name, *bounds)
            for number, (name, bounds) in enumerate(self.memory.symbolic.sizes.items(), first)
        ]

    def _declare_arguments(self) -> None:
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

    def _declare_constants(self) -> None:
        for op in self.ops:
            if op.name == "arith.constant" and isinstance(op.results[0].type, ir.RankedTensorType):
                label = f"constant{len(self.constants)}"
                type_ = ir.RankedTensorType(op.results[0].type)
                plain = ir.RankedTensorType.get(type_.shape, type_.element_type)
                self.constants[label] = retyped(op.attributes["value"], plain)
                fill = self._fill(stick.padding_of(op.attributes))
                self._declare(op.results[0], label, "constant", str(type_.element_type), fill)

    def _declare_results(self) -> None:
        results = list(self.func.attributes["res_attrs"]) if "res_attrs" in self.func.attributes else []
        returned = list(self.ops[-1].operands)
        for number, value in enumerate(returned):
            named = {entry.name: entry.attr for entry in ir.DictAttr(results[number])} if results else {}
            host = self._host_of(named, f"result {number}")
            symbolic = _extents(self.memory.symbolic.of(value))
            self._declare(value, _text(host.label), "result", _text(host.dtype), symbolic=symbolic)

    def _host_of(self, named: Mapping[str, ir.Attribute], what: str) -> sdsc.HostAttr:
        """Return the host attribute of an argument or a result."""
        host = named.get(sdsc.HOST)
        if not isinstance(host, sdsc.HostAttr):
            raise error_at(self.func, f"{what} does not say what the host makes of it (sdsc.host)")
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
        symbolic: tuple[SymbolicExtent, ...] = (),
    ) -> None:
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
                f"the sdsc.host_view of '{label}' ends behind its array of {list(view.array_shape)}",
            )
        known = self.buffers.get(place.buffer)
        # A result that updates an argument in place shares the parameter of the argument.
        parameter = known.base if known else parameter_name(len(self.parameters), is_address=True)
        if known is None:
            self.parameters.append(parameter)
        self._names.add(label)
        copy = dma_tuples(layout, view)
        self.arguments.append(
            KernelArgument(
                name=label,
                kind=kind,
                parameter=parameter,
                host_dtype=_HOST_DTYPES[dtype],
                host_shape=view.array_shape,
                data_format=DATA_FORMATS[layout.dtype],
                device_size=layout.device_size,
                bytes=whole.bytes,
                transfer=Transfer(
                    copy.ranges, copy.host_strides, copy.device_strides, copy.bounds, view.offset
                ),
                fill=fill,
                source=source,
                index_bounds=IndexBounds(*index_bounds) if index_bounds else None,
                symbolic=symbolic,
            )
        )
        self.buffers.setdefault(place.buffer, Buffer(label, parameter, 0, whole.bytes))

    def buffer(self, value: ir.Value, lx_bytes: int, bases: Collection[str]) -> Buffer:
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


def _extents(dims: SymbolicDims) -> tuple[SymbolicExtent, ...]:
    return tuple(SymbolicExtent(dim, size.name, size.factor) for dim, size in sorted(dims.items()))


def _text(attr: ir.Attribute) -> str:
    return ir.StringAttr(attr).value
