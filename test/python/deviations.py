# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Results of models, and how far they are from those in float32: four times the error of eager fp16 is allowed."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from programs import FLOOR
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from spyre_mlir.zoo.models import Inputs


def call(function: Callable, inputs: Inputs) -> Any:
    """Return the result of a model or a program for inputs, which the call may change."""
    with torch.no_grad():
        return function(**inputs) if isinstance(inputs, Mapping) else function(*inputs)


def copied(inputs: Inputs) -> Inputs:
    """Return a copy of the inputs."""
    return copy.deepcopy(inputs)


@dataclass(frozen=True)
class Deviation:
    """Error of one tensor against float32, and the allowed error; relative to its largest number."""

    error: float
    allowed: float


def deviations(program: Callable, module: nn.Module, inputs: Inputs) -> list[Deviation]:
    """Return the errors of floating-point results and changed inputs; allowed is four times the error of eager fp16.

    Other values must be equal, and all values must have the expected type and shape: raise AssertionError if not.
    """
    exact = copy.deepcopy(module).float()
    got, own, wanted = (
        _tensors(run, given)
        for run, given in (
            (program, copied(inputs)),
            (module, copied(inputs)),
            (exact, pytree.tree_map(_to_float, inputs)),
        )
    )
    return [_deviation(*each) for each in zip(got, own, wanted, strict=True)]


def _tensors(function: Callable, inputs: Inputs) -> list[Tensor]:
    """Return the tensors of the result of a call, and of its inputs after the call."""
    leaves = pytree.tree_leaves((call(function, inputs), inputs))
    return [leaf for leaf in leaves if isinstance(leaf, Tensor)]


def _to_float(value: Any) -> Any:
    """Return a copy, with floating-point tensors in float32."""
    if not isinstance(value, Tensor):
        return value
    return value.float() if value.is_floating_point() else value.clone()


def _deviation(got: Tensor, own: Tensor, exact: Tensor) -> Deviation:
    assert got.dtype == own.dtype and got.shape == own.shape, (
        f"{got.dtype} {got.shape} instead of {own.dtype}"
    )
    if not got.is_floating_point():
        assert torch.equal(got, own), "Integers differ."
        return Deviation(0, FLOOR)
    largest = exact.abs().max()
    errors = [((each.float() - exact).abs().max() / largest).item() for each in (got, own)]
    return Deviation(errors[0], max(4 * errors[1], FLOOR))
