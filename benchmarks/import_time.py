# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Time of the import of a model: torch.export, decomposition, folding and torch-mlir, without the pipeline."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

from benchmarks.measure import apart
from benchmarks.programs import families, suite
from benchmarks.registry import Metrics, benchmark

LAYERS = (1, 12, 48)


@benchmark(layers_12_s=1.0, layers_48_s=3.0, resnet_50_s=2.5)
def import_time() -> Metrics:
    """Seconds on the processor for the import of Granite-like layers and of ResNet-50 at 224, in a process each.

    Layers differ only in their parameters, and equal layers are traced once, so 48 take less than 4 times 12.
    """
    metrics = {f"layers_{count}_s": apart(_layers, count) for count in LAYERS}
    return {**metrics, "resnet_50_s": apart(_resnet)}


def _layers(count: int) -> float:
    """Return the seconds of the import of ``count`` layers at full size, whose weights take no memory."""
    member = suite()
    return _seconds(*member.program("layers_12", replace(member.FULL, layers=count), weights=False))


def _resnet() -> float:
    return _seconds(*families().program("resnet50"))


def _seconds(model: Any, inputs: Any) -> float:
    """Return the seconds of an import, measured after the import of a small program, to exclude lazy imports."""
    from spyre_mlir.dialects import context
    from spyre_mlir.frontend import import_torch

    member = suite()
    import_torch(*member.program("softmax", member.REDUCED), context=context())
    begun = time.process_time()
    import_torch(model, inputs, context=context())
    return time.process_time() - begun
