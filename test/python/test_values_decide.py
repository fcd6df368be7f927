# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Models whose values decide shapes or branches run in pieces, with PyTorch's numbers, sizes and changes in place."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch._higher_order_ops import while_loop
from torch.utils import _pytree as pytree

import spyre_mlir
from spyre_mlir.errors import CompileError, HostWorkWarning, RecompileWarning
from spyre_mlir.frontend.piecewise import MOST_PROGRAMS_UNWARNED, PiecewiseProgram

WIDTH = 64
#: Parts of the largest value of a tensor.
TOLERANCES = {torch.float16: 1e-2, torch.float32: 1e-4}


def rows(count: int, shift: float = 0.0, seed: int = 0) -> Tensor:
    return torch.randn(count, WIDTH, generator=torch.Generator().manual_seed(seed)) + shift


def cast(value: Any, dtype: torch.dtype) -> Any:
    """Copies of inputs, floats in another type."""

    def one(leaf: Any) -> Any:
        if not isinstance(leaf, Tensor):
            return leaf
        return leaf.to(dtype, copy=True) if leaf.is_floating_point() else leaf.clone()

    return pytree.tree_map(one, value)


def assert_close(result: Any, expected: Any, dtype: torch.dtype) -> None:
    """The structure, the types, the shapes and the numbers of PyTorch."""
    leaves, tree = pytree.tree_flatten(result)
    wanted, wanted_tree = pytree.tree_flatten(expected)
    assert tree == wanted_tree
    for leaf, want in zip(leaves, wanted, strict=True):
        assert type(leaf) is type(want)
        if not isinstance(want, Tensor):
            assert leaf == want
            continue
        assert (leaf.shape, leaf.dtype) == (want.shape, want.dtype)
        if want.is_floating_point() and want.numel():
            largest = want.double().abs().max().item()
            assert (leaf.double() - want.double()).abs().max().item() <= TOLERANCES[dtype] * largest
        else:
            assert torch.equal(leaf, want)


def in_pieces(model: Any, inputs: Any, **options: Any) -> PiecewiseProgram:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program: Any = spyre_mlir.compile(model, inputs, sencores=2, **options)
    assert isinstance(program, PiecewiseProgram)
    return program


def state(model: Any) -> dict[str, Tensor]:
    return dict(model.state_dict()) if isinstance(model, nn.Module) else {}


def check(model: Any, dtype: torch.dtype, *calls: tuple[Any, ...]) -> PiecewiseProgram:
    """Assert that one program, made for the first call, gives PyTorch's results and side effects for each call."""
    eager = copy.deepcopy(model).to(dtype) if isinstance(model, nn.Module) else model
    compiled = copy.deepcopy(eager)
    program = in_pieces(compiled, cast(calls[0], dtype))
    assert_close(state(compiled), state(eager), dtype)
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        for call in calls:
            inputs, expected_inputs = cast(call, dtype), cast(call, dtype)
            assert_close(program(*inputs), eager(*expected_inputs), dtype)
            assert_close(inputs, expected_inputs, dtype)
            assert_close(state(compiled), state(eager), dtype)
    return program


def mask(*positions: int) -> Tensor:
    return torch.tensor(positions, dtype=torch.bool)


def halved_until_small(x: Tensor) -> tuple[Tensor, int]:
    steps = 0
    while x.norm() > 1:
        x, steps = x * 0.5, steps + 1
    return x + 1, steps


def branch(x: Tensor) -> Tensor:
    y = x * 2
    y = y + 1 if y.sum() > 0 else y - 1
    return y.softmax(-1)


def doubled_where_positive(x: Tensor) -> Tensor:
    y = x.clone()
    y[y > 0] = y[y > 0] * 2
    return y


def assigned_by_masks(x: Tensor) -> Tensor:
    """One value at all places of a mask, of whole rows, and combined with another index."""
    y = x.clone() if x.sum() > -1e5 else x
    y[y > 0] = 2.0
    y[x[:, 0] > 0] = x[0, 0]
    y[x[:, 1] > 0, 1] = -1
    return y


def unique_rows(x: Tensor, index: Tensor) -> Tensor:
    values, counts = torch.unique(index, return_counts=True)
    return x[values] * counts[:, None]


def changed_in_place(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Views of an input and of a result change before and after a decision."""
    y = x * 2
    view = y[1:]
    if y.sum() > -1e4:
        view += 1
    x[0].zero_()
    y[0] = 7
    if (view * 2).sum() > -1e4:
        view.mul_(2)
    return y, view, x.T


def reshaped_in_place(x: Tensor) -> tuple[Tensor, Tensor]:
    y = x * 2
    if y.sum() > -1e5:
        y = y + 1
    y.t_()
    z = (y * 3).unsqueeze_(0)
    if z.sum() > -1e5:
        z.transpose_(0, 1)
    return y, z


def looped(x: Tensor) -> Any:
    """A loop of PyTorch whose length follows from a value."""
    count = x[:, 0].gt(0).sum()
    return while_loop(lambda i, y: i < count, lambda i, y: (i + 1, y.tanh() * 1.5), (torch.tensor(0), x))


def condition_behind_indices(x: Tensor) -> Tensor:
    index = x[:, 0].nonzero()[:, 0]
    return torch.cond(x.sum() > 0, lambda a: a * 2, lambda a: a - 1, (x[index],))


CASES: dict[str, tuple[Callable[..., Any], list[tuple[Any, ...]]]] = {
    "nonzero": (lambda x: (x > 0).nonzero(), [(rows(3),), (rows(5),)]),
    "nonzero_as_tuple": (
        lambda x: x[(x[:, 0] > 0).nonzero(as_tuple=True)].exp() * 2,
        [(rows(4),), (rows(4, seed=1),)],
    ),
    "masked_select": (lambda x: torch.masked_select(x * 2, x > 0) + 1, [(rows(3),), (rows(3, seed=1),)]),
    "mask": (
        lambda x, m: x[m].softmax(-1),
        [(rows(4), mask(1, 0, 1, 1)), (rows(4), mask(0, 0, 0, 0)), (rows(4), mask(1, 1, 1, 1))],
    ),
    "mask_assigned": (doubled_where_positive, [(rows(3),), (rows(3, seed=1),), (rows(3, shift=-9),)]),
    "masks_assigned": (assigned_by_masks, [(rows(3),)]),
    "unique": (unique_rows, [(rows(9), torch.tensor([3, 3, 1])), (rows(9), torch.tensor([3, 8, 1]))]),
    "argwhere": (lambda x: torch.argwhere(x.relu()), [(rows(2),), (rows(2, seed=1),)]),
    "item_as_size": (
        lambda x, n: x[: n.item()].exp().sum(0),
        [(rows(4), torch.tensor(2)), (rows(4), torch.tensor(3))],
    ),
    "zeros_of_a_size": (lambda x, n: torch.zeros(int(n), WIDTH) + x.sum(0).float(), [(rows(2), torch.tensor(3))]),
    "range_of_a_value": (
        lambda x, n: [x * i for i in range(int(n))],
        [(rows(2), torch.tensor(3)), (rows(2), torch.tensor(1))],
    ),
    "split_sizes": (
        lambda x, n: [part.softmax(0) for part in torch.split(x, n.tolist())],
        [(rows(6), torch.tensor([1, 5])), (rows(6), torch.tensor([2, 2, 2]))],
    ),
    "branch": (branch, [(rows(3, 1),), (rows(3, -1),), (rows(3, 1, seed=1),)]),
    "allclose": (lambda x: x + 1 if torch.allclose(x, x.abs()) else x - 1, [(rows(2),), (rows(2).abs(),)]),
    "loop": (halved_until_small, [(rows(3) * 8,), (rows(3) * 32,)]),
    "while_loop": (looped, [(rows(6),), (rows(6, seed=1),)]),
    "cond": (condition_behind_indices, [(rows(4, 1),), (rows(4, -1),)]),
    "repeat_interleave": (
        lambda x, counts: torch.repeat_interleave(x.relu(), counts, 0) * 2,
        [(rows(3), torch.tensor(counts)) for counts in ([2, 0, 1], [0, 0, 0], [4, 1, 1])],
    ),
    "changed_in_place": (changed_in_place, [(rows(4),), (rows(4, seed=1),)]),
    "reshaped_in_place": (reshaped_in_place, [(rows(4),)]),
    "numpy": (lambda x: x + torch.from_numpy(x.exp().numpy()), [(rows(2),), (rows(2, seed=1),)]),
}  # fmt: skip


@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
@pytest.mark.parametrize("name", CASES)
def test_functions(name: str, dtype: torch.dtype) -> None:
    model, calls = CASES[name]
    check(model, dtype, *calls)


# -- modules ------------------------------------------------------------------------------------------


class RoutedExperts(nn.Module):
    """Experts on the rows that a router gives each, as models write it; in ``is_inline``, without modules."""

    def __init__(self, is_inline: bool) -> None:
        super().__init__()
        self.is_inline = is_inline
        self.router = nn.Linear(WIDTH, 4)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(WIDTH, 128), nn.ReLU(), nn.Linear(128, WIDTH)) for _ in range(4)
        )

    def forward(self, x: Tensor) -> Tensor:
        weights, chosen = self.router(x).softmax(-1).topk(2, -1)
        result = torch.zeros_like(x)
        for index, expert in enumerate(self.experts):
            row, position = torch.where(chosen == index)
            if self.is_inline:
                hidden = F.linear(x[row], expert[0].weight).relu()
                result[row] += F.linear(hidden, expert[2].weight) * weights[row, position, None]
            elif row.numel():
                result.index_add_(0, row, expert(x[row]) * weights[row, position, None])
        return result


class Remembering(nn.Module):
    """A cache that a position in a buffer fills, an attribute that is a tensor, and one that is a number."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("cache", torch.zeros(8, WIDTH))
        self.register_buffer("position", torch.tensor(0))
        self.linear = nn.Linear(WIDTH, WIDTH)
        self.last: Tensor | None = None
        self.calls = 0

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor | int, int]:
        begin = int(self.position)
        self.cache[begin : begin + len(x)] = self.linear(x)
        self.position += len(x)
        before, self.last = self.last, self.cache[begin] * 2
        self.calls += 1
        return self.cache[: int(self.position)].softmax(-1), 0 if before is None else before, self.calls


class Deciding(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor, *, scale: float = 1.0) -> dict[str, Any]:
        x = self.linear(x) if x.mean() > 0 else x * scale
        return {"y": x.tanh(), "is_positive": bool((x > 0).all()), "name": "y"}


class Nested(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.norm = Deciding(), Deciding(), nn.BatchNorm1d(WIDTH)

    def forward(self, x: Tensor) -> Any:
        first = self.first(x, scale=3.0)
        second = self.second(-first["y"])
        return self.norm(second["y"]), first, [row for row in x[:2]]


MODULES: dict[str, tuple[Callable[[], nn.Module], list[tuple[Any, ...]]]] = {
    "experts": (lambda: RoutedExperts(is_inline=False), [(rows(6),), (rows(6, seed=1),)]),
    "experts_inline": (lambda: RoutedExperts(is_inline=True), [(rows(6),), (rows(9, seed=1),)]),
    "buffers": (Remembering, [(rows(2),), (rows(1, seed=1),), (rows(3, seed=2),)]),
    "nested": (Nested, [(rows(4, 0.3),), (rows(4, -0.3),)]),
}


@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
@pytest.mark.parametrize("name", MODULES)
def test_modules(name: str, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    make, calls = MODULES[name]
    check(make(), dtype, *calls)


def test_experts_run_on_the_device() -> None:
    """The deciding ``where`` is PyTorch's, the matmuls of all experts the device's; equal ones share programs."""
    torch.manual_seed(0)
    program = in_pieces(RoutedExperts(is_inline=False).half(), (rows(6).half(),))
    program(rows(6).half())
    assert {cause.operation for cause in program.host_calls} == {"where"}
    assert sum("batchmatmul" in entry[0] for entry in program.traffic().by_op) >= 1 + 2 * 3
    assert program.metrics()["host_flop_share"] < 0.05
    before = program.compilations
    program(rows(6).half())
    assert program.compilations == before


def test_parameters_change_between_calls() -> None:
    """A program reads the parameters of its call."""
    model = Deciding().half()
    program, x = in_pieces(model, (rows(2, 1).half(),)), rows(2, 1).half()
    with torch.no_grad():
        model.linear.weight.mul_(2)
        assert_close(program(x), model(x), torch.float16)


def test_keyword_inputs() -> None:
    def model(x: Tensor, *, m: Tensor, scale: float = 2.0) -> Tensor:
        return x[m] * scale

    x, m = rows(4).half(), mask(1, 0, 1, 1)
    program = in_pieces(model, {"x": x, "m": m})
    assert_close(program(x=x, m=m), x[m] * 2, torch.float16)
    assert_close(program(x, m=~m, scale=3.0), x[~m] * 3, torch.float16)


def test_results_that_are_inputs() -> None:
    """Such results are the objects that PyTorch returns, and share memory as in PyTorch."""
    program = in_pieces(lambda x: (x, x.T, x + 1 if x.sum() > 0 else x), (rows(2, 1).half(),))
    x = rows(2, -1).half()
    same, transposed, other = program(x)
    assert same is x and other is x and transposed.data_ptr() == x.data_ptr()


def test_random_numbers() -> None:
    """Compiling does not change the user's random generator, and a call draws the numbers that PyTorch draws."""

    def model(x: Tensor) -> Tensor:
        return x + torch.rand(WIDTH) if x.sum() > 0 else x - torch.rand(WIDTH)

    x = rows(2, 1)
    torch.manual_seed(3)
    program = in_pieces(model, (x,))
    result = program(x)
    torch.manual_seed(3)
    assert_close(result, model(x), torch.float32)


def test_tensors_of_the_device() -> None:
    program = in_pieces(lambda x: x[x[:, 0] > 0] * 2, (rows(4).half(),))
    x = rows(5).half()
    assert_close(program(spyre_mlir.to_device(x)), x[x[:, 0] > 0] * 2, torch.float16)


@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
@pytest.mark.parametrize(
    "model",
    [lambda x: x * x.max().item(), lambda x: x / x.abs().max().item() + 1],
    ids=["product", "quotient"],
)
def test_a_number_to_compute_with_is_a_value_of_one_program(model, dtype) -> None:
    """Each call reads the number of its own input."""
    program = spyre_mlir.compile(model, (rows(2).to(dtype),), sencores=2)
    assert isinstance(program, spyre_mlir.Program)
    for seed in range(1, 6):
        x = rows(2, seed=seed).to(dtype)
        assert_close(program(x), model(x), dtype)


# -- remarks -------------------------------------------------------------------------------------------


def _positive_rows(x: Tensor) -> Tensor:
    y = x + 1
    return y[x[:, 0] > 0] * 2


def test_summary() -> None:
    """Why there are pieces, what ends each and where, what PyTorch runs between them, and a page per program."""
    program = in_pieces(_positive_rows, (rows(4).half(),))
    program(rows(4).half())
    line = f"{__file__}:{_positive_rows.__code__.co_firstlineno + 2}"
    text = program.summary()
    assert f"in pieces    {line}: index: The size of dim 0 of the result depends on values" in text
    assert f"until an index ({line})" in text and f"on the host  1 x an index ({line})" in text
    assert "\nprogram 0\n" in text and "operations " in text
    metrics = program.metrics()
    assert metrics["pieces"] == 2 and metrics["host_calls"] == 1 and metrics["predicted_us"] > 0
    assert [step.name for step in program.bundles]


def test_many_programs_are_a_warning() -> None:
    """A program for each size, and a warning that names the line as soon as there are many."""
    program = in_pieces(lambda x, n: x[: int(n)] * 2, (rows(64).half(), torch.tensor(1)))
    with pytest.warns(RecompileWarning, match=f"{MOST_PROGRAMS_UNWARNED} programs are compiled") as caught:
        for count in range(1, MOST_PROGRAMS_UNWARNED + 2):
            program(rows(64).half(), torch.tensor(count))
    assert sum(warning.category is RecompileWarning for warning in caught) == 1


def test_work_of_the_host_is_a_warning() -> None:
    with pytest.warns(HostWorkWarning, match="f32 x f32"):
        program: Any = spyre_mlir.compile(Deciding(), (rows(2, 1),), sencores=2)
    with warnings.catch_warnings():
        warnings.simplefilter("error", HostWorkWarning)
        program(rows(2, -1))  # once for each model


def test_functions_of_pytorch_that_decide() -> None:
    """The device runs operations around a decision in Python; a function in C++ runs on the host, with a warning."""

    def loss(x: Tensor, y: Tensor) -> Tensor:
        return F.gaussian_nll_loss(x, y, x.abs() + 1)

    x, y = rows(2).half(), rows(2, seed=1).half()
    program = in_pieces(loss, (x, y))
    assert_close(program(x, y), loss(x, y), torch.float16)
    line = f"{__file__}:{loss.__code__.co_firstlineno + 1}"
    assert [str(cause) for cause in program.host_calls] == [f"bool() ({line})"]
    assert "log" in program.summary() and program.bundles
    with pytest.warns(HostWorkWarning, match=r"PyTorch runs corrcoef \(.*\) on the host"):
        spyre_mlir.compile(lambda x: torch.corrcoef(x) * 2, (x,), sencores=2)


ONE_PROGRAM = "'layouts', 'plan', 'autocast' and 'state' are for a model that is one program"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"fallback": False}, "The size of dim 0 of the result depends on values"),
        ({"layouts": {0: {"stick_dims": [0]}}}, ONE_PROGRAM),
        ({"plan": {}}, ONE_PROGRAM),
        ({"autocast": torch.float16}, ONE_PROGRAM),
    ],
)  # fmt: skip
def test_options_that_refuse(options: dict[str, Any], message: str) -> None:
    with pytest.raises(CompileError, match=message) as caught:
        spyre_mlir.compile(_positive_rows, (rows(4).half(),), **options)
    assert caught.value.location == f"{__file__}:{_positive_rows.__code__.co_firstlineno + 2}"


def test_what_is_not_saved(tmp_path) -> None:
    program = in_pieces(_positive_rows, (rows(4).half(),))
    with pytest.raises(CompileError, match=r"in pieces, between which Python decides, cannot be saved"):
        program.save(tmp_path / "model")
    with pytest.raises(CompileError, match="has no plan"):
        program.plan()


def test_an_exported_program() -> None:
    """An exported program has one graph, in which values decide no branch of Python: the error stays."""
    exported = torch.export.export(nn.Threshold(0, 0), (rows(2),))
    assert not isinstance(spyre_mlir.compile(exported, (rows(2),)), PiecewiseProgram)
    dynamic = torch.export.export(Selecting(), (rows(4).half(),))
    with pytest.raises(CompileError, match=r"depends on values"):
        spyre_mlir.compile(dynamic, (rows(4).half(),))


class Selecting(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return _positive_rows(x)


def test_errors_of_the_model() -> None:
    """An exception of the model for its example inputs is an error of compile; in a call, it is the model's own."""
    with pytest.raises(CompileError, match="shape '\\[3, 3\\]' is invalid for input of size 128"):
        spyre_mlir.compile(lambda x: x.view(3, 3), (rows(2).half(),))

    def model(x: Tensor) -> Tensor:
        if x.sum() < 0:
            raise ValueError("negative")
        return x * 2

    program = in_pieces(model, (rows(2, 1).half(),))
    with pytest.raises(ValueError, match="negative"):
        program(rows(2, -1).half())


def test_shapes_of_inputs_stay() -> None:
    """A change of the shape of the caller's tensor would be lost, so it is an error."""

    def model(x: Tensor) -> Tensor:
        x.t_()
        return x * 2 if x.sum() > 0 else x

    with pytest.raises(
        CompileError, match="'t_' changes the shape of an input or a buffer in place; use 't'"
    ):
        spyre_mlir.compile(model, (rows(2).half(),))
