# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Ownership of the result of an operation by cores, as a grid over the two dims that are split most."""

from __future__ import annotations

from spyre_mlir.bundle.model import Design
from spyre_mlir.records import dataclass


@dataclass(frozen=True)
class ResultAxis:
    """A dim of the result: its name, elements with padding, slices and elements per slice."""

    dim: str
    size: int
    slices: int
    share: int


@dataclass(frozen=True)
class Owners:
    """``cells[row][column]`` are the cores whose slices are these of the two dims; an axis that is None is not split.

    ``others`` are the dims that are split besides; the cores of a cell share these, or add what they have if the
    dim is ``reduced``.
    """

    rows: ResultAxis | None
    columns: ResultAxis | None
    cells: tuple[tuple[tuple[int, ...], ...], ...]
    others: tuple[ResultAxis, ...]
    reduced: tuple[ResultAxis, ...]


def owners(design: Design) -> Owners:
    """The owners of the result of a design; of equally split dims the inner one goes across."""
    result = design.operands[-1]
    split = [_axis(design, dim) for dim, count in design.slices.items() if count > 1]
    inner_first = [dim for dim in result.dim_order if result.scale[dim] == 1]
    dims = sorted(
        (axis for axis in split if axis.dim in inner_first),
        key=lambda axis: (-axis.slices, inner_first.index(axis.dim)),
    )
    # A page has two directions, so further dims are told in words.
    columns, rows = (*dims[:2], None, None)[:2]
    cores = _cores(design, rows, columns)
    return Owners(
        rows=rows,
        columns=columns,
        cells=tuple(
            tuple(tuple(cores.get((row, column), ())) for column in _slices(columns)) for row in _slices(rows)
        ),
        others=tuple(dims[2:]),
        reduced=tuple(axis for axis in split if axis.dim not in inner_first),
    )


def _axis(design: Design, dim: str) -> ResultAxis:
    return ResultAxis(dim, design.sizes[dim], design.slices[dim], design.shares[dim])


def _slices(axis: ResultAxis | None) -> range:
    return range(axis.slices if axis else 1)


def _cores(
    design: Design, rows: ResultAxis | None, columns: ResultAxis | None
) -> dict[tuple[int, int], list[int]]:
    """The cores of each slice of both dims, in order; one that is not split has slice 0."""
    cores: dict[tuple[int, int], list[int]] = {}
    for core, slices in enumerate(design.core_slices):
        row, column = (slices[axis.dim] if axis else 0 for axis in (rows, columns))
        cores.setdefault((row, column), []).append(core)
    return cores
