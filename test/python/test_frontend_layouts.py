# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""torch.ops.spyre.restickify and pin: one op each in linalg, where the model has them; PyTorch's numbers."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from cpu_reference import CpuReference
from random_programs import RandomProgram
from torch import nn
from torch.overrides import TorchFunctionMode

import spyre_mlir
from spyre_mlir.dialects import stick
from spyre_mlir.errors import CompileError
from spyre_mlir.frontend import Imported, import_torch
from spyre_mlir.layout import StickLayout
from spyre_mlir.mlir import ir, location_of
from spyre_mlir.target.target import default_target

spyre = torch.ops.spyre
#: A tensor of each rank from 1 to 4.
SHAPES = [(70,), (3, 70), (2, 3, 70), (2, 3, 5, 70)]


def imported(model, *inputs) -> Imported:
    return import_torch(model, inputs, context=ir.Context())


def requests(program: Imported) -> list[ir.Operation]:
    """The pins and restickifies of @main, in order."""
    ops = [op.operation for op in program.module.body.operations[0].regions[0].blocks[0].operations]
    return [op for op in ops if op.name.startswith("stick.")]


def layouts(program: Imported) -> list[tuple[str, StickLayout]]:
    return [(op.name, stick.requested_layout(op)) for op in requests(program)]


def on_the_cpu(program: Imported, *inputs: torch.Tensor):
    call = program.bind(*inputs)
    return call.finish(CpuReference(program.module)(*call.operands()))


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
@pytest.mark.parametrize("shape", SHAPES)
def test_both_come_out_with_the_layout_that_was_asked_for(shape, dtype):
    """On an input and on intermediates, for each stick dim and none; eager, compiled and PyTorch agree."""
    x, element = torch.randn(shape).to(dtype), {2: "f16", 4: "f32"}[dtype.itemsize]
    for dims in ([], *([dim] for dim in range(len(shape)))):

        def model(x, dims=dims):
            return spyre.restickify(spyre.pin(spyre.restickify(x, dims) * 2, [-1]), dims)

        program = imported(model, x)
        order = [*(dim for dim in range(len(shape)) if dim not in dims), *(dims or [-1])]
        asked = StickLayout.for_tensor(default_target(), shape, element, order)
        default = StickLayout.for_tensor(default_target(), shape, element)
        assert layouts(program) == [
            ("stick.restickify", asked), ("stick.pin", default), ("stick.restickify", asked)
        ]  # fmt: skip
        assert torch.equal(on_the_cpu(program, x), x * 2) and torch.equal(model(x), x * 2)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.bool, torch.int32, torch.int64])
def test_other_types(dtype):
    """The sticks are sticks of the device: 64 booleans or bfloat16, 32 integers."""
    program = imported(lambda x: spyre.pin(x.clone(), [0]), torch.ones(70, 3).to(dtype))
    ((_, layout),) = layouts(program)
    assert layout.digits[-1].modulus == (64 if dtype.itemsize < 4 else 32)


class Block(nn.Module):
    """Pins on a parameter, a buffer, an intermediate and new tensors; a restickify of a parameter's transpose."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(70, 130), nn.Linear(130, 70)
        self.register_buffer("offset", torch.arange(70.0) / 70)

    def forward(self, x):
        y = F.gelu(F.linear(x, spyre.pin(self.first.weight, [0], dim_order=[1, 0]), self.first.bias))
        y = spyre.pin(y, [1]) @ spyre.restickify(self.second.weight.T, [1])
        zeros = spyre.pin(torch.zeros(3, 70, dtype=x.dtype), [0])
        return y + zeros + spyre.pin(self.offset, []) + spyre.pin(torch.zeros(3, 70, dtype=x.dtype), [1])


def test_parameters_buffers_and_new_tensors():
    """None is folded away, not even on data; two equal new tensors keep their own layouts."""
    torch.manual_seed(0)
    model, x = Block().half(), torch.randn(3, 70).half()
    program = imported(model, x)
    assert [(name, layout.shape, layout.stick_dim) for name, layout in layouts(program)] == [
        ("stick.pin", (130, 70), 0),
        ("stick.pin", (3, 130), 1),
        ("stick.restickify", (130, 70), 1),
        ("stick.pin", (3, 70), 0),
        ("stick.pin", (70,), None),
        ("stick.pin", (3, 70), 1),
    ]
    assert layouts(program)[0][1].device_size == (3, 70, 64)
    assert (on_the_cpu(program, x) - model(x)).abs().max() < 0.01


def test_they_reach_the_device_and_change_no_number():
    """A pinned result has the requested layout on the device, and a restickified value is converted."""
    torch.manual_seed(0)
    model, x = Block().half(), torch.randn(3, 70).half()
    program = spyre_mlir.compile(model, (x,), verify_each=True)
    assert (program(x) - model(x)).abs().max() < 0.01
    program = spyre_mlir.compile(lambda x: spyre.pin(torch.exp(x), [0]), (x,))
    (result,) = (each for each in program.bundle.manifest.arguments if each.kind == "result")
    assert result.device_size == (1, 70, 64)
    assert (program(x) - torch.exp(x)).abs().max() < 0.01


def test_an_island_that_becomes_fp16():
    """Pins of f32 values that run as fp16 have its sticks."""

    def model(x):
        return (spyre.pin(x.float().exp(), [0]) * 0.5).half()

    x = torch.randn(70, 70).half()
    program = spyre_mlir.compile(model, (x,), verify_each=True)
    assert (program(x) - model(x)).abs().max() < 0.02


def test_locations_are_those_of_the_model():
    def model(x):
        y = x + 1
        return spyre.restickify(y, [0])

    (op,) = requests(imported(model, torch.randn(3, 70).half()))
    assert location_of(op.location) == f"{__file__}:{model.__code__.co_firstlineno + 2}:0"


REFUSED: dict[str, tuple[Callable, str]] = {
    "a dim too far": (lambda x: spyre.restickify(x, [2]), "The layout of 'x' has the stick dim 2"),
    "a dim twice": (lambda x: spyre.pin(x + 1, [1, 1]), "The layout of 'add' has the stick_dims [1, 1]"),
    "a bad order": (lambda x: spyre.pin(x, [0], dim_order=[0]), "must name each of the 2 dims once"),
    "contradiction": (lambda x: spyre.pin(x, [0], [0, 1]), "but its dim_order is [0, 1]"),
    "no such type": (lambda x: spyre.pin(x.to(torch.int16), [0]), "the device does not support i16"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refusals_are_at_the_line_of_the_model(case):
    model, words = REFUSED[case]
    with pytest.raises(CompileError) as raised:
        imported(model, torch.randn(3, 70).half())
    assert words in raised.value.message
    assert raised.value.location == f"{__file__}:{model.__code__.co_firstlineno}"


def test_eager_models_need_only_the_import():
    """Eager models work in a fresh process; results are separate tensors, as PyTorch requires of operators."""
    code = (
        "import torch, spyre_mlir.frontend\nx = torch.ones(3)\n"
        "y = torch.ops.spyre.restickify(torch.ops.spyre.pin(x, [0]), [])\n"
        "print(torch.equal(x, y), x.data_ptr() == y.data_ptr())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "False"]


class Restickifying(TorchFunctionMode):
    """Restickifies the results of every other operation to a random dim."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.rng = random.Random(seed)

    def __torch_function__(self, func, types, args=(), kwargs=None):
        made = func(*args, **(kwargs or {}))
        if not isinstance(made, torch.Tensor) or made.ndim == 0 or self.rng.random() < 0.5:
            return made
        return spyre.restickify(made, [self.rng.randrange(made.ndim)])


@pytest.mark.parametrize("seed", range(20))
def test_random_programs_with_random_restickifies_are_exact(seed):
    """Between pointwise ops, reductions, matmuls, reshapes and concatenations, in programs of exact numbers."""
    plain = RandomProgram(seed)

    class Restickified(nn.Module):
        def forward(self, *inputs):
            with Restickifying(seed):
                return plain(*inputs)

    program = spyre_mlir.compile(Restickified(), tuple(plain.inputs), sencores=4)
    with torch.no_grad():
        expected = plain(*(x.double() for x in plain.inputs))
    for result, exact in zip(program(*plain.inputs), expected, strict=True):
        assert torch.equal(result.double(), exact), "\n".join(plain.text)
