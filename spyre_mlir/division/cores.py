# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Mapping of slices to cores: core ids are mixed-radix numbers over the split dims.

A split reduction dim is the fastest digit, so that the cores that add up parts of one value are neighbours on the
ring, as in torch-spyre #1986. The finished value is on the core of the last reduction slice.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Collection, Sequence
from dataclasses import replace

from spyre_mlir.division.slices import shares_of
from spyre_mlir.records import dataclass, hash_once


def core_order(splits: Sequence[int], reduced: Collection[int]) -> tuple[int, ...]:
    """Return all dims, the fastest first: split reduction dims, then the other dims in order."""
    return tuple(sorted(range(len(splits)), key=lambda dim: (dim not in reduced or splits[dim] == 1, dim)))


def core_steps(splits: Sequence[int], order: Sequence[int]) -> tuple[int, ...]:
    """Return for each dim the distance in cores of neighbouring slices: ``slice = core floordiv step mod split``."""
    steps, step = [1] * len(splits), 1
    for dim in order:
        steps[dim] = step
        step *= splits[dim]
    return tuple(steps)


@dataclass(frozen=True)
class Division:
    """Slices per dim, and for each core the slice of each dim that it owns.

    Attributes:
        splits: The slices of each dim.
        owners: For each core the index of its slice of each dim.
        shares: The units of the largest slice of each dim; empty if only the core mapping is known.
        reduced: The dims that the result does not have.
        slice_sizes: The elements of the largest slice of each dim; empty for the smallest slices that cover the dims.
    """

    splits: tuple[int, ...]
    owners: tuple[tuple[int, ...], ...]
    shares: tuple[int, ...] = ()
    reduced: frozenset[int] = frozenset()
    slice_sizes: tuple[int, ...] = ()

    __hash__ = hash_once

    @classmethod
    def of(
        cls, splits: Sequence[int], units: Sequence[int], reduced: frozenset[int] = frozenset()
    ) -> Division:
        """Return the division of dims, mapped in the order of ``core_order``.

        Args:
            splits: The slices of each dim.
            units: The rows or sticks of each dim.
            reduced: The dims that the result does not have.
        """
        mapped = cls.mixed_radix(splits, core_order(splits, reduced))
        return replace(mapped, shares=shares_of(units, splits), reduced=reduced)

    @classmethod
    def mixed_radix(cls, splits: Sequence[int], order: Sequence[int] | None = None) -> Division:
        """Return the division whose core ids count the slices.

        Args:
            splits: The slices of each dim.
            order: The dims, the fastest first; by default in index order.
        """
        order = range(len(splits)) if order is None else order
        return cls(tuple(splits), _owners(tuple(splits), tuple(order)))

    @property
    def cores(self) -> int:
        """The number of cores that have a slice."""
        return math.prod(self.splits)

    def slice_elements(self, units: Sequence[int], granules: Sequence[int]) -> tuple[int, ...]:
        """Return the elements of the largest slice of each dim of ``units``, which have ``granules`` elements each."""
        return self.slice_sizes or tuple(map(operator.mul, shares_of(units, self.splits), granules))

    @property
    def partial(self) -> bool:
        """Return whether each core has only partial sums of its result values."""
        return any(self.splits[dim] > 1 for dim in self.reduced)

    @functools.cached_property
    def groups(self) -> tuple[tuple[int, ...], ...]:
        """Groups of cores that add up the same values, by rising reduction slice; single cores if none is split."""
        members: dict[tuple[int, ...], list[int]] = {}
        parts = sorted(self.reduced, reverse=True)
        dims = [dim for dim in range(len(self.splits)) if dim not in self.reduced]
        for core, slices in enumerate(self.owners):
            members.setdefault(tuple(slices[dim] for dim in dims), []).append(core)
        by_part = {core: tuple(slices[dim] for dim in parts) for core, slices in enumerate(self.owners)}
        return tuple(tuple(sorted(group, key=by_part.__getitem__)) for group in members.values())

    @property
    def finishers(self) -> tuple[int, ...]:
        """For each group the core that holds the finished value: the core of the last reduction slice."""
        # Partial results go along the group by rising slice, so the last core has the complete sum.
        return tuple(group[-1] for group in self.groups)


@functools.lru_cache(maxsize=1 << 12)
def finishers_of(division: Division, reduced: frozenset[int]) -> tuple[int, ...]:
    """Return the ``finishers`` of a division with the given ``reduced`` dims."""
    return replace(division, reduced=reduced).finishers


@functools.lru_cache(maxsize=1 << 12)
def _owners(splits: tuple[int, ...], order: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    steps = core_steps(splits, order)
    return tuple(
        tuple(core // step % split for step, split in zip(steps, splits, strict=True))
        for core in range(math.prod(splits))
    )
