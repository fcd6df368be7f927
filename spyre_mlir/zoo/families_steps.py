# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Families of models with a state: LSTM, Mamba, RWKV, and the chunks of a state-space model."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from spyre_mlir.zoo.family import Family, causal_pairs

_RESIDENT = "Columns of the weights over cores, where they stay in LX from step to step; the state too"
_STREAM = "Columns of the weights over cores, each read once; the state over cores, read and written once"


class Lstm(nn.Module):
    """LSTM steps from a given state."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.lstm = nn.LSTM(hidden, hidden)

    def forward(self, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        y, (h, c) = self.lstm(x, (h, c))
        return y, h, c


class MambaStep(nn.Module):
    """One token through a Mamba layer, which updates the states of its convolution and of its recurrence."""

    def __init__(self, hidden: int, inner: int, state: int, rank: int) -> None:
        super().__init__()
        self.sizes = rank, state, state
        self.enter, self.leave = (
            nn.Linear(hidden, 2 * inner, bias=False),
            nn.Linear(inner, hidden, bias=False),
        )
        self.taps, self.tap_bias = nn.Parameter(torch.empty(inner, 4)), nn.Parameter(torch.empty(inner))
        self.select, self.step = nn.Linear(inner, rank + 2 * state, bias=False), nn.Linear(rank, inner)
        self.log_decay, self.direct = (
            nn.Parameter(torch.empty(inner, state)),
            nn.Parameter(torch.empty(inner)),
        )

    def forward(self, x: Tensor, taps: Tensor, state: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        inner, gate = self.enter(x).chunk(2, -1)
        taps = torch.cat((taps[:, :, 1:], inner[:, :, None]), -1)
        inner = F.silu((taps * self.taps).sum(-1) + self.tap_bias)
        step, write, read = self.select(inner).split(self.sizes, -1)
        step = F.softplus(self.step(step))
        decay = torch.exp(step[:, :, None] * -torch.exp(self.log_decay))
        state = decay * state + (step * inner)[:, :, None] * write[:, None]
        result = (state * read[:, None]).sum(-1) + self.direct * inner
        return self.leave(result * F.silu(gate)), taps, state


class RwkvStep(nn.Module):
    """One token through a layer of RWKV-5: a matrix state per head, then channel mixing."""

    def __init__(self, hidden: int, head: int, inner: int) -> None:
        super().__init__()
        self.head = head
        self.mixes = nn.Parameter(torch.empty(6, hidden))
        self.r, self.k, self.v, self.g, self.o, self.receive = (
            nn.Linear(hidden, hidden, bias=False) for _ in range(6)
        )
        self.up, self.down = nn.Linear(hidden, inner, bias=False), nn.Linear(inner, hidden, bias=False)
        self.decay, self.first = (nn.Parameter(torch.empty(hidden // head, head, 1)) for _ in range(2))
        self.time_norm, self.channel_norm = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.out_norm = nn.GroupNorm(hidden // head, hidden)

    def forward(self, x: Tensor, before: Tensor, below: Tensor, state: Tensor) -> tuple[Tensor, ...]:
        here = self.time_norm(x)
        r, k, v, g = (here + (before - here) * self.mixes[n] for n in range(4))
        r, k, v = (part.unflatten(-1, (-1, self.head)) for part in (self.r(r), self.k(k), self.v(v)))
        update = k[..., None] * v[..., None, :]
        read = (r[..., None, :] @ (state + self.first * update)).flatten(1)
        state = torch.exp(-torch.exp(self.decay)) * state + update
        x = x + self.o(self.out_norm(read) * F.silu(self.g(g)))
        there = self.channel_norm(x)
        up, gate = (there + (below - there) * self.mixes[n] for n in (4, 5))
        x = x + torch.sigmoid(self.receive(gate)) * self.down(torch.relu(self.up(up)).square())
        return x, here, there, state


def ssd(x: Tensor, log_decay: Tensor, write: Tensor, read: Tensor) -> Tensor:
    """Compute a state-space model in chunks: a masked product within a chunk, a state between chunks.

    ``x`` is [chunks, heads, length, head], ``log_decay`` [chunks, heads, length], ``write`` and ``read`` are
    [chunks, 1, length, state].
    """
    total = log_decay.cumsum(-1)
    gap = total[..., :, None] - total[..., None, :]
    mask = torch.ones(x.shape[2], x.shape[2], dtype=torch.bool).tril()
    scores = (read @ write.transpose(-1, -2)) * torch.where(mask, gap.exp(), 0.0)
    result = scores @ x
    last = (total[..., -1:] - total).exp()
    updates = (write * last[..., None]).transpose(-1, -2) @ x
    state, states = torch.zeros_like(updates[0]), []
    for chunk in range(x.shape[0]):
        states.append(state)
        state = total[chunk, :, -1, None, None].exp() * state + updates[chunk]
    return result + (read * total.exp()[..., None]) @ torch.stack(states)


def _lstm(steps: int, batch: int, hidden: int) -> Family:
    weights = 8 * hidden * hidden
    return Family(
        lambda: (Lstm(hidden), ((steps, batch, hidden), (1, batch, hidden), (1, batch, hidden))),
        f"{_RESIDENT}.",
        # Weights and two biases; inputs, outputs, the first two states and the last two.
        2 * (weights + 8 * hidden + 2 * steps * batch * hidden + 4 * batch * hidden),
        steps * batch * weights,
    )


def _mamba(batch: int, hidden: int, inner: int, state: int, rank: int) -> Family:
    weights = 3 * hidden * inner + inner * (rank + 2 * state) + rank * inner
    vectors = inner * (4 + 1 + 1 + state + 1)
    return Family(
        lambda: (
            MambaStep(hidden, inner, state, rank), ((batch, hidden), (batch, inner, 4), (batch, inner, state)),
        ),
        f"{_STREAM}.",
        # The oldest of the four taps is not read, but all four are written.
        2 * (weights + vectors + batch * (2 * hidden + inner * (3 + 4) + 2 * inner * state)),
        batch * weights,
    )  # fmt: skip


def _rwkv(batch: int, hidden: int, head: int, inner: int) -> Family:
    weights, heads = 6 * hidden * hidden + 2 * hidden * inner, hidden // head
    row, state = (batch, hidden), (batch, heads, head, head)
    return Family(
        lambda: (RwkvStep(hidden, head, inner), (row, row, row, state)),
        f"{_STREAM}.",
        2 * (weights + (6 + 2 + 6) * hidden + batch * (6 * hidden + 2 * hidden * head)),
        batch * (weights + hidden * head),
    )


def _ssd(chunks: int, heads: int, length: int, head: int, state: int) -> Family:
    rows = chunks * length
    pairs = causal_pairs(length)
    within = chunks * pairs * (state + heads * head)
    return Family(
        lambda: (
            ssd,
            (
                (chunks, heads, length, head), (chunks, heads, length),
                (chunks, 1, length, state), (chunks, 1, length, state),
            ),
        ),
        "Heads over cores: scores of a chunk once for all heads, tiles above the diagonal skipped, states in LX.",
        2 * (2 * rows * heads * head + rows * heads + 2 * rows * state),
        # The first chunk reads no state, and the state of the last chunk is not needed.
        within + 2 * (chunks - 1) * length * heads * head * state,
    )  # fmt: skip


FAMILIES = {
    "lstm_1_step": _lstm(1, 64, 1024),
    "lstm_16_steps": _lstm(16, 64, 1024),
    "mamba_step": _mamba(8, 2560, 5120, 16, 160),
    "rwkv_step": _rwkv(8, 2048, 64, 7168),
    "ssd_chunks": _ssd(8, 32, 256, 64, 128),
}
