# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Files of models: ONNX, ``torch.export``, and linalg of other importers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import spyre_mlir

RANDOM = np.random.default_rng(0)


def weights(*shape: int) -> np.ndarray:
    return (RANDOM.standard_normal(shape) / np.sqrt(shape[0])).astype(np.float16)


#: The nodes of ONNX graphs as text; their input is x, their result y, and w0, w1 and so on are weights.
ONNX: dict[str, tuple[tuple[int, ...], list[np.ndarray], str]] = {
    "linear": ((4, 64), [weights(64, 32), weights(32)], "t = MatMul(x, w0)\ny = Add(t, w1)"),
    "gemm": ((4, 64), [weights(32, 64), weights(32)], "y = Gemm<transB = 1>(x, w0, w1)"),
    "mlp": ((4, 64), [weights(64, 128), weights(128, 64)], "t = MatMul(x, w0)\nu = Relu(t)\ny = MatMul(u, w1)"),
    "softmax": ((8, 70), [], "y = Softmax<axis = -1>(x)"),
    "norm": ((8, 64), [weights(64), weights(64)], "y = LayerNormalization<axis = -1>(x, w0, w1)"),
    "gelu": ((8, 64), [], "y = Gelu(x)"),
    "conv": ((1, 3, 16, 16), [weights(8, 3, 3, 3)], "y = Conv<pads = [1, 1, 1, 1]>(x, w0)"),
    "pool": ((1, 8, 16, 16), [], "y = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(x)"),
    "attention": (
        (2, 16, 64), [], "t = Transpose<perm = [0, 2, 1]>(x)\nu = MatMul(x, t)\nv = Softmax(u)\ny = MatMul(v, x)",
    ),
    "sums": ((8, 64), [np.array([1])], "y = ReduceSum<keepdims = 0>(x, w0)"),
}  # fmt: skip


def onnx_file(name: str, path: Path) -> tuple[Path, np.ndarray, np.ndarray]:
    """Write an ONNX file; return its path, an input, and the result of ONNX's reference evaluator."""
    onnx = pytest.importorskip("onnx")
    from onnx.reference import ReferenceEvaluator

    shape, arrays, nodes = ONNX[name]
    size = ",".join(map(str, shape))
    header = '<ir_version: 9, opset_import: ["" : 20]>'
    model = onnx.parser.parse_model(f"{header}\nmain (float16[{size}] x) => (float16[1] y) {{{nodes}}}")
    model.graph.output[0].type.tensor_type.ClearField("shape")
    model.graph.initializer.extend(onnx.numpy_helper.from_array(w, f"w{n}") for n, w in enumerate(arrays))
    file, x = path / f"{name}.onnx", weights(*shape)
    onnx.save(model, file)
    (expected,) = ReferenceEvaluator(model).run(None, {"x": x})
    return file, x, expected


@pytest.mark.parametrize("name", ONNX)
def test_onnx(name: str, tmp_path: Path) -> None:
    file, x, expected = onnx_file(name, tmp_path)
    program = spyre_mlir.compile(file)
    result = program(x)
    assert result.shape == expected.shape
    np.testing.assert_allclose(result.astype(np.float32), expected.astype(np.float32), rtol=1e-2, atol=1e-2)
    assert program.is_one_bundle


def test_onnx_refusals(tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    with pytest.raises(spyre_mlir.CompileError, match="cannot be read"):
        spyre_mlir.compile(tmp_path / "missing.onnx")
    (tmp_path / "text.onnx").write_text("no model")
    with pytest.raises(spyre_mlir.CompileError, match="not a valid ONNX model"):
        spyre_mlir.compile(tmp_path / "text.onnx")


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.MultiheadAttention(64, 2, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x, x, x, need_weights=False)[0]


EXPORTED: dict[str, tuple[Any, tuple[int, ...]]] = {
    "linear": (nn.Linear(64, 32), (4, 64)),
    "mlp": (nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 64)), (4, 64)),
    "norm": (nn.LayerNorm(64), (8, 64)),
    "conv": (nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU()), (1, 3, 16, 16)),
    "attention": (Attention(), (1, 16, 64)),
}


@pytest.mark.parametrize("name", EXPORTED)
def test_exported(name: str, tmp_path: Path) -> None:
    model, shape = EXPORTED[name]
    model, x = model.half().eval(), torch.randn(shape).half()
    torch.export.save(torch.export.export(model, (x,)), tmp_path / "model.pt2")
    with torch.no_grad():
        program = spyre_mlir.compile(tmp_path / "model.pt2")
        torch.testing.assert_close(program(x), model(x), rtol=1e-2, atol=1e-2)


def test_exported_refusals(tmp_path: Path) -> None:
    (tmp_path / "text.pt2").write_text("no program")
    for name, reason in (("missing", "cannot be read"), ("text", "not a program of torch.export")):
        with pytest.raises(spyre_mlir.CompileError, match=reason):
            spyre_mlir.compile(tmp_path / f"{name}.pt2")


def test_spyre_compile_reads_onnx(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from spyre_mlir.tools.spyre_compile import main

    file, _, _ = onnx_file("mlp", tmp_path)
    assert main([str(file), "-o", str(tmp_path / "mlp.bundle"), "--check"]) == 0
    assert "PASS  result0" in capsys.readouterr().out
