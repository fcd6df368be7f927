# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Assertions of models and modules: one that fails stops the call before it returns or changes anything."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import spyre_mlir
from spyre_mlir.errors import CompileError, FailedAssertionError

# A part of each program runs on the host; test_host_work_warning.py tests the warning.
pytestmark = pytest.mark.filterwarnings("ignore::spyre_mlir.HostWorkWarning")

_ONES = torch.ones(4, 64).half()


def _on_a_tensor(x):
    torch._assert_async((x > 0).all(), "positive please")
    return x * 2


def _without_text(x):
    torch._assert_async(x.amin())
    return x * 2


def _on_all_elements(x):
    torch._check_tensor_all(x > 0, lambda: "positive please")
    return x * 2


def _on_a_count(x):
    count = (x > 0).sum().item()
    torch._check(count > 3, lambda: "positive please")
    torch._check(count // 2 + 1 <= 129)
    torch._check_is_size(count)
    return x * 2


def _on_a_sum(x):
    torch._check(x.sum().item() > 0.5, lambda: "positive please")
    return x * 2


def _of_a_result(x):
    y = torch.softmax(x, -1)
    torch._assert_async(torch.isfinite(torch.sqrt(x)).all(), "positive please")
    return x * 2 + 0 * y


def _alone(x):
    torch._assert_async((x > 0).all(), "positive please")
    return x[1:]


def _on_rows_of_a_scan(x):
    from torch._higher_order_ops.scan import scan

    def body(carried, row):
        torch._assert_async((row > 0).all(), "positive please")
        return carried + row, row * 2

    return scan(body, torch.zeros_like(x[0]), x)[1]


_MODELS = [
    _on_a_tensor, _on_all_elements, _on_a_count, _on_a_sum, _of_a_result, _alone, _on_rows_of_a_scan,
]  # fmt: skip


@pytest.mark.parametrize("model", _MODELS)
def test_a_violated_assertion_stops_the_call_with_its_text(model):
    program = spyre_mlir.compile(model, (_ONES,))
    assert torch.equal(program(_ONES), model(_ONES))
    with pytest.raises(FailedAssertionError, match="positive please"):
        program(-_ONES)


def test_an_assertion_without_a_text_has_its_line():
    program = spyre_mlir.compile(_without_text, (_ONES,))
    assert torch.equal(program(_ONES), _ONES * 2)
    with pytest.raises(RuntimeError, match=f"test_assertions.py:{_without_text.__code__.co_firstlineno + 1}"):
        program(_ONES * 0)


@pytest.mark.parametrize("shape", [(8, 8), (3, 5)])
def test_a_condition_on_numbers_is_that_of_pytorch(shape):
    def model(x, n, m):
        a, b = n.item(), m.item()
        torch._check(torch.sym_max(a, b) - torch.sym_min(a, b) == 3)
        torch._check(a % 4 == 2)
        torch._check(-a + 2 * b != 0)
        torch._check(a // b <= 2)
        return x + 1

    x, program = torch.ones(shape), None
    for a, b in ((2, 5), (6, 3), (6, 9), (6, 4), (5, 2)):
        numbers = torch.tensor(a), torch.tensor(b)
        program = program or spyre_mlir.compile(model, (x, *numbers))
        try:
            model(x, *numbers)
        except RuntimeError:
            with pytest.raises(FailedAssertionError):
                program(x, *numbers)
        else:
            assert torch.equal(program(x, *numbers), x + 1)


def test_assertions_of_a_branch_hold_where_the_other_one_is_taken():
    def model(x):
        def large(x):
            torch._assert_async((x < 4).all(), "too large")
            return x * 2

        def small(x):
            torch._assert_async((x > 0).all(), "too small")
            return x * 3

        return torch.cond(x[0, 0] > 2, large, small, (x,))

    program = spyre_mlir.compile(model, (_ONES,))
    assert torch.equal(program(_ONES), _ONES * 3)
    assert torch.equal(program(_ONES * 3), _ONES * 6)
    for factor, text in ((5, "too large"), (-1, "too small")):
        with pytest.raises(FailedAssertionError, match=text):
            program(_ONES * factor)


def test_a_violated_assertion_changes_no_input():
    def model(x):
        x.add_(1)
        torch._assert_async((x > 0).all())
        return x * 2

    program, x = spyre_mlir.compile(model, (_ONES.clone(),)), _ONES * -5
    with pytest.raises(FailedAssertionError):
        program(x)
    assert torch.equal(x, _ONES * -5)


def test_the_condition_of_an_assertion_is_computed_in_the_types_of_the_program():
    def model(x):
        torch._assert_async((x.sum(-1) - 1).abs().max() < 1e-5)
        return x * 2

    x = torch.softmax(torch.linspace(0, 3, 64 * 64).reshape(64, 64), -1)
    spyre_mlir.compile(model, (x,))(x)


@pytest.mark.parametrize("way", ["saved", "pickled", "cached", "compiled", "sized"])
def test_assertions_go_with_the_program(way, tmp_path: Path, monkeypatch):
    if way == "compiled":
        torch._dynamo.reset()
        program = torch.compile(_on_a_tensor, backend="spyre")
    elif way == "sized":
        rows = torch.export.Dim("rows", min=2, max=8)
        program = spyre_mlir.compile(_on_a_tensor, (_ONES,), dynamic={"x": {0: rows}})
    else:
        monkeypatch.setenv("SPYRE_CACHE_DIR", str(tmp_path / "cache"))
        program = spyre_mlir.compile(_on_a_tensor, (_ONES,))
    if way == "saved":
        program.save(tmp_path / "program")
        program = type(program).load(tmp_path / "program")
    elif way == "pickled":
        program = pickle.loads(pickle.dumps(program))
    elif way == "cached":
        program = spyre_mlir.compile(_on_a_tensor, (_ONES,))
    assert np.array_equal(program(_ONES), _ONES * 2)
    with pytest.raises(FailedAssertionError, match="positive please"):
        program(-_ONES)


_MODULE = """func.func @main(%a: tensor<4x64xf16>) -> tensor<4x64xf16> {{
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : f16
  %e = tensor.empty() : tensor<4x64xf16>
  %0 = linalg.add ins(%a, %a : tensor<4x64xf16>, tensor<4x64xf16>) outs(%e : tensor<4x64xf16>) -> tensor<4x64xf16>
  %x = tensor.extract %0[%c0, %c0] : tensor<4x64xf16>
  %p = {condition}
  cf.assert %p, "positive please"
  return %0 : tensor<4x64xf16>
}}"""


def test_assertions_of_a_module_are_checked_dropped_or_refused():
    ones = np.ones((4, 64), np.float16)
    checked = spyre_mlir.compile(_MODULE.format(condition="arith.cmpf ogt, %x, %zero : f16"))
    assert np.array_equal(checked(ones), ones * 2)
    with pytest.raises(FailedAssertionError, match="positive please"):
        checked(-ones)
    dropped = spyre_mlir.compile(_MODULE.format(condition="arith.constant true"))
    assert len(dropped.steps) == 1
    with pytest.raises(CompileError, match="never true: positive please"):
        spyre_mlir.compile(_MODULE.format(condition="arith.constant false"))


def test_an_assertion_that_folds_is_dropped_or_refused():
    def model(x, limit=3):
        torch._assert_async((torch.arange(4) < limit).all(), "positive please")
        return x * 2

    assert len(spyre_mlir.compile(lambda x: model(x, 4), (_ONES,)).steps) == 1
    with pytest.raises(CompileError, match="never true: positive please"):
        spyre_mlir.compile(model, (_ONES,))


@pytest.mark.parametrize(
    ("pool", "shape", "sizes"),
    [
        (F.adaptive_max_pool1d, (1, 2, 14), [3, 4, 5, 20]),
        (F.adaptive_max_pool2d, (2, 3, 7, 10), [(3, 4), (7, 3), (1, 6), (9, 11)]),
        (F.adaptive_max_pool3d, (1, 2, 5, 7, 8), [(2, 3, 5)]),
        (F.adaptive_avg_pool1d, (1, 2, 14), [3, 4, 5, 20]),
        (F.adaptive_avg_pool2d, (2, 3, 7, 10), [(3, 4), (7, 3), (1, 6), (9, 11)]),
        (F.adaptive_avg_pool3d, (1, 2, 5, 7, 8), [(2, 3, 5)]),
    ],
)
def test_adaptive_pools_of_windows_of_different_sizes(pool, shape, sizes):
    x = torch.randperm(int(np.prod(shape)), generator=torch.Generator().manual_seed(0)).reshape(shape).float()
    for size in sizes:
        for y in (x, x[0], -x):
            result = spyre_mlir.compile(lambda x, size=size: pool(x, size), (y,))(y)
            torch.testing.assert_close(result, pool(y, size), rtol=2e-3, atol=1e-3)
