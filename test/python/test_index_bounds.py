# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Indices that the device only compares with positions: the host checks their range, in a program and in its folder."""

import numpy as np
import pytest
import torch

import spyre_mlir
from spyre_mlir.driver.program import Program
from spyre_mlir.errors import CompileError
from spyre_mlir.frontend.exported import export

X = torch.arange(128.0).reshape(8, 16).half()


def _index_put(x, index):
    return x.index_put((index,), torch.ones(1, 16).half())


def _scatter(x, index):
    return x.scatter(0, index.reshape(1, 1).expand(1, 16), 1.0)


def _scatter_add(x, index):
    return x.scatter_add(-1, index.reshape(1, 1).expand(8, 1), torch.ones(8, 1).half())


def _index_copy(x, index):
    return x.index_copy(0, index, torch.ones(1, 16).half())


def _one_hot(x, index):
    return x[:1] * torch.nn.functional.one_hot(index, 16)


def _in_place(x, index):
    y = x * 2
    y[:, index] = 0.0
    return y


USES = {
    "index_put": (_index_put, 8),
    "scatter": (_scatter, 8),
    "scatter_add": (_scatter_add, 16),
    "index_copy": (_index_copy, 8),
    "one_hot": (_one_hot, 16),
    "index_put in place": (_in_place, 16),
}


@pytest.mark.parametrize("name", USES)
def test_an_index_out_of_range_is_an_error_that_names_operation_index_and_bound(name):
    """The last index is valid; the next index, and a huge one, are errors instead of silent writes."""
    function, size = USES[name]
    program = spyre_mlir.compile(function, (X, torch.tensor([1])))
    last = torch.tensor([size - 1])
    assert torch.equal(program(X, last), function(X, last).to(program(X, last).dtype))
    for index in (size, 10**6, -size - 1):
        with pytest.raises(CompileError, match=rf"{index} .*aten\.{name.split()[0]}.* to {size - 1}"):
            program(X, torch.tensor([index]))


def test_the_folder_of_a_program_keeps_the_bounds(tmp_path):
    """A loaded program has the checks of the program that was saved."""
    spyre_mlir.compile(_index_put, (X, torch.tensor([1]))).save(tmp_path / "p")
    program = Program.load(tmp_path / "p")
    with pytest.raises(CompileError, match="its element 8 is out of range"):
        program(X.numpy(), np.array([8]))


def test_an_index_that_the_model_holds_is_checked_when_it_is_compiled():
    """A buffer with an index out of range never becomes a program."""

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("index", torch.tensor([9]))

        def forward(self, x):
            return _index_put(x, self.index)

    with pytest.raises(CompileError, match=r"'index' holds 9, .*aten\.index_put, which takes -8 to 7"):
        spyre_mlir.compile(Model(), (X,))


def test_a_part_of_an_argument_bounds_only_itself():
    """Elements that are not used as indices may be any number."""

    def function(x, index):
        return _index_put(x, index[:1])

    index = torch.tensor([3, 1000])
    assert torch.equal(spyre_mlir.compile(function, (X, index))(X, index), function(X, index))


def test_two_uses_leave_the_narrower_range():
    """An index of 8 rows and of 16 columns is one of 8."""

    def function(x, index):
        return _index_put(x, index) + _in_place(x, index)

    program = spyre_mlir.compile(function, (X, torch.tensor([1])))
    with pytest.raises(CompileError, match="-8 to 7"):
        program(X, torch.tensor([12]))


#: Models that compute an index of 8 rows: its operation, and an argument for which it is 8.
COMPUTED = {
    "scatter": (lambda x, i: x.scatter(0, (i * 2).reshape(1, 1).expand(1, 16), 1.0), 4),
    "index_put": (lambda x, i: x.index_put((i * i - 1,), torch.ones(1, 16).half()), 3),
    "index_add": (lambda x, i: x.index_add(0, torch.cat([i, i + 1])[1:], torch.ones(1, 16).half()), 7),
    "index_copy": (lambda x, i: x.index_copy(0, i.repeat(2)[:1] * 4, torch.ones(1, 16).half()), 2),
    "one_hot": (lambda x, i: x[:, :8] * torch.nn.functional.one_hot(i + i, 8), 4),
    "argmax": (lambda x, i: x.scatter(0, (x + i).argmax(0, keepdim=True) + 1, 1.0), 0),
}


# A part of the program runs on the host; test_host_work_warning.py tests the warning.
@pytest.mark.filterwarnings("ignore::spyre_mlir.HostWorkWarning")
@pytest.mark.parametrize("name", COMPUTED)
def test_a_computed_index_out_of_range_is_an_error(name):
    """The bound of the argument does not apply to a computed index, so the host checks the index itself."""
    function, wrong = COMPUTED[name]
    program = spyre_mlir.compile(function, (-X if name == "argmax" else X, torch.tensor([1])))
    right = -X if name == "argmax" else X
    assert torch.equal(program(right, torch.tensor([1])), function(right, torch.tensor([1])))
    with pytest.raises(CompileError, match="index 8 of dim 0, which has the indices 0 to 7"):
        program(X, torch.tensor([wrong]))


def lookups(function, index) -> int:
    """The indices that the host looks up because the model computes them."""
    graph = export(function, (X, index)).graph
    return sum(node.target is torch.ops.aten.gather.default for node in graph.nodes)


def test_positions_from_a_start_are_looked_up():
    """The rows of a cache, from a start that is an argument."""

    def write(x, start):
        return x[:3] * torch.nn.functional.one_hot(torch.arange(3) + start, 16)

    assert lookups(write, torch.tensor(5)) == 1
    program = spyre_mlir.compile(write, (X, torch.tensor(5)))
    assert torch.equal(program(X, torch.tensor(13)), write(X, torch.tensor(13)))
    with pytest.raises(CompileError, match="index 16 of dim 0, which has the indices 0 to 15"):
        program(X, torch.tensor(14))


@pytest.mark.parametrize(
    "index",
    [
        lambda i: i % 8, lambda i: i.clamp(0, 7), lambda i: torch.where(i > 3, 7, torch.zeros_like(i)),
        lambda i: (i + torch.arange(8)).argmax(0, keepdim=True),
    ],
)  # fmt: skip
def test_an_index_that_is_in_range_whatever_the_argument_is_not_checked(index):
    def function(x, i):
        return x * torch.nn.functional.one_hot(index(i), 8).T

    assert lookups(function, torch.tensor([1])) == 0
    program = spyre_mlir.compile(function, (X, torch.tensor([1])))
    assert torch.equal(program(X, torch.tensor([100])), function(X, torch.tensor([100])))
