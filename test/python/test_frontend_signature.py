# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Programs are called as their models: structures, keyword inputs, numbers, aliases, changes in place, errors."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from cpu_reference import CpuReference
from torch import Tensor, nn

import spyre_mlir
from spyre_mlir import to_device
from spyre_mlir.errors import CompileError
from spyre_mlir.frontend import Imported, import_torch
from spyre_mlir.mlir import ir


def imported(model: Callable, *inputs: Any, **named: Any) -> Imported:
    return import_torch(model, named or inputs, context=ir.Context())


def on_the_cpu(program: Imported, *inputs: Any, **named: Any) -> Any:
    call = program.bind(*inputs, **named)
    return call.finish(CpuReference(program.module)(*call.operands()))


def same(got: Any, expected: Any) -> None:
    """Assert the same tensors and numbers in the same structure."""
    values, tree = torch.utils._pytree.tree_flatten(got)
    expected_values, expected_tree = torch.utils._pytree.tree_flatten(expected)
    assert tree == expected_tree
    for value, wanted in zip(values, expected_values, strict=True):
        assert type(value) is type(wanted)
        torch.testing.assert_close(value, wanted)


def numbers(*shape: int) -> Tensor:
    return torch.arange(torch.Size(shape).numel()).reshape(shape).float() + 1


@dataclass
class Output:
    hidden: Tensor
    pair: tuple[Tensor, int]
    rest: dict[str, Tensor | None]


torch.utils._pytree.register_dataclass(Output)


def test_results_have_the_structure_of_the_model():
    """Dataclasses, tuples, dicts, None and numbers, as the model returns them."""

    def model(x):
        return Output(x + 1, (x * 2, 7), {"none": None, "sum": x.sum()})

    x = numbers(2, 3)
    same(on_the_cpu(imported(model, x), x), model(x))


def test_inputs_have_the_structure_of_the_model():
    def model(pair, options):
        return pair[0] * options["scale"] + pair[1]

    inputs = ((numbers(3), numbers(3)), {"scale": numbers(1)})
    same(on_the_cpu(imported(model, *inputs), *inputs), model(*inputs))


def test_keyword_inputs_in_any_order():
    """Keyword inputs have names in the program, too, and omitted inputs have their defaults."""

    def model(x, *, scale=None, offset, shift=1.0):
        return x * scale - offset + shift

    x, scale, offset = numbers(3), numbers(3) * 2, numbers(1)
    program = imported(model, offset=offset, x=x, scale=scale)
    assert [argument.name for argument in program.arguments] == ["offset", "x", "scale"]
    same(on_the_cpu(program, scale=scale, x=x, offset=offset), model(x, scale=scale, offset=offset))
    with pytest.raises(CompileError, match="takes 3 inputs, not 2"):
        program.bind(x=x, scale=scale)
    with pytest.raises(CompileError, match=r"inputs of the structure .*offset.*, not .*other"):
        program.bind(x=x, scale=scale, other=offset)


def test_integers_and_booleans():
    def model(x, mask):
        return torch.where(mask, x, 0), x > 2, ~mask

    inputs = torch.arange(6).reshape(2, 3), torch.tensor([[True, False, True], [False, True, True]])
    same(on_the_cpu(imported(model, *inputs), *inputs), model(*inputs))


def test_numbers_are_those_of_the_example():
    """A program is specialised for the numbers of its example; another number is an error."""

    def model(x, n, *, name, flag=None):
        return x * n if name == "times" and flag is None else x + n

    x = numbers(3)
    program = import_torch(
        torch.export.export(_Module(model), (x, 3), {"name": "times"}), context=ir.Context()
    )
    same(on_the_cpu(program, x, 3, name="times"), x * 3)
    with pytest.raises(CompileError, match="compiled for 3 as input 1, not for 4"):
        program.bind(x, 4, name="times")
    with pytest.raises(CompileError, match="compiled for 'times' as input 2, not for 'plus'"):
        program.bind(x, 3, name="plus")
    with pytest.raises(CompileError, match="compiled for 3 as input 1, not for a tensor"):
        program.bind(x, torch.tensor(3), name="times")


class _Module(nn.Module):
    """A function as a module, for torch.export."""

    def __init__(self, function: Callable) -> None:
        super().__init__()
        self.forward = function


def test_an_input_with_the_name_of_a_parameter():
    """Input and parameter keep their data."""

    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.x = nn.Parameter(numbers(3))

        def forward(self, x):
            return x * self.x - x

    model, x = Scaled(), numbers(3) * 3
    program = imported(model, x)
    assert sorted(argument.name for argument in program.arguments) == ["x", "x_input"]
    with torch.no_grad():
        same(on_the_cpu(program, x), model(x))


def test_inputs_that_are_returned():
    """Such results are the tensors of the caller, and views are views of them."""

    def model(x, y):
        return x, y + 1, x.T, x[1:, None].expand(1, 4, 3)

    x, y = numbers(2, 3), numbers(3)
    program = imported(model, x, y)
    assert [result.shape for result in program.signature.results] == [(3,)]
    result = on_the_cpu(program, x, y)
    same(result, model(x, y))
    assert result[0] is x
    x.zero_()
    assert not result[2].any() and not result[3].any()


def test_a_view_of_an_input_that_lies_in_another_way():
    """The reshape is a view of the example, and a copy of an input whose rows are columns."""

    def model(x):
        return x.reshape(-1), x + 1

    program = imported(model, numbers(2, 3))
    x = numbers(3, 2).T
    same(on_the_cpu(program, x), model(x))


def test_results_that_share_memory():
    """Several views of one result are views of one tensor; a view that is alone is computed."""

    def model(x):
        y, z = x + 1, x * 2
        first, second = y.chunk(2)
        return first, second, y, z.T, y

    x = numbers(4, 3)
    program = imported(model, x)
    assert [result.shape for result in program.signature.results] == [(4, 3), (3, 4)]
    result = on_the_cpu(program, x)
    same(result, model(x))
    assert result[2] is result[4]
    result[2].zero_()
    assert not result[0].any() and not result[1].any()


def test_state_that_is_returned():
    """A result is the parameter or the view of a buffer of the module itself; a constant is new in each call."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(numbers(3))
            self.register_buffer("table", numbers(4))

        def forward(self, x):
            return x + 1, self.weight, self.table[:2], torch.arange(2)

    model, x = Model(), numbers(3)
    program = imported(model, x)
    result = on_the_cpu(program, x)
    assert result[1] is model.weight
    model.table.zero_()
    assert not result[2].any()
    result[3].zero_()
    assert on_the_cpu(program, x)[3].tolist() == [0, 1]


class Counter(nn.Module):
    """Buffers that each call changes: a sum, a count, and the last input, whose old value does not matter."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("sum", torch.zeros(2, 3))
        self.register_buffer("count", torch.zeros((), dtype=torch.long), persistent=False)
        self.register_buffer("last", torch.zeros(2, 3))

    def forward(self, x):
        self.sum.add_(x)
        self.count += 1
        self.last.copy_(x)
        return self.sum, self.sum[0], x * 2


def test_buffers_that_change():
    """Each call reads the buffers after the previous call, and the module has the new values, as in PyTorch."""
    model = Counter()
    eager, program = copy.deepcopy(model), imported(model, numbers(2, 3))
    for factor in (1, 2, 3):
        x = numbers(2, 3) * factor
        same(on_the_cpu(program, x), eager(x))
        for (name, buffer), (_, wanted) in zip(model.named_buffers(), eager.named_buffers(), strict=True):
            torch.testing.assert_close(buffer, wanted, msg=name)


def test_buffers_that_change_are_inputs_behind_the_others():
    """The inputs of the model keep their positions, and the compiler knows that they are not weights."""
    program = imported(Counter(), numbers(2, 3))
    assert [(argument.name, argument.kind) for argument in program.arguments] == [
        ("x", "input"),
        ("sum", "input"),
        ("count", "input"),
    ]


def test_inputs_that_change():
    """A cache that is given and updated in place, at a position that is given, too."""

    def model(cache, new, position):
        cache["keys"].index_copy_(1, position, new)
        cache["scale"].mul_(2)
        return cache["keys"].sum(1), cache["keys"]

    def inputs():
        return {"keys": numbers(2, 5, 3), "scale": numbers(1)}, numbers(2, 1, 3) * 100, torch.tensor([3])

    program = imported(model, *inputs())
    given, expected = inputs(), inputs()
    result = on_the_cpu(program, *given)
    same(result, model(*expected))
    same(given, expected)
    assert result[1] is given[0]["keys"]


def test_inputs_that_change_places():
    """The new value of each input is the old value of the other; a kept old value is a separate tensor."""

    def model(x, y, z):
        old = x.clone()
        x.copy_(y)
        y.copy_(old)
        z.copy_(x)
        return old, x, z + 1

    inputs, expected = ([numbers(3) * factor for factor in (1, 2, 3)] for _ in range(2))
    result = on_the_cpu(imported(model, *inputs), *inputs)
    same(result, model(*expected))
    same(inputs, expected)
    assert result[0] is not inputs[1]


def test_changes_of_what_lies_in_one_memory():
    """Arguments of the program are separate, so a change of one would not be visible in the other."""
    program = imported(lambda x, y: x.add_(y), numbers(3), numbers(3))
    x = numbers(3)
    with pytest.raises(CompileError, match="changes 'x' in place, but 'y' lies in the same memory"):
        program.bind(x, x[:])


def test_changes_of_what_is_on_the_device():
    program = imported(lambda x, y: x.add_(y), numbers(3), numbers(3))
    x = to_device(numbers(3).numpy())
    program.bind(x, numbers(3)).finish([(numbers(3) * 3).numpy()])
    assert torch.equal(x.cpu(), numbers(3) * 3)
    with pytest.raises(CompileError, match="changes 'x' in place, but 'y' lies in the same memory"):
        program.bind(x, x)


def test_nothing_to_compile():
    """A model that only looks at its inputs has no function."""
    assert imported(lambda x: x.T, numbers(2, 3)).module is None


def test_results_of_one_operation():
    """The parts of a split are views of its operand; the results of a norm are separate tensors."""

    def model(x):
        return (*torch.native_layer_norm(x, [4], None, None, 1e-5), *(x + 1).split(2))

    x = numbers(4, 4)
    program = imported(model, x)
    assert [result.shape for result in program.signature.results] == [(4, 4), (4, 1), (4, 1), (4, 4)]
    same(on_the_cpu(program, x), model(x))


def test_examples_that_are_one_tensor_are_two_inputs() -> None:
    """torch.export would use the second input for both."""
    x, y = torch.ones(4, 64).half(), torch.full((4, 64), 3.0).half()
    program = spyre_mlir.compile(lambda a, b: a - b, (x, x))
    assert torch.equal(program(x, y), x - y)
