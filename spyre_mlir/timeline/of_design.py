"""The work of one design of a bundle: what ``cost/of_space.py`` takes from IR, taken from the file instead.

The dims of an operand are the labels along which it varies, those of scale 1; the label that gives a sparse operand
its stick is none of them.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from spyre_mlir.bundle.core_slices import memory_strides, positions, slice_sizes
from spyre_mlir.bundle.model import Bundle, Design, Operand
from spyre_mlir.cost.ring_traffic import LinkLoads, reduce_links, relayout_traffic
from spyre_mlir.cost.work import OperandWork, OperationWork
from spyre_mlir.division.relayout import Distribution, Relayout
from spyre_mlir.target.ops import DEVICE_OPS, KINDS, Kind

Sizes = Mapping[str, int]


@dataclass(frozen=True)
class DesignWork:
    """The work of an execution of a design, on all cores and on one; bytes as the plan says."""

    design: Design

    @functools.cached_property
    def work(self) -> OperationWork:
        """The facts for the cost model; what is per core is of a core with whole shares."""
        design, shares = self.design, self.design.shares
        return OperationWork(
            design.target,
            design.opcode,
            design.cores,
            **self._arithmetic(shares),
            parts=_product(design.slices, self._reduced),
            outputs_per_core=_product(shares, self._dims[-1]),
            results=math.prod(self._valid(label) for label in self._dims[-1]),
            broadcast=self._kind is Kind.POINTWISE and self._is_broadcast(),
            operands=tuple(map(self._operand, range(len(design.operands)))),
            relayout=self._relayout,
        )

    def work_of_core(self, core: int) -> OperationWork:
        """Return the work with the arithmetic of one core, which may have a smaller slice."""
        return replace(self.work, **self._arithmetic(slice_sizes(self.design, core)))

    @functools.cached_property
    def sizes_of_cores(self) -> tuple[tuple[int, ...], ...]:
        """The sizes of each core's slices: cores with equal ones do equal work."""
        return tuple(tuple(slice_sizes(self.design, core).values()) for core in range(self.design.cores))

    @functools.cached_property
    def operations(self) -> int:
        """Operations of all cores, padding included: two per multiply-add, else one per position of the space.

        A relayout has none.
        """
        if self._kind is Kind.RELAYOUT:
            return 0
        labels = list(self.design.sizes)
        varying = [labels.index(label) for label in self._all_dims]
        positions_ = sum(math.prod(sizes[axis] for axis in varying) for sizes in self.sizes_of_cores)
        return positions_ * (2 if self.is_arithmetic else 1)

    @property
    def is_arithmetic(self) -> bool:
        """Return whether the design runs on the array, not on the vector unit."""
        return self._kind.on_array

    @functools.cached_property
    def lanes(self) -> int:
        """Elements per stick of the operand with the most; 1 if no operand has a dim in its stick."""
        operands = zip(self.design.operands, self._dims, strict=True)
        return max(
            (operand.stick_elements for operand, dims in operands if operand.stick_dim in dims), default=1
        )

    @functools.cached_property
    def links(self) -> LinkLoads | None:
        """Loads of the ring's links by one execution; None if nothing goes over the ring.

        A partial sum is taken to have as many bytes as a result.
        """
        if self.work.relayout is not None:
            return relayout_traffic(self.work.relayout).links
        if self.work.parts == 1:
            return None
        element_bytes = self.design.target.stick_bytes // self.design.operands[-1].elements_per_stick
        return reduce_links(self.design.target, self._sharing, self.work.outputs_per_core * element_bytes)

    @property
    def _sharing(self) -> list[list[int]]:
        """The cores that add up the same values, by rising reduction slice."""
        slices, members = self.design.core_slices, dict[tuple[int, ...], list[int]]()
        result_labels, reduced_labels = (
            [label for label in self.design.sizes if label in dims]
            for dims in (self._dims[-1], self._reduced)
        )
        by_part = sorted(
            range(len(slices)), key=lambda core: [slices[core][label] for label in reduced_labels]
        )
        for core in by_part:
            members.setdefault(tuple(slices[core][label] for label in result_labels), []).append(core)
        return list(members.values())

    # -- dims ------------------------------------------------------------------------------------------

    @property
    def _kind(self) -> Kind:
        return KINDS[self.design.opcode]

    @functools.cached_property
    def _operands(self) -> tuple[Operand, ...]:
        """The operands as data moves: a gather moves one row of its table for each of its positions."""
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
    def _dims(self) -> tuple[frozenset[str], ...]:
        """The dims of each operand."""
        return tuple(
            frozenset(label for label in operand.dim_order if operand.scale[label] == 1)
            for operand in self._operands
        )

    @functools.cached_property
    def _all_dims(self) -> frozenset[str]:
        return frozenset[str]().union(*self._dims)

    @property
    def _reduced(self) -> frozenset[str]:
        return self._all_dims - self._dims[-1]

    def _valid(self, label: str) -> int:
        return self.design.sizes[label] - self.design.padding.get(label, 0)

    def _is_broadcast(self) -> bool:
        """Return whether an input lacks a dim of more than one element that the output has."""
        long = {label for label in self._dims[-1] if self._valid(label) > 1}
        return any(long - dims for dims in self._dims[:-1])

    # -- arithmetic ------------------------------------------------------------------------------------

    def _arithmetic(self, sizes: Sizes) -> dict[str, int]:
        """Return the work of the array and of the vector unit of a core with slices of these sizes."""
        elements = _product(sizes, self._all_dims)
        if not self.is_arithmetic:
            sticks = 0 if self._kind is Kind.RELAYOUT else -(-elements // self.lanes)
            return {"sticks_per_core": sticks, "multiply_adds_per_core": 0, "rows_per_core": 0}
        rows = _product(sizes, self._dims[0] - self._dims[1])
        return {"sticks_per_core": 0, "multiply_adds_per_core": elements, "rows_per_core": rows}

    @property
    def _relayout(self) -> Relayout | None:
        """The relayout of a shuffle, over the dims of its result, innermost first; None for other operations."""
        design, source, target = self.design, self.design.operands[0], self.design.operands[-1]
        if source.held is None:
            return None
        labels = [label for label in target.dim_order if label in self._dims[-1]]
        return Relayout(
            tuple(positions(target, label, design.sizes[label]) for label in labels),
            tuple(range(len(labels))),
            _distribution(labels, source.held.slices, source.held.core_slices),
            _distribution(labels, design.slices, design.core_slices),
            design.target,
        )

    # -- operands --------------------------------------------------------------------------------------

    def _operand(self, number: int) -> OperandWork:
        design, operand, dims = self.design, self._operands[number], self._dims[number]
        writes = number == len(design.operands) - 1
        return OperandWork(
            writes,
            bytes=_bytes_of_cores(design, operand),
            core_bytes=math.prod(_counts(operand, design.shares)) * design.target.stick_bytes,
            fan_out=1 if writes else _product(design.slices, design.slices.keys() - dims),
            run_bytes=self._run_bytes(design.operands[number]),
            in_lx=operand.memory == "lx",
        )

    def _run_bytes(self, operand: Operand) -> int:
        """Contiguous bytes of what a core takes of an operand in one go."""
        run = 1
        strides = memory_strides(self.design, operand)
        for count, stride in zip(_counts(operand, self._tile), strides, strict=True):
            if count > 1 and stride != run:
                break
            run *= count
        return run * self.design.target.stick_bytes

    @functools.cached_property
    def _tile(self) -> Sizes:
        """Sizes of the tile of a core: its share; of a matmul one matrix, of it all rows and a stick of the rest.

        Of the table of a gather that is one row.
        """
        shares = self.design.shares
        if self._kind is Kind.GATHER:
            return {label: share if label in self._dims[-1] else 1 for label, share in shares.items()}
        if self._kind is not Kind.MATMUL:
            return shares
        first, second = self._dims[:2]
        rows, batches = first - second, (first & second) - self._reduced
        return {
            label: 1 if label in batches else share if label in rows else min(share, self._granule(label))
            for label, share in shares.items()
        }

    def _granule(self, label: str) -> int:
        """Elements of a dim that are only ever taken together: a stick where it is in one."""
        operands = zip(self.design.operands, self._dims, strict=True)
        return max(
            (operand.per_stick(label) for operand, dims in operands if label in dims),
            default=1,
        )


def work_of_designs(bundle: Bundle) -> dict[str, DesignWork]:
    """The work of each design of a bundle whose structure is sound, by file."""
    return {filename: DesignWork(design) for filename, design in bundle.designs.items()}


def core_groups(designs: Collection[DesignWork]) -> tuple[tuple[int, ...], ...]:
    """The cores that a program uses, those together that do the same in each of its designs."""
    used = max((work.design.cores for work in designs), default=0)
    groups: dict[tuple[tuple[int, ...], ...], list[int]] = {}
    for core in range(used):
        sizes = tuple(work.sizes_of_cores[core] if core < work.design.cores else () for work in designs)
        groups.setdefault(sizes, []).append(core)
    return tuple(map(tuple, groups.values()))


def _distribution(labels: Sequence[str], slices: Sizes, owners: Sequence[Sizes | None]) -> Distribution:
    return Distribution(
        tuple(slices[label] for label in labels),
        tuple(None if slices is None else tuple(slices[label] for label in labels) for slices in owners),
    )


def _bytes_of_cores(design: Design, operand: Operand) -> int:
    """Bytes that all cores move: of those with the same slices one loads, or writes, for all."""
    labels = [label for label in operand.dim_order if operand.scale[label] == 1]
    counts = {label: _counts_of_slices(design, operand, label) for label in labels}
    owned = {tuple(slices[label] for label in labels) for slices in design.core_slices}
    sticks = sum(
        math.prod(counts[label][index] for label, index in zip(labels, indices, strict=True))
        for indices in owned
    )
    return sticks * design.target.stick_bytes


def _counts_of_slices(design: Design, operand: Operand, label: str) -> list[int]:
    """Positions of each slice of a dim; the last may be shorter."""
    share, size = design.shares[label], design.sizes[label]
    return [
        positions(operand, label, min(share, size - slice_ * share)) for slice_ in range(design.slices[label])
    ]


def _counts(operand: Operand, sizes: Sizes) -> list[int]:
    """Positions of a part of these sizes along each dim of an operand, innermost first."""
    return [positions(operand, label, sizes[label]) for label in operand.dim_order]


def _product(numbers: Sizes, labels: Collection[str]) -> int:
    return math.prod(numbers[label] for label in labels)
