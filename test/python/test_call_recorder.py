# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Recorded calls of random models change, share and return what PyTorch changes, shares and returns."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from spyre_mlir.errors import CompileError
from spyre_mlir.frontend.model_calls import Cause, ModelCalls, ModelPiece

SIZE = 4


class HostRunner:
    """Run pieces by PyTorch: the tests check where pieces begin and end, and their arguments."""

    def __init__(self) -> None:
        self.pieces: list[ModelPiece] = []

    def run_piece(self, piece: ModelPiece) -> Sequence[Tensor]:
        self.pieces.append(piece)
        return piece.function(*piece.inputs)

    def note_host_call(self, cause: Cause, is_work: bool) -> None:
        pass


class RandomModel(nn.Module):
    """Random arithmetic, views, changes in place, decisions, and tensors kept in attributes and lists."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.seed = seed
        self.register_buffer("buffer", torch.zeros(SIZE, SIZE))
        self.weight = nn.Parameter(torch.full((SIZE, SIZE), 0.5))
        self.last: Tensor | None = None
        self.history: list[Tensor] = []

    def forward(self, x: Tensor, y: Tensor) -> tuple[list[Tensor], list[Any]]:
        generator, numbers = random.Random(self.seed), []
        values = [x, y, self.buffer, self.weight, *([] if self.last is None else [self.last])]
        for _ in range(generator.randint(3, 14)):
            kind = generator.choice(KINDS)
            one, other = generator.choice(values), generator.choice(values)
            if kind in IN_PLACE:
                # PyTorch's own forms of changes to a parameter are not the subject.
                change(kind, x if one is self.weight else one, other)
            elif kind == "keep":
                self.last = one * 1.5 if generator.random() < 0.5 or one is self.weight else one
                self.history.append(one * 2)
            elif kind == "numbers":
                numbers.append(one.tolist())
            else:
                values.append(new(kind, one))
        return values, numbers


IN_PLACE = ("add", "scale", "row", "copy", "mask")
VIEWS = ("transposed", "rows", "flat", "expanded", "squeezed")
DECISIONS = ("branch", "item", "nonzero")
KINDS = (*IN_PLACE, *VIEWS, *DECISIONS, "scaled", "sine", "keep", "numbers")


def change(kind: str, tensor: Tensor, other: Tensor) -> None:
    if kind == "add":
        tensor.add_(1)
    elif kind == "scale":
        tensor.mul_(0.5)
    elif kind == "row" and len(tensor):
        tensor[0] = 3
    elif kind == "copy" and tensor.shape == other.shape:
        tensor.copy_(other.clone())
    elif kind == "mask":
        tensor[tensor > 0.5] = tensor[tensor > 0.5] * 0.5


def new(kind: str, tensor: Tensor) -> Tensor:
    """Return a tensor from another one: a view, a result, or a result of a decision."""
    flat = tensor.reshape(-1)
    if kind == "squeezed":
        return tensor.unsqueeze(0).squeeze_(0)
    if kind == "branch":
        return tensor + 1 if tensor.sum() > 0.3 else tensor - 1
    if kind == "item":
        return tensor * flat.sum().item()
    results = {
        "transposed": lambda: tensor.t(),
        "rows": lambda: tensor[1:] if len(tensor) > 1 else tensor[:],
        "flat": lambda: tensor.view(-1) if tensor.is_contiguous() else tensor.detach(),
        "expanded": lambda: tensor.expand(2, *tensor.shape)[1],
        "nonzero": lambda: flat[(flat > 0).nonzero()[:, 0]],
        "scaled": lambda: tensor * 2 + 1,
        "sine": lambda: flat.sin(),
    }
    return results[kind]()


def shared(tensors: Sequence[Tensor]) -> list[tuple[int, int]]:
    """Pairs of tensors in one storage."""
    places = [tensor.untyped_storage()._cdata for tensor in tensors]
    return [(i, j) for i in range(len(places)) for j in range(i) if places[i] == places[j]]


def state(model: RandomModel) -> Any:
    return dict(model.state_dict()), model.last, model.history


def assert_equal(one: Any, other: Any) -> None:
    """Equal structure, objects of the same types, and numbers up to the rounding of sums."""
    leaves, tree = pytree.tree_flatten(one)
    expected, expected_tree = pytree.tree_flatten(other)
    assert tree == expected_tree
    for leaf, wanted in zip(leaves, expected, strict=True):
        assert type(leaf) is type(wanted)
        if isinstance(wanted, Tensor):
            # Not torch.testing: it asks views of a parameter, which has changed without a gradient, for theirs.
            assert leaf.shape == wanted.shape and leaf.dtype == wanted.dtype
            with torch.no_grad():
                assert torch.allclose(leaf, wanted, rtol=1e-5, atol=1e-5, equal_nan=True)
        elif wanted is not None:
            assert leaf == pytest.approx(wanted, rel=1e-5, abs=1e-5, nan_ok=True)


@pytest.mark.sampled(20)
@pytest.mark.parametrize("seed", range(200))
def test_random_models(seed: int) -> None:
    torch.manual_seed(seed)
    calls = [(torch.randn(SIZE, SIZE), torch.randn(SIZE, SIZE)) for _ in range(3)]

    def inputs(call: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        """Copies of the inputs; in each third model, two views of one storage."""
        x = call[0].clone()
        return (x, x.t()) if seed % 3 == 0 else (x, call[1].clone())

    eager, recorded = RandomModel(seed), RandomModel(seed)
    runner, model_calls, example = HostRunner(), ModelCalls(recorded), inputs(calls[0])
    model_calls.rehearse(runner, example)
    assert_equal(example, inputs(calls[0]))
    assert_equal(state(recorded), state(eager))
    for call in calls:
        arguments, expected_arguments = inputs(call), inputs(call)
        with torch.no_grad():
            expected = eager(*expected_arguments)
        result = model_calls.call(runner, arguments, {})
        assert_equal((result, arguments, state(recorded)), (expected, expected_arguments, state(eager)))
        assert shared(result[0]) == shared(expected[0])


def test_pieces_end_where_a_number_is_needed() -> None:
    """One piece up to each decision, and one to the end; equal pieces share a key, and parameters have their names."""
    layers = nn.ModuleList(nn.Linear(SIZE, SIZE) for _ in range(3))

    def model(x: Tensor) -> Tensor:
        for layer in layers:
            x = layer(x)
            if x.sum() > 1e9:
                break
        return x + 1

    runner = HostRunner()
    ModelCalls(model).call(runner, (torch.zeros(2, SIZE),), {})
    assert [piece.cause.operation for piece in runner.pieces] == ["bool()"] * 3 + ["the end of the model"]
    assert len({piece.key for piece in runner.pieces}) == 2


class Failing(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(1))
        self.last = torch.zeros(1)

    def forward(self, x: Tensor) -> Tensor:
        self.count += 1
        self.last = x * 2
        if len(x) > 2:
            raise ValueError("long")
        return x


def test_an_error_of_the_model() -> None:
    """Changes of the model before it raises persist."""
    model = Failing()
    with pytest.raises(ValueError, match="long"):
        ModelCalls(model).call(HostRunner(), (torch.ones(3),), {})
    assert model.count.item() == 1 and model.last.tolist() == [2, 2, 2]


def test_an_error_of_a_piece() -> None:
    """The attributes keep the values from before the call."""

    class Refusing(HostRunner):
        def run_piece(self, piece: ModelPiece) -> Sequence[Tensor]:
            raise CompileError("no")

    model = Failing()
    with pytest.raises(CompileError, match="no"):
        ModelCalls(model).call(Refusing(), (torch.ones(1),), {})
    assert model.last.tolist() == [0] and type(model.last) is Tensor
