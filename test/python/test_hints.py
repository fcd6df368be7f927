# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Names of dims and hints come from the source of a model to its linalg operations, however it is captured."""

from __future__ import annotations

import gc
import weakref
from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch
import torch.nn.functional as F
from hinted import (
    CAPTURES,
    SIZES,
    TOLERANCE,
    K,
    M,
    N,
    computing,
    half,
    hints,
    imported,
    kernel,
    kernel_in_one,
    kernel_inputs,
    kernel_of_view,
    named,
)
from torch import nn

import spyre_mlir
from spyre_mlir import clear_tensor_dims, declare_tensor_dim, name_tensor_dims, spyre_hint
from spyre_mlir.errors import CompileError
from spyre_mlir.frontend import Imported
from spyre_mlir.frontend.hints import names_of
from spyre_mlir.mlir import hint_values, ir, location_of
from spyre_mlir.passes.base import Pass


@pytest.fixture(params=CAPTURES)
def capture(request):
    """Each way from a model to MLIR."""
    return CAPTURES[request.param]


def argument_dims(program: Imported) -> dict[str, str]:
    attributes = [ir.DictAttr(entry) for entry in program.module.body.operations[0].arg_attrs]
    return {
        ir.StringAttr(entry["spyre.name"]).value: str(entry["sdsc.dims"])
        for entry in attributes
        if "sdsc.dims" in entry
    }


def dim_sizes(program: Imported) -> dict[str, int]:
    attributes = program.module.body.operations[0].attributes
    if "sdsc.dim_sizes" not in attributes:
        return {}
    return {
        entry.name: ir.IntegerAttr(entry.attr).value for entry in ir.DictAttr(attributes["sdsc.dim_sizes"])
    }


def test_nested_hints(capture):
    """Example 1: the product is in both hints, the sum in the outer one."""
    assert hints(capture(kernel, *kernel_inputs())) == [("matmul", (1, 2)), ("add", (1,))]


def test_a_hint_through_a_view(capture):
    """Example 2: one hint for all, with the dims in the order of the source."""
    program = capture(kernel_of_view, *kernel_inputs(is_flat=True))
    assert hints(program) == [("matmul", (1,)), ("add", (1,))]
    tiles = 'tiles = [{count = 8 : i64, dim = "M"}, {count = 4 : i64, dim = "K"}]'
    assert all(tiles in str(op.location) for op in computing(program))


@pytest.mark.parametrize("capturing", ["spyre_mlir.compile", "torch.compile"])
def test_names_of_inputs(capturing):
    """Inputs have their names, also of a flat tensor, and the function has the sizes of all dims."""
    program = CAPTURES[capturing](kernel_of_view, *kernel_inputs(is_flat=True))
    assert argument_dims(program) == {"x_1d": '["M", "K"]', "y": '["K", "N"]', "z": '["M", "N"]'}
    assert dim_sizes(program) == SIZES


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(64, 64)

    def forward(self, x):
        with spyre_hint(tiles={"rows": 2}):
            return torch.relu(self.linear(x))


class Layers(nn.Module):
    """A loop of layers with a hint each, and one around the loop."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([Layer(), Layer()])

    def forward(self, x):
        with spyre_hint(tiles={"rows": 4}):
            for layer in self.layers:
                x = torch.exp(layer(x))
        return torch.tanh(x)


def test_hints_in_submodules(capture):
    """Each layer in a loop has a separate hint, nested in the hint around the loop."""
    assert hints(capture(Layers().half(), half(8, 64))) == [
        ("linear", (1, 2)), ("relu", (1, 2)), ("exp", (1,)),
        ("linear", (1, 3)), ("relu", (1, 3)), ("exp", (1,)),
        ("tanh", ()),
    ]  # fmt: skip


def around_softmax(x):
    x = torch.exp(x)
    with spyre_hint(tiles={"rows": 2}):
        x = torch.softmax(x, -1)
    return torch.tanh(x)


def test_every_step_of_a_composite_operation_has_its_hints(capture):
    """Softmax is decomposed: its steps keep the hint, and its neighbours have none."""
    program = capture(around_softmax, half(8, 64))
    assert hints(program) == [("exp", ()), ("softmax", (1,)), ("tanh", ())]
    assert len([op for op in computing(program) if "id = 1" in str(op.location)]) > 3


COMPOSITE = {
    "layer_norm": (lambda x: F.layer_norm(x, (64,)), half(8, 64)),
    "silu": (F.silu, half(8, 64)),
    "softplus": (F.softplus, half(8, 64)),
    "linear": (lambda x: F.linear(x, x, x[:, 0]), half(64, 64)),
    "scaled_dot_product_attention": (lambda x: F.scaled_dot_product_attention(x, x, x), half(1, 2, 5, 64)),
    "masked attention": (
        lambda x: F.scaled_dot_product_attention(x, x, x, is_causal=True), half(1, 2, 5, 64)
    ),
    "folded constants": (lambda x: x + torch.arange(64).half() * 2, half(8, 64)),
    "a uniform constant": (lambda x: x * torch.full((64,), 0.5, dtype=torch.half), half(8, 64)),
}  # fmt: skip


@pytest.mark.parametrize("name", COMPOSITE)
def test_no_step_loses_its_hint(name):
    """All operations that the frontend makes of an operation have its hint."""
    function, x = COMPOSITE[name]

    def model(x):
        with spyre_hint(tiles={"rows": 2}):
            return function(x)

    assert {ids for _, ids in hints(imported(model, x))} == {(1,)}


def test_a_hint_ends(capture):
    """After an inner hint the outer one holds again, and operations between hints have none."""

    def model(x):
        with spyre_hint(tiles={"rows": 2}):
            x = torch.exp(x)
            with spyre_hint(tiles={"columns": 2}):
                x = torch.tanh(x)
            x = torch.relu(x)
        x = torch.abs(x)
        with spyre_hint(tiles={"rows": 2}):
            return torch.sigmoid(x)

    found = [("exp", (1,)), ("tanh", (1, 2)), ("relu", (1,)), ("abs", ()), ("sigmoid", (3,))]
    assert hints(capture(model, half(8, 64))) == found


def test_ids_do_not_depend_on_what_was_compiled_before():
    """The same model gives the same module, with locations, for any number of earlier hints."""
    inputs = kernel_inputs()
    first, second = (imported(kernel, *inputs).module for _ in range(2))
    assert first.operation.get_asm(enable_debug_info=True) == second.operation.get_asm(enable_debug_info=True)


def test_the_place_in_the_source_is_found_under_hints():
    """Diagnostics of an operation with hints point to its line, as without them."""
    (product, *_, addition) = computing(imported(kernel, *kernel_inputs()))
    line = kernel.__code__.co_firstlineno
    assert location_of(product.location) == f"{kernel.__code__.co_filename}:{line + 4}:0"
    assert location_of(addition.location) == f"{kernel.__code__.co_filename}:{line + 5}:0"


class Weighted(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(half(K, N))
        self.register_buffer("bias", half(M, N))

    def forward(self, x):
        return kernel_in_one(x, self.weight, self.bias)


def test_names_of_parameters_and_buffers(capture):
    """Names of parameters and buffers are on the arguments, however the parameter becomes an argument."""
    model, (x, _, _) = Weighted(), kernel_inputs()
    named(model.weight, "K", "N"), named(model.bias, "M", "N")
    dims = argument_dims(capture(model, x))
    assert sorted(dims.values()) == ['["K", "N"]', '["M", "K"]', '["M", "N"]']


def test_names_of_a_tensor_on_the_device():
    """An input that is on the device already carries its names."""
    declare_tensor_dim("M", 64)
    x = spyre_mlir.to_device(half(64).numpy())
    name_tensor_dims(x, ["M"])
    assert argument_dims(imported(nn.Sigmoid(), x)) == {"input": '["M"]'}


def test_no_names_no_sizes():
    """Declared dims that a model does not use leave no trace in it."""
    declare_tensor_dim("M", 64)
    program = imported(torch.exp, half(64))
    assert dim_sizes(program) == {} and argument_dims(program) == {}


def test_names_do_not_keep_tensors_alive():
    declare_tensor_dim("M", 64)
    x = named(half(64), "M")
    dead = weakref.ref(x)
    del x
    gc.collect()
    assert dead() is None


def test_names_belong_to_a_tensor_not_to_its_value():
    declare_tensor_dim("M", 64)
    x = named(half(64), "M")
    assert names_of(x) == ("M",) and names_of(x.clone()) == ()


def test_names_of_another_shape():
    """Only the number of elements counts: names may be more or fewer than dims."""
    kernel_inputs()
    assert names_of(named(half(M * K), "M", "K")) == ("M", "K")
    assert names_of(named(half(1, 8, 8), "M")) == ("M",)
    assert names_of(named(half(), *())) == ()


def test_a_dim_is_declared_twice():
    """A second declaration with the same size is valid."""
    declare_tensor_dim("M", 64)
    declare_tensor_dim("M", 64)
    with pytest.raises(CompileError, match="'M' is declared with size 64 already, so it cannot have size 32"):
        declare_tensor_dim("M", 32)


def test_dims_can_be_forgotten():
    """After that a dim may have another size, and no tensor has names."""
    declare_tensor_dim("M", 64)
    x = named(half(64), "M")
    clear_tensor_dims()
    declare_tensor_dim("M", 32)
    assert names_of(x) == ()


DECLARATIONS = {
    "zero": (("M", 0), "size of dim 'M' must be a positive integer, not 0"),
    "negative": (("M", -8), "size of dim 'M' must be a positive integer, not -8"),
    "no integer": (("M", 2.5), "size of dim 'M' must be a positive integer, not 2.5"),
    "a truth value": (("M", True), "size of dim 'M' must be a positive integer, not True"),
    "no text": ((3, 8), "The name of a dim is a text that is not empty, not 3"),
    "empty": (("", 8), "The name of a dim is a text that is not empty, not ''"),
}


@pytest.mark.parametrize("name", DECLARATIONS)
def test_declaration_error(name):
    given, message = DECLARATIONS[name]
    with pytest.raises(CompileError, match=message):
        declare_tensor_dim(*given)


NAMINGS = {
    "undeclared": (half(64), ["L"], "Dim 'L' is not declared; call declare_tensor_dim"),
    "no text": (half(64), [64], "Dim 64 is not declared"),
    "another size": (half(65), ["M"], r"The dims M = 64 do not make up a tensor of shape \[65\]"),
    "too few": (half(64, 256), ["M"], r"The dims M = 64 do not make up a tensor of shape \[64, 256\]"),
    "none": (half(64), [], r"The dims none do not make up a tensor of shape \[64\]"),
    "twice": (half(64, 64), ["M", "M"], "cannot have the dim 'M' twice"),
    "a text": (half(64), "M", "The names of dims are a list of texts, not 'M'"),
    "no tensor": (3, ["M"], "Only the dims of a tensor can be named, not the dims of an int"),
}


@pytest.mark.parametrize("name", NAMINGS)
def test_naming_error(name):
    tensor, names, message = NAMINGS[name]
    kernel_inputs()
    with pytest.raises(CompileError, match=message):
        name_tensor_dims(tensor, names)
    assert names_of(tensor) == ()


def named_inside(x):
    y = torch.exp(x)
    name_tensor_dims(y, ["M"])
    return y


def test_naming_inside_a_model():
    """Only inputs have names that are given: an error at the line of the call."""
    declare_tensor_dim("M", 64)
    with pytest.raises(CompileError, match="names the dims of inputs and parameters") as caught:
        imported(named_inside, half(64))
    assert caught.value.location == f"{__file__}:{named_inside.__code__.co_firstlineno + 2}"


@pytest.mark.parametrize("count", [0, -2, 2.0, True, "2"])
def test_number_of_tiles(count, capture):
    """A number of tiles is a positive integer: else an error at the line of an operation under the hint."""

    class Model(nn.Module):
        def forward(self, x):
            with spyre_hint(tiles={"M": count}):
                return torch.exp(x)

    with pytest.raises(CompileError, match="numbers of parts, which must be positive, not 'M': ") as caught:
        capture(Model(), half(8, 64))
    assert caught.value.location == f"{__file__}:{Model.forward.__code__.co_firstlineno + 2}"


@pytest.mark.parametrize("example", [kernel, kernel_in_one])
def test_hinted_program_runs(example):
    """Example 1 from PyTorch to numbers."""
    inputs = kernel_inputs()
    result = spyre_mlir.compile(example, inputs)(*inputs)
    torch.testing.assert_close(result, example(*inputs), rtol=TOLERANCE, atol=0)


def test_keywords_for_user_defined_passes_reach_every_level():
    """Any keyword is kept with tiles and slices, and the compiler says that it does not know the key."""

    class Scaled(nn.Module):
        def forward(self, x):
            with spyre_hint(owner="team a", level=2):
                y = torch.exp(x)
            return torch.tanh(y)

    seen = []
    reader = readers(seen)
    x = half(64, 64)
    program = spyre_mlir.compile(
        Scaled().half(), (x,), passes={level: [reader] for level in ("device-ops", "placed")}
    )
    values = {"owner": '"team a"', "level": "2 : i64"}
    assert [found for found in seen if found] and all(found == values for found in seen if found)
    reasons = [remark.reason for remark in program.remarks if remark.kind == "hint"]
    assert reasons == [
        f"the compiler does not know the key '{key}', which user-defined passes may read"
        for key in ("level", "owner")
    ]


def test_attributes_of_the_user_reach_every_level():
    text = """func.func @main(%x: tensor<64x64xf16>) -> tensor<64x64xf16> {
      %e = tensor.empty() : tensor<64x64xf16>
      %0 = linalg.exp {user.note = "mine"} ins(%x : tensor<64x64xf16>) outs(%e : tensor<64x64xf16>) -> tensor<64x64xf16>
      return %0 : tensor<64x64xf16>
    }"""
    seen = []
    spyre_mlir.compile(text, passes={"placed": [readers(seen)]})
    assert {"user.note": '"mine"'} in seen


def readers(seen):
    """A pass that keeps the values of hints of all operations."""

    @dataclass(frozen=True)
    class ReadHints(Pass):
        name: ClassVar[str] = "test-read-hints"

        def run(self, module: ir.Operation) -> None:
            def visit(op):
                seen.append({key: str(value) for key, value in hint_values(op.location).items()})
                return ir.WalkResult.ADVANCE

            module.walk(visit)

    return ReadHints()
