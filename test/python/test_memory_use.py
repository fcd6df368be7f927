# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The memory of a model by shapes, compared with compiled programs, and the smallest mesh that holds it."""

import pytest
import torch
from mesh_models import PROGRAMS
from torch import nn
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

import spyre_mlir
from spyre_mlir.driver.steps import BundleStep
from spyre_mlir.errors import CompileError


def weights_of(program):
    """Return the bytes of the weights in device memory, each weight once."""
    arguments = {
        argument.array_name: argument.bytes
        for step in program.steps
        if isinstance(step, BundleStep)
        for argument in step.bundle.manifest.arguments
        if argument.kind == "parameter"
    }
    return sum(arguments.values())


@pytest.mark.parametrize("cards", [1, 4])
@pytest.mark.parametrize("name", ["mlp", "attention"])
def test_weights_are_those_of_the_program(name, cards):
    """Within 1 %, and here exactly: the weights are whole sticks."""
    _, build, x = PROGRAMS[name]
    use = spyre_mlir.memory(build, (cards,), inputs=(x,))
    program = spyre_mlir.compile(build, (x,), mesh=(cards,))
    assert use.weights_bytes == pytest.approx(weights_of(program.ranks[0]), rel=0.01)
    assert use.bytes == use.weights_bytes + use.intermediates_bytes and use.fits


def test_buffers_are_caches_and_rows_are_whole_sticks():
    """A buffer of 3 rows of 100 numbers takes 3 x 2 sticks of 128 bytes."""
    model = nn.Linear(64, 64, bias=False).half()
    model.register_buffer("cache", torch.zeros(3, 100).half())
    assert spyre_mlir.memory(model).caches_bytes == 3 * 256
    assert spyre_mlir.memory(model).weights_bytes == 64 * 128


def test_intermediates_are_the_most_that_is_alive_at_once():
    """The input, and the results of two functions: views take nothing."""

    def build(mesh):
        return lambda x: torch.exp(torch.exp(x).t()) + 1

    assert (
        spyre_mlir.memory(build, (1,), inputs=(torch.zeros(64, 64).half(),)).intermediates_bytes == 3 * 8192
    )


class Large(nn.Module):
    """A layer with 200 GB of weights."""

    def __init__(self):
        super().__init__()
        self.up = nn.Linear(1 << 16, 800_000, bias=False)
        self.down = nn.Linear(800_000, 1 << 16, bias=False)

    def forward(self, x):
        return self.down(self.up(x))


def large(mesh):
    """Return the layer of one rank, without data."""
    with torch.device("meta"):
        model = Large().half()
    return parallelize_module(model, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})


def test_the_smallest_mesh_that_fits():
    """One card has 120 GB; the weights are divided by the number of cards."""
    one, chosen = spyre_mlir.memory(large, (1,)), spyre_mlir.memory(large)
    assert not one.fits and chosen.fits and chosen.mesh == (2,)
    assert chosen.weights_bytes == one.weights_bytes // 2
    assert "of a card" in str(chosen)


def test_a_program_that_one_card_does_not_hold_names_the_remedy():
    """The error of the compilation names the function that finds the mesh."""
    with torch.device("meta"):
        model = Large().half()
    with pytest.raises(CompileError, match=r"for several cards \(spyre_mlir.memory\)"):
        spyre_mlir.compile(model, (torch.zeros(1, 1 << 16).half(),))


def test_more_cards_that_do_not_help_are_an_error():
    """A model that is not divided needs as much on each card."""

    def build(mesh):
        with torch.device("meta"):
            return Large().half()

    with pytest.raises(CompileError, match="more cards need no less"):
        spyre_mlir.memory(build)


def test_a_model_has_one_card():
    """A mesh needs a function from the mesh to the model."""
    with pytest.raises(CompileError, match="a function from a device mesh to the model of one rank"):
        spyre_mlir.memory(nn.Linear(64, 64), (2,))
