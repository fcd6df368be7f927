# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Application of one PyTorch operation to tensors of the device: a function to compile, and its program's cache key."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.utils import _pytree as pytree

from spyre_mlir.errors import CompileError
from spyre_mlir.frontend import operators  # noqa: F401  registers torch.ops.spyre
from spyre_mlir.frontend.graph_edits import overload_of
from spyre_mlir.frontend.hints import dim_sizes, name_tensor_dims, names_of
from spyre_mlir.frontend.signature import to_numpy, to_tensor
from spyre_mlir.layout import StickLayout
from spyre_mlir.layout.requests import LayoutRequest
from spyre_mlir.layout.strided import StridedView, layout_of_view
from spyre_mlir.target.target import default_target
from spyre_mlir.tensors.device_tensor import DeviceTensor, element_type, laid_out
from spyre_mlir.tensors.device_views import ViewStep

RESTICKIFY = torch.ops.spyre.restickify.default

#: The operation that copies a view as a dense tensor, and its arguments by name.
DENSE_COPY = torch.ops.aten.clone.default, {"memory_format": torch.contiguous_format}


def overload(name: str, arguments: Sequence[Any], named: Mapping[str, Any]) -> Any:
    """Overload of ``torch.ops.aten.<name>`` for tensors and numbers."""
    packet = getattr(torch.ops.aten, name)
    # PyTorch's resolution of overloads, by the kind of the second operand.
    tensors = [isinstance(argument, DeviceTensor) for argument in arguments]
    names = ("Tensor", "default") if len(tensors) < 2 or tensors[1] else ("Scalar", "Tensor", "default")
    return next(getattr(packet, candidate) for candidate in names if candidate in packet.overloads())


@dataclass(frozen=True)
class _TensorArgument:
    """A tensor argument: the index of its storage, and the views from there."""

    storage: int
    steps: tuple[ViewStep, ...]

    def replay(self, bases: Sequence[torch.Tensor]) -> torch.Tensor:
        """The argument, from tensors that stand for the storages."""
        tensor = bases[self.storage]
        for step in self.steps:
            result = overload_of(step.name)(tensor, *step.arguments)
            tensor = result if step.number is None else result[step.number]
        return tensor


@dataclass(frozen=True)
class Application:
    """An operation with its arguments, in which tensors are views of ``storages``; each storage comes once."""

    operation: Any
    leaves: tuple[Any, ...]
    tree: pytree.TreeSpec
    storages: tuple[DeviceTensor, ...]

    @classmethod
    def of(cls, operation: Any, arguments: Sequence[Any], named: Mapping[str, Any]) -> Application:
        """Application of an operation to arguments; ``CompileError`` for a tensor on the host among them."""
        leaves, tree = pytree.tree_flatten((tuple(arguments), dict(named)))
        storages: dict[int, DeviceTensor] = {}
        operands = []
        for leaf in leaves:
            if isinstance(leaf, DeviceTensor):
                # Names belong to a tensor and not to its storage, so a named view is a storage of its own.
                leaf = leaf.contiguous() if names_of(leaf) else leaf
                if names_of(leaf) or id(leaf.storage) not in storages:
                    storages[id(leaf.storage)] = _whole(leaf)
                leaf = _TensorArgument(list(storages).index(id(leaf.storage)), leaf.steps)
            elif isinstance(leaf, torch.Tensor | np.ndarray):
                raise CompileError(
                    f"{operation} takes tensors that are all on the device, not one of them on the host; "
                    "to_device or .to('spyre') moves it."
                )
            operands.append(leaf)
        return cls(operation, tuple(operands), tree, tuple(storages.values()))

    @property
    def key(self) -> Hashable:
        """Cache key of the program: the operation, its arguments, and layouts, types and dim names of the storages."""
        tensors = tuple((storage.layout, storage.dtype, names_of(storage)) for storage in self.storages)
        sizes = tuple(dim_sizes().items()) if any(names for _, _, names in tensors) else ()
        return str(self.operation), repr(self.leaves), repr(self.tree), tensors, sizes

    def function(self) -> Callable[..., Any]:
        """The operation as a function of the storages."""

        def function(*bases: torch.Tensor) -> Any:
            """Result of the operation on these storages."""
            leaves = [
                leaf.replay(bases) if isinstance(leaf, _TensorArgument) else leaf for leaf in self.leaves
            ]
            arguments, named = pytree.tree_unflatten(leaves, self.tree)
            return self.operation(*arguments, **named)

        return function


def _whole(tensor: DeviceTensor) -> DeviceTensor:
    """Storage of a tensor as a tensor, with its names if it is no view."""
    whole = DeviceTensor(tensor.storage.layout, tensor.dtype, tensor.data)
    if names := names_of(tensor):
        name_tensor_dims(whole, names)
    return whole


def to_torch(tensor: DeviceTensor) -> torch.Tensor:
    """Copy of a tensor on the host, with its strides as PyTorch gives them to a copy."""
    dtype = getattr(torch, tensor.dtype)
    host = torch.empty_like(_meta(tensor), device="cpu")
    host.copy_(to_tensor(tensor.numpy(), dtype))
    if names := names_of(tensor):
        name_tensor_dims(host, names)
    return host


def _meta(tensor: DeviceTensor) -> torch.Tensor:
    """Tensor without numbers of the same type, sizes and strides."""
    dtype = getattr(torch, tensor.dtype)
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=dtype, device="meta")


def strides_of(operation: Any, arguments: Sequence[Any], named: Mapping[str, Any]) -> list[tuple[int, ...]]:
    """Strides that PyTorch gives to the tensors that an operation returns."""
    meta_operands = pytree.tree_map_only(DeviceTensor, _meta, (tuple(arguments), dict(named)))
    results = operation(*meta_operands[0], **meta_operands[1])
    return [leaf.stride() for leaf in pytree.tree_leaves(results) if isinstance(leaf, torch.Tensor)]


def bits(tensor: torch.Tensor) -> np.ndarray:
    """Tensor as a numpy array; one of a type that numpy lacks by its bits."""
    return to_numpy(tensor)


def on_device(results: Any, layouts: Sequence[StickLayout | None], strides: Sequence[tuple[int, ...]]) -> Any:
    """Tensors on the host as ``DeviceTensor`` with these strides, in the layouts that the program gave them.

    A tensor that the host computed has the default layout.
    """
    leaves, tree = pytree.tree_flatten(results)
    tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    known = list(layouts) if len(layouts) == len(tensors) else [None] * len(tensors)
    moved = iter([_moved(*entry) for entry in zip(tensors, known, strides, strict=True)])
    return pytree.tree_unflatten(
        [next(moved) if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves], tree
    )


def _moved(tensor: torch.Tensor, layout: StickLayout | None, strides: tuple[int, ...]) -> DeviceTensor:
    """Tensor on the host as a ``DeviceTensor`` whose storage has the dims in the order of the strides."""
    dtype = str(tensor.dtype).removeprefix("torch.")
    shape, element = tuple(tensor.shape), element_type(dtype)
    if layout is None or layout.shape != shape:
        layout = LayoutRequest().layout(default_target(), shape, element, "the result")
    # The layout takes the numbers of bfloat16 as float32.
    host = tensor.detach().float().numpy() if dtype == "bfloat16" else to_numpy(tensor)
    # A dim of size 1 has any stride: behind those with the same one it changes nothing.
    order = sorted(range(len(shape)), key=lambda dim: (-strides[dim], shape[dim] == 1))
    stored = StridedView.whole(shape).permute(order)
    moved = layout_of_view(layout, stored) or LayoutRequest().layout(
        default_target(), stored.shape, element, "the result"
    )
    storage = laid_out(np.ascontiguousarray(host.transpose(order)), dtype, moved)
    if order == list(range(len(shape))) and storage.stride() == strides:
        return storage
    permutation = [order.index(dim) for dim in range(len(shape))]
    return storage.view_as(StridedView(shape, strides), ViewStep("permute.default", (permutation,)))


__all__ = [
    "DENSE_COPY",
    "RESTICKIFY",
    "Application",
    "bits",
    "on_device",
    "overload",
    "strides_of",
    "to_torch",
]
