# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Names of the operations that make outputs of a model views, so that reading the names runs no other code."""

from __future__ import annotations

import operator
from typing import Any

import torch

from spyre_mlir.errors import Uncached

#: Functions that make views of outputs, in addition to PyTorch's operations.
_FUNCTIONS = {"reshape": torch.reshape, "getitem": operator.getitem}


def view_name(operation: Any) -> str:
    """Return the name of an operation that makes an output a view; ``Uncached`` if it is not PyTorch's."""
    name = next((name for name, function in _FUNCTIONS.items() if function is operation), None)
    if name is not None:
        return name
    if not isinstance(operation, torch._ops.OpOverload) or operation.namespace != "aten":
        raise Uncached(f"returns a view by {operation}")
    return str(operation)


def view_operation(name: str) -> Any:
    """Return the view operation of a name; ``ValueError`` for anything else that the name refers to."""
    if name in _FUNCTIONS:
        return _FUNCTIONS[name]
    library, packet, overload = name.split(".")
    operation = getattr(getattr(torch.ops.aten, packet), overload)
    if library != "aten" or not isinstance(operation, torch._ops.OpOverload) or not operation.is_view:
        raise ValueError(f"{name} is no view")
    return operation
