# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Processor time saved by the cache on disk, for programs that an earlier process compiled."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Sequence
from typing import Any

from benchmarks.measure import ROOT, apart
from benchmarks.programs import families, suite
from benchmarks.registry import Metrics, benchmark

#: Names of programs with their sizes, by the names of their metrics.
MODELS = ("mlp", "layers_12", "resnet50")

TARGET = 0.2


@benchmark(**{f"{name}_ratio": TARGET for name in (*MODELS, "softmax")})
def program_cache() -> Metrics:
    """Processor seconds of compile with an empty cache and in a second process, imports aside, and their ratio.

    The second compile traces the model, because the key of the cache is computed from the captured graph: ``capture``
    is the share of the capture in the first compile. ``softmax`` is MLIR.
    """
    metrics: dict[str, float] = {}
    for name in (*MODELS, "softmax"):
        with tempfile.TemporaryDirectory() as folder:
            (first, captured), (second, _) = (apart(_compiled, name, folder) for _ in range(2))
        metrics |= {
            f"{name}_first_seconds": first,
            f"{name}_second_seconds": second,
            f"{name}_capture_ratio": captured / first,
            f"{name}_ratio": second / first,
        }
    return metrics


def _compiled(name: str, folder: str) -> tuple[float, float]:
    """Return the processor seconds of ``compile`` with a cache in a folder, and of the capture in it."""
    os.environ["SPYRE_CACHE_DIR"] = folder
    model, inputs = _program(name)

    import spyre_mlir.driver.compilation
    import spyre_mlir.frontend as frontend

    capture, seconds = frontend.capture_torch, 0.0

    def timed(*arguments: Any) -> Any:
        nonlocal seconds
        begun = time.process_time()
        captured = capture(*arguments)
        seconds += time.process_time() - begun
        return captured

    frontend.capture_torch = timed
    begun = time.process_time()
    spyre_mlir.compile(model, inputs, cache=True)
    return time.process_time() - begun, seconds


def _program(name: str) -> tuple[Any, Sequence[Any]]:
    """Return a model and its inputs; programs of the tests need numbers only for folded weights."""
    if name == "softmax":
        return ROOT / "spyre_mlir" / "zoo" / "linalg" / "softmax.mlir", ()
    import torch

    torch.manual_seed(0)
    if name == "mlp":
        linear, gelu = torch.nn.Linear, torch.nn.GELU
        return torch.nn.Sequential(linear(64, 256), gelu(), linear(256, 64)).half(), (
            torch.randn(33, 64).half(),
        )
    if name in suite().SUITE:
        return suite().program(name, suite().FULL, weights=False)
    return families().program(name)
