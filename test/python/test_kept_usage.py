# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The usage of a function that passes share while none of them changes the function."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from spyre_mlir import dialects
from spyre_mlir.analysis.aliasing import all_ops, functions, is_compute
from spyre_mlir.analysis.buffer_uses import Usage
from spyre_mlir.analysis.kept_usage import usage_kept, usage_of
from spyre_mlir.dialects import sdsc
from spyre_mlir.mlir import ir
from spyre_mlir.pipelines import SpyrePipeline, run_pipeline

#: Two results of one argument, and their sum.
PROGRAM = """
func.func @main(%x: tensor<64x64xf16>) -> tensor<64x64xf16> {
  %e = tensor.empty() : tensor<64x64xf16>
  %a = linalg.exp ins(%x : tensor<64x64xf16>) outs(%e : tensor<64x64xf16>) -> tensor<64x64xf16>
  %b = linalg.tanh ins(%x : tensor<64x64xf16>) outs(%e : tensor<64x64xf16>) -> tensor<64x64xf16>
  %c = linalg.add ins(%a, %b : tensor<64x64xf16>, tensor<64x64xf16>) outs(%e : tensor<64x64xf16>) -> tensor<64x64xf16>
  return %c : tensor<64x64xf16>
}
"""


@pytest.fixture
def module() -> ir.Module:
    """The program, divided."""
    divided = ir.Module.parse(PROGRAM, dialects.context())
    run_pipeline(divided, SpyrePipeline(sencores=1).pipeline("divided"))
    return divided


def _function(module: ir.Module) -> ir.Operation:
    (func,) = functions(module.operation)
    return func


def _exp_and_tanh(module: ir.Module) -> list[ir.Operation]:
    return [op for op in all_ops(_function(module)) if is_compute(op)][:2]


def test_an_unchanged_function_is_read_once(module: ir.Module):
    """All that ask in one block have the same object."""
    with usage_kept():
        assert usage_of(_function(module)) is usage_of(_function(module))


def test_nothing_is_kept_outside_of_a_block(module: ir.Module):
    """Without a block, and after it, each call reads the function."""
    with usage_kept():
        usage = usage_of(_function(module))
    first = usage_of(_function(module))
    assert first is not usage
    assert first is not usage_of(_function(module))


def test_a_block_inside_has_its_own(module: ir.Module):
    """A trial inside of a pass does not take the place of the program's usage."""
    with usage_kept():
        usage = usage_of(_function(module))
        with usage_kept():
            assert usage_of(_function(module)) is not usage
        assert usage_of(_function(module)) is usage


def _mark(module: ir.Module) -> None:
    _exp_and_tanh(module)[0].attributes[sdsc.EVICTED] = ir.UnitAttr.get(module.context)


def _move(module: ir.Module) -> None:
    first, second = _exp_and_tanh(module)
    first.move_after(second)


def _swap_operands(module: ir.Module) -> None:
    last = [op for op in all_ops(_function(module)) if is_compute(op)][-1]
    last.operands[0], last.operands[1] = last.operands[1], last.operands[0]


def _erase_and_rebuild(module: ir.Module) -> None:
    """Replace an op by one of the same text."""
    op = _exp_and_tanh(module)[0]
    with module.context, ir.InsertionPoint(op):
        op.results[0].replace_all_uses_with(op.clone().operation.results[0])
    op.erase()


def _erase_what_was_read(module: ir.Module) -> None:
    """Replace an op by one of the same text, and erase it by the very object that the usage has."""
    op = usage_of(_function(module)).ops[0].op
    with module.context, ir.InsertionPoint(op):
        op.results[0].replace_all_uses_with(op.clone().operation.results[0])
    op.erase()


def _other_target(module: ir.Module) -> None:
    text = "{lx = {bytes = 131072 : i64}}"
    module.operation.attributes["sdsc.target"] = ir.Attribute.parse(text, module.context)


CHANGES: dict[str, Callable[[ir.Module], None]] = {
    "attribute": _mark,
    "order": _move,
    "operands": _swap_operands,
    "another op of the same text": _erase_and_rebuild,
    "an erased op of the usage": _erase_what_was_read,
    "target": _other_target,
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_is_seen(module: ir.Module, name: str):
    """After any change the kept usage equals the usage of the changed function."""
    with usage_kept():
        before = usage_of(_function(module))
        CHANGES[name](module)
        usage = usage_of(_function(module))
        assert usage is not before
        fresh = Usage(_function(module))
        assert [user.op for user in usage.ops] == [user.op for user in fresh.ops]
        assert usage.buffers.keys() == fresh.buffers.keys()
        assert usage.memory.target == fresh.memory.target


def test_another_function_of_the_same_text_is_another(module: ir.Module):
    """A copy in place of an erased function has separate usage."""
    with usage_kept():
        before = usage_of(_function(module))
        func = before.func
        with module.context:
            func.clone(ir.InsertionPoint(func))
        func.erase()
        usage = usage_of(_function(module))
        assert usage is not before
        assert all(user.op.parent is not None for user in usage.ops)


def test_a_large_constant_is_compared_and_never_written():
    """The state of a function does not contain the numbers of a constant; other numbers give other usage."""
    text = """
func.func @main(%x: tensor<64x64xf16>) -> tensor<64x64xf16> {
  %w = arith.constant dense<"0xNUMBERS"> : tensor<64x64xf16>
  %e = tensor.empty() : tensor<64x64xf16>
  %a = linalg.add ins(%x, %w : tensor<64x64xf16>, tensor<64x64xf16>) outs(%e : tensor<64x64xf16>) -> tensor<64x64xf16>
  return %a : tensor<64x64xf16>
}
"""
    zeros, ones = ("003C" + bits + "003C" * 4094 for bits in ("0000", "003C4000"[4:]))
    divided = ir.Module.parse(text.replace("NUMBERS", zeros), dialects.context())
    run_pipeline(divided, SpyrePipeline(sencores=1).pipeline("divided"))
    func = _function(divided)
    (constant,) = (
        op for op in all_ops(func) if op.name == "arith.constant" and not op.attributes["value"].is_splat
    )
    other = str(constant.attributes["value"]).replace(zeros, ones)
    with usage_kept():
        usage = usage_of(func)
        assert usage_of(func) is usage
        constant.attributes["value"] = ir.Attribute.parse(other, constant.context)
        assert usage_of(func) is not usage
