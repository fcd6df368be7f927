"""Seconds and memory of a command or of a call."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True)
class Run:
    """A finished process: wall-clock time, time on the processor, and the largest memory it had."""

    seconds: float
    processor_seconds: float
    peak_bytes: int


def tool(name: str, *arguments: str | Path) -> Run:
    """Run a tool of this checkout, its output dropped; an exit status other than 0 is an error."""
    command = [sys.executable, "-m", f"spyre_mlir.tools.{name.replace('-', '_')}", *map(str, arguments)]
    begun = time.perf_counter()
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - begun
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    kibibytes = usage.ru_maxrss if sys.platform != "darwin" else usage.ru_maxrss // 1024
    return Run(seconds, usage.ru_utime + usage.ru_stime, kibibytes * 1024)


def seconds(call: Callable[[], object]) -> float:
    begun = time.perf_counter()
    call()
    return time.perf_counter() - begun


def best(measure: Callable[[], float], times: int = 3) -> float:
    """The shortest of several measurements: the one that other processes disturbed least."""
    return min(measure() for _ in range(times))
