# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Speed of the simulator."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.measure import Run, apart, best, peak_bytes, tool
from benchmarks.programs import programs, suite
from benchmarks.registry import Metrics, benchmark

#: Seconds of a product at 60 GFLOP/s, and of pointwise operations at 2.5 and 1.5 GB/s, read and written.
_MATMUL_SECONDS = 2 * 512 * 4096 * 4096 / 60e9
_ADD_SECONDS = 3 * 4096 * 4096 * 2 / 2.5e9
_ONE_OPERAND_SECONDS = 2 * 4096 * 4096 * 2 / 1.5e9

#: Number of runs, of which the shortest counts, by program.
_RUNS = {"matmul": 5, "add": 9, "softmax": 9, "gelu": 9, "attention_4096": 2, "layers_12": 1}


@benchmark(
    softmax_seconds=1,
    llama_block_seconds=15,
    llama_block_peak_bytes=2 * 1024**3,
    matmul_run_seconds=_MATMUL_SECONDS,
    add_run_seconds=_ADD_SECONDS,
    softmax_run_seconds=_ONE_OPERAND_SECONDS,
    gelu_run_seconds=_ONE_OPERAND_SECONDS,
    attention_4096_run_seconds=6,
    layers_12_run_seconds=25,
    layers_12_peak_bytes=9e9,
)
def simulate(most: int = 6) -> Metrics:
    """spyre-run on a softmax and a Llama-style block, the process included, and the runs of compiled programs.

    The softmax is (512, 1024), best of 3. Compiled programs, in fp16 on 32 cores: a product 512x4096x4096, and add,
    softmax and gelu of 4096x4096, then of the suite at full size attention over 4096 tokens and 12 layers at 512;
    ``--most`` of these. Seconds are of the fastest call, and processor seconds the sum over its threads.
    """
    with tempfile.TemporaryDirectory() as folder:
        softmax = _saved("softmax_dim_0_512x1024", Path(folder) / "softmax")
        block = _saved("llama_block", Path(folder) / "block")
        llama = _run(block)
        metrics = {
            "softmax_seconds": best(lambda: _run(softmax).seconds),
            "llama_block_seconds": llama.seconds,
            "llama_block_peak_bytes": llama.peak_bytes,
        }
    for name in list(_RUNS)[:most]:
        metrics |= {f"{name}_{key}": value for key, value in apart(_called, name).items()}
    return metrics


def _saved(name: str, folder: Path) -> Path:
    """Save the bundle of a program of the tests, with its inputs in the same folder."""
    import spyre_mlir

    module, inputs = programs()[name]()
    program = spyre_mlir.compile(module, inputs)
    program.save(folder)
    np.savez(folder.with_suffix(".npz"), *(each.numpy() for each in inputs))
    return folder


def _run(folder: Path) -> Run:
    return tool("spyre-run", folder, "--inputs", folder.with_suffix(".npz"))


def _called(name: str) -> dict[str, float]:
    """Return the seconds of the calls of a program, and the largest memory of the process that compiled it."""
    import spyre_mlir

    model, inputs = _program(name)
    program = spyre_mlir.compile(model, inputs)
    calls = [_seconds(program, inputs) for _ in range(_RUNS[name])]
    seconds, processor_seconds = (min(column) for column in zip(*calls, strict=True))
    return {
        "run_seconds": seconds,
        "run_processor_seconds": processor_seconds,
        "peak_bytes": peak_bytes(),
    }


def _seconds(program: Any, inputs: tuple) -> tuple[float, float]:
    begun, processor = time.perf_counter(), time.process_time()
    program(*inputs)
    return time.perf_counter() - begun, time.process_time() - processor


def _program(name: str) -> tuple[Any, tuple]:
    """Return a module and its inputs."""
    import torch

    module = suite()
    functions = {
        "matmul": (torch.matmul, (512, 4096), (4096, 4096)),
        "add": (torch.add, (4096, 4096), (4096, 4096)),
        "softmax": (lambda x: torch.softmax(x, -1), (4096, 4096)),
        "gelu": (torch.nn.functional.gelu, (4096, 4096)),
    }
    if name not in functions:
        return module.program(name, module.FULL)
    function, *shapes = functions[name]
    generator = torch.Generator().manual_seed(1)
    return module.AppliedFunction(function), tuple(
        torch.randn(shape, generator=generator).half() for shape in shapes
    )
