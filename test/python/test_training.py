# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""torch.compile with gradients: forward and backward are programs, with help of the host where it is needed."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator

import pytest
import torch
from programs import GeluMlp, LlamaBlock
from torch import Tensor, nn

import spyre_mlir
from spyre_mlir.frontend.dynamo import compiled

#: Models to train, and the shapes of their inputs.
MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "gelu_mlp": (lambda: GeluMlp(64, 128), (16, 64)),
    "layer_norm": (lambda: nn.LayerNorm(64), (16, 64)),
    "llama_block": (lambda: LlamaBlock(64, 8, 2, 1, 64), (1, 8, 64)),
    "batch_norm": (lambda: nn.BatchNorm1d(65), (16, 65)),
    "dropout": (lambda: nn.Sequential(nn.Linear(64, 64), nn.Dropout(0.3)), (16, 64)),
}
FLOOR = 1e-3


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    torch._dynamo.reset()
    yield


def step(model: Callable, x: Tensor, parameters: list[nn.Parameter]) -> list[Tensor]:
    """The result of a model, and the gradients of a loss by its input and its parameters."""
    x = x.clone().requires_grad_()
    torch.manual_seed(1)  # of the random numbers of dropout
    result = model(x)
    weights = torch.linspace(-1, 1, result.numel(), dtype=result.dtype).reshape(result.shape)
    return [result, *torch.autograd.grad((result * weights).sum(), [x, *parameters])]


@pytest.mark.parametrize("name", MODELS)
def test_gradients(name):
    """Results, gradients and running statistics are as accurate as eager fp16, up to a factor of 4."""
    torch.manual_seed(0)
    make, shape = MODELS[name]
    model, x = make().half(), torch.randn(shape).half()
    eager, exact = copy.deepcopy(model), copy.deepcopy(model).double()
    program = torch.compile(model, backend=spyre_mlir.torch_backend)
    got, own, wanted = (
        [*step(run, given, list(of.parameters())), *of.buffers()]
        for run, given, of in ((program, x, model), (eager, x, eager), (exact, x.double(), exact))
    )
    for result, mine, reference in zip(got, own, wanted, strict=True):
        assert result.dtype == mine.dtype
        errors = [(each.double() - reference).abs().max() for each in (result, mine)]
        assert errors[0] <= max(4 * errors[1], FLOOR * reference.abs().max())


def test_forward_and_backward_are_programs():
    """Forward and backward are one program each; a second step reads the parameters after the first step."""
    programs = []

    def compile(function: Callable, inputs: tuple) -> Callable:
        programs.append(spyre_mlir.compile(function, inputs))
        return programs[-1]

    torch.manual_seed(0)
    model = nn.Linear(64, 64, bias=False).half()
    eager = copy.deepcopy(model)
    program = torch.compile(model, backend=lambda graph, inputs: compiled(graph, inputs, compile))
    for x in torch.randn(2, 8, 64).half():
        for run, of in ((program, model), (eager, eager)):
            run(x).square().mean().backward()
            with torch.no_grad():
                of.weight -= of.weight.grad * 10
            of.weight.grad = None
        torch.testing.assert_close(model.weight, eager.weight, rtol=2e-3, atol=1e-3)
    assert len(programs) == 2


def test_no_gradient_no_backward():
    """Under no_grad the graph equals the graph of the model, although its parameters could have gradients."""
    model, x = nn.Linear(64, 64).half(), torch.randn(8, 64).half()
    with torch.no_grad():
        result = torch.compile(model, backend=spyre_mlir.torch_backend)(x)
    assert not result.requires_grad
    torch.testing.assert_close(result, model(x).detach(), rtol=2e-3, atol=1e-3)


@pytest.mark.parametrize("device", ["cpu", "spyre"])
def test_attention_under_a_boolean_mask_has_the_gradient_of_it(device):
    """Masked positions have no weight, and a fully masked row is 0."""
    torch.manual_seed(0)
    mask = torch.rand(4, 5) < 0.6
    mask[1] = False
    tensors = [torch.randn(1, 2, rows, 8).half() for rows in (4, 5, 5)]

    def attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        return nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)

    found = []
    for to, run in ((device, torch.compile(attention, backend="spyre")), ("cpu", attention)):
        leaves = [x.to(to).requires_grad_() for x in tensors]
        result = run(*leaves, mask.to(to))
        found.append([result, *torch.autograd.grad(result.sum(), leaves)])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one.detach().cpu(), other.detach(), rtol=0.01, atol=0.01)
