# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Models in plain DTensor code, as it is written for other devices, with their plans for a mesh of one dim."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    PrepareModuleInputOutput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)
from torch.nn import functional as F

DIM, HEADS, KV_HEADS, HEAD_DIM, VOCABULARY, HIDDEN, EXPERTS = 128, 16, 8, 16, 256, 256, 8


class MLP(nn.Module):
    """A gated MLP: two matmuls that are split by columns, and one by rows."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(DIM, HIDDEN, bias=False)
        self.up = nn.Linear(DIM, HIDDEN)
        self.down = nn.Linear(HIDDEN, DIM)

    def forward(self, x):
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Attention(nn.Module):
    """Causal attention with grouped keys and values; each rank has some of the heads."""

    def __init__(self) -> None:
        super().__init__()
        self.q = nn.Linear(DIM, HEADS * HEAD_DIM, bias=False)
        self.k = nn.Linear(DIM, KV_HEADS * HEAD_DIM, bias=False)
        self.v = nn.Linear(DIM, KV_HEADS * HEAD_DIM, bias=False)
        self.o = nn.Linear(HEADS * HEAD_DIM, DIM, bias=False)

    def forward(self, x):
        batch, rows, _ = x.shape
        q, k, v = (
            part(x).view(batch, rows, -1, HEAD_DIM).transpose(1, 2) for part in (self.q, self.k, self.v)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return self.o(y.transpose(1, 2).reshape(batch, rows, -1))


class Layer(nn.Module):
    """A layer of Llama without rotation."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.RMSNorm(DIM), nn.RMSNorm(DIM)
        self.attention, self.mlp = Attention(), MLP()

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class Words(nn.Module):
    """An embedding and a head that are split by vocabulary."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, DIM)
        self.head = nn.Linear(DIM, VOCABULARY, bias=False)

    def forward(self, tokens):
        return self.head(self.embedding(tokens))


class Llama(nn.Module):
    """Two layers between an embedding and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, DIM)
        self.layers = nn.ModuleList(Layer() for _ in range(2))
        self.norm = nn.RMSNorm(DIM)
        self.head = nn.Linear(DIM, VOCABULARY, bias=False)

    def forward(self, tokens):
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


class Experts(nn.Module):
    """A mixture of experts; each rank has some of the experts, and the weighted results are summed."""

    def __init__(self) -> None:
        super().__init__()
        self.router = nn.Linear(DIM, EXPERTS, bias=False)
        self.up = nn.Parameter(torch.randn(EXPERTS, DIM, HIDDEN) / math.sqrt(DIM))
        self.down = nn.Parameter(torch.randn(EXPERTS, HIDDEN, DIM) / math.sqrt(HIDDEN))

    def forward(self, x):
        weights = torch.softmax(self.router(x), -1)
        top = torch.topk(weights, 2, -1).values[..., -1:]
        chosen = torch.where(weights >= top, weights, torch.zeros_like(weights)).t().unsqueeze(-1)
        if isinstance(self.up, DTensor):
            mesh = self.up.device_mesh
            x = DTensor.from_local(x, mesh, [Replicate()], run_check=False)
            chosen = DTensor.from_local(chosen, mesh, [Replicate()], run_check=False)
            chosen = chosen.redistribute(mesh, [Shard(0)])
        y = torch.bmm(F.silu(torch.bmm(x.unsqueeze(0).expand(EXPERTS, *x.shape), self.up)), self.down)
        y = (y * chosen).sum(0)
        return y.full_tensor() if isinstance(y, DTensor) else y


def attention_plan() -> dict[str, Any]:
    """Return a plan that splits attention by heads."""
    return {"q": ColwiseParallel(), "k": ColwiseParallel(), "v": ColwiseParallel(), "o": RowwiseParallel()}


def mlp_plan() -> dict[str, Any]:
    """Return a plan that splits an MLP by columns, then by rows."""
    return {"gate": ColwiseParallel(), "up": ColwiseParallel(), "down": RowwiseParallel()}


def words_plan() -> dict[str, Any]:
    """Return a plan that splits the embedding and the head by vocabulary."""
    return {
        "embedding": RowwiseParallel(input_layouts=Replicate()),
        "head": ColwiseParallel(output_layouts=Replicate()),
    }


def layer_plan(prefix: str = "") -> dict[str, Any]:
    """Return the plan of a layer whose name has this prefix."""
    parts = {"attention": attention_plan(), "mlp": mlp_plan()}
    return {f"{prefix}{part}.{name}": style for part, plan in parts.items() for name, style in plan.items()}


def llama_plan() -> dict[str, Any]:
    """Return the plan of a whole model."""
    return words_plan() | layer_plan("layers.0.") | layer_plan("layers.1.")


def sequence_plan() -> dict[str, Any]:
    """Return the plan of a layer whose norms and residual sums are split by rows."""
    plan: dict[str, Any] = layer_plan()
    whole = PrepareModuleInput(input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),))
    plan |= {"norm1": SequenceParallel(), "norm2": SequenceParallel(), "attention": whole, "mlp": whole}
    plan |= {name: RowwiseParallel(output_layouts=Shard(1)) for name in ("attention.o", "mlp.down")}
    return plan


def parallel(
    model: Callable[[], nn.Module], plan: Callable[[], dict[str, Any]]
) -> Callable[[Any], nn.Module]:
    """Return the function from a mesh to the model of a rank."""

    def build(mesh: Any) -> nn.Module:
        return parallelize_module(model().half(), mesh, plan())

    return build


def expert_parallel(mesh: Any) -> nn.Module:
    """Return the mixture with its experts distributed over the mesh."""
    model = Experts().half()
    for name in ("up", "down"):
        whole = getattr(model, name)
        setattr(model, name, nn.Parameter(distribute_tensor(whole.data, mesh, [Shard(0)])))
    return model


def sequence_parallel(mesh: Any) -> nn.Module:
    """Return a layer whose rows are distributed between its matmuls; its input and its result are whole."""
    whole_rows = PrepareModuleInputOutput(
        input_layouts=(Replicate(),), desired_input_layouts=(Shard(1),), use_local_input=True,
        output_layouts=(Shard(1),), desired_output_layouts=(Replicate(),),
    )  # fmt: skip
    return parallelize_module(parallel(Layer, sequence_plan)(mesh), mesh, whole_rows)


def rows(*shape: int) -> torch.Tensor:
    """Return random numbers, the same in each process."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1)).half()


def tokens(*shape: int) -> torch.Tensor:
    """Return random tokens, the same in each process."""
    return torch.randint(VOCABULARY, shape, generator=torch.Generator().manual_seed(1))


#: The programs by name: the model of one card, the function from a mesh to the model of a rank, and an input.
PROGRAMS: dict[str, tuple[Callable[[], nn.Module], Callable[[Any], nn.Module], torch.Tensor]] = {
    "mlp": (MLP, parallel(MLP, mlp_plan), rows(8, DIM)),
    "attention": (Attention, parallel(Attention, attention_plan), rows(1, 32, DIM)),
    "words": (Words, parallel(Words, words_plan), tokens(2, 16)),
    "experts": (Experts, expert_parallel, rows(32, DIM)),
    "sequence": (Layer, sequence_parallel, rows(1, 32, DIM)),
    "llama": (Llama, parallel(Llama, llama_plan), tokens(1, 32)),
}
