# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Programs that exceed LX, with spills and reloads and in other orders: the numbers, and the savings."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from programs import Apply
from random_programs import RandomProgram

import spyre_mlir
from spyre_mlir.analysis.aliasing import AliasAnalysis, functions
from spyre_mlir.dialects import context
from spyre_mlir.frontend import import_torch
from spyre_mlir.passes.reorder_operations import Task, reorder, tasks_of
from spyre_mlir.pipelines import SpyrePipeline, run_pipeline

#: Of 2 MiB of LX the passes may use the rest without the backend's part: 31,744, 27,776, 23,808 and 7,936 bytes.
KIB_32, KIB_28, KIB_24, KIB_8 = (1 - kib / 2048 for kib in (32, 28, 24, 8))


def late(x, weight):
    """The first value is needed again at the end; between its uses the products of a matmul fill LX."""
    first = torch.exp(x * 0.1)
    inner = torch.relu(weight @ (torch.abs(first) + 1))
    gate = torch.tanh(inner)
    mixed = (gate + inner * gate + inner) * inner
    return first * (weight.transpose(0, 1) @ mixed) + first


def wide(x, _):
    """Four branches, all of their first operations first."""
    made = [torch.exp(x * (0.1 * scale)) for scale in range(1, 5)]
    mixed = [each * torch.abs(each) for each in made]
    sums = [torch.sum(each, -1) for each in mixed]
    return sums[0] + sums[1] + sums[2] + sums[3]


def inputs() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return (
        torch.randn(64, 64, generator=generator).half(),
        torch.randn(192, 64, generator=generator).half() / 8,
    )


def moved_bytes(function, lx_frac_avail: float, **options: Any) -> int:
    """Return the bytes that a run of the bundle moves, after a check that its numbers equal PyTorch."""
    program = spyre_mlir.compile(
        Apply(function).half(), inputs(), sencores=1, lx_frac_avail=lx_frac_avail, verify_each=True, **options
    )
    exact = function(*(each.float() for each in inputs()))
    assert (program(*inputs()).float() - exact).abs().max() < 0.01 * exact.abs().max()
    traffic = program.traffic()
    return traffic.read_bytes + traffic.written_bytes


@pytest.mark.parametrize("lx_frac_avail", [KIB_32, KIB_28])
def test_a_buffer_that_leaves_and_comes_back(lx_frac_avail):
    """A reload has less traffic than a buffer in device memory or a buffer in LX all the time."""
    assert moved_bytes(late, lx_frac_avail, moves=True) < moved_bytes(late, lx_frac_avail, moves=False)


def test_branches_in_another_order():
    """One branch after the other: each keeps its values in LX."""
    assert 2 * moved_bytes(wide, KIB_32, reorder=True) < moved_bytes(wide, KIB_32, reorder=False)


def compiled(model, given, cores: int, changes: bool):
    return spyre_mlir.compile(
        model, given, sencores=cores, lx_frac_avail=KIB_24 if cores == 1 else KIB_8, verify_each=True,
        moves=changes, reorder=changes,
    )  # fmt: skip


@pytest.mark.parametrize("seed", (18, 38))
@pytest.mark.parametrize("cores", (1, 4))
def test_random_programs_move_no_more(seed, cores):
    """Exact numbers with both passes, and never more traffic than without them."""
    model = RandomProgram(seed)
    given = tuple(model.inputs)
    moved = []
    for changes in (False, True):
        program = compiled(model, given, cores, changes)
        results = program(*given)
        for result, exact in zip(results, model(*(each.double() for each in given)), strict=True):
            assert torch.equal(result.double(), exact)
        traffic = program.traffic()
        moved.append(traffic.read_bytes + traffic.written_bytes)
    assert moved[1] <= moved[0]


@pytest.mark.parametrize("seed", (0, 5, 10, 21, 26, 29, 35, 38))
def test_any_legal_order_computes_the_same(seed):
    """A random program with its operations in a random order that obeys all that is said to come before what.

    In most of these buffers are put together from parts: def-use alone would not do.
    """
    model = RandomProgram(seed)
    imported = import_torch(model, tuple(model.inputs), context=context())
    module = imported.module
    assert module is not None
    run_pipeline(module, SpyrePipeline(sencores=4).pipeline("divided"))
    (func,) = functions(module.operation)
    reorder(func, shuffled(tasks_of(AliasAnalysis(func)), random.Random(seed)))
    program = spyre_mlir.compile(module, from_level="divided", sencores=4, verify_each=True)
    results = program(*(each.numpy() for each in model.inputs))
    returned = imported.bind(*model.inputs).finish(_all(results))
    for result, exact in zip(returned, model(*(each.double() for each in model.inputs)), strict=True):
        assert torch.equal(result.double(), exact)


def shuffled(tasks: Sequence[Task], rng: random.Random) -> list[int]:
    """Return a random order in which each task is after its predecessors."""
    order: list[int] = []
    while len(order) < len(tasks):
        done = set(order)
        eligible = [at for at, task in enumerate(tasks) if at not in done and done.issuperset(task.after)]
        order.append(rng.choice(eligible))
    return order


def _all(results):
    return results if isinstance(results, tuple) else (results,)
