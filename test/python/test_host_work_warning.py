# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A program with host operations gives one warning, with the reasons."""

from __future__ import annotations

import warnings

import pytest
import torch

import spyre_mlir
from spyre_mlir.errors import HostWorkWarning
from spyre_mlir.tools import spyre_compile

SINE = """
func.func @main(%x: tensor<4x64xf16>) -> tensor<4x64xf16> {
  %e = tensor.empty() : tensor<4x64xf16>
  %0 = linalg.map { math.sin } ins(%x : tensor<4x64xf16>) outs(%e : tensor<4x64xf16>)
  return %0 : tensor<4x64xf16>
}
"""


def warnings_of(model, *inputs) -> list[warnings.WarningMessage]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        spyre_mlir.compile(model, inputs)
    return [each for each in caught if issubclass(each.category, HostWorkWarning)]


def test_matmuls_in_float32_are_one_warning_that_says_what_to_do():
    x = torch.ones(8, 64)
    (caught,) = warnings_of(lambda x: torch.relu(x @ x.T) @ x, x)
    text = str(caught.message)
    assert "100.00% of the floating-point operations run on the host" in text
    assert (
        "linalg.matmul (a matmul supports fp16" in text
        and "float32" in text
        and "autocast=torch.float16" in text
    )
    assert caught.filename == __file__


def test_a_warning_names_the_operation_and_no_format_that_is_not_the_reason():
    (caught,) = warnings_of(torch.sin, torch.ones(4, 64).half())
    assert "100.00%" in str(caught.message) and "math.sin" in str(caught.message)
    assert "autocast" not in str(caught.message)


@pytest.mark.parametrize("model", (torch.exp, lambda x: (x @ torch.ones(512, 512).half()).cumsum(0)))
def test_little_work_of_the_host_is_no_warning(model):
    assert not warnings_of(model, torch.ones(64, 512).half())


def test_the_tool_prints_it(tmp_path, capsys):
    source = tmp_path / "sine.mlir"
    source.write_text(SINE)
    assert spyre_compile.main([str(source), "-o", str(tmp_path / "out")]) == 0
    stderr = capsys.readouterr().err
    assert stderr.count("warning: 100.00% of the floating-point operations run on the host") == 1
