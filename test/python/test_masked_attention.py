# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Attention under masks whose numbers are known: tiles that they hide are not computed, and the numbers are right."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pytest
import torch
from programs import check_close
from tilings import tile_keys_at_random
from torch import Tensor, nn

import spyre_mlir
from spyre_mlir.bundle.validate import validate
from spyre_mlir.dialects import context
from spyre_mlir.frontend import import_torch
from spyre_mlir.pipelines import SpyrePipeline, run_pipeline

#: Of the largest value: in fp16 each tile of keys rounds the sums so far once more.
FLOOR = 4e-3

#: Which keys a query sees, by their positions; ``n`` is a number of positions.
MASKS: dict[str, Callable[[Tensor, Tensor, int], Tensor]] = {
    "causal": lambda i, j, n: j <= i,
    "window": lambda i, j, n: (j <= i) & (j > i - n),
    "both sides": lambda i, j, n: (j - i).abs() < n,
    "chunks": lambda i, j, n: (j <= i) & (i // n == j // n),
    "documents": lambda i, j, n: i // n == j // n,
    "prefix": lambda i, j, n: (j <= i) | (j < n),
    "offset": lambda i, j, n: j <= i + n,
    "sinks": lambda i, j, n: (j <= i) & ((j > i - n) | (j < 4)),
    "dilated": lambda i, j, n: (j <= i) & ((i - j) % 3 == 0),
    "blind rows": lambda i, j, n: (j <= i) & (i > n),
}


class MaskedAttention(nn.Module):
    """Attention of grouped heads under a mask: a boolean one, or added, or filled with a number."""

    def __init__(self, mask: str, form: str, number: int) -> None:
        super().__init__()
        self.mask, self.form, self.number = mask, form, number

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        groups = q.shape[1] // k.shape[1]
        rows, keys = torch.arange(q.shape[2])[:, None], torch.arange(k.shape[2])[None]
        seen = MASKS[self.mask](rows, keys, self.number)
        if self.form == "sdpa":
            return nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=seen, enable_gqa=groups > 1)
        k, v = k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)
        scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
        if self.form == "fill":
            return torch.softmax(scores.masked_fill(~seen, float("-inf")), -1) @ v
        bias = torch.zeros(seen.shape, dtype=q.dtype).masked_fill(~seen, float(self.form))
        return torch.softmax(scores + bias, -1) @ v


def _case(rng: random.Random) -> tuple[MaskedAttention, list[Tensor]]:
    mask, number = rng.choice(list(MASKS)), rng.choice((16, 64, 70, 128))
    form = rng.choice(("sdpa", "sdpa", "fill", "-inf", "-30000"))
    keys = rng.choice((128, 192, 256, 384))
    rows = rng.choice((keys, keys, keys, 64, 96, 200))
    columns, groups, heads = rng.choice((64, 64, 128)), rng.choice((1, 1, 2)), rng.choice((1, 2))
    seen = MASKS[mask](torch.arange(rows)[:, None], torch.arange(keys)[None], number)
    if not seen.any():  # zeros, and no attention
        mask, seen = "causal", MASKS["causal"](torch.arange(rows)[:, None], torch.arange(keys)[None], number)
    # Where a program makes NaN of a row that sees nothing, there is nothing to compare.
    model = MaskedAttention(mask, form if seen.any(1).all() else "sdpa", number)
    shapes = ((1, groups * heads, rows, columns), *((1, heads, keys, columns),) * 2)
    return model, [torch.randn(shape).half() for shape in shapes]


@pytest.mark.parametrize("seed", range(24))
def test_random_masks_in_random_tiles(seed):
    """Bands of rows, or loops over them."""
    rng = random.Random(seed)
    torch.manual_seed(seed)
    model, inputs = _case(rng)
    imported = import_torch(model, tuple(inputs), context=context())
    module = imported.module
    assert module is not None
    run_pipeline(module, SpyrePipeline().pipeline("device-ops"))
    run_pipeline(module, "attach-target{lx-frac-avail=1.0},expand-attention")
    with module.context:
        tile_keys_at_random(module, seed, unrolled=bool(seed % 3))
    options = {"sencores": (32, 4, 1)[seed % 3], "lx_frac_avail": (0.2, 0.97)[seed % 2]}
    program = spyre_mlir.compile(module, from_level="device-ops", **options)
    assert not (findings := validate(program.bundle)), "\n".join(map(str, findings))
    operands = zip(imported.arguments, imported.operands(*inputs), strict=True)
    program.arrays.update({argument.name: array for argument, array in operands if argument.kind != "input"})
    results = program(*(tensor.numpy() for tensor in inputs))
    check_close(str(seed), imported.bind(*inputs).finish([results]), model, inputs, FLOOR)
    assert np.isfinite(results).all()
