# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Matmuls of large models: whatever the number of cores, each compiles, and no core spans too much of a tensor."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from targets import device_file

import spyre_mlir
from spyre_mlir.bundle.core_slices import core_region
from spyre_mlir.target.target import default_target

#: Width, width of keys and values, width of the FFN.
MODELS = {
    "llama_8b": (4096, 1024, 14336),
    "llama_70b": (8192, 1024, 28672),
    "llama_405b": (16384, 1024, 53248),
    "granite_8b": (4096, 1024, 12800),
}

PROJECTIONS = sorted(
    {
        sizes
        for width, keys, ffn in MODELS.values()
        for sizes in ((width, width), (width, keys), (width, ffn), (ffn, width))
    }
)

#: Sizes of which the reduction has to be split for its span, which no other candidate may undo.
SPLIT_FOR_SPAN = [
    (8192, 28672, 8192, 32),
    *((16384, 16384, 4096, cores) for cores in (3, 4, 8, 16, 32)),
    *((16384, 4096, 16384, cores) for cores in (3, 4, 8, 16, 32)),
    (8192, 32768, 4096, 32),
    (4096, 36864, 4096, 32),
    (8192, 64 * 521, 4096, 32),
]


def _matmul(rows: int, depth: int, columns: int) -> str:
    x, w, y = (f"tensor<{a}x{b}xf16>" for a, b in ((rows, depth), (depth, columns), (rows, columns)))
    return f"""
    func.func @main(%x: {x}, %w: {w} {{spyre.kind = "parameter"}}) -> {y} {{
      %zero = arith.constant 0.0 : f16
      %empty = tensor.empty() : {y}
      %init = linalg.fill ins(%zero : f16) outs(%empty : {y}) -> {y}
      %y = linalg.matmul ins(%x, %w : {x}, {w}) outs(%init : {y}) -> {y}
      return %y : {y}
    }}
    """


def _check(rows: int, depth: int, columns: int, cores: int) -> None:
    program = spyre_mlir.compile(_matmul(rows, depth, columns), sencores=cores)
    for name, design in program.bundle.designs.items():
        assert design.cores <= cores
        for operand in design.operands:
            if operand.memory == "hbm":
                spans = [core_region(design, operand, core).span * 128 for core in range(design.cores)]
                assert max(spans) <= default_target().span_bytes, (name, operand.memory, max(spans))


@pytest.mark.parametrize(("rows", "depth", "columns", "cores"), SPLIT_FOR_SPAN)
def test_a_split_for_the_span_stays(rows, depth, columns, cores):
    _check(rows, depth, columns, cores)


@pytest.mark.parametrize("cores", [1, 3, 32])
@pytest.mark.parametrize("rows", [1, 512, 8192])
@pytest.mark.parametrize(("depth", "columns"), PROJECTIONS)
def test_projections_of_large_models(rows, depth, columns, cores):
    """All numbers of cores take minutes; these have few and many divisors, and one core has to be tiled."""
    _check(rows, depth, columns, cores)


@pytest.fixture
def small_spans(tmp_path):
    """Return a device with a span of 128 KiB per core, so that programs tiled and split for it can run."""
    return device_file(tmp_path, hbm={"span_bytes": 1 << 17})


@pytest.mark.parametrize("cores", [1, 2, 7, 32])
@pytest.mark.parametrize(("rows", "depth", "columns"), [(264, 448, 576), (648, 576, 320), (72, 1344, 1280)])
def test_numbers_of_what_is_split_and_tiled_for_spans(small_spans, rows, depth, columns, cores):
    """Against float64: a reduction in tiles or slices, and columns too where one is not enough."""
    rng = np.random.default_rng(rows)
    x, w = (rng.integers(-2, 3, shape).astype(np.float16) for shape in ((rows, depth), (depth, columns)))
    text = _matmul(rows, depth, columns).replace(' {spyre.kind = "parameter"}', "")
    y = spyre_mlir.compile(text, sencores=cores, device=small_spans)(x, w)
    np.testing.assert_array_equal(np.asarray(y, np.float64), x.astype(np.float64) @ w.astype(np.float64))


def test_a_reduction_that_was_split_for_its_span_grows():
    """The sum of 3,000,000 rows of one stick: two slices are in reach, all cores have work."""
    text = """
    #rows = affine_map<(d0, d1) -> (d0, d1)>
    #columns = affine_map<(d0, d1) -> (d1)>
    func.func @main(%x: tensor<3000000x64xf16>) -> tensor<64xf16> {
      %zero = arith.constant 0.0 : f16
      %empty = tensor.empty() : tensor<64xf16>
      %init = linalg.fill ins(%zero : f16) outs(%empty : tensor<64xf16>) -> tensor<64xf16>
      %y = linalg.generic {indexing_maps = [#rows, #columns], iterator_types = ["reduction", "parallel"]}
          ins(%x : tensor<3000000x64xf16>) outs(%init : tensor<64xf16>) {
      ^bb0(%a: f16, %b: f16):
        %sum = arith.addf %a, %b : f16
        linalg.yield %sum : f16
      } -> tensor<64xf16>
      return %y : tensor<64xf16>
    }
    """
    (design,) = spyre_mlir.compile(text).bundle.designs.values()
    assert design.cores == 32


class Decode(torch.nn.Module):
    """A step of decoding whose scores are made of merged batches and heads."""

    def forward(self, q, k, v):
        return torch.softmax(q @ k.transpose(-1, -2) / 8, -1) @ v


@pytest.mark.parametrize(("batch", "heads", "keys"), [(16, 8, 256), (12, 6, 320)])
def test_a_cache_that_no_division_brings_into_reach_is_converted_by_parts(small_spans, batch, heads, keys):
    """Batches outermost on the host, heads outermost on the device: splitting both would need too many cores."""
    torch.manual_seed(0)
    shapes = (batch, heads, 1, 64), (batch, heads, keys, 64), (batch, heads, keys, 64)
    q, k, v = (torch.randn(shape).half() for shape in shapes)
    program = spyre_mlir.compile(
        Decode(),
        (q, k, v),
        device=small_spans,
        tile_attention=False,
        tile_for_lx=False,
        argument_layouts="default",
    )
    exact = Decode()(q.double(), k.double(), v.double())
    assert (program(q, k, v).double() - exact).abs().max() < 0.01
    assert any("parts of dim" in each.reason for each in program.remarks)
