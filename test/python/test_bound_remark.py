# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The remark on a program that is far from its bound."""

from __future__ import annotations

import re

import pytest
import torch

import spyre_mlir
from spyre_mlir.driver.program_figures import FAR, FAR_FROM_BOUND


def remarks(program: spyre_mlir.Program) -> list[str]:
    return [remark.reason for remark in program.remarks if remark.kind == FAR_FROM_BOUND]


class Elementwise(torch.nn.Module):
    def forward(self, x, y):
        return x + y


class Softmax(torch.nn.Module):
    def forward(self, x):
        return torch.softmax(x.reshape(-1, 3, 64).transpose(0, 1).reshape(3, -1), 0)


PROGRAMS = {
    "add of much": (Elementwise, [(2048, 4096), (2048, 4096)]),
    "add of little": (Elementwise, [(8, 64), (8, 64)]),
    "softmax over parts": (Softmax, [(1536, 64)]),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_is_far_has_the_remark(name):
    """A program has the remark exactly if its figures are far from the bound, and the remark has these figures."""
    model, shapes = PROGRAMS[name]
    program = spyre_mlir.compile(model().half(), [torch.randn(shape).half() for shape in shapes])
    metrics, bound = program.metrics(), program.bound()
    assert bound is not None
    ratio = metrics["predicted_us"] / metrics["bound_us"]
    assert len(remarks(program)) == (ratio > FAR)
    for reason in remarks(program):
        assert f"{ratio:.1f} times" in reason
        assert f"{bound.bytes:,} bytes and" in reason
        times = [float(text) for text in re.findall(r"[A-Za-z0-9]+ ([0-9,.]+) us \(", reason)]
        assert times and sum(times) <= metrics["predicted_us"] * 1.01 + 0.2
    assert bool(remarks(program)) == (name == "add of little")


def test_a_folder_keeps_it(tmp_path):
    model = Elementwise().half()
    program = spyre_mlir.compile(model, [torch.zeros(8, 64).half()] * 2)
    program.save(tmp_path / "bundle")
    assert FAR_FROM_BOUND in (tmp_path / "bundle" / "remarks.jsonl").read_text()
    assert remarks(program)[0] in (tmp_path / "bundle" / "remarks.jsonl").read_text()


class Causal(torch.nn.Module):
    def forward(self, q, k, v):
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)


def test_the_bound_knows_the_masks_of_a_model():
    """The mask is a constant of the model, without which all keys would be needed."""
    length, columns = 256, 64
    program = spyre_mlir.compile(Causal().half(), [torch.zeros(1, 2, length, columns).half()] * 3)
    bound = program.bound()
    assert bound is not None
    assert bound.multiply_adds == 2 * 2 * columns * length * (length + 1) // 2
