# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""User-defined layouts of the arguments of a program, by name, by index, by a tensor on the device."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pytest
import torch
from random_programs import RandomProgram
from torch import nn

import spyre_mlir
from spyre_mlir import CompileError, Program, to_device
from spyre_mlir.bundle.validate import validate
from spyre_mlir.dialects import context
from spyre_mlir.driver.argument_layouts import set_layouts
from spyre_mlir.layout.requests import LayoutRequest
from spyre_mlir.mlir import ir
from spyre_mlir.target.target import default_target

T, S = "tensor<64x128xf16>", "tensor<32x128xf16>"
#: A slice, a reshape and a concat of the arguments, whose types upstream's ops are particular about.
VIEWS = f"""func.func @main(%x: {T}, %y: {T}) -> (tensor<64x128xf16>, tensor<128x128xf16>) {{
  %a = tensor.extract_slice %x[32, 0] [32, 128] [1, 1] : {T} to {S}
  %b = tensor.extract_slice %y[0, 0] [32, 128] [1, 1] : {T} to {S}
  %c = tensor.concat dim(0) %a, %b : ({S}, {S}) -> {T}
  %d = tensor.concat dim(0) %x, %y : ({T}, {T}) -> tensor<128x128xf16>
  return %c, %d : {T}, tensor<128x128xf16>
}}"""
X = (np.arange(64 * 128) % 2039).reshape(64, 128).astype(np.float16)


def half(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0)).half()


def sizes(program: Program) -> dict[str, tuple[int, ...]]:
    """The device size of each argument that is given."""
    arguments = program.bundle.manifest.arguments
    return {each.name: each.device_size for each in arguments if each.kind in ("input", "parameter")}


def test_by_name_and_by_position():
    """Layouts of a .mlir program; the numbers do not change."""
    program = spyre_mlir.compile(VIEWS, layouts={0: {"stick_dims": [0]}, "arg1": {"dim_order": [1, 0]}})
    assert sizes(program) == {"arg0": (1, 128, 64), "arg1": (1, 128, 64)}
    first, second = program(X, 2 * X)
    np.testing.assert_array_equal(first, np.concatenate((X[32:], 2 * X[:32])))
    np.testing.assert_array_equal(second, np.concatenate((X, 2 * X)))


def test_parameters_of_a_model():
    """The layout of a weight, by name; the numbers equal the model."""
    model, x = nn.Linear(64, 192).half(), half(33, 64)
    program = spyre_mlir.compile(model, (x,), layouts={"weight": {"stick_dims": [0]}})
    assert sizes(program)["weight"] == (3, 64, 64)
    assert (program(x) - model(x)).abs().max() < 0.01


@pytest.mark.parametrize("given", [{"stick_dims": [0]}, {"stick_dims": []}, {"dim_order": [1, 0, 2]}])
def test_a_tensor_on_the_device_is_taken_as_it_lies(given):
    """Among the example inputs, nested too, it sets the layout; in a call it must have it."""
    x = half(2, 33, 70)
    program = spyre_mlir.compile(lambda p: p["a"] + p["b"][0], ({"a": to_device(x, **given), "b": (x,)},))
    assert program.bundle.manifest.arguments[0].device_size == to_device(x, **given).layout.device_size
    for a in (x, to_device(x, **given)):
        assert torch.equal(program({"a": a, "b": (x,)}), x + x)


def test_a_tensor_on_the_device_for_a_program_of_mlir():
    x = to_device(X, stick_dims=[0])
    program = spyre_mlir.compile(VIEWS, (x, X))
    assert sizes(program) == {"arg0": (1, 128, 64), "arg1": (2, 64, 64)}
    np.testing.assert_array_equal(program(x, X)[1], np.concatenate((X, X)))


def test_encodings_of_the_text_are_replaced():
    """The caller of compile has the last word."""
    sparse = "affine_map<(d0, d1) -> (d1, d0, 0)>"
    text = VIEWS.replace(f"%x: {T}", "%p: tensor<64x128xf16, #stick.layout<#s>>").replace(
        "  %a =", f"  %x = tensor.cast %p : tensor<64x128xf16, #stick.layout<#s>> to {T}\n  %a ="
    )
    text = f"#s = {sparse}\n{text}"
    assert sizes(spyre_mlir.compile(text))["arg0"] == (128, 64, 64)
    assert sizes(spyre_mlir.compile(text, layouts={0: {}}))["arg0"] == (2, 64, 64)


def test_types_of_arguments_have_the_encoding():
    """Only the type of the argument has the encoding; the types of its readers do not change."""
    module = ir.Module.parse(VIEWS, context())
    set_layouts(module, default_target(), {"arg0": LayoutRequest((0,))})
    assert module.operation.verify()
    text = str(module)
    assert text.count("#stick.layout") == 2  # in the signature and in the cast
    assert "tensor.cast %arg0 : tensor<64x128xf16, #stick.layout<#map>> to tensor<64x128xf16>" in text


@pytest.mark.parametrize("seed", range(25))
def test_random_programs_with_random_layouts_are_exact(seed):
    """Every order of dims of every input, both defaults; the numbers are exact, so a lost element shows."""
    rng, model = random.Random(seed), RandomProgram(seed)
    inputs = [
        to_device(x, dim_order=rng.sample(range(x.ndim), x.ndim), stick_outermost=rng.random() < 0.3)
        for x in model.inputs
    ]
    program = spyre_mlir.compile(model, inputs, sencores=4)
    assert not [finding for step in program.bundles for finding in validate(step.bundle)]
    with torch.no_grad():
        expected = model(*(x.double() for x in model.inputs))
    for result, exact in zip(program(*inputs), expected, strict=True):
        assert torch.equal(result.double(), exact), "\n".join(model.text)


# -- refusals -----------------------------------------------------------------------------------------


def compiled(**options) -> Callable:
    return lambda: spyre_mlir.compile(VIEWS, **options)


REFUSED = {
    "an unknown name": (compiled(layouts={"w": {}}), "There is no argument 'w' to lay out; the arguments are arg0"),
    "a position too far": (compiled(layouts={2: {}}), "There is no input 2 to lay out; the program has 2 inputs"),
    "bad dims": (compiled(layouts={"arg1": {"stick_dims": [2]}}), "The layout of 'arg1' has the stick dim 2"),
    "no mapping": (compiled(layouts={1: 3}), "The layout of input 1 is a mapping"),
    "twice": (compiled(layouts={0: {}, "arg0": {}}), "The layout of 'arg0' is given twice"),
    "also on the device": (
        compiled(inputs=(to_device(X),), layouts={"arg0": {}}),
        "The layout of 'arg0' is given twice",
    ),
    "another shape": (
        compiled(layouts={0: to_device(X[:3])}),
        "The layout given for 'arg0' is one of [3, 128] f16, but the tensor is [64, 128] f16",
    ),
    "no tensor": (
        lambda: spyre_mlir.compile("func.func @main(%x: f32) {\n  return\n}", layouts={0: {}}),
        "The argument 'arg0' must be a tensor of static shape, not f32",
    ),
    "no function": (lambda: spyre_mlir.compile("module {}", layouts={0: {}}), "this module has 0"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_refusals(case):
    action, words = REFUSED[case]
    with pytest.raises(CompileError) as raised:
        action()
    assert words in raised.value.message


def test_a_call_with_another_layout_names_both():
    program = spyre_mlir.compile(VIEWS, layouts={0: {"stick_dims": [0]}})
    with pytest.raises(CompileError) as raised:
        program(to_device(X), X)
    assert raised.value.message == (
        "The input 'arg0' has device size [2, 64, 64] with host strides [64, 128, 1], but the program accepts device "
        "size [1, 128, 64] with host strides [8192, 1, 128]; convert the input with Program.to_device, or compile with "
        "tensors in this layout."
    )


def test_a_call_with_another_shape_or_type():
    program = spyre_mlir.compile(VIEWS)
    for given in (to_device(X[:3]), to_device(X, dtype="float32")):
        with pytest.raises(CompileError, match="tensor 'arg0': the array"):
            program(given, X)
