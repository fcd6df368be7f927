# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Op layouts: the layouts that a device operation accepts for its operands, and the cost of its transfers in them."""

from __future__ import annotations

import functools
import itertools
import math
import weakref
from fractions import Fraction

from spyre_mlir.cost.of_tensor import pass_cost
from spyre_mlir.cost.work import OperationDims
from spyre_mlir.layout.rules import StickAssignment, Sticks, stick_assignments, stick_digits
from spyre_mlir.layout_search.layout_candidates import LayoutCandidate
from spyre_mlir.layout_search.tensor_graph import OpSignature
from spyre_mlir.records import dataclass
from spyre_mlir.target.ops import DEVICE_OPS

#: A tensor in a loop that needs at most 1 / _SMALL of LX is assumed to stay there, together with many other tensors.
_SMALL = 16

#: The factor by which such a tensor is cheaper: not all such tensors fit into LX.
_CHEAPER = 4


# eq=False: there is one object per signature and assignment, so caches can use its identity as the key.
@dataclass(frozen=True, eq=False)
class OpLayout:
    """A stick assignment of an operation in terms of the dims of each operand, not iteration dims (the result last).

    ``stick_dims`` are the dims in the stick; ``tiles`` the part of each operand that one transfer moves, in elements
    per dim; ``portions`` the fractions of the operands' bytes that the operation moves. ``sticks`` are the (dim,
    elements) pairs of operands whose sticks hold several dims, () for the other operands.
    """

    assignment: StickAssignment
    stick_dims: tuple[int | None, ...]
    tiles: tuple[tuple[int, ...], ...]
    portions: tuple[Fraction, ...]
    sticks: tuple[tuple[tuple[int, int], ...], ...]

    @property
    def sparse(self) -> bool:
        """True if no operand has a dim in its stick."""
        return all(stick_dim is None for stick_dim in self.stick_dims)


#: The op layouts of each signature in use.
_OP_LAYOUTS: weakref.WeakKeyDictionary[OpSignature, tuple[OpLayout, ...]] = weakref.WeakKeyDictionary()


def op_layouts(signature: OpSignature) -> tuple[OpLayout, ...]:
    """Return all op layouts of an operation; empty if it has none."""
    if signature not in _OP_LAYOUTS:
        assignments = stick_assignments(signature.opcode, signature.iteration)
        _OP_LAYOUTS[signature] = tuple(_op_layout(signature, assignment) for assignment in assignments)
    return _OP_LAYOUTS[signature]


def _op_layout(signature: OpSignature, assignment: StickAssignment) -> OpLayout:
    sticks = stick_digits(signature.iteration, assignment)
    tile = _tile(signature, assignment.opcode, sticks)
    return OpLayout(
        assignment,
        tuple(
            None if stick_dim is None else dims.index(stick_dim)
            for stick_dim, dims in zip(assignment.stick_dims, signature.maps, strict=True)
        ),
        tuple(tuple(1 if dim is None else tile[dim] for dim in dims) for dims in signature.maps),
        tuple(_portion(signature, operand) for operand in range(len(signature.maps))),
        tuple(
            tuple((dims.index(dim), count) for dim, count in digits) if len(digits) > 1 else ()
            for digits, dims in zip(sticks, signature.maps, strict=True)
        ),
    )


def _portion(signature: OpSignature, operand: int) -> Fraction:
    """Return the fraction of an operand that an operation moves: 1, or for a table one row per gathered index."""
    iteration = signature.iteration
    if operand == 0 and iteration.windows:
        # The view of windows contains an element once for each window that contains it.
        return Fraction(1, math.prod(iteration.sizes[dim] for dim in iteration.windows & iteration.reduced))
    if operand != DEVICE_OPS[signature.opcode].table:
        return Fraction(1)
    rows = math.prod(iteration.sizes[dim] for dim in iteration.present[-1] - iteration.present[operand])
    return Fraction(rows, math.prod(iteration.sizes[dim] for dim in iteration.reduced))


def _tile(signature: OpSignature, opcode: str, sticks: Sticks) -> list[int]:
    """Return the elements of each dim that one transfer moves if the layout allows it (``OperationDims.tile``)."""
    sizes = signature.iteration.sizes
    granules = [1] * len(sizes)
    for dim, count in itertools.chain.from_iterable(sticks):
        if dim is not None:
            granules[dim] = max(granules[dim], count)
    # The division over cores is decided later and depends on the layouts: it cannot shorten the tile here.
    dims = OperationDims(DEVICE_OPS[opcode].kind, signature.iteration.present)
    return list(dims.tile(enumerate(sizes), granules).values())


@functools.lru_cache(maxsize=1 << 16)
def transfer_cost(op_layout: OpLayout, operand: int, candidate: LayoutCandidate) -> int | None:
    """Return the picoseconds to move one operand (-1: the result) once; None if it cannot have this layout."""
    required = op_layout.stick_dims[operand], op_layout.sticks[operand]
    if (candidate.stick_dim, candidate.sticks) != required or not candidate.addressable:
        return None
    moved = math.ceil(candidate.bytes * op_layout.portions[operand])
    return pass_cost(candidate.view.target, moved, candidate.view.run_bytes(op_layout.tiles[operand]))


def transfer_cost_in_loop(op_layout: OpLayout, operand: int, candidate: LayoutCandidate) -> int | None:
    """Return the transfer cost of a tensor that a loop computes: a small tensor on all cores mostly stays in LX."""
    cost = transfer_cost(op_layout, operand, candidate)
    target = candidate.view.target
    is_small = candidate.bytes <= target.usable_lx_bytes // _SMALL * target.cores
    return cost // _CHEAPER if cost is not None and is_small else cost
