# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tensors without data: a model on the meta device is compiled with stand-ins, for its plan and its figures."""

from __future__ import annotations

import contextlib
import contextvars
import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.export import ExportedProgram
from torch.utils import _pytree as pytree

from spyre_mlir.compile_lock import assigned
from spyre_mlir.errors import CompileError

#: True during the compilation of a model whose numbers are stand-ins.
numbers_are_missing: contextvars.ContextVar[bool] = contextvars.ContextVar(
    "numbers_are_missing", default=False
)

#: The largest tensor, in elements, whose stand-in has distinct numbers.
_MOST_NUMBERS = 1 << 20


@contextlib.contextmanager
def stand_ins(
    model: Any, inputs: Sequence[Any] | Mapping[str, Any]
) -> Iterator[tuple[Sequence[Any] | Mapping[str, Any], tuple[str, ...]]]:
    """Context in which no tensor of a module is on the meta device; yields inputs and the names of replaced tensors.

    A matrix is replaced by zeros that take no memory. Vectors and small float buffers get distinct numbers: with equal
    numbers, a scale or a table that is computed at compile time would need fewer operations.
    """
    replaced: list[tuple[dict[str, Any], str, Tensor]] = []
    missing: list[str] = []
    known: dict[Tensor, Tensor] = {}  # tied weights share one tensor

    def on_the_host(leaf: Any) -> Any:
        if not isinstance(leaf, Tensor) or not leaf.is_meta:
            return leaf
        missing.append("an example input")
        return torch.zeros(leaf.shape, dtype=leaf.dtype)

    try:
        for prefix, module in model.named_modules() if isinstance(model, nn.Module) else ():
            holders: tuple[dict[str, Any], ...] = (module._parameters, module._buffers)
            for tensors in holders:
                for name, tensor in tensors.items():
                    if tensor is None or not tensor.is_meta:
                        continue
                    replaced.append((tensors, name, tensor))
                    missing.append(f"'{prefix}.{name}'" if prefix else f"'{name}'")
                    if tensor not in known:
                        is_parameter = isinstance(tensor, nn.Parameter)
                        is_small = tensor.numel() <= _MOST_NUMBERS and not (is_parameter and tensor.dim() > 1)
                        if is_small and tensor.is_floating_point():
                            numbers = torch.linspace(1, 0.5, tensor.numel())
                            numbers = numbers.reshape(tensor.shape).to(tensor.dtype)
                        else:
                            numbers = torch.zeros((), dtype=tensor.dtype).expand(tensor.shape)
                        known[tensor] = (
                            nn.Parameter(numbers, requires_grad=False) if is_parameter else numbers
                        )
                    cast(dict[str, Any], tensors)[name] = known[tensor]
        example = pytree.tree_map(on_the_host, inputs)
        with assigned(numbers_are_missing, bool(missing)):
            yield example, tuple(missing)
    finally:
        for tensors, name, tensor in replaced:
            tensors[name] = tensor


def require_numbers(program: ExportedProgram) -> None:
    """Raise ``CompileError`` for a captured tensor on the meta device that does not belong to a module."""
    for name, tensor in {**program.state_dict, **program.constants}.items():
        if isinstance(tensor, Tensor) and tensor.is_meta:
            raise CompileError(
                f"The tensor '{name}' is on the meta device, without numbers: give compile the nn.Module whose "
                "parameter or buffer it is, or numbers for it."
            )


@contextlib.contextmanager
def without_log_of_failures() -> Iterator[None]:
    """Context without the tracebacks that PyTorch logs when operations on tensors without data fail."""
    log = logging.getLogger(FakeTensorMode.__module__)
    before, log.disabled = log.disabled, True
    try:
        yield
    finally:
        log.disabled = before
