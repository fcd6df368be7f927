# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The price of one bundle for all sizes: its time at a size beside that of a bundle made for this size alone."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from spyre_mlir.driver.program_figures import ProgramFigures
from spyre_mlir.records import dataclass


@dataclass(frozen=True)
class SizePrice:
    """Predicted microseconds of a program at ``sizes``, and of one compiled for them; ``reason`` says what differs."""

    sizes: Mapping[str, int]
    us: float
    own_us: float
    reason: str = ""

    @classmethod
    def of(cls, sizes: Mapping[str, int], program: ProgramFigures, own: ProgramFigures) -> SizePrice:
        """Compare the program of all sizes, at some, with that of these sizes alone."""
        us, own_us = predicted_us(program), predicted_us(own)
        return cls(dict(sizes), us, own_us, _reason(program, own) if us > own_us else "")

    @property
    def ratio(self) -> float:
        """How many times as long the bundle of all sizes takes."""
        return self.us / self.own_us

    def __str__(self) -> str:
        sizes = ", ".join(f"{name} = {size}" for name, size in self.sizes.items())
        text = f"at {sizes} the bundle of all sizes takes {self.us:.1f} us, one made for that {self.own_us:.1f} us"
        return f"{text}: {self.reason}" if self.reason else text


def predicted_us(program: ProgramFigures) -> float:
    """Return the predicted microseconds of a program."""
    return sum(timeline.total_ns for timeline in program.timelines) / 1000


def _reason(program: ProgramFigures, own: ProgramFigures) -> str:
    """Name the operation on which the program loses most, and the cores that it has in both."""
    times, own_times = _by_opcode(program), _by_opcode(own)
    losses = {opcode: time - own_times.get(opcode, (0.0, 0))[0] for opcode, (time, _) in times.items()}
    opcode = max(losses, key=lambda name: losses[name])
    (time, cores), (own_time, own_cores) = times[opcode], own_times.get(opcode, (0.0, 0))
    text = f"most of it is '{opcode}', {time:.1f} us in place of {own_time:.1f} us"
    if cores < own_cores:
        return f"{text}, on {cores} cores in place of {own_cores}, as only a step of the size can be divided"
    return f"{text}, which is divided as for the largest size"


def _by_opcode(program: ProgramFigures) -> dict[str, tuple[float, int]]:
    """Return the microseconds and the most cores of all operations of each kind."""
    times: defaultdict[str, tuple[float, int]] = defaultdict(lambda: (0.0, 0))
    for timeline in program.timelines:
        for execution in timeline.executions:
            time, cores = times[execution.opcode]
            times[execution.opcode] = time + execution.total_ns / 1000, max(cores, execution.work.cores)
    return dict(times)
