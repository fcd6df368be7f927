# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Additive masks of attention: rows that are masked whole keep their scores, as far as PyTorch's float32 keeps them."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import spyre_mlir

LOWEST = torch.finfo(torch.float16).min
ROWS, KEYS, HEADS = 12, 16, 2


def _mask(**rows: float) -> torch.Tensor:
    """A mask that sees all but in some rows, by number."""
    mask = torch.zeros(ROWS, KEYS)
    for number, value in rows.items():
        mask[int(number[1:])] = value
    return mask


MASKS = {
    "whole rows": _mask(r3=LOWEST, r4=LOWEST),
    "whole rows and columns": torch.where(torch.arange(KEYS) > 11, LOWEST, _mask(r3=LOWEST)),
    "causal after padding": torch.full((ROWS, KEYS), LOWEST).triu(1).index_fill(1, torch.arange(3), LOWEST),
    "infinite rows": _mask(r2=-torch.inf, r5=LOWEST),
    "moderate": torch.full((ROWS, KEYS), -1000.0),
    "two levels": torch.where(torch.arange(KEYS) % 2 == 0, -10000.0, -9992.0).expand(ROWS, KEYS),
    "one number per row": _mask(r1=LOWEST)[:, :1],
    "one row for all": torch.where(torch.arange(KEYS) > 4, LOWEST, 0.0)[None],
    "positive": _mask(r0=100.0, r1=-3.0),
    "of each head": torch.stack([_mask(r3=LOWEST), _mask(r4=LOWEST, r7=-1.5)])[None],
}


def _inputs() -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(1, HEADS, rows, 64, generator=generator).half() for rows in (ROWS, KEYS, KEYS)]


def _expected(inputs: list[torch.Tensor], mask: torch.Tensor) -> torch.Tensor:
    wide = [x.double() for x in inputs]
    return F.scaled_dot_product_attention(*wide, attn_mask=mask.double())


@pytest.mark.sampled(8)
@pytest.mark.parametrize("precision", ["device", "strict"])
@pytest.mark.parametrize("is_input", [True, False], ids=["input", "constant"])
@pytest.mark.parametrize("name", MASKS)
def test_rows_that_are_masked_whole_keep_their_scores(name, is_input, precision):
    inputs, mask = _inputs(), MASKS[name].half()

    def attention(query, key, value, mask=mask):
        return F.scaled_dot_product_attention(query, key, value, attn_mask=mask)

    arguments = (*inputs, mask) if is_input else tuple(inputs)
    result = spyre_mlir.compile(attention, arguments, precision=precision)(*arguments)
    torch.testing.assert_close(result.double(), _expected(inputs, mask), rtol=4e-3, atol=4e-3)


def test_a_sum_in_float32_before_the_softmax():
    """Scores and mask of fp16 that the program adds in float32 are added in float32."""
    query, key, value = _inputs()
    mask = MASKS["whole rows"].half()

    def attention(query, key, value, mask):
        scores = query @ key.transpose(-1, -2) / 8
        return torch.softmax(scores.float() + mask.float(), -1).half() @ value

    arguments = (query, key, value, mask)
    result = spyre_mlir.compile(attention, arguments)(*arguments)
    torch.testing.assert_close(result.double(), _expected([query, key, value], mask), rtol=4e-3, atol=4e-3)
