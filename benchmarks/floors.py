# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Lower bounds of predicted times."""

from __future__ import annotations

from benchmarks.programs import floor_programs
from benchmarks.registry import Metrics, Noted, benchmark


@benchmark(below_the_floor=0, faster_with_an_operation=0)
def floors(count: int = 20, first: int = 0) -> Metrics:
    """Predicted times of random programs on 1, 4 and 32 cores, compared with bytes and multiply-adds at their peaks.

    Each of ``--count`` programs, from seed ``--first`` on, is compiled twice: unchanged, and with one operation more,
    which must not make it faster.
    """
    module, below, faster, notes = floor_programs(), 0, 0, []
    for seed in range(first, first + count):
        programs = module.prices(seed)
        times = [program.total_ns for program in programs]
        is_below = any(program.total_ns < module.least_ns(program) for program in programs)
        below, faster = below + is_below, faster + (times[1] < times[0])
        if is_below or times[1] < times[0]:
            notes.append(
                f"seed {seed}: {times[0] / 1000:.2f} us, with an operation more {times[1] / 1000:.2f} us"
            )
    return Noted({"programs": 2 * count, "below_the_floor": below, "faster_with_an_operation": faster}, notes)
