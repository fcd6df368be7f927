# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A model of a billion parameters: seconds to compile and to save, and memory in addition to its weights."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.measure import apart, peak_bytes, seconds
from benchmarks.programs import programs
from benchmarks.registry import Metrics, benchmark

LAYERS, HIDDEN, HEADS, KEY_HEADS, INNER, SEQUENCE, VOCABULARY = 16, 2048, 32, 8, 8192, 128, 32000


@benchmark(compile_s=90, peak_over_weights_gb=2)
def large_model() -> Metrics:
    """A language model of 16 layers and 1.1 billion fp16 parameters: compile, save, lay out its weights; no run.

    Inputs are token ids, results are logits; hidden size 2048, 32 heads, 8 of keys, a sequence of 128, 32000 words,
    random weights. ``compile_s`` is the whole compilation, PyTorch's export included, in a separate process; ``peak``
    (10^9 bytes) is the largest memory of this process, imports included, ``after_compile`` before saving. Saving
    writes the weights as host arrays, then as bytes of the device. ``pipeline_s`` is the time of the passes.
    """
    return apart(_measure)


def _measure() -> dict[str, float]:
    import torch

    import spyre_mlir

    spyre_mlir.compile(torch.nn.Linear(64, 64).half(), (torch.zeros(2, 64).half(),))  # lazy imports
    model = _model()
    weights = sum(parameter.nbytes for parameter in model.parameters())
    begun = time.perf_counter()
    program = spyre_mlir.compile(model, (torch.arange(SEQUENCE)[None],))
    compiled, first_peak = time.perf_counter() - begun, peak_bytes()
    with tempfile.TemporaryDirectory() as folder:
        saved = seconds(lambda: program.save(f"{folder}/arrays"))
        laid_out = seconds(lambda: program.save(f"{folder}/images", lay_out_weights=True))
        text = sum(path.stat().st_size for path in Path(folder, "images").rglob("*.mlir"))
    return {
        "parameters_millions": weights / 2e6,
        "compile_s": compiled,
        "pipeline_s": program.compile_seconds,
        "save_s": saved,
        "save_laid_out_s": laid_out,
        "weights_gb": weights / 1e9,
        "after_compile_over_weights_gb": (first_peak - weights) / 1e9,
        "peak_over_weights_gb": (peak_bytes() - weights) / 1e9,
        "mlir_text_mb": text / 1e6,
    }


def _model() -> Any:
    """Return the model; its weights are random, except rotary tables, so no two weights are equal."""
    import torch
    from torch import nn

    programs()  # makes the modules of the tests known
    from programs import LlamaBlock, rotary_tables  # type: ignore[import-not-found]

    torch.manual_seed(0)
    with torch.device("meta"):
        layers = [LlamaBlock(HIDDEN, SEQUENCE, HEADS, KEY_HEADS, INNER) for _ in range(LAYERS)]
        ends = nn.RMSNorm(HIDDEN), nn.Linear(HIDDEN, VOCABULARY, bias=False)
        model = nn.Sequential(nn.Embedding(VOCABULARY, HIDDEN), *layers, *ends)
    model = model.half().to_empty(device="cpu").eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0, parameter.shape[-1] ** -0.5) if parameter.dim() > 1 else parameter.fill_(1)
        for layer in layers:
            cos, sin = rotary_tables(*layer.cos.shape)
            layer.cos.copy_(cos)
            layer.sin.copy_(sin)
    return model
