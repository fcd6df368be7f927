# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Execution of a SuperDSC bundle with numpy, byte by byte, at the addresses that the bundle names.

``run(bundle, arrays)`` is the interface. The simulator depends on the bundle and the device, and not on
the compiler, so it cannot repeat the compiler's mistakes. It raises a SimulationError, with the
operation, tensor, core and address, for: a design that breaks a rule on which a run relies (``plan.py``, the rules of
``spyre_mlir.bundle``); reads of uninitialised, stale or padding bytes that reach a result;
accesses outside of a buffer, LX or the address span; cores that write one address or race; results that were
not fully written; and a relayout that takes from a core data that the core does not hold.

``run_sequence`` runs bundles one after the other, and keeps LX from a non-terminal bundle to the next.

Buffers are distinguished by name: data written through one buffer must be read through the same buffer.
"""

from spyre_mlir.simulator.machine import Result
from spyre_mlir.simulator.ranges import RangeLoss, described
from spyre_mlir.simulator.run_outcome import (
    ExecuteStatistics,
    IntegerRangeError,
    SimulationError,
    Statistics,
)
from spyre_mlir.simulator.sequence_run import BundleCall, require_first, run, run_sequence

__all__ = [
    "BundleCall", "ExecuteStatistics", "IntegerRangeError", "RangeLoss", "Result", "SimulationError",
    "Statistics", "described", "require_first", "run", "run_sequence",
]  # fmt: skip
