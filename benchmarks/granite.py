# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The relayouts of one Granite 8B model: its values, the cores that write them and the cores that read them.

Reduced from the 130 relayouts of a compiled model in the "Granite LX relayout inventory" of torch-spyre: P of a
prompt of 512 tokens, D of a decoding step. Where the inventory lists only the number of pieces, the pieces are the
slices of the operations that write and read the value.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from math import prod

from spyre_mlir.division.relayout import Distribution, Relayout
from spyre_mlir.layout import BufferView, StickLayout
from spyre_mlir.layout.space import Space, refined
from spyre_mlir.target.target import Target

#: The cores of the measured relayouts.
_CORES = 32


@dataclass(frozen=True)
class Pieces:
    """Slices of each dim, the dim whose slices are on neighbouring cores first; ``copies`` cores have each piece.

    Copy ``c`` of piece ``p`` is on core ``first + p * step + c * copy_step``.
    """

    slices: dict[str, int] = field(default_factory=dict)
    copies: int = 1
    step: int = 1
    copy_step: int = 1
    first: int = 0

    @property
    def count(self) -> int:
        return prod(self.slices.values())

    def owners(self) -> tuple[dict[str, int] | None, ...]:
        """Return for each core its slice of each dim, or None for a core without a piece."""
        labels = list(self.slices)
        # ``product`` counts its last factor fastest.
        numbers = itertools.product(*(range(self.slices[label]) for label in reversed(labels)))
        parts = [dict(zip(reversed(labels), number, strict=True)) for number in numbers]
        by_core = {
            self.first + piece * self.step + copy * self.copy_step: part
            for piece, part in enumerate(parts)
            for copy in range(self.copies)
        }
        return tuple(by_core.get(core) for core in range(max(by_core) + 1))

    def distribution(self, labels: list[str]) -> Distribution:
        """Return the distribution over dims with these labels; dims that are not sliced are whole."""
        return Distribution(
            tuple(self.slices.get(label, 1) for label in labels),
            tuple(
                None if part is None else tuple(part.get(label, 0) for label in labels)
                for part in self.owners()
            ),
        )

    def __str__(self) -> str:
        return f"{self.count} x {self.copies}"


@dataclass(frozen=True)
class ModelRelayout:
    """A relayout of fp16 values of ``sizes``, outermost first, the last dim in the stick unless it is ``sparse``.

    ``sources`` are the pieces that meet one piece of the target, ``count`` the measured relayouts of this kind.
    """

    name: str
    consumer: str
    sizes: dict[str, int]
    source: Pieces
    target: Pieces
    sources: int
    sparse: bool = False
    count: int = 1

    @property
    def operation(self) -> str:
        """The operation of KTIR that delivers the pieces, with its dims, by their number on both sides of each dim."""
        pairs = {
            label: (self.source.slices.get(label, 1), self.target.slices.get(label, 1))
            for label in self.labels
        }
        coarser = [label for label, (before, after) in pairs.items() if before > after]
        finer = [label for label, (before, after) in pairs.items() if after > before]
        if not coarser:
            return f"scatter {', '.join(finer)}" if finer else "consume"
        if finer and self.target.count == _CORES:
            return f"all_to_all {', '.join(finer)} / {', '.join(coarser)}"
        return f"gather {', '.join(coarser)}"

    @property
    def labels(self) -> list[str]:
        """Return the labels of the dims with several sticks or rows."""
        return list(self.sizes)[: -1 if self.sparse else None]

    def space(self, target: Target) -> Space:
        """Return the space of a copy in the default layout."""
        shape = [self.sizes[label] for label in self.labels]
        order = [*range(len(shape)), -1] if self.sparse else None
        view = BufferView.of(StickLayout.for_tensor(target, shape, "f16", order))
        return refined([view, view])

    def relayout(self, target: Target) -> Relayout:
        """Return the relayout on a device."""
        space = self.space(target)
        strides = {axis.dim: axis.stride for axis in space.views[0].axes}
        order = sorted(range(len(space.units)), key=lambda dim: strides.get(dim, 0))
        source, result = (part.distribution(self.labels) for part in (self.source, self.target))
        cores = max(len(source.owners), len(result.owners))
        return Relayout(space.units, tuple(order), source.on(cores), result.on(cores), target)


_WIDE = {"mb": 512, "in": 4096}
_TOKEN = {"mb": 1, "in": 4096}
_ROWS = {"mb": 512, "out": 4096}
_KEYS, _VALUES = {"x": 8, "in": 128, "out": 512}, {"x": 8, "in": 512, "out": 128}
_HEADS = {"x": 8, "y": 4, "mb": 512, "in": 128}
_CACHE = {"j": 8, "y": 768, "out": 128}
_SCALE, _TABLE = {"mb": 512, "out": 64}, {"mb": 2, "y": 512, "out": 64}

#: 8 pieces on 4 neighbours each.
_EIGHT_BY_ROW = Pieces({"mb": 8}, copies=4, step=4)


def _all(copies: int) -> Pieces:
    """Return the pieces of a value that is whole on each of ``copies`` cores."""
    return Pieces(copies=copies)


RELAYOUTS = (
    ModelRelayout("P12", "add", _ROWS, Pieces({"mb": 16}, step=2), Pieces({"out": 4, "mb": 8}), 2),
    ModelRelayout("P09", "matmul, input", _WIDE, Pieces({"mb": 16}, step=2), _EIGHT_BY_ROW, 2),
    ModelRelayout("P03", "matmul, input", _WIDE, Pieces({"in": 4, "mb": 8}), _EIGHT_BY_ROW, 4),
    ModelRelayout("P04", "matmul, input", _WIDE, Pieces({"mb": 32}), _EIGHT_BY_ROW, 4),
    ModelRelayout("P06", "bmm, input", _HEADS, Pieces({"x": 4, "mb": 8}), Pieces({"mb": 32}), 4),
    ModelRelayout("P01", "bmm, kernel", _KEYS, Pieces({"x": 4, "out": 8}), _all(32), 32),
    ModelRelayout("P02", "bmm, kernel", _VALUES, Pieces({"x": 4, "in": 8}), _all(32), 32),
    ModelRelayout("P13", "matmul, input (last token)", _TOKEN, Pieces({"in": 32}), _all(28), 32),
    ModelRelayout("P05", "mean of squares", _ROWS, Pieces({"out": 4, "mb": 8}), Pieces({"mb": 8}, step=4), 4),
    ModelRelayout("P10", "norm scale", _SCALE, Pieces({"mb": 8}, step=4), _EIGHT_BY_ROW, 1, sparse=True),
    ModelRelayout("P11", "norm scale", _SCALE, Pieces({"mb": 8}, step=4), _EIGHT_BY_ROW, 1, sparse=True),
    ModelRelayout("P07", "rotary table", _TABLE, Pieces({"y": 16}, step=2), Pieces({"y": 8}, copies=4, step=4), 2),
    ModelRelayout(
        "P08", "restickify after attention", {"j": 8, "mb": 512, "out": 128},
        Pieces({"j": 4, "mb": 8}), Pieces({"mb": 8, "j": 4}), 1,
    ),
    ModelRelayout("P14", "slice", _ROWS, Pieces({"out": 4, "mb": 8}), Pieces({"mb": 8, "out": 4}), 1),
    ModelRelayout(
        "P14, the row alone", "slice", {"mb": 1, "out": 4096}, Pieces({"out": 4}, first=28), Pieces({"out": 32}), 1,
    ),
    *(
        ModelRelayout(f"D1, x {copies}", "matmul, input", _TOKEN, Pieces({"in": 32}), _all(copies), 32)
        for copies in (32, 28, 25, 16)
    ),
    ModelRelayout("D2", "matmul, input", {"mb": 1, "in": 12800}, Pieces({"in": 25}), _all(32), 25),
    ModelRelayout(
        "D3", "bmm, input", {"x": 8, "y": 4, "mb": 1, "in": 128},
        Pieces({"y": 4, "x": 8}), Pieces({"x": 8}, copies=4, step=4), 4,
    ),
    ModelRelayout(
        "D4", "bmm, input", {"x": 8, "y": 4, "mb": 1, "in": 768},
        Pieces({"y": 4, "x": 8}), Pieces({"in": 2, "x": 8}, copies=2, step=2), 4,
    ),
    ModelRelayout(
        "D5", "bmm, kernel", {"x": 8, "in": 768, "out": 128},
        Pieces({"in": 32}), Pieces({"out": 2, "x": 8}, copies=2, step=2), 32,
    ),
    ModelRelayout(
        "D6", "bmm, kernel", {"x": 8, "in": 128, "out": 768},
        Pieces({"in": 4, "x": 8}), Pieces({"out": 2, "in": 2, "x": 8}), 2,
    ),
    ModelRelayout("D7", "mean of squares", {"mb": 1, "out": 4096}, Pieces({"out": 32}), _all(1), 32),
    ModelRelayout("D8", "norm scale", {"mb": 1, "out": 64}, _all(1), _all(32), 1, sparse=True),
    ModelRelayout(
        "D9", "max, sum of softmax", {"mb": 32, "out": 768}, Pieces({"mb": 32}), Pieces({"mb": 8}), 4,
    ),
    ModelRelayout(
        "D10", "sub, mul of softmax", {"mb": 32, "out": 64}, Pieces({"mb": 8}), _EIGHT_BY_ROW, 1, sparse=True,
    ),
    *(
        ModelRelayout(f"D11, x {copies}", "rotary table", {"mb": 2, "out": 64}, Pieces({"mb": 2}), _all(copies), 2)
        for copies in (32, 8)
    ),
    ModelRelayout("D12, 8 inputs", "restickify of the cache", _CACHE, Pieces({"y": 32}), Pieces({"j": 8, "y": 4}), 8),
    ModelRelayout(
        "D12, 1 input", "restickify of the cache", _CACHE, Pieces({"j": 8, "y": 4}), Pieces({"y": 4, "j": 8}), 1,
    ),
    ModelRelayout("D13", "write to the cache", {"mb": 8, "out": 128}, Pieces({"out": 2, "mb": 8}), _all(1), 16),
    ModelRelayout("D14", "embedding", {"mb": 1, "out": 4096}, _all(1), Pieces({"out": 32}), 1),
)  # fmt: skip

#: The 51 measured relayouts of "Inter-tile communications in KTIR", section 9.3, by kind, and the broadcast of its
#: table. The section has the pieces; the sizes are the sizes of Granite's values with these dims. Its 9 contiguous and
#: 15 strided groups of four cores are the kinds with 6 and 3, and with 15 relayouts.
INTER_TILE = (
    ModelRelayout(
        "I1", "all-gather to every core", {"x": 8, "in": 128, "out": 512},
        Pieces({"in": 2, "out": 8, "x": 2}), _all(32), 32, count=3,
    ),
    ModelRelayout("I2", "all-gather, 4 cores idle", _TOKEN, Pieces({"in": 32}), _all(28), 32),
    ModelRelayout(
        "I3", "grouped gather, drop a dim", _WIDE, Pieces({"in": 4, "mb": 8}), _EIGHT_BY_ROW, 4, count=6
    ),
    ModelRelayout(
        "I4", "grouped gather, coarsen a dim", _WIDE,
        Pieces({"mb": 32}), Pieces({"mb": 8}, copies=4, copy_step=8), 4, count=15,
    ),
    ModelRelayout(
        "I5", "grouped gather, coarsen a dim", _WIDE, Pieces({"mb": 16}, step=2), _EIGHT_BY_ROW, 2, count=3
    ),
    ModelRelayout(
        "I6", "all-to-all, square", _ROWS, Pieces({"out": 4, "mb": 8}), Pieces({"mb": 32}), 4, count=6
    ),
    ModelRelayout(
        "I7", "all-to-all, square", {"x": 32, "mb": 512, "in": 128},
        Pieces({"mb": 4, "x": 8}), Pieces({"x": 32}), 4, count=3,
    ),
    ModelRelayout(
        "I8", "all-to-all, non-square", _ROWS, Pieces({"mb": 16}, step=2), Pieces({"out": 4, "mb": 8}), 2
    ),
    ModelRelayout("I9", "split", _TABLE, Pieces({"y": 16}, step=2), Pieces({"y": 32}), 1, count=12),
    ModelRelayout(
        "I10", "selection of a row, then split", {"mb": 1, "out": 2048},
        Pieces({"out": 4}, first=28), Pieces({"out": 32}), 1,
    ),
    ModelRelayout(
        "I11", "broadcast", {"h": 8, "out": 4096}, Pieces({"h": 8}, step=4),
        Pieces({"h": 8}, copies=4, step=4), 1, count=0,
    ),
)  # fmt: skip
