# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Timeline of the programs of a mesh: the device, the host and the link of each rank.

Each rank has three engines, and runs the steps of one engine in the order of the program. A step begins when its engine
is free and its values are complete; a collective begins when this holds on all ranks of its group. So a collective
overlaps with the steps of the device that do not depend on it, and with nothing else. Times of the link are by the
assumed rates ``[link]`` of the device file (``cost/link.py``).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING

from spyre_mlir.cost.link import CollectiveCost, collective_cost
from spyre_mlir.driver.collectives import CollectiveStep
from spyre_mlir.driver.program_figures import host_time
from spyre_mlir.driver.steps import HostStep, Transfers, sequences
from spyre_mlir.records import dataclass
from spyre_mlir.report.html import MARGIN, Page
from spyre_mlir.tables import aligned
from spyre_mlir.target.target import LinkRates, Target, default_target

if TYPE_CHECKING:
    from spyre_mlir.driver.program import Program

#: The engines of a rank, in the order of the picture.
ENGINES = ("device", "host", "link")


@dataclass(frozen=True)
class MeshEvent:
    """A step of one rank on one of its engines.

    Attributes:
        rank: The rank.
        name: The name of the step.
        engine: "device", "host" or "link".
        begin_us: The begin, in microseconds.
        end_us: The end, in microseconds.
        use: The algorithm and the bytes of a collective; None for another step.
    """

    rank: int
    name: str
    engine: str
    begin_us: float
    end_us: float
    use: CollectiveCost | None = None


@dataclass(frozen=True)
class MeshTimeline:
    """The events of a call on all ranks; printed, a table of rank 0.

    Attributes:
        events: The events, in the order of their begin for each rank.
        link_bytes: The bytes on the link, of all collectives and ranks.
    """

    events: tuple[MeshEvent, ...]
    link_bytes: int

    @property
    def total_us(self) -> float:
        """The end of the last event, in microseconds."""
        return max((event.end_us for event in self.events), default=0.0)

    def busy_us(self, engine: str, rank: int = 0) -> float:
        """Return the microseconds in which an engine of a rank is busy.

        Args:
            engine: "device", "host" or "link".
            rank: The rank.
        """
        return sum(
            event.end_us - event.begin_us
            for event in self.events
            if (event.rank, event.engine) == (rank, engine)
        )

    def __str__(self) -> str:
        rows: list[tuple[str, ...]] = [
            ("step", "engine", "begin us", "end us", "algorithm", "bytes on the link")
        ]
        for event in self.events:
            if event.rank == 0:
                times = f"{event.begin_us:,.1f}", f"{event.end_us:,.1f}"
                link = (event.use.algorithm, f"{event.use.bytes:,}") if event.use is not None else ("", "")
                rows.append((event.name, event.engine, *times, *link))
        return "\n".join(aligned(rows, "<<>><>"))

    def svg(self, name: str = "") -> str:
        """Return a picture with the engines of each rank above each other.

        Args:
            name: The name of the program, for the title.
        """
        page = Page(_STYLE)
        title = f"Timeline of {name}" if name else "Timeline of a mesh"
        page.text(MARGIN, MARGIN, title)
        text = f"{self.total_us:,.1f} us, {self.link_bytes:,} bytes on the link, by assumed rates of the link"
        page.text(MARGIN, MARGIN + _ROW, text)
        scale = _WIDTH / max(self.total_us, 1e-9)
        rows = sorted({(event.rank, ENGINES.index(event.engine)) for event in self.events})
        for row, (rank, engine) in enumerate(rows, 3):
            page.text(MARGIN, MARGIN + row * _ROW, f"{rank} {ENGINES[engine]}")
        for event in self.events:
            row = rows.index((event.rank, ENGINES.index(event.engine))) + 3
            width = max((event.end_us - event.begin_us) * scale, 0.5)
            x, y = MARGIN + _NAMES + event.begin_us * scale, MARGIN + row * _ROW - _BAR
            page.rectangle(event.engine, round(x, 1), y, round(width, 1), _BAR)
        return page.svg(title, text)


_ROW, _BAR, _NAMES, _WIDTH = 18, 13, 70, 900
_STYLE = ".device {fill: #4589ff} .host {fill: #8d8d8d} .link {fill: #ff832b}"


def mesh_timeline(programs: Sequence[Program], rates: LinkRates | None = None) -> MeshTimeline:
    """Return the timeline of the programs of all ranks, in the order of the ranks.

    ``rates`` replace the rates of the device file.

    Raises:
        CompileError: The device file does not have the rates of the link.
    """
    events: list[MeshEvent] = []
    ready: dict[tuple[int, str], float] = defaultdict(float)
    free: dict[tuple[int, str], float] = defaultdict(float)
    rest = [list(sequences(program.steps)) for program in programs]
    lines = [iter(program.timelines) for program in programs]
    link = rates or _target(programs[0]).link
    link_bytes = 0

    def add(
        rank: int, engine: str, steps: Sequence, begin: float, time: float, use: CollectiveCost | None = None
    ) -> None:
        name = " ".join(step.name for step in steps)
        events.append(MeshEvent(rank, name, engine, begin, begin + time, use))
        free[rank, engine] = begin + time
        for output in (output for step in steps for output in step.outputs):
            ready[rank, output] = begin + time

    def earliest(rank: int, engine: str, steps: Sequence) -> float:
        values = [ready[rank, value] for step in steps for value in step.inputs]
        return max([free[rank, engine], *values])

    while any(rest):
        for rank, units in enumerate(rest):
            while units and not isinstance(unit := units[0], CollectiveStep):
                steps = [unit] if isinstance(unit, HostStep) else unit
                if isinstance(unit, HostStep):
                    engine, time = "host", host_time([unit], [Transfers()]).estimates[0]
                else:
                    engine, time = "device", next(lines[rank]).total_ns / 1000
                add(rank, engine, steps, earliest(rank, engine, steps), time)
                units.pop(0)
        # All ranks wait at a collective or have ended; the call itself checks that the collectives match.
        group = next((units[0].ranks for units in rest if units and isinstance(units[0], CollectiveStep)), ())
        calls = [(rank, rest[rank].pop(0)) for rank in group if rank < len(rest) and rest[rank]]
        if not calls:
            break
        step = calls[0][1]
        assert isinstance(step, CollectiveStep)
        use = collective_cost(step.operation, len(group), step.bytes, link)
        link_bytes += use.bytes
        begin = max(earliest(rank, "link", [call]) for rank, call in calls)
        for rank, call in calls:
            add(rank, "link", [call], begin, use.nanoseconds / 1000, use)
    events.sort(key=lambda event: (event.rank, event.begin_us))
    return MeshTimeline(tuple(events), link_bytes)


def _target(program: Program) -> Target:
    return next((step.bundle.target for step in program.bundles), default_target())
