# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Buffer uses: the accesses of a divided function's operations to its buffers, for memory planning."""

from __future__ import annotations

import functools
from collections.abc import Hashable, Sequence
from dataclasses import field, replace
from typing import Any

from spyre_mlir.analysis import core_ownership
from spyre_mlir.analysis.aliasing import AliasAnalysis, all_ops
from spyre_mlir.cost.of_space import hbm_bytes
from spyre_mlir.dialects import sdsc
from spyre_mlir.dialects.structured import defining_op
from spyre_mlir.division import CoreView, Division, core_view
from spyre_mlir.division.ownership import mismatch
from spyre_mlir.division.relayout import Relayout, relayout
from spyre_mlir.layout import BufferView
from spyre_mlir.mlir import ir
from spyre_mlir.records import dataclass
from spyre_mlir.target.ops import DEVICE_OPS, Kind


@dataclass(frozen=True)
class BufferUse:
    """An access: one operand of the operation at a position of the program."""

    position: int
    user: core_ownership.Divided
    operand: int

    @property
    def writes(self) -> bool:
        # The output is the last value of an operation.
        return self.operand == len(self.user.values) - 1

    @property
    def moving(self) -> bool:
        """Return whether the operand is another slice of the buffer in each iteration of a loop."""
        return self.operand in self.user.moving

    @property
    def view(self) -> BufferView:
        return self.user.space.views[self.operand]

    @property
    def core_view(self) -> CoreView:
        """The region that each core accesses; ``ViewError`` if the elements are not a region of the buffer."""
        return core_view(self.user.space, self.operand, self.user.division)

    @property
    def optional(self) -> bool:
        """Return whether the operation is a clone that can be removed."""
        return sdsc.OPTIONAL in self.user.op.attributes

    @property
    def hbm_bytes(self) -> int:
        """Bytes that the operand transfers, in all executions, if the buffer is in device memory."""
        total, _ = hbm_bytes(self.user.space, self.operand, self.user.division)
        return total * self.user.executions


@dataclass
class BufferAccesses:
    """A buffer and its accesses in program order."""

    root: ir.Value
    accesses: list[BufferUse] = field(default_factory=list)

    @property
    def reads(self) -> list[BufferUse]:
        return [access for access in self.accesses if not access.writes]

    @property
    def writes(self) -> list[BufferUse]:
        return [access for access in self.accesses if access.writes]

    @functools.cached_property
    def partial_accesses(self) -> core_ownership.PartialAccesses | None:
        """The accesses to parts of the buffer (read after all accesses are added); None if all access the whole."""
        return core_ownership.partial_accesses_of(
            self.root, [(access.user, access.operand) for access in self.accesses]
        )

    @property
    def hbm_bytes(self) -> int:
        """Bytes that the accesses transfer if the buffer is in device memory and optional clones are removed."""
        return sum(access.hbm_bytes for access in self.accesses if not access.optional)

    def divided_as(self, divisions: Sequence[Division]) -> BufferAccesses:
        """Return the buffer's accesses with other divisions, one for each position of the program."""
        accesses = [
            replace(access, user=replace(access.user, division=divisions[access.position]))
            for access in self.accesses
        ]
        return replace(self, accesses=accesses)

    @property
    def from_host(self) -> bool:
        """Return whether the host fills the buffer: an argument or a constant."""
        owner = defining_op(self.root)
        return owner is None or owner.name == "arith.constant"


class Usage:
    """The buffers and operations of a function; each operation is one position of the program."""

    def __init__(self, func: ir.Operation) -> None:
        self.func = func
        self.memory = AliasAnalysis(func)
        body = all_ops(func)
        self.ops = core_ownership.divided_ops(self.memory, body)
        self.end = body[-1]
        self.results = {self.memory.place(value).buffer for value in self.end.operands}
        #: Candidates for LX, keyed by the rules for which they were requested (``lx_candidates.py``).
        self.candidates: dict[Hashable, tuple[Any, ...]] = {}
        self.buffers: dict[ir.Value, BufferAccesses] = {}
        for position, user in enumerate(self.ops):
            for operand, value in enumerate(user.values):
                root = self.root(value)
                buffer = self.buffers.setdefault(root, BufferAccesses(root))
                buffer.accesses.append(BufferUse(position, user, operand))

    @functools.cached_property
    def edges(self) -> list[core_ownership.DefUseEdge]:
        """The def-use edges of all buffers, in program order of the readers."""
        return list(core_ownership.def_use_edges(self.memory, self.ops))

    @functools.cached_property
    def loop_spans(self) -> list[tuple[int, int]]:
        """The positions of the first and the last operation of each loop that has operations."""
        spans: dict[ir.Operation, tuple[int, int]] = {}
        for position, user in enumerate(self.ops):
            parent = user.op.parent
            while parent is not None and parent != self.func:
                spans[parent.operation] = spans.get(parent.operation, (position, position))[0], position
                parent = parent.operation.parent
        return list(spans.values())

    def previous(self, position: int) -> tuple[int, ...]:
        """Return the positions of the operations that may run directly before an operation.

        The first operation of a loop follows the operation before the loop, or the last operation of the loop.
        """
        ends = (last for first, last in self.loop_spans if first == position)
        return (*((position - 1,) if position else ()), *ends)

    def root(self, value: ir.Value) -> ir.Value:
        """Return the buffer that a value lies in."""
        return self.memory.place(value).buffer

    def relayout(self, user: core_ownership.Divided) -> Relayout | None:
        """Return the transfers between cores that a shuffle performs; None for another operation."""
        if user.opcode != core_ownership.SHUFFLE:
            return None
        # The writers of a buffer with a shuffle all distribute it in the same way.
        writer = self.buffers[self.root(user.values[0])].writes[0]
        distribution = core_ownership.written_distribution(
            writer.user.space, writer.operand, writer.user.division
        )
        return relayout(user.space, distribution.complete, user.division)

    def hbm_bytes(self) -> int:
        """Return the bytes that the program transfers with all buffers in device memory, without optional clones."""
        return sum(buffer.hbm_bytes for buffer in self.buffers.values())

    def in_place(self, position: int) -> list[ir.Value]:
        """Return the operand buffers that the result of an operation could overwrite, element by element."""
        user = self.ops[position]
        # Other kinds read an element after they have written it; a slice is in a larger buffer already.
        if DEVICE_OPS[user.opcode].kind is not Kind.POINTWISE or not user.fills:
            return []
        layout, differing = self.memory.layout(user.values[-1]), set[ir.Value]()
        # With these equal, each index of the iteration space has the same offset in both buffers.
        result, *elements = (
            (view.dtype, view.offset, view.stick_dim, view.axes, view.stick_axes)
            for view in (user.space.views[-1], *user.space.views[:-1])
        )
        roots = [self.root(value) for value in user.values[:-1]]
        for operand, root in enumerate(roots):
            is_same = elements[operand] == result and self.memory.layout(root).bytes == layout.bytes
            if not is_same or self._accesses_a_part(user, operand):
                differing.add(root)
        return [root for root in dict.fromkeys(roots) if root not in differing]

    def _accesses_a_part(self, user: core_ownership.Divided, operand: int) -> bool:
        """Return whether the cores hold more of a buffer than they access, so that the other sticks must be kept.

        The writer of a buffer may write up to the end of a padded stick that the reader does not read.
        """
        partial = self.buffers[self.root(user.values[operand])].partial_accesses
        if partial is None:
            return False
        accessed = core_view(user.space, operand, user.division)
        return partial.holder is None or mismatch(partial.view, accessed) is not None
