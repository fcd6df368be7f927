# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``for_each_tile``: a loop over slices in eager mode, and a loop of the bundle with iter_args in LX if compiled."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from test_loop_fuzz import check
from torch import Tensor

import spyre_mlir
from spyre_mlir import CompileError, for_each_tile


def half(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape))).half()


def sums(x: Tensor, tile: int = 3) -> Any:
    """Return the carried values, a result of each tile, and a result that is None."""

    def body(carried: dict[str, Tensor], part: Tensor) -> Any:
        total = carried["sum"] + part.sum(0)
        return {"sum": total}, (part * 2, None, total[None])

    return for_each_tile(body, x, tile=tile, carried={"sum": torch.zeros(x.shape[1])})


def product(a: Tensor, b: Tensor) -> Tensor:
    """A product in tiles of rows; in each a loop over tiles of K, whose sum starts at zero again."""

    def rows(part: Tensor) -> Tensor:
        def add(total: Tensor, left: Tensor, right: Tensor) -> tuple[Tensor, None]:
            return total + (left @ right).float(), None

        total = torch.zeros(part.shape[0], b.shape[1])
        return for_each_tile(add, part, b, dim=(1, 0), tile=64, carried=total)[0].half()

    return for_each_tile(rows, a, tile=64)


def test_eager():
    """Tiles in order, the last one smaller, results put together."""
    x = torch.arange(14.0).reshape(7, 2)
    carried, (doubled, nothing, totals) = sums(x)
    assert nothing is None
    torch.testing.assert_close(carried["sum"], x.sum(0))
    torch.testing.assert_close(doubled, x * 2)
    torch.testing.assert_close(totals, torch.stack([x[:3].sum(0), x[:6].sum(0), x.sum(0)]))


def test_numbers_of_tiles_are_those_of_chunk():
    sizes = []
    for_each_tile(
        lambda part: sizes.append(part.shape[1]) or part, torch.zeros(2, 10), dim=1, tiles=4, out_dim=1
    )
    assert sizes == [chunk.shape[1] for chunk in torch.zeros(2, 10).chunk(4, 1)]


@pytest.mark.parametrize("rows", [128, 160])
def test_nested_loops_with_a_sum(rows):
    """Tiles of the result outside, tiles of the sum inside: the sum begins in each tile, and stays in LX."""
    program = check(product, [half(rows, 256), half(256, 128)], "product")
    assert len(program.steps) == 1
    # A smaller last tile is appended to the result of the loop, which is copied.
    copied = 0 if rows % 64 == 0 else rows // 64 * 64
    assert program.traffic().written_bytes <= (rows + copied + 32) * 128 * 2


def test_carried_tensor_is_in_lx():
    """Four layers of one loop: each weight is read once, and the iter_arg never leaves LX."""

    def layers(x: Tensor, w: Tensor) -> Tensor:
        return for_each_tile(lambda x, w: (torch.relu(x @ w[0]), None), w, tile=1, carried=x)[0]

    x, w = half(64, 128), half(4, 128, 128) * 0.1
    program = check(layers, [x, w], "layers")
    assert program.traffic().read_bytes == x.nbytes + w.nbytes
    assert program.traffic().written_bytes == x.nbytes


def test_what_the_device_refuses_is_unrolled():
    """The host computes only the cumulative sum of each step."""

    def model(x: Tensor) -> Tensor:
        return for_each_tile(lambda part: torch.exp(part.cumsum(1) * 0.1), x, tile=16)

    with pytest.warns(spyre_mlir.HostWorkWarning):
        program = check(model, [half(32, 64)], "cumsum")
    assert {type(step).__name__ for step in program.steps} == {"BundleStep", "HostStep"}


def test_dynamo():
    """Under torch.compile it is a scan, for any backend."""
    a, b = half(96, 128), half(128, 64)
    for backend in ("eager", spyre_mlir.torch_backend):
        torch._dynamo.reset()
        result = torch.compile(product, backend=backend)(a, b)
        torch.testing.assert_close(result, product(a, b), rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize(
    ("message", "call"),
    [
        ("either 'tile'", lambda x: for_each_tile(torch.exp, x)),
        ("at least one element", lambda x: for_each_tile(torch.exp, x, tile=0)),
        ("has 2 dims, no dim 2", lambda x: for_each_tile(torch.exp, x, tile=1, dim=2)),
        ("the numbers must be equal", lambda x: for_each_tile(torch.add, x, x[:2], tile=1)),
        ("returns a pair", lambda x: for_each_tile(lambda c, t: c, x, tile=1, carried=x)),
        ("which began as", lambda x: for_each_tile(lambda c, t: (t, None), x, tile=1, carried=x)),
        ("no dim 3 to concatenate", lambda x: for_each_tile(torch.exp, x, tile=1, out_dim=3)),
        ("for 1 result", lambda x: for_each_tile(torch.exp, x, tile=1, out_dim=(0, 1))),
    ],
)
def test_errors(message, call):
    with pytest.raises(CompileError, match=message):
        call(torch.zeros(4, 6))


def test_iterations_that_would_count_once():
    """An iteration is traced once: side effects and random numbers are refused."""

    def changes(x: Tensor) -> Tensor:
        total = torch.zeros(16, 64).half()

        def body(part: Tensor) -> Tensor:
            total.add_(part)
            return part + total

        return for_each_tile(body, x, tile=16)

    def draws(x: Tensor) -> Tensor:
        return for_each_tile(lambda part: part + torch.rand_like(part), x, tile=16)

    with pytest.raises(CompileError, match="changes a tensor from outside"):
        spyre_mlir.compile(changes, (half(32, 64),))
    with pytest.raises(CompileError, match="random numbers"):
        spyre_mlir.compile(draws, (half(32, 64),))


def test_experts():
    """Each expert's weights are read once, and the sum over the experts is in LX; the bound counts every iteration."""
    tokens, hidden, inner = 128, 256, 384
    x, gates = half(tokens, hidden), torch.rand(tokens, 4).softmax(-1).half()
    up, down = half(4, hidden, inner) * 0.06, half(4, inner, hidden) * 0.05

    def model(x: Tensor, gates: Tensor, up: Tensor, down: Tensor) -> Tensor:
        def expert(total: Tensor, gate: Tensor, up: Tensor, down: Tensor) -> tuple[Tensor, None]:
            return total + torch.relu(x @ up[0]) @ down[0] * gate[0][:, None], None

        return for_each_tile(expert, gates.T, up, down, tile=1, carried=torch.zeros_like(x))[0]

    program = check(model, [x, gates, up, down], "experts")
    weights = up.nbytes + down.nbytes
    assert weights <= program.traffic().read_bytes <= weights + 4 * (x.nbytes + gates.nbytes)
    bound = program.bound()
    assert bound is not None
    assert bound.read_bytes == weights + x.nbytes + gates.nbytes
    assert bound.multiply_adds == 4 * tokens * hidden * inner * 2


def test_plan():
    """The plan of a program with loops names the operations in them, and gives the same program."""
    inputs = half(160, 256), half(256, 128)
    plan = spyre_mlir.compile(product, inputs).plan()
    program = spyre_mlir.compile(product, inputs, plan=plan)
    assert program.plan() == plan
