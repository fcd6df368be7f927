"""Host arrays as the device holds them: ``to_device`` lays one out by the DMA tuples, ``numpy()`` reads it back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spyre_mlir.bundle.model import Transfer
from spyre_mlir.bundle.transfer import from_raw, gather, scatter, to_raw
from spyre_mlir.errors import CompileError
from spyre_mlir.layout import StickLayout
from spyre_mlir.layout.requests import LayoutRequest
from spyre_mlir.layout.transfer import dma_tuples
from spyre_mlir.target.formats import BIT_TRUE, FORMATS, IEEE, Numerics
from spyre_mlir.target.ops import DL16, FP32, INT32

#: For each dtype of the host: the MLIR element type, and the format on the device (None: the host's own bytes).
_DTYPES: dict[str, tuple[str, str | None]] = {
    "float16": ("f16", DL16), "bfloat16": ("bf16", DL16), "bool": ("i1", DL16), "float32": ("f32", FP32),
    "int32": ("i32", INT32), "int64": ("i64", INT32), "int8": ("i8", None),
    "float8_e4m3fn": ("f8E4M3FN", None),
}  # fmt: skip


#: The numpy type that holds the bits of a dtype which numpy lacks.
_BITS = {"float8_e4m3fn": "uint8"}


class DeviceTensor:
    """A tensor of the host's ``dtype`` in the bytes of its device ``layout``.

    ``data`` are these bytes; float16 is IEEE there and bfloat16 DL16, as in the simulator's default numerics. Padding
    is 0.
    """

    def __init__(self, layout: StickLayout, dtype: str, data: NDArray[np.uint8]) -> None:
        self.layout = layout
        self.dtype = dtype
        self.data = data

    @property
    def shape(self) -> tuple[int, ...]:
        """The logical shape."""
        return self.layout.shape

    @property
    def nbytes(self) -> int:
        """Bytes on the device, padding included."""
        return self.layout.bytes

    @property
    def transfer(self) -> Transfer:
        """The loops that move it between host and device."""
        return transfer_of(self.layout)

    def numpy(self) -> NDArray:
        """The host array; bfloat16 comes as float32 numbers, fp8 as bits in uint8."""
        form = _DTYPES[self.dtype][1]
        host = np.zeros(self.shape, np.uint8 if form is None else FORMATS[form].raw)
        gather(self.data, 0, host, self.transfer)
        return (
            host.view(_BITS.get(self.dtype, self.dtype))
            if form is None
            else from_raw(host, self.dtype, form, _numerics(self.dtype))
        )

    to_host = numpy

    def __repr__(self) -> str:
        return (
            f"DeviceTensor(shape={list(self.shape)}, dtype={self.dtype}, "
            f"device size={list(self.layout.device_size)}, {_stick(self.layout)}, {self.nbytes} bytes)"
        )


def to_device(
    array: Any,
    stick_dims: Sequence[int] | None = None,
    dim_order: Sequence[int] | None = None,
    stick_outermost: bool = False,
    dtype: Any = None,
) -> DeviceTensor:
    """Lay out a numpy array, or a PyTorch tensor on the CPU, as the device holds it.

    ``stick_dims`` are the dims in the stick, the innermost last: one, ``[]`` for a stick-sparse tensor, or
    two for int8 and fp8; the other dims keep their default order. ``dim_order`` names the order of all dims, the stick
    last (-1 after all of them: stick-sparse). ``stick_outermost`` puts the stick count first, as the
    tiled-tensor RFC does. ``dtype`` is the host's type to convert to; "bfloat16" also takes bits in uint16,
    "float8_e4m3fn" takes them in uint8.
    Raises ``CompileError``.
    """
    host, dtype = _host_array(array, dtype)
    given = {"stick_dims": stick_dims, "dim_order": dim_order, "stick_outermost": stick_outermost}
    element, form = _DTYPES[dtype]
    layout = LayoutRequest.of(given, "the tensor").layout(host.shape, element, "the tensor")
    data = np.zeros(layout.bytes, np.uint8)
    scatter(_raw(host, dtype, form), data, 0, transfer_of(layout))
    return DeviceTensor(layout, dtype, data)


def transfer_of(layout: StickLayout) -> Transfer:
    """The loops that move a tensor of this layout between host and device."""
    tuples = dma_tuples(layout)
    return Transfer(tuples.ranges, tuples.host_strides, tuples.device_strides, tuples.bounds)


def _host_array(array: Any, dtype: Any) -> tuple[NDArray, str]:
    """A dense numpy array and the name of its dtype; bfloat16 as bits or as float32 numbers."""
    if str(getattr(array, "dtype", "")).startswith("torch."):
        array, dtype = _of_torch(array.detach().cpu(), dtype)
    try:
        host = np.asarray(array)
    except (ValueError, TypeError) as error:
        raise CompileError(f"What goes to the device is no array: {str(error).rstrip('.')}.") from error
    dtype = host.dtype.name if dtype is None else _name(dtype)
    if dtype not in _DTYPES:
        known = ", ".join(_DTYPES)
        raise CompileError(f"The dtype {dtype} has no form on the device; choose one of {known}.")
    if 0 in host.shape:
        raise CompileError(f"An array of shape {list(host.shape)} has no elements to lay out.")
    return _converted(host, dtype), dtype


def _name(dtype: Any) -> str:
    """The name of a dtype given by name, or as numpy's or PyTorch's."""
    return dtype if isinstance(dtype, str) else getattr(dtype, "__name__", str(dtype)).removeprefix("torch.")


def _converted(host: NDArray, dtype: str) -> NDArray:
    """The array in the type of the host that is laid out, dense."""
    if dtype == "bfloat16" and host.dtype == np.uint16:
        return np.array(host, order="C")
    if dtype in _BITS and host.dtype != _BITS[dtype]:
        raise CompileError(
            f"An array of {host.dtype.name} does not become {dtype}, which is given by its bits."
        )
    target = np.dtype("float32" if dtype == "bfloat16" else _BITS.get(dtype, dtype))
    with np.errstate(over="ignore", invalid="ignore"):
        made = np.array(host, target, order="C")
    exact = target.kind not in "iub" or np.array_equal(made, host)
    if not exact or not np.can_cast(host.dtype, target, "same_kind"):
        raise CompileError(f"An array of {host.dtype.name} with these values does not become {dtype}.")
    return made


def _of_torch(tensor: Any, dtype: Any) -> tuple[Any, Any]:
    """A PyTorch tensor as one that numpy reads: bfloat16, which numpy lacks, as float32 numbers."""
    if str(tensor.dtype) == "torch.bfloat16":
        return tensor.float(), "bfloat16" if dtype is None else dtype
    return tensor, dtype


def _raw(host: NDArray, dtype: str, form: str | None) -> NDArray:
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
    return "stick " + " and ".join(f"dim {dim}" for dim in layout.stick_dims)
