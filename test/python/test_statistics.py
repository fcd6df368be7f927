# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Norms that update their running statistics, in operations whose schema does not declare it."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from like_eager import check_like_eager
from torch import nn

FORMS = {
    "batch_norm": lambda x, mean, var: F.batch_norm(x, mean, var, training=True),
    "native_batch_norm": lambda x, mean, var: torch.native_batch_norm(x, None, None, mean, var, True, 0.3, 1e-5),
    "instance_norm": lambda x, mean, var: F.instance_norm(x, mean, var, momentum=0.2),
    "twice": lambda x, mean, var: F.batch_norm(F.batch_norm(x, mean, var, training=True), mean, var, training=True),
    "not in training": lambda x, mean, var: F.batch_norm(x, mean, var),
    "instances without statistics of theirs": lambda x, mean, var: F.instance_norm(x, mean, var, use_input_stats=False),
}  # fmt: skip


# The back end likely refuses a restickify of 32-bit numbers; test_conformance.py tests the warning.
@pytest.mark.filterwarnings("ignore::spyre_mlir.PassWarning")
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("form", FORMS)
def test_running_statistics(form: str, dtype: torch.dtype) -> None:
    torch.manual_seed(1)
    check_like_eager(FORMS[form], *(torch.rand(shape).to(dtype) for shape in ((3, 5, 4), 5, 5)))


@pytest.mark.parametrize("layer", [nn.BatchNorm2d(3), nn.InstanceNorm2d(3, track_running_stats=True)])
def test_layers_in_training(layer: nn.Module) -> None:
    torch.manual_seed(1)
    check_like_eager(layer.half().train(), torch.randn(2, 3, 6, 6).half())
