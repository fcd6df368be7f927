# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Executes a SuperDSC bundle with numpy, byte by byte, at the addresses the bundle names.

``run(bundle, arrays)`` is the interface. The simulator knows the bundle and the device, nothing of
the compiler, so it cannot share the compiler's mistakes. It refuses, with a SimulationError that names
operation, tensor, core and address: reads of uninitialised, stale or padding bytes that reach a result;
accesses outside a buffer, LX or the address span; cores that write one address or race; results that were
not fully written; a relayout that takes from a core what this one does not hold.

``run_sequence`` runs bundles one after the other, with what is in LX if they are non-terminal.

Buffers are told apart by name: what is written through one buffer must be read through the same one.
"""

from spyre_mlir.simulator.machine import Result
from spyre_mlir.simulator.ranges import RangeLoss, described
from spyre_mlir.simulator.sequence_run import BundleCall, require_first, run, run_sequence
from spyre_mlir.simulator.simulation_error import IntegerRangeError, SimulationError
from spyre_mlir.simulator.statistics import ExecuteStatistics, Statistics

__all__ = [
    "BundleCall",
    "ExecuteStatistics",
    "IntegerRangeError",
    "RangeLoss",
    "Result",
    "SimulationError",
    "Statistics",
    "described",
    "require_first",
    "run",
    "run_sequence",
]
