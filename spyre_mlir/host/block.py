# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Blocks of a host function as lists of numpy kernels, and the frame in which a call runs them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spyre_mlir.errors import CompileError
from spyre_mlir.host.number_types import is_tensor, number_type, tensor_shape
from spyre_mlir.mlir import ir, location_of, source_operation
from spyre_mlir.records import dataclass

#: Limits of the bytes of one tensor, and of all tensors that are live at one time, without the arguments.
TENSOR_BYTES, LIVE_BYTES = 1 << 33, 1 << 34
#: Limit of the scalar operations of one op; a matrix product counts its scalar operations / ``MATMUL_DISCOUNT``.
OP_WORK, MATMUL_DISCOUNT = 1 << 34, 64
#: Limits of the number of ops that the loops of one call execute, and of their scalar operations.
LOOP_OPS, LOOP_WORK = 1 << 23, 1 << 34
#: Limit of the nesting depth of regions.
DEPTH = 64


@dataclass
class Frame:
    """Values of one call by slot, loop indices of the current structured op, and the remaining budget of loops."""

    values: list[NDArray[Any] | None]
    indices: Sequence[NDArray[Any]] = ()
    remaining_ops: int = LOOP_OPS
    remaining_work: int = LOOP_WORK

    def charge(self, op: ir.Operation, block: Block) -> None:
        """Count one iteration of a loop; ``CompileError`` if the total exceeds the limits."""
        self.remaining_ops -= 1 + len(block.calls)
        self.remaining_work -= block.work
        if self.remaining_ops < 0 or self.remaining_work < 0:
            raise failure(
                op, f"runs on: the host stops loops after {LOOP_OPS} ops or {LOOP_WORK} scalar operations"
            )


#: Function that computes the results of an op from the arrays of its operands.
Kernel = Callable[..., Sequence[NDArray[Any]]]


@dataclass(frozen=True)
class KernelCall:
    """Call of an op's kernel: the slots that it reads and writes, and the slots that no later call reads."""

    kernel: Kernel
    operands: tuple[int, ...]
    results: tuple[int, ...]
    dead: tuple[int, ...] = ()

    def run(self, frame: Frame) -> None:
        """Run the kernel, and free the values that no later call reads."""
        values = frame.values
        outputs = self.kernel(frame, *(values[slot] for slot in self.operands))
        for slot, output in zip(self.results, outputs, strict=True):
            values[slot] = output
        for slot in self.dead:
            values[slot] = None


@dataclass
class Block:
    """Ops of a block in order. ``yielded`` are the operands of its terminator, ``work`` its scalar operations."""

    arguments: tuple[int, ...]
    calls: list[KernelCall]
    yielded: tuple[int, ...]
    work: int

    def run(self, frame: Frame, arguments: Sequence[NDArray[Any]] = ()) -> list[NDArray[Any]]:
        """Run the block on these arguments and return the values that it yields."""
        for slot, argument in zip(self.arguments, arguments, strict=True):
            frame.values[slot] = argument
        for call in self.calls:
            call.run(frame)
        return [frame.values[slot] for slot in self.yielded]  # type: ignore[misc]


@dataclass
class BlockScope:
    """Builder of the blocks of a function; ``CompileError`` for an op without a rule or a type without a bound."""

    rules: Mapping[str, Callable[[ir.Operation, BlockScope], Kernel]]
    slots: dict[ir.Value, int] = field(default_factory=dict)
    work: int = 0
    depth: int = 0
    peak_bytes: int = 0

    def slot(self, value: ir.Value) -> int:
        """Slot of a value."""
        return self.slots[value]

    def define(self, value: ir.Value, op: ir.Operation) -> int:
        """Return a slot for a new value, whose type must have a bound."""
        try:
            size = _bytes(value.type)
        except CompileError as error:
            raise CompileError(error.message, location_of(op.location)) from error
        if size > TENSOR_BYTES:
            raise failure(op, f"has a tensor of {size} bytes; the host's limit is {TENSOR_BYTES}")
        return self.slots.setdefault(value, len(self.slots))

    def charge(self, op: ir.Operation, work: int) -> None:
        """Count the scalar operations of one op; ``CompileError`` if they are too many."""
        if work > OP_WORK:
            raise failure(op, f"takes {work} scalar operations; the host's limit for one op is {OP_WORK}")
        self.work += work

    def kernel(self, op: ir.Operation) -> Kernel:
        """Return the kernel of an op, by the rule of its name; ``CompileError`` for an op without a rule."""
        if op.name not in self.rules:
            raise CompileError(
                f"A host function cannot run '{op.name}'; docs/host.md lists what it can.",
                location_of(op.location),
            )
        return self.rules[op.name](op, self)

    def block(self, block: ir.Block, terminator: str, op: ir.Operation) -> Block:
        """Return the kernel calls of a block of ``op`` that ends with ``terminator``."""
        if self.depth >= DEPTH:
            raise failure(op, f"is nested deeper than {DEPTH} regions, the host's limit")
        # Counted separately, because a loop charges the work of its body per iteration.
        outer_work, self.work, self.depth = self.work, 0, self.depth + 1
        arguments = tuple(self.define(argument, op) for argument in block.arguments)
        operations = [entry.operation for entry in block.operations]
        if not operations or operations[-1].name != terminator:
            raise failure(op, f"has a block that does not end with '{terminator}'")
        calls = self._calls(operations)
        yielded = tuple(self.slot(value) for value in operations[-1].operands)
        built = Block(arguments, calls, yielded, self.work)
        self.work, self.depth = outer_work + self.work, self.depth - 1
        return built

    def _calls(self, operations: Sequence[ir.Operation]) -> list[KernelCall]:
        """Return a kernel call per op except the terminator, with the slots that no later op of the block reads.

        An op reads its operands and the operands of the ops in its regions. The live bytes are bounded.
        """
        last: dict[ir.Value, int] = {}
        for index, op in enumerate(operations):
            last.update({value: index for value in op.results})
            # An explicit stack replaces recursion, because regions may nest deeply.
            waiting = [op]
            while waiting:
                inner = waiting.pop()
                last.update({value: index for value in inner.operands if value in last})
                blocks = (block for region in inner.regions for block in region.blocks)
                waiting += [entry.operation for block in blocks for entry in block.operations]
        last_use: dict[int, list[ir.Value]] = {}
        for value, index in last.items():
            last_use.setdefault(index, []).append(value)
        live, peak, outer_peak = 0, 0, self.peak_bytes
        calls = []
        for index, op in enumerate(operations[:-1]):
            # The kernel's blocks set the peak, so that it counts on top of the bytes that are live here.
            self.peak_bytes = 0
            self.charge(op, 1)
            kernel = self.kernel(op)
            results = tuple(self.define(value, op) for value in op.results)
            live += sum(_bytes(value.type) for value in op.results)
            peak = max(peak, live + self.peak_bytes)
            if peak > LIVE_BYTES:
                raise failure(op, f"needs more than {LIVE_BYTES} bytes at a time, the host's limit")
            dead = last_use.get(index, [])
            # After the check: operands and results of an op are live at the same time.
            live -= sum(_bytes(value.type) for value in dead)
            reads = tuple(self.slot(value) for value in op.operands)
            calls.append(KernelCall(kernel, reads, results, tuple(self.slot(value) for value in dead)))
        self.peak_bytes = max(outer_peak, peak)
        return calls


def _bytes(type_: ir.Type) -> int:
    """Return the bytes of a tensor; 0 for a scalar."""
    storage = number_type(type_).storage.itemsize
    return math.prod(tensor_shape(type_)) * storage if is_tensor(type_) else 0


def only_block(op: ir.Operation, region: int = 0) -> ir.Block:
    """The one block of a region; ``CompileError`` for none or several."""
    blocks = list(op.regions[region].blocks) if region < len(op.regions) else []
    if len(blocks) != 1:
        raise failure(op, f"must have one block in its region {region}, not {len(blocks)}")
    return blocks[0]


def failure(op: ir.Operation, message: str) -> CompileError:
    """Return an error about an op, with its location and its PyTorch name if that is known."""
    source = source_operation(op.location)
    name = f"{source} ('{op.name}')" if source else f"'{op.name}'"
    return CompileError(f"{name} {message}.", location_of(op.location))


def integer(scalar: NDArray[Any]) -> int:
    """Return a scalar array as a Python number."""
    return int(np.asarray(scalar).reshape(()))


def check_indices(op: ir.Operation, indices: NDArray[Any], size: int, dim: int, what: str) -> None:
    """Raise ``CompileError`` that names the first index outside ``range(size)``, and the dim."""
    outside = (indices < 0) | (indices >= size)
    if np.any(outside):
        index = int(np.asarray(indices)[outside].flat[0])
        bound = f"has the indices 0 to {size - 1}" if size else "has no elements"
        raise failure(op, f"{what} index {index} of dim {dim}, which {bound}")
