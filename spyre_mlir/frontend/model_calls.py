# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A model that runs in pieces: its calls, and a first call that leaves the model and its inputs unchanged."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch

from spyre_mlir.errors import CompileError
from spyre_mlir.frontend.call_recorder import CallRecorder, PieceRunner
from spyre_mlir.frontend.experts import dense_experts
from spyre_mlir.frontend.exported import Inputs, as_call, off_the_device
from spyre_mlir.frontend.object_state import ObjectState
from spyre_mlir.frontend.piece import Cause, ChangingNumbers


class ModelCalls:
    """Calls of a model; each runs in pieces through a ``PieceRunner``."""

    def __init__(self, model: Callable[..., Any]) -> None:
        self._model = model
        self._roots = list(_modules_of(model))
        self._numbers = ChangingNumbers()

    def call(self, runner: PieceRunner, inputs: Sequence[Any], named: Mapping[str, Any]) -> Any:
        """Call the model and return its result; in-place changes, new attributes and changed containers are kept."""
        call = [tuple(inputs), dict(named)]
        before = ObjectState([self._model, call])
        try:
            return self._call(runner, call, keep_callers=False)
        except CompileError:
            # Tensors that the model has assigned since the last piece do not have data.
            before.restore()
            raise

    def rehearse(self, runner: PieceRunner, example: Inputs) -> None:
        """Call the model with example inputs; restore the model, the inputs and the random generator afterwards."""
        call = list(as_call(example))
        before = ObjectState([self._model, call])
        with torch.random.fork_rng(devices=[]):
            try:
                self._call(runner, call, keep_callers=True)
            finally:
                before.restore()

    def _call(self, runner: PieceRunner, call: list[Any], keep_callers: bool) -> Any:
        """Call the model. During the call, the objects of its inputs contain the tensors of the call."""
        on_the_device: dict[int, tuple[Any, Any]] = {}

        def on_the_host(leaf: Any) -> Any:
            """Replace a tensor on the device by a tensor on the host."""
            tensor = off_the_device(leaf)
            if tensor is not leaf:
                on_the_device[id(tensor)] = tensor, leaf
            return tensor

        recorder = CallRecorder(runner, self._names(), self._numbers, keep_callers)

        def completed(tensor: Any) -> Any:
            """Return the tensor with data for a tensor of the call."""
            tensor = recorder.real(tensor)
            return on_the_device.get(id(tensor), (None, tensor))[1]

        ObjectState([call], code=False).replace(on_the_host)
        result: list[Any] = []
        with torch.no_grad(), dense_experts():
            try:
                result.append(recorder.call(self._model, call, self._paths()))
            except CompileError:
                raise
            # An error of the model; the model may have changed tensors before it.
            except Exception:
                recorder.flush(Cause("an error of the model", ""))
                ObjectState([self._model, call]).replace(completed)
                raise
            ObjectState([self._model, call, result]).replace(completed)
            ObjectState([call, result], code=False).check_hidden()
        return result[0]

    def _names(self) -> dict[int, str]:
        """Names of parameters and buffers by identity."""
        tensors = (pair for root in self._roots for pair in (*root.named_parameters(), *root.named_buffers()))
        return {id(tensor): name for name, tensor in tensors}

    def _paths(self) -> dict[int, str]:
        return {id(module): path for root in self._roots for path, module in root.named_modules()}


def _modules_of(model: Callable[..., Any]) -> Iterator[torch.nn.Module]:
    """Modules that a model is, or that a function or a method refers to."""
    cells = [cell.cell_contents for cell in getattr(model, "__closure__", None) or () if _is_set(cell)]
    for value in (model, getattr(model, "__self__", None), *cells):
        if isinstance(value, torch.nn.Module):
            yield value


def _is_set(cell: Any) -> bool:
    try:
        return cell.cell_contents is not None
    except ValueError:  # an empty cell
        return False
