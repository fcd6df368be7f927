# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compilations from many threads, and in the child of a process whose other thread compiles."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch

import spyre_mlir
from spyre_mlir.compile_lock import one_at_a_time

THREADS = 4


def in_threads(action: Callable[[int], Any]) -> list[Any]:
    """Results of an action that all threads begin at once."""
    begin = threading.Barrier(THREADS)

    def run(index: int) -> Any:
        begin.wait()
        return action(index)

    with ThreadPoolExecutor(THREADS) as threads:
        return list(threads.map(run, range(THREADS)))


def branching(x: torch.Tensor) -> torch.Tensor:
    return x + 1 if x.sum() > 0 else x - 1


def compiled(index: int) -> torch.Tensor:
    torch.manual_seed(index)
    model, x = torch.nn.Linear(64, 32).half(), torch.ones(3, 64).half()
    return spyre_mlir.compile(model, (x,), cache=False)(x) - model(x)


def in_pieces(index: int) -> torch.Tensor:
    x = torch.full((64,), index + 1.0).half()
    return spyre_mlir.compile(branching, (-x,), cache=False)(x) - (x + 1)


def in_any_size(index: int) -> torch.Tensor:
    x = torch.full((64 + index, 64), 2.0).half()
    rows = torch.export.Dim("rows", max=128)
    program = spyre_mlir.compile(torch.nn.ReLU(), (x,), dynamic=({0: rows},), cache=False)
    return program(x) - x


def eager(index: int) -> np.ndarray:
    array = np.full((2 + index, 64), index, np.float16)
    return (spyre_mlir.to_device(array) + 1).numpy() - array - 1


def from_dynamo(index: int) -> torch.Tensor:
    x = torch.ones(3 + index, 64).half()
    return torch.compile(lambda y: y * 2, backend=spyre_mlir.torch_backend)(x) - 2 * x


@pytest.mark.filterwarnings("ignore::spyre_mlir.HostWorkWarning")
@pytest.mark.parametrize("action", [compiled, in_pieces, in_any_size, eager, from_dynamo])
def test_threads_compile_as_one_does(action: Callable[[int], Any]) -> None:
    """PyTorch's export is not made for threads: it died, or one thread read the tensors of another."""
    assert [abs(difference).max() < 0.01 for difference in in_threads(action)] == [True] * THREADS


@pytest.mark.parametrize("imported", ["spyre_mlir.target.compiled_conversion", "sys"])
def test_numba_compiles_after_an_export_of_another_thread(imported: str) -> None:
    """PyTorch's export replaces functions of all threads, and numba failed on them: math.pow was a lambda."""
    script = f"""
import math, threading, {imported}
import numpy as np
from spyre_mlir.compile_lock import builtins_kept

right, results = math.pow, []

def convert():
    from spyre_mlir.target.compiled_conversion import encode_fp16
    results.append(encode_fp16(np.ones(3, np.float32)))

thread = threading.Thread(target=convert)
with builtins_kept():
    math.pow = lambda x, y: x**y
    thread.start()
    thread.join(timeout=5)
    math.pow = right
thread.join()
print(results)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.stdout == "[array([15360, 15360, 15360], dtype=uint16)]\n", done.stderr


def test_a_child_does_not_wait_for_a_thread_of_its_parent() -> None:
    """The child of a fork has no thread that would release what another thread held."""
    holds, done = threading.Event(), threading.Event()

    def compiling() -> None:
        with one_at_a_time():
            holds.set()
            done.wait()

    other = threading.Thread(target=compiling)
    other.start()
    holds.wait()
    child = os.fork()
    if child == 0:
        with one_at_a_time():
            os._exit(7)
    done.set()
    other.join()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
