# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""State of Python that a model changes: each call does as PyTorch's, and compiling leaves everything as it was."""

from __future__ import annotations

import copy
import dataclasses
import warnings
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import spyre_mlir
from spyre_mlir import CompileError
from spyre_mlir.driver.program import Program
from spyre_mlir.frontend.piecewise import PiecewiseProgram

X = torch.arange(128.0).reshape(2, 64).half() / 64


class Model(nn.Module):
    """A model with state of several kinds; ``step`` is the body of a call."""

    def __init__(self, step: Callable[[Model, Tensor], Any]) -> None:
        super().__init__()
        self.step, self.n, self.seen, self.names = step, 0, [], {"n": 0}
        self.inner = Inner()
        self.plain: Tensor | None = None

    def forward(self, x: Tensor) -> Any:
        return self.step(self, x)


class Inner:
    """State outside of modules, in slots."""

    __slots__ = ("count", "last")

    def __init__(self) -> None:
        self.count = 0
        self.last: Tensor | None = None


class Shared:
    """State of a class."""

    count = 0


TOTAL = 0
TOTALS = {"calls": 0}


def attribute(self: Model, x: Tensor) -> Tensor:
    self.n += 1
    return x * self.n


def item(self: Model, x: Tensor) -> Tensor:
    self.names["n"] += 2
    return x + self.names["n"]


def slot(self: Model, x: Tensor) -> Tensor:
    self.inner.count += 1
    return x - self.inner.count


def kept_tensor(self: Model, x: Tensor) -> Tensor:
    result = x if self.inner.last is None else x + self.inner.last
    self.inner.last = result
    return result * 2


def appended(self: Model, x: Tensor) -> Tensor:
    self.seen.append(x * 2)
    return sum(self.seen[1:], self.seen[0])


def plain_tensor(self: Model, x: Tensor) -> Tensor:
    self.plain = x * 3 if self.plain is None else self.plain * 2
    return self.plain + 0


def of_a_class(self: Model, x: Tensor) -> Tensor:
    Shared.count += 1
    return x * Shared.count


def of_the_globals(self: Model, x: Tensor) -> Tensor:
    global TOTAL
    TOTAL += 1
    TOTALS["calls"] += 1
    return x * TOTAL + TOTALS["calls"]


def toggled(self: Model, x: Tensor) -> Tensor:
    self.n = 1 - self.n
    return x if self.n else -x


CHANGES = [attribute, item, slot, kept_tensor, appended, plain_tensor, of_a_class, of_the_globals, toggled]


def state_of(model: Model) -> Any:
    inner = model.inner
    return [
        model.n,
        model.seen,
        model.names,
        inner.count,
        inner.last,
        model.plain,
        Shared.count,
        TOTAL,
        dict(TOTALS),
    ]


def reset() -> None:
    global TOTAL
    Shared.count = TOTAL = 0
    TOTALS["calls"] = 0


def equal(one: Any, other: Any) -> bool:
    if isinstance(one, Tensor):
        return type(one) is Tensor and torch.allclose(one, other, rtol=0, atol=0.02)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(equal, one, other))
    return type(one) is type(other) and one == other


def compiled(model: Any, *inputs: Any, **options: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return spyre_mlir.compile(model, inputs, sencores=2, **options)


@pytest.mark.parametrize("step", CHANGES, ids=lambda step: step.__name__)
def test_calls_change_what_pytorch_changes(step):
    reset()
    model, eager = Model(step), Model(step)
    before = copy.deepcopy(state_of(model))
    program = compiled(model, X)
    assert isinstance(program, PiecewiseProgram)
    assert equal(state_of(model), before)
    results = [program(X) for _ in range(3)]
    after = copy.deepcopy(state_of(model))
    reset()
    expected = [eager(X) for _ in range(3)]
    assert equal(results, expected)
    assert equal(after, state_of(eager))


def test_a_closure_that_counts():
    def counter() -> Callable[[Tensor], Tensor]:
        n = 0

        def count(x: Tensor) -> Tensor:
            nonlocal n
            n += 1
            return x * n

        return count

    program, eager = compiled(counter(), X), counter()
    for _ in range(3):
        assert equal(program(X), eager(X))


def test_what_is_set_once_leaves_one_program():
    """A cache of the model itself, and a flag of a warning: the next call computes the same."""

    def step(self: Model, x: Tensor) -> Tensor:
        if not self.n:
            self.n = x.shape[-1]
        self.names["warned"] = True
        return x * self.n

    model = Model(step)
    names = model.names
    program = compiled(model, X)
    assert isinstance(program, Program)
    assert model.n == 0 and model.names is names and names == {"n": 0}
    assert equal(program(X), X * 64)
    assert model.n == 64 and model.names == {"n": 0, "warned": True}
    model.names["n"] = 7
    assert equal(program(X), X * 64) and model.names["n"] == 7


def test_what_is_done_once_is_refused_or_runs_in_pieces():
    def step(self: Model, x: Tensor) -> Tensor:
        first, self.n = not self.n, 1
        return x * 2 if first else x

    program = compiled(Model(step), X)
    assert [program(X)[1, 0].item() for _ in range(3)] == [2.0, 1.0, 1.0]
    with pytest.raises(CompileError, match=r"changes 'n' from 0 to 1 in a call.*keep it in a buffer"):
        compiled(Model(step), X, fallback=False)


@dataclasses.dataclass
class State:
    n: int
    h: Tensor
    log: list[Any]


def test_numbers_of_an_input_that_change():
    def f(x: Tensor, state: dict[str, Any]) -> Tensor:
        state["n"] += 1
        state["h"] = state["h"] + x
        return state["h"] * state["n"]

    program = compiled(f, X, {"n": 0, "h": X})
    state, other = ({"n": 0, "h": X.clone()} for _ in range(2))
    for _ in range(3):
        assert equal(program(X, state), f(X, other))
        assert state["n"] == other["n"] and equal(state["h"], other["h"])


@pytest.mark.parametrize("make", [dict, OrderedDict])
def test_tensors_of_a_dict_that_change_are_one_program(make):
    def f(x: Tensor, state: dict[str, Tensor]) -> Tensor:
        state["h"] = state["h"] * 2 + x
        state["new"] = x + 1
        return state["h"] - 1

    program = compiled(f, X, make(h=X))
    assert isinstance(program, Program)
    state, other = make(h=X + 1), make(h=X + 1)
    assert equal(program(X, state), f(X, other))
    assert type(state) is make and list(state) == list(other)
    assert all(equal(state[name], other[name]) for name in other)


def test_objects_as_inputs():
    """Containers, dataclasses and objects, in each other and twice; the caller's own objects change."""

    def f(x: Tensor, state: State, again: State, recent: deque[Tensor]) -> tuple[Any, ...]:
        again.h = state.h + x
        state.log[0].append(again.h * 2)
        recent.append(x * 3)
        recent.rotate(1)
        return state, recent[0], state.log

    def inputs() -> tuple[Any, ...]:
        state = State(3, X + 1, [[X]])
        state.log.append(state)  # a cycle
        return X, state, state, deque([X, X * 2], maxlen=2)

    program = compiled(f, *inputs())
    assert isinstance(program, Program)
    mine, other = inputs(), inputs()
    got, expected = program(*mine), f(*other)
    assert got[0] is mine[1] and got[2] is mine[1].log and got[2][1] is got[0]
    assert equal(mine[1].h, other[1].h) and equal(mine[1].log[0], other[1].log[0])
    assert equal(list(mine[3]), list(other[3])) and equal(got[1], expected[1])
    state = State(4, X, [[X]])
    state.log.append(state)
    with pytest.raises(CompileError, match=r"compiled for 3 as state\.n, not for 4"):
        program(X, state, state, deque([X, X], maxlen=2))
    state = State(3, X, [[X]])
    state.log.append(state)
    with pytest.raises(CompileError, match=r"takes inputs of the structure|takes 4 inputs"):
        program(X, state, State(3, X, [[X]]), deque([X, X], maxlen=2))


def test_a_call_that_fails_changes_nothing():
    def f(x: Tensor, state: dict[str, Any]) -> Tensor:
        state["n"] += 1
        state["h"] = x * 2
        if state["n"] > 1:
            return torch.linalg.eigvals(x @ x.T).sqrt().to(torch.complex32).sort()  # no such operation
        return state["h"]

    program = compiled(f, X, {"n": 0, "h": X})
    state = {"n": 1, "h": X}
    with pytest.raises(Exception):  # noqa: B017  whatever PyTorch says
        program(X, state)
    assert type(state["h"]) is Tensor


def test_a_model_that_calls_itself():
    class Twice(nn.Module):
        def forward(self, x: Tensor, again: bool = True) -> Tensor:
            return self.forward(x * 2, False) + self(x, False) if again else x + 1

    assert equal(compiled(Twice(), X)(X), Twice()(X))


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_a_layer_that_renews_a_list_of_its_parameters_is_one_program(kind):
    layer, x = kind(16, 32, num_layers=2).half().eval(), torch.randn(5, 2, 16).half()
    with torch.no_grad():
        program = spyre_mlir.compile(layer, (x,))
        assert type(program) is Program
        torch.testing.assert_close(program(x)[0], layer(x)[0], rtol=0, atol=2e-2)
