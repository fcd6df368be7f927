# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The work of one design of a bundle, derived from its file as ``cost/of_space.py`` derives it from IR.

The dims of an operand are the labels along which it varies, which have scale 1; they exclude the label that gives a
sparse operand its stick.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from spyre_mlir.bundle.core_slices import (
    accessed_positions,
    accessed_sizes,
    memory_strides,
    positions,
    slice_sizes,
)
from spyre_mlir.bundle.model import Bundle, Design, Operand, WindowDim
from spyre_mlir.cost.ring_traffic import LinkLoads, reduce_links, relayout_traffic
from spyre_mlir.cost.work import OperationDims, OperationWork, work_of
from spyre_mlir.division.relayout import Distribution, Relayout
from spyre_mlir.division.traffic import shared_sticks, slice_ranges
from spyre_mlir.records import dataclass
from spyre_mlir.target.ops import DEVICE_OPS, KINDS, Kind

Sizes = Mapping[str, int]


@dataclass(frozen=True)
class DesignWork:
    """The work of an execution of a design, on all cores and on one core; bytes are the plan's."""

    design: Design

    @functools.cached_property
    def work(self) -> OperationWork:
        """The work for the cost model; numbers per core are of a core with whole shares."""
        design = self.design
        operands = list(zip(design.operands, self._dims.present, strict=True))
        # Indivisible elements of each label: the longest stick, or 1 for a label in no stick.
        granules = {
            label: max((operand.per_stick(label) for operand, dims in operands if label in dims), default=1)
            for label in design.shares
        }
        core_bytes = [
            math.prod(_counts(operand, accessed_sizes(operand, design.shares))) * design.target.stick_bytes
            for operand in self._operands
        ]
        return work_of(
            design.target,
            design.opcode,
            self._dims,
            cores=design.cores,
            slices=design.slices,
            shares=design.shares,
            granules=granules,
            sizes={label: size - design.padding.get(label, 0) for label, size in design.sizes.items()},
            lanes=self.lanes,
            moved_bytes=[_bytes_of_cores(design, operand) for operand in self._operands],
            core_bytes=core_bytes,
            run_bytes=self._run_bytes,
            in_lx={number for number, operand in enumerate(design.operands) if operand.memory == "lx"},
            relayout=self._relayout,
        )

    def work_of_core(self, core: int) -> OperationWork:
        """Return the work with the arithmetic of one core, which may have a smaller slice."""
        return replace(self.work, **self._dims.arithmetic(slice_sizes(self.design, core), self.lanes))

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
        labels = list(self.design.sizes)
        varying = [labels.index(label) for label in self._dims.all]
        positions_ = sum(math.prod(sizes[axis] for axis in varying) for sizes in self.sizes_of_cores)
        return positions_ * (2 if self.is_arithmetic else 1)

    @property
    def is_arithmetic(self) -> bool:
        """Return whether the design runs on the array, not on the vector unit."""
        return self._dims.kind.on_array

    @functools.cached_property
    def lanes(self) -> int:
        """The largest number of elements per stick of any operand; 1 if no operand has a stick dim."""
        operands = zip(self.design.operands, self._dims.present, strict=True)
        return max(
            (operand.stick_elements for operand, dims in operands if operand.stick_dim in dims), default=1
        )

    @functools.cached_property
    def links(self) -> LinkLoads | None:
        """Loads of the ring's links by one execution; None if nothing goes over the ring.

        A partial sum is assumed to have the size of a result.
        """
        if self.work.relayout is not None:
            return relayout_traffic(self.work.relayout).links
        if self.work.parts == 1:
            return None
        # Groups of cores that add up the same values, by rising reduction slice.
        slices, groups = self.design.core_slices, dict[tuple[int, ...], list[int]]()
        result, reduced = (
            [label for label in self.design.sizes if label in dims]
            for dims in (self._dims.present[-1], self._dims.reduced)
        )
        for core in sorted(range(len(slices)), key=lambda core: [slices[core][label] for label in reduced]):
            groups.setdefault(tuple(slices[core][label] for label in result), []).append(core)
        element_bytes = self.design.target.stick_bytes // self.design.operands[-1].elements_per_stick
        part_bytes = self.work.outputs_per_core * element_bytes
        return reduce_links(self.design.target, list(groups.values()), part_bytes)

    @functools.cached_property
    def _operands(self) -> tuple[Operand, ...]:
        """The operands as data moves: a gather moves one row of its table for each of its indices."""
        operands, table = self.design.operands, DEVICE_OPS[self.design.opcode].table
        if table is None:
            return operands
        scale = {
            label: operands[-1].scale.get(label, -1) if abs(factor) == 1 else factor
            for label, factor in operands[table].scale.items()
        }
        return tuple(
            replace(operand, scale=scale) if index == table else operand
            for index, operand in enumerate(operands)
        )

    @functools.cached_property
    def _dims(self) -> OperationDims[str]:
        present = (frozenset(operand.varying) for operand in self._operands)
        return OperationDims(KINDS[self.design.opcode], tuple(present))

    @property
    def _relayout(self) -> Relayout | None:
        """The relayout of a shuffle, over the dims of its result, innermost first; None for other operations."""
        design, source, target = self.design, self.design.operands[0], self.design.operands[-1]
        if source.held is None or target.held is None:
            return None
        labels = [label for label in target.dim_order if label in self._dims.present[-1]]
        return Relayout(
            tuple(positions(target, label, design.sizes[label]) for label in labels),
            tuple(range(len(labels))),
            _distribution(labels, source.held.slices, source.held.core_slices),
            _distribution(labels, target.held.slices, target.held.core_slices, target.windows),
            design.target,
        )

    def _run_bytes(self, tile: Sizes) -> list[int]:
        """Return the contiguous bytes of a tile of each operand."""
        runs = []
        for operand in self.design.operands:
            run, counts = 1, _counts(operand, accessed_sizes(operand, tile))
            for count, stride in zip(counts, memory_strides(self.design, operand), strict=True):
                if count > 1 and stride != run:
                    break
                run *= count
            runs.append(run * self.design.target.stick_bytes)
        return runs


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


def _bytes_of_cores(design: Design, operand: Operand) -> int:
    """Return the bytes that all cores move; one of the cores with the same slices loads, or writes, for all of them."""
    labels = [label for label in operand.dim_order if operand.scale[label] == 1]
    sticks = [
        [
            positions(operand, label, accessed_positions(operand, label, first, count)[1]) if count else 0
            for first, count in slice_ranges(design.sizes[label], design.shares[label], design.slices[label])
        ]
        for label in labels
    ]
    owned = {tuple(slices[label] for label in labels) for slices in design.core_slices}
    return sum(shared_sticks(sticks, owned).values()) * design.target.stick_bytes


def _counts(operand: Operand, sizes: Sizes) -> list[int]:
    """Return the positions of a part of these sizes along each dim of an operand, innermost first."""
    return [positions(operand, label, sizes[label]) for label in operand.dim_order]
