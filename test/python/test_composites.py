# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Composite operations while a program is decomposed, compared with ``run_decompositions`` of PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch._ops import OperatorBase
from torch._subclasses.fake_impls import op_implementations_dict as fake_rules
from torch.export.exported_program import (
    _override_composite_implicit_decomp,
    _split_decomp_table_to_cia_and_python_decomp,
)

from spyre_mlir.frontend.decomposed import Forms, overriding, split_forms
from spyre_mlir.frontend.decompositions import decomposition_table

aten = torch.ops.aten
COMPOSITION = torch._C.DispatchKey.CompositeImplicitAutograd


@pytest.fixture(autouse=True)
def rules() -> Iterator[None]:
    """Restore PyTorch's contexts after a test."""
    before = dict(fake_rules)
    yield
    fake_rules.clear()
    fake_rules.update(before)


def kernels(operation: OperatorBase) -> dict[Any, Any]:
    """Kernels by key; those that PyTorch builds for an operation are other objects in each context."""
    return {key: named(kernel) for key, kernel in operation.py_kernels.items()}


def named(kernel: Any) -> Any:
    """Return code and bound arguments of a kernel that is a function, and any other kernel unchanged."""
    if hasattr(kernel, "func"):
        return named(kernel.func), kernel.args, {key: named(value) for key, value in kernel.keywords.items()}
    return getattr(kernel, "__code__", kernel)


def state(forms: Forms) -> dict[OperatorBase, tuple[Any, Any]]:
    """Kernels and rules for fake tensors of all operations."""
    return {operation: (kernels(operation), named(fake_rules.get(operation))) for operation in forms}


def expected_state(forms: Forms) -> dict[OperatorBase, tuple[Any, Any]]:
    """State in PyTorch's context, with the rules that it forgets."""
    before = dict(fake_rules)
    with _override_composite_implicit_decomp(forms):
        expected = state(forms)
    fake_rules.update(before)
    return expected


def unchanged(*operands: Any) -> Callable:
    return NotImplemented


@pytest.mark.parametrize("precision", ["device", "strict"])
def test_forms_are_split_as_by_pytorch(precision: str) -> None:
    table = decomposition_table(precision)
    assert split_forms(table) == _split_decomp_table_to_cia_and_python_decomp(dict(table))


def test_an_operation_registered_later_is_among_them() -> None:
    """In C++ or in Python, in a namespace that was there or in a new one."""
    before, _ = split_forms({})
    added = []
    for namespace in ("spyre_test_composites", "quantized"):
        with torch.library._scoped_library(namespace, "FRAGMENT") as library:
            library.define("spyre_doubled(Tensor x) -> Tensor")
            library.impl("spyre_doubled", lambda x: x + x, "CompositeImplicitAutograd")
            added.append(getattr(torch.ops, namespace).spyre_doubled.default)
            implicit, explicit = split_forms({added[-1]: unchanged})
            assert (implicit, explicit) == _split_decomp_table_to_cia_and_python_decomp(
                {added[-1]: unchanged}
            )
            assert implicit.keys() - before.keys() == {added[-1]} and implicit[added[-1]] is unchanged


def test_kernels_are_those_of_pytorch_the_second_time_too() -> None:
    forms, _ = split_forms(decomposition_table())
    others = {**forms, aten.item.default: unchanged, aten.matmul.default: unchanged}
    assert len(forms) > 400
    before = state(forms)
    for entered in (forms, others, forms):
        expected = expected_state(entered)
        with overriding(entered):
            assert state(entered) == expected
            assert all(op.py_kernels[COMPOSITION] is form for op, form in entered.items())
        assert state(forms) == before


def test_everything_is_as_before_after_an_error() -> None:
    forms, _ = split_forms(decomposition_table())
    before = state(forms)
    for _ in range(2):
        with pytest.raises(ZeroDivisionError), overriding(forms):
            raise ZeroDivisionError
        assert state(forms) == before


def test_a_kernel_registered_in_between_is_called() -> None:
    """The override of an operation is built again after a change of its kernels."""
    operation = aten.matmul.default
    with overriding({operation: unchanged}):
        pass
    key = torch._C.DispatchKey.CPU
    operation.py_impl(key)(unchanged)
    try:
        for _ in range(2):
            with overriding({operation: unchanged}):
                assert operation.py_kernels[key] is unchanged
            assert operation.py_kernels[key] is unchanged
    finally:
        del operation.py_kernels[key]
        operation._dispatch_cache.clear()


def test_a_form_is_called_and_only_inside() -> None:
    """Caches of dispatching do not outlive the context."""
    from torch._dispatch.python import enable_python_dispatcher

    x = torch.ones(2, 2)
    for factor in (3.0, 5.0):
        with overriding({aten.matmul.default: lambda a, b, factor=factor: a * factor}), torch.no_grad():
            with enable_python_dispatcher(), torch.inference_mode():
                inside = aten.matmul.default.decompose(x, x)
        assert torch.equal(inside, x * factor)
        with enable_python_dispatcher():
            assert torch.equal(torch.matmul(x, x), x * 2)


def test_a_rule_for_fake_tensors_outlives_a_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch would give ``item`` of a second program another rule than ``item`` of the first program."""
    monkeypatch.setitem(fake_rules, aten.item.default, unchanged)
    for _ in range(2):
        with overriding({aten.item.default: unchanged, aten.matmul.default: unchanged}):
            assert fake_rules[aten.item.default] is unchanged
        assert fake_rules[aten.item.default] is unchanged and aten.matmul.default not in fake_rules
