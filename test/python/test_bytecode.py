# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Modules in bytecode: any damage is one diagnostic, and reading gives the written module."""

from __future__ import annotations

import io
import random

import pytest

from spyre_mlir import dialects
from spyre_mlir.dialects.bytecode import parsed_bytecode
from spyre_mlir.errors import CompileError
from spyre_mlir.mlir import ir
from spyre_mlir.tools import spyre_opt

TEXT = """
func.func @main(%x: tensor<8x64xf16>) -> tensor<8x64xf16> attributes {device = #sdsc.op<"exp", {}>} {
  %e = tensor.empty() : tensor<8x64xf16>
  %0 = linalg.exp ins(%x : tensor<8x64xf16>) outs(%e : tensor<8x64xf16>) -> tensor<8x64xf16>
  return %0 : tensor<8x64xf16>
}
"""


@pytest.fixture(scope="module")
def data() -> bytes:
    module = dialects.parsed(TEXT, dialects.context())
    buffer = io.BytesIO()
    module.operation.write_bytecode(buffer)
    return buffer.getvalue()


def outcome(data: bytes) -> str:
    """The text of the module, or the diagnostic."""
    try:
        return str(parsed_bytecode(data, dialects.context(), "a.mlirbc"))
    except CompileError as error:
        assert str(error).startswith("a.mlirbc: error: ") and "\n" not in str(error)
        return str(error)


def test_bytecode_is_the_module(data):
    assert outcome(data) == str(dialects.parsed(TEXT, dialects.context()))


@pytest.mark.parametrize("part", [0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 0.99])
def test_a_cut_file_is_one_diagnostic(data, part):
    assert "bytecode" in outcome(data[: 4 + int(part * (len(data) - 4))])


@pytest.mark.sampled(6)
@pytest.mark.parametrize("seed", range(40))
def test_damaged_bytes_end_no_process(data, seed):
    """Damaged bytecode may be another module, because it has no checksum; bytes that are not a module are refused."""
    source, damaged = random.Random(seed), bytearray(data)
    for _ in range(source.randint(1, 4)):
        damaged[source.randrange(4, len(damaged))] = source.randrange(256)
    assert outcome(bytes(damaged))


def test_malformed_attributes_of_ours_are_refused():
    """The checks of text hold for bytecode: it comes back as text."""
    with dialects.context():
        buffer = io.BytesIO()
        ir.Module.parse(
            'func.func private @f(tensor<64x64xf16> {sdsc.host = #sdsc.host<"x", "zzz", "f16">})'
        ).operation.write_bytecode(buffer)
    assert outcome(buffer.getvalue()).startswith("a.mlirbc: error: ")


def test_a_tool_reports_damage_once(data, tmp_path, capsys):
    path = tmp_path / "cut.mlirbc"
    path.write_bytes(data[:120])
    assert spyre_opt.main([str(path)]) == 1
    error = capsys.readouterr().err
    assert error.count("error:") == 1 and error.count("\n") == 1
