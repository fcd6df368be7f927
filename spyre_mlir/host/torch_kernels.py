# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rule for a call of a PyTorch kernel (``dialects/torch_call.py``), the last resort for ops without a linalg form.

A file names an operator and its arguments, never code. It may only call operators that compute tensors from tensors: an
operator of ``aten`` or ``prims`` without side effects or random numbers, and without a file, device or generator
argument. An operator of another library runs only in a process that compiled a model with it (``ALLOWED``). Results
have the shapes declared in the file, which is checked before a kernel runs, so that a call cannot use memory without
bound. The first call imports PyTorch.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spyre_mlir.dialects.torch_call import DTYPE, OPERAND, TORCH_CALL, TorchCall
from spyre_mlir.host.block import BlockScope, Frame, Kernel, failure
from spyre_mlir.host.number_types import NumberType, number_type, tensor_shape
from spyre_mlir.mlir import ir
from spyre_mlir.target.element_types import dtype_name

_OPERATOR = re.compile(r"([A-Za-z]\w*)\.(_?[A-Za-z]\w*)\.(\w+)")

#: The libraries of PyTorch's own operators.
_OWN_LIBRARIES = ("aten", "prims")

#: Operators that models of this process call, as ``library.name.overload``; one of another library runs only if it is
#: listed here.
ALLOWED: set[str] = set()

#: The argument types that a call may pass, as written in an operator's schema, without ``?`` and lists.
_ARGUMENT_TYPES = {
    "Tensor", "int", "SymInt", "float", "bool", "number", "Scalar", "ScalarType", "str", "Layout", "Device",
    "MemoryFormat",
}  # fmt: skip

#: Argument types that a call leaves at their default, because it cannot express another value.
_UNSAID_TYPES = {"Layout", "Device", "MemoryFormat"}

#: The allowed texts: modes of operators; none of them names an external resource.
MODES = {
    "none", "mean", "sum", "prod", "amax", "amin", "max", "min", "tanh", "floor", "trunc", "left", "right", "ij", "xy",
    "linear", "lower", "higher", "midpoint", "nearest", "constant", "reflect", "replicate", "circular", "L", "U",
}  # fmt: skip

#: Operators and arguments that make a kernel read or write at positions from tensor data, without a check.
_UNCHECKED = re.compile(
    r"_backward$|unsafe|as_strided|lu_solve|lu_unpack|ldl_solve|ctc_loss|resize|sparse|quant|cudnn|miopen|mkldnn|fbgemm|nested"
)
_UNCHECKED_ARGUMENTS = {"unsafe", "offsets"}

#: Allowed operators whose names begin with an underscore: they are internal to PyTorch, and few check their arguments.
_INTERNAL = {
    "_adaptive_avg_pool2d", "_adaptive_avg_pool3d", "_batch_norm_with_update_functional", "_cdist_backward",
    "_cdist_forward", "_euclidean_dist", "_fft_c2c",
    "_fft_c2r", "_fft_r2c", "_histogramdd_bin_edges", "_histogramdd_from_bin_cts", "_linalg_det",
    "_linalg_eigh", "_linalg_slogdet", "_linalg_solve_ex", "_linalg_svd", "_log_softmax", "_logcumsumexp",
    "_native_batch_norm_legit_no_training", "_pdist_forward", "_prelu_kernel", "_softmax", "_to_copy",
    "_trilinear", "_unique2", "_upsample_bicubic2d_aa", "_upsample_bilinear2d_aa", "_upsample_nearest_exact1d",
    "_upsample_nearest_exact2d", "_upsample_nearest_exact3d", "_weight_norm_interface",
}  # fmt: skip


def refusal_of(operator: Any) -> str | None:
    """Return why a call may not name an operator of PyTorch, as the rest of a sentence; None if it may."""
    name, schema = operator._opname, operator._schema
    if operator.namespace in _OWN_LIBRARIES and name.startswith("_") and name not in _INTERNAL:
        return "is internal to PyTorch"
    if operator.namespace in _OWN_LIBRARIES and _UNCHECKED.search(name):
        return "does not check its arguments"
    if schema.is_mutable:
        return "writes to its operands"
    if any("nondeterministic" in str(tag) for tag in operator.tags):
        return "draws random numbers"
    takes = [_plain_type(argument.real_type) for argument in schema.arguments]
    if "Tensor" not in takes or any(_plain_type(result.real_type) != "Tensor" for result in schema.returns):
        return "does not compute tensors from tensors"
    unknown = set(takes) - _ARGUMENT_TYPES
    return f"takes a {min(unknown)}" if unknown else None


def is_unsaid(name: str, type_: Any) -> bool:
    """Return whether a call leaves an argument at its default: other values cannot be expressed, or are not checked."""
    return _plain_type(type_) in _UNSAID_TYPES or name in _UNCHECKED_ARGUMENTS


def _plain_type(type_: Any) -> str:
    """Return the name of a type without ``list`` and ``optional``."""
    text = str(type_)
    while (inner := re.fullmatch(r"(?:Optional|List)\[(.*)\]|(.*)\?|(.*)\[\d*\]", text)) is not None:
        text = next(group for group in inner.groups() if group is not None)
    return text


def torch_call_rule(op: ir.Operation, scope: BlockScope) -> Kernel:
    """Rule for a call; the operator is looked up when the call first runs."""
    call = TorchCall.of(op)
    if _OPERATOR.fullmatch(call.operator) is None:
        raise failure(op, f"names '{call.operator}', which is not an operator of PyTorch")
    for name, argument in call.arguments.items():
        _check_argument(op, call, name, argument)
    _number_types(op, op.operands, call.operands)
    result_types = _number_types(op, op.results, call.results)
    declared = [
        (tensor_shape(value.type), dtype) for value, dtype in zip(op.results, call.results, strict=True)
    ]
    taken = [
        (tensor_shape(value.type), dtype) for value, dtype in zip(op.operands, call.operands, strict=True)
    ]
    scope.charge(op, sum(math.prod(shape) for shape, _ in (*taken, *declared)))

    @functools.cache
    def function() -> Callable[[Sequence[Any]], Sequence[Any]]:
        """Return the operator with its arguments, after checking that its results are the declared ones."""
        bound = _bound(op, call)
        import torch
        from torch._subclasses.fake_tensor import FakeTensorMode

        # Neither operands nor results have data.
        with FakeTensorMode():
            fakes = [torch.empty(shape, dtype=getattr(torch, dtype)) for shape, dtype in taken]
            results = _run(op, call, bound, fakes)
        _check(op, call, results, declared)
        return bound

    def kernel(frame: Frame, *arrays: NDArray[Any]) -> list[NDArray[Any]]:
        import torch

        tensors = []
        for array, dtype in zip(arrays, call.operands, strict=True):
            elements = np.ascontiguousarray(array).reshape(array.shape)
            elements = elements.view(dtype) if dtype.startswith("u") else elements
            tensors.append(torch.from_numpy(elements).to(getattr(torch, dtype)))
        results = _run(op, call, function(), tensors)
        _check(op, call, results, declared)
        outputs = []
        for result, number in zip(results, result_types, strict=True):
            if result.is_floating_point() and result.dtype.itemsize < number.storage.itemsize:
                result = result.float()
            # Copied, because a view would change with the operand.
            outputs.append(np.array(result.contiguous().numpy()).view(number.storage))
        return outputs

    return kernel


def _number_types(op: ir.Operation, values: Sequence[ir.Value], dtypes: Sequence[str]) -> list[NumberType]:
    """Return the number type of each value, which holds the elements of the PyTorch type on the host."""
    types = [number_type(value.type) for value in values]
    for type_, name in zip(types, dtypes, strict=True):
        if name not in DTYPES or type_.storage != np.dtype(DTYPES[name]) or type_.name == "index":
            raise failure(op, f"takes or returns {name} as elements of the type {type_.name}")
    return types


#: Names of PyTorch's element types by the numpy types that hold their elements on the host.
DTYPES = {
    "float16": "float16", "bfloat16": "float32", "float32": "float32", "float64": "float64", "float8_e4m3fn": "float32",
    "bool": "bool", "uint8": "int8", "int8": "int8", "int16": "int16", "int32": "int32", "int64": "int64",
    "uint16": "int16", "uint32": "int32", "uint64": "int64",
}  # fmt: skip


def _bound(op: ir.Operation, call: TorchCall) -> Callable[[Sequence[Any]], Sequence[Any]]:
    """Return the function from operands to results of a call; ``CompileError`` if PyTorch lacks the operator."""
    try:
        import torch
    except ImportError:
        raise failure(op, f"calls PyTorch's kernel of {call.operator}; install torch to run it") from None
    namespace, packet, overload = call.operator.split(".")
    if namespace not in _OWN_LIBRARIES and call.operator not in ALLOWED:
        raise failure(
            op,
            f"names '{call.operator}', which no model of this process calls; if you trust the file, add the name to "
            "spyre_mlir.host.torch_kernels.ALLOWED",
        )
    operator = getattr(getattr(getattr(torch.ops, namespace), packet, None), overload, None)
    if not isinstance(operator, torch._ops.OpOverload):
        raise failure(op, f"names '{call.operator}', which this version of PyTorch does not have")
    if refusal := refusal_of(operator):
        raise failure(op, f"names '{call.operator}', which {refusal}")
    types = {argument.name: _plain_type(argument.real_type) for argument in operator._schema.arguments}
    unknown = [name for name in call.arguments if name not in types or is_unsaid(name, types[name])]
    if unknown:
        raise failure(op, f"gives '{call.operator}' the argument '{unknown[0]}', which a call cannot express")

    def value(argument: Any, operands: Sequence[Any]) -> Any:
        """Return the value of an argument, with the tensors of a call."""
        if isinstance(argument, list):
            return [value(entry, operands) for entry in argument]
        if isinstance(argument, dict):
            return operands[argument[OPERAND]] if OPERAND in argument else getattr(torch, argument[DTYPE])
        return argument

    def function(operands: Sequence[Any]) -> Sequence[Any]:
        """Return the results of the operator that are kept."""
        results = operator(**{name: value(argument, operands) for name, argument in call.arguments.items()})
        results = results if isinstance(results, (tuple, list)) else [results]
        return [results[number] for number in call.kept]

    return function


def _check_argument(op: ir.Operation, call: TorchCall, name: str, argument: Any) -> None:
    """Raise ``CompileError`` for an argument that is not a number, mode, element type, operand, or a list of them."""
    if isinstance(argument, list):
        for entry in argument:
            _check_argument(op, call, name, entry)
        return
    is_sound = argument in MODES if isinstance(argument, str) else True
    if isinstance(argument, dict):
        operand, dtype = argument.get(OPERAND), argument.get(DTYPE)
        is_operand = type(operand) is int and 0 <= operand < len(call.operands)
        is_sound = len(argument) == 1 and (is_operand or (isinstance(dtype, str) and dtype in DTYPES))
    if not is_sound:
        raise failure(
            op,
            f"gives '{call.operator}' for '{name}' a value that is not a number, mode, element type or operand: "
            f"{argument!r}",
        )


def _run(
    op: ir.Operation, call: TorchCall, function: Callable[..., Any], tensors: Sequence[Any]
) -> Sequence[Any]:
    """Run a call; ``CompileError`` with the reason if PyTorch rejects it."""
    import torch

    try:
        with torch.no_grad():
            return function(tensors)
    # Kernels may raise any exception.
    except Exception as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
        raise failure(op, f"is refused by PyTorch's kernel of {call.operator}: {reason}") from error


def _check(
    op: ir.Operation, call: TorchCall, results: Sequence[Any], declared: Sequence[tuple[tuple[int, ...], str]]
) -> None:
    """Raise ``CompileError`` unless results have the declared shapes and types."""
    given = [(tuple(result.shape), dtype_name(result.dtype)) for result in results]
    if given != list(declared):
        raise failure(op, f"declares {list(declared)}, but PyTorch's kernel of {call.operator} gives {given}")


RULES = {TORCH_CALL: torch_call_rule}
