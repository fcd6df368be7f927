# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Map of the scratchpads: the bytes of LX in use over time, and the spilled buffers, with reasons.

Time is counted in *steps*: the executes of the program in the order of the text; an execute in a loop counts once. Live
ranges are inclusive and computed as in the planner (``spyre_mlir.scratchpad.liveness``). ``picture`` draws the map as a
file; the page of a program draws the map with zoom, loops and the bytes in use of each core.
"""

from __future__ import annotations

import functools
import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from html import escape
from math import ceil, prod

from spyre_mlir.bundle.context import Context, ExecuteStep, LoopRange, Tree
from spyre_mlir.bundle.model import Bundle, Origin
from spyre_mlir.bundle.validate import sound_context
from spyre_mlir.records import dataclass
from spyre_mlir.report.html import CHARACTER, MARGIN, Page, bytes_text, count, legend
from spyre_mlir.scratchpad import liveness
from spyre_mlir.target.ops import DEVICE_OPS, Kind
from spyre_mlir.timeline.of_design import DesignWork, work_of_designs

#: Colour categories of operations, by their kind in the table of operations; a copy of any kind is a clone.
CATEGORIES = ("clone", "reduction", "pointwise", "matmul", "other")
_CATEGORY = {
    Kind.POINTWISE: "pointwise",
    Kind.CAST: "pointwise",
    Kind.REDUCE_STICK: "reduction",
    Kind.REDUCE_OTHER: "reduction",
    Kind.MATMUL: "matmul",
}
_COPY = "identity"

#: Fills by category: neighbours also differ in luminance, and dark text has a contrast of at least 7 on each fill.
FILLS: dict[str, str] = dict(
    zip(CATEGORIES, ("#dadaeb", "#fc9f83", "#9ecae1", "#85cc87", "#ffeda0"), strict=True)
)

#: Text for a map without buffers.
NOTHING = "No buffer of this program is in LX."


@dataclass(frozen=True)
class MapStep:
    """One execute, which runs once per iteration of the loops around it on the cores 0 to ``cores`` - 1.

    ``loops`` are their iteration counts, the outermost first. ``sharing`` is the number of steps with the same design.
    """

    position: int
    opcode: str
    origin: Origin
    cores: int
    loops: tuple[int, ...]
    sharing: int

    @property
    def source(self) -> str:
        """``file:line:column`` that the step comes from; empty if the bundle does not know it."""
        return self.origin.source

    @property
    def module(self) -> str:
        """Path of its module; empty for the model itself, and if the program has no modules."""
        return self.origin.module

    @property
    def runs(self) -> int:
        return prod(self.loops)

    @property
    def category(self) -> str:
        """One of ``CATEGORIES``."""
        if self.opcode == _COPY:
            return "clone"
        return _CATEGORY.get(DEVICE_OPS[self.opcode].kind, "other")


@dataclass(frozen=True)
class MapLoop:
    """The steps ``first`` to ``last`` are repeated ``count`` times, inside ``depth`` other loops."""

    first: int
    last: int
    count: int
    depth: int


@dataclass(frozen=True)
class PlacedBuffer:
    """A buffer of ``bytes`` at ``address`` on each of the cores 0 to ``cores`` - 1, live from ``first`` to ``last``.

    ``writer`` is the first step that writes the buffer, None if it is only read.
    """

    name: str
    writer: int | None
    address: int
    bytes: int
    first: int
    last: int
    cores: int

    @property
    def end(self) -> int:
        return self.address + self.bytes


@dataclass(frozen=True)
class SpilledBuffer:
    """A buffer in device memory that is not an argument: its size, the bytes that move in a run, and the reasons.

    ``read_bytes`` and ``written_bytes`` are counted as in the simulator: padded device bytes, a load that several
    cores share counts once, and all runs of loops count.
    """

    name: str
    writer: int | None
    bytes: int
    first: int
    last: int
    read_bytes: int
    written_bytes: int
    reasons: tuple[str, ...]

    @property
    def traffic(self) -> int:
        return self.read_bytes + self.written_bytes


@dataclass(frozen=True)
class Occupancy:
    """Bytes of one core's LX at each step.

    ``load`` are the bytes that live buffers occupy; the bytes of an in-place pair count once, whatever cores the two
    are on. ``high_water`` is the end of the highest live buffer.
    """

    load: tuple[int, ...]
    high_water: tuple[int, ...]

    @property
    def fragmentation(self) -> tuple[int, ...]:
        """Free bytes below the high-water mark."""
        return tuple(high - load for high, load in zip(self.high_water, self.load, strict=True))

    @property
    def peak(self) -> int:
        return max(self.high_water, default=0)


@dataclass(frozen=True)
class LxMap:
    """The scratchpads of a program.

    ``chains`` are the buffers in LX. The buffers of one chain have one address, on the same cores: each buffer takes
    the address of the previous one, at the step of the previous buffer's last read. The compiler may use ``capacity``
    of ``lx_bytes`` bytes, from address 0. ``argument_traffic`` is the number of bytes that arguments, constants and
    results move in a run.
    """

    steps: tuple[MapStep, ...]
    loops: tuple[MapLoop, ...]
    chains: tuple[tuple[PlacedBuffer, ...], ...]
    spilled: tuple[SpilledBuffer, ...]
    argument_traffic: int
    capacity: int
    lx_bytes: int

    @functools.cached_property
    def placed(self) -> list[PlacedBuffer]:
        """The buffers in LX by their first step."""
        return sorted((buffer for chain in self.chains for buffer in chain), key=lambda buffer: buffer.first)

    @functools.cached_property
    def parents(self) -> dict[str, str]:
        """The parent of each buffer of a chain, except the first: the previous buffer, whose address it takes."""
        return {
            child.name: parent.name for chain in self.chains for parent, child in itertools.pairwise(chain)
        }

    @property
    def spilled_by_traffic(self) -> list[SpilledBuffer]:
        """The spilled buffers, the largest traffic first."""
        return sorted(self.spilled, key=lambda buffer: -buffer.traffic)

    def nests(self) -> list[tuple[int, ...]]:
        """Return the iteration counts of each innermost loop and the loops around it, outermost first."""
        nests: list[tuple[int, ...]] = []
        around: list[int] = []
        for number, loop in enumerate(self.loops):
            # Loops come outermost first, so this loop ends all loops that are at least as deep.
            around[loop.depth :] = [loop.count]
            following = self.loops[number + 1].depth if number + 1 < len(self.loops) else 0
            if following <= loop.depth:
                nests.append(tuple(around))
        return nests

    @property
    def spilled_traffic(self) -> int:
        return sum(buffer.traffic for buffer in self.spilled)

    @functools.cached_property
    def peak(self) -> int:
        """The end of the highest buffer."""
        return max((buffer.end for buffer in self.placed), default=0)

    def core_groups(self) -> list[tuple[int, int]]:
        """Return the first and last core of each group of used cores that hold the same buffers."""
        used = [max(step.cores for step in self.steps)] if self.steps else []
        counts = sorted({*used, *(buffer.cores for buffer in self.placed)})
        return [(first, last - 1) for first, last in zip([0, *counts], counts, strict=False)]

    def occupancy(self, core: int) -> Occupancy:
        """Return the bytes of a core's LX in use over time."""
        load, high_water = [0] * len(self.steps), [0] * len(self.steps)
        buffers = [buffer for chain in self.chains for buffer in chain if core < buffer.cores]
        # Rising addresses: bytes below the high-water mark of a step are already counted.
        for buffer in sorted(buffers, key=lambda buffer: buffer.address):
            for step in range(buffer.first, buffer.last + 1):
                load[step] += max(0, buffer.end - max(buffer.address, high_water[step]))
                high_water[step] = max(high_water[step], buffer.end)
        return Occupancy(tuple(load), tuple(high_water))


def iterations_text(loops: Iterable[int]) -> str:
    """Format the iterations of nested loops, outermost first: ``8 x 3``."""
    return " x ".join(f"{count:,}" for count in loops)


def lx_map(bundle: Bundle, lx_backend_fraction: float | None = None) -> LxMap:
    """Return the map of a bundle; ``CompileError`` if the parts of the bundle are inconsistent.

    ``lx_backend_fraction`` is the part of LX that the backend keeps, by default the device's part.
    """
    return lx_map_of(sound_context(bundle, lx_backend_fraction), work_of_designs(bundle))


def lx_map_of(context: Context, work_by_file: Mapping[str, DesignWork]) -> LxMap:
    """Return the map of a bundle whose structure is sound, given its ``work_by_file``."""
    steps, manifest = context.steps, context.bundle.manifest
    expected, left = (
        {resident.buffer for resident in residents} for residents in (manifest.expects, manifest.leaves)
    )
    accesses: dict[str, list[tuple[ExecuteStep, int]]] = {name: [] for name in sorted(expected)}
    for step in steps:
        for operand, name in enumerate(context.uses(step)):
            accesses.setdefault(name, []).append((step, operand))
    live_ranges = liveness.live_ranges(_program(context, context.tree))
    holding: dict[str, int] = {}
    for resident in (*manifest.expects, *manifest.leaves):
        holding[resident.buffer] = max(holding.get(resident.buffer, 1), max(resident.cores, default=0) + 1)
    placed, spilled, argument_traffic = list[PlacedBuffer](), list[SpilledBuffer](), 0
    for buffer in manifest.buffers:
        name = buffer.name
        if name not in accesses:
            continue
        # Bytes of device memory that a run reads and writes.
        moved, writer = {False: 0, True: 0}, None
        for step, operand in accesses[name]:
            work = work_by_file[step.execute.filename].work.operands[operand]
            moved[work.writes] += step.runs * work.moved_bytes
            if writer is None and operand == len(step.design.operands) - 1:
                writer = step.position
        if buffer.base in context.arguments:
            argument_traffic += sum(moved.values())
            continue
        # An expected buffer is live from step 0 on, one that is left until the last step.
        uses = live_ranges[name].uses if name in live_ranges else (0,)
        first = 0 if name in expected else uses[0]
        last = len(steps) - 1 if name in left else uses[-1]
        if buffer.base == "lx":
            # A buffer occupies the cores from core 0 on.
            cores = max(*(step.design.cores for step, _ in accesses[name]), holding.get(name, 1), 1)
            placed.append(PlacedBuffer(name, writer, buffer.offset, buffer.bytes, first, last, cores))
        else:
            traffic = moved[False], moved[True]
            spilled.append(
                SpilledBuffer(name, writer, buffer.bytes, first, last, *traffic, reasons=buffer.reasons)
            )
    sharing = Counter(step.execute.filename for step in steps)
    return LxMap(
        steps=tuple(
            MapStep(
                position=step.position,
                opcode=step.design.opcode,
                origin=step.origin,
                cores=step.design.cores,
                loops=tuple(loop.count for loop in step.loops),
                sharing=sharing[step.execute.filename],
            )
            for step in steps
        ),
        loops=tuple(_loops(steps)),
        chains=_chains(placed, lambda step, name: name in context.uses(steps[step])[:-1]),
        spilled=tuple(spilled),
        argument_traffic=argument_traffic,
        capacity=context.target.usable_lx_bytes,
        lx_bytes=context.target.lx_bytes,
    )


def _program(context: Context, tree: Tree) -> Sequence[liveness.OpAccesses | liveness.LoopAccesses]:
    """Return the program as input of the liveness analysis."""
    program: list[liveness.OpAccesses | liveness.LoopAccesses] = []
    for node in tree:
        if isinstance(node, ExecuteStep):
            *reads, write = context.uses(node)
            program.append(liveness.OpAccesses(tuple(reads), (write,)))
        else:
            program.append(liveness.LoopAccesses(tuple(_program(context, node[1]))))
    return program


def _loops(steps: Iterable[ExecuteStep]) -> Iterator[MapLoop]:
    positions_of: dict[tuple[int, LoopRange], list[int]] = {}
    for step in steps:
        for depth, loop in enumerate(step.loops):
            positions_of.setdefault((depth, loop), []).append(step.position)
    for (depth, loop), positions in positions_of.items():
        yield MapLoop(positions[0], positions[-1], loop.count, depth)


def _chains(
    placed: Sequence[PlacedBuffer], reads: Callable[[int, str], bool]
) -> tuple[tuple[PlacedBuffer, ...], ...]:
    """Return the chains of buffers: each buffer takes the address of the previous buffer of its chain."""

    def hands_over(parent: PlacedBuffer, child: PlacedBuffer) -> bool:
        """Return whether the step that first writes the child is the last read of the parent, at the same address."""
        written_there = child.writer == child.first == parent.last
        return written_there and child.bytes <= parent.bytes and reads(child.first, parent.name)

    chains: list[list[PlacedBuffer]] = []
    by_end: dict[tuple[int, int, int], list[list[PlacedBuffer]]] = {}
    # The order by first step adds a parent to its chain before its child.
    for buffer in sorted(placed, key=lambda buffer: (buffer.first, buffer.address)):
        ending = by_end.get((buffer.address, buffer.first, buffer.cores), [])
        chain = next((chain for chain in ending if hands_over(chain[-1], buffer)), None)
        if chain is None:
            chain = []
            chains.append(chain)
        else:
            # Each buffer has one child: a second child at the same address starts another chain.
            ending.remove(chain)
        chain.append(buffer)
        by_end.setdefault((buffer.address, buffer.last, buffer.cores), []).append(chain)
    return tuple(map(tuple, chains))


# -- words and picture ----------------------------------------------------------------------------------------


def title_of(name: str) -> str:
    """Return the title of the map of a bundle."""
    return f"LX map{f' of {name}' if name else ''}"


def map_sentences(map_: LxMap) -> tuple[str, str]:
    """Return the number of steps and buffers, and the traffic, as sentences."""
    placed, places = count(len(map_.placed), "buffer"), count(len(map_.chains), "place")
    return (
        f"{count(len(map_.steps), 'step')}. {placed} in LX, in {places}; {len(map_.spilled):,} spilled to device"
        f" memory. The highest ends at {map_.peak:,} of {map_.capacity:,} bytes per core.",
        f"A run moves {map_.argument_traffic + map_.spilled_traffic:,} bytes of device memory:"
        f" {map_.argument_traffic:,} of arguments and results, {map_.spilled_traffic:,} of spilled buffers.",
    )


def writer_text(map_: LxMap, writer: int | None) -> str:
    """Format the operation that writes a buffer, with its step and its module."""
    if writer is None:
        return "never written"
    step = map_.steps[writer]
    return f"{step.opcode} (step {writer}{f' in {step.module}' if step.module else ''})"


#: Pixels: a line of text, the plot, and the distance of two labels.
_LINE, _LEFT, _WIDTH, _HEIGHT, _APART = 18, MARGIN + 72, 1070, 330, 15

_STYLE = """
.edge { stroke: #333333; stroke-width: 0.9; }
.inside { font-size: 11px; pointer-events: none; }
.tick { stroke: #d9d9d9; stroke-width: 0.8; }
.capacity { stroke: #a50f15; stroke-width: 1.6; }
"""


def picture(map_: LxMap, name: str = "") -> str:
    """Return the map as an SVG file: a box for each buffer of core 0, which holds all buffers.

    The x axis is steps, the y axis addresses. The same map gives the same text, byte for byte. A buffer that takes the
    address of another buffer begins in the middle of the step in which it takes the address.
    """
    page, sentences, steps = Page(_STYLE), map_sentences(map_), len(map_.steps)
    page.text(MARGIN, MARGIN, title_of(name), "heading")
    for line, sentence in enumerate(sentences):
        page.text(MARGIN, MARGIN + (line + 1.2) * _LINE, sentence)
    top = MARGIN + (len(sentences) + 2.2) * _LINE
    legend(page, MARGIN, top, FILLS.items(), outlined=True)
    top += 24
    bottom, column = top + _HEIGHT, _WIDTH / max(steps, 1)
    # A map that leaves a large part of LX free is drawn up to its highest buffer.
    is_low = 0 < map_.peak < 0.7 * map_.capacity
    end = map_.peak if is_low else max(map_.peak, map_.capacity, 1)
    capacity = bottom - map_.capacity / end * _HEIGHT

    tick = 1 << max((end // 6).bit_length(), 7)
    for address in range(0, end + 1, tick):
        y = bottom - address / end * _HEIGHT
        page.add(f'<path class="tick" d="M {_LEFT} {y:.2f} h {_WIDTH}"/>', _LEFT + _WIDTH)
        if is_low or y - capacity > _APART:
            page.text(_LEFT - 8, y + 4, bytes_text(address), "label", "end")
    names = [f"{step.position} {step.opcode}" for step in map_.steps]
    if max(map(len, names), default=0) * CHARACTER + 6 > column:
        names = [str(step.position) for step in map_.steps]
    for step in range(0, steps, ceil(3 * _APART / column)):
        page.text(_LEFT + (step + 0.5) * column, bottom + _APART, names[step], "label", "middle")

    followed = set(map_.parents.values())
    for buffer in map_.placed:
        parent = map_.parents.get(buffer.name)
        x = _LEFT + (buffer.first + (0.5 if parent else 0)) * column
        right = _LEFT + (buffer.last + 1) * column
        height = max(buffer.bytes / end * _HEIGHT, 2)
        y = bottom - buffer.address / end * _HEIGHT - height
        writer = None if buffer.writer is None else map_.steps[buffer.writer]
        lines = [
            f"{buffer.name}: {writer_text(map_, buffer.writer)}",
            f"{buffer.bytes:,} bytes at {buffer.address:,} to {buffer.end:,}",
            f"live from step {buffer.first} to {buffer.last}, on {count(buffer.cores, 'core')}",
            *([f"in place of {parent}"] if parent else []),
            *([writer.source] if writer and writer.source else []),
        ]
        page.add(
            f'<g class="buffer" data-buffer="{escape(buffer.name)}"><title>{escape(chr(10).join(lines))}</title>'
        )
        page.rectangle("edge", x, y, right - x, height, FILLS[writer.category if writer else "other"])
        shown = right - x - (column / 2 if buffer.name in followed else 0)
        opcode = writer.opcode if writer else ""
        if label := next(
            (
                each
                for each in (f"{buffer.name} {opcode}", buffer.name, opcode)
                if height >= 14 and len(each) * CHARACTER + 6 <= shown
            ),
            "",
        ):
            page.text(x + shown / 2, y + height / 2 + 4, label, "inside", "middle")
        page.add("</g>")
    if not map_.placed:
        page.text(_LEFT + _WIDTH / 2, top + _HEIGHT / 2, NOTHING, "name", "middle")
    if not is_low:
        page.add(f'<path class="capacity" d="M {_LEFT} {capacity:.2f} h {_WIDTH}"/>')
        page.text(_LEFT - 8, capacity + 4, "capacity", "label", "end")
    return page.svg(title_of(name), " ".join(sentences))
