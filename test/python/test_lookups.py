"""Lookups by a number that is known."""

from __future__ import annotations

import torch
from programs import Apply, check_close
from torch import Tensor

import spyre_mlir


def test_a_lookup_of_one_row_everywhere_is_no_gather():
    torch.manual_seed(9)

    def model(x: Tensor, table: Tensor) -> Tensor:
        return x + torch.nn.functional.embedding(torch.full((2, 5), 1), table)

    inputs = torch.randn(2, 5, 65).half(), torch.randn(3, 65).half()
    program = spyre_mlir.compile(model, inputs)
    check_close("lookup", program(*inputs), Apply(model), inputs)
    assert [opcode for opcode, *_ in program.traffic().by_op] == ["add"]
