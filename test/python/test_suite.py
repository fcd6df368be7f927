# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The suite at reduced size on the byte simulator: numbers, traffic and all checks; benchmarks run it at full size."""

from __future__ import annotations

import functools

import pytest
import torch
from programs import check_close
from suite_checks import check_traffic, floor

import spyre_mlir
from spyre_mlir.bundle.validate import validate
from spyre_mlir.dialects import context
from spyre_mlir.frontend import Imported, import_torch
from spyre_mlir.zoo.suite import REDUCED, SUITE, program


@functools.cache
def imported(name: str) -> tuple[torch.nn.Module, tuple[torch.Tensor, ...], Imported]:
    """A reduced program and its linalg, the slow step, done once."""
    model, inputs = program(name, REDUCED)
    return model, inputs, import_torch(model, inputs, context=context())


@pytest.mark.parametrize("sencores", [32, 4])
@pytest.mark.parametrize("name", SUITE)
def test_a_reduced_program_equals_pytorch(name, sencores):
    """All levels and all bytes are checked, the traffic is the planned one, the error a few of PyTorch's own."""
    model, inputs, linalg = imported(name)
    made = spyre_mlir.compile(linalg.module, sencores=sencores, verify_each=True)
    assert not (findings := validate(made.bundle)), "\n".join(map(str, findings))
    operands = list(zip(linalg.arguments, linalg.operands(*inputs), strict=True))
    made.arrays.update({argument.name: array for argument, array in operands if argument.kind != "input"})
    results = made(*(array for argument, array in operands if argument.kind == "input"))
    check_close(name, results, model, inputs, floor(name))
    check_traffic(made)


def test_a_program_is_the_same_each_time():
    """Weights and inputs depend on nothing but the name."""
    (one, given), (other, again) = (program("layer_64", REDUCED) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))
    assert torch.equal(given[0], again[0])


@pytest.mark.parametrize("name", SUITE)
def test_without_weights_a_program_has_the_same_shapes(name):
    """The shapes share one number each, so that plans of large programs need no memory."""
    (full, given), (empty, zeros) = program(name, REDUCED), program(name, REDUCED, weights=False)
    shapes = [[each.shape for each in model.parameters()] for model in (full, empty)]
    assert shapes[0] == shapes[1] and [x.shape for x in given] == [x.shape for x in zeros]
    assert all(each.untyped_storage().nbytes() == 2 for each in empty.parameters() if each.dim() > 1)
