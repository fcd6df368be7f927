# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Samples of PyTorch's database of modules on the device: results, and gradients of inputs and parameters.

A module is made on the CPU, copied, and called on the device with copies of the inputs. Its numbers are right if they
are as near to the numbers in float64 as the numbers of the CPU are, up to a factor of 4.
"""

from __future__ import annotations

import copy
import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from unittest import mock

import opinfo_samples
import torch
from fuzz_case import Oracle, leaves, quiet_float64
from fuzz_workers import REFUSED, SKIPPED, WRONG, answer
from opinfo_samples import DTYPES, Sample
from torch import Tensor, nn
from torch.testing._internal.common_modules import module_db
from torch.utils import _pytree as pytree

import spyre_mlir


@functools.cache
def modules() -> dict[str, Any]:
    """Return the modules of the database by name, without modules of quantised tensors."""
    return {each.name: each for each in module_db if "quantiz" not in each.name}


def dtypes_of(name: str) -> set[str]:
    """The names of the types that a module has."""
    return {short for short, dtype in DTYPES.items() if dtype in modules()[name].dtypes}


def judged(name: str, dtype: str, index: int, compiled: bool) -> tuple[str, str]:
    """Return the outcome of a sample, and ``Facts`` as JSON."""
    torch.manual_seed(0)
    kind = DTYPES[dtype]
    drawn: Iterator[Any] = iter(
        modules()[name].module_inputs_func(
            modules()[name], device="cpu", dtype=kind, requires_grad=False, training=True
        )
    )
    sample = next(itertools.islice(drawn, index, None), None)
    if sample is None:
        return SKIPPED, opinfo_samples._facts("no more samples")
    made = sample.constructor_input
    given = sample.forward_input
    try:
        module = modules()[name].module_cls(*made.args, **made.kwargs).to(kind)
        inputs = (tuple(given.args), dict(given.kwargs))
        typed = _called(module, inputs, "cpu")
        exact = _exact(module, inputs, typed)
    except Exception as error:
        return SKIPPED, opinfo_samples._facts(f"PyTorch: {opinfo_samples._first_line(error)}")
    outcome, why = answer(lambda _: _compared(module, inputs, Oracle(typed, exact, exact), compiled), None)
    return outcome, opinfo_samples._facts(why)


def _compared(module: nn.Module, inputs: Any, truth: Oracle, compiled: bool) -> tuple[str, str]:
    try:
        results = _called(module, inputs, "spyre", torch.compile if compiled else lambda each: each)
    except spyre_mlir.CompileError as error:
        return REFUSED, error.message
    floors = [opinfo_samples._FLOORS.get(x.dtype, 0.0) for x in truth.typed if isinstance(x, Tensor)]
    floor = max([*floors, opinfo_samples._LEAST_FLOOR])
    case: Any = Sample("", module, (), (), None, tuple(truth.typed), floor)
    text = opinfo_samples.complaint(case, results, truth)
    return (WRONG, f"numbers: {text}") if text else ("right", "")


def _called(
    module: nn.Module, inputs: Any, device: str, wrap: Callable[[Any], Any] = lambda each: each
) -> list[Any]:
    """Results of a copy of a module on a device, and the gradients of its inputs and parameters."""
    own = copy.deepcopy(module).to(device)
    flat, tree = pytree.tree_flatten(inputs)
    flat = [_input(x, device) if isinstance(x, Tensor) else x for x in flat]
    args, kwargs = tree.unflatten(flat)
    torch.manual_seed(1)
    with torch.enable_grad():
        results = leaves(wrap(own)(*args, **kwargs))
        floating = [x for x in results if isinstance(x, Tensor) and x.requires_grad]
        if floating:
            # In float32: a sum of many numbers of 16 bits is not a fair test.
            total = functools.reduce(lambda a, b: a + b, (_weighted(x) for x in floating))
            total.backward()
    wanted: Sequence[Tensor] = [
        x for x in (*flat, *own.parameters()) if isinstance(x, Tensor) and x.requires_grad
    ]
    gradients = [x.grad for x in wanted if x.grad is not None]
    everything = [*results, *gradients, *own.buffers()]
    return [x.detach().cpu() if isinstance(x, Tensor) else x for x in everything]


def _input(x: Tensor, device: str) -> Tensor:
    """A copy of an input on a device, with a gradient if it has floating-point numbers."""
    copied = x.detach().clone().to(device)
    return copied.requires_grad_() if x.is_floating_point() else copied


def _weighted(x: Tensor) -> Tensor:
    """Return a sum of all elements with different weights."""
    dtype = torch.float64 if x.dtype == torch.float64 else torch.float32
    weights = torch.linspace(-1, 1, x.numel(), dtype=dtype).reshape(x.shape).to(x.device)
    return (x.to(dtype) * weights).sum()


def _exact(module: nn.Module, inputs: Any, typed: list[Any]) -> list[Any]:
    """The results in float64; the typed ones where PyTorch has no such kernel, and of random numbers."""
    if not all(map(opinfo_samples._same, typed, _called_again(module, inputs))):
        return typed
    double = pytree.tree_map_only(Tensor, lambda x: x.double() if x.is_floating_point() else x, inputs)
    try:
        with quiet_float64():
            exact = _called(copy.deepcopy(module).double(), double, "cpu")
    except (RuntimeError, NotImplementedError, TypeError, ValueError):
        return typed
    return exact if len(exact) == len(typed) else typed


def _called_again(module: nn.Module, inputs: Any) -> list[Any]:
    """The results with other random numbers."""
    with torch.random.fork_rng(), mock.patch.object(torch, "manual_seed", lambda _: torch.seed()):
        return _called(module, inputs, "cpu")
