# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Constant folding evaluates equal calls once."""

from __future__ import annotations

from collections import Counter
from unittest import mock

import torch
from torch import Tensor, nn

from spyre_mlir.frontend import folding
from spyre_mlir.frontend.exported import export_graph


class Masked(nn.Module):
    """Three times the same mask; the last one's positions are read once more, after all masks."""

    def forward(self, x: Tensor) -> Tensor:
        positions: list[Tensor] = []
        for _ in range(3):
            positions.append(torch.arange(5))
            mask = positions[-1][:, None] >= positions[-1]
            x = torch.where(mask, x, 0.0) + torch.rand(5)
        return x + positions[-1] * torch.arange(1, 6)


def test_equal_calls_are_evaluated_once():
    calls: Counter[str] = Counter()
    evaluate = folding._call

    def count(node, values):
        calls[node.target._schema.name] += 1
        return evaluate(node, values)

    with mock.patch.object(folding, "_call", count):
        exported = export_graph(Masked(), (torch.zeros(5, 5, dtype=torch.float16),))
    assert calls["aten::arange"] == 2 and calls["aten::ge"] == 1
    constants = [argument.tensor for argument in exported.signature.arguments if argument.kind == "constant"]
    assert [constant.tolist() for constant in constants] == [
        torch.ones(5, 5).tril().bool().tolist(),
        [0, 2, 6, 12, 20],
    ]
    # Random numbers are of a call.
    assert len([argument for argument in exported.signature.arguments if argument.draw is not None]) == 3
