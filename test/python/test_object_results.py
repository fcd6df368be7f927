# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Results of any class: all tensors reachable from them have numbers, and shared objects are shared."""

from __future__ import annotations

import copy
import dataclasses
import gc
import pickle
import types
from collections import OrderedDict, UserDict, defaultdict, deque, namedtuple
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor

import spyre_mlir
from spyre_mlir import CompileError

X = torch.arange(128.0).reshape(2, 64).half() / 64


class Box:
    """A user-defined object."""

    me: Any
    pair: Any
    all: Any

    def __init__(self, value: Any = None) -> None:
        self.value = value


class Slots:
    __slots__ = ("__hidden", "value")

    def __init__(self, value: Any) -> None:
        self.value, self.__hidden = value, value + 1

    def hidden(self) -> Any:
        return self.__hidden


@dataclasses.dataclass(frozen=True)
class Frozen:
    value: Any


@dataclasses.dataclass(slots=True)
class SlottedData:
    value: Any
    names: dict[str, Any] = dataclasses.field(default_factory=dict)


class Names(dict):
    """A dict with attributes."""

    def __init__(self, value: Any) -> None:
        super().__init__(item=value)
        self.value = value


class Items(list):
    pass


Pair = namedtuple("Pair", "value other")


def cyclic(x: Tensor) -> Box:
    box = Box(x * 2)
    box.me, box.pair = box, [box]
    return box


def with_default(x: Tensor) -> Any:
    result = defaultdict(list)
    result["value"].append(x * 3)
    return result


FORMS = {
    "object": lambda x: Box(x * 2),
    "nested": lambda x: Box([Box({"value": Box((x + 1, x * 2))})]),
    "slots": lambda x: Slots(x * 2),
    "frozen": lambda x: Frozen(x * 2),
    "slotted dataclass": lambda x: SlottedData(x * 2, {"a": x + 3}),
    "dict with attributes": lambda x: Names(x * 2),
    "list class": lambda x: Items([x * 2, x]),
    "named tuple": lambda x: Pair(x * 2, Box(x)),
    "deque": lambda x: deque([x * 2, Box(x + 1)], maxlen=3),
    "default": with_default,
    "ordered": lambda x: OrderedDict(b=x, a=x * 2),
    "user dict": lambda x: Box(UserDict(a=x * 2)),
    "namespace": lambda x: types.SimpleNamespace(value=x * 2),
    "input": lambda x: Box(x),
    "view": lambda x: Box(x[:, :32]),
    "number": lambda x: Box((x.shape, 3, "text", None, x.dtype)),
    "cycle": cyclic,
    "top": lambda x: torch.max(x * 2, -1),
}


def tensors(value: Any) -> list[Tensor]:
    """All tensors that can be reached, in the order of a walk."""
    seen, found, todo = set(), [], [value]
    while todo:
        item = todo.pop(0)
        if id(item) in seen or isinstance(item, type | types.ModuleType | types.FunctionType):
            continue
        seen.add(id(item))
        if isinstance(item, Tensor):
            found.append(item)
        else:
            todo += gc.get_referents(item)
    return found


@pytest.mark.parametrize("form", FORMS)
def test_results_have_numbers(form):
    function = FORMS[form]
    program = spyre_mlir.compile(lambda x: (x * 4, function(x)), (X,), sencores=2)
    for _ in range(2):
        got, expected = program(X), (X * 4, function(X))
        assert type(got[1]) is type(expected[1])
        mine, wanted = tensors(got), tensors(expected)
        assert len(mine) == len(wanted)
        for one, other in zip(mine, wanted, strict=True):
            assert type(one) is Tensor and torch.equal(one, other)


def test_what_is_one_object_stays_one():
    def f(x: Tensor) -> Any:
        one = x * 2
        box = Box(one)
        return [box, box, one], one

    (first, second, inner), one = spyre_mlir.compile(f, (X,))(X)
    assert first is second and inner is one and first.value is one


def test_each_call_makes_its_own_objects():
    program = spyre_mlir.compile(lambda x: Box([x * 2]), (X,))
    one, other = program(X), program(X)
    assert one is not other and one.value is not other.value
    one.value.append(1)
    assert len(program(X).value) == 1


def test_objects_of_the_model_are_themselves():
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.config = Box(3)

        def forward(self, x: Tensor) -> Any:
            return x * self.config.value, self.config, Box(self.config)

    model = Model()
    _, config, box = spyre_mlir.compile(model, (X,))(X)
    assert config is model.config and box.value is model.config


HIDDEN = {
    "function": lambda x: lambda: x * 2,
    "generator": lambda x: (x * n for n in range(3)),
    "in an object": lambda x: Box(lambda y=x * 2: y),
    "iterator": lambda x: iter([x * 2]),
}


@pytest.mark.parametrize("form", HIDDEN)
def test_tensors_that_no_program_can_give_are_refused(form):
    function = HIDDEN[form]
    with pytest.raises(CompileError, match=r"holds a tensor of the call.*return the tensor itself"):
        spyre_mlir.compile(lambda x: (x + 1, function(x * 3)), (X,))


def test_in_pieces():
    """A branch on values makes pieces; the objects are the objects of the model."""

    def f(x: Tensor) -> Any:
        box = Box(x * 2 if x.sum() > 0 else x * 3)
        box.me, box.all = box, (x + 1, [Box(x + 2)])
        return box

    program = spyre_mlir.compile(f, (X,))
    for x in (X, -X):
        got, expected = program(x), f(x)
        assert got.me is got
        for one, other in zip(tensors(got), tensors(expected), strict=True):
            assert type(one) is Tensor and not isinstance(one, FakeTensor) and torch.equal(one, other)
    function = spyre_mlir.compile(lambda x: (lambda: x * 2) if x.sum() > 0 else x, (X,))(X)
    assert torch.equal(function(), X * 2)
    with pytest.raises(CompileError, match="holds a tensor of the call"):
        spyre_mlir.compile(lambda x: (x * n for n in (1, 2)) if x.sum() > 0 else x, (X,))(X)


def test_pickled_programs_return_objects():
    program = spyre_mlir.compile(_boxed, (X,))
    restored = pickle.loads(pickle.dumps(program))
    assert torch.equal(restored(X).value, X * 2)
    assert torch.equal(copy.deepcopy(program)(X).value, X * 2)


def _boxed(x: Tensor) -> Box:
    return Box(x * 2)
