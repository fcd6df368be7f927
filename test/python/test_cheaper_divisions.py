# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Divisions by price: reduced dims, dims that end in a partial stick, and fewer cores than there are."""

from __future__ import annotations

import itertools
import sys
from pathlib import Path

import pytest
import torch

import spyre_mlir

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks import exhaustive
from benchmarks.programs import suite


def _us(function, shape, **options) -> float:
    return spyre_mlir.compile(function, (torch.empty(shape).half(),), **options).metrics()["predicted_us"]


@pytest.mark.parametrize(
    ("shape", "most_us"),
    [
        ((32, 131072), 57.91),
        ((32, 32768), 15.97),
        ((64, 1048576), 897.0),
        ((8, 100000), 12.7),
        ((8, 1000), 2.1),
    ],
)
def test_long_rows_are_divided_along_the_reduction(shape, most_us):
    """A slice of rows in each core repeats short runs; slices of columns stream whole bursts."""
    assert _us(lambda x: x.sum(-1), shape) <= most_us


def test_partial_results_are_sent_to_the_cores_that_need_them():
    """The maxima and sums of the rows of a softmax go to all cores over the ring."""
    assert _us(lambda x: torch.softmax(x, -1), (8, 128256)) <= 30.0


@pytest.mark.parametrize(
    ("function", "shape"),
    [
        (lambda x: (x * x).mean(-1), (32, 25600)),
        (lambda x: x.mean(-1), (32, 4096)),
        (torch.nn.functional.gelu, (4, 67, 130)),
        (lambda x: x.amax(-1), (128, 4096)),
    ],
    ids=["mean of squares", "mean", "gelu", "amax"],
)
def test_more_cores_are_not_slower(function, shape):
    """The number of cores is an upper bound."""
    times = [_us(function, shape, sencores=cores) for cores in (1, 4, 32)]
    assert all(more <= 1.001 * fewer for fewer, more in itertools.pairwise(times))


def test_two_cores_are_not_slower_where_runs_are_tiled_one_after_another():
    """The first run of a softmax gets other tiles if the second run then saves time, too."""
    one, two = (_us(lambda x: torch.softmax(x, -1), (8, 128256), sencores=cores) for cores in (1, 2))
    assert two <= one


def test_a_long_run_is_tiled_before_a_short_one_whose_transfers_it_saves():
    """On 4 cores a run of 2 of the 6 operations saves more time alone, but less among all 6."""
    model, inputs = suite().program("rms_norm", suite().FULL, weights=False)
    two, four = (
        spyre_mlir.compile(model, inputs, sencores=cores).metrics()["predicted_us"] for cores in (2, 4)
    )
    assert four <= two


def test_a_small_program_may_run_on_one_core():
    """Operations that read another part of a buffer need no copy on one core."""
    case = exhaustive.random_program(10)
    one, two, most = (_us(case.function, *case.shapes, sencores=cores) for cores in (1, 2, 32))
    assert most <= two <= one


@pytest.mark.parametrize(
    "function", [lambda x: x.sum(-1), lambda x: x.amax(-1), lambda x: x.amin(-1)], ids=["sum", "amax", "amin"]
)
def test_masked_dims_in_several_slices(function):
    """Only the core with the last slice reads padding, which the mask replaces."""
    x = torch.randn(8, 1001).half() + 2
    program = spyre_mlir.compile(function, (x,), verify_each=True)
    (design,) = program.bundle.designs.values()
    assert max(design.slices.values()) > 1 and design.masks
    torch.testing.assert_close(program(x), function(x.float()).half(), rtol=1e-3, atol=0)


@pytest.mark.parametrize("name", exhaustive.CHECKED)
def test_no_enumerated_plan_takes_less_time(name):
    """A few plans of each program; ``python -m benchmarks exhaustive`` prices more of them."""
    row, differing = exhaustive.priced(name, 8)
    assert row["ratio"] <= 1.05, differing


def test_random_programs_are_reproducible():
    """A seed names a program."""
    one, other = exhaustive.random_program(7), exhaustive.random_program(7)
    x = torch.randn(one.shapes[0])
    assert one.shapes == other.shapes
    assert torch.equal(one.function(x), other.function(x))
