# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Terms: the device tensors and constants that represent linalg values while a function is decomposed.

A *term* is a constant, or a device tensor under a selection of its dims (transpose, broadcast). The selection is not
written to memory unless a reader cannot express it in its indexing map.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from spyre_mlir.analysis.loops import LOOP
from spyre_mlir.diagnostics import error_at
from spyre_mlir.dialects import sdsc
from spyre_mlir.dialects.structured import Map, defining_op, device_op, element_of, shape_of, use_empty
from spyre_mlir.errors import CompileError
from spyre_mlir.mlir import ir, location_of
from spyre_mlir.records import dataclass
from spyre_mlir.rewriting.body_operations import scalar_of
from spyre_mlir.rewriting.tensor_builders import constant, elementwise, transposed
from spyre_mlir.target.element_types import ELEMENT_TYPES
from spyre_mlir.target.formats import fits_fp16

_SHOW_THE_WHOLE = ("tensor.expand_shape", "tensor.collapse_shape", "linalg.transpose", "stick.pin")


def device_element(element: str, location: ir.Location) -> str:
    """Return the device element type for a host element type; ``CompileError`` for an unsupported type."""
    known = ELEMENT_TYPES.get(element)
    if known is None or known.device is None:
        raise CompileError(f"element type {element} is not supported by the device", location_of(location))
    return known.device


@dataclass(frozen=True)
class Term:
    """A linalg value as the device tensor ``value``, whose dims are its ``dims``, or as the constant ``splat``."""

    value: ir.Value | None
    dims: Map = ()
    splat: float | None = None


class Terms:
    """The terms of all values of one function, with methods that return device tensors of terms."""

    def __init__(self) -> None:
        self._terms: dict[ir.Value, Term] = {}
        self._private: set[ir.Value] = set()

    def bind(self, old: ir.Value, new: ir.Value, is_private: bool = False) -> None:
        """Bind ``old`` to its device tensor ``new``; ``is_private``: no other value is in its buffer."""
        self.bind_term(old, Term(new, tuple(range(len(shape_of(new))))), is_private)

    def bind_term(self, old: ir.Value, term: Term, is_private: bool = True) -> None:
        """Bind ``old`` to a term; ``is_private``: no other value is in its buffer."""
        self._terms[old] = term
        if is_private and term.value is not None:
            self._private.add(term.value)

    def alias(self, old: ir.Value, other: ir.Value) -> None:
        """Bind ``old`` to the term of another linalg value."""
        self._terms[old] = self[other]

    def bind_constant(self, op: ir.Operation) -> None:
        """Bind a constant tensor: a splat, or an ``arith.constant`` in the device's element type."""
        attr = op.attributes["value"]
        type_ = ir.RankedTensorType(op.results[0].type)
        element = device_element(str(type_.element_type), op.location)
        if not isinstance(attr, ir.DenseElementsAttr):
            raise error_at(op, "a constant tensor must be given by its values; pass large ones as arguments")
        if attr.is_splat:
            splat = attr.get_splat_value()
            self._terms[op.results[0]] = Term(None, splat=float(splat.value))
            return
        if not ELEMENT_TYPES[element].is_native:
            raise error_at(op, f"a constant tensor of {element} is not supported; pass it as an argument")
        array = _numbers(attr)
        # bf16 has a larger range than fp16: a constant outside the range of fp16 stays f32 until the device rounds it.
        is_wide = element == "f16" and not fits_fp16(array).all()
        element = "f32" if is_wide else element
        array = np.ascontiguousarray(array.astype(ELEMENT_TYPES[element].storage))
        device_type = ir.RankedTensorType.get(type_.shape, ir.Type.parse(element))
        tensor = constant(ir.DenseElementsAttr.get(array, type=device_type))
        self.bind(op.results[0], _rounded(tensor, op.location) if is_wide else tensor)

    def __getitem__(self, value: ir.Value) -> Term:
        """Return the term of a linalg value or scalar."""
        if value in self._terms:
            return self._terms[value]
        scalar = scalar_of(value)
        if scalar is None:
            owner = defining_op(value)
            if owner is not None and owner.name == "tensor.empty":
                why = "this tensor is read before it is written; initialize it with linalg.fill"
                raise error_at(owner, why)
            where = location_of(owner.location) if owner else ""
            raise CompileError(f"a value of type {value.type} is not supported by the device", where)
        return Term(None, splat=scalar)

    def filled(self, shape: Sequence[int], element: str, value: float, location: ir.Location) -> ir.Value:
        """Create a device tensor whose elements are all ``value``."""
        is_wide = element == "f16" and not fits_fp16(value)
        element = "f32" if is_wide else element
        number = number_tensor(value, element)
        tensor = device_op("identity", [number], [()], shape, element, location=location)
        tensor = _rounded(tensor, location) if is_wide else tensor
        self._private.add(tensor)
        return tensor

    def materialize(self, value: ir.Value, location: ir.Location) -> ir.Value:
        """Return the device tensor of a linalg value; create it if the term is a constant, transposed or broadcast."""
        term, shape = self[value], shape_of(value)
        if term.value is None:
            assert term.splat is not None
            return self.filled(shape, device_element(element_of(value), location), term.splat, location)
        if term.dims == tuple(range(len(shape))):
            return term.value
        if sorted(dim for dim in term.dims if dim is not None) == list(range(len(shape))):
            return transposed(term.value, [term.dims.index(dim) for dim in range(len(shape))])
        element = element_of(term.value)
        tensor = device_op("identity", [term.value], [term.dims], shape, element, location=location)
        self._private.add(tensor)
        return tensor

    def private_buffer(
        self,
        value: ir.Value,
        location: ir.Location,
        unavailable: frozenset[ir.Value] = frozenset(),
        sole_reader: bool = False,
    ) -> ir.Value:
        """Return a device tensor in a buffer that no other value uses: a clone if the buffer of ``value`` is shared.

        ``unavailable`` are values whose buffers are in use; with ``sole_reader`` other readers of the value count, too.
        """
        tensor = self.materialize(value, location)
        root = buffer_of(tensor)
        # Never None: each of these values was returned by this method.
        roots = {buffer_of(other) for other in unavailable}
        is_shared = root is None or root not in self._private or root in roots
        if sole_reader and not is_shared:
            several = root != tensor or sum(1 for _ in value.uses) > 1
            # An iter_arg is its own tensor.
            is_shared = several or (value != tensor and not use_empty(tensor))
        return self.copied(tensor, location) if is_shared else tensor

    def copied(self, value: ir.Value, location: ir.Location) -> ir.Value:
        """Create a copy of a device tensor, in a buffer that no other value uses."""
        copy = sdsc.clone(value, location)
        self._private.add(copy)
        return copy


def number_tensor(value: float, element: str) -> ir.Value:
    """Create a rank-0 tensor that holds a constant."""
    type_ = ir.RankedTensorType.get([], ir.Type.parse(element))
    is_integer = element in ("i32", "i8")
    kind = ir.IntegerAttr if is_integer else ir.FloatAttr
    number = kind.get(type_.element_type, int(value) if is_integer else value)
    return constant(ir.DenseElementsAttr.get_splat(type_, number))


def _rounded(value: ir.Value, location: ir.Location) -> ir.Value:
    """Round an f32 tensor to the device's 16-bit format, for bf16 numbers that fp16 cannot represent."""
    return elementwise("fp32todl16", value, "f16", location)


def _numbers(attr: ir.DenseElementsAttr) -> np.ndarray:
    """Return the values of a constant. The bindings cannot read bf16, whose bits are the upper half of an f32."""
    type_, text = ir.RankedTensorType(attr.type), str(attr)
    if str(type_.element_type) != "bf16":
        return np.array(attr)
    if '"0x' in text:
        bits = np.frombuffer(bytes.fromhex(text.split('"')[1][2:]), np.uint16).astype(np.uint32)
        return (bits << 16).view(np.float32).reshape(type_.shape)
    text = re.sub(r"0x([0-9A-F]{4})\b", r"0x\g<1>0000", text)
    return np.array(ir.Attribute.parse(text.replace("xbf16>", "xf32>")))


def buffer_of(value: ir.Value) -> ir.Value | None:
    """Return the source of a chain of reshapes, transposes and pins, which share its whole buffer; None for a slice.

    Return None also for an argument of a function, because the caller owns its buffer; an iter_arg has a buffer.
    """
    while True:
        owner = defining_op(value)
        if owner is None:
            return value if ir.BlockArgument(value).owner.owner.name == LOOP else None
        if owner.name == "tensor.extract_slice":
            return None
        if owner.name not in _SHOW_THE_WHOLE:
            return value
        value = owner.operands[0]
