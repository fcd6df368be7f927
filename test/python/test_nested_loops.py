# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Values of one iteration of an outer loop stay in LX, also where inner loops access slices of them."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from test_tiling_examples import named_dims

import spyre_mlir
from spyre_mlir import clear_tensor_dims, spyre_hint
from spyre_mlir.bundle.validate import validate

SQUARE = {"R": 256, "C": 512}


@dataclass(frozen=True)
class Nest:
    """A program with hints, the sizes and names of its dims, and the bytes that its loops have to move."""

    function: Callable
    sizes: dict[str, int]
    tensors: tuple[str, ...]
    least: int


def matmul_and_softmax(x, y):
    with spyre_hint(tiles={"M": 4}):
        with spyre_hint(tiles={"N": 4}):
            p = x @ y
        return torch.softmax(p, -1)


def normalised(x):
    with spyre_hint(tiles={"R": 4}):
        with spyre_hint(tiles={"C": 4}):
            e = torch.exp(x)
        return e / e.sum(-1, keepdim=True)


def feed_forward(x, w, v):
    with spyre_hint(tiles={"M": 4}):
        with spyre_hint(tiles={"N": 4}):
            h = torch.relu(x @ w)
        return h @ v


def read_in_slices(x, c):
    with spyre_hint(tiles={"R": 4}):
        e = torch.exp(x)
        with spyre_hint(tiles={"C": 4}):
            return torch.relu(e * c)


def two_inner_loops(x, c):
    with spyre_hint(tiles={"R": 4}):
        with spyre_hint(tiles={"C": 4}):
            e = torch.exp(x)
        s = e.sum(-1, keepdim=True)
        with spyre_hint(tiles={"C": 4}):
            return e / s * c


def returned_too(x):
    with spyre_hint(tiles={"R": 4}):
        with spyre_hint(tiles={"C": 4}):
            e = torch.exp(x)
        return e / e.sum(-1, keepdim=True), e


def many_slices(x):
    with spyre_hint(tiles={"R": 4}):
        with spyre_hint(tiles={"C": 128}):
            e = torch.exp(x)
        return e / e.sum(-1, keepdim=True)


KIB = 2**10
NESTS = {
    # x and the result once, and y in each of the four iterations over M.
    "matmul and softmax": Nest(
        matmul_and_softmax, {"M": 256, "K": 128, "N": 512}, ("MK", "KN"), (64 + 256 + 4 * 128) * KIB
    ),
    "exponentials over their sum": Nest(normalised, SQUARE, ("RC",), 2 * 256 * KIB),
    "smaller last tiles": Nest(normalised, {"R": 250, "C": 448}, ("RC",), 2 * 2 * 250 * 448),
    "feed forward": Nest(
        feed_forward,
        {"M": 256, "K": 128, "N": 512, "D": 128},
        ("MK", "KN", "ND"),
        (64 + 64 + 4 * 128 + 128) * KIB,  # w in each iteration over M, v once
    ),
    "read in slices": Nest(read_in_slices, SQUARE, ("RC", "RC"), 3 * 256 * KIB),
    "two inner loops": Nest(two_inner_loops, SQUARE, ("RC", "RC"), 3 * 256 * KIB),
    "returned, too": Nest(returned_too, SQUARE, ("RC",), 3 * 256 * KIB),
}


def compiled(case: Nest, **options: Any) -> tuple[spyre_mlir.Program, list[torch.Tensor]]:
    """A program and its inputs; no warning is due."""
    clear_tensor_dims()
    inputs = named_dims(case.sizes, *case.tensors)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        return spyre_mlir.compile(case.function, inputs, verify_each=True, **options), inputs


def check_run(case: Nest, program: spyre_mlir.Program, inputs: list[torch.Tensor]) -> int:
    """Rules and numbers; gives the bytes that the simulator counts."""
    assert not validate(program.bundle)
    results, expected = program(*inputs), case.function(*(each.double() for each in inputs))
    pairs = (
        ((results, expected),) if isinstance(results, torch.Tensor) else zip(results, expected, strict=True)
    )
    for result, exact in pairs:
        torch.testing.assert_close(result.double(), exact, rtol=2**-8, atol=float(exact.abs().max()) / 256)
    moved = program.traffic()
    return moved.read_bytes + moved.written_bytes


@pytest.mark.parametrize("name", NESTS)
def test_slices_of_an_outer_iteration_stay_in_lx(name):
    """The inner loop is unrolled, by price, and nothing that the outer iteration reads was in device memory."""
    program, inputs = compiled(NESTS[name])
    assert check_run(NESTS[name], program, inputs) == NESTS[name].least
    (remark,) = (each for each in program.remarks if each.pass_name == "unroll-tiles")
    assert remark.kind == "unrolled" and "in a loop" in remark.reason


def test_more_slices_than_are_unrolled():
    """Addresses in LX do not depend on loops, so such slices go through device memory; a remark has the cost."""
    case = Nest(many_slices, {"R": 64, "C": 8192}, ("RC",), 2 * 2**20)
    program, inputs = compiled(case)
    assert check_run(case, program, inputs) > case.least
    (remark,) = (each for each in program.remarks if each.pass_name == "unroll-tiles")
    assert (
        remark.kind == "not unrolled"
        and "130 operations, 128 copies of one" in remark.reason
        and " us" in remark.reason
    )
    spilled = [each.reason for each in program.remarks if each.kind == "spill"]
    assert any("'exp' writes a part that moves with a loop" in reason for reason in spilled)


def test_a_plan_file_pins_it():
    """The plan of a program gives the program again; without the word the loop is one."""
    case = NESTS["exponentials over their sum"]
    free, inputs = compiled(case)
    plan = free.plan()
    loops = [each["tiling"] for each in plan["operations"] if "tiling" in each]
    assert [loop.get("unrolled") for loop in loops[0]] == [None, True]
    again, _ = compiled(case, plan=plan)
    assert again.plan() == plan and again.bundle == free.bundle
    pinned = [
        {"name": each["name"], "tiling": [*each["tiling"]]} for each in plan["operations"] if "tiling" in each
    ]
    for loop in pinned[0]["tiling"]:
        loop.pop("unrolled", None)
    looped, _ = compiled(case, plan={"version": 1, "operations": pinned})
    assert check_run(case, looped, inputs) == 2 * case.least
