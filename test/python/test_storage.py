# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Views that are written through, and those that address a storage, give the model's numbers or an error."""

from __future__ import annotations

import pytest
import torch
from torch.fx import Interpreter

import spyre_mlir
from spyre_mlir.errors import CompileError
from spyre_mlir.frontend import storage
from spyre_mlir.frontend.decomposed import _PROVEN
from spyre_mlir.frontend.exported import export_graph
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
    "broadcast_to": lambda y: torch.broadcast_to(y, (1, 6, 8))[0, 1],
    "unfold": lambda y: y.unfold(0, 3, 1)[:, :, 2],
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
    """Return the results of the exported graph of a model, run operation by operation in PyTorch."""
    exported = export_graph(model, (x.clone(),))
    for node in exported.graph_module.graph.find_nodes(
        op="call_function", target=torch.ops.aten.view.default
    ):
        # Tensors of a program have no strides.
        node.target = torch.ops.aten.reshape.default
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


#: Writes in place through a view of at least two rows.
WRITES = {
    "zero": lambda v: v.zero_(),
    "fill": lambda v: v.fill_(torch.tensor(5.0)),
    "add": lambda v: v.add_(1),
    "copy": lambda v: v.copy_(torch.arange(v.numel()).reshape(v.shape)),
    "row": lambda v: v.__setitem__(1, 9),
    "index_copy": lambda v: v.index_copy_(0, torch.tensor([1]), torch.full((1, *v.shape[1:]), 8.0)),
    "index_put": lambda v: v.index_put_((torch.tensor([1, 0]),), torch.tensor(6.0)),
    "masked_fill": lambda v: v.masked_fill_(v > 0, 1),
    "out": lambda v: torch.mul(v.clone(), 3, out=v),
}
#: Views whose elements share memory, and views of these, of a tensor [6, 8].
SHARING = {
    "copies": lambda y: y.expand(3, 6, 8),
    "some copies": lambda y: y[None].expand(3, 6, 8)[1:],
    "one copy": lambda y: y.expand(3, 6, 8)[1],
    "a copy of a transpose": lambda y: y.t().expand(2, 8, 6)[1, 2:],
    "copies of a diagonal": lambda y: torch.broadcast_to(y.diagonal(), (3, 6)),
    "windows": lambda y: y.unfold(0, 3, 1),
    "one element of each window": lambda y: y.unfold(0, 3, 1)[:, :, 2],
    "one window": lambda y: y.unfold(0, 3, 1)[2],
    "windows with gaps": lambda y: y.unfold(1, 2, 3),
    "a part of windows": lambda y: y.unfold(1, 4, 2).split(2, 1)[1][..., 0],
    "memory in steps": lambda y: y.as_strided((5, 4), (2, 1)),
}


@pytest.mark.parametrize("name", SHARING)
def test_writes_through_views_that_share_memory_are_right_or_refused(name):
    """Numbers that a difference does not keep are among those that are not written."""

    def model(x, view, write):
        # An input, or a result.
        y = x if list(WRITES.values()).index(write) % 2 else x * 1
        written = view(y)
        write(written)
        return y * 1, written * 1

    x = example()
    x[0, 0], x[2, 3], x[5, 7] = float("inf"), 1e-9, 3e7
    for write_name, write in WRITES.items():
        theirs, ours = x.clone(), x.clone()
        try:
            expected = model(theirs, SHARING[name], write)
        except RuntimeError:
            expected = None
        try:
            actual = eager(lambda x, write=write: model(x, SHARING[name], write), ours)
        except CompileError as error:
            sharing = name in ("copies", "some copies", "copies of a diagonal", "windows", "memory in steps")
            assert expected is None or (sharing and write_name not in ("zero", "fill")), (
                f"{write_name}: {error}"
            )
            continue
        assert expected is not None and all(map(torch.equal, expected, actual)), write_name
        assert torch.equal(theirs, ours), write_name


def test_an_input_whose_elements_share_memory_is_not_changed():
    program = spyre_mlir.compile(lambda x: x.add_(1) * 2, (example(),))
    with pytest.raises(CompileError, match="elements of the given tensor share memory"):
        program(torch.zeros(1, 8).expand(6, 8))


ONE_ELEMENT = {
    "the tensor itself": lambda c: c.to(c.device).add_(7),
    "memory": lambda c: c.as_strided((), ()).add_(7),
    "memory of one element": lambda c: c.as_strided((1, 1), (1, 1)).add_(7),
    "an expanded dim": lambda c: c.expand(1).add_(2),
    "no dims": lambda c: c.expand(()).mul_(2),
    "a copy": lambda c: c.reshape(1).expand(3)[1].add_(2),
    "read": lambda c: c.as_strided((3,), (0,)) * 2,
}


@pytest.mark.parametrize("name", ONE_ELEMENT)
def test_views_of_a_tensor_without_dims(name):
    """Sizes in caches are such tensors; torch-mlir ended the process on some of these."""

    def model(c, x):
        return x + c * 1, ONE_ELEMENT[name](c) + x[0, :3].sum(), x + c

    x, (ours, theirs) = example(), (torch.tensor(3) for _ in range(2))
    made = spyre_mlir.compile(model, (ours.clone(), x))(ours, x)
    assert all(map(torch.equal, made, model(theirs, x))) and torch.equal(ours, theirs)


def test_a_write_that_a_gradient_would_lose_is_refused():
    def model(x, w):
        x.expand(3, 6, 8)[0:3].zero_()
        return x * w

    compiled = torch.compile(model, backend="spyre")
    assert torch.equal(compiled(example(), torch.ones(8)), torch.zeros(6, 8))
    torch._dynamo.reset()
    with pytest.raises(CompileError, match="zero_ writes to a view by expand or unfold"):
        compiled(example(), torch.ones(8, requires_grad=True))


def test_every_view_that_counts_as_proven_is_tested():
    assert set(VIEWS) == _PROVEN


def test_a_view_that_pytorch_forgets_is_written_or_refused_with_its_operation_and_line(monkeypatch):
    """The second check refuses writes that the rewriting misses."""

    def model(x):
        y = x * 2
        y.unsafe_chunk(2)[1].neg_()
        return y

    assert torch.equal(spyre_mlir.compile(model, (example(),))(example()), model(example()))
    monkeypatch.setattr(storage, "_write_exactly", lambda *_: None)
    with pytest.raises(CompileError, match=r"test_storage\.py:\d+.*unsafe_chunk") as caught:
        spyre_mlir.compile(model, (example(),), cache=False)
    assert "write to another view" in caught.value.message


def test_dropout_outside_training_is_its_operand():
    """Writes to the result of the dropout are therefore writes to its operand."""

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
        lambda x: torch.as_strided_copy(x[1:, 2:], (2, 3), (8, 1), 5)[1].add_(1),
        lambda x: torch.as_strided_copy(x[0, 0].neg(), (1,), (1,)) * 2,
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


#: Operations whose forms may compute a view of a larger tensor, which PyTorch's kernels do not return.
RESULTS = {
    "kthvalue": lambda x: x.kthvalue(3, 1).values,
    "median": lambda x: x.median(1).values,
    "topk": lambda x: x.topk(2, 1).values,
    "max": lambda x: x.max(1).values,
    "flip": lambda x: x.flip(1),
    "roll": lambda x: x.roll(1, 1),
    "einsum": lambda x: torch.einsum("abc,adc->dba", x, x),
    "repeat_interleave": lambda x: x.repeat_interleave(2, 1),
}


@pytest.mark.parametrize("operation", RESULTS)
def test_results_of_operations_are_written_through_views(operation: str) -> None:
    def model(x):
        results = []
        for write in (lambda y: y.flatten()[::3].mul_(2), lambda y: y.transpose(0, -1)[0].add_(1)):
            y = RESULTS[operation](x)
            write(y)
            results.append(y)
        return results

    x = torch.randn(3, 4, 5, generator=torch.Generator().manual_seed(0)).half()
    for got, expected in zip(spyre_mlir.compile(model, (x,))(x), model(x), strict=True):
        torch.testing.assert_close(got, expected, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_results_whose_sizes_differ_from_their_form_without_numbers(mode):
    """PyTorch's form of ``embedding_bag`` without numbers gives sizes that its kernel of the CPU does not give."""
    table = torch.rand(64, 8).half().requires_grad_()
    bags = torch.tensor([[1, 2, 3, 2], [5, 0, 2, 2]])
    wanted = torch.nn.functional.embedding_bag(bags, table, mode=mode)
    got = torch.nn.functional.embedding_bag(
        bags.to("spyre"), table.detach().to("spyre").requires_grad_(), mode=mode
    )
    torch.testing.assert_close(got.cpu(), wanted, rtol=2e-3, atol=2e-3)
