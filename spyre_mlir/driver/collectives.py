# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Collectives of a program of several cards: steps between the steps of the device, and the exchange of their data.

A collective has the public name of its operation in ``torch.distributed`` (the library ``_c10d_functional``). In one
process, ``combine`` computes the results of all ranks; under ``torchrun``, ``frontend/process_groups.py`` calls
PyTorch.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spyre_mlir.dialects.torch_call import COLLECTIVES, RANKS, TorchCall
from spyre_mlir.errors import CompileError
from spyre_mlir.host.host_evaluator import as_bits
from spyre_mlir.host.number_types import NUMBER_TYPES
from spyre_mlir.mlir import ir
from spyre_mlir.records import dataclass
from spyre_mlir.target.element_types import ELEMENT_TYPES

#: The reductions by PyTorch's names of them, in the order of the ranks.
_REDUCTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "sum": np.add, "avg": np.add, "product": np.multiply, "min": np.minimum, "max": np.maximum,
}  # fmt: skip


@dataclass(frozen=True)
class MeshPlace:
    """The place of a program in a mesh of ranks.

    Attributes:
        rank: The rank.
        shape: The extent of each dim of the mesh.
        names: The names of the dims; empty without names.
    """

    rank: int
    shape: tuple[int, ...]
    names: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        """The number of ranks."""
        return math.prod(self.shape)


@dataclass
class CollectiveStep:
    """A collective of one tensor: ``inputs`` and ``outputs`` have one name each.

    ``operation`` is a key of ``COLLECTIVE_FORMS``; ``arguments`` are its numbers and texts by their names in PyTorch.
    ``ranks`` are the ranks of the group in order. ``element`` is the element type by its name in MLIR, ``shape`` and
    ``result_shape`` are for one rank. ``float_operations`` is 0: the work of a reduction is on the link.
    """

    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    operation: str
    arguments: Mapping[str, Any]
    ranks: tuple[int, ...]
    element: str
    shape: tuple[int, ...]
    result_shape: tuple[int, ...]
    float_operations: int = field(default=0, init=False)

    @classmethod
    def of(
        cls, name: str, inputs: tuple[str, ...], outputs: tuple[str, ...], func: ir.Operation
    ) -> CollectiveStep:
        """Read the step of an outlined function, which consists of one call."""
        op = next(iter(func.regions[0].blocks[0].operations)).operation
        call = TorchCall.of(op)
        operand, result = (ir.RankedTensorType(value.type) for value in (op.operands[0], op.results[0]))
        fixed = {key: value for key, value in call.arguments.items() if not isinstance(value, dict)}
        ranks = tuple(int(rank) for rank in fixed.pop("group_name").removeprefix(RANKS).split(","))
        operation = call.operator.removeprefix(f"{COLLECTIVES}.").removesuffix(".default")
        shapes = tuple(operand.shape), tuple(result.shape)
        return cls(name, inputs, outputs, operation, fixed, ranks, str(operand.element_type), *shapes)

    @classmethod
    def of_plain(cls, plain: Mapping[str, Any]) -> CollectiveStep:
        """Create a step from JSON values; any exception for values that do not describe a step."""
        inputs, outputs = (tuple(map(str, plain[key])) for key in ("inputs", "outputs"))
        ranks, *shapes = (tuple(map(int, plain[key])) for key in ("ranks", "shape", "result_shape"))
        name, operation, element = (str(plain[key]) for key in ("name", "operation", "element"))
        step = cls(name, inputs, outputs, operation, dict(plain["arguments"]), ranks, element, *shapes)
        if step.operation not in COLLECTIVE_FORMS or step.element not in NUMBER_TYPES or not step.ranks:
            raise ValueError(f"'{step.operation}' of '{step.element}' is not a collective")
        return step

    def to_plain(self) -> dict[str, Any]:
        """Return the step as JSON values."""
        names = (
            "name",
            "inputs",
            "outputs",
            "operation",
            "arguments",
            "ranks",
            "element",
            "shape",
            "result_shape",
        )
        return {name: getattr(self, name) for name in names}

    @property
    def bytes(self) -> int:
        """The bytes of the tensor of one rank."""
        storage = ELEMENT_TYPES[self.element].storage
        return math.prod(self.shape) * (storage.itemsize if storage is not None else 1)

    @property
    def call_text(self) -> str:
        """The call as text; the ranks of a group must agree on it."""
        arguments = "".join(f", {value}" for value in self.arguments.values())
        return (
            f"{self.operation}({self.element} {list(self.shape)}{arguments}) of the ranks {list(self.ranks)}"
        )

    def operand(self, values: Mapping[str, NDArray[Any]]) -> NDArray[Any]:
        """Return the tensor of this rank among the values of a call, as bits of the element type."""
        array = as_bits(np.asarray(values[self.inputs[0]]), NUMBER_TYPES[self.element].host)
        return np.ascontiguousarray(array).reshape(self.shape)


def _all_reduce(step: CollectiveStep, arrays: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
    return [_reduced(step, arrays)] * len(arrays)


def _all_gather(step: CollectiveStep, arrays: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
    return [np.concatenate(arrays)] * len(arrays)


def _reduce_scatter(step: CollectiveStep, arrays: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
    return list(np.split(_reduced(step, arrays), len(arrays)))


def _all_to_all(step: CollectiveStep, arrays: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
    # The sizes are for the rows of this rank; ranks with other sizes have another call, which is an error.
    sizes = step.arguments.get("input_split_sizes") or [len(arrays[0]) // len(arrays)] * len(arrays)
    ends = np.cumsum(sizes)[:-1]
    parts = [np.split(array, ends) for array in arrays]
    return [np.concatenate([row[column] for row in parts]) for column in range(len(arrays))]


def _broadcast(step: CollectiveStep, arrays: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
    return [arrays[step.ranks.index(int(step.arguments["src"]))]] * len(arrays)


#: The collectives by their names: the results of all ranks of a group from their tensors.
COLLECTIVE_FORMS: dict[str, Callable[[CollectiveStep, Sequence[NDArray[Any]]], list[NDArray[Any]]]] = {
    "all_reduce": _all_reduce,
    "all_gather_into_tensor": _all_gather,
    "reduce_scatter_tensor": _reduce_scatter,
    "all_to_all_single": _all_to_all,
    "broadcast": _broadcast,
}


def _reduced(step: CollectiveStep, arrays: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """Reduce in the order of the ranks; floats are accumulated in float32 or wider, and rounded once."""
    number = NUMBER_TYPES[step.element]
    numbers = [number.widened(number.from_host(array)) for array in arrays]
    total = functools.reduce(_REDUCTIONS[step.arguments["reduce_op"]], numbers)
    if step.arguments["reduce_op"] == "avg":
        total = total / len(arrays)
    return number.to_host(number.stored(total))


def combine(steps: Sequence[CollectiveStep], arrays: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
    """Return the results of all ranks of a group from their tensors, in the order of the group.

    Raises:
        CompileError: The ranks call different collectives, or tensors of different shapes.
    """
    first = steps[0]
    for rank, step in zip(first.ranks, steps, strict=True):
        if step.call_text != first.call_text:
            raise CompileError(
                f"Rank {rank} calls {step.call_text} at {step.name}, but rank {first.ranks[0]} calls "
                f"{first.call_text}; all ranks of a group must call the same collective."
            )
    return COLLECTIVE_FORMS[first.operation](first, arrays)
