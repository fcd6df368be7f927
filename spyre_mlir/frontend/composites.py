# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Composite operations of PyTorch while a program is decomposed: their forms, registered as by ``run_decompositions``.

For each program PyTorch lists its 500 composite operations and builds the kernels that replace them again. For a small
program this takes longer than the rest of the import. The list and the kernels depend only on the registered
operations, so this module reuses the list and the kernels of the previous program unless a registration has changed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from unittest import mock

import torch
from torch._C import DispatchKey
from torch._export.utils import (
    _collect_all_valid_cia_ops_for_aten_namespace,
    _is_preservable_cia_op,
    _materialize_cpp_cia_ops,
    _special_op_to_preserve_cia,
)
from torch._ops import OperatorBase, _OpNamespace
from torch._subclasses.fake_impls import op_implementations_dict as fake_rules
from torch.export import exported_program
from torch.export.exported_program import _override_composite_implicit_decomp

from spyre_mlir.records import dataclass

#: Forms, keyed by operation.
Forms = dict[OperatorBase, Callable[..., Any]]


@dataclass(frozen=True)
class _Override:
    """Kernels that replace the original kernels of an operation, and its rule for fake tensors if it had none."""

    original: Mapping[Any, Any]
    kernels: Mapping[Any, Any]
    fake_rule: Callable[..., Any] | None

    def is_of(self, operation: OperatorBase) -> bool:
        """Return whether nothing has been registered for the operation since."""
        has_rule = operation in fake_rules or self.fake_rule is not None
        return has_rule and self.original == operation.py_kernels

    def enter(self, operation: OperatorBase, form: Callable[..., Any]) -> None:
        """Replace the original kernels; ``form`` becomes the composition."""
        operation.py_kernels.update(self.kernels)
        operation.py_kernels[DispatchKey.CompositeImplicitAutograd] = form
        operation._dispatch_cache.clear()
        fake_rules.setdefault(operation, self.fake_rule)

    def leave(self, operation: OperatorBase) -> None:
        """Restore the original kernels, and remove the rule."""
        operation.py_kernels.clear()
        operation.py_kernels.update(self.original)
        operation._dispatch_cache.clear()
        fake_rules.pop(operation)


#: Overrides of the operations of earlier programs.
_overrides: dict[OperatorBase, _Override] = {}

#: Compositions that were registered in C++ when ``torch.ops`` was last filled.
_registered: list[str] = []


def split_forms(table: Mapping[OperatorBase, Callable[..., Any]]) -> tuple[Forms, Forms]:
    """Forms of all composite operations, preserved where the table has no form, and forms of other operations."""
    composites = _composites()
    implicit = {operation: table.get(operation, _special_op_to_preserve_cia) for operation in composites}
    return implicit, {operation: form for operation, form in table.items() if operation not in composites}


def _composites() -> set[OperatorBase]:
    """Return the composite operations that do not write to an operand or return a view."""
    registered = torch._C._dispatch_get_registrations_for_dispatch_key("CompositeImplicitAutograd")
    if registered != _registered:
        _materialize_cpp_cia_ops()
        _registered[:] = registered
    # The operations of aten are fixed; other namespaces may register an operation at any time, also in Python.
    composites = set(_collect_all_valid_cia_ops_for_aten_namespace())
    for name in torch.ops._dir:
        namespace = getattr(torch.ops, name)
        if name != "aten" and isinstance(namespace, _OpNamespace):
            packets = (getattr(namespace, packet) for packet in namespace)
            overloads = (overload for packet in packets for overload in packet.op_overloads())
            composites.update(filter(_is_preservable_cia_op, overloads))
    return composites


@contextlib.contextmanager
def overriding(forms: Forms) -> Iterator[None]:
    """Context in which composite operations have these forms, and fake tensors see the original operations."""
    rules = {operation: fake_rules[operation] for operation in forms if operation in fake_rules}
    known = {op: override for op in forms if (override := _overrides.get(op)) and override.is_of(op)}
    new = {operation: form for operation, form in forms.items() if operation not in known}
    originals = {operation: dict(operation.py_kernels) for operation in new}
    with contextlib.ExitStack() as contexts:
        # On exit rules are removed, also the rules that operations had before.
        contexts.callback(fake_rules.update, rules)
        contexts.enter_context(_override_composite_implicit_decomp(new))
        for operation, original in originals.items():
            rule = None if operation in rules else fake_rules[operation]
            _overrides[operation] = _Override(original, dict(operation.py_kernels), rule)
        for operation, override in known.items():
            contexts.callback(override.leave, operation)
            override.enter(operation, forms[operation])
        yield


@contextlib.contextmanager
def decomposing_again() -> Iterator[None]:
    """Context in which ``run_decompositions`` uses the compositions and the kernels of this module."""
    with mock.patch.multiple(
        exported_program,
        _override_composite_implicit_decomp=overriding,
        _split_decomp_table_to_cia_and_python_decomp=split_forms,
    ):
        yield
