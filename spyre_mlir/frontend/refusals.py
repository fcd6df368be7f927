# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rejections of a model as sentences: the operation that the model called, its location, and a remedy.

Problems that a check finds at a node, and errors that PyTorch raises while it traces the model, become a
``CompileError`` with the line of user code, the operation and the path of the module.
"""

from __future__ import annotations

import re
import traceback
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import DataDependentOutputException, UnsupportedOperatorException
from torch.fx import Node
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode
from torch.utils import _pytree as pytree

from spyre_mlir.errors import CompileError, UncapturedError
from spyre_mlir.frontend.locations import is_user_file, module_of, operation_of, source_of, source_of_error
from spyre_mlir.mlir import called_name

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
    "Cannot access storage of SparseTensorImpl": "sparse tensors are not supported; make a dense one of it before",
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


def refusal_at(node: Node, message: str, kind: type[CompileError] = CompileError) -> CompileError:
    """Create an error of a ``kind`` about a node; for an input it contains only the line."""
    called = called_name(operation_of(node)) if node.op == "call_function" else ""
    return kind(message, source_of(node), called, module_of(node))


def check_inputs(leaves: Any) -> None:
    """Raise ``CompileError`` for an example input that is sparse or quantized."""
    for index, leaf in enumerate(pytree.tree_leaves(leaves)):
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


def check_product_types(node: Node) -> None:
    """Raise ``CompileError`` for a product of tensors of several types, which PyTorch rejects at run time."""
    operands = list(node.args[: _PRODUCTS.get(node.target, 0)])
    values = [operand.meta.get("val") for operand in operands if isinstance(operand, Node)]
    dtypes = dict.fromkeys(value.dtype for value in values if isinstance(value, Tensor))
    if len(dtypes) > 1:
        names = " and ".join(str(dtype).removeprefix("torch.") for dtype in dtypes)
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
        return UncapturedError(f"What it gives {_VALUES}.", where, called, module)
    # The first line of the error's message, in the words of a user.
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
