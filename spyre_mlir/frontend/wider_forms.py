# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""PyTorch decompositions for calls that turn out not to have a linalg form, tried before PyTorch's kernels.

The decomposition table of a program keeps operations that torch-mlir lowers well. torch-mlir lowers some operations in
one form and not in another. These decompositions apply to the calls that it rejected, and to equal calls.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping
from typing import Any

import torch
from torch._decomp import decomposition_table as pytorch_forms
from torch._export.utils import _get_decomp_for_cia
from torch._ops import OpOverload
from torch.fx import Graph

from spyre_mlir.frontend.decompositions import CHECKED_BY_KERNELS
from spyre_mlir.frontend.graph_edits import call_key

#: Decompositions by operation.
Forms = Mapping[Any, Callable[..., Any]]


class WiderForms:
    """Decompositions of rejected calls, on top of the decompositions of the rest of a program."""

    def __init__(self) -> None:
        self._calls: dict[OpOverload, set[Hashable]] = {}

    def add(self, graph: Graph, names: Collection[str]) -> bool:
        """Add the calls of nodes that PyTorch decomposes; return whether any call is new."""
        is_new = False
        for node in graph.nodes:
            if node.name in names and isinstance(node.target, OpOverload) and _is_decomposed(node.target):
                calls = self._calls.setdefault(node.target, set())
                key = call_key(node.target, node.args, node.kwargs)
                is_new = is_new or key not in calls
                calls.add(key)
        return is_new

    def over(self, forms: Forms) -> Forms:
        """Return decompositions in which the added calls use PyTorch's decomposition."""
        return {**forms, **{operator: self._form(operator, forms.get(operator)) for operator in self._calls}}

    def _form(self, operator: OpOverload, otherwise: Callable[..., Any] | None) -> Callable[..., Any]:
        # A composite operation does not have a kernel, or a form that it could keep.
        if _is_composite(operator):
            return _get_decomp_for_cia(operator)
        calls = self._calls[operator]

        def form(*args: Any, **kwargs: Any) -> Any:
            """PyTorch's decomposition of an added call; for other calls the previous form, or the call unchanged."""
            if call_key(operator, args, kwargs) in calls:
                return pytorch_forms[operator](*args, **kwargs)
            return NotImplemented if otherwise is None else otherwise(*args, **kwargs)

        return form


def _is_decomposed(operator: OpOverload) -> bool:
    """Return whether to use PyTorch's decomposition, except for pointwise operators, which stay one operator."""
    if operator._overloadpacket in CHECKED_BY_KERNELS:
        return False
    is_pointwise = torch.Tag.pointwise in operator.tags
    return _is_composite(operator) or (operator in pytorch_forms and not is_pointwise)


def _is_composite(operator: OpOverload) -> bool:
    return operator.has_kernel_for_dispatch_key(torch._C.DispatchKey.CompositeImplicitAutograd)
