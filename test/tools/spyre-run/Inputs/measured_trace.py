# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Prints a trace of one kernel with all debug handles of a bundle."""

import json
import sys

from spyre_mlir.bundle import read_bundle

designs = read_bundle(sys.argv[1]).designs.values()
handles = list(dict.fromkeys(design.debug.id for design in designs if design.debug is not None))
details = {"provenance_key": "0123456789abcdef", "debug_handles": handles}
event = {
    "ph": "X",
    "name": "sdsc_fused_softmax_0_0123456789abcdef#0",
    "ts": 10.0,
    "dur": 80.0,
    "args": details,
}
print(json.dumps({"traceEvents": [event]}))
