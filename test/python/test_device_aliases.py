# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Aliases of tensors on the device "spyre": sizes, strides, numbers and sharing of views are the ones of PyTorch.

Each view operator runs eagerly and as a view of an input, of an intermediate tensor and of another result of a graph.
"""

from __future__ import annotations

import copy
import io
import warnings
from collections.abc import Callable
from typing import Any, cast

import pytest
import torch
from torch._dynamo import trace_rules
from torch.utils import _pytree as pytree
from torch.utils.dlpack import to_dlpack

import spyre_mlir
from spyre_mlir import CompileError
from spyre_mlir.errors import FallbackWarning
from spyre_mlir.frontend import eager, hints, operations, torch_device
from spyre_mlir.frontend.torch_device import SpyreTensor
from spyre_mlir.layout import strided
from spyre_mlir.layout.strided import StridedView
from spyre_mlir.tensors.device_tensor import DeviceTensor, to_device
from spyre_mlir.tensors.device_views import ViewStep

#: View operators of a tensor of 4 x 6 x 10; some return several views.
VIEWS: dict[str, Callable[[torch.Tensor], Any]] = {
    "slice": lambda x: x[..., 3:], "slice with a step": lambda x: x[:, 1::2, ::3],
    "chunk": lambda x: x.chunk(3, -1), "split": lambda x: x.split([7, 3], -1),
    "tensor_split": lambda x: x.tensor_split(4, 1), "unbind": lambda x: x.unbind(1),
    "select": lambda x: x.select(1, 2), "expand": lambda x: x[:, :1].expand(4, 5, 10),
    "expand of a new dim": lambda x: x[:, None].expand(4, 3, 6, 10),
    "broadcast_to": lambda x: x[0, 0].broadcast_to(2, 10),
    "meshgrid": lambda x: torch.meshgrid(x[0, 0], x[1, :, 0], indexing="ij"),
    "transpose": lambda x: x.transpose(0, 2), "permute": lambda x: x.permute(2, 0, 1), "T": lambda x: x[0].T,
    "mT": lambda x: x.mT, "narrow": lambda x: x.narrow(1, 2, 3), "unfold": lambda x: x.unfold(2, 4, 3),
    "unfold with overlap": lambda x: x.unfold(1, 3, 1), "diagonal": lambda x: x.diagonal(1, 1, 2),
    "as_strided": lambda x: x.as_strided((3, 5), (20, 2), 7), "view": lambda x: x.view(8, 3, 10),
    "reshape": lambda x: x.reshape(-1, 15), "squeeze": lambda x: x[:, :1].squeeze(1),
    "unsqueeze": lambda x: x[:, 2:].unsqueeze(1), "flatten": lambda x: x[1:].flatten(),
    "unflatten": lambda x: x.unflatten(1, (2, 3)), "movedim": lambda x: x.movedim(0, -1),
    "swapaxes": lambda x: x.swapaxes(0, 1)[2:], "view of a view": lambda x: x.transpose(0, 1)[1:4, 2],
    "view_as": lambda x: x.view_as(torch.empty(24, 10)), "hsplit": lambda x: x.hsplit(2),
    "the tensor itself": lambda x: x, "detach": lambda x: x.detach(), "one element": lambda x: x[1, 2, 3],
}  # fmt: skip


def numbers() -> torch.Tensor:
    return torch.arange(240).reshape(4, 6, 10).half() / 8


def leaves(value: Any) -> list[torch.Tensor]:
    return [leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def same(made: torch.Tensor, expected: torch.Tensor) -> None:
    """On the device, with numbers, sizes and strides of PyTorch, by every way to the host."""
    assert isinstance(made, SpyreTensor) and made.device.type == "spyre"
    assert (made.shape, made.dtype) == (expected.shape, expected.dtype)
    used = [
        (one, other)
        for one, other, size in zip(made.stride(), expected.stride(), made.shape, strict=True)
        if size > 1
    ]
    assert all(one == other for one, other in used), (made.stride(), expected.stride())
    assert torch.equal(made.cpu(), expected) and torch.equal(made.to("cpu"), expected)
    assert made.tolist() == expected.tolist() and (made.numpy(force=True) == expected.numpy()).all()
    copied = torch.empty(made.shape, dtype=made.dtype, device="spyre").copy_(made)
    assert torch.equal(copied.cpu(), expected)


def check(run: Callable[[torch.Tensor], Any], function: Callable[[torch.Tensor], Any], view: Any) -> None:
    """Compare the results of ``run`` on the device, and writes through them, with the function on the host."""
    x, host = numbers().to("spyre"), numbers()
    made, expected = leaves(run(x)), leaves(function(host))
    assert len(made) == len(expected)
    for one, other in zip(made, expected, strict=True):
        same(one, other)
    one, other = made[0], expected[0]
    same(one.clone(), other.clone())
    assert repr(other)[:-1].split(", dtype")[0] in repr(one)
    assert torch.equal((one + 1).cpu(), other + 1)
    # PyTorch refuses to write where elements share memory.
    if view not in ("expand", "expand of a new dim", "broadcast_to", "meshgrid", "unfold with overlap"):
        for index, (one, other) in enumerate(zip(made, expected, strict=True)):
            one.copy_(torch.full_like(one, index))
            other.copy_(torch.full_like(other, index))
            for result, wanted in zip((x, *made), (host, *expected), strict=True):
                assert torch.equal(result.cpu(), wanted)


@pytest.mark.parametrize("name", VIEWS)
def test_eager_views(name: str) -> None:
    check(VIEWS[name], VIEWS[name], name)


@pytest.mark.parametrize("name", VIEWS)
def test_views_from_a_graph(name: str) -> None:
    """Views of an input, of a result, and of a tensor that is not a result."""
    view = VIEWS[name]

    def function(x: torch.Tensor) -> Any:
        y = x * 2
        return view(x), view(y), y, view(x + 1)

    torch._dynamo.reset()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check(torch.compile(function), function, name)


@pytest.mark.parametrize("backend", ("eager", "aot_eager", "inductor", "spyre"))
def test_every_backend_computes_on_the_device(backend: str) -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> Any:
        y.mul_(2)
        z = torch.softmax(x.float(), -1).half() + 1
        return x[1:], z.transpose(0, 1)[2:], z, y[:, 1], torch.zeros(3, device=x.device)

    # The second input is a view, which a compiler decomposes.
    host, x = numbers(), numbers().to("spyre")
    changed, y = numbers()[:, 1:], numbers().to("spyre")[:, 1:]
    torch._dynamo.reset()
    expected = function(host, changed)
    made = torch.compile(function, backend=backend)(x, y)
    for one, other in zip(made, expected, strict=True):
        assert isinstance(one, SpyreTensor) and one.stride() == other.stride()
        torch.testing.assert_close(one.cpu(), other, rtol=1e-2, atol=1e-2)
    assert torch.equal(y.cpu(), changed)
    made[0].zero_()
    assert not x[1:].cpu().any() and x[:1].cpu().any()


@pytest.mark.filterwarnings(
    "ignore:A window was not provided",
    "ignore::spyre_mlir.PassWarning",
    "ignore::spyre_mlir.HostWorkWarning",
    "ignore::spyre_mlir.FallbackWarning",
)
def test_operations_of_a_graph_with_complex_numbers_run_one_by_one() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.view_as_real(torch.stft(x, 16, return_complex=True)) * 2

    x = torch.linspace(-1, 1, 100)
    torch._dynamo.reset()
    with pytest.warns(FallbackWarning, match="complex"):
        made = torch.compile(function)(x.to("spyre"))
    torch.testing.assert_close(made.cpu(), function(x), atol=1e-4, rtol=1e-3)


def test_graphs_change_and_return_tensors_of_the_host() -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> Any:
        y.add_(1)
        return y[:, 1], x.cpu()[1:], x + 1

    x, y = numbers().to("spyre"), numbers().transpose(0, 1)
    expected = y + 1
    torch._dynamo.reset()
    view, copied, _ = torch.compile(function)(x, y)
    assert (
        torch.equal(y, expected) and torch.equal(view, expected[:, 1]) and torch.equal(copied, numbers()[1:])
    )
    view.zero_()
    copied.zero_()
    assert not y[:, 1].any() and torch.equal(x.cpu(), numbers())


# -- one constructor ------------------------------------------------------------------------------------------


def test_assigned_data_is_the_data() -> None:
    x, y = numbers().to("spyre"), (numbers() * 2).to("spyre")
    view = x[1:]
    x.data = y[:2]
    same(x, numbers()[:2] * 2)
    same(x + 1, numbers()[:2] * 2 + 1)
    y.zero_()
    assert not x.cpu().any() and torch.equal(view.cpu(), numbers()[1:])
    with pytest.raises(
        CompileError, match="The data of a tensor on spyre is a tensor on spyre, not one on cpu"
    ):
        x.data = numbers()
    with pytest.raises(RuntimeError, match="incompatible tensor type"):
        numbers().data = y


def test_changes_of_sizes_in_place_keep_the_memory() -> None:
    for device in ("spyre", "cpu"):
        x = torch.arange(16.0).reshape(4, 4).to(device)
        view, whole = x[0], x.view(16)
        x.t_().unsqueeze_(0).squeeze_()
        x.transpose_(0, 1).t_().mul_(2)
        assert (x.stride(), x.tolist()) == ((1, 4), (torch.arange(16.0).view(4, 4).t() * 2).tolist())
        assert view.tolist() == [0, 2, 4, 6] and whole.tolist() == list(range(0, 32, 2))
        x.set_(cast(Any, torch.ones(3).to(device)))
        assert x.tolist() == [1, 1, 1]
        assert x.resize_(2).tolist() == [1, 1] and x.resize_(4)[:2].tolist() == [1, 1]


def test_saved_and_copied_tensors() -> None:
    x = numbers().to("spyre").transpose(0, 1)[1:]
    file = io.BytesIO()
    module = torch.nn.Linear(6, 4).to("spyre")
    torch.save({"x": x, "module": module.state_dict()}, file)
    file.seek(0)
    loaded = torch.load(file)
    same(loaded["x"], torch.empty_like(numbers().transpose(0, 1)[1:]).copy_(numbers().transpose(0, 1)[1:]))
    assert torch.equal(loaded["module"]["weight"].cpu(), module.weight.cpu())
    one, other = copy.deepcopy((x, x[1]))
    other.zero_()
    assert not one[1].cpu().any() and one[0].cpu().any() and x[1].cpu().any()
    assert one.stride() == x.stride() and isinstance(copy.deepcopy(module).weight, torch.nn.Parameter)


def test_tensors_keep_the_strides_that_are_asked_for() -> None:
    for sizes, strides in (((2, 3), (10, 2)), ((2, 3), (0, 1)), ((2, 3), (1, 2)), ((1, 3), (7, 1))):
        made = torch.empty_strided(sizes, strides, device="spyre")
        assert made.stride() == strides and made.new_empty_strided(sizes, strides).stride() == strides
        host = torch.zeros(24).as_strided(sizes, strides)
        assert host.to("spyre").stride() == torch.empty_like(host).stride()
    channels = torch.randn(2, 3, 4, 5).to("spyre").to(memory_format=torch.channels_last)
    assert channels.stride() == (60, 1, 15, 3)


def test_views_are_inside_of_their_storage() -> None:
    tensor = to_device(torch.zeros(4, 6))
    with pytest.raises(CompileError, match=r"from element 1 on is outside its storage of 24 elements"):
        tensor.view_as(StridedView((4, 6), (6, 1), 1), ViewStep("view.default", ((4, 6),)))
    with pytest.raises(CompileError, match="outside its storage"):
        DeviceTensor.of(tensor.storage, StridedView((25,), (1,)))
    x = torch.zeros(4, 6, device="spyre")
    assert x.data_ptr() == x[:2].data_ptr() == x[1].data_ptr() - 24 != x.clone().data_ptr()
    assert x[1:, 0].untyped_storage().nbytes() == 4 * 6 * 4
    with pytest.raises(RuntimeError, match="Cannot access data pointer"):
        to_dlpack(x)
    with pytest.raises(TypeError, match=r"Use Tensor.cpu\(\)"):
        x.numpy()


# -- compilers ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", (torch.nn.LSTM, torch.nn.GRU, torch.nn.RNN))
def test_recurrent_layers_run_on_the_device(kind: Any) -> None:
    layer, x = kind(16, 8).half().eval(), torch.randn(2, 2, 16).half()
    backend: Any = spyre_mlir.torch_backend
    torch._dynamo.reset()
    backend.programs.clear()
    with torch.no_grad():
        expected = layer(x)[0]
        made = torch.compile(layer, backend="spyre")(x)[0]
        assert len(backend.programs) == 1 and not torch._dynamo.config.allow_rnn
        torch.testing.assert_close(made, expected, rtol=0.01, atol=0.01)
        made = copy.deepcopy(layer).to("spyre")(x.to("spyre"))[0]
        torch.testing.assert_close(made.cpu(), expected, rtol=0.01, atol=0.01)


def test_cells_of_recurrent_layers_have_gradients() -> None:
    layer, x = torch.nn.GRUCell(16, 8), torch.randn(3, 16)
    device = copy.deepcopy(layer).to("spyre")
    for each, value in ((layer, x), (device, x.to("spyre"))):
        each(value).sum().backward()
    assert layer.weight_ih.grad is not None and device.weight_ih.grad is not None
    torch.testing.assert_close(device.weight_ih.grad.cpu(), layer.weight_ih.grad, rtol=1e-4, atol=1e-5)


def test_dynamo_does_not_trace_the_package() -> None:
    """After a graph break Python calls the methods of tensors, which Dynamo would compile."""

    def function(x: torch.Tensor) -> Any:
        y = x + 1
        text, numbers = repr(y), y[0].tolist()
        y.data = y * 2
        return y.t(), text, numbers, f"{y[0, 0]:.1f}"

    torch._dynamo.reset()
    x = torch.ones(2, 3)
    for backend in ("spyre", "aot_eager"):
        made, text, numbers, one = torch.compile(function, backend=backend)(x.to("spyre"))
        assert torch.equal(made.cpu(), function(x)[0]) and numbers == [2, 2, 2] and one == "4.0"
        assert text.startswith("tensor([[2., 2., 2.]")
    frames = [
        trace_rules.check_file(module.__file__).skipped
        for module in (operations, torch_device, eager, strided)
    ]
    assert frames == [True] * 4 and not trace_rules.check_file(hints.__file__).skipped


def test_inputs_of_a_graph_are_views_with_dims_of_one_element() -> None:
    """The strides of such dims depend on the operations that made them."""
    x = torch.arange(64.0 * 128).reshape(64, 128).half()
    view = lambda x: x[33:60, None, 126:128].view(3, 9, 1, 2)  # noqa: E731
    torch._dynamo.reset()
    same(torch.compile(lambda x: x.unsqueeze(4))(view(x.to("spyre"))), view(x).unsqueeze(4))


def test_tensors_of_inference_have_views() -> None:
    with torch.inference_mode():
        x = numbers().to("spyre")
        same(x[1:].transpose(0, 1), numbers()[1:].transpose(0, 1))
        same((x + 1)[..., ::2], (numbers() + 1)[..., ::2])
        same(torch.compile(lambda x: (x * 2)[:, 1:3])(x), (numbers() * 2)[:, 1:3])


def test_inference_mode_has_views_of_tensors_with_gradients() -> None:
    x = torch.nn.Parameter(numbers().to("spyre"))
    with torch.inference_mode():
        views = (x.detach(), x[1:], x.mT, *x.chunk(2, 1), x.detach().transpose_(0, 1))
        same(x.view(-1) + 1, numbers().view(-1) + 1)
    assert not any(view.is_inference() for view in views)
    same(views[2], numbers().mT)
