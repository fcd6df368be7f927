# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Graphs of Dynamo with sizes as inputs, as functions of their tensors, whose shapes determine the sizes."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.fx import GraphModule

from spyre_mlir.frontend.dynamic_marks import marked_ranges
from spyre_mlir.records import dataclass


@dataclass(frozen=True)
class SizedGraph:
    """The inputs of a graph that are sizes: ``numbers`` maps the index of each to a tensor and a dim of it."""

    numbers: Mapping[int, tuple[int, int]]

    @classmethod
    def of(cls, graph: GraphModule) -> SizedGraph | None:
        """Return the sizes of a graph; None if there are none, or if a size is not a dim of an input."""
        values = [node.meta.get("example_value") for node in graph.graph.nodes if node.op == "placeholder"]
        dims = {
            str(size): (position, dim)
            for position, value in enumerate(values)
            if isinstance(value, torch.Tensor)
            for dim, size in enumerate(value.shape)
            if isinstance(size, torch.SymInt)
        }
        symbols = {
            position: str(value) for position, value in enumerate(values) if isinstance(value, torch.SymInt)
        }
        if not symbols or not dims.keys() >= set(symbols.values()):
            return None
        return cls({position: dims[symbol] for position, symbol in symbols.items()})

    def marks(self, inputs: Sequence[Any]) -> list[tuple[int, int]]:
        """Return the dims marked with a largest size, as (input, dim); empty unless all sizes are marked."""
        marked = [(range_.leaf, range_.dim) for range_ in marked_ranges(inputs) if range_.most]
        return marked if set(marked) >= set(self.numbers.values()) else []

    def tensors(self, inputs: Sequence[Any]) -> list[Any]:
        """Return the inputs that are not sizes."""
        return [value for position, value in enumerate(inputs) if position not in self.numbers]

    def function(self, model: Callable[..., Any]) -> Callable[..., Any]:
        """Return the graph, ``model``, as a function of the inputs that are not sizes."""
        numbers = self.numbers
        names = list(inspect.signature(model).parameters.values())

        def sized(*tensors: Any) -> Any:
            """Run the graph with the sizes of the given tensors."""
            remaining = iter(tensors)
            inputs: list[Any] = [0 if number in numbers else next(remaining) for number in range(len(names))]
            for number, (tensor, dim) in numbers.items():
                inputs[number] = inputs[tensor].shape[dim]
            return model(*inputs)

        kept = [parameter for position, parameter in enumerate(names) if position not in numbers]
        sized.__signature__ = inspect.Signature(kept)  # type: ignore[attr-defined]
        return sized
