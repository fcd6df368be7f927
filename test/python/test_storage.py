# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Views that are written through, and those that address a storage, give the model's numbers or an error."""

from __future__ import annotations

import pytest
import torch
from torch.fx import Interpreter

import spyre_mlir
from spyre_mlir.errors import CompileError
from spyre_mlir.frontend.exported import export_graph
from spyre_mlir.frontend.functional import _PROVEN
from spyre_mlir.frontend.signature import to_numpy

#: By the operation, a view of a tensor [6, 8] to be written through.
VIEWS = {
    "alias": lambda y: torch.ops.aten.alias(y)[1],
    "as_strided": lambda y: y.as_strided((2, 3), (8, 2), 5),
    "chunk": lambda y: y.chunk(3, 1)[2],
    "contiguous": lambda y: y.contiguous()[1],
    "detach": lambda y: y.detach()[0],
    "diagonal": lambda y: y.diagonal(-2, 1, 0),
    "expand": lambda y: y.unsqueeze(0).expand(1, 6, 8)[0, 1],
    "expand_as": lambda y: y[2].expand_as(y[2]),
    "flatten": lambda y: y.flatten()[::5],
    "hsplit": lambda y: y.hsplit(2)[1],
    "mT": lambda y: y.mT[1],
    "adjoint": lambda y: y.adjoint()[1],
    "movedim": lambda y: y.movedim(0, 1)[3],
    "narrow": lambda y: y.narrow(1, 2, 3),
    "numpy_T": lambda y: y.T[3],
    "permute": lambda y: y.permute(1, 0)[2],
    "reshape": lambda y: y.reshape(48)[3:9],
    "reshape_as": lambda y: y.reshape_as(torch.empty(4, 12))[1],
    "select": lambda y: y.select(0, -1),
    "slice": lambda y: y[1:, 1::3],
    "split": lambda y: y.split(3, 1)[1],
    "split_with_sizes": lambda y: y.split([1, 2, 5], 1)[2],
    "squeeze": lambda y: y[0:1].squeeze(),
    "swapaxes": lambda y: y.swapaxes(0, 1)[1],
    "swapdims": lambda y: y.swapdims(0, 1)[1, 2],
    "t": lambda y: y.t()[1],
    "tensor_split": lambda y: y.tensor_split(3, 1)[1],
    "transpose": lambda y: y.transpose(0, 1)[2:4],
    "unbind": lambda y: y.unbind(1)[2],
    "unflatten": lambda y: y.unflatten(1, (2, 4))[:, 1],
    "unsqueeze": lambda y: y.unsqueeze(1)[2],
    "view": lambda y: y.view(3, 16)[1],
    "view_as": lambda y: y.view_as(torch.empty(4, 12))[0],
    "vsplit": lambda y: y.vsplit(2)[1],
}
#: Views that are proven by being rewritten.
REWRITTEN = {
    "windows of rows": lambda y: y.unfold(0, 1, 3),
    "windows that end before the dim does": lambda y: y.unfold(1, 2, 3),
    "windows that cover it": lambda y: y.unfold(-1, 2, 2),
    "windows of windows": lambda y: y.unfold(0, 2, 2).unfold(1, 2, 2)[0],
    "the storage of a transpose": lambda y: y.t().as_strided((2, 3), (8, 1)),
    "the storage of a slice, from its start": lambda y: y[1:].as_strided((2, 3), (8, 1)),
    "the storage of windows": lambda y: y.unfold(0, 1, 3).as_strided((2, 3), (8, 1)),
}


def example() -> torch.Tensor:
    return torch.randn(6, 8, generator=torch.Generator().manual_seed(3))


def eager(model, x: torch.Tensor):
    """What the exported graph of a model gives, operation by operation in PyTorch."""
    exported = export_graph(model, (x.clone(),))
    call = exported.signature.bind((x,), {})
    operands = [call._operand(argument) for argument in exported.signature.arguments]
    with torch.no_grad():
        return call.finish([to_numpy(each) for each in Interpreter(exported.graph_module).run(*operands)])


def written(view, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    window = view(y)
    window.add_(torch.arange(window.numel()).reshape(window.shape))
    return y + 1, window * 3


def test_a_tensor_that_is_written_through_a_proven_view_keeps_the_rest():
    def model(x):
        return {name: written(view, x * 2) for name, view in VIEWS.items()}

    expected = model(example())
    for name, values in eager(model, example()).items():
        assert all(map(torch.equal, values, expected[name])), name


@pytest.mark.parametrize("name", REWRITTEN)
def test_a_tensor_that_is_written_through_a_rewritten_view_keeps_the_rest(name):
    def model(x):
        return written(REWRITTEN[name], x * 2), written(REWRITTEN[name], x)

    ours, theirs = example(), example()
    for one, other in zip(eager(model, ours), model(theirs), strict=True):
        assert all(map(torch.equal, one, other))
    assert torch.equal(ours, theirs)


def test_every_view_that_counts_as_proven_is_tested():
    assert set(VIEWS) == _PROVEN


def test_a_view_that_pytorch_forgets_is_refused_with_its_operation_and_line():
    def model(x):
        y = x * 2
        y.unsafe_chunk(2)[1].neg_()
        return y

    with pytest.raises(CompileError, match=r"test_storage\.py:\d+.*unsafe_chunk") as caught:
        spyre_mlir.compile(model, (example(),))
    assert "write without it" in caught.value.message


def test_dropout_outside_training_is_its_operand():
    """So what is written there is written in the operand."""

    def model(x):
        y = x * 2
        torch.nn.functional.dropout(y, 0.5, training=False)[1].neg_()
        return y

    assert torch.equal(eager(model, example()), model(example()))


@pytest.mark.parametrize(
    "view",
    (
        lambda x: x.unfold(0, 3, 1).as_strided((2, 3), (1, 2)),
        lambda x: x.t().as_strided((2, 3), (1, 2), 4),
        lambda x: (x.t() * 2).as_strided((2, 3), (1, 9)),
        lambda x: x[1:, 2:].as_strided((2, 3), (8, 1)),
    ),
)
def test_as_strided_addresses_the_storage_and_not_the_view(view):
    x = example()
    assert torch.equal(spyre_mlir.compile(view, (x,))(x), view(x))


def test_as_strided_of_an_input_with_more_storage_is_refused():
    """The rest of the memory of an input does not reach the program."""
    with pytest.raises(CompileError, match="contiguous"):
        spyre_mlir.compile(lambda x: x.as_strided((6, 8), (8, 1), 0) * 2, (example()[:, :4],))


def test_windows_that_are_written_are_right_on_the_device():
    def model(x):
        y = x * 2
        y.unfold(0, 1, 3).neg_()
        return y

    x = example().half()
    assert torch.equal(spyre_mlir.compile(model, (x,))(x), model(x))
