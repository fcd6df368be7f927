# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Processor time relative to an earlier commit, measured in the same run: ratios are stable on noisy machines."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.measure import ROOT
from benchmarks.registry import Metrics, Noted, benchmark
from spyre_mlir.errors import CompileError

_COMPILE = "import spyre_mlir, spyre_mlir.zoo as zoo; spyre_mlir.compile(*zoo.load({name!r}))"

#: Arguments of Python, by the name of the metric. Both commits must know all of them.
COMMANDS: Mapping[str, Sequence[str]] = {
    "version": ["-m", "spyre_mlir.tools.spyre_opt", "--version"],
    "import": ["-c", "import spyre_mlir"],
    "softmax": ["-m", "spyre_mlir.tools.spyre_opt", "{root}/spyre_mlir/zoo/linalg/softmax.mlir",
                "--spyre-pipeline", "-o", os.devnull],
    **{name: ["-c", _COMPILE.format(name=f"linalg/{name}")] for name in ("mlp", "attention_512", "layer_64")},
}  # fmt: skip


@benchmark(**{f"{name}.ratio": 1.1 for name in COMMANDS})
def ratios(base: str = "", times: int = 5) -> Metrics:
    """Processor time of tools and compilations relative to the last tagged commit, alternated in the same run.

    ``base`` is another commit to compare with, required in a checkout without tags.
    """
    commit = base or _last_tag()
    if not commit:
        return Noted({}, ["There is no tag to compare with; --base COMMIT names a commit."])
    with tempfile.TemporaryDirectory(prefix="ratios-") as folder:
        before = Path(folder) / "before"
        _git("worktree", "add", "--quiet", "--detach", str(before), commit)
        try:
            seconds = {
                name: _alternated(arguments, (ROOT, before), times) for name, arguments in COMMANDS.items()
            }
        finally:
            _git("worktree", "remove", "--force", str(before))
    metrics = {f"{name}.ratio": now / then for name, (now, then) in seconds.items()}
    return Noted(metrics, [f"Compared with {commit}; the least of {times} runs of each."], ("ratio",))


def _alternated(arguments: Sequence[str], roots: Sequence[Path], times: int) -> list[float]:
    """Return the least processor time of a command in each checkout, after a first run that writes the bytecode."""
    runs = [[_processor_seconds(arguments, root) for root in roots] for _ in range(times + 1)]
    return [min(seconds) for seconds in zip(*runs[1:], strict=True)]


def _processor_seconds(arguments: Sequence[str], root: Path) -> float:
    """Return the processor time of Python with these arguments and the package of a checkout."""
    environment = {name: text for name, text in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment |= {"PYTHONPATH": str(root), "SPYRE_CACHE": "0"}
    command = [sys.executable, *(argument.replace("{root}", str(root)) for argument in arguments)]
    process = subprocess.Popen(command, cwd=root, env=environment, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise CompileError(f"'{' '.join(command[1:])}' ends with the status {process.returncode}.")
    return usage.ru_utime + usage.ru_stime


def _last_tag() -> str:
    done = subprocess.run(
        ["git", "describe", "--tags", "--abbrev=0"], cwd=ROOT, capture_output=True, text=True
    )
    return done.stdout.strip()


def _git(*arguments: str) -> None:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        raise CompileError(f"git {arguments[0]}: {done.stderr.strip()}")
