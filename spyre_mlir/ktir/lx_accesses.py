# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Buffers in LX of a bundle: which operations access them, and what of them a loop carries."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Sequence

from spyre_mlir.bundle.model import Buffer, Bundle, Design, Execute, Loop, Statement
from spyre_mlir.ktir.operand_tiles import ELEMENT_BYTES
from spyre_mlir.ktir.operation_lowering import buffer_access, element_of_format
from spyre_mlir.ktir.operation_steps import runs_in_loop
from spyre_mlir.ktir.scratchpad_values import ScratchpadValues

#: Bytes of a buffer from which it is memory, and of a core's buffers that several operations read.
_LARGE_BYTES, _SHARED_BYTES = 1 << 18, 1 << 19


def executes(statements: Sequence[Statement]) -> list[Execute]:
    """Return the executes of statements, those in loops among them."""
    found: list[Execute] = []
    for statement in statements:
        if isinstance(statement, Loop):
            found += executes(statement.body)
        elif isinstance(statement, Execute):
            found.append(statement)
    return found


def buffers_of(bundle: Bundle, names: Sequence[str]) -> list[Buffer]:
    """Return the buffers of a bundle by their names."""
    by_name = {buffer.name: buffer for buffer in bundle.manifest.buffers}
    return [by_name[name] for name in names]


class LxAccesses:
    """Facts about the buffers in LX of a bundle.

    ``tensors`` are those that are tensors of KTIR, with their elements: all but large ones, those of operations that
    run in a loop, and those that several operations read if these take much of LX. ktir-cpu charges
    such a tensor until the function ends. ``sparse`` buffers have one element per stick.
    """

    def __init__(self, bundle: Bundle) -> None:
        self.bundle = bundle
        self.elements: dict[str, int] = {}
        self.types: dict[str, str] = {}
        self.buffers: dict[str, Buffer] = {}
        dense: set[str] = set()
        stick = bundle.target.stick_bytes
        self.users: list[list[tuple[str, int, Design]]] = []
        for execute, names in zip(executes(bundle.statements), bundle.manifest.uses, strict=True):
            design = bundle.designs[execute.filename]
            users = []
            for k, buffer in enumerate(buffers_of(bundle, names)):
                if buffer.base != "lx":
                    continue
                users.append((buffer.name, k, design))
                element = self.types[buffer.name] = element_of_format(design, k)
                self.buffers[buffer.name] = buffer
                self.elements[buffer.name] = buffer.bytes // ELEMENT_BYTES[element]
                operand = design.operands[k]
                if any(operand.scale.get(dim, 1) == 1 for dim in (operand.stick_dim, *operand.beside)):
                    dense.add(buffer.name)
            self.users.append(users)
        self.sparse = frozenset(self.elements.keys() - dense)
        for name in self.sparse:
            self.elements[name] = self.elements[name] * ELEMENT_BYTES[self.types[name]] // stick

        self.tensors = self._tensors()

    def _tensors(self) -> dict[str, int]:
        sizes = {name: count * ELEMENT_BYTES[self.types[name]] for name, count in self.elements.items()}
        readers: Counter[str] = Counter()
        for users in self.users:
            readers.update({name for name, k, design in users if k < len(design.operands) - 1})
        shared = {name for name, count in readers.items() if count > 1}
        memory = shared if sum(sizes[name] for name in shared) > _SHARED_BYTES else set()
        memory = memory | {name for users in self.users for name, _, design in users if runs_in_loop(design)}
        memory |= {name for name, size in sizes.items() if size > _LARGE_BYTES}
        return {name: count for name, count in self.elements.items() if name not in memory}

    def leave_slices(self, values: ScratchpadValues) -> None:
        """Make memory of the buffers of which some operation accesses what is no slice of a tensor."""
        for users in self.users:
            for name, k, design in users:
                access = buffer_access(design, k, self.buffers[name])
                if name in self.tensors and not values.is_slice(access, k == len(design.operands) - 1):
                    del self.tensors[name]

    def ends(self, tensors: Collection[str]) -> dict[str, int]:
        """Return the byte behind the last buffer that is memory, for each element type."""
        ends: dict[str, int] = {}
        for name, buffer in self.buffers.items():
            if name not in tensors:
                element = self.types[name]
                ends[element] = max(ends.get(element, 0), buffer.offset + buffer.bytes)
        return ends

    def carried(self, body: Sequence[Statement], first: int) -> dict[str, str]:
        """Return the buffers that a loop carries, with their element types: written in it and of use outside of it.

        ``first`` is the number of its first execute. A buffer that each iteration writes first is carried too if
        something outside accesses it.
        """
        inside = range(first, first + len(executes(body)))
        outside = {
            name for number, users in enumerate(self.users) if number not in inside for name, _, _ in users
        }
        written: dict[str, None] = {}
        started: set[str] = set()
        needed: set[str] = set()
        for number in inside:
            last = len(self.bundle.manifest.uses[number]) - 1
            for name, k, design in self.users[number]:
                if name not in self.tensors:
                    continue
                is_first = name not in started
                started.add(name)
                if k == last:
                    written[name] = None
                if is_first and not (k == last and self._is_whole(name, k, design)):
                    needed.add(name)
        return {name: self.types[name] for name in written if name in outside or name in needed}

    def _is_whole(self, name: str, k: int, design: Design) -> bool:
        access = buffer_access(design, k, self.buffers[name])
        return math.prod(access.tile.shape) == self.elements[name]
