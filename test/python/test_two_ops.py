# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Every device operation followed by a pointwise or reducing one: with LX planning and without, on 1 and 32 cores.

Results are compared bit by bit. Only where the cores share a sum in another way, so that it is added up in another
order, a result may differ by the floor of the rule of test_programs, a thousandth of its largest value, or a
millionth in fp32.
"""

from __future__ import annotations

import numpy as np
import pytest
from programs import FLOOR, check_close
from two_ops import (
    NAMES,
    OPERATIONS,
    VIEWED,
    Executed,
    executed,
    least_bytes,
    producers,
    program,
    sums_of,
    viewed,
)

from spyre_mlir.bundle.validate import validate
from spyre_mlir.target.ops import DEVICE_OPS

CORES = (1, 32)
#: One program of each kind and some mixed ones, for a number of cores that divides few sizes evenly.
SEVEN = (
    "add", "layernormscale", "dl16tofp32", "sum", "maxnonstick", "prod", "batchmatmul", "ReStickifyOpHBM", "clone",
    "some columns", "heads", "matmul of products", "layer norm",
)  # fmt: skip
RUNS = [*((name, cores) for name in NAMES for cores in CORES), *((name, 7) for name in SEVEN)]


def is_added_alike(one: Executed, other: Executed, number: int) -> bool:
    """Return whether both programs add up a result in the same order."""
    return sums_of(one.bundle, number) == sums_of(other.bundle, number)


def check_same(name: str, one: Executed, other: Executed) -> None:
    """The results are equal, to the bit unless a sum is shared in another way."""
    for number, chain in enumerate(program(name).chains):
        result, expected = one.results[number], other.results[number]
        if is_added_alike(one, other, number):
            assert result.tobytes() == expected.tobytes(), chain
            continue
        floor = 1e-6 if expected.dtype == np.float32 else FLOOR
        error = np.abs(result.astype(np.float64) - expected.astype(np.float64)).max()
        assert error <= floor * np.abs(expected.astype(np.float64)).max(), chain


@pytest.mark.sampled(16)
@pytest.mark.parametrize(("name", "cores"), RUNS)
def test_the_numbers_are_those_without_lx(name, cores):
    """Numbers do not depend on the memory of a buffer."""
    check_same(name, executed(name, cores, True), executed(name, cores, False))


@pytest.mark.parametrize("name", NAMES)
def test_the_numbers_are_those_of_one_core(name):
    """Values of 32 cores in LX are slices of the values of one core."""
    check_same(name, executed(name, 32, True), executed(name, 1, True))


@pytest.mark.parametrize("cores", CORES)
@pytest.mark.parametrize("name", VIEWED)
def test_the_numbers_are_those_of_pytorch(name, cores):
    """Within four times the error that PyTorch itself makes in fp16."""
    check_close(name, executed(name, cores, True).results, *viewed(name))


@pytest.mark.sampled(16)
@pytest.mark.parametrize(("name", "cores"), RUNS)
def test_no_rule_of_a_bundle_is_broken(name, cores):
    """Both plans are valid."""
    for lx_planning in (True, False):
        findings = validate(executed(name, cores, lx_planning).bundle)
        assert not findings, "\n".join(map(str, findings))


@pytest.mark.sampled(16)
@pytest.mark.parametrize(("name", "cores"), RUNS)
def test_lx_moves_what_the_plan_says_and_never_more(name, cores):
    """The plan's figure is the simulator's, to the byte, between the arguments once and no planning at all."""
    made = executed(name, cores, True)
    (plan,) = (
        each for each in made.remarks if each.pass_name == "scratchpad-planning" and each.kind == "plan"
    )
    assert made.moved_bytes == plan.after
    assert least_bytes(made.bundle) <= made.moved_bytes <= executed(name, cores, False).moved_bytes


@pytest.mark.sampled(16)
@pytest.mark.parametrize("name", OPERATIONS)
def test_the_operation_of_a_program_is_a_producer(name):
    """The result of each is read by another operation, with LX planning."""
    operation, _ = OPERATIONS[name]
    assert operation.name in producers(executed(name, 1, True).bundle)


def test_there_is_a_program_of_every_device_operation():
    """Operations that no program names are exceptions."""
    named = {operation.name for operation, _ in OPERATIONS.values()}
    others = {"shuffle", "batchmatmulint8", "batchmatmulfp8", "qfp8ch", "csqint8ch", "fp8todl16"}
    assert named == {*DEVICE_OPS} - others


@pytest.mark.exhaustive
def test_most_results_are_compared_bit_by_bit():
    """Other results have a sum that cores share differently."""
    alike = [
        is_added_alike(executed(name, 32, True), executed(name, 32, False), number)
        for name in ("sum", "batchmatmul", "layernormscale", "add", "layer norm", "heads")
        for number in range(len(program(name).chains))
    ]
    assert 0 < alike.count(False) < len(alike) / 3
