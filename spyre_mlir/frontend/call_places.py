# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Functions that a model calls: their line, module and hints in the model, and the bodies of Python functions."""

from __future__ import annotations

import contextlib
import sys
import traceback
import types
from collections.abc import Callable, Iterator
from typing import Any

from torch.fx import traceback as fx_traceback
from torch.nn.modules import module as module_hooks

from spyre_mlir.frontend.locations import model_frames

#: Checks by which PyTorch's Python functions hand themselves to a mode that records them.
_QUESTIONS = ("has_torch_function", "has_torch_function_unary", "has_torch_function_variadic")


def without_dispatch(func: Any) -> Callable[..., Any] | None:
    """Return a Python function of PyTorch that calls others instead of being recorded; None for other functions."""
    if not isinstance(func, types.FunctionType) or not set(_QUESTIONS) & set(func.__code__.co_names):
        return None
    answers = {name: lambda *_: False for name in _QUESTIONS if name in func.__globals__}
    body = types.FunctionType(
        func.__code__, {**func.__globals__, **answers}, func.__name__, func.__defaults__, func.__closure__
    )
    body.__kwdefaults__ = func.__kwdefaults__
    return body


class CallPlaces:
    """The current place of the model in one of its calls."""

    def __init__(self) -> None:
        self._modules: list[tuple[str, type]] = []
        self._outer: list[traceback.StackSummary] = []

    def _frames(self) -> traceback.StackSummary:
        """Frames of the model; inside a PyTorch function whose body is recorded, the frames around the function."""
        frames = model_frames(sys._getframe(1))
        return self._outer[-1] if self._outer and not frames else frames

    def inside(self) -> contextlib.ExitStack:
        """Context in which the body of the current function is recorded."""
        stack = contextlib.ExitStack()
        self._outer.append(self._frames())
        stack.callback(self._outer.pop)
        return stack

    def line(self) -> str:
        """File and line of the model that calls the current function."""
        frames = self._frames()
        return f"{frames[-1].filename}:{frames[-1].lineno}" if frames else ""

    def metadata(self) -> dict[str, Any]:
        """Metadata of a node for the current call: its lines in the model, its module and the hints that hold there."""
        metadata: dict[str, Any] = {"stack_trace": "".join(self._frames().format())}
        if self._modules:
            metadata["nn_module_stack"] = {path: (path, kind) for path, kind in self._modules}
        if custom := fx_traceback.current_meta.get("custom"):
            metadata["custom"] = dict(custom)
        return metadata

    @contextlib.contextmanager
    def following(self, paths: dict[int, str]) -> Iterator[None]:
        """Context that follows which modules run, by the names in ``paths``."""

        def enter(module: Any, *_: Any) -> None:
            self._modules.append((paths.get(id(module), ""), type(module)))

        def leave(*_: Any) -> None:
            self._modules.pop()

        hooks = (
            module_hooks.register_module_forward_pre_hook(enter),
            module_hooks.register_module_forward_hook(leave, always_call=True),
        )
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()
