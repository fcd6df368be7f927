# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Source locations of torch operations: the user's file and line, the module path and the aten operation.

torch-mlir keeps the file and line of an FX node and drops its other metadata, but it carries locations one to one down
to linalg. So the other metadata is attached to a fused location::

    loc(fused<{aten = "aten.linear.default", module = "layers.0.q", node = "mm_3"}>["model.py":12:0])

``hint`` contains the annotations of ``torch.fx.traceback.annotate({...})`` on the operation. The hints of
``spyre_hint`` are in an outer location (``dialects/hint_attributes.py``).
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import sys
import traceback
import types
from collections.abc import Iterator
from typing import Any
from unittest import mock

import torch
from torch.fx import Node
from torch.fx import proxy as fx_proxy
from torch_mlir.extras import fx_importer
from torch_mlir.extras.fx_importer import ContextCache

from spyre_mlir.dialects.attributes import to_attribute
from spyre_mlir.dialects.hint_attributes import HINTS, hints_attr, with_hints
from spyre_mlir.mlir import ir

_FRAME = re.compile(r'File "([^"]+)", line (\d+)')
#: A PyTorch operation; the origin of a Dynamo node is instead a Python function, printed with its address.
_OVERLOAD = re.compile(r"\w+\.\w+\.\w+")
#: Dynamo's names: of the compiled module, in its own method and in the function that torch.compile wraps around a
#: PyTorch module; of other local and global variables; and of items.
_DYNAMO_ROOT = re.compile(r"^L\['(?:self|fn)'\]\.?")
_DYNAMO_VARIABLE = re.compile(r"^[LG](?=\[')")
_DYNAMO_ITEM = re.compile(r"\[['\"]?([^\[\]'\"]+)['\"]?\]")
_FRONTEND = os.path.dirname(__file__) + os.sep
_INTERNAL_PREFIXES = (
    *(os.path.dirname(str(module.__file__)) + os.sep for module in (torch, fx_importer)),
    os.path.dirname(os.path.dirname(__file__)) + os.sep, "<",
)  # fmt: skip
#: A frame between the model and the node that is made for it.
_INFERENCE = _FRONTEND + "inference.py"
#: The models of the compiler's zoo count as user files.
_ZOO = os.path.join(os.path.dirname(os.path.dirname(__file__)), "zoo") + os.sep
_STANDARD_LIBRARY = os.path.dirname(os.__file__) + os.sep


@functools.cache
def is_user_file(filename: str) -> bool:
    """Return whether a file belongs to the user, which includes a model in an installed package."""
    if filename.startswith(_ZOO):
        return True
    standard = filename.startswith(_STANDARD_LIBRARY) and "site-packages" not in filename
    return not standard and not filename.startswith(_INTERNAL_PREFIXES)


@functools.cache
def _is_compiler_file(filename: str) -> bool:
    """Return whether a file belongs to the code that calls a model, or that a model calls."""
    return filename.startswith(_FRONTEND) and filename != _INFERENCE


class _ModelFrames:
    """Frames of the model's code in the call stack: the user's frames inside the call of torch.export.

    Replaces torch's capture of all frames, which costs more than everything else for a node.
    """

    def __init__(self, frames: list[traceback.FrameSummary]) -> None:
        self._frames = frames

    @classmethod
    def extract(cls) -> _ModelFrames:
        """Return the frames at this point."""
        return cls.above(sys._getframe(1))

    @classmethod
    def above(cls, frame: types.FrameType | None) -> _ModelFrames:
        """Return the frames from ``frame`` outwards."""
        frames = []
        # Frames outside the compiler's own frames belong to the caller of the compiler.
        while frame is not None and not _is_compiler_file(filename := frame.f_code.co_filename):
            if is_user_file(filename):
                frames.append(traceback.FrameSummary(filename, frame.f_lineno, frame.f_code.co_name))
            frame = frame.f_back
        return cls(frames[::-1])

    def summary(self) -> traceback.StackSummary:
        """Return the frames, outermost first."""
        return traceback.StackSummary.from_list(self._frames)


def model_frames(frame: types.FrameType | None) -> traceback.StackSummary:
    """Frames of the model's code that called a function of the compiler, outermost first."""
    while frame is not None and _is_compiler_file(frame.f_code.co_filename):
        frame = frame.f_back
    return _ModelFrames.above(frame).summary()


@contextlib.contextmanager
def recording_all_frames() -> Iterator[None]:
    """Context in which torch.export records every function of the model, not only those named forward."""
    with (
        mock.patch.object(fx_proxy, "CapturedTraceback", _ModelFrames),
        mock.patch.object(fx_proxy.TracerBase, "_filter_traceback_frames", lambda _, frames: frames),
    ):
        yield


def user_frames(node: Node) -> list[tuple[str, int]]:
    """(file, line) pairs of user code that called the operation, outermost first."""
    frames = [(name, int(line)) for name, line in _FRAME.findall(node.stack_trace or "")]
    # A model from torch itself has no other frames.
    return [frame for frame in frames if is_user_file(frame[0])] or frames


def source_of(node: Node) -> str:
    """``file:line`` of user code for an FX node, or an empty string."""
    frames = user_frames(node)
    return f"{frames[-1][0]}:{frames[-1][1]}" if frames else ""


def source_of_error(error: BaseException) -> str:
    """``file:line`` of the innermost user-code frame that an exception went through."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if is_user_file(frame.filename)]
    return f"{frames[-1].filename}:{frames[-1].lineno}" if frames else ""


def module_of(node: Node) -> str:
    """Path of the ``nn.Module`` that an FX node belongs to, such as ``layers.0.q``."""
    stack = node.meta.get("nn_module_stack")
    return _module_path(list(stack.values())[-1][0]) if stack else ""


@functools.cache
def _module_path(name: str) -> str:
    """Path of a module from its name in torch.export or Dynamo: ``models.0.q`` for ``L['models'][0].q``."""
    name = _DYNAMO_VARIABLE.sub("", _DYNAMO_ROOT.sub("", name))
    return _DYNAMO_ITEM.sub(r".\1", name).lstrip(".")


def operation_of(node: Node) -> str:
    """Operation that the model called, before decomposition: ``aten.layer_norm.default``."""
    name = str(node.meta.get("original_aten") or "")
    # Decompositions form a chain of origins; the first origin is the operation that the model called.
    sources = node.meta.get("from_node") or []
    while sources:
        if _OVERLOAD.fullmatch(sources[-1].target):
            name = sources[-1].target
        sources = sources[-1].from_node
    return name


def _plain(value: Any) -> Any:
    """Convert an annotation to types that attributes support; other values become their text."""
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    return value if isinstance(value, (bool, int, float, str)) else str(value)


class SourceLocations(ContextCache):
    """torch-mlir's per-context cache of locations, extended by module, operation and hints."""

    def get_node_location(self, node: Node) -> ir.Location | None:
        """Fused location of a node, which torch-mlir's importer attaches to the ops of the node."""
        if node.op == "output":
            return super().get_node_location(node)
        metadata: dict[str, Any] = {"node": node.name}
        if node.op != "placeholder":
            if operation := operation_of(node):
                metadata["aten"] = operation
            if module := module_of(node):
                metadata["module"] = module
            # Dynamo and spyre_hint store their own annotations in the same dictionary.
            custom = {key: value for key, value in (node.meta.get("custom") or {}).items() if key[0] != "_"}
            if custom:
                metadata["hint"] = _plain(custom)
        with self._c:
            # The call stack in the user code, innermost frame first.
            frames = [ir.Location.file(name, line, 0) for name, line in user_frames(node)]
            source = frames[-1] if frames else ir.Location.unknown()
            if len(frames) > 1:
                source = ir.Location.callsite(source, frames[-2::-1])
            location = ir.Location.fused([source], metadata=to_attribute(metadata))
            if HINTS not in node.meta:
                return location
            return with_hints(location, hints_attr(node.meta[HINTS]))
