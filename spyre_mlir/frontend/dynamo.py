"""Graphs of torch.compile: each is compiled by the pipeline of a model and runs on the simulator.

Dynamo makes the parameters of a model inputs of its graph; they are parameters of the program nevertheless,
and each call gives their data anew. A graph is compiled when it is called, once for each combination of
shapes and names of dims: so an error is a ``CompileError`` of the call, and a graph with dynamic shapes
is a program per shape.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch.fx import GraphModule, Interpreter

from spyre_mlir.errors import CompileError
from spyre_mlir.frontend.hints import dim_sizes, names_of


class CompiledGraph:
    """A graph of Dynamo as a function: ``compile(function, inputs)`` makes the programs that it calls."""

    def __init__(self, graph: GraphModule, compile: Callable[..., Callable]) -> None:
        self.model = _as_function(graph)
        self.compile = compile
        self.programs: dict[tuple, Callable] = {}

    def __call__(self, *inputs: Any) -> Any:
        if torch.is_grad_enabled() and any(_wants_gradient(value) for value in inputs):
            raise CompileError(
                "The spyre backend is for inference, but an input or a parameter requires a gradient; "
                "call the model under torch.no_grad()."
            )
        key = (*map(_kind, inputs), *dim_sizes().items())
        if key not in self.programs:
            self.programs[key] = self.compile(self.model, inputs)
        return self.programs[key](*inputs)


def _as_function(graph: GraphModule) -> Callable:
    """The graph as a function of its inputs; run node by node, so that what it calls keeps their metadata."""

    def replay(*inputs: Any) -> Any:
        return Interpreter(graph).run(*inputs)

    names = [_readable(str(node.target)) for node in graph.graph.nodes if node.op == "placeholder"]
    parameters = [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in names]
    replay.__signature__ = inspect.Signature(parameters)
    return replay


def _readable(target: str) -> str:
    """Dynamo's name of an input without its frame: ``x`` of ``L_x_``."""
    return target.removeprefix("L_").removesuffix("_")


def _wants_gradient(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.requires_grad


def _kind(value: Any) -> Any:
    """What a program depends on: the shape and the names of a tensor; a number itself."""
    return (tuple(value.shape), names_of(value)) if isinstance(value, torch.Tensor) else value
