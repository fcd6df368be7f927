"""Places in the model of the functions that it calls: line, module and hints."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Any

from torch.fx import traceback as fx_traceback
from torch.nn.modules import module as module_hooks

from spyre_mlir.frontend.locations import model_frames


class CallPlaces:
    """Where the model is in a call of it."""

    def __init__(self) -> None:
        self._modules: list[tuple[str, type]] = []

    def line(self) -> str:
        """File and line of the model that calls the function at hand."""
        frames = model_frames(sys._getframe(1))
        return f"{frames[-1].filename}:{frames[-1].lineno}" if frames else ""

    def metadata(self) -> dict[str, Any]:
        """Metadata of a node for the call at hand: its lines in the model, its module and the hints that hold there."""
        metadata: dict[str, Any] = {"stack_trace": "".join(model_frames(sys._getframe(1)).format())}
        if self._modules:
            metadata["nn_module_stack"] = {path: (path, kind) for path, kind in self._modules}
        if custom := fx_traceback.current_meta.get("custom"):
            metadata["custom"] = dict(custom)
        return metadata

    @contextlib.contextmanager
    def following(self, paths: dict[int, str]) -> Iterator[None]:
        """Context in which the modules that run are known, by the names of ``paths``."""

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
