# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""torch.compile runs models on the simulator: numbers, parameters, shapes, graph breaks and errors."""

from __future__ import annotations

import copy
import importlib.metadata
import pickle
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hinted import TOLERANCE, compiled_graphs, half, hints, kernel, kernel_inputs, kernel_of_view, named
from torch import nn

import spyre_mlir
from spyre_mlir import declare_tensor_dim, name_tensor_dims, spyre_hint
from spyre_mlir.errors import CompileError
from spyre_mlir.frontend.dynamo import CompiledGraph


@pytest.fixture(autouse=True)
def _no_graphs() -> None:
    torch._dynamo.reset()


def compiled(model: Callable, **options) -> Callable:
    return torch.compile(model, backend=spyre_mlir.torch_backend, options=options or None)


@pytest.mark.parametrize(("example", "is_flat"), [(kernel, False), (kernel_of_view, True)])
def test_examples_of_the_specification(example, is_flat):
    """Both examples with hints, from torch.compile to numbers."""
    inputs = kernel_inputs(is_flat=is_flat)
    torch.testing.assert_close(compiled(example)(*inputs), example(*inputs), rtol=TOLERANCE, atol=0)


def test_results_are_those_of_pytorch():
    """Structure, types and shapes equal the model; values that are not tensors come from Python."""

    def model(x):
        return {"sum": x.float() + 1, "pair": (x.bfloat16() * 2, None), "number": 3}

    x = half(3, 5)
    result, expected = compiled(model)(x), model(x)
    assert result["number"] == 3 and result["pair"][1] is None
    # The bfloat16 makes it a program of DL16, which has one bit less than the fp16 that comes in.
    torch.testing.assert_close(result["sum"], expected["sum"], rtol=2**-10, atol=2**-10)
    assert result["pair"][0].dtype == torch.bfloat16
    torch.testing.assert_close(result["pair"][0], expected["pair"][0], rtol=1e-2, atol=0)


def test_parameters_are_parameters_of_the_program():
    """The compiler knows the values that the host may prepare, although Dynamo makes them inputs."""
    (graph,) = compiled_graphs(nn.Linear(64, 64).half(), half(8, 64))
    assert sorted(argument.kind for argument in graph.arguments) == ["input", "parameter", "parameter"]


def test_parameters_may_change():
    """Each call reads the current parameters, changed in place or replaced."""
    model, x = nn.Linear(64, 64, bias=False).half(), half(8, 64)
    program = compiled(model)
    with torch.no_grad():
        program(x)
        model.weight.mul_(2)
        torch.testing.assert_close(program(x), model(x), rtol=2e-3, atol=1e-3)
        model.weight = nn.Parameter(half(64, 64))
        torch.testing.assert_close(program(x), model(x), rtol=2e-3, atol=1e-3)


def test_places_are_those_of_the_model():
    """The line, the module and the operation of PyTorch, as without torch.compile."""
    (graph,) = compiled_graphs(nn.Sequential(nn.Sigmoid(), nn.Softmax(-1)), half(8, 64))
    text = graph.module.operation.get_asm(enable_debug_info=True)
    assert 'aten = "aten.softmax.int", module = "1"' in text and "0x7f" not in text


@pytest.fixture
def counted():
    """A backend that counts how often it compiles; the graphs run in PyTorch."""
    shapes = []

    def compile(graph: Callable, inputs: tuple) -> Callable:
        shapes.append([tuple(value.shape) for value in inputs if isinstance(value, torch.Tensor)])
        return graph

    return shapes, lambda graph, _: CompiledGraph(graph, compile)


def test_one_program_per_shape(counted):
    """Dynamo makes the graph dynamic at the second shape; each shape is compiled once all the same."""
    shapes, backend = counted
    model = torch.compile(torch.exp, backend=backend)
    for rows in (8, 9, 10, 9, 10):
        model(half(rows, 64))
    assert shapes == [[(8, 64)], [(9, 64)], [(10, 64)]]


def test_other_shapes_run():
    """A program of a dynamic graph has the sizes of its inputs."""
    model = compiled(lambda x: torch.exp(x).reshape(-1, 2))
    for rows in (4, 5, 6):
        x = half(rows, 64)
        torch.testing.assert_close(model(x), torch.exp(x).reshape(-1, 2), rtol=2e-3, atol=0)


def test_names_are_part_of_a_program(counted):
    """A tensor with other names is another program, though Dynamo does not see the difference."""
    declare_tensor_dim("A", 8)
    declare_tensor_dim("B", 8)
    shapes, backend = counted
    model = torch.compile(torch.exp, backend=backend)
    for names in (("A", "B"), ("B", "A"), ("A", "B")):
        model(named(half(8, 8), *names))
    assert len(shapes) == 2


def test_graph_break():
    """Code that Dynamo cannot trace runs in Python, between two programs."""

    def model(x):
        y = torch.exp(x)
        torch._dynamo.graph_break()
        return torch.tanh(y)

    x = half(8, 64)
    assert len(compiled_graphs(model, x)) == 2
    torch.testing.assert_close(compiled(model)(x), model(x), rtol=2e-3, atol=0)


def test_graph_break_inside_a_hint():
    """Dynamo leaves the function to Python; the functions that it calls are compiled under the hint."""

    def inner(x):
        return torch.tanh(torch.exp(x))

    def model(x):
        with spyre_hint(tiles={"rows": 2}):
            x = inner(x)
            torch._dynamo.graph_break()
            return torch.abs(x)

    declare_tensor_dim("rows", 8)
    declare_tensor_dim("columns", 64)
    x = named(half(8, 64), "rows", "columns")
    (graph,) = compiled_graphs(model, x)
    assert hints(graph) == [("exp", (1,)), ("tanh", (1,))]
    torch.testing.assert_close(compiled(model)(x), model(x), rtol=2e-3, atol=0)


def test_options_are_those_of_compile():
    with pytest.raises(CompileError, match="sencores"):
        compiled(torch.exp, sencores=33)(half(8, 64))


def test_the_name_of_the_backend():
    """``backend="spyre"`` of an installed package is the same backend."""
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))
    ((name, value),) = project["project"]["entry-points"]["torch_dynamo_backends"].items()
    entry = importlib.metadata.EntryPoint(name, value, "torch_dynamo_backends")
    assert name == "spyre" and entry.load() is spyre_mlir.torch_backend


def _segments(x):
    y = x + 1
    return torch.segment_reduce(y, "sum", offsets=torch.tensor([0, 8]))


def test_an_operation_that_cannot_be_compiled():
    """The call raises one error with the line of the model; no operation falls back silently."""
    with pytest.raises(CompileError, match=r"segment_reduce has no form in linalg") as caught:
        compiled(_segments)(half(8, 64))
    assert caught.value.location == f"{__file__}:{_segments.__code__.co_firstlineno + 2}:0"


def test_changes_in_place():
    """The caller's tensor is changed, and returned."""
    x = half(8, 64)
    expected = x + 1
    assert compiled(lambda x: x.add_(1))(x) is x
    torch.testing.assert_close(x, expected, rtol=2e-3, atol=0)


def test_a_cache_that_changes():
    """A buffer of the model, at a position that each call gives, as eager PyTorch leaves it."""

    class Cached(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("cache", torch.zeros(8, 64, dtype=torch.half))

        def forward(self, x, position):
            self.cache.index_copy_(0, position, x)
            return torch.tanh(self.cache).sum(0)

    model = Cached()
    eager, program = copy.deepcopy(model), compiled(model)
    for at in (3, 5):
        x, position = half(1, 64), torch.tensor([at])
        torch.testing.assert_close(program(x, position), eager(x, position), rtol=2e-3, atol=1e-3)
        assert torch.equal(model.cache, eager.cache)


def test_graphs_without_computation():
    """A graph break may leave a graph that only looks at its inputs, or computes nothing of them."""

    def model(x):
        y = x.view(64, 8)
        torch._dynamo.graph_break()
        return y, torch.arange(3)

    x = half(8, 64)
    view, numbers = compiled(model)(x)
    assert view.shape == (64, 8) and view.data_ptr() == x.data_ptr() and numbers.tolist() == [0, 1, 2]


def test_results_that_are_inputs():
    x = half(8, 64)
    same, twice, transposed = compiled(lambda x: (x, x * 2, x.T))(x)
    assert same is x and transposed.data_ptr() == x.data_ptr()
    assert torch.equal(twice, x * 2)


def test_naming_inside_a_model():
    """An input gets the names; a tensor that the model computes is refused."""
    declare_tensor_dim("M", 64)

    def model(x, is_computed=False):
        y = x + 1
        name_tensor_dims(y if is_computed else x, ["M"])
        return torch.exp(y)

    torch.testing.assert_close(compiled(model)(half(64)), model(half(64)), rtol=0.01, atol=0.01)
    with pytest.raises(CompileError, match="names the dims of inputs and parameters"):
        compiled(model)(half(64), True)


def test_a_compiled_model_is_copied() -> None:
    """The backend holds a lock, which has no copy; it is its own, as a function is."""
    model, x = compiled(nn.ReLU()), half(3, 64)
    torch.testing.assert_close(copy.deepcopy(model)(x), model(x))
    assert pickle.loads(pickle.dumps(spyre_mlir.torch_backend)) is spyre_mlir.torch_backend


def test_gradients_where_a_result_is_a_view_of_another() -> None:
    """AOTAutograd computes the view from the other result, whose strides equal PyTorch."""

    def model(x, index, rows):
        y = torch.scatter(x, 1, index.view(1, 3).expand(4, 3), rows)
        return y.squeeze(1), y.view(-1)

    x, rows = (torch.arange(n).reshape(4, -1).half().requires_grad_() for n in (124, 12))
    index = torch.tensor([3, 7, 1])
    results = torch.compile(model, backend="spyre")(x, index, rows)
    for got, expected in zip(results, model(x, index, rows), strict=True):
        assert torch.equal(got, expected) and got.stride() == expected.stride()


def test_a_program_inside_of_a_traced_function():
    """Dynamo leaves the program to Python, and traces nothing that the program imports."""
    code = """
import torch, spyre_mlir
x = torch.linspace(-2, 2, 256).half().reshape(4, 64)
program = spyre_mlir.compile(torch.tanh, (x,))
def function(x):
    torch._dynamo.graph_break()
    return program(x) + 1
torch.testing.assert_close(torch.compile(function, backend="eager")(x), torch.tanh(x) + 1, rtol=2e-3, atol=2e-3)
"""
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True)


def test_a_gradient_whose_elements_are_one():
    """AOTAutograd expects a gradient of stride 0 where all elements are equal by construction."""
    x = torch.ones(64, dtype=torch.float16, requires_grad=True)
    model = torch.compile(
        lambda x: torch.softmax(x.sum([0], keepdim=True), 0, dtype=torch.float32), backend="spyre"
    )
    (gradient,) = torch.autograd.grad(model(x).sum(), x)
    assert gradient.shape == (64,) and not gradient.any()


def test_a_search_for_lost_writes_keeps_fixed_sizes():
    """A view by expand makes the backend trace the graph; sizes that Dynamo fixed stay numbers in this trace."""

    def model(x: torch.Tensor, kernel: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        convolved = torch.nn.functional.conv1d(x, kernel, padding=1)
        return convolved + torch.scatter_add(x[0, 0], 0, index.view([1]).expand([1]), x[0, 0, :1])

    x, kernel = torch.rand(2, 3, 4).half(), torch.rand(2, 3, 3).half().requires_grad_()
    operands = (x, kernel, torch.tensor([0]))
    got = torch.compile(model, backend="spyre")(*operands)
    torch.testing.assert_close(got, model(*operands), rtol=1e-2, atol=1e-2)
