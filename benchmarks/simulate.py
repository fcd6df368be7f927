"""How fast the simulator is."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np

from benchmarks.measure import Run, best, tool
from benchmarks.programs import programs
from benchmarks.registry import Metrics, benchmark


@benchmark(softmax_seconds=1, llama_block_seconds=15, llama_block_peak_bytes=2 * 1024**3)
def simulate() -> Metrics:
    """spyre-run on a softmax (512, 1024), best of 3, and on a Llama-style block, the process included."""
    with tempfile.TemporaryDirectory() as folder:
        softmax = _saved("softmax_dim_0_512x1024", Path(folder) / "softmax")
        block = _saved("llama_block", Path(folder) / "block")
        llama = _run(block)
        return {
            "softmax_seconds": best(lambda: _run(softmax).seconds),
            "llama_block_seconds": llama.seconds,
            "llama_block_peak_bytes": llama.peak_bytes,
        }


def _saved(name: str, folder: Path) -> Path:
    """The bundle of a program of the tests with its inputs beside it."""
    import spyre_mlir

    module, inputs = programs()[name]()
    program = spyre_mlir.compile(module, inputs)
    program.save(folder)
    np.savez(folder.with_suffix(".npz"), *(each.numpy() for each in inputs))
    return folder


def _run(folder: Path) -> Run:
    return tool("spyre-run", folder, "--inputs", folder.with_suffix(".npz"))
