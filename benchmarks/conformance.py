# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Conformance of the bundles of compiled programs to torch-spyre."""

from __future__ import annotations

import tempfile
import warnings
from collections import Counter
from pathlib import Path

from benchmarks.fingerprints import compiled_programs
from benchmarks.registry import Metrics, Noted, benchmark
from spyre_mlir.bundle.conformance import Weight, check_folder
from spyre_mlir.errors import CompileError


@benchmark(likely_refused=0, may_be_misread=0, cosmetic=0)
def conformance(kind: str = "tests") -> Metrics:
    """Differences that the conformance check finds in programs compiled with the defaults, by how much they matter.

    ``kind`` are kinds of programs as in ``fingerprints``. The notes name the fields.
    """
    metrics, notes = Counter(programs=0, designs=0), []
    for name, compiled in compiled_programs(kind.split(",")):
        with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                compiled().save(Path(folder) / "program")
            except CompileError:
                continue
            # A program of host functions alone has no design.
            has_designs = any(Path(folder).rglob("sdsc*.json"))
            count, findings = check_folder(Path(folder)) if has_designs else (0, [])
        metrics.update(programs=1, designs=count)
        metrics.update(weight_key(finding.weight) for finding in findings)
        notes += [f"{name}: {finding}" for finding in findings]
    weights = {weight_key(weight): metrics[weight_key(weight)] for weight in Weight}
    return Noted({"programs": metrics["programs"], "designs": metrics["designs"], **weights}, notes)


def weight_key(weight: Weight) -> str:
    """Return the metric that counts differences of a weight."""
    return weight.value.replace(" ", "_")
