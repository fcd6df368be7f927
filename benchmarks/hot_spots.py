# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Processor time of whole compilations without equal layers, where the complexity of algorithms shows."""

from __future__ import annotations

import time
from typing import Any

from benchmarks.chain import text
from benchmarks.measure import apart
from benchmarks.programs import families
from benchmarks.registry import Metrics, benchmark

#: Kernel and stride of the measured poolings; the slowest counts.
WINDOWS = ((2, 1), (2, 2), (3, 1), (3, 2), (3, 3))

#: Operations of the long chain, and of the short chain that it is compared with.
LONG, SHORT = 20_000, 5_000


@benchmark(
    resnet50_s=8, convolution_backward_s=5, max_pool3d_s=5, avg_pool3d_s=5, chain_20000_s=40, chain_growth=1.2
)
def hot_spots() -> Metrics:
    """Processor seconds of ``compile`` from PyTorch, lazy imports aside: ResNet-50, a gradient, poolings; a chain.

    ResNet-50 is at 224 pixels; the gradients are of input, weight and bias of a 3x3 convolution of 1x320x64x64; the
    poolings are over 1x64x112x112x112, the slowest of five windows. The chain has 20,000 operations in MLIR; its
    growth is the time per operation, relative to a chain of 5,000. Each program is measured in a separate process.
    """
    chains = {length: apart(_chain, length) for length in (SHORT, LONG)}
    return {
        "resnet50_s": apart(_resnet),
        "convolution_backward_s": apart(_convolution_backward),
        "max_pool3d_s": max(apart(_pool, "MaxPool3d", *window) for window in WINDOWS),
        "avg_pool3d_s": max(apart(_pool, "AvgPool3d", *window) for window in WINDOWS),
        "chain_20000_s": chains[LONG],
        "chain_growth": chains[LONG] / chains[SHORT] * SHORT / LONG,
    }


def _seconds(model: Any, *inputs: Any) -> float:
    """Return the processor seconds of ``compile``, after a compilation of a small program."""
    import torch

    import spyre_mlir

    spyre_mlir.compile(torch.nn.Linear(64, 64).half(), (torch.zeros(2, 64).half(),))
    begun = time.process_time()
    spyre_mlir.compile(model, inputs)
    return time.process_time() - begun


def _chain(length: int) -> float:
    import spyre_mlir

    spyre_mlir.compile(text(2))
    program, begun = text(length), time.process_time()
    spyre_mlir.compile(program)
    return time.process_time() - begun


def _resnet() -> float:
    model, inputs = families().program("resnet50")
    return _seconds(model, *inputs)


def _convolution_backward() -> float:
    import torch

    def backward(gradient: Any, x: Any, weight: Any) -> Any:
        wanted, pair = [True, True, True], [1, 1]
        return torch.ops.aten.convolution_backward(
            gradient, x, weight, [weight.shape[0]], pair, pair, pair, False, [0, 0], 1, wanted
        )

    image = torch.zeros(1, 320, 64, 64).half()
    return _seconds(backward, image, image, torch.zeros(320, 320, 3, 3).half())


def _pool(name: str, kernel: int, stride: int) -> float:
    import torch

    return _seconds(getattr(torch.nn, name)(kernel, stride), torch.zeros(1, 64, 112, 112, 112).half())
