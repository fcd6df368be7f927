# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Operations that a library registers with PyTorch, inside compiled models, and models that call ``torch.vmap``."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._higher_order_ops.associative_scan import associative_scan
from torch.func import functional_call, stack_module_state, vmap

import spyre_mlir
from spyre_mlir.errors import UncapturedError

pytestmark = pytest.mark.filterwarnings(
    "ignore::spyre_mlir.HostWorkWarning", "ignore::spyre_mlir.FallbackWarning"
)

LIBRARY = torch.library.Library("spyre_tests", "DEF")
LIBRARY.define("negated(Tensor x) -> Tensor")
LIBRARY.impl("negated", lambda x: -x.clone(), "CompositeExplicitAutograd")
torch.library.register_fake("spyre_tests::negated", torch.empty_like, lib=LIBRARY)


@torch.library.custom_op("spyre_tests::rolled", mutates_args=())
def rolled(x: torch.Tensor, steps: int, factor: float = 1.0) -> tuple[torch.Tensor, torch.Tensor]:
    """Two results of different types."""
    return x.roll(steps) * factor, x.argmax(-1)


@rolled.register_fake
def _(x: torch.Tensor, steps: int, factor: float = 1.0) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.empty_like(x), x.new_empty(x.shape[:-1], dtype=torch.int64)


@torch.library.custom_op("spyre_tests::raised", mutates_args=())
def raised(tensors: list[torch.Tensor], bias: torch.Tensor | None = None) -> list[torch.Tensor]:
    """A list of operands, one that may be absent, and a list of results."""
    return [x + (1 if bias is None else bias) for x in tensors]


@raised.register_fake
def _(tensors: list[torch.Tensor], bias: torch.Tensor | None = None) -> list[torch.Tensor]:
    return list(map(torch.empty_like, tensors))


@torch.library.custom_op("spyre_tests::raised_in_place", mutates_args={"x"})
def raised_in_place(x: torch.Tensor) -> None:
    """An operation that writes to its operand."""
    x.add_(1)


def written(x: torch.Tensor) -> torch.Tensor:
    """A model whose operation writes to an intermediate tensor."""
    y = x * 2
    raised_in_place(y)
    return y + 1


X = torch.arange(8 * 64).reshape(8, 64).remainder(37).half()
MODELS = {
    "two results": lambda x: rolled(x * 2, 3),
    "one of two results": lambda x: rolled(x, 3, 0.5)[0] + 1,
    "lists": lambda x: [y * 2 for y in raised([x, x + 1])],
    "an optional operand": lambda x: raised([x], x * 2)[0],
    "torch.library.define": lambda x: torch.ops.spyre_tests.negated(x + 1) * 2,
}


def check_equal(results: Any, expected: Any) -> None:
    """Values, shapes and types are equal."""
    results, expected = map(torch.utils._pytree.tree_leaves, (results, expected))
    torch.testing.assert_close(results, expected, rtol=0, atol=0)


@pytest.mark.parametrize("name", MODELS)
def test_an_operation_of_a_library_runs_on_the_host(name: str) -> None:
    """One program: device operations around a host function that calls the operation."""
    program = spyre_mlir.compile(MODELS[name], (X,))
    assert isinstance(program, spyre_mlir.Program)
    check_equal(program(X), MODELS[name](X))


def test_an_operation_that_writes_is_refused_by_name() -> None:
    with pytest.raises(
        UncapturedError, match=r"spyre_tests\.raised_in_place\.default writes .* mutates_args=\(\)"
    ):
        spyre_mlir.compile(written, (X,))
    # On device tensors the graph runs operation by operation.
    check_equal(torch.compile(written)(X.to("spyre")).cpu(), written(X))


def test_a_file_does_not_call_an_operation_that_no_model_of_the_process_calls(tmp_path: Path) -> None:
    spyre_mlir.compile(MODELS["two results"], (X,)).save(tmp_path / "saved")
    code = "import sys, spyre_mlir, numpy; spyre_mlir.Program.load(sys.argv[1])(numpy.zeros((8, 64), numpy.float16))"
    run = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "saved")], capture_output=True, text=True, check=False
    )
    assert "'spyre_tests.rolled.default', which no model of this process calls; if you trust" in run.stderr


def scanned(decays: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """A linear recurrence along dim 1, in the generic form, which calls vmap."""

    def combined(left: Any, right: Any) -> Any:
        return left[0] * right[0], left[1] * right[0] + right[1]

    return associative_scan(combined, (decays, values), dim=1, combine_mode="generic")[1]


def changed(x: torch.Tensor) -> torch.Tensor:
    """An in-place write inside the mapped function."""
    y = x.clone()
    y[0] = 0
    return y.add_(1)


LAYERS = [torch.nn.Linear(64, 32).half() for _ in range(3)]
WEIGHTS, _ = stack_module_state(LAYERS)


def ensemble(x: torch.Tensor) -> torch.Tensor:
    """Three layers with stacked weights."""
    call = lambda weights, x: functional_call(LAYERS[0], weights, (x,))  # noqa: E731
    return vmap(call, in_dims=(0, None))(WEIGHTS, x)


MAPPED: dict[str, Callable[[torch.Tensor], Any]] = {
    "two levels": vmap(vmap(lambda row: row * row.sum())),
    "another dim": vmap(lambda x: (x + 1, x.sum(-1)), in_dims=1),
    "in parts": vmap(lambda x: x * 2, chunk_size=2),
    "in-place writes": vmap(changed),
    "an ensemble": lambda x: ensemble(x[0]),
    "a write to the argument": lambda x: vmap(lambda row: row * 2)(x.add_(1)),
}


@pytest.mark.parametrize("name", MAPPED)
def test_vmap_in_a_model(name: str) -> None:
    x = X.reshape(4, 2, 64) / 64
    program = spyre_mlir.compile(MAPPED[name], (x,))
    assert isinstance(program, spyre_mlir.Program)
    results, expected = (torch.utils._pytree.tree_leaves(call(x.clone())) for call in (program, MAPPED[name]))
    torch.testing.assert_close(results, expected, rtol=2**-8, atol=2**-8)


@pytest.mark.parametrize("length", [1, 2, 7, 8])
def test_an_associative_scan_in_the_generic_form(length: int) -> None:
    torch.manual_seed(length)
    decays, values = torch.rand(2, length, 64).half(), torch.randn(2, length, 64).half()
    state, rows = torch.zeros(2, 64), []
    for step in range(length):
        state = decays[:, step].float() * state + values[:, step].float()
        rows.append(state)
    result = spyre_mlir.compile(scanned, (decays, values))(decays, values)
    torch.testing.assert_close(result.float(), torch.stack(rows, 1), rtol=2**-7, atol=2**-7)
