# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tensors in device layouts: ``to_device`` lays out an array by the DMA tuples, ``numpy()`` reads it back.

A tensor is a view, with host sizes and strides, of a storage in one layout. Views share their storage, as in PyTorch.
Operations that compute run as programs on the simulator and create a new storage.
"""

from __future__ import annotations

import functools
import itertools
import math
import threading
import weakref
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from spyre_mlir import eager_mode
from spyre_mlir.bundle.model import Transfer
from spyre_mlir.bundle.transfer import filled_parts, from_raw, to_raw
from spyre_mlir.errors import CompileError, UnsupportedDtypeError, first_sentence, kind_of
from spyre_mlir.layout import StickLayout
from spyre_mlir.layout.host_transfer import dma_tuples
from spyre_mlir.layout.requests import LayoutRequest
from spyre_mlir.layout.strided import StridedView, layout_of_view
from spyre_mlir.records import dataclass
from spyre_mlir.target.element_types import DATA_FORMATS, ELEMENT_TYPES, ONE_BYTE, dtype_name
from spyre_mlir.target.formats import BIT_TRUE, FORMATS, IEEE, Numerics
from spyre_mlir.target.target import default_target
from spyre_mlir.tensors.device_views import DeviceViews, ViewStep, steps_to

# Counter of the bytes of live device storages, including padding, and of their peak.


class LiveStorages:
    """Bytes of live storages: ``allocated_bytes``, and ``peak_bytes``, their maximum since the last reset.

    ``total_allocated_bytes`` and ``total_freed_bytes`` only grow, until ``reset_totals``.
    """

    def __init__(self) -> None:
        self.allocated_bytes = 0
        self.peak_bytes = 0
        self.total_allocated_bytes = 0
        self.total_freed_bytes = 0
        self._references: dict[int, weakref.ref[Any]] = {}
        self._numbers = itertools.count()
        # Reentrant: garbage collection may free storages during ``allocate``.
        self._lock = threading.RLock()

    def allocate(self, storage: Any, nbytes: int) -> None:
        """Count the bytes of a storage until it is garbage-collected."""
        number = next(self._numbers)

        def free(_: weakref.ref[Any]) -> None:
            """Stop counting the bytes."""
            with self._lock:
                self.allocated_bytes -= nbytes
                self.total_freed_bytes += nbytes
                del self._references[number]

        with self._lock:
            self._references[number] = weakref.ref(storage, free)
            self.allocated_bytes += nbytes
            self.total_allocated_bytes += nbytes
            self.peak_bytes = max(self.peak_bytes, self.allocated_bytes)

    def reset_peak(self) -> None:
        """Set the peak to the bytes that are allocated now."""
        self.peak_bytes = self.allocated_bytes

    def reset_totals(self) -> None:
        """Set the total allocated and freed bytes to 0."""
        self.total_allocated_bytes = self.total_freed_bytes = 0


#: The storages of the only device.
live_storages = LiveStorages()


#: For each host dtype: the MLIR element type, and the device format (None: the same bytes as on the host).
_DTYPES: dict[str, tuple[str, str | None]] = {
    element.host: (element.name, None if element.name in ONE_BYTE else DATA_FORMATS[element.device])
    for element in ELEMENT_TYPES.values()
    if element.device is not None
}

#: The numpy type that holds the bits of a dtype that does not exist in numpy.
_BITS = {"float8_e4m3fn": "uint8"}


#: A number for each pair of layout and dtype, used in ``Storage.key``.
_KEYS: dict[Hashable, int] = {}


@dataclass(eq=False)
class Storage:
    """The memory of a tensor and its views: elements of a host ``dtype``, as bytes in a device layout.

    A storage without a layout has dense host bytes in the shape ``plain_shape``; programs cannot read it in place. It
    is used for dtypes and integers that the device cannot represent, and for tensors without elements.
    """

    form: StickLayout | None
    dtype: str
    data: NDArray[np.uint8]
    plain_shape: tuple[int, ...] = ()

    @property
    def layout(self) -> StickLayout:
        """The layout; raises ``CompileError`` for a storage without a layout."""
        if self.form is None:
            if math.prod(self.plain_shape):
                reason = f"numbers of {self.dtype} in the form of the host"
            else:
                reason = "no elements to lay out"
            raise CompileError(f"A tensor of shape {list(self.plain_shape)} has no layout: it has {reason}.")
        return self.form

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes of the dense tensor that covers the whole storage."""
        return self.plain_shape if self.form is None else self.form.shape

    #: The cached value of ``key``.
    _key = None

    def __post_init__(self) -> None:
        live_storages.allocate(self, self.data.nbytes)

    @property
    def key(self) -> Hashable:
        """A number that identifies the layout and the dtype, for use in keys."""
        if self._key is None:
            self._key = _KEYS.setdefault((self.form or self.plain_shape, self.dtype), len(_KEYS))
        return self._key

    def read(self) -> NDArray[Any]:
        """Gather the dense host array; bfloat16 is returned as float32, fp8 as its bits in uint8."""
        if self.form is None:
            return _host_numbers(self.data, self.dtype).reshape(self.plain_shape)
        form = _DTYPES[self.dtype][1]
        host = np.zeros(self.form.shape, np.uint8 if form is None else FORMATS[form].raw)
        for device, elements in _sides(self.form, self.data, host):
            np.copyto(elements, device)
        if form is None:
            return host.view(_BITS.get(self.dtype, self.dtype))
        return from_raw(host, self.dtype, form, _numerics(self.dtype))

    def write(self, host: NDArray[Any]) -> None:
        """Replace all elements by the elements of a dense host array, in the format that ``read`` returns."""
        if self.form is None:
            self.data[...] = _host_bytes(host, self.dtype)
        else:
            raw = _raw(host, self.dtype, _DTYPES[self.dtype][1])
            for device, elements in _sides(self.form, self.data, raw):
                np.copyto(device, elements)

    def give_up_layout(self) -> None:
        """Convert the storage to dense host bytes without a layout, which views of another dtype need."""
        if self.form is not None:
            shape, data = self.form.shape, _host_bytes(self.read(), self.dtype)
            self.form, self.plain_shape, self.data, self._key = None, shape, data, None


def _operator(name: str) -> Callable[[DeviceTensor, Any], DeviceTensor]:
    """Return the method of an operator, which runs the operation ``torch.ops.aten.<name>``."""
    return lambda tensor, other: eager().call(name, tensor, other)


class DeviceTensor(DeviceViews):
    """A tensor of a host ``dtype``, stored as bytes in a device ``layout``, or a view of such a tensor.

    ``data`` has the bytes of the storage; float16 is stored as IEEE and bfloat16 as DL16, as in the simulator's default
    numerics. Padding is 0. Sizes and strides refer to the host; ``steps`` are the view operations that lead from the
    storage to the tensor.
    """

    def __init__(self, layout: StickLayout, dtype: str, data: NDArray[np.uint8]) -> None:
        """Wrap ``data``, the bytes of elements of a ``dtype`` in a ``layout``; ``to_device`` lays out arrays."""
        self.storage: Storage = Storage(layout, dtype, data)
        self.strided: StridedView = StridedView.whole(layout.shape)
        self.steps: tuple[ViewStep, ...] = ()

    @classmethod
    def of(
        cls, storage: Storage, strided: StridedView | None = None, steps: tuple[ViewStep, ...] | None = None
    ) -> Self:
        """Create a tensor in an existing storage.

        Args:
            storage: The storage.
            strided: The elements of the tensor; by default all elements.
            steps: The view operations from the whole storage to these elements; derived by default.

        Raises:
            CompileError: The storage does not have all of the elements.
        """
        shape = storage.shape
        whole = StridedView.whole(shape)
        strided = whole if strided is None else strided
        if strided.offset < 0 or (math.prod(strided.shape) and strided.end > math.prod(shape)):
            raise CompileError(
                f"A view of shape {list(strided.shape)} with strides {list(strided.strides)} from element "
                f"{strided.offset} on is outside its storage of {math.prod(shape)} elements; clone() the tensor."
            )
        # A view that undoes the earlier views is the whole storage again and needs no steps.
        steps = () if strided == whole else steps_to(shape, strided) if steps is None else steps
        return cls.viewing(storage, strided, steps)

    @classmethod
    def viewing(cls, storage: Storage, strided: StridedView, steps: tuple[ViewStep, ...]) -> Self:
        """Create a tensor without the checks of ``of``.

        Args:
            storage: The memory of the tensor.
            strided: Sizes, strides and offset in the storage, in elements.
            steps: View operations from the whole storage to the tensor.
        """
        tensor = cls.__new__(cls)
        tensor.storage, tensor.strided, tensor.steps = storage, strided, steps
        return tensor

    def view_as(self, strided: StridedView, step: ViewStep) -> Self:
        """Create a view of the same storage; ``step`` is the view operation from this tensor."""
        return self.of(self.storage, strided, (*self.steps, step))

    @property
    def dtype(self) -> str:
        """The name of the host dtype."""
        return self.storage.dtype

    @property
    def data(self) -> NDArray[np.uint8]:
        """The bytes of the storage."""
        return self.storage.data

    @property
    def is_view(self) -> bool:
        """True unless the tensor covers its whole storage, in storage order."""
        return bool(self.steps)

    @property
    def layout(self) -> StickLayout:
        """The layout of the elements in the storage; raises ``CompileError`` for a partial or repeating view."""
        layout = layout_of_view(self.storage.layout, self.strided) if self.steps else self.storage.layout
        if layout is None:
            raise CompileError(
                f"A view of shape {list(self.shape)} with strides {list(self.stride())} is not all of a tensor of "
                f"{list(self.storage.layout.shape)}, so it has no layout of its own; contiguous() copies it."
            )
        return layout

    @property
    def nbytes(self) -> int:
        """Bytes of the storage on the device, including padding."""
        return self.storage.data.nbytes

    @property
    def transfer(self) -> Transfer:
        """The loops that transfer the tensor between host and device."""
        return transfer_of(self.layout)

    def numpy(self) -> NDArray[Any]:
        """Copy to a host array; bfloat16 is returned as float32, fp8 as its bits in uint8."""
        host = self.storage.read()
        if not self.steps:
            return host
        return np.array(strided_array(host, self.strided), order="C")

    to_host = numpy

    def write(self, array: NDArray[Any]) -> None:
        """Replace the elements in place by an ``array`` in the format of ``numpy()``; views share the change."""
        # The whole storage is read and written, because the address of an element follows from the storage's
        # layout, not from the view.
        host = self.storage.read()
        strided_array(host, self.strided)[...] = array
        self.storage.write(host)

    def cpu(self) -> Any:
        """Copy to a PyTorch tensor on the host, with the same sizes and strides."""
        return eager().to_torch(self)

    def to(self, device: str, **layout: Any) -> Any:
        """Copy the tensor to the host or to another layout.

        Args:
            device: "cpu" for a PyTorch tensor on the host; "spyre" for a device tensor in another layout.
            **layout: The options of ``to_device``.

        Raises:
            CompileError: The device is unknown.
        """
        if device == "cpu" and not layout:
            return self.cpu()
        if device == "spyre":
            return (
                self if not any(value is not None for value in layout.values()) else to_device(self, **layout)
            )
        raise CompileError(f"The device must be 'cpu', or 'spyre' for another layout, not {device!r}.")

    def torch(self) -> Any:
        """Wrap the tensor as a PyTorch tensor on the device ``spyre``, with the same storage."""
        return eager().as_torch(self)

    def contiguous(self) -> Self:
        """Return the tensor itself if it has the strides of a dense array, else a copy made on the device."""
        if self.is_contiguous():
            return self
        return eager().dense_copy(self)

    def restickify(self, stick_dims: Sequence[int]) -> DeviceTensor:
        """Copy the tensor on the device to a layout with other ``stick_dims``."""
        return restickify(self, stick_dims)

    def __repr__(self) -> str:
        form = self.storage.form
        storage = "no layout" if form is None else f"device size={list(form.device_size)}, {_stick(form)}"
        if not self.steps:
            return (
                f"DeviceTensor(shape={list(self.shape)}, dtype={self.dtype}, {storage}, {self.nbytes} bytes)"
            )
        offset = f", offset={self.storage_offset()}" if self.storage_offset() else ""
        return (
            f"DeviceTensor(shape={list(self.shape)}, stride={list(self.stride())}{offset}, dtype={self.dtype}, "
            f"view of {list(self.storage.shape)}: {storage}, {self.nbytes} bytes)"
        )

    # -- arithmetic, by a program of one operation ----------------------------------------------------------

    #: Makes numpy arrays defer to the tensor's operators instead of applying their own to each element.
    __array_ufunc__ = None

    def __array__(self, *_: Any, **__: Any) -> NDArray[Any]:
        """Refuse implicit conversion to a numpy array: copies to the host must be explicit."""
        raise CompileError("A tensor on the device is not a numpy array; numpy() copies it to the host.")

    __add__ = __radd__ = _operator("add")
    __sub__, __rsub__ = _operator("sub"), _operator("rsub")
    __mul__ = __rmul__ = _operator("mul")
    __truediv__ = _operator("div")
    __matmul__ = _operator("matmul")

    def __rtruediv__(self, other: Any) -> DeviceTensor:
        return eager().call("mul", eager().call("reciprocal", self), other)

    def __neg__(self) -> DeviceTensor:
        return eager().call("neg", self)

    def __abs__(self) -> DeviceTensor:
        return eager().call("abs", self)


def to_device(
    array: Any,
    stick_dims: Sequence[int] | None = None,
    dim_order: Sequence[int] | None = None,
    stick_outermost: bool = False,
    dtype: Any = None,
) -> DeviceTensor:
    """Lay out a numpy array, or a PyTorch tensor on the CPU, in a device layout.

    A ``DeviceTensor`` is copied to a new tensor in the requested layout.

    Args:
        array: The array or the tensor.
        stick_dims: The dims in the stick, the innermost last: one, ``[]`` for a stick-sparse tensor, or several
            (docs/layouts.md); the other dims keep their default order.
        dim_order: The order of all dims, the stick dim last (-1 after all of them: stick-sparse).
        stick_outermost: Put the stick count first, as RFC 0047 does.
        dtype: The host dtype to convert to; "bfloat16" also accepts bits in uint16, "float8_e4m3fn" bits in uint8.

    Raises:
        CompileError: The layout is not possible, or the device does not support the dtype.
    """
    fields = {"stick_dims": stick_dims, "dim_order": dim_order, "stick_outermost": stick_outermost}
    if isinstance(array, DeviceTensor):
        if dtype is None or dtype_name(dtype) == array.dtype:
            return eager().restickify(array, **fields)
        array = array.cpu()
    host, dtype = _host_array(array, dtype)
    layout = LayoutRequest.of_mapping(fields, "the tensor").layout(
        default_target(), host.shape, element_type(dtype), "the tensor"
    )
    return laid_out(host, dtype, layout)


def laid_out(host: NDArray[Any], dtype: str, layout: StickLayout) -> DeviceTensor:
    """Lay out a dense host array of a dtype in a layout, with padding 0."""
    tensor = DeviceTensor(layout, dtype, np.zeros(layout.bytes, np.uint8))
    tensor.storage.write(host)
    return tensor


def in_layout(array: Any, layout: StickLayout) -> DeviceTensor:
    """Lay out an array or a CPU tensor in a layout of its shape and dtype."""
    host, dtype = _host_array(array, None)
    return laid_out(host, dtype, layout)


def to_plain(array: Any, dtype: str) -> DeviceTensor:
    """Copy an array or a CPU tensor to a storage without a layout; the device need not support the dtype."""
    host, dtype = _host_array(array, dtype, has_layout=False)
    return DeviceTensor.of(Storage(None, dtype, _host_bytes(host, dtype), host.shape))


def restickify(tensor: DeviceTensor, stick_dims: Sequence[int]) -> DeviceTensor:
    """Copy a device tensor to a layout with other stick dims; this reads and writes every byte.

    Args:
        tensor: The tensor.
        stick_dims: The stick dims, as for ``to_device``.

    Raises:
        CompileError: The value is not a device tensor, or the layout is not possible.
    """
    if not isinstance(tensor, DeviceTensor):
        raise CompileError(
            f"Only a tensor on the device is restickified, not {kind_of(tensor)}; transfer it with to_device first."
        )
    return eager().restickify(tensor, stick_dims=stick_dims)


def element_type(dtype: str) -> str:
    """Return the MLIR element type of a host dtype; ``UnsupportedDtypeError`` if the device does not support it."""
    if dtype not in _DTYPES:
        known = ", ".join(_DTYPES)
        raise UnsupportedDtypeError(
            f"The dtype {dtype} is not supported by the device; choose one of {known}."
        )
    return _DTYPES[dtype][0]


def has_form(dtype: str) -> bool:
    """Return whether the device supports a host dtype."""
    return dtype in _DTYPES


def _sides(
    layout: StickLayout, data: NDArray[np.uint8], host: NDArray[Any]
) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
    """Yield, for each part of a layout, views of its elements in the device data and in a dense host array."""
    raw = host.dtype
    for shape, first, device_strides, host_first, host_strides in _moves_of(layout, raw.itemsize):
        yield (
            np.ndarray(shape, raw, data, first, device_strides),
            np.ndarray(shape, raw, host, host_first, host_strides),
        )


@functools.lru_cache(maxsize=1024)
def _moves_of(layout: StickLayout, itemsize: int) -> list[tuple[Any, ...]]:
    """Return the parts of a layout: shape, then first byte and byte strides on the device and on the host."""
    transfer = transfer_of(layout)
    moves = []
    for part in filled_parts(transfer):
        places = []
        for strides, offset in ((transfer.device_strides, 0), (transfer.host_strides, transfer.host_offset)):
            first = offset + sum(start * stride for (start, _), stride in zip(part, strides, strict=True))
            places += [first * itemsize, tuple(stride * itemsize for stride in strides)]
        moves.append((tuple(count for _, count in part), *places))
    return moves


def host_type(dtype: str) -> np.dtype:
    """Return the numpy type of the array that ``Storage.read`` returns for a dtype."""
    return np.dtype("float32" if dtype == "bfloat16" else _BITS.get(dtype, dtype))


@functools.lru_cache(maxsize=1024)
def transfer_of(layout: StickLayout) -> Transfer:
    """Return the loops that transfer a tensor of a layout between host and device."""
    tuples = dma_tuples(layout)
    return Transfer(tuples.ranges, tuples.host_strides, tuples.device_strides, tuples.bounds)


def eager() -> Any:
    """Import and return the module that runs single operations; it imports PyTorch, which nothing else here needs."""
    return eager_mode.load()


def strided_array(host: NDArray[Any], view: StridedView) -> NDArray[Any]:
    """Return a strided view of a dense host array as a numpy view."""
    # ``as_strided`` does not have an offset parameter.
    flat = host.reshape(-1)[view.offset :]
    strides = [stride * host.itemsize for stride in view.strides]
    return np.lib.stride_tricks.as_strided(flat, view.shape, strides)


def _host_array(array: Any, dtype: Any, has_layout: bool = True) -> tuple[NDArray[Any], str]:
    """Convert an array to a dense numpy array and the name of its dtype; bfloat16 becomes bits or float32."""
    try:
        if str(getattr(array, "dtype", "")).startswith("torch."):
            array, dtype = _of_torch(array.detach().cpu().resolve_neg(), dtype)
        host = np.asarray(array)
    except (ValueError, TypeError, RuntimeError) as error:
        reason = first_sentence(error)
        raise CompileError(
            f"The value is not an array that the device accepts: {reason}; give a tensor or an array."
        ) from error
    dtype = host.dtype.name if dtype is None else dtype_name(dtype)
    if has_layout:
        element_type(dtype)
    if 0 in host.shape:
        raise CompileError(f"An array of shape {list(host.shape)} has no elements to lay out.")
    return _converted(host, dtype), dtype


def _converted(host: NDArray[Any], dtype: str) -> NDArray[Any]:
    """Copy to a dense array of the numpy type of ``dtype``; raise ``CompileError`` if integer values change."""
    if dtype == "bfloat16" and host.dtype == np.uint16:
        return np.array(host, order="C")
    if dtype in _BITS and host.dtype != _BITS[dtype]:
        raise CompileError(
            f"An array of {host.dtype.name} does not become {dtype}, which is given by its bits."
        )
    target = np.dtype("float32" if dtype == "bfloat16" else _BITS.get(dtype, dtype))
    # Floats beyond the range become infinite, as in PyTorch; integers that change are rejected below.
    with np.errstate(over="ignore", invalid="ignore"):
        converted = np.array(host, target, order="C")
    exact = target.kind not in "iub" or np.array_equal(converted, host)
    if not exact or not np.can_cast(host.dtype, target, "same_kind"):
        raise CompileError(f"An array of {host.dtype.name} with these values does not become {dtype}.")
    return converted


def _of_torch(tensor: Any, dtype: Any) -> tuple[Any, Any]:
    """Convert a PyTorch tensor to a type that numpy supports: bfloat16 to float32, fp8 to its bits."""
    name = dtype_name(tensor.dtype)
    if name == "bfloat16":
        return tensor.float(), name if dtype is None else dtype
    if name in _BITS:
        return eager().bits(tensor), name if dtype is None else dtype
    return tensor, dtype


def _host_numbers(data: NDArray[np.uint8], dtype: str) -> NDArray[Any]:
    """Convert dense host bytes to the array that ``Storage.read`` returns."""
    if dtype == "bfloat16":
        return (data.view(np.uint16).astype(np.uint32) << np.uint32(16)).view(np.float32)
    # A type that does not exist in numpy is returned as its bytes.
    return data.view(_BITS.get(dtype, dtype)).copy() if hasattr(np, dtype) or dtype in _BITS else data.copy()


def _host_bytes(host: NDArray[Any], dtype: str) -> NDArray[np.uint8]:
    """Convert an array in the format of ``Storage.read`` to dense host bytes."""
    if dtype == "bfloat16":
        host = (np.ascontiguousarray(host, np.float32).view(np.uint32) >> np.uint32(16)).astype(np.uint16)
    return np.ascontiguousarray(host).reshape(-1).view(np.uint8)


def _raw(host: NDArray[Any], dtype: str, form: str | None) -> NDArray[Any]:
    if form is None:
        return host.view(np.uint8)
    try:
        return np.ascontiguousarray(to_raw(host, dtype, form, _numerics(dtype))).reshape(host.shape)
    except ValueError as error:
        raise CompileError(f"The tensor cannot go to the device: {error}") from None


def _numerics(dtype: str) -> Numerics:
    return Numerics(BIT_TRUE if dtype == "bfloat16" else IEEE)


def _stick(layout: StickLayout) -> str:
    if not layout.stick_dims:
        return "stick-sparse"
    return "stick " + " and ".join(f"dim {dim}" for dim in layout.tiled_dims)
