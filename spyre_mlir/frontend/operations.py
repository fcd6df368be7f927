# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Application of a PyTorch operation to tensors of the device: a function to compile, and its program's cache key."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode, ShapeEnv
from torch.utils import _pytree as pytree

from spyre_mlir.errors import CompileError
from spyre_mlir.frontend import operators  # noqa: F401  registers torch.ops.spyre
from spyre_mlir.frontend.graph_edits import overload_of
from spyre_mlir.frontend.hints import dim_sizes, name_tensor_dims, names_of
from spyre_mlir.frontend.meta_tensors import without_log_of_failures
from spyre_mlir.frontend.signature import MOST_DIMS, to_numpy, to_tensor
from spyre_mlir.layout import StickLayout
from spyre_mlir.layout.requests import LayoutRequest
from spyre_mlir.layout.strided import StridedView, layout_of_view
from spyre_mlir.records import dataclass
from spyre_mlir.target.element_types import dtype_name
from spyre_mlir.target.target import default_target
from spyre_mlir.tensors.device_tensor import DeviceTensor, Storage, element_type, has_form, laid_out
from spyre_mlir.tensors.device_views import ViewStep

RESTICKIFY = torch.ops.spyre.restickify.default

#: The operation that copies a view as a dense tensor, and its arguments by name.
DENSE_COPY = torch.ops.aten.clone.default, {"memory_format": torch.contiguous_format}


def overload(name: str, arguments: Sequence[Any], named: Mapping[str, Any]) -> Any:
    """Select the overload of ``torch.ops.aten.<name>`` for tensors and numbers."""
    packet = getattr(torch.ops.aten, name)
    # PyTorch selects overloads by the kind of the second operand.
    tensors = [isinstance(argument, DeviceTensor) for argument in arguments]
    names = ("Tensor", "default") if len(tensors) < 2 or tensors[1] else ("Scalar", "Tensor", "default")
    return next(getattr(packet, candidate) for candidate in names if candidate in packet.overloads())


@dataclass(frozen=True)
class TensorArgument:
    """A tensor argument: the index of its storage, the view transforms from the storage to the argument, its shape."""

    storage: int
    steps: tuple[ViewStep, ...]
    shape: tuple[int, ...]

    @property
    def key(self) -> Hashable:
        """Part of a program's cache key."""
        return self.storage, repr(self.steps) if self.steps else ""

    def replay(self, bases: Sequence[Tensor]) -> Tensor:
        """Rebuild the argument from tensors that stand for the storages."""
        tensor = bases[self.storage]
        for step in self.steps:
            result = overload_of(step.name)(tensor, *step.arguments)
            tensor = result if step.number is None else result[step.number]
        return tensor


#: Types of arguments in a schema that may be numbers to compute with.
_NUMBERS = ("number", "float", "Tensor")


@functools.cache
def _kinds_of(operation: Any) -> dict[str, str]:
    """Types of the arguments of an operation that may be numbers to compute with; "" for other arguments."""
    types = {
        argument.name: str(argument.type).removeprefix("Optional[").removesuffix("]")
        for argument in operation._schema.arguments
    }
    return {name: kind if kind in _NUMBERS else "" for name, kind in types.items()}


#: Types whose values are parts of a key, together with the type, because True equals 1.
_KEY_TYPES = {int, bool, str, torch.dtype, torch.device, torch.layout, torch.memory_format}


def _key_of(leaf: Any) -> Hashable:
    """Part of a program's cache key for a leaf; ``repr`` distinguishes signed zeros and equates NaNs."""
    kind = type(leaf)
    if kind is TensorArgument:
        return leaf.key
    return None if leaf is None else (kind, leaf if kind in _KEY_TYPES else repr(leaf))


#: Structures of arguments that are not containers, keyed by their number and names.
_TREES: dict[Hashable, pytree.TreeSpec] = {}
#: Texts of these structures, keyed by identity.
_TREE_TEXTS: dict[int, str] = {}
_CONTAINERS = (list, tuple, dict)


def _flattened(arguments: Sequence[Any], named: Mapping[str, Any]) -> tuple[list[Any], pytree.TreeSpec]:
    """Flatten arguments; return their leaves and structure."""
    leaves = [*arguments, *named.values()]
    if any(isinstance(leaf, _CONTAINERS) for leaf in leaves):
        return pytree.tree_flatten((tuple(arguments), dict(named)))
    key = (len(arguments), *named)
    tree = _TREES.get(key)
    if tree is None:
        _, tree = pytree.tree_flatten((tuple(arguments), dict(named)))
        tree = _TREES.setdefault(key, tree)
        _TREE_TEXTS[id(tree)] = repr(tree)
    return leaves, tree


@dataclass(frozen=True)
class Application:
    """An operation with its arguments, in which tensors are views of ``storages``; each storage occurs once.

    ``copied`` contains the indices of the storages that are copies of an argument.
    """

    operation: Any
    leaves: tuple[Any, ...]
    tree: pytree.TreeSpec
    storages: tuple[DeviceTensor, ...]
    copied: frozenset[int] = frozenset()

    @classmethod
    def of(cls, operation: Any, arguments: Sequence[Any], named: Mapping[str, Any]) -> Application:
        """Application of an operation to arguments; ``CompileError`` if one of them is a tensor on the host."""
        leaves, tree = _flattened(arguments, named)
        storages: dict[int, DeviceTensor] = {}
        indices: dict[int, int] = {}
        operands, copied = [], set()
        for leaf in leaves:
            if isinstance(leaf, DeviceTensor):
                # Names belong to a tensor and not to its storage, so a named view is a separate storage.
                tensor = leaf.contiguous() if names_of(leaf) else leaf
                names = names_of(tensor)
                if names or id(tensor.storage) not in storages:
                    # The storage as a tensor, with the names of the tensor if it is not a view.
                    whole = DeviceTensor.of(tensor.storage) if names or tensor.steps else tensor
                    if names:
                        name_tensor_dims(whole, names)
                    storages[id(tensor.storage)] = whole
                index = indices.setdefault(id(tensor.storage), len(indices))
                if tensor.storage is not leaf.storage:
                    copied.add(index)
                leaf = TensorArgument(index, tensor.steps, tensor.shape)
            elif isinstance(leaf, Tensor | np.ndarray):
                raise CompileError(
                    f"{operation} requires all tensors on the device, but one is on the host; "
                    "move it with to_device or .to('spyre')."
                )
            operands.append(leaf)
        return cls(operation, tuple(operands), tree, tuple(storages.values()), frozenset(copied))

    @property
    def is_operation(self) -> bool:
        """True for a single PyTorch operation, False for a graph."""
        return hasattr(self.operation, "_schema")

    @property
    def numbers(self) -> tuple[int, ...]:
        """Indices of the leaves that are numbers to compute with: a scalar, a float, a number in place of a tensor.

        The signature of the operation determines the numbers; other numbers are sizes, dims and options.
        """
        arguments, named = self.tree.unflatten(range(len(self.leaves)))
        kinds = _kinds_of(self.operation)
        places = [
            *zip(kinds.values(), arguments, strict=False),
            *((kinds.get(k, ""), v) for k, v in named.items()),
        ]
        return tuple(
            index
            for kind, index in places
            if kind and isinstance(index, int) and type(self.leaves[index]) in (int, float)
        )

    @property
    def key(self) -> Hashable:
        """Cache key of the program: the operation, its arguments, and layouts, types and dim names of the storages."""
        return self._key(self.leaves)

    def key_without(self, numbers: Sequence[int]) -> Hashable:
        """Cache key of a program in which the leaves with these indices are inputs."""
        leaves = list(self.leaves)
        for index in numbers:
            leaves[index] = type(leaves[index])
        return self._key(leaves)

    def _key(self, leaves: Sequence[Any]) -> Hashable:
        tensors = tuple((whole.storage.key, names_of(whole)) for whole in self.storages)
        sizes = tuple(dim_sizes().items()) if any(names for _, names in tensors) else ()
        tree = _TREE_TEXTS.get(id(self.tree)) or repr(self.tree)
        return self.operation, tuple(map(_key_of, leaves)), tree, tensors, sizes

    @property
    def inputs(self) -> list[Any]:
        """Arguments of the program: the storages; a storage without a layout is a host tensor in the same memory."""
        return [
            whole if whole.storage.form is not None else memory_of(whole.storage).view(whole.shape)
            for whole in self.storages
        ]

    def replay(self, bases: Sequence[Tensor]) -> list[Any]:
        """Leaves of the arguments, rebuilt from tensors that stand for the storages."""
        return [leaf.replay(bases) if isinstance(leaf, TensorArgument) else leaf for leaf in self.leaves]

    def function(self, results: OperationResults | None, numbers: Sequence[int] = ()) -> Callable[..., Any]:
        """The operation as a function of the storages, without the results that are views of an argument.

        The leaves with the indices ``numbers`` are inputs too: tensors without dims that follow the storages.
        """

        # A program keeps its function, which must not keep the storages.
        call, count = replace(self, storages=()), len(self.storages)

        def function(*bases: Tensor) -> Any:
            """Apply the operation to these storages, and return its results."""
            leaves = call.replay(bases)
            for index, number in zip(numbers, bases[count:], strict=True):
                leaves[index] = number.item()
            arguments, named = pytree.tree_unflatten(leaves, call.tree)
            leaves = pytree.tree_leaves(call.operation(*arguments, **named))
            places = [None] * len(leaves) if results is None else results.places
            return [leaf for leaf, place in zip(leaves, places, strict=True) if not _is_argument(place)]

        return function


class UnknownResultsError(CompileError):
    """Raised for an operation that fails on tensors without data."""


class UnsharedMemoryError(CompileError):
    """Raised if a program cannot leave arguments and results in the memory in which PyTorch leaves them."""


class ResultPlace(NamedTuple):
    """Memory of a tensor that an operation returns: a view of the storage of an argument, or of a new storage.

    ``shape`` contains the dims of a new storage in memory order, () for an argument.
    """

    storage: int
    is_new: bool
    shape: tuple[int, ...]
    strided: StridedView


def _is_argument(place: ResultPlace | None) -> bool:
    """Return whether a result is a view of an argument."""
    return place is not None and not place.is_new


@dataclass(frozen=True)
class OperationResults:
    """The results of an operation: their structure, and for each leaf its place, or None if it is not a tensor.

    ``devices`` are the device types of the leaves. ``written`` contains the storages of arguments that the operation
    changes in place.
    """

    tree: pytree.TreeSpec
    places: tuple[ResultPlace | None, ...]
    devices: tuple[str | None, ...]
    written: frozenset[int]

    @classmethod
    def of(
        cls, applied: Application, operation: Callable[..., Any], devices: Sequence[str]
    ) -> OperationResults:
        """Results of an operation, as PyTorch computes them for tensors without data on these devices.

        Raises:
            UnknownResultsError: The operation fails on tensors without data, or the sizes of results depend on data.
            UnsharedMemoryError: The operation replaces the memory of an argument, or returns a view of another type.
            CompileError: The operation changes the copy of an argument.
        """
        mode = FakeTensorMode(allow_non_fake_inputs=True, shape_env=ShapeEnv())
        try:
            # Inference tensors do not have version counters.
            with torch.inference_mode(False), mode, torch.no_grad(), without_log_of_failures():
                bases = [
                    torch.empty(whole.shape, dtype=getattr(torch, whole.dtype), device=device)
                    for whole, device in zip(applied.storages, devices, strict=True)
                ]
                operands = applied.replay(bases)
                before = [_geometry(leaf) for leaf in operands]
                versions = [base._version for base in bases]
                arguments, named = pytree.tree_unflatten(operands, applied.tree)
                leaves, tree = pytree.tree_flatten(operation(*arguments, **named))
        except Exception as error:
            raise UnknownResultsError(f"The memory of the results is not known: {error}") from error
        if before != [_geometry(leaf) for leaf in operands]:
            raise UnsharedMemoryError(
                "The sizes, strides or memory of an input change in place; take a view of it."
            )
        written = frozenset(index for index, base in enumerate(bases) if base._version > versions[index])
        if written & applied.copied:
            raise CompileError(
                "The operation changes a view with named dims in place; name the dims of the whole tensor instead."
            )
        storages = {base.untyped_storage()._cdata: index for index, base in enumerate(bases)}
        try:
            places = [_place(leaf, bases, storages) if isinstance(leaf, Tensor) else None for leaf in leaves]
        except GuardOnDataDependentSymNode as error:
            raise UnknownResultsError("The sizes of the results depend on values.") from error
        kinds = [leaf.device.type if isinstance(leaf, Tensor) else None for leaf in leaves]
        return cls(tree, tuple(places), tuple(kinds), written)

    @classmethod
    def of_operation(cls, applied: Application) -> OperationResults:
        """Results of the applied operation, with the strides that PyTorch returns on the CPU."""
        return cls.of(applied, applied.operation, ["cpu"] * len(applied.storages))

    @property
    def is_computed(self) -> bool:
        """True unless all results are views of arguments and no argument changes."""
        return bool(self.written) or not all(map(_is_argument, self.places))

    def in_memory(
        self, computed: Sequence[Any], layouts: Sequence[StickLayout | None], storages: Sequence[Storage]
    ) -> list[Any]:
        """Leaves of the return value: tensors on the device, in the memory in which PyTorch places them.

        Args:
            computed: The values that the program returned.
            layouts: The layouts in which the device wrote the computed tensors; other tensors have the default layout.
            storages: The storages of the arguments.
        """
        tensors = sum(isinstance(value, Tensor) for value in computed)
        known = iter(layouts if len(layouts) == tensors else [None] * tensors)
        values = iter(computed)
        leaves: list[Any] = [None if _is_argument(place) else next(values) for place in self.places]
        places = [
            place
            if place is None or not place.is_new or tuple(value.shape) == place.strided.shape
            # A new storage, because the shape differs from the shape without data.
            else ResultPlace(-1 - at, True, tuple(value.shape), StridedView.whole(tuple(value.shape)))
            for at, (place, value) in enumerate(zip(self.places, leaves, strict=True))
        ]
        parts: dict[int, list[_ResultPart]] = {}
        for place, value in zip(places, leaves, strict=True):
            if place is not None and place.is_new:
                parts.setdefault(place.storage, []).append(
                    _ResultPart(place, cast(Tensor, value), next(known))
                )
        memories = dict(enumerate(storages)) | {index: _storage_of(group) for index, group in parts.items()}
        return [
            value if place is None else DeviceTensor.of(memories[place.storage], place.strided)
            for place, value in zip(places, leaves, strict=True)
        ]


class _ResultPart(NamedTuple):
    """A computed tensor, its place, and the layout in which the device wrote it."""

    place: ResultPlace
    tensor: Tensor
    layout: StickLayout | None


def strided_of(tensor: Tensor) -> StridedView:
    """Return the sizes, strides and offset of a tensor."""
    return StridedView(tuple(tensor.shape), tensor.stride(), int(tensor.storage_offset()))


def _place(leaf: Tensor, bases: Sequence[Tensor], storages: dict[int, int]) -> ResultPlace:
    """Place of a tensor; a storage that is not in ``storages`` is added."""
    strided, memory = strided_of(leaf), leaf.untyped_storage()
    index = storages.setdefault(memory._cdata, len(storages))
    if index < len(bases):
        if leaf.dtype != bases[index].dtype or leaf.is_neg() or leaf.is_conj():
            raise UnsharedMemoryError(
                f"A result is a view of {bases[index].dtype} as {leaf.dtype}, which the device does not support; "
                "clone() the view."
            )
        return ResultPlace(index, False, (), strided)
    whole = leaf if leaf._base is None else leaf._base
    order = _memory_order(whole.stride(), whole.shape)
    if whole.dtype != leaf.dtype or leaf.is_neg() or leaf.is_conj():
        raise UnsharedMemoryError(f"A result is a view of {whole.dtype} as {leaf.dtype}; clone() the view.")
    shape = tuple(whole.shape[dim] for dim in order)
    elements = memory.nbytes() // leaf.itemsize
    # If no known tensor covers the whole storage, the storage has one dim.
    if StridedView.whole(shape).end != elements:
        shape = (elements,)
    return ResultPlace(index, True, shape, strided)


def _geometry(leaf: Any) -> Any:
    """Sizes, strides, offset and memory of a tensor; None for another leaf."""
    if not isinstance(leaf, Tensor):
        return None
    return (*leaf.shape, *leaf.stride(), leaf.storage_offset(), leaf.untyped_storage()._cdata)


def _memory_order(strides: Sequence[int], shape: Sequence[int]) -> list[int]:
    """Dims sorted by stride, outermost first; among dims of equal stride, dims of size 1 are last."""
    return sorted(range(len(shape)), key=lambda dim: (-strides[dim], shape[dim] == 1))


def memory_of(storage: Storage) -> Tensor:
    """Elements of a storage as a host tensor of one dim: a copy, or the memory itself without a layout."""
    dtype = getattr(torch, storage.dtype)
    if not storage.data.size:
        return torch.empty(0, dtype=dtype)
    if storage.form is None:
        return torch.from_numpy(storage.data).view(dtype)
    return to_tensor(storage.read(), dtype).reshape(-1)


def write_memory(storage: Storage, memory: Tensor) -> None:
    """Replace the elements of a storage, which drops its layout if the layout cannot represent them."""
    if storage.form is not None:
        try:
            storage.write(_numbers(memory).reshape(storage.shape))
            return
        except CompileError:
            storage.give_up_layout()
    if storage.data.size:
        storage.data[...] = memory.view(torch.uint8).numpy()


def viewed(memory: Tensor, tensor: DeviceTensor) -> Tensor:
    """View of host memory with the sizes, strides and offset of a device tensor."""
    return memory.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())


def to_torch(tensor: DeviceTensor) -> Tensor:
    """Copy of a tensor on the host, with the strides that PyTorch gives to a copy."""
    host = viewed(memory_of(tensor.storage), tensor).clone(memory_format=torch.preserve_format)
    if names := names_of(tensor):
        name_tensor_dims(host, names)
    return host


def bits(tensor: Tensor) -> np.ndarray:
    """Tensor as a numpy array; the bits of the tensor if numpy does not support its type."""
    return to_numpy(tensor)


def _in_memory_order(strided: StridedView) -> tuple[list[int], StridedView, bool]:
    """Dims of a view in memory order, the dense tensor in this order as a view, and whether the view is an array."""
    order = _memory_order(strided.strides, strided.shape)
    stored = StridedView.whole(strided.shape).permute(order)
    is_dense = strided.permute(order).elements == StridedView.whole(stored.shape).elements
    return order, stored, is_dense and len(order) <= MOST_DIMS


def _storage_of(parts: Sequence[_ResultPart]) -> Storage:
    """New storage with the data of computed tensors, each in its place; other elements are 0."""
    place, tensor, layout = parts[0]
    shape, dtype = place.shape, dtype_name(tensor.dtype)
    order, stored, is_dense = _in_memory_order(place.strided)
    if is_dense and math.prod(shape) == tensor.numel():
        host, shape = tensor.detach().permute(order), stored.shape
        if layout is not None:
            layout = layout_of_view(layout, stored) if layout.shape == tensor.shape else None
    else:
        host, layout = torch.zeros(shape, dtype=tensor.dtype), None
        for part in parts:
            strided = part.place.strided
            once = tuple(slice(0, 1) if stride == 0 else slice(None) for stride in strided.strides)
            target = host.as_strided(strided.shape, strided.strides, strided.offset)
            target[once].copy_(part.tensor[once])
    # The storage has a layout if the device supports the type, else the bytes of the host.
    if host.numel() and has_form(dtype):
        layout = layout or LayoutRequest().layout(default_target(), shape, element_type(dtype), "the result")
        try:
            return laid_out(np.ascontiguousarray(_numbers(host)), dtype, layout).storage
        except CompileError:
            # The number format of the device cannot represent a number.
            pass
    storage = Storage(None, dtype, np.zeros(host.numel() * host.itemsize, np.uint8), shape)
    # A tensor of one element may have any stride.
    write_memory(storage, torch.empty(host.numel(), dtype=host.dtype).copy_(host.reshape(-1)))
    return storage


def dense_layout(place: ResultPlace, layout: StickLayout) -> tuple[StickLayout, list[int]] | None:
    """Layout of the storage that a result fills, and its dims in memory order; None if the result is only a part.

    ``layout`` is the layout in which the device wrote the result.
    """
    shape = place.strided.shape
    order, stored, is_dense = _in_memory_order(place.strided)
    elements = math.prod(shape)
    if not is_dense or not elements or math.prod(place.shape) != elements or layout.shape != shape:
        return None
    form = layout_of_view(layout, stored)
    return None if form is None else (form, order)


def in_its_memory(tensor: Tensor) -> DeviceTensor:
    """Copy a host tensor to the device with the same strides, in the smallest possible storage."""
    strided = StridedView(tuple(tensor.shape), tensor.stride())
    _, stored, is_dense = _in_memory_order(strided)
    place = ResultPlace(0, True, stored.shape if is_dense else (strided.end,), strided)
    return DeviceTensor.of(_storage_of([_ResultPart(place, tensor, None)]), strided)


def _numbers(tensor: Tensor) -> np.ndarray:
    """Data of a tensor in the type that a layout accepts: float32 for bfloat16."""
    return tensor.detach().float().numpy() if tensor.dtype == torch.bfloat16 else to_numpy(tensor)


# Numbers of an operation as inputs of its program: their types there, and the comparison with constants.
#
# A number that is a constant of a program is rounded where the program uses it. A number that is an input is rounded
# earlier, to float32, or to the type of the 16-bit tensors that the operation computes with. ``number_types`` are the
# candidates, in order of precision; the results of a program decide, by ``is_same`` and ``is_near``.


Number = int | float

_NARROW = (torch.float16, torch.bfloat16)


def number_types(applied: Application) -> list[torch.dtype]:
    """Candidate input types for the numbers of an operation, the most precise type first."""
    types = {getattr(torch, storage.dtype) for storage in applied.storages}
    if all(isinstance(applied.leaves[index], int) for index in applied.numbers) and not any(
        dtype.is_floating_point for dtype in types
    ):
        return [torch.int64]
    return [torch.float32, *(dtype for dtype in _NARROW if dtype in types)]


def number_inputs(numbers: Sequence[Number], dtype: torch.dtype) -> list[Tensor] | None:
    """Inputs of a program for numbers; None if a number is out of the range of the type."""
    tensors = []
    for number in numbers:
        if isinstance(number, int) and abs(number) >= 2**63:
            return None
        exact = torch.tensor(number, dtype=torch.int64 if isinstance(number, int) else torch.float64)
        tensor = exact.to(dtype)
        if math.isfinite(number) and (not tensor.isfinite() or (number != 0) != bool(tensor)):
            return None
        # A rounded integer would be a different number.
        if isinstance(number, int) and dtype == torch.float32 and int(tensor) != number:
            return None
        tensors.append(tensor)
    return tensors


def are_exact(numbers: Sequence[Number], dtype: torch.dtype) -> bool:
    """Return whether a type represents all numbers exactly; a program with them does not show where it rounds."""
    return all(
        math.isnan(number) or float(torch.tensor(float(number), dtype=torch.float64).to(dtype)) == number
        for number in numbers
    )


def is_same(results: Sequence[Tensor], expected: Sequence[Tensor]) -> bool:
    """Return whether results have the same bits as expected."""

    def bits_of(tensor: Tensor) -> Tensor:
        return tensor.contiguous().reshape(-1).view(torch.uint8)

    return all(
        one.dtype == other.dtype and torch.equal(bits_of(one), bits_of(other))
        for one, other in zip(results, expected, strict=True)
    )


def is_near(results: Sequence[Tensor], expected: Sequence[Tensor]) -> bool:
    """Return whether results are 16-bit numbers that differ only by the rounding of a number."""
    for one, other in zip(results, expected, strict=True):
        if one.dtype not in _NARROW or one.dtype != other.dtype:
            return False
        error = 4 * torch.finfo(one.dtype).eps
        scale = float(other.float().nan_to_num(0, 0, 0).abs().max()) if other.numel() else 0.0
        if not torch.allclose(one.float(), other.float(), error, error * scale, equal_nan=True):
            return False
    return True
