# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A model that runs in pieces: its calls, and the first one, which leaves the model and its inputs as they are."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from spyre_mlir.errors import CompileError
from spyre_mlir.frontend.caches import register_caches
from spyre_mlir.frontend.call_recorder import CallRecorder, PieceRunner
from spyre_mlir.frontend.experts import dense_experts
from spyre_mlir.frontend.exported import Inputs, as_call
from spyre_mlir.frontend.importer import off_the_device
from spyre_mlir.frontend.piece import Cause, ChangingNumbers


class ModelCalls:
    """Calls of a model, each in pieces that a ``PieceRunner`` runs."""

    def __init__(self, model: Callable[..., Any]) -> None:
        register_caches()
        self._model = model
        self._roots = list(_modules_of(model))
        self._numbers = ChangingNumbers()

    def call(self, runner: PieceRunner, inputs: Sequence[Any], named: Mapping[str, Any]) -> Any:
        """What the model returns; what it changes in place or assigns to attributes changes."""
        before = self._attributes()
        try:
            return self._call(runner, tuple(inputs), dict(named), keep_callers=False)
        except CompileError:
            # What the model has assigned since the last piece has no numbers.
            _restore(before)
            raise

    def rehearse(self, runner: PieceRunner, example: Inputs) -> None:
        """Call the model with example inputs, and leave it, them and the random numbers of later calls as they are."""
        args, kwargs = as_call(example)
        with torch.random.fork_rng(devices=[]), self._unchanged():
            self._call(runner, args, kwargs, keep_callers=True)

    def _call(self, runner: PieceRunner, args: Any, kwargs: Any, keep_callers: bool) -> Any:
        args, kwargs = pytree.tree_map(off_the_device, (args, kwargs))
        recorder = CallRecorder(runner, self._names(), self._numbers, keep_callers)
        with torch.no_grad(), dense_experts():
            try:
                result = recorder.call(self._model, args, kwargs, self._paths())
            except CompileError:
                raise
            # An error of the model, before which it may have changed tensors.
            except Exception:
                recorder.flush(Cause("an error of the model", ""))
                self._complete_attributes(recorder)
                raise
            self._complete_attributes(recorder)
        return result

    def _names(self) -> dict[int, str]:
        """Names of parameters and buffers by identity."""
        tensors = (pair for root in self._roots for pair in (*root.named_parameters(), *root.named_buffers()))
        return {id(tensor): name for name, tensor in tensors}

    def _paths(self) -> dict[int, str]:
        return {id(module): path for root in self._roots for path, module in root.named_modules()}

    def _modules(self) -> Iterator[torch.nn.Module]:
        return (module for root in self._roots for module in root.modules())

    def _complete_attributes(self, recorder: CallRecorder) -> None:
        """Give the attributes that the model has assigned in a call the tensors that have numbers."""
        for module in self._modules():
            for values in (vars(module), module._buffers):
                for name, value in list(values.items()):
                    if name in ("_parameters", "_buffers", "_modules"):
                        continue
                    completed = recorder.real(value)
                    if any(
                        one is not other
                        for one, other in zip(
                            pytree.tree_leaves(value), pytree.tree_leaves(completed), strict=True
                        )
                    ):
                        values[name] = completed

    @contextlib.contextmanager
    def _unchanged(self) -> Iterator[None]:
        """Context whose end brings back the attributes of all modules, those in lists and dicts too."""
        before = self._attributes()
        try:
            yield
        finally:
            _restore(before)

    def _attributes(self) -> list[tuple[torch.nn.Module, dict[str, tuple[Any, Any]]]]:
        """Attributes of all modules."""
        return [(module, _contents(module)) for module in self._modules()]


def _restore(before: Sequence[tuple[torch.nn.Module, dict[str, tuple[Any, Any]]]]) -> None:
    """Give modules the attributes that they had."""
    for module, contents in before:
        vars(module).clear()
        for name, (value, content) in contents.items():
            vars(module)[name] = value
            if isinstance(value, dict):
                value.clear()
                value.update(content)
            elif isinstance(value, list):
                value[:] = content


def _contents(module: torch.nn.Module) -> dict[str, tuple[Any, Any]]:
    """Attributes of a module, with copies of those that are containers."""
    return {
        name: (value, copy.copy(value) if isinstance(value, (dict, list)) else None)
        for name, value in vars(module).items()
    }


def _modules_of(model: Callable[..., Any]) -> Iterator[torch.nn.Module]:
    """Modules that a model is, or that a function or a method holds."""
    cells = [cell.cell_contents for cell in getattr(model, "__closure__", None) or () if _is_set(cell)]
    for value in (model, getattr(model, "__self__", None), *cells):
        if isinstance(value, torch.nn.Module):
            yield value


def _is_set(cell: Any) -> bool:
    try:
        return cell.cell_contents is not None
    except ValueError:  # an empty cell
        return False
