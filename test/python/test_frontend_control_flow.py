# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Conditions of torch become straight lines of linalg, loops ``scf.for``; a loop over data is an error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from cpu_reference import CpuReference
from programs import Apply, error_bound
from torch import Tensor
from torch._higher_order_ops import scan, while_loop
from torch._higher_order_ops.map import map as map_rows

from spyre_mlir.errors import CompileError
from spyre_mlir.frontend import import_torch
from spyre_mlir.mlir import ir


def check(model: Callable, *inputs: Tensor) -> None:
    """Assert that the program, compiled for the first input, gives the results of the model for each input."""
    program = import_torch(model, inputs[:1], context=ir.Context())
    for x in inputs:
        call = program.bind(x)
        result = call.finish(CpuReference(program.module)(*call.operands()))
        torch.testing.assert_close(result, model(x))


def test_condition():
    """Both branches run, and one counts; several results, of different shapes."""

    def model(x):
        def positive(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
            return torch.nn.functional.silu(x) + y, x.sum(0)

        def negative(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
            return x / 0, x[0] * y[1]

        return torch.cond(x.sum() > 0, positive, negative, (x, x * 2))

    check(model, torch.rand(3, 4), -torch.rand(3, 4))


def test_condition_in_a_condition():
    def model(x):
        def inner(x: Tensor) -> Tensor:
            return torch.cond(x.sum() > 4, lambda y: y * 2, lambda y: y + 1, (x,))

        return torch.cond(x.sum() > 0, inner, lambda y: -y, (x,))

    check(model, torch.full((3,), 0.5), torch.full((3,), 2.0), torch.full((3,), -1.0))


def test_condition_whose_reference_ran_under_a_dispatch_mode():
    """A failed compilation by Dynamo, under a dispatch mode, does not prevent a later import."""

    def model(x):
        return torch.cond(x.sum() > 0, lambda y: y + 1, lambda y: y * 2, (x,))

    error_bound(Apply(model), (torch.rand(3),))
    check(model, torch.rand(3, 4), -torch.rand(3, 4))


def test_scan():
    """The carried tensor after the last step, and what every step gives, in rows."""

    def model(x):
        def step(carried: Any, row: Any) -> Any:
            total = carried["sum"] + row["x"]
            return {"sum": total}, total * row["scale"]

        rows = {"x": x, "scale": x[:, :1] * 3}
        return scan(step, {"sum": torch.zeros_like(x[0])}, rows)

    check(model, torch.rand(5, 4), torch.rand(5, 4))


def test_map():
    """The results are rows, one for each row; there are no iter_args."""
    check(lambda x: map_rows(lambda row, w: torch.tanh(row) * w, x, torch.full((4,), 2.0)), torch.rand(5, 4))


@pytest.mark.parametrize("trips", [1, 5])
def test_counted_while_loop(trips):
    """A loop whose condition depends on a counter alone: its numbers are known, in the loop and after it."""

    def model(x):
        def body(i: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
            return i + 3, y * 0.5 + i

        return while_loop(lambda i, y: i < 1 + 3 * trips, body, (torch.tensor(1), x))

    check(model, torch.rand(3, 4))


def test_loop_in_a_loop():
    def model(x):
        def inner(total: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
            return total + value, total * value

        def outer(total: Tensor, row: Tensor) -> tuple[Tensor, Tensor]:
            last, rows = scan(inner, total, row)
            return last * 0.5, rows + 1

        return scan(outer, torch.zeros(3), x)

    check(model, torch.rand(4, 5, 3), torch.rand(4, 5, 3))


def test_one_body():
    """A scan of many rows is a loop: the graph does not grow with it."""
    lines = []
    for rows in (4, 400):
        program = import_torch(
            lambda x: scan(lambda c, r: (c + r, c * r), torch.zeros(4), x),
            (torch.rand(rows, 4),),
            context=ir.Context(),
        )
        lines.append(str(program.module).count("\n"))
    assert lines[0] == lines[1]


def test_loop_that_draws_random_numbers():
    """Each step draws its own, so the steps are written out."""

    def model(x):
        return scan(lambda c, r: (c + r, torch.rand_like(r) + c), torch.zeros(4), x)

    program = import_torch(model, (torch.rand(3, 4),), context=ir.Context())
    assert sum(argument.draw is not None for argument in program.arguments) == 3


def test_loop_over_data():
    def model(x):
        return while_loop(lambda y: y.sum() < 3, lambda y: (y * 2,), (x,))

    with pytest.raises(CompileError, match="How often this loop runs depends on data"):
        import_torch(model, (torch.rand(3),), context=ir.Context())
