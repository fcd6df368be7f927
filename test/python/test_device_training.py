# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Training on the device: optimizers, clipping, loss scaling and checkpoints make the steps that the CPU makes."""

from __future__ import annotations

import copy
import functools
import inspect
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils.checkpoint import checkpoint

import spyre_mlir.frontend  # noqa: F401

# The models are of float32, so their matmuls run on the host; test_host_work_warning.py tests the warning.
pytestmark = pytest.mark.filterwarnings("ignore::spyre_mlir.HostWorkWarning")

#: Optimizers of dense gradients, by name.
OPTIMIZERS: dict[str, Any] = {
    name: kind
    for name, kind in vars(torch.optim).items()
    if inspect.isclass(kind) and kind not in (torch.optim.Optimizer, torch.optim.SparseAdam)
}
CASES = [
    (name, option)
    for name, kind in OPTIMIZERS.items()
    for option in ("", "foreach")
    if not option or option in inspect.signature(kind).parameters
]

#: Muon makes a matrix orthogonal in bfloat16, which is DL16 on the device.
ERRORS = {"Muon": 5e-3}


def layer(device: str) -> nn.Linear:
    torch.manual_seed(0)
    return nn.Linear(8, 4, bias=False).to(device)


def batch(device: str) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(16, 8, generator=generator).to(device), torch.randn(16, 4, generator=generator).to(
        device
    )


def loss_of(model: Callable[[Tensor], Tensor], device: str) -> Tensor:
    x, target = batch(device)
    return nn.functional.mse_loss(model(x), target)


def trained(device: str, step: Callable[[nn.Linear, str], Any]) -> Tensor:
    """The weights after steps."""
    model = layer(device)
    step(model, device)
    return model.weight.detach().cpu()


@pytest.mark.sampled(4)
@pytest.mark.parametrize(("name", "option"), CASES)
def test_optimizers(name: str, option: str):
    def steps(model: nn.Linear, device: str) -> None:
        optimizer = OPTIMIZERS[name](model.parameters(), lr=0.05, **({option: True} if option else {}))
        if name == "LBFGS":
            optimizer.param_groups[0]["max_iter"] = 2

        def closure() -> Tensor:
            optimizer.zero_grad()
            loss = loss_of(model, device)
            loss.backward()
            return loss

        for _ in range(2):
            optimizer.step(closure)
        again = copy.deepcopy(optimizer.state_dict())
        optimizer.load_state_dict(again)

    made, expected = (trained(device, steps) for device in ("spyre", "cpu"))
    assert not torch.equal(expected, layer("cpu").weight)
    torch.testing.assert_close(made, expected, atol=ERRORS.get(name, 1e-5), rtol=ERRORS.get(name, 1e-5))


@pytest.mark.parametrize("foreach", [None, True, False])
def test_gradients_are_clipped(foreach: bool | None):
    norms = []

    def step(model: nn.Linear, device: str) -> None:
        (100 * loss_of(model, device)).backward()
        norms.append(nn.utils.clip_grad_norm_(model.parameters(), 0.5, foreach=foreach).cpu())
        nn.utils.clip_grad_value_(model.parameters(), 0.1, foreach=foreach)
        torch.optim.SGD(model.parameters(), lr=1.0).step()

    made, expected = (trained(device, step) for device in ("spyre", "cpu"))
    torch.testing.assert_close(norms[0], norms[1], atol=0, rtol=1e-5)
    torch.testing.assert_close(made, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.filterwarnings("ignore::spyre_mlir.FallbackWarning")
@pytest.mark.parametrize("factor", [1.0, torch.inf])
def test_losses_are_scaled(factor: float):
    """An infinite gradient skips the step and halves the scale; otherwise the scale grows."""
    scales = []

    def step(model: nn.Linear, device: str) -> None:
        scaler = torch.amp.GradScaler(device, init_scale=8.0, growth_interval=1)
        optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
        scaler.scale(factor * loss_of(model, device)).backward()
        scaler.unscale_(optimizer)
        scaler.step(optimizer)
        scaler.update()
        scales.append(scaler.get_scale())

    made, expected = (trained(device, step) for device in ("spyre", "cpu"))
    assert scales == ([16.0, 16.0] if factor == 1 else [4.0, 4.0])
    torch.testing.assert_close(made, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    ("use_reentrant", "backend"), [(True, ""), (False, ""), (False, "spyre"), (False, "aot_eager")]
)
def test_checkpoints_compute_again_with_the_same_random_numbers(use_reentrant: bool, backend: str):
    def step(model: nn.Linear, device: str) -> None:
        def segment(x: Tensor) -> Tensor:
            y = nn.functional.dropout(model(x).tanh(), 0.4)
            return y * torch.rand(y.shape[-1], device=device)

        x, target = batch(device)
        torch.manual_seed(7)
        run = functools.partial(checkpoint, segment, use_reentrant=use_reentrant)
        run = torch.compile(run, backend=backend) if backend and device == "spyre" else run
        made = run(x.requires_grad_())
        nn.functional.mse_loss(made, target).backward()
        torch.optim.SGD(model.parameters(), lr=0.5).step()

    made, expected = (trained(device, step) for device in ("spyre", "cpu"))
    torch.testing.assert_close(made, expected, atol=1e-4, rtol=1e-3)


def test_aot_eager_computes_gradients_and_checkpoints_on_the_device():
    """AOTAutograd guesses the class of gradients from the results of its trace, which have no data."""

    def gradients(device: str) -> list[Tensor]:
        torch.manual_seed(0)
        model = nn.Linear(8, 8).to(device)
        changed = torch.zeros(4, 8, device=device)

        def function(x: Tensor, changed: Tensor) -> tuple[Tensor, Tensor]:
            made = checkpoint(lambda y: model(y).tanh(), x, use_reentrant=False)
            changed.add_(1)
            return made.t(), (made * changed).sum()

        if device == "spyre":
            torch._dynamo.reset()
            function = torch.compile(function, backend="aot_eager", fullgraph=True)
        x = torch.linspace(-1, 1, 32).reshape(4, 8).to(device).requires_grad_()
        turned, total = function(x, changed)
        # The gradient of the transposed result has other strides than the result.
        (total + (turned.contiguous() * turned).sum()).backward()
        return [
            each.detach().cpu() for each in (turned, x.grad, changed, *(p.grad for p in model.parameters()))
        ]

    torch.testing.assert_close(gradients("spyre"), gradients("cpu"), atol=1e-4, rtol=1e-3)


def test_traces_keep_tensors_of_the_device_as_constants():
    x, scale = (torch.linspace(-1, 1, 32).reshape(4, 8).to("spyre") * factor for factor in (1, 3))
    traced = make_fx(lambda x: scale * (x + scale.exp()))(x)
    torch.testing.assert_close(traced(x + 1).cpu(), (scale * (x + 1 + scale.exp())).cpu())


@pytest.mark.filterwarnings(
    "ignore::spyre_mlir.PassWarning",
    "ignore::spyre_mlir.FallbackWarning",
    "ignore:Attempted to insert a get_attr Node",
)
def test_linearized_functions():
    def linearized(device: str) -> list[Tensor]:
        x = torch.linspace(-1, 1, 32).reshape(4, 8).to(device)
        scale = x + 2
        result, derivative = torch.func.linearize(lambda x: (x.tanh() * scale).sum(-1) * x[:, 0], x)
        return [each.cpu() for each in (result, derivative(torch.ones_like(x)), derivative(x))]

    torch.testing.assert_close(linearized("spyre"), linearized("cpu"), atol=1e-3, rtol=1e-3)


@pytest.mark.filterwarnings("ignore::spyre_mlir.PassWarning", "ignore::spyre_mlir.FallbackWarning")
def test_derivatives_in_forward_mode():
    """PyTorch starts them from zeros that it does not store on the CPU, and gives tangents the memory of primals."""
    x = torch.tensor([[0.5, -1.0], [2.0, 1.0]])

    def function(x: Tensor) -> Tensor:
        return x[:1].tanh() * x.sum() + torch.ones(2, device=x.device)

    def derivatives(x: Tensor) -> list[Tensor]:
        return [torch.func.jacfwd(function)(x[0]).cpu(), torch.func.jvp(function, (x[0],), (x[1],))[1].cpu()]

    torch.testing.assert_close(derivatives(x.to("spyre")), derivatives(x), atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_a_batch_norm_of_an_empty_batch(dtype: torch.dtype):
    """PyTorch makes the statistics of an empty batch itself, in float64 for float32."""
    made = []
    for device in "cpu", "spyre":
        norm = nn.BatchNorm1d(5, track_running_stats=False).to(device, dtype)
        x = torch.zeros(0, 5, 9, device=device, dtype=dtype, requires_grad=True)
        result = norm(x)
        result.sum().backward()
        with torch.inference_mode():
            assert norm(x).shape == x.shape
        made.append([result.dtype, *(each.cpu() for each in (result, x.grad, norm.weight.grad))])  # type: ignore[union-attr]
    assert made[0][0] == made[1][0]
    for expected, got in zip(made[0][1:], made[1][1:], strict=True):
        assert torch.equal(got, expected)
