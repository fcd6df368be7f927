# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The work of one design of a bundle, which is the work of its iteration space (``cost/of_space.py``)."""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from spyre_mlir.bundle.core_slices import division_of, positions, slice_sizes, space_of
from spyre_mlir.bundle.model import Bundle, Design, WindowDim
from spyre_mlir.cost.of_space import dims_of_operation, lanes_of, operation_work
from spyre_mlir.cost.ring_traffic import LinkLoads, reduce_links, relayout_traffic
from spyre_mlir.cost.work import OperationDims, OperationWork, product
from spyre_mlir.division.cores import Division
from spyre_mlir.division.relayout import Distribution, Relayout
from spyre_mlir.errors import CompileError
from spyre_mlir.layout.space import Space, gathered
from spyre_mlir.records import dataclass
from spyre_mlir.target.ops import DEVICE_OPS, Kind

Sizes = Mapping[str, int]


@dataclass(frozen=True)
class DesignWork:
    """The work of an execution of a design, on all cores and on one core; bytes are the plan's."""

    design: Design

    @functools.cached_property
    def space(self) -> Space:
        """The iteration space; of a gather, the space of the data that it moves."""
        space, table = space_of(self.design), DEVICE_OPS[self.design.opcode].table
        if table is None:
            return space
        if len(space.reduced) != 1:
            text = f"A gather has one dim that its result lacks, not {len(space.reduced)}."
            raise CompileError(text, self.design.filename)
        return gathered(space, table)

    @functools.cached_property
    def division(self) -> Division:
        """The slices of the dims of the space."""
        return division_of(self.design, self.space)

    @functools.cached_property
    def work(self) -> OperationWork:
        """The work for the cost model; numbers per core are of a core with whole shares."""
        in_lx = (number for number, operand in enumerate(self.design.operands) if operand.memory == "lx")
        design, source, target = self.design, self.design.operands[0], self.design.operands[-1]
        if source.held is None or target.held is None:
            relayout = None
        else:
            labels = target.listed
            relayout = Relayout(
                tuple(positions(target, label, design.sizes[label]) for label in labels),
                tuple(range(len(labels))),
                _distribution(labels, source.held.slices, source.held.core_slices),
                _distribution(labels, target.held.slices, target.held.core_slices, target.windows),
                design.target,
            )
        return operation_work(self.design.opcode, self.space, self.division, frozenset(in_lx), relayout)

    def work_of_core(self, core: int) -> OperationWork:
        """Return the work with the arithmetic of one core, which may have a smaller slice."""
        return replace(self.work, **self._dims.arithmetic(self.sizes_of_cores[core], self.lanes))

    @functools.cached_property
    def sizes_of_cores(self) -> tuple[tuple[int, ...], ...]:
        """The sizes of each core's slices; cores with equal sizes do equal work."""
        return tuple(tuple(slice_sizes(self.design, core).values()) for core in range(self.design.cores))

    @functools.cached_property
    def operations(self) -> int:
        """Operations of all cores, padding included: two per multiply-add, else one per position of the space.

        A relayout has none.
        """
        if self._dims.kind is Kind.RELAYOUT:
            return 0
        positions_ = sum(product(sizes, self._dims.all) for sizes in self.sizes_of_cores)
        return positions_ * (2 if self._dims.kind.on_array else 1)

    @property
    def lanes(self) -> int:
        """The largest number of elements per stick of any operand; 1 if no operand has a stick dim."""
        return lanes_of(self.space)

    @functools.cached_property
    def links(self) -> LinkLoads | None:
        """Loads of the ring's links by one execution; None if nothing goes over the ring.

        A partial sum is assumed to have the size of a result.
        """
        if self.work.relayout is not None:
            return relayout_traffic(self.work.relayout).links
        if self.work.parts == 1:
            return None
        element_bytes = self.design.target.stick_bytes // self.design.operands[-1].elements_per_stick
        part_bytes = self.work.outputs_per_core * element_bytes
        return reduce_links(self.design.target, self.division.groups, part_bytes)

    @property
    def _dims(self) -> OperationDims:
        return dims_of_operation(self.design.opcode, self.space.present)


def work_of_designs(bundle: Bundle) -> dict[str, DesignWork]:
    """Return the work of each design by file, for a bundle whose structure is sound."""
    return {filename: DesignWork(design) for filename, design in bundle.designs.items()}


def core_groups(designs: Collection[DesignWork]) -> tuple[tuple[int, ...], ...]:
    """Return the cores that a program uses, in groups of cores that do the same work in each design."""
    used = max((work.design.cores for work in designs), default=0)
    groups: dict[tuple[tuple[int, ...], ...], list[int]] = {}
    for core in range(used):
        sizes = tuple(work.sizes_of_cores[core] if core < work.design.cores else () for work in designs)
        groups.setdefault(sizes, []).append(core)
    return tuple(map(tuple, groups.values()))


def ranges_text(numbers: Iterable[int], dash: str, separator: str = ", ") -> str:
    """Format ascending numbers with neighbours as ranges, such as ``0-5, 7``."""
    ranges: list[list[int]] = []
    for number in numbers:
        if ranges and ranges[-1][1] == number - 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    return separator.join(str(first) if first == last else f"{first}{dash}{last}" for first, last in ranges)


def _distribution(
    labels: Sequence[str],
    slices: Sizes,
    owners: Sequence[Sizes | None],
    halos: Mapping[str, WindowDim] | None = None,
) -> Distribution:
    return Distribution(
        tuple(slices[label] for label in labels),
        tuple(None if slices is None else tuple(slices[label] for label in labels) for slices in owners),
        tuple(map(halos.get, labels)) if halos else (),
    )
