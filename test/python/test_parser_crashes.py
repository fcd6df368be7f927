# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Texts that end the parser of MLIR: a diagnostic at the line, and the other parts of a split input."""

from __future__ import annotations

import os

import pytest

from spyre_mlir.dialects.parser_limits import line_of_crash
from spyre_mlir.tools import spyre_opt

GOOD = "func.func @f() {\n  return\n}\n"
#: The verifier of upstream reads past the end of the maps.
CRASHES = """func.func @g(%a: tensor<4x4xf32>) -> tensor<4x4xf32> {
  %0 = linalg.matmul indexing_maps = [affine_map<(d0) -> (d0)>] ins(%a, %a : tensor<4x4xf32>, tensor<4x4xf32>)
      outs(%a : tensor<4x4xf32>) -> tensor<4x4xf32>
  return %0 : tensor<4x4xf32>
}
"""
WRONG = "func.func @g() -> i32 {\n  return\n}\n"


@pytest.mark.parametrize(("bad", "line"), [(CRASHES, 5), (WRONG, 6)])
def test_the_other_parts_of_a_split_input_are_printed(bad, line, tmp_path, capsys):
    path = tmp_path / "parts.mlir"
    path.write_text(f"{GOOD}// -----\n{bad}// -----\n{GOOD}", encoding="utf-8")
    assert spyre_opt.main([str(path), "--split-input-file"]) == 1
    printed = capsys.readouterr()
    assert printed.out.count("func.func @f") == 2 and "@g" not in printed.out
    assert f"parts.mlir:{line}:" in printed.err and printed.err.count("error:") == 1
    assert spyre_opt.main([str(path), "--split-input-file", "-o", str(tmp_path / "out.mlir")]) == 1
    assert not (tmp_path / "out.mlir").exists()


@pytest.mark.parametrize("line", [1, 2, 7, 29, 30])
def test_the_line_of_a_crash_is_found(line):
    def parse(text: str) -> None:
        if "ends here" in text:
            os.abort()

    lines = [f"line {number}" for number in range(1, 31)]
    lines[line - 1] += " ends here"
    # A crash with the last line alone may come from the verifier, so the location is the whole part.
    assert line_of_crash("\n\n" + "\n".join(lines) + "\n", parse) == (3 if line == 30 else line + 2)
