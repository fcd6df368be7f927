# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks of programs of the suite: the error that a result may have, and the traffic of a run."""

from __future__ import annotations

from programs import FLOOR

import spyre_mlir

#: Where PyTorch rounds once, after several steps in float32 that the device rounds one by one.
FLOORS = {"layer_norm": 2e-3, "attention_512": 3e-3, "attention_4096": 3e-3, "decode_4096": 3e-3}


def floor(name: str) -> float:
    """The part of the largest value that a result may be off, however exact PyTorch is."""
    return FLOORS.get(name, FLOOR)


def check_traffic(made: spyre_mlir.Program) -> None:
    """Assert that the traffic of the last run equals the plan, operation by operation."""
    assert made.last_run is not None
    found = made.last_run.statistics.executes
    simulated = [(found[at].read_bytes, found[at].write_bytes) for at in range(len(found))]
    planned = [(each.read_bytes, each.written_bytes) for each in made.timeline().executions]
    assert simulated == planned
