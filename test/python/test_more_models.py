# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Models of transformers and of images, unmodified, in fp16 and under autocast: types and numbers are PyTorch's."""

from __future__ import annotations

import copy
import zlib
from typing import Any

import pytest
import torch
from image_models import IMAGE_MODELS
from language_models import LANGUAGE_MODELS
from programs import FLOOR
from torch import Tensor, nn
from torch.utils import _pytree as pytree

import spyre_mlir

MODELS = {**LANGUAGE_MODELS, **IMAGE_MODELS}

#: The part of the floating-point work that the host may have.
HOST = 0.05


def made(name: str) -> tuple[nn.Module, Any]:
    torch.manual_seed(zlib.crc32(name.encode()))
    model, inputs = MODELS[name]()
    return model.eval(), inputs


def tensors(function: Any, inputs: Any) -> list[Tensor]:
    """Return the tensors that a call returns; the call does not change the inputs."""
    inputs = copy.deepcopy(inputs)
    with torch.no_grad():
        result = function(**inputs) if isinstance(inputs, dict) else function(*inputs)
    return [leaf for leaf in pytree.tree_leaves(result) if isinstance(leaf, Tensor)]


def cast(inputs: Any, dtype: torch.dtype) -> Any:
    def converted(leaf: Any) -> Any:
        return leaf.to(dtype) if isinstance(leaf, Tensor) and leaf.is_floating_point() else leaf

    return pytree.tree_map(converted, inputs)


def assert_as_good(got: list[Tensor], own: list[Tensor], exact: list[Tensor]) -> None:
    """Assert the types of eager PyTorch, and at most four times its error against float64, or ``FLOOR``."""
    for mine, eager, right in zip(got, own, exact, strict=True):
        assert (mine.dtype, mine.shape) == (eager.dtype, eager.shape)
        if not mine.is_floating_point():
            assert torch.equal(mine, eager), "Integers differ."
            continue
        largest = right.abs().max()
        error, allowed = (((each.double() - right).abs().max() / largest).item() for each in (mine, eager))
        assert error <= max(4 * allowed, FLOOR)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("autocast", (None, torch.float16))
@pytest.mark.parametrize("name", MODELS)
def test_a_model_as_it_is(name: str, autocast: torch.dtype | None) -> None:
    """The model is as accurate as PyTorch in the same types, and the device does the work."""
    model, inputs = made(name)
    # The grouped products of transformers' experts have no float64.
    wide = torch.float32 if name == "mixtral" else torch.float64
    exact = tensors(copy.deepcopy(model).to(wide), cast(inputs, wide))
    if autocast is None:
        model, inputs = model.half(), cast(inputs, torch.float16)
    with torch.autocast("cpu", torch.float16, enabled=autocast is not None, cache_enabled=False):
        own = tensors(model, inputs)
    program = spyre_mlir.compile(model, copy.deepcopy(inputs), autocast=autocast, sencores=2)
    assert_as_good(tensors(program, inputs), own, exact)
    everything = sum(step.float_operations for step in program.steps)
    assert sum(step.float_operations for step in program.bundles) >= (1 - HOST) * everything
