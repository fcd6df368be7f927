# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Wrong uses of public names, one a line, each of which a type checker has to find: types that say nothing would not.

As test/typing/user_script.py it is read, not run. Its errors are at the lines that end in ``# wrong``.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

import spyre_mlir
from spyre_mlir import experiments
from spyre_mlir.algorithms import register
from spyre_mlir.bundle import read_bundle
from spyre_mlir.cost.replaced_model import CostModel
from spyre_mlir.dialects import context, sdsc
from spyre_mlir.mlir import ir
from spyre_mlir.passes.base import Pass
from spyre_mlir.scratchpad import MemoryPlanSolver, MemorySpace
from spyre_mlir.simulator import run
from spyre_mlir.timeline import timeline

program = spyre_mlir.compile("module.mlir")
spyre_mlir.compile("module.mlir", precision="exact")  # wrong
spyre_mlir.compile("module.mlir", no_such_option=1)  # wrong
spyre_mlir.compile("module.mlir", lx_ops=("add", 3))  # wrong
print(program.metrics()["predicted_us"].bytes)  # wrong
print(program.remarks[0].cost)  # wrong
print(program.findings[0].saved_us.upper())  # wrong
print(program.state[0])  # wrong
spyre_mlir.compile("module.mlir", dynamic={"S": (64, 128)}).plan()  # wrong
spyre_mlir.to_device(np.zeros(3), stick_dims=1.5)  # wrong
print(spyre_mlir.zeros(3).nbytes.shape)  # wrong
print(spyre_mlir.no_such_name)  # wrong
print(experiments.no_such_name)  # wrong
print(run(read_bundle("folder"), {}).statistics.no_such_figure)  # wrong
print(timeline(read_bundle("folder")).total_ns.upper())  # wrong
MemorySpace("large")  # wrong
context().no_such_member()  # wrong
ir.Module.parse(3)  # wrong
sdsc.name_of("op")  # wrong


class Misnamed(Pass):
    """A pass whose method takes something else."""

    name: ClassVar[str] = "misnamed"

    def run(self, module: int) -> None:  # wrong
        pass


@register
class Incomplete(MemoryPlanSolver):
    """A solver without ``place``, which the decorator does not hide."""

    name: ClassVar[str] = "incomplete"


Incomplete()  # wrong
CostModel()  # wrong
