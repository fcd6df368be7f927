# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Decomposition call by call and type inference once, compared with PyTorch: whole program, and every call."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from unittest import mock

import pytest
import torch
import torch.nn.functional as F
from op_samples import SAMPLES
from programs import LlamaBlock
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.export import ExportedProgram
from torch.fx import Node
from torch.fx.experimental import proxy_tensor
from torch.fx.traceback import preserve_node_meta
from torch.utils import _pytree as pytree

from spyre_mlir.frontend import decomposed as decomposed_module
from spyre_mlir.frontend.decomposed import decomposed
from spyre_mlir.frontend.decompositions import decomposition_table
from spyre_mlir.frontend.exported import _program
from spyre_mlir.frontend.inference import inferring_once
from spyre_mlir.frontend.locations import recording_all_frames
from spyre_mlir.frontend.storage import address_storages, storages_of

#: Every eighth sample: the others are of the same operations in other shapes, or of the same forms.
EVERY = 8

COMPARED = ("stack_trace", "nn_module_stack", "torch_fn", "original_aten", "tensor_meta")


def exported(model: nn.Module, inputs: tuple[Tensor, ...], *, once: bool = True) -> ExportedProgram:
    """Program that torch.export captures, as the importer calls it; without ``once`` by PyTorch alone."""
    with torch.no_grad(), preserve_node_meta(), recording_all_frames():
        with inferring_once() if once else contextlib.nullcontext():
            return _program(model, inputs)


def both(program: ExportedProgram) -> tuple[ExportedProgram, ExportedProgram]:
    """The program decomposed by PyTorch and by the compiler."""
    with torch.no_grad(), preserve_node_meta():
        expected = program.run_decompositions(decomposition_table())
        return expected, decomposed(program, decomposition_table())


def assert_same(one: ExportedProgram, other: ExportedProgram, *, with_values: bool = True) -> None:
    """Equal nodes with equal metadata, in an equal order, and equal signatures."""
    assert [node.format_node() for node in one.graph.nodes] == [
        node.format_node() for node in other.graph.nodes
    ]
    assert one.graph_signature == other.graph_signature
    for node, twin in zip(one.graph.nodes, other.graph.nodes, strict=True):
        if node.op == "call_function":
            assert [str(node.meta.get(key)) for key in COMPARED] == [
                str(twin.meta.get(key)) for key in COMPARED
            ]
        if with_values:
            assert values(node) == values(twin), node.format_node()


def values(node: Node) -> list[tuple]:
    """Type, sizes, strides and place in memory of each tensor of a node."""
    leaves = pytree.tree_leaves(node.meta.get("val"))
    return [
        (leaf.dtype, leaf.shape, leaf.stride(), leaf.storage_offset(), leaf.requires_grad)
        for leaf in leaves
        if isinstance(leaf, FakeTensor)
    ]


def memory(program: ExportedProgram) -> list[list[str]]:
    """Nodes that share a storage with each node."""
    nodes = list(program.graph.nodes)
    storages = {node: storages_of(node) for node in nodes}
    return [[other.name for other in nodes if storages[node] & storages[other]] for node in nodes]


class Function(nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: Tensor) -> object:
        return self.function(*inputs)


def half(*shape: int) -> Tensor:
    return torch.ones(shape, dtype=torch.float16)


@pytest.mark.parametrize("name", list(SAMPLES)[::EVERY])
def test_operations_decompose_as_by_pytorch(name):
    assert_same(*both(exported(*SAMPLES[name]())))


def in_place(x: Tensor) -> tuple[Tensor, ...]:
    """A result written twice, under either name, and a part of a result that is read before and after."""
    y = x + 1
    before = y * 2
    z = F.relu_(y)
    z.mul_(3)
    values, indices = x.topk(2)
    values.div_(values.sum())
    return before, y, z, values, indices


def through_a_view(x: Tensor) -> Tensor:
    y = x + 1
    y[0].mul_(2)
    return y


def after_dropout(x: Tensor) -> tuple[Tensor, Tensor]:
    """Writes to the result of a dropout outside training, which is its operand, and to a view of it."""
    y, z = x + 1, x + 2
    F.dropout(y, 0.5, training=False).neg_()
    F.dropout(z, 0.5, training=False)[1].neg_()
    return y, z


def without_result(x: Tensor) -> Tensor:
    y = x + 1
    torch.ops.spyre_test.double_in_place(y)
    return y


@torch.library.custom_op("spyre_test::double_in_place", mutates_args=("x",))
def double_in_place(x: Tensor) -> None:
    x.mul_(2)


def argument(x: Tensor) -> Tensor:
    return x.mul_(2)


def many_results(add: Tensor, mul: Tensor) -> tuple:
    """Arguments with names of operations; results that are an argument, a number, a view and one twice."""
    low, high = (add + mul).chunk(2)
    return add, 3, low * high, high, high, None


#: Programs that write, and whether PyTorch decomposes them as a whole.
WRITES = {in_place: 0, through_a_view: 1, after_dropout: 1, without_result: 1, argument: 1}


@pytest.mark.parametrize("function", WRITES)
def test_writes_decompose_as_by_pytorch(function):
    program = exported(Function(function), (half(4, 6),))
    address_storages(program)
    assert_same(*both(program), with_values=False)


def test_names_and_results_are_those_of_pytorch():
    program = exported(Function(many_results), (half(4, 6), half(4, 6)))
    assert_same(*both(program))


@pytest.mark.parametrize(("function", "whole"), WRITES.items())
def test_what_others_see_is_made_functional_by_pytorch(function, whole):
    """Only a program that writes to an argument or through a view is decomposed as a whole."""
    program = exported(Function(function), (half(4, 6),))
    address_storages(program)
    calls = mock.Mock(side_effect=ExportedProgram.run_decompositions)
    with mock.patch.object(ExportedProgram, "run_decompositions", lambda *operands: calls(*operands)):
        decomposed(program, decomposition_table())
    assert calls.call_count == whole


class Layers(nn.Module):
    """Equal layers, one of which differs; buffers and parameters whose order PyTorch changes."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(half(64))
        self.layers = nn.ModuleList(LlamaBlock(64, 8, 2, 1, 64) for _ in range(3))
        self.layers[1].mlp_norm = nn.RMSNorm(64, eps=1e-3)
        self.register_buffer("shift", half(64))
        self.constant = half(64)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return x * self.scale + self.shift + self.constant


def test_layers_decompose_as_by_pytorch():
    """With arguments in PyTorch's order, the epsilon of the layer that differs and the module of each node."""
    program = exported(Layers().half().eval(), (half(1, 8, 64),))
    expected, actual = both(program)
    assert_same(expected, actual)
    epsilons = [
        node.args[1] for node in actual.graph.nodes if node.name.startswith("add") and node.args[1] == 1e-3
    ]
    assert len(epsilons) == 1


def test_equal_calls_are_decomposed_once():
    program = exported(Layers().half().eval(), (half(1, 8, 64),))
    traced = decomposed_module.CallDecomposer._traced
    targets = []

    def note(self, target, *call):
        targets.append(target)
        return traced(self, target, *call)

    with torch.no_grad(), mock.patch.object(decomposed_module.CallDecomposer, "_traced", note):
        decomposed(program, decomposition_table())
    assert targets.count(torch.ops.aten.scaled_dot_product_attention.default) == 1
    # Of the first layer and of the one with another epsilon.
    assert targets.count(torch.ops.aten.rms_norm.default) == 2


def views(x: Tensor) -> list[Tensor]:
    """Views and copies of two tensors of one shape, whose memory differs."""
    other = x + 1
    results = []
    for tensor in (x, other, x):
        low, high = tensor.chunk(2)
        results += [low.t(), high.unsqueeze(0).expand(3, -1, -1), tensor.clone(), tensor.contiguous()]
    return results


def written(x: Tensor) -> Tensor:
    """Equal calls before and after a write, and numbers of equal value and other types."""
    y = x * 2
    y.add_(1)
    z = x * 2
    z.add_(1.0)
    return (y * 2) + (z * 2.0) + (x * 2) + (x * True)


def settings(x: Tensor) -> list[Tensor]:
    """Calls whose result depends on settings that the model changes."""
    single = torch.ones(3) + x.sum()
    torch.set_default_dtype(torch.float64)
    double = torch.ones(3) + x.sum()
    torch.set_default_dtype(torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        cast = x.float() @ x.float().t()
    return [single, double, cast, x.float() @ x.float().t()]


def numbers(x: Tensor) -> list[Tensor]:
    """Factories, constants and random numbers, each a separate node."""
    constants = [torch.tensor(3) + x, torch.tensor(4) + x]
    return [*constants, torch.arange(6) + torch.arange(6) + x, torch.rand(6) + torch.rand(6)]


@pytest.mark.parametrize("function", (views, written, settings, numbers, in_place, through_a_view))
def test_inferring_once_captures_what_pytorch_captures(function):
    programs = [exported(Function(function), (half(4, 6),), once=once) for once in (False, True)]
    assert_same(*programs)
    assert memory(programs[0]) == memory(programs[1])


def test_inferring_once_captures_layers_as_pytorch_does():
    model = Layers().half().eval()
    programs = [exported(model, (half(1, 8, 64),), once=once) for once in (False, True)]
    assert_same(*programs)
    assert memory(programs[0]) == memory(programs[1])


def test_a_model_that_counts_its_calls_is_run_for_each():
    """Python code runs in every layer: only calls of PyTorch are known from the first layer."""
    layer = Function(lambda x: x * next(counter))
    counter = iter(range(2, 9))
    program = exported(nn.Sequential(layer, layer, layer), (half(4),))
    products = program.graph.find_nodes(op="call_function", target=torch.ops.aten.mul.Tensor)
    assert [node.args[1] for node in products] == [2, 3, 4]


def test_equal_calls_are_inferred_once():
    """PyTorch infers the calls of the first layer, and the norm that differs in another one."""
    targets = []

    def trace(mode, target, *call):
        targets.append(target)
        return proxy_call(mode, target, *call)

    proxy_call = proxy_tensor.proxy_call
    with mock.patch.object(proxy_tensor, "proxy_call", trace):
        exported(Layers().half().eval(), (half(1, 8, 64),))
    assert targets.count(torch.ops.aten.scaled_dot_product_attention.default) == 1
    assert targets.count(torch.ops.aten.rms_norm.default) == 2
