# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The device "spyre" of PyTorch: tensors, operations, models and torch.compile on it, as on any other device."""

from __future__ import annotations

import copy
import itertools
import random
import warnings
import weakref
from collections.abc import Callable
from typing import Any, cast

import pytest
import torch
from device_chains import SHAPES, numbers, random_arithmetic, random_view, strides_of_ones_as, viewed

import spyre_mlir
from spyre_mlir import CompileError, declare_tensor_dim, name_tensor_dims, spyre_hint
from spyre_mlir.errors import FallbackWarning
from spyre_mlir.frontend import eager, host_operations
from spyre_mlir.frontend.torch_device import SpyreTensor


def close(made: torch.Tensor, expected: torch.Tensor, tolerance: float = 0.01) -> None:
    """On the device, with sizes and dtype as on the host, and nearly the numbers."""
    assert made.device == torch.device("spyre:0")
    assert (made.shape, made.dtype) == (expected.shape, expected.dtype)
    torch.testing.assert_close(made.cpu().double(), expected.double(), rtol=tolerance, atol=tolerance)


def moved(x: torch.Tensor, **layout: Any) -> torch.Tensor:
    """``x.to("spyre", stick_dims=..)``, of which the types of PyTorch know nothing."""
    return cast(Any, x).to("spyre", **layout)


def half(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape))).half()


# -- examples of RFC 0047 and of "Working Set Reduction", as written --------------------------------------------


def test_the_first_example_of_working_set_reduction():
    M, K, N = 64, 256, 128

    declare_tensor_dim("M", M)
    declare_tensor_dim("K", K)
    declare_tensor_dim("N", N)

    def kernel(x, y, z):
        with spyre_hint(tiles={"M": 8}):
            with spyre_hint(tiles={"K": 4}):
                p = x @ y
            return p + z

    x = torch.rand(M, K, dtype=torch.float16).to("spyre")
    y = torch.rand(K, N, dtype=torch.float16).to("spyre")
    z = torch.rand(M, N, dtype=torch.float16).to("spyre")

    name_tensor_dims(x, ["M", "K"])
    name_tensor_dims(y, ["K", "N"])
    name_tensor_dims(z, ["M", "N"])

    made = torch.compile(kernel)(x, y, z)
    close(made, x.cpu() @ y.cpu() + z.cpu(), 0.2)
    assert "device='spyre:0'" in repr(made)


def test_the_second_example_of_working_set_reduction():
    M, K, N = 64, 256, 128
    for name, size in (("M", M), ("K", K), ("N", N)):
        declare_tensor_dim(name, size)
    y = torch.rand(K, N, dtype=torch.float16).to("spyre")
    z = torch.rand(M, N, dtype=torch.float16).to("spyre")
    name_tensor_dims(y, ["K", "N"])
    name_tensor_dims(z, ["M", "N"])

    def kernel(x_1d, y, z):
        with spyre_hint(tiles={"M": 8, "K": 4}):
            return x_1d.view(M, K) @ y + z

    x_1d = torch.rand(M * K, dtype=torch.float16).to("spyre")

    name_tensor_dims(x_1d, ["M", "K"])

    programs = []

    def backend(graph, inputs, **options):
        compiled: Any = spyre_mlir.torch_backend(graph, inputs, **options)
        programs.append(compiled.programs)
        return compiled

    made = torch.compile(kernel, backend=backend)(x_1d, y, z)
    close(made, x_1d.cpu().view(M, K) @ y.cpu() + z.cpu(), 0.2)
    (operation,) = programs[0].values()
    tiled = [remark.reason for remark in operation.program.remarks if remark.kind == "tiling"]
    assert any("8" in reason for reason in tiled) and any("4" in reason for reason in tiled)


def test_to_and_factories_take_stick_dims():
    """RFC 0047: ``to`` and the allocations of tensors are extended by the stick dims."""
    x: Any = half(512, 240)
    made = x.to("spyre", stick_dims=[0])
    assert made.device_tensor.layout == spyre_mlir.to_device(x, stick_dims=[0]).layout
    assert torch.equal(made.cpu(), x)
    again = made.to("spyre", stick_dims=[1])
    assert again.device_tensor.layout.stick_dims == (1,) and torch.equal(again.cpu(), x)
    assert torch.equal(made.restickify([1]).cpu(), x)
    with pytest.raises(CompileError, match="Stick dims require a tensor on the device"):
        x.to("cpu", stick_dims=[0])
    zeros = spyre_mlir.zeros(512, 240, dtype=torch.float16, stick_dims=[0]).torch()
    assert zeros.device.type == "spyre" and zeros.device_tensor.layout == made.device_tensor.layout


# -- tensors --------------------------------------------------------------------------------------------------


def test_factories():
    for made, expected in (
        (torch.zeros(2, 3, device="spyre"), torch.zeros(2, 3)),
        (torch.ones(2, 70, device="spyre", dtype=torch.half), torch.ones(2, 70).half()),
        (torch.full((2, 3), 2.0, device="spyre"), torch.full((2, 3), 2.0)),
        (torch.arange(5, device="spyre"), torch.arange(5)),
        (torch.arange(2, 9, 3, device="spyre"), torch.arange(2, 9, 3)),
        (torch.tensor([1.0, 2.0], device="spyre"), torch.tensor([1.0, 2.0])),
        (torch.eye(4, device="spyre"), torch.eye(4)),
        (torch.zeros_like(torch.ones(3, 4).t().to("spyre")), torch.zeros(4, 3)),
        (torch.ones(3, device="spyre").new_full((2,), 7.0), torch.full((2,), 7.0)),
    ):
        close(made, expected)
    assert torch.empty(2, 3, device="spyre").shape == (2, 3)
    torch.manual_seed(3)
    made = torch.rand(4, 5, device="spyre")
    torch.manual_seed(3)
    assert torch.equal(made.cpu(), torch.rand(4, 5))


def test_moving():
    for x in (
        half(3, 70),
        half(3, 70).t(),
        half(2, 3, 4)[:, 1],
        torch.arange(5),
        torch.tensor(2.5),
        half(3, 1).expand(3, 4),
    ):
        made = x.to("spyre")
        assert made.cpu().dtype == x.dtype and torch.equal(made.cpu(), x)
        assert made.cpu().stride() == torch.empty_like(x).stride()
        close(made.float(), x.float())
    x = torch.zeros(2, 3)
    x.copy_(torch.ones(2, 3, device="spyre"))
    assert x.sum() == 6
    assert torch.ones(2, device="spyre").tolist() == [1, 1]
    assert torch.ones(2, device="spyre")[0].item() == 1


@pytest.mark.parametrize("seed", range(60))
def test_chains_of_views(seed):
    """Sizes, strides and numbers after each view, and after an operation in every sixth chain."""
    rng = random.Random(seed)
    x = numbers(rng, rng.choice(SHAPES), rng.choice((torch.float16, torch.float32)))
    made = x.to("spyre")
    for step in range(5):
        name, arguments = random_view(rng, x)
        try:
            expected = viewed(x, name, arguments)
        except (RuntimeError, ValueError):
            continue
        copied = expected.untyped_storage().data_ptr() != x.untyped_storage().data_ptr()
        if not expected.numel() or (copied and seed % 6):
            continue
        x, made = expected, viewed(made, name, arguments)
        assert (made.shape, made.stride(), made.storage_offset()) == (x.shape, x.stride(), x.storage_offset())
        assert torch.equal(made.cpu(), x)
        if step == 2 and seed % 6 == 0:
            _, operation = random_arithmetic(rng)
            x, made = operation(x), operation(made)
            assert torch.equal(made.cpu(), x)
            x = x.as_strided(x.shape, strides_of_ones_as(x.stride(), made))


def test_what_is_changed_in_place_is_seen_by_its_views():
    x, made = torch.zeros(4, 6), torch.zeros(4, 6, device="spyre")
    for each in (x, made):
        view = each.t()[1:3]
        each.add_(1)
        each[1] = 5
        each[:, 2] *= 2
        view[0].fill_(7)
        view[1].copy_(torch.arange(4.0))
        each[2:, 4:].sub_(each[:2, 4:])
        torch.add(each[0], 1, out=each[3])
    assert torch.equal(made.cpu(), x)


# -- operations -----------------------------------------------------------------------------------------------

OPERATIONS = {
    "add": lambda x, y: x + y, "scalar": lambda x, y: 1 - x * 0.5, "matmul": lambda x, y: x @ y.t(),
    "gelu": lambda x, y: torch.nn.functional.gelu(x), "softmax": lambda x, y: torch.softmax(x, -1),
    "sums": lambda x, y: x.sum(0) + y.mean(0), "amax": lambda x, y: x.amax(-1, keepdim=True),
    "layer norm": lambda x, y: torch.nn.functional.layer_norm(x, (128,)), "cat": lambda x, y: torch.cat([x, y], 1),
    "where": lambda x, y: torch.where(x > 0, x, y), "views": lambda x, y: x.view(4, 16, 128).transpose(0, 1)[3] + 1,
    "chunks": lambda x, y: torch.mul(*x.chunk(2, -1)), "attention": lambda x, y: torch.nn.functional
    .scaled_dot_product_attention(*(each.view(1, 2, 64, 64) for each in (x, y, x))),
}  # fmt: skip


@pytest.mark.parametrize("case", OPERATIONS)
def test_operations(case):
    """No operation runs on the host."""
    x, y = half(64, 128), half(128, 64).t().contiguous()
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("error")
        made = OPERATIONS[case](x.to("spyre"), y.to("spyre"))
    close(made, OPERATIONS[case](x.double(), y.double()).half(), 0.05)


def test_a_program_is_compiled_once():
    x = half(3, 130).to("spyre")
    _ = x + x
    known = len(eager.programs)
    y = half(130, 3).t().contiguous().to("spyre")
    _ = y + y
    assert len(eager.programs) == known
    _ = moved(x, stick_dims=[0]) + 1
    assert len(eager.programs) > known


def test_gradients():
    w = torch.nn.Parameter(half(16, 64).float())
    x = half(8, 64).float()
    device = torch.nn.Parameter(w.detach().to("spyre"))
    for weight, each in ((w, x), (device, x.to("spyre"))):
        (torch.tanh(each * weight[:8]) ** 2).sum().backward()
    assert w.grad is not None and device.grad is not None
    close(device.grad, w.grad)


# -- models and torch.compile ---------------------------------------------------------------------------------


def model() -> torch.nn.Sequential:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(128, 64), torch.nn.GELU(), torch.nn.Linear(64, 8)).half()


def test_models_move():
    net, x = model(), half(64, 128)
    with torch.no_grad():
        expected = net(x)
        assert net.to("spyre") is net and net[0].weight.device.type == "spyre"
        close(net(x.to("spyre")), expected)
        close(torch.compile(net)(x.to("spyre")), expected)
        close(torch.compile(net, backend="spyre")(x.to("spyre")), expected)
        close(copy.deepcopy(net)(x.to("spyre")), expected)
        net.load_state_dict(model().state_dict())
        assert torch.equal(net.cpu()(x), expected)


def moved_weights(model: torch.nn.Module, convert: Callable[[torch.nn.Module], Any]) -> list[torch.Tensor]:
    """The weights of a model, which are the same objects after a conversion."""
    weights = list(model.parameters())
    convert(model)
    assert all(one is other for one, other in zip(weights, model.parameters(), strict=True))
    assert all(isinstance(weight, torch.nn.Parameter) and weight.is_leaf for weight in weights)
    return weights


# The parameters are float32 before they are halved, and the device has no matmul of float32.
@pytest.mark.filterwarnings("ignore::spyre_mlir.HostWorkWarning", "ignore::spyre_mlir.PassWarning")
@pytest.mark.parametrize("layer", [
    torch.nn.Linear(4, 4), torch.nn.LayerNorm(4), torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)),
    torch.nn.LSTM(4, 4),
], ids=lambda layer: type(layer).__name__)  # fmt: skip
def test_models_move_while_a_result_waits_for_its_backward(layer):
    net = copy.deepcopy(layer)
    for convert in (lambda net: net.to("spyre"), lambda net: net.half(), lambda net: net.float().cpu()):
        weight = next(net.parameters())
        net.zero_grad()
        result = net(torch.ones(2, 4, dtype=weight.dtype, device=weight.device))
        result = result if isinstance(result, torch.Tensor) else result[0]
        assert moved_weights(net, convert)[0] is weight and weight.grad is None
        with pytest.raises(RuntimeError, match="a parameter that has moved"):
            result.sum().backward()
    expected = [value.detach() for value in layer.parameters()]
    for one, other in zip(net.parameters(), expected, strict=True):
        torch.testing.assert_close(one.detach(), other, rtol=1e-3, atol=1e-3)


def test_tied_weights_gradients_and_references_move():
    net = torch.nn.ModuleDict({"read": torch.nn.Embedding(6, 4), "write": torch.nn.Linear(4, 6, bias=False)})
    net["write"].weight = net["read"].weight
    weight = net["write"].weight
    reference, weight.grad = weakref.ref(weight), torch.ones(6, 4)
    optimizer = torch.optim.SGD(net.parameters(), 0.5)
    before = weight.detach().clone()
    for device in ("spyre", "cpu", "spyre"):
        net.to(device)
        assert net["write"].weight is net["read"].weight is reference() is weight
        assert weight.device.type == weight.grad.device.type == device
    optimizer.step()
    torch.testing.assert_close(net.cpu()["read"].weight.detach(), before - 0.5)


def test_a_compiled_graph_is_one_program_on_storages_where_they_lie():
    x = moved(half(128, 64), stick_dims=[0])
    compiled = []

    def backend(graph, inputs):
        compiled.append(spyre_mlir.torch_backend(graph, inputs))
        return compiled[0]

    function = torch.compile(lambda a: torch.exp(a.t()) * 2, backend=backend)
    close(function(x.t()), torch.exp(x.cpu()) * 2)
    (program,) = (known.program for known in compiled[0].programs.values())
    (argument,) = [each for each in program.bundle.manifest.arguments if each.kind == "input"]
    assert argument.host_shape == (128, 64) and argument.device_size == (2, 64, 64)


def test_graphs_make_and_move_tensors():
    x = half(4, 64).to("spyre")
    added = torch.compile(lambda x: x + torch.ones(4, 64, device="spyre", dtype=torch.half))(x)
    close(added, x.cpu() + 1)
    host, device = torch.compile(lambda x: (x.cpu() + 1, x.t() * 2))(x)
    assert host.device.type == "cpu" and torch.equal(host, x.cpu() + 1)
    close(device, x.cpu().t() * 2)
    close(torch.compile(lambda: torch.zeros(3, device="spyre") + 1)(), torch.ones(3))


def test_graphs_with_gradients():
    w = torch.randn(3, 70, device="spyre", requires_grad=True)
    torch.compile(lambda w: (w * w).sum())(w).backward()
    assert w.grad is not None
    close(w.grad, 2 * w.detach().cpu())


def test_compile_takes_tensors_of_the_device():
    x = half(64, 128)
    program = spyre_mlir.compile(lambda a: a + 1, (moved(x, stick_dims=[0]),))
    assert program.bundle.manifest.arguments[0].device_size == (1, 128, 64)
    assert torch.equal(program(moved(x, stick_dims=[0])), x + 1)


def test_what_is_not_on_the_device_is_compiled_as_before():
    x = torch.randn(4, 4)
    assert torch.equal(torch.compile(lambda x: x + 1, backend="eager")(x), x + 1)


# -- refusals -------------------------------------------------------------------------------------------------


def test_refusals():
    x = torch.ones(2, 3, device="spyre")
    with pytest.raises(
        RuntimeError, match=r"Expected all tensors to be on the same device.* spyre:0 and cpu"
    ):
        _ = x + torch.ones(2, 3)
    with pytest.raises(CompileError, match="float64 is not supported by the device"):
        torch.zeros(3, dtype=torch.float64).to("spyre")
    with pytest.raises(CompileError, match="complex64 is not supported by the device"):
        torch.zeros(3, dtype=torch.complex64, device="spyre")
    with pytest.raises(CompileError, match="The model is on the device"):
        spyre_mlir.compile(model().to("spyre"), (half(64, 128),))
    assert isinstance(x, SpyreTensor)


def test_results_are_written_into_lists_of_tensors_and_into_ranks():
    """PyTorch decomposes neither for a tensor of a Python class."""
    x = torch.arange(12.0).reshape(4, 3)
    x[1] *= x[1]

    def function(x: torch.Tensor) -> list[torch.Tensor]:
        split = [x.new_zeros(1, 3), x.new_zeros(3, 3)]
        torch.split_with_sizes_copy(x, [1, 3], out=split)
        rows = [x.new_zeros(3) for _ in range(4)]
        torch.unbind_copy(x, out=rows)
        square, rank = x @ x.t(), torch.zeros(3, dtype=torch.int64, device=x.device)
        for hermitian, tolerance in itertools.product((True, False), (None, 0.1, 100.0)):
            torch.linalg.matrix_rank(square, atol=tolerance, hermitian=hermitian, out=rank)
            rows.append(rank.clone())
        return [*split, *rows]

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for made, expected in zip(function(x.to("spyre")), function(x), strict=True):
            torch.testing.assert_close(made.cpu(), expected)


@pytest.mark.filterwarnings("ignore::spyre_mlir.FallbackWarning")
def test_tensors_with_more_dims_than_a_program_supports_run_on_the_host(monkeypatch):
    # An operation warns once in a process.
    monkeypatch.setattr(host_operations, "reasons", {})
    host = torch.arange(2.0).reshape([1] * 64 + [2])
    x = host.to("spyre")
    with pytest.warns(FallbackWarning, match="has 65"):
        made = x + 1
    assert torch.equal(made.cpu(), host + 1) and torch.equal(x.squeeze().neg().cpu(), host.squeeze().neg())
    with pytest.raises(RuntimeError, match="up to 64 dims"):
        x.amax(0)
    with pytest.raises(CompileError, match="input 'x' has 65"):
        spyre_mlir.compile(lambda x: x + 1, (host,))


@pytest.mark.parametrize("shapes", [[(), ()], [(2, 3), (2,)], [(2, 3), ()]])
@pytest.mark.filterwarnings("ignore::spyre_mlir.FallbackWarning")
def test_a_wrong_concatenation_raises_the_error_of_pytorch(shapes: list[tuple[int, ...]]):
    with pytest.raises(RuntimeError, match="dimension"):
        torch.cat([torch.zeros(shape, device="spyre") for shape in shapes])


@pytest.mark.parametrize("name", ["index_add", "index_add_", "index_reduce"])
@pytest.mark.parametrize("sizes", [(2,), (2, 1), (2, 3)])
@pytest.mark.filterwarnings("ignore::spyre_mlir.FallbackWarning")
def test_a_source_of_other_slices_is_an_error(name: str, sizes: tuple[int, ...]):
    """The meta function of PyTorch accepts the source, and its CPU kernel rejects the source."""
    reduction = ("amax",) if "reduce" in name else ()

    def function(x: torch.Tensor, index: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
        return getattr(x.clone(), name)(0, index, source, *reduction)

    operands = torch.zeros(3, 2), torch.tensor([0, 1]), torch.ones(sizes)
    with pytest.raises(RuntimeError, match="must match self tensor shape"):
        function(*(each.to("spyre") for each in operands))
    with pytest.raises(CompileError, match=r"differ from the sizes \[2, 2\]"):
        spyre_mlir.compile(function, operands)
