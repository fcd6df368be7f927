# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Intermediates in LX, and the reasons of intermediates in device memory."""

from __future__ import annotations

import importlib
import math
from collections import Counter
from typing import Any

from benchmarks.programs import programs
from benchmarks.registry import Metrics, Noted, benchmark
from spyre_mlir.scratchpad.eligibility import TITLES, NoReader, Reason

CORES = (1, 32)


@benchmark()
def two_ops() -> Metrics:
    """Each device operation and a tail: what is in LX, and the rest by its first reason; traffic without LX and with.

    Traffic is in bytes of device memory. ``to_least`` is the geometric mean over the programs of the traffic over the
    bytes of arguments and results. Notes list intermediates that are not in LX, with the reason of one of them.
    """
    programs()  # finds the folder of the tests
    suite = importlib.import_module("two_ops")
    metrics: dict[str, float] = {
        "programs": len(suite.NAMES),
        "chains": sum(len(suite.program(name).chains) for name in suite.NAMES),
    }
    notes = []
    for cores in CORES:
        runs = {
            name: [suite.executed(name, cores, planned) for planned in (False, True)] for name in suite.NAMES
        }
        told = [(name, remark) for name, (_, planned) in runs.items() for remark in _buffers(planned)]
        found = {
            **_buffer_metrics([remark for _, remark in told]),
            **_traffic_metrics(suite, list(runs.values())),
        }
        metrics |= {f"{cores}_cores.{key}": value for key, value in found.items()}
        notes += [f"{cores} cores, {note}" for note in _notes(told)]
    return Noted(metrics, notes)


def _buffers(planned: Any) -> list[Any]:
    """Return the remarks on the buffers of a program."""
    told = (remark for remark in planned.remarks if remark.pass_name == "scratchpad-planning")
    return [remark for remark in told if remark.kind in ("in LX", "spill")]


def _first_reason(remark: Any) -> Reason:
    return remark.data.reasons[0]


def _buffer_metrics(told: list[Any]) -> Metrics:
    """Return the numbers of all buffers, buffers in LX, and other buffers by the first reason, in reporting order."""
    spilled = Counter(_first_reason(remark).title for remark in told if remark.kind == "spill")
    return {
        "buffers": len(told),
        "in_lx": sum(remark.kind == "in LX" for remark in told),
        **{f"spilled.{title.replace(' ', '_')}": spilled[title] for title in TITLES if spilled[title]},
    }


def _traffic_metrics(suite: Any, runs: list[list[Any]]) -> Metrics:
    """Return bytes without LX and with LX, and the geometric means of both over the least."""
    metrics: dict[str, float] = {}
    for number, which in enumerate(("without_lx", "with_lx")):
        ratios = [run[number].moved_bytes / suite.least_bytes(run[number].bundle) for run in runs]
        metrics[f"{which}.moved_bytes"] = sum(run[number].moved_bytes for run in runs)
        metrics[f"{which}.to_least"] = math.exp(sum(map(math.log, ratios)) / len(ratios))
    return metrics


def _notes(told: list[tuple[str, Any]]) -> list[str]:
    """Return a line per program and kind of reason for values that the device reads again and that are not in LX."""
    missed: dict[tuple[str, str], list[Reason]] = {}
    for name, remark in told:
        if remark.kind == "spill" and not any(isinstance(each, NoReader) for each in remark.data.reasons):
            first = _first_reason(remark)
            missed.setdefault((name, first.title), []).append(first)
    return [f"{name}: {len(reasons)} x {reasons[0]}" for (name, _), reasons in missed.items()]
