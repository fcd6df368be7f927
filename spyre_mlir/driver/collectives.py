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

from spyre_mlir.diagnostics import error_at
from spyre_mlir.dialects.torch_call import COLLECTIVES, RANKS, TorchCall
from spyre_mlir.errors import CompileError, first_sentence
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
        """Read the step of an outlined function, which consists of one call; ``CompileError`` for another call."""
        op = next(iter(func.regions[0].blocks[0].operations)).operation
        call = TorchCall.of(op)
        operand, result = (ir.RankedTensorType(value.type) for value in (op.operands[0], op.results[0]))
        fixed = {key: value for key, value in call.arguments.items() if not isinstance(value, dict)}
        operation = call.operator.removeprefix(f"{COLLECTIVES}.").removesuffix(".default")
        shapes = tuple(operand.shape), tuple(result.shape)
        try:
            ranks = tuple(int(rank) for rank in fixed.pop("group_name").removeprefix(RANKS).split(","))
            step = cls(name, inputs, outputs, operation, fixed, ranks, str(operand.element_type), *shapes)
            step.check()
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise error_at(op, f"is not a collective of a program: {first_sentence(error)}") from None
        return step

    @classmethod
    def of_plain(cls, plain: Mapping[str, Any]) -> CollectiveStep:
        """Create a step from JSON values; any exception for values that do not describe a step."""
        inputs, outputs = (tuple(map(str, plain[key])) for key in ("inputs", "outputs"))
        ranks, *shapes = (tuple(map(int, plain[key])) for key in ("ranks", "shape", "result_shape"))
        name, operation, element = (str(plain[key]) for key in ("name", "operation", "element"))
        step = cls(name, inputs, outputs, operation, dict(plain["arguments"]), ranks, element, *shapes)
        step.check()
        return step

    def check(self) -> None:
        """Raise ``KeyError`` or ``ValueError`` if the step is not a collective whose results are known."""
        if (len(self.inputs), len(self.outputs)) != (1, 1):
            raise ValueError("a collective has one input and one output")
        if self.operation not in COLLECTIVE_FORMS or self.element not in NUMBER_TYPES:
            raise ValueError(f"'{self.operation}' of '{self.element}' is unknown")
        if len(set(self.ranks)) != len(self.ranks) or min(self.ranks) < 0:
            raise ValueError(f"a group has distinct ranks, not {list(self.ranks)}")
        if "reduce_op" in self.arguments or "reduce" in self.operation:
            _REDUCTIONS[self.arguments["reduce_op"]]
        if self.operation == "broadcast" and self.arguments["src"] not in range(len(self.ranks)):
            raise ValueError(f"rank {self.arguments['src']} of the group does not exist")
        rows = self.shape[:1] or (1,)
        count = len(self.ranks)
        first = {
            "all_gather_into_tensor": (rows[0] * count,),
            "reduce_scatter_tensor": (rows[0] // count,),
            "all_to_all_single": (sum(self.splits("output")),),
        }.get(self.operation, rows)
        is_divided = self.operation != "reduce_scatter_tensor" or rows[0] % count == 0
        if not is_divided or (first, self.shape[1:]) != (
            self.result_shape[:1] or (1,),
            self.result_shape[1:],
        ):
            raise ValueError(f"the result of {list(self.shape)} is not {list(self.result_shape)}")
        if self.operation == "all_to_all_single" and sum(self.splits("input")) != rows[0]:
            raise ValueError(f"the parts of {list(self.shape)} do not have {self.splits('input')} rows")

    def splits(self, side: str) -> list[int]:
        """Return the rows that ``all_to_all_single`` sends to each rank ("input"), or receives from each ("output")."""
        shape = self.shape if side == "input" else self.result_shape
        given = self.arguments.get(f"{side}_split_sizes")
        count = len(self.ranks)
        return [int(rows) for rows in given] if given else [(shape[0] if shape else 1) // count] * count

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
        shape: list[Any] = list(self.shape)
        if self.operation == "all_to_all_single":
            shape[0] = "any"  # ranks may send other numbers of rows
        arguments = "".join(
            f", {value}" for name, value in self.arguments.items() if not name.endswith("_split_sizes")
        )
        shown = ", ".join(map(str, shape))
        return f"{self.operation}({self.element} [{shown}]{arguments}) of the ranks {list(self.ranks)}"

    def operand(self, values: Mapping[str, NDArray[Any]]) -> NDArray[Any]:
        """Return the tensor of this rank among the values of a call, as bits of the element type."""
        array = as_bits(np.asarray(values[self.inputs[0]]), NUMBER_TYPES[self.element].host)
        if array.shape != self.shape:
            raise CompileError(f"{self.name} accepts {list(self.shape)}, not {list(array.shape)}.")
        return np.ascontiguousarray(array).reshape(self.shape)


#: The steps of the ranks of a group; they have the same call.
_Steps = Sequence[CollectiveStep]


def _all_reduce(steps: _Steps, arrays: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
    return [_reduced(steps[0], arrays)] * len(arrays)


def _all_gather(steps: _Steps, arrays: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
    return [np.concatenate(arrays)] * len(arrays)


def _reduce_scatter(steps: _Steps, arrays: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
    return list(np.split(_reduced(steps[0], arrays), len(arrays)))


def _all_to_all(steps: _Steps, arrays: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
    parts = [
        np.split(array, np.cumsum(step.splits("input"))[:-1])
        for step, array in zip(steps, arrays, strict=True)
    ]
    for column, step in enumerate(steps):
        sent = [len(row[column]) for row in parts]
        if sent != step.splits("output"):
            raise CompileError(
                f"Rank {step.ranks[column]} expects {step.splits('output')} rows from the ranks "
                f"{list(step.ranks)} at {step.name}, which send {sent}."
            )
    return [np.concatenate([row[column] for row in parts]) for column in range(len(arrays))]


def _broadcast(steps: _Steps, arrays: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
    return [arrays[steps[0].arguments["src"]]] * len(arrays)


#: The collectives by their names: the results of all ranks of a group from their tensors.
COLLECTIVE_FORMS: dict[str, Callable[[_Steps, Sequence[NDArray[Any]]], list[NDArray[Any]]]] = {
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
    return COLLECTIVE_FORMS[first.operation](steps, arrays)
