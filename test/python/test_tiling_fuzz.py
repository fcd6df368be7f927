# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Every program under random legal tilings: the numbers equal PyTorch, and no check reports anything."""

from __future__ import annotations

import functools
import random
import zlib
from typing import Any

import pytest
from programs import PROGRAMS, check_close
from test_programs import imported
from tilings import hint_at_random, tile_at_random

import spyre_mlir
from spyre_mlir.bundle.validate import validate
from spyre_mlir.dialects import context
from spyre_mlir.mlir import ir
from spyre_mlir.pipelines import SpyrePipeline, run_pipeline

SEEDS = 4

#: Of the seeds every second one for each program, so that all are used.
IN_TURN = [(name, seed) for number, name in enumerate(PROGRAMS) for seed in range(number % 2, SEEDS, 2)]

#: A matmul with a vector has a result whose stick holds one element; hints take its rows to be in the stick.
NOT_BY_HINTS = ("matmul_vector",)


def hash_of(name: str, seed: int) -> int:
    """A seed of options that differs from program to program."""
    return zlib.crc32(f"{name} {seed}".encode())


@functools.cache
def text_of(name: str) -> str:
    """The linalg of a program, with its locations."""
    return imported(name)[2].module.operation.get_asm(enable_debug_info=True)


@functools.cache
def device_ops(name: str) -> str:
    """The program at level device-ops."""
    module = ir.Module.parse(text_of(name), context())
    run_pipeline(module, SpyrePipeline(sencores=32).pipeline("device-ops"))
    return module.operation.get_asm(enable_debug_info=True)


def tiled(name: str, seed: int, *, unrolled: bool = False) -> ir.Module | None:
    """Return a program of level device-ops with random tilings; None without a legal one."""
    module = ir.Module.parse(device_ops(name), context())
    with module.context:
        return module if tile_at_random(module, seed, unrolled=unrolled) else None


def hinted(name: str, seed: int) -> ir.Module | None:
    """Return a program of linalg with random hints; None without a legal one."""
    module, lowered = ir.Module.parse(text_of(name), context()), ir.Module.parse(device_ops(name), context())
    with module.context:
        return module if hint_at_random(module, lowered, seed) else None


def check(name: str, module: ir.Module, **options: Any) -> None:
    """Compile, validate and run; the results equal PyTorch, and the traffic equals the plan."""
    model, inputs, program = imported(name)
    made = spyre_mlir.compile(module, **options)
    assert not (findings := validate(made.bundle)), "\n".join(map(str, findings))
    operands = list(zip(program.arguments, program.operands(*inputs), strict=True))
    made.arrays.update({argument.name: array for argument, array in operands if argument.kind != "input"})
    results = made(*(array for argument, array in operands if argument.kind == "input"))
    check_close(
        name,
        program.bind(*inputs).finish(list(results) if isinstance(results, tuple) else [results]),
        model,
        inputs,
    )
    (plan,) = (
        each for each in made.remarks if (each.pass_name, each.kind) == ("scratchpad-planning", "plan")
    )
    moved = made.traffic()
    assert plan.after == moved.read_bytes + moved.written_bytes


def options_of(seed: int) -> dict[str, Any]:
    """On all cores or few, with room in LX for all, some or hardly any of it."""
    rng = random.Random(seed)
    return {
        "sencores": rng.choice((32, 32, 32, 7, 4, 1)),
        "lx_frac_avail": rng.choice((0.2, 0.2, 0.99, 0.999)),
        "verify_each": rng.random() < 0.3,
    }


@pytest.mark.sampled(16)
@pytest.mark.parametrize(("name", "seed"), IN_TURN)
def test_random_tilings(name, seed):
    """Up to three loops, over reduced dims too, around all operations or most of them."""
    module = tiled(name, seed)
    if module is None:
        pytest.skip("no dim can be cut into equal tiles of whole sticks")
    check(name, module, from_level="device-ops", **options_of(hash_of(name, seed)))


@pytest.mark.parametrize("name", list(PROGRAMS)[::4])
def test_random_unrolled_tilings(name):
    """Some of the loops are written iteration by iteration."""
    module = tiled(name, 9, unrolled=True)
    if module is None:
        pytest.skip("no dim can be cut into equal tiles of whole sticks")
    check(name, module, from_level="device-ops", **options_of(hash_of(name, 9)))


@pytest.mark.sampled(8)
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("name", [name for name in PROGRAMS if name not in NOT_BY_HINTS])
def test_random_hints(name, seed):
    """The whole way, from names of the dims of arguments and hints around operations of linalg."""
    module = hinted(name, seed)
    if module is None:
        pytest.skip("no dim of an argument can be cut into equal tiles of whole sticks")
    check(name, module, **options_of(hash_of(name, seed)))


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_clone_of_a_clone():
    """Both clones may be dropped; the seed is beyond the seeds of these tests."""
    module = hinted("llama_block_small", 200)
    assert module is not None
    check("llama_block_small", module, sencores=32, lx_frac_avail=0.999)


@pytest.mark.exhaustive
def test_there_are_enough_cases():
    """Few programs have nothing to tile."""
    names = list(PROGRAMS)[::8]
    assert sum(tiled(name, 0) is not None for name in names) >= 0.6 * len(names)
    assert sum(hinted(name, 0) is not None for name in names) >= 0.5 * len(names)
