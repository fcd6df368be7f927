# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Data races between the cores of one operation, and overlaps of a core's output with its inputs.

Address ranges decide most cases; where ranges interleave, the sticks themselves are compared.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spyre_mlir.simulator.access import Access, OperandAccesses, access_error
from spyre_mlir.simulator.plan import Plan


def check_conflicts(plan: Plan, inputs: Sequence[OperandAccesses], outputs: Sequence[Access]) -> None:
    """Raise if two cores write one stick, or a core reads a stick that the operation writes elsewhere."""
    # No core reads the LX of another one, so only input and output of one core can meet there.
    is_lx = outputs[0].region.lx
    low, high = min(access.address for access in outputs), max(access.end for access in outputs)
    near = [
        access
        for operand in inputs
        if operand.region.lx == is_lx and len(operand) and operand.span[0] < high and low < operand.span[1]
        for access in operand
    ]
    if is_lx:
        by_core = {output.core: output for output in outputs}
        for access in near:
            if access.core in by_core:
                _check_own(plan, access, by_core[access.core])
        return
    _check_hbm(plan, near, outputs)


def _check_hbm(plan: Plan, inputs: Sequence[Access], outputs: Sequence[Access]) -> None:
    ordered = sorted(outputs, key=lambda access: access.address)
    low, high = ordered[0].address, max(access.end for access in ordered)
    near = [access for access in inputs if access.address < high and low < access.end]
    disjoint = all(a.end <= b.address for a, b in itertools.pairwise(ordered))
    # Ranges decide most operations; lists of sticks cost far more.
    if disjoint and not near:
        return
    if _are_apart(near, outputs):
        return
    sticks, cores = _written_sticks(plan, outputs)
    by_core = {output.core: output for output in outputs}
    for access in near:
        mine = _sticks(access)
        # searchsorted gives the length for an address behind the last one.
        place = np.minimum(np.searchsorted(sticks, mine), len(sticks) - 1)
        hit = sticks[place] == mine
        other = hit & (cores[place] != access.core)
        if other.any():
            index = int(np.flatnonzero(other)[0])
            text = f"it reads what core {cores[place[index]]} writes in the same operation."
            raise access_error(plan, access, "race", text, int(mine[index]))
        if hit.any():
            _check_own(plan, access, by_core[access.core])


def _are_apart(inputs: Sequence[Access], outputs: Sequence[Access]) -> bool:
    """Return whether no stick is written twice and none of ``inputs`` reads one that is written."""
    unit = outputs[0].box.stick_bytes
    low, high = min(access.address for access in outputs), max(access.end for access in outputs)
    first, last = low // unit, -(-high // unit)
    # Parts that begin between two sticks are an error that the sticks themselves tell.
    if any(access.address % unit for access in (*inputs, *outputs)):
        return False
    written = np.zeros(last - first, bool)
    for access in outputs:
        _marks(access, written, first)[...] = True
    total = sum(math.prod(access.box.whole.count_of_sticks) for access in outputs)
    if np.count_nonzero(written) != total:
        return False
    for access in inputs:
        begin = access.address // unit
        inside = first <= begin and -(-access.end // unit) <= last
        if not inside or _marks(access, written, first).any():
            return False
    return True


def _marks(access: Access, marks: NDArray[np.bool_], first: int) -> NDArray[np.bool_]:
    """A view of the marks of the sticks that an access has; ``first`` is the number of the first stick of all."""
    window, unit = access.box.whole, access.box.stick_bytes
    strides = tuple(stride // unit for stride in window.stride_of_sticks)
    return np.ndarray(window.count_of_sticks, np.bool_, marks, access.address // unit - first, strides)


def _written_sticks(plan: Plan, outputs: Sequence[Access]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Sorted addresses of all sticks written, and the core that writes each."""
    lists = [_sticks(access) for access in outputs]
    sticks = np.concatenate(lists)
    cores = np.repeat([access.core for access in outputs], [len(addresses) for addresses in lists])
    order = np.argsort(sticks, kind="stable")
    sticks, cores = sticks[order], cores[order]
    twice = np.flatnonzero(sticks[1:] == sticks[:-1])
    if len(twice):
        index = int(twice[0])
        second = next(access for access in outputs if access.core == cores[index + 1])
        text = f"core {cores[index]} writes it too in the same operation."
        raise access_error(plan, second, "write-conflict", text, int(sticks[index]))
    return sticks, cores


def _check_own(plan: Plan, source: Access, output: Access) -> None:
    """One core's input and output: apart, or element for element in place in an elementwise operation."""
    if source.end <= output.address or output.end <= source.address:
        return
    aligned = source.address == output.address and source.box.same_place(output.box)
    if plan.elementwise and aligned:
        return
    common = np.intersect1d(_sticks(source), _sticks(output))
    if len(common):
        text = f"it overlaps the output '{output.region.name}', which is not possible in place."
        raise access_error(plan, source, "overlap", text, int(common[0]))


def _sticks(access: Access) -> NDArray[np.int64]:
    return access.address + access.box.stick_offsets
