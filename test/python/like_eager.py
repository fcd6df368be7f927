# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Comparison of a compiled model with PyTorch: all that it returns, and its inputs after the call."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

import spyre_mlir
from spyre_mlir.errors import HostWorkWarning, RangeWarning

#: Error that is always allowed, of the largest value of a tensor.
_FLOORS = {torch.float16: 1e-3, torch.bfloat16: 8e-3, torch.float32: 1e-4, torch.float64: 1e-11}
_EXACT = {
    **dict.fromkeys((torch.float16, torch.bfloat16, torch.float32), torch.float64),
    **dict.fromkeys((torch.complex32, torch.complex64), torch.complex128),
}


def check_like_eager(model: Callable[..., Any], *inputs: Tensor, **options: Any) -> spyre_mlir.Program:
    """Assert that a program gives what PyTorch gives, by the rule of the tests; integers and NaN are exact."""
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore", HostWorkWarning)
        warnings.simplefilter("ignore", RangeWarning)
        expected, exact = _called(model, inputs), _exactly(model, inputs)
        program = spyre_mlir.compile(copy.deepcopy(model), _copies(inputs), **options)
        got = _called(program, inputs)
    assert len(got) == len(expected)
    for index, triple in enumerate(zip(got, expected, exact, strict=True)):
        assert not (text := _difference(*triple)), f"value {index}: {text}"
    return program


def _copies(inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return tuple(x.clone() for x in inputs)


def _called(model: Callable[..., Any], inputs: tuple[Tensor, ...]) -> list[Any]:
    copies = _copies(inputs)
    # Both runs draw the same random numbers.
    torch.manual_seed(0)
    return pytree.tree_leaves((model(*copies), copies))


def _exactly(model: Callable[..., Any], inputs: tuple[Tensor, ...]) -> list[Any]:
    """The results in float64, where PyTorch has them so."""
    wide = copy.deepcopy(model).double() if isinstance(model, nn.Module) else model
    try:
        return _called(wide, tuple(x.to(_EXACT.get(x.dtype, x.dtype)) for x in inputs))
    except (RuntimeError, NotImplementedError):
        return _called(model, inputs)


def _difference(got: Any, expected: Any, exact: Any) -> str:
    """Return the difference between a value and the expected value; empty if they agree."""
    if not isinstance(expected, Tensor):
        return "" if type(got) is type(expected) and got == expected else f"{got!r}, not {expected!r}"
    if (got.shape, got.dtype) != (expected.shape, expected.dtype):
        return f"{got.dtype} {tuple(got.shape)}, not {expected.dtype} {tuple(expected.shape)}"
    if got.is_complex():
        got, expected, exact = (torch.view_as_real(x.resolve_conj()) for x in (got, expected, exact))
    if not got.is_floating_point():
        return "" if torch.equal(got, expected) else f"{got.tolist()}, not {expected.tolist()}"
    if not exact.is_floating_point() or exact.shape != expected.shape:
        exact = expected
    floor = _FLOORS[got.dtype]
    got, expected, exact = got.double(), expected.double(), exact.double()
    if not torch.equal(got.isfinite(), expected.isfinite()) or not torch.equal(got.isnan(), expected.isnan()):
        return f"{got.tolist()}, not {expected.tolist()}"
    finite = expected.isfinite() & exact.isfinite()
    got, expected, exact = got[finite], expected[finite], exact[finite]
    if not got.numel():
        return ""
    allowed = 4 * (expected - exact).abs().max() + floor * exact.abs().max()
    error = (got - exact).abs().max()
    return "" if error <= allowed else f"an error of {error:.3g}, allowed {allowed:.3g}"
