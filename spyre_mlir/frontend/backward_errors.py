# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Errors of operations on the device inside of a backward, which PyTorch would end the process for.

PyTorch leaves a node of a backward through the device guard of ``privateuseone``, which is written in Python, while the
error of the node is set: the error is lost, or the process aborts. An error of a callback at the end of a backward is
kept. So the operation returns zeros in place of its results, and a callback raises the error.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch._C._dynamo.eval_frame import set_eval_frame
from torch.autograd import Variable
from torch.utils import _pytree as pytree

from spyre_mlir.tensors.device_tensor import to_device

#: The number of the current backward where there is none.
_NO_BACKWARD = -1


def raised_after_backward(dispatch: Callable[..., Any]) -> Callable[..., Any]:
    """Let errors of a ``__torch_dispatch__`` inside of a backward be raised by the caller of the backward."""

    @functools.wraps(dispatch)
    def dispatched(
        cls: Any, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run an operation, which Dynamo does not trace; its error waits for the end of the backward."""
        tracer = set_eval_frame(None)
        try:
            return dispatch(cls, func, types, args, kwargs)
        except Exception as error:
            if torch._C._current_graph_task_id() == _NO_BACKWARD or func._schema.is_mutable:
                raise
            zeros = _zeros(cls, func, args, kwargs or {})
            kept = error
        finally:
            set_eval_frame(tracer)
        Variable._execution_engine.queue_callback(functools.partial(_raise, kept))
        return zeros

    return dispatched


def _raise(error: Exception) -> None:
    raise error


def _zeros(cls: Any, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Results of an operation in their shapes and types, on the device, all 0."""
    on_meta = pytree.tree_map_only(torch.Tensor, _on_meta, (args, kwargs))
    results = func(*on_meta[0], **on_meta[1])
    return pytree.tree_map_only(
        torch.Tensor, lambda x: cls.of(to_device(torch.zeros(x.shape, dtype=x.dtype))), results
    )


def _on_meta(tensor: torch.Tensor) -> torch.Tensor:
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta")
