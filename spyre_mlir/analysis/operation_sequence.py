# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Operation sequence: the operations of a block as a sequence of keys, to find repeated groups regardless of names.

Constants and values computed only from constants are not items: a read of one is compared by the content of the
constant, regardless of its position. The key of any other operation describes its computation: name, attributes, types
and regions. The key does not contain the values that it reads, nor decisions that contain the name of an operation.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping

from spyre_mlir.dialects import sdsc
from spyre_mlir.mlir import ir
from spyre_mlir.records import dataclass

#: Operations that are not items if they read only constants.
_FREE = {"arith.constant", "tensor.empty", "linalg.fill"}

#: Attributes that record the origin of an operation, not its computation.
_RECORDS = (sdsc.NAME, sdsc.HISTORY, sdsc.SPILLED, sdsc.TILED)


@dataclass(frozen=True)
class Read:
    """A value that an item reads: result ``number`` of item ``index``, argument ``number``, or ``constant`` by key."""

    index: int | None
    number: int
    constant: Hashable = None

    @property
    def is_argument(self) -> bool:
        """Whether the value is an argument of the block."""
        return self.index is None and self.constant is None


class OperationSequence:
    """The items of a block, each with a key: its operations except constants, in order, the terminator last."""

    def __init__(self, block: ir.Block) -> None:
        self.arguments = list(block.arguments)
        self.block_ops = [item.operation for item in block.operations]
        self.items: list[ir.Operation] = []
        #: The index in ``block_ops`` of each item.
        self.positions: list[int] = []
        #: The values that each item reads, in order; including values that its regions read from outside.
        self.values: list[list[ir.Value]] = []
        #: The ``Read`` of each of these values, by item.
        self.reads: list[tuple[Read, ...]] = []
        self.keys: list[int] = []
        self._numbers: dict[Hashable, int] = {}
        self._known: dict[ir.Value, Read] = {
            value: Read(None, number) for number, value in enumerate(self.arguments)
        }
        for position, op in enumerate(self.block_ops):
            self._add(position, op)

    def _add(self, position: int, op: ir.Operation) -> None:
        values: list[ir.Value] = []
        key = _key(op, values)
        reads = tuple(self._known[value] for value in values)
        if op.name in _FREE and all(read.constant is not None for read in reads):
            constant = self._number((key, reads))
            self._known[op.results[0]] = Read(None, 0, constant)
            return
        self._known.update(
            {result: Read(len(self.items), number) for number, result in enumerate(op.results)}
        )
        self.items.append(op)
        self.positions.append(position)
        self.values.append(values)
        self.reads.append(reads)
        self.keys.append(self._number(key))

    def _number(self, key: Hashable) -> int:
        return self._numbers.setdefault(key, len(self._numbers))

    def read_of(self, value: ir.Value) -> Read:
        """Return the ``Read`` that describes a value of the block."""
        return self._known[value]

    def value_of(self, read: Read) -> ir.Value:
        """Return the item's result or the argument that a ``Read`` describes."""
        if read.index is None:
            return self.arguments[read.number]
        return self.items[read.index].results[read.number]


def _key(op: ir.Operation, values: list[ir.Value]) -> Hashable:
    """Return the key of an operation without the values that it reads from outside; these are added to ``values``."""
    values.extend(op.operands)
    if len(op.regions) == 0:
        return _own_key(op)
    inside: dict[ir.Value, int] = {}
    return _own_key(op), tuple(_region_keys(op, inside, values))


def _own_key(op: ir.Operation) -> Hashable:
    attributes = op.attributes
    entries = tuple((name, attributes[name]) for name in attributes if name not in _RECORDS)
    return op.name, entries, tuple(result.type for result in op.results)


def _region_keys(op: ir.Operation, inside: dict[ir.Value, int], values: list[ir.Value]) -> Iterator[Hashable]:
    """Yield the keys of the operations in the regions of an operation; ``inside`` numbers the values they define."""
    for region in op.regions:
        for block in region.blocks:
            inside.update({value: len(inside) + number for number, value in enumerate(block.arguments)})
            yield tuple(value.type for value in block.arguments)
            for inner in (item.operation for item in block.operations):
                yield _own_key(inner), tuple(_inner_read(value, inside, values) for value in inner.operands)
                inside.update({value: len(inside) + number for number, value in enumerate(inner.results)})
                yield from _region_keys(inner, inside, values)


def _inner_read(value: ir.Value, inside: Mapping[ir.Value, int], values: list[ir.Value]) -> int:
    """Return the number of a value that a region defines; -1 for an outside value, which is added to ``values``."""
    number = inside.get(value)
    if number is None:
        values.append(value)
        return -1
    return number
