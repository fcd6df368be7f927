# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The solver that packs only by exact search."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from spyre_mlir.records import dataclass
from spyre_mlir.scratchpad.fitting import Fitting, by_worth, lowest
from spyre_mlir.scratchpad.in_place_packing import pack
from spyre_mlir.scratchpad.instance import Instance
from spyre_mlir.scratchpad.solver import MemoryPlanSolver, Placement


@dataclass(frozen=True)
class ExactSolver(MemoryPlanSolver):
    """Place all buffers, if the search succeeds within ``nodes`` nodes (``in_place_packing.py``).

    If not, drop the buffers that save the least per byte and time, 1, 2, 4, .. more at a time, until the rest is
    packed, each try with an eighth of the nodes. Then put back dropped buffers that find a gap. This choice of dropped
    buffers is simple; ``PortfolioSolver`` makes a better one.
    """

    name: ClassVar[str] = "exact"
    nodes: int = 2_000_000

    def place(self, instance: Instance) -> Placement:
        """Return addresses of all or some buffers; the bound is the least saving if not all of them can fit."""
        order = list(by_worth(instance))
        packing = pack(instance, instance.space.capacity, self.nodes)
        bound = int(instance.savings.min()) if packing.proven else 0
        selected, dropped, work = np.arange(len(instance)), 0, packing.nodes
        while packing.offsets is None:
            # Few tries, because each is a separate search.
            # The loop ends, because an empty set of buffers packs.
            dropped = 2 * dropped + 1
            selected = np.sort(np.array(order[:-dropped], np.int64))
            packing = pack(instance.subset(selected.tolist()), instance.space.capacity, self.nodes // 8)
            work += packing.nodes
        addresses = dict(zip(selected.tolist(), packing.offsets.tolist(), strict=True))
        rest = [index for index in order if index not in addresses]
        return Placement(Fitting(instance).fit(rest, lowest, addresses), bound, work)
