# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Time to compile, import and plan a stack of layers that are all equal, or all different."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

from benchmarks.measure import apart, peak_bytes
from benchmarks.programs import suite
from benchmarks.registry import Metrics, benchmark

EQUAL, DIFFERENT = (12, 48), 64

#: Sizes of layers that differ: the inner size is this size and one more stick for each layer.
ROWS, HIDDEN, INNER, STICK = 64, 256, 512, 64


@benchmark(layers_12_s=3.5, layers_48_s=8)
def equal_layers() -> Metrics:
    """Seconds of ``compile`` for 12 and 48 equal Granite-like layers, and for 64 small ones of different sizes.

    Each program is compiled in a separate process, after a small program; weights take no memory. ``copies`` counts
    layers that were not planned, ``peak`` (10^9 bytes) includes all imports.
    """
    metrics: dict[str, float] = {}
    for count in EQUAL:
        seconds, copies, peak = apart(_equal, count)
        metrics |= {
            f"layers_{count}_s": seconds, f"layers_{count}_copies": copies, f"layers_{count}_peak_gb": peak / 1e9,
        }  # fmt: skip
    seconds, copies, _ = apart(_different, DIFFERENT)
    return {**metrics, "different_64_s": seconds, "different_64_copies": copies}


def _equal(count: int) -> tuple[float, int, int]:
    """Return seconds, the number of layers that are copies, and the largest memory of ``count`` layers at full size."""
    member = suite()
    return _compiled(*member.program("layers_12", replace(member.FULL, layers=count), weights=False))


def _different(count: int) -> tuple[float, int, int]:
    import torch
    from torch import nn

    layers = [
        nn.Sequential(
            nn.Linear(HIDDEN, INNER + number * STICK), nn.GELU(), nn.Linear(INNER + number * STICK, HIDDEN)
        )
        for number in range(count)
    ]
    return _compiled(nn.Sequential(*layers).half().eval(), (torch.zeros(ROWS, HIDDEN).half(),))


def _compiled(model: Any, inputs: Any) -> tuple[float, int, int]:
    import torch

    import spyre_mlir

    spyre_mlir.compile(torch.nn.Linear(64, 64).half(), (torch.zeros(2, 64).half(),))
    begun = time.perf_counter()
    program = spyre_mlir.compile(model, inputs)
    seconds = time.perf_counter() - begun
    unfolded = [remark.reason for remark in program.remarks if remark.pass_name == "unfold-repeated-layers"]
    return seconds, sum(int(reason.split()[0]) for reason in unfolded), peak_bytes()
