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

import numpy as np
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import DataDependentOutputException, UnsupportedOperatorException
from torch.fx import Node
from torch.fx import proxy as fx_proxy
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode
from torch.fx.node import map_arg
from torch.utils import _pytree as pytree
from torch_mlir.extras import fx_importer
from torch_mlir.extras.fx_importer import ContextCache

from spyre_mlir.dialects.attributes import to_attribute
from spyre_mlir.dialects.hint_attributes import HINTS, hints_attr, with_hints
from spyre_mlir.errors import CompileError, UncapturedError
from spyre_mlir.mlir import called_name, ir
from spyre_mlir.target.element_types import dtype_name

_FRAME = re.compile(r'File "([^"]+)", line (\d+)')
#: A PyTorch operation; the origin of a Dynamo node is instead a Python function, printed with its address.
_OVERLOAD = re.compile(r"\w+\.\w+\.\w+")
#: Dynamo's names: of the compiled module, in its own method and in the function that torch.compile wraps around a
#: PyTorch module; of other local and global variables; and of items.
_DYNAMO_ROOT = re.compile(r"^L\['(?:self|fn)'\]\.?")
_DYNAMO_VARIABLE = re.compile(r"^[LG](?=\[')")
_DYNAMO_ITEM = re.compile(r"\[['\"]?([^\[\]'\"]+)['\"]?\]")
_FRONTEND = os.path.dirname(__file__) + os.sep
_INTERNAL_FOLDERS = (
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
    return not standard and not filename.startswith(_INTERNAL_FOLDERS)


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


# Rejections of a model as sentences: the operation that the model called, its location, and a remedy.
#
# Problems that a check finds at a node, and errors that PyTorch raises while it traces the model, become a
# ``CompileError`` with the line of user code, the operation and the path of the module.


#: Element types, keyed by their names in messages of PyTorch.
_DTYPE_NAMES = {
    "c10::Half": "float16", "Half": "float16", "c10::BFloat16": "bfloat16", "BFloat16": "bfloat16",
    "float": "float32", "Float": "float32", "double": "float64", "Double": "float64", "long int": "int64",
    "long": "int64", "Long": "int64", "int": "int32", "Int": "int32", "bool": "bool", "Bool": "bool",
    "Byte": "uint8", "Char": "int8", "Short": "int16",
}  # fmt: skip
_DTYPE_WORDS = re.compile(r"\b(?<!torch\.)(" + "|".join(sorted(_DTYPE_NAMES, key=len, reverse=True)) + r")\b")

#: PyTorch's words for tensors without data, and the words for a user.
_WORDS = {
    "'FakeTensor' object": "a tensor",
    "FakeTensor": "Tensor",
    ".numpy() is not supported for tensor subclasses": (
        ".numpy() takes the numbers of a tensor, which has none while a model is compiled; compute with tensors"
    ),
    "Cannot access storage of SparseTensorImpl": "sparse tensors are not supported; convert it to a dense tensor first",
}

_VALUES = "is only known when the program runs; compute with tensors, for example with torch.where"

_ATEN = torch.ops.aten

#: Operations that multiply their operands, with the number of leading operands that must have one type.
_PRODUCTS: dict[Any, int] = {
    _ATEN.linear.default: 3, _ATEN.matmul.default: 2, _ATEN.mm.default: 2, _ATEN.bmm.default: 2,
    _ATEN.addmm.default: 3, _ATEN.baddbmm.default: 3, _ATEN.mv.default: 2, _ATEN.dot.default: 2,
    _ATEN.scaled_dot_product_attention.default: 3,
    _ATEN.conv1d.default: 3, _ATEN.conv2d.default: 3, _ATEN.conv3d.default: 3,
    _ATEN.conv1d.padding: 3, _ATEN.conv2d.padding: 3, _ATEN.conv3d.padding: 3,
    _ATEN.conv_transpose1d.default: 2, _ATEN.conv_transpose2d.input: 2, _ATEN.conv_transpose3d.input: 2,
}  # fmt: skip

#: Operations whose operands are a tensor, the dim of its slices, an index, and a source of slices.
_INTO_SLICES = (_ATEN.index_add, _ATEN.index_add_, _ATEN.index_reduce, _ATEN.index_reduce_)


def refusal_at(node: Node, message: str, kind: type[CompileError] = CompileError) -> CompileError:
    """Create an error of a ``kind`` about a node; for an input it contains only the line."""
    called = called_name(operation_of(node)) if node.op == "call_function" else ""
    return kind(message, source_of(node), called, module_of(node))


def check_inputs(leaves: Any) -> None:
    """Raise ``CompileError`` for an example input that is sparse, quantized, or an array of numpy."""
    for index, leaf in enumerate(pytree.tree_leaves(leaves)):
        if isinstance(leaf, np.ndarray):
            raise CompileError(
                f"Input {index} is an array of numpy; give a tensor, as torch.from_numpy() makes it."
            )
        if not isinstance(leaf, Tensor):
            continue
        if leaf.layout != torch.strided:
            layout = str(leaf.layout).removeprefix("torch.")
            raise CompileError(
                f"Input {index} is a tensor of layout {layout}; give a dense one, as to_dense() makes it."
            )
        if leaf.is_quantized:
            raise CompileError(
                f"Input {index} is quantised ({leaf.dtype}); give its numbers, as dequantize() makes them."
            )


def check_operands(node: Node) -> None:
    """Raise ``CompileError`` for operands that only kernels of PyTorch reject.

    These are operands of several types of a product, and slices of other sizes than the tensor that they change.
    """
    if getattr(node.target, "overloadpacket", None) in _INTO_SLICES and len(node.args) > 3:
        values: Any = map_arg(node.args[:4], lambda operand: operand.meta["val"])
        changed, dim, index, source = values
        slices = [
            index.numel() if at == dim % changed.ndim else size for at, size in enumerate(changed.shape)
        ]
        if changed.ndim and source.ndim and list(source.shape) != slices:
            message = (
                f"The sizes {list(source.shape)} of the source differ from the sizes {slices} of the slices."
            )
            raise refusal_at(node, message)
    operands = list(node.args[: _PRODUCTS.get(node.target, 0)])
    values = [operand.meta.get("val") for operand in operands if isinstance(operand, Node)]
    dtypes = dict.fromkeys(value.dtype for value in values if isinstance(value, Tensor))
    if len(dtypes) > 1:
        names = " and ".join(dtype_name(dtype) for dtype in dtypes)
        raise refusal_at(
            node,
            f"Its operands are {names}, which PyTorch does not multiply; cast them to one type, or give autocast.",
        )


def refusal_of_error(error: Exception, model: Any) -> UncapturedError:
    """Convert an error that PyTorch, or the model itself, raised while the model was traced."""
    where, module = source_of_error(error), ""
    if isinstance(model, torch.nn.Module):
        # The innermost module whose code the exception went through.
        paths = {id(module): name for name, module in model.named_modules()}
        for frame, _ in traceback.walk_tb(error.__traceback__):
            module = paths.get(id(frame.f_locals.get("self")), module)
    if isinstance(error, GuardOnDataDependentSymNode):
        return UncapturedError(
            f"A branch or a shape depends on the values of a tensor: it {_VALUES}.", where, "", module
        )
    if isinstance(error, DataDependentOutputException | UnsupportedOperatorException):
        called = called_name(str(error.func))
        return UncapturedError(f"Its result {_VALUES}.", where, called, module)
    # The first line of the error's message, without PyTorch's internal terms.
    lines = [line.strip() for line in str(error).strip().splitlines() if line.strip()]
    reason = lines[0].rstrip(".") if lines else ""
    name = type(error).__name__
    for words, ours in _WORDS.items():
        reason = reason.replace(words, ours)
    frames = traceback.extract_tb(error.__traceback__)
    if frames and is_user_file(frames[-1].filename):
        sentence = f"The model raises {name}: {reason}." if reason else f"The model raises {name}."
    elif not any(is_user_file(frame.filename) for frame in frames) and isinstance(error, TypeError):
        sentence = f"The model cannot be called with these example inputs: {reason or name}."
    else:
        if "dtype" in reason or "scalar type" in reason:
            reason = _DTYPE_WORDS.sub(lambda word: _DTYPE_NAMES[word[0]], reason)
        sentence = f"PyTorch cannot run this: {reason or name}."
    return UncapturedError(sentence, where, "", module)
