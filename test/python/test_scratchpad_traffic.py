# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Bytes of device memory, counted by the simulator: the stages of softmax, and programs that reach the minimum."""

from __future__ import annotations

import functools

import numpy as np
import pytest
import torch
from programs import PROGRAMS

import spyre_mlir
from spyre_mlir.dialects import context
from spyre_mlir.frontend import import_torch

M, N, BYTES = 512, 1024, 2

#: The stages of "Scratchpad (LX) optimization", as options of the pipeline, and matrices and vectors moved.
STAGES = {
    "baseline": ({"lx_planning": False}, 8, 4),
    "reductions": (
        {"clone_inputs": False, "in_place": False, "lx_ops": ("maxnonstick", "sumnonstick")},
        8,
        0,
    ),
    "in place": ({"clone_inputs": False}, 3, 0),
    "clone": ({}, 2, 0),
}


@functools.cache
def imported(name: str):
    model, inputs = PROGRAMS[name]()
    program = import_torch(model, inputs, context=context())
    return program, dict(
        zip((each.name for each in program.arguments), program.operands(*inputs), strict=True)
    )


def compiled(name: str, **options) -> spyre_mlir.Program:
    """A program with its parameters and constants."""
    program, arrays = imported(name)
    made = spyre_mlir.compile(program.module, **options)
    made.arrays.update(arrays)
    return made


def traffic(program: spyre_mlir.Program) -> tuple[int, list[np.ndarray]]:
    """Bytes read and written, and the results."""
    results = program(*(program.arrays[each.name] for each in program.inputs))
    moved = program.traffic()
    return moved.read_bytes + moved.written_bytes, results if isinstance(results, list | tuple) else [results]


@pytest.mark.parametrize("cores", (1, 4, 32))
@pytest.mark.parametrize("stage", STAGES)
def test_stages_of_softmax(stage: str, cores: int):
    """512 x 1024 along dim 0: 8MN + 4N, 8MN, 3MN and 2MN elements.

    On 32 cores shuffles take the vectors to the cores that want them: what they copy may be in LX, so they may, too.
    """
    options, matrices, vectors = STAGES[stage]
    moved, results = traffic(compiled("softmax_dim_0_512x1024", sencores=cores, **options))
    assert moved == (matrices * M * N + vectors * N) * BYTES
    plain, expected = traffic(compiled("softmax_dim_0_512x1024", sencores=cores, lx_planning=False))
    assert all(np.array_equal(a, b) for a, b in zip(results, expected, strict=True))
    assert plain == (8 * M * N + 4 * N) * BYTES


@pytest.mark.parametrize("cores", (1, 4, 32))
@pytest.mark.parametrize(
    "name", ("softmax_dim_0_512x1024", "softmax_dim_last_512x1024", "layernorm", "rmsnorm")
)
def test_inputs_once_and_outputs_once(name: str, cores: int):
    """By default each argument is read once and each result written once, on any number of cores."""
    program = compiled(name, sencores=cores)
    moved, _ = traffic(program)
    assert moved == sum(each.bytes for each in program.bundle.manifest.arguments)


@pytest.mark.parametrize("name", ("swiglu_mlp", "sdpa", "llama_block_small", "softmax_dim_0_63x65"))
@pytest.mark.parametrize("cores", (1, 32))
def test_planned_traffic_is_what_is_moved(name: str, cores: int):
    """The figure of the plan's remark equals the simulator's, to the byte."""
    program = compiled(name, sencores=cores)
    (plan,) = [
        each for each in program.remarks if each.pass_name == "scratchpad-planning" and each.kind == "plan"
    ]
    moved, _ = traffic(program)
    assert moved == plan.after
    without, _ = traffic(compiled(name, sencores=cores, lx_planning=False))
    assert moved < without


def test_a_fan_of_readers_of_one_product():
    """An intermediate that many read is written and read on chip; only inputs and results move."""

    def fan(x):
        y = torch.exp(x)
        return y + x, y * x, y - x

    x = torch.randn(256, 512).half()
    program = spyre_mlir.compile(fan, (x,), sencores=32)
    program(x)
    assert program.traffic().read_bytes == x.numel() * 2
    assert program.traffic().written_bytes == 3 * x.numel() * 2
