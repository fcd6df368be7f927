# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Seconds and memory of a command or of a call."""

from __future__ import annotations

import multiprocessing
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True)
class Run:
    """A finished process: wall-clock time, processor time, and its largest memory."""

    seconds: float
    processor_seconds: float
    peak_bytes: int


def tool(name: str, *arguments: str | Path) -> Run:
    """Run a tool of this checkout without its output; an exit status other than 0 is an error."""
    command = [sys.executable, "-m", f"spyre_mlir.tools.{name.replace('-', '_')}", *map(str, arguments)]
    begun = time.perf_counter()
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - begun
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    return Run(seconds, usage.ru_utime + usage.ru_stime, _bytes(usage))


def apart(function: Callable[..., T], *arguments: object) -> T:
    """Return the result of a function that runs in a separate process, which frees its memory."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
        return process.submit(function, *arguments).result()


def peak_bytes() -> int:
    """Return the largest memory of this process in bytes."""
    status = Path("/proc/self/status")
    if not status.exists():
        return _bytes(resource.getrusage(resource.RUSAGE_SELF))
    # On Linux, getrusage includes the peak memory of the parent process.
    (line,) = (line for line in status.read_text(encoding="utf-8").splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024


def _bytes(usage: resource.struct_rusage) -> int:
    return usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def seconds(call: Callable[[], object]) -> float:
    begun = time.perf_counter()
    call()
    return time.perf_counter() - begun


def best(measure: Callable[[], float], times: int = 3) -> float:
    """Return the shortest of several measurements: other processes disturbed it least."""
    return min(measure() for _ in range(times))
