# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Fallback for operations that the device does not run: PyTorch runs them on the host.

The memory of each operand is copied to the host. PyTorch's CPU kernel runs on tensors that share these copies as the
operands share the memory on the device, and changed memory is copied back. So results that are views of an operand are
views on the device, in-place writes are writes to the storage, and errors are PyTorch's own.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch.utils import _pytree as pytree

from spyre_mlir.errors import CompileError, FallbackWarning
from spyre_mlir.frontend.operations import in_its_memory, memory_of, strided_of, viewed, write_memory
from spyre_mlir.records import dataclass
from spyre_mlir.target.element_types import dtype_name
from spyre_mlir.tensors.device_tensor import DeviceTensor, Storage, laid_out

#: Names of the operations that ran on the host, each with the reason of the first run.
reasons: dict[str, str] = {}


def report(operation: Any, reason: str, where: str = "on the host") -> None:
    """Warn that an operation does not run in a program of the device, once for each name."""
    name = str(operation)
    if name not in reasons:
        reasons[name] = reason
        warnings.warn(f"{name} runs {where}: {reason.removesuffix('.')}.", FallbackWarning, stacklevel=3)


class HostRun(NamedTuple):
    """Results of an operation; ``replaced`` maps leaf indices to operands whose geometry has changed."""

    results: Any
    replaced: dict[int, DeviceTensor]


@dataclass(frozen=True)
class OperandResult:
    """A result that is one of the operands, given by its index among the leaves of the arguments."""

    index: int


class _HostMemory:
    """Memory of the device, and the bytes of its copy on the host, which the operation may change."""

    def __init__(self, storage: Storage) -> None:
        self.storage = storage
        self.before = memory_of(storage).view(torch.uint8)
        self.bytes = self.before.clone()

    def tensor(self, tensor: DeviceTensor) -> torch.Tensor:
        """Return the host copy of a tensor in this memory."""
        dtype = getattr(torch, tensor.dtype)
        whole = self.bytes[: len(self.bytes) // dtype.itemsize * dtype.itemsize].view(dtype)
        return viewed(whole, tensor)

    def device_tensor(self, view: torch.Tensor) -> DeviceTensor:
        """Return the device tensor for a view of the copy."""
        dtype = dtype_name(view.dtype)
        storage = self.storage
        if dtype != storage.dtype:
            # Views of several dtypes read the same bytes, in the byte order of the host.
            storage.give_up_layout()
            storage = Storage(None, dtype, storage.data, (storage.data.nbytes // view.itemsize,))
        return DeviceTensor.of(storage, strided_of(view))


def run(
    operation: Any,
    arguments: Sequence[Any],
    named: Mapping[str, Any],
    examples: Sequence[DeviceTensor | None] = (),
) -> HostRun:
    """Run a PyTorch operation on the host, on arguments whose tensors are ``DeviceTensor``.

    A result in new memory gets the layout of its tensor of ``examples``, if both have the same elements in memory.

    Raises:
        Exception: As raised by PyTorch for host tensors.
        CompileError: A result is not a strided tensor.
    """
    leaves, tree = pytree.tree_flatten((tuple(arguments), dict(named)))
    memories: dict[int, _HostMemory] = {}
    copies: dict[int, torch.Tensor] = {}
    operands: dict[int, torch.Tensor] = {}
    for index, leaf in enumerate(leaves):
        if isinstance(leaf, DeviceTensor):
            memory = id(leaf.storage.data)
            if memory not in memories:
                memories[memory] = _HostMemory(leaf.storage)
            # An operand that is passed twice is one tensor.
            if id(leaf) not in copies:
                copies[id(leaf)] = memories[memory].tensor(leaf)
            operands[index] = copies[id(leaf)]
    before = {index: strided_of(operand) for index, operand in operands.items()}
    args, kwargs = tree.unflatten([operands.get(index, leaf) for index, leaf in enumerate(leaves)])
    results, structure = pytree.tree_flatten(operation(*args, **kwargs))
    shared: dict[int, _HostMemory] = {}
    for memory in memories.values():
        if not torch.equal(memory.before, memory.bytes):
            write_memory(memory.storage, memory.bytes.view(getattr(torch, memory.storage.dtype)))
        copy = memory.bytes.untyped_storage()
        if copy.nbytes() == memory.before.nbytes:
            shared[copy._cdata] = memory
    indices = {id(operand): index for index, operand in operands.items()}
    moved = _on_the_device(operation, [result for result in results if id(result) not in indices], shared)
    replaced = {
        index: _on_the_device(operation, [operand], shared)[0]
        for index, operand in operands.items()
        if strided_of(operand) != before[index] or operand.untyped_storage()._cdata not in shared
    }
    if len(examples) == len(moved):
        operand_storages = {id(memory.storage) for memory in memories.values()}
        moved = [
            value if id(getattr(value, "storage", None)) in operand_storages else _laid_out_as(value, example)
            for value, example in zip(moved, examples, strict=True)
        ]
    values = iter(moved)
    placed = [
        OperandResult(indices[id(result)]) if id(result) in indices else next(values) for result in results
    ]
    return HostRun(structure.unflatten(placed), replaced)


def _laid_out_as(tensor: DeviceTensor, example: DeviceTensor | None) -> DeviceTensor:
    """Return a tensor in the layout of an example; the tensor itself if the example has other elements in memory."""
    if example is None or tensor.storage.form is None or tensor.dtype != example.dtype:
        return tensor
    layout, storage = example.storage.layout, tensor.storage
    if math.prod(layout.shape) != math.prod(storage.shape) or _places(tensor) != _places(example):
        return tensor
    moved = laid_out(storage.read().reshape(layout.shape), storage.dtype, layout).storage
    return DeviceTensor.viewing(moved, example.strided, example.steps)


def _places(tensor: DeviceTensor) -> tuple[Any, ...]:
    """Sizes, offset, and the strides that address elements."""
    strides = [stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if size > 1]
    return tensor.shape, tensor.storage_offset(), strides


def _on_the_device(operation: Any, results: Sequence[Any], shared: Mapping[int, _HostMemory]) -> list[Any]:
    """Results as device tensors, in the memory of operands or in new memory; other values unchanged."""
    groups: dict[int, list[torch.Tensor]] = {}
    plain: list[Any] = []
    for result in results:
        if isinstance(result, torch.Tensor):
            if result.layout != torch.strided or result.is_quantized:
                raise CompileError(
                    f"{operation} makes a tensor that is sparse or quantized, which the device does not have; "
                    "call the operation on tensors of the host, which .cpu() gives."
                )
            # The bits of a conjugated or negated view are not its numbers.
            result = result.resolve_conj().resolve_neg()
            groups.setdefault(result.untyped_storage()._cdata, []).append(result)
        plain.append(result)
    memories = dict(shared)
    for key, group in groups.items():
        if key not in shared and len(group) > 1:
            memory = group[0].untyped_storage()
            elements = torch.empty(0, dtype=group[0].dtype).set_(memory)
            memories[key] = _HostMemory(in_its_memory(elements).storage)
    return [
        value
        if not isinstance(value, torch.Tensor)
        else memories[key].device_tensor(value)
        if (key := value.untyped_storage()._cdata) in memories
        else in_its_memory(value)
        for value in plain
    ]
