# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""NaN: the largest number where elements are ordered, equal to nothing."""

from __future__ import annotations

import pytest
import torch
from like_eager import check_like_eager

FORMS = {
    "argmax": lambda x: x.argmax(1),
    "argmin": lambda x: x.argmin(),
    "max": lambda x: x.max(1),
    "min": lambda x: x.min(0),
    "topk": lambda x: x.topk(3)[0],
    "the smallest": lambda x: x.topk(3, largest=False)[0],
    "cummax": lambda x: x.cummax(1),
    "cummin": lambda x: x.cummin(1),
    "median": lambda x: x.median(1)[0],
    "kthvalue": lambda x: x.kthvalue(3)[0],
    "sort": lambda x: x.sort(1)[0],
    "descending": lambda x: x.sort(1, descending=True)[0],
    "maximum": lambda x: torch.maximum(x, x.flip(1)),
    "fmax": lambda x: torch.fmax(x, x.flip(1)),
    "fmin": lambda x: torch.fmin(x, x[2]),
    "itself": lambda x: (x == x, x != x, torch.where(x == x, x, 0.0)),
    "nanmean": lambda x: (torch.nanmean(x, 1), x.nanmean()),
    "nansum": lambda x: x.nansum(1),
    "limits": lambda x: (x.relu(), x.clamp(1, 5), x.clamp(min=2), x.clamp(x.flip(0) - 1, x.flip(0))),
    "extremes": lambda x: (x.amax(1), x.min(), x.aminmax(), torch.minimum(x, x[2])),
    "nan_to_num": lambda x: x.nan_to_num(1.0, 2.0, 3.0),
}


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
@pytest.mark.parametrize("form", FORMS)
def test_nan(form: str, dtype: torch.dtype) -> None:
    torch.manual_seed(1)
    x = torch.randint(0, 9, (5, 17)).to(dtype)
    x[0, 3] = x[2, 5:8] = x[3] = torch.nan
    check_like_eager(FORMS[form], x)


@pytest.mark.parametrize("weight", [0.3, 0.5, 1.0, "tensor"])
def test_steps_between_the_largest_numbers_stay_in_range(weight: float | str) -> None:
    """``lerp`` of numbers whose difference fp16 does not have, and of an infinity."""
    ends = torch.tensor([65504, -65504, 48953, 1, -0.0, 6e-8, torch.inf, -torch.inf, torch.nan]).half()
    x, y = (grid.reshape(-1) for grid in torch.meshgrid(ends, ends, indexing="ij"))
    weights = torch.linspace(0, 1, len(x)).half() if weight == "tensor" else weight
    check_like_eager(lambda x, y: torch.lerp(x, y, weights), x, y)


def test_a_factor_of_a_product_does_not_make_it_0() -> None:
    """``addcmul`` with half of the smallest number."""
    x = torch.tensor([torch.inf, 1.0, 65504]).half()
    check_like_eager(lambda x, y: torch.addcmul(x, y, x, value=0.5), x, torch.full_like(x, 2.0**-24))
