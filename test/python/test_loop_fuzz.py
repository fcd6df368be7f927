# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Random loops of PyTorch have the numbers of PyTorch, whether they are loops on the device or not."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from loop_cases import loop_case
from torch._higher_order_ops import scan
from torch.utils import _pytree as pytree

import spyre_mlir
from spyre_mlir.bundle.validate import validate


def _allowed(result: torch.Tensor, inputs: list[torch.Tensor]) -> float:
    """The largest error that is right: integers have none, others some roundings to fp16 of their sums."""
    if not result.is_floating_point():
        return 0
    return (
        2e-3 * (1 + float(result.abs().max())) * (1 + max(x.shape[-1] for x in inputs if x.ndim) ** 0.5 / 8)
    )


def check(function: Any, inputs: list[torch.Tensor], text: str) -> spyre_mlir.Program:
    """Compile and run; compare each result with PyTorch's."""
    program = spyre_mlir.compile(function, inputs)
    results, expected = (pytree.tree_leaves(value) for value in (program(*inputs), function(*inputs)))
    assert len(results) == len(expected)
    for result, right in zip(results, expected, strict=True):
        assert (result.shape, result.dtype) == (right.shape, right.dtype), text
        if right.numel():
            error = float((result.double() - right.double()).abs().max())
            assert error <= _allowed(right, inputs), f"{text}: {error}"
    for bundle in program.bundles:
        assert not validate(bundle.bundle), text
    return program


@pytest.mark.sampled(12)
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("seed", range(200))
def test_random_loops(seed):
    case, function = loop_case(seed)
    check(function, case.inputs, "; ".join(case.text))


def test_a_result_of_a_loop_that_nobody_reads_is_not_computed():
    """The tanh of float32 would be refused by the device, and no other operation needs the host."""
    x, begin = torch.randn(8, 16, 1), torch.randn(16, 1)

    def last_row(x, begin):
        return scan(lambda carried, row: (row.clone(), torch.tanh(row - carried)), begin, x)[0]

    program = check(last_row, [x, begin], "scan")
    assert program.is_one_bundle
