# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Repeated layers: consecutive equal groups of operations, each of which reads results of the previous group.

Layer ``r`` is the items ``first + r * period`` .. of an ``OperationSequence``. Layers are equal if items at the same
index have the same key and corresponding reads: the same constants or values from before all layers, results at the
same index in their own or the previous layer, and arguments that all layers read or that belong to one layer each, such
as weights. After the layers only results of the last layer are read, apart from results that every layer returns.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from spyre_mlir.analysis.aliasing import argument_attributes
from spyre_mlir.dialects import sdsc
from spyre_mlir.mlir import ir
from spyre_mlir.records import dataclass

# Periodic runs of a sequence: ranges in which each item equals the item one period later.

#: Maximum number of occurrences of an item within a period: an equal item is searched this many occurrences ahead.
_OCCURRENCES = 4

#: Number of distances that are tried: the distances of the most equal items.
_DISTANCES = 64


@dataclass(frozen=True)
class PeriodicRun:
    """``length`` items from index ``first`` on; an item equals the item ``period`` later if that is in the run."""

    first: int
    period: int
    length: int

    @property
    def count(self) -> int:
        """Number of whole periods."""
        return self.length // self.period


def periodic_runs(keys: Sequence[int], least: int = 2) -> list[PeriodicRun]:
    """Return the maximal runs of at least ``least`` periods, the longest first, ties by the shorter period.

    The time is linear in the length of the sequence, except for a sort of the items.
    """
    items = np.asarray(keys, np.int64)
    runs = []
    for distance in _distances(items):
        equal = items[distance:] == items[:-distance]
        change = np.flatnonzero(np.diff(np.concatenate([[0], equal.view(np.int8), [0]])))
        for start, end in zip(change[::2].tolist(), change[1::2].tolist(), strict=True):
            if end - start >= (least - 1) * distance:
                runs.append(PeriodicRun(start, distance, end - start + distance))
    return sorted(runs, key=lambda run: (-run.length, run.period, run.first))


def _distances(items: NDArray[np.int64]) -> list[int]:
    """Return the distances of equal items that cover most of the sequence."""
    order = np.argsort(items, kind="stable")
    distances = []
    for step in range(1, min(_OCCURRENCES, len(items) - 1) + 1):
        equal = items[order[step:]] == items[order[:-step]]
        distances.append((order[step:] - order[:-step])[equal])
    if not distances:
        return []
    values, counts = np.unique(np.concatenate(distances), return_counts=True)
    return [int(value) for value in values[np.argsort(-(values * counts), kind="stable")][:_DISTANCES]]


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
            values: list[ir.Value] = list(op.operands)
            key: Hashable = _own_key(op)
            if len(op.regions):
                key = key, tuple(_region_keys(op, {}, values))
            reads = tuple(self._known[value] for value in values)
            if op.name in _FREE and all(read.constant is not None for read in reads):
                constant = self._numbers.setdefault((key, reads), len(self._numbers))
                self._known[op.results[0]] = Read(None, 0, constant)
                continue
            results = enumerate(op.results)
            self._known |= {result: Read(len(self.items), number) for number, result in results}
            self.items.append(op)
            self.positions.append(position)
            self.values.append(values)
            self.reads.append(reads)
            self.keys.append(self._numbers.setdefault(key, len(self._numbers)))

    def read_of(self, value: ir.Value) -> Read:
        """Return the ``Read`` that describes a value of the block."""
        return self._known[value]

    def value_of(self, read: Read) -> ir.Value:
        """Return the item's result or the argument that a ``Read`` describes."""
        if read.index is None:
            return self.arguments[read.number]
        return self.items[read.index].results[read.number]


def _own_key(op: ir.Operation) -> Hashable:
    attributes = op.attributes
    entries = tuple((name, attributes[name]) for name in attributes if name not in _RECORDS)
    return op.name, entries, tuple(result.type for result in op.results)


def _region_keys(op: ir.Operation, inside: dict[ir.Value, int], values: list[ir.Value]) -> Iterator[Hashable]:
    """Yield the keys of the operations in the regions of an operation; ``inside`` numbers the values they define.

    Values that the regions read from outside have the number -1 and are added to ``values``.
    """
    for region in op.regions:
        for block in region.blocks:
            inside.update({value: len(inside) + number for number, value in enumerate(block.arguments)})
            yield tuple(value.type for value in block.arguments)
            for inner in (item.operation for item in block.operations):
                values.extend(value for value in inner.operands if value not in inside)
                yield _own_key(inner), tuple(inside.get(value, -1) for value in inner.operands)
                inside.update({value: len(inside) + number for number, value in enumerate(inner.results)})
                yield from _region_keys(inner, inside, values)


#: Attributes of an argument that differ between the weights of equal layers.
_IDENTITY = ("spyre.name", sdsc.UPDATED)


@dataclass(frozen=True)
class RepeatedLayers:
    """``count`` equal layers of ``period`` items each, the first at item ``first``.

    ``arguments`` has a column for each argument that belongs to one layer: its numbers, layer by layer. ``results`` has
    a column for each value that every layer returns: the numbers of the results.
    """

    first: int
    period: int
    count: int
    arguments: tuple[tuple[int, ...], ...]
    results: tuple[tuple[int, ...], ...]

    @property
    def end(self) -> int:
        """The index of the item after the last layer."""
        return self.first + self.count * self.period


def repeated_layers(
    func: ir.Operation, sequence: OperationSequence, kept: int, least: int
) -> list[RepeatedLayers]:
    """Return disjoint repetitions, in program order, whose layers except ``kept`` have at least ``least`` items."""
    attributes = [
        frozenset((name, attribute) for name, attribute in entry.items() if name not in _IDENTITY)
        for entry in argument_attributes(func)
    ]
    chosen: list[RepeatedLayers] = []
    runs = [run for run in periodic_runs(sequence.keys) if (run.count - kept) * run.period >= least]
    # Runs with the most repeated operations first: shorter runs may be a part of their layers.
    for run in sorted(runs, key=lambda run: (-(run.count - kept) * run.period, run.period, run.first)):
        # The parts of the run that are not in a chosen repetition.
        parts, begin, end = list[PeriodicRun](), run.first, run.first + run.length
        for layers in sorted(chosen, key=lambda layers: layers.first):
            if layers.end > begin and layers.first < end:
                parts.append(replace(run, first=begin, length=max(layers.first - begin, 0)))
                begin = layers.end
        for rest in (*parts, replace(run, first=begin, length=max(end - begin, 0))):
            for layers in _Repetition(sequence, rest, attributes).layers():
                if (layers.count - kept) * layers.period >= least:
                    chosen.append(layers)
    return sorted(chosen, key=lambda layers: layers.first)


class _Repetition:
    """A periodic run of keys; the reads of its layers are not checked yet."""

    def __init__(
        self,
        sequence: OperationSequence,
        run: PeriodicRun,
        attributes: Sequence[frozenset[tuple[str, ir.Attribute]]],
    ) -> None:
        self.sequence, self.run, self.attributes = sequence, run, attributes

    def layers(self) -> Iterator[RepeatedLayers]:
        """Yield the layers of the longest subruns with corresponding reads, if no other operation reads them."""
        first, last = self.run.first, self.run.first + (self.run.count - 1) * self.run.period
        start = first
        for layer in range(first, last + 1, self.run.period):
            if layer == last or not self._agrees(layer, start):
                count = (layer - start) // self.run.period + 1
                arguments = self._arguments(start, count) if count > 1 else None
                results = self._results(start, count) if arguments is not None else None
                if arguments is not None and results is not None:
                    yield RepeatedLayers(start, self.run.period, count, arguments, results)
                start = layer + self.run.period

    def _agrees(self, layer: int, start: int) -> bool:
        """Return whether a layer and the next layer have corresponding reads, if the layers begin at ``start``."""
        reads = self.sequence.reads
        return all(
            len(reads[index]) == len(reads[index + self.run.period])
            and all(
                self._corresponds(one, other, layer, start)
                for one, other in zip(reads[index], reads[index + self.run.period], strict=True)
            )
            for index in range(layer, layer + self.run.period)
        )

    def _corresponds(self, one: Read, other: Read, layer: int, start: int) -> bool:
        if one.index is not None:
            carried = other == Read(one.index + self.run.period, one.number)
            # A value of the previous layer, of the layer itself, or from before all layers.
            return (carried and one.index >= layer - self.run.period) or (one == other and one.index < start)
        if not (one.is_argument and other.is_argument) or one == other:
            return one == other
        types = [self.sequence.arguments[read.number].type for read in (one, other)]
        return types[0] == types[1] and self.attributes[one.number] == self.attributes[other.number]

    def _arguments(self, first: int, count: int) -> tuple[tuple[int, ...], ...] | None:
        """Return the arguments that belong to one layer each; None if another layer or operation reads one of them."""
        reads, period = self.sequence.reads, self.run.period
        columns = (
            tuple(reads[first + layer * period + offset][position].number for layer in range(count))
            for offset in range(period)
            for position, read in enumerate(reads[first + offset])
            if read.is_argument
        )
        own = tuple(dict.fromkeys(column for column in columns if len(set(column)) > 1))
        layer_of = {number: layer for column in own for layer, number in enumerate(column)}
        if len(layer_of) != len(own) * count:
            return None
        elsewhere = any(
            read.is_argument
            and read.number in layer_of
            and index not in range(start := first + layer_of[read.number] * period, start + period)
            for index, item in enumerate(reads)
            for read in item
        )
        return None if elsewhere else own

    def _results(self, first: int, count: int) -> tuple[tuple[int, ...], ...] | None:
        """Return the results that each layer returns; None if other layers than the last are read after the layers."""
        reads, period, end = self.sequence.reads, self.run.period, first + count * self.run.period
        last = end - period
        if any(
            read.index is not None and first <= read.index < last
            for item in reads[end : len(reads) - 1]
            for read in item
        ):
            return None
        returned: dict[tuple[int, int, int], dict[int, int]] = {}
        seen: Counter[Read] = Counter()
        for position, read in enumerate(reads[-1]):
            if read.index is not None and first <= read.index < end:
                layer, offset = divmod(read.index - first, period)
                # A value may be returned several times.
                returned.setdefault((offset, read.number, seen[read]), {})[layer] = position
                seen[read] += 1
        # A result that only the last layer returns is an ordinary read after the layers.
        by_layer = [layers for layers in returned.values() if list(layers) != [count - 1]]
        if any(len(layers) != count for layers in by_layer):
            return None
        return tuple(tuple(layers[layer] for layer in range(count)) for layers in by_layer)


#: Maximum number of operations between a layer and the return: views, and the copy into the buffer of the result.
_LONGEST_EPILOGUE = 4


@dataclass(frozen=True)
class LayerArgument:
    """An argument of one layer: the number of its column and the number of the layer."""

    column: int
    layer: int


@dataclass(frozen=True)
class FoldedLayers:
    """A repetition of layers of which ``kept`` layers remain.

    ``arguments`` and ``results`` have the columns of ``RepeatedLayers``; ``locations`` has a row per layer.
    """

    count: int
    kept: int
    arguments: tuple[tuple[int, ...], ...]
    results: tuple[tuple[int, ...], ...]
    locations: tuple[tuple[ir.Attribute, ...], ...]

    @classmethod
    def of(cls, sequence: OperationSequence, layers: RepeatedLayers, kept: int) -> FoldedLayers:
        """Return the folded form of ``layers`` of the whole function with this ``sequence``."""
        locations = [op.location.attr for op in sequence.items[layers.first : layers.end]]
        rows = (
            tuple(locations[start : start + layers.period])
            for start in range(0, len(locations), layers.period)
        )
        return cls(layers.count, kept, layers.arguments, layers.results, tuple(rows))

    @property
    def copies(self) -> int:
        """The number of layers that were omitted."""
        return self.count - self.kept

    @cached_property
    def layer_of_location(self) -> Mapping[ir.Attribute, tuple[int, int]]:
        """The layer, and the index in the layer, of each location that only one layer has."""
        layers: dict[ir.Attribute, tuple[int, int]] = {}
        shared: set[ir.Attribute] = set()
        for layer, row in enumerate(self.locations):
            for place, location in enumerate(row):
                known = layers.setdefault(location, (layer, place))
                if known[0] != layer:
                    shared.add(location)
        return {location: where for location, where in layers.items() if location not in shared}

    def shifted(self, location: ir.Location, layers: int) -> ir.Location:
        """Return the location of the same operation ``layers`` layers later; ``location`` for other operations."""
        layer, place = self.layer_of_location.get(location.attr, (None, 0))
        if layer is None or layer + layers >= self.count:
            return location
        return ir.Location.from_attr(self.locations[layer + layers][place])


class FunctionArguments:
    """The arguments of a planned function, with the number of their host array in the whole function."""

    def __init__(self, func: ir.Operation, names: Mapping[str, int]) -> None:
        self.attributes = argument_attributes(func)
        self.array_names = [array_name(entry) for entry in self.attributes]
        #: The number of each argument's host array; None for an array that passes added.
        self.numbers = [names.get(name) for name in self.array_names]

    def layer_arguments(self, layers: FoldedLayers) -> dict[int, LayerArgument]:
        """Return the column and layer in a repetition for each argument of the function that belongs to one layer."""
        where = {
            number: LayerArgument(column, layer)
            for column, numbers in enumerate(layers.arguments)
            for layer, number in enumerate(numbers)
        }
        return {
            index: where[number]
            for index, number in enumerate(self.numbers)
            if number is not None and number in where
        }


def array_name(entry: Mapping[str, ir.Attribute]) -> str:
    """Return the name of the host array of an argument."""
    name = entry[sdsc.SOURCE] if sdsc.SOURCE in entry else entry[sdsc.HOST].label
    return ir.StringAttr(name).value


@dataclass(frozen=True)
class LayerResult:
    """A result of the function that each layer returns, for the layer of a window.

    ``layer`` is the number of this layer, ``origin`` the value that the window computes. ``chains`` has for each
    remaining layer the operations from this value to the return: mostly none, or the copy into the result's buffer.
    """

    layer: int
    origin: Read
    chains: tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class LayerWindow:
    """A window of ``period`` items from ``first`` on, which an equal window follows, and the results of its layer."""

    first: int
    period: int
    results: tuple[LayerResult, ...] = ()

    @property
    def end(self) -> int:
        """The index of the first item after the window."""
        return self.first + self.period

    @cached_property
    def epilogues(self) -> frozenset[int]:
        """The items after the window that return results of its layer and of previous layers."""
        return frozenset(
            item for result in self.results for chain in result.chains[: result.layer + 1] for item in chain
        )

    def __contains__(self, index: int) -> bool:
        return self.first <= index < self.end


def layer_window(
    sequence: OperationSequence, layers: FoldedLayers, arguments: Mapping[int, LayerArgument]
) -> LayerWindow | None:
    """Return the first window that an equal window of the next layer follows; None if there is none."""
    for run in periodic_runs(sequence.keys):
        search = _WindowSearch(sequence, layers, arguments, run.period)
        for first in search.candidates(run.first, run.first + run.length - 2 * run.period):
            return LayerWindow(first, run.period)
    return None


class _WindowSearch:
    """Search for a window of one period."""

    def __init__(
        self,
        sequence: OperationSequence,
        layers: FoldedLayers,
        arguments: Mapping[int, LayerArgument],
        period: int,
    ) -> None:
        self.sequence, self.layers, self.arguments, self.period = sequence, layers, arguments, period

    def candidates(self, first: int, last: int) -> Iterator[int]:
        """Yield the indices from ``first`` to ``last`` at which a window begins."""
        end = last + self.period
        # The first and last start of windows that contain the item, and whether the item shows a step of one layer.
        bounds = [self._bounds(index) for index in range(first, end)]
        for start in range(first, last + 1):
            inside = bounds[start - first : start - first + self.period]
            if all(bound is not None and bound[0] <= start <= bound[1] for bound in inside) and any(
                bound is not None and bound[2] for bound in inside
            ):
                yield start

    def _bounds(self, index: int) -> tuple[int, int, bool] | None:
        """Return the first and last start of windows that an item allows; None if it is not a part of a layer."""
        least, most = 0, index
        reads = self.sequence.reads
        if len(reads[index]) != len(reads[index + self.period]):
            return None
        steps = [self._location_step(index)]
        for one, other in zip(reads[index], reads[index + self.period], strict=True):
            if one.index is not None and one == other:
                least = max(least, one.index + 1)
            elif one.index is not None:
                if other != Read(one.index + self.period, one.number):
                    return None
                most = min(most, one.index + self.period)
            elif one.is_argument and other.is_argument and one != other:
                steps.append(self._argument_step(one, other))
            elif one != other:
                return None
        # A window that advances by another number of layers, or to another index in a layer, is not one layer.
        if any(step not in (None, 1) for step in steps):
            return None
        return least, most, 1 in steps

    def _argument_step(self, one: Read, other: Read) -> int:
        """Return the number of layers between two arguments; 0 if they do not correspond."""
        before, after = self.arguments.get(one.number), self.arguments.get(other.number)
        if before is None or after is None or before.column != after.column:
            return 0
        return after.layer - before.layer

    def _location_step(self, index: int) -> int | None:
        """Return the number of layers between an item and the item one period later, by location; None if unknown."""
        where = self.layers.layer_of_location
        before, after = (
            where.get(self.sequence.items[item].location.attr) for item in (index, index + self.period)
        )
        if before is None or after is None:
            return None
        return after[0] - before[0] if before[1] == after[1] else 0


def windows(
    sequence: OperationSequence, repetitions: Sequence[FoldedLayers], arguments: FunctionArguments
) -> list[LayerWindow] | None:
    """Return the window of each repetition, in program order; None if a window is missing or windows overlap."""
    columns = (column[layers.kept :] for layers in repetitions for column in layers.results)
    dropped = set(itertools.chain.from_iterable(columns))
    stays = (number for number in itertools.count() if number not in dropped)
    # The values that the function returns, keyed by result number in the whole function.
    returned, chosen = dict(zip(stays, sequence.reads[-1], strict=False)), list[LayerWindow]()
    for layers in repetitions:
        window = layer_window(sequence, layers, arguments.layer_arguments(layers))
        if window is None or (chosen and window.first < chosen[-1].end):
            return None
        columns = ([returned[number] for number in column[: layers.kept]] for column in layers.results)
        results = [_layer_result(sequence, reads, window) for reads in columns]
        if None in results:
            return None
        chosen.append(replace(window, results=tuple(result for result in results if result is not None)))
    return chosen


def _layer_result(
    sequence: OperationSequence, reads: Sequence[Read], window: LayerWindow
) -> LayerResult | None:
    """Return the result of a window's layer, given this result of all layers; None if the layers differ."""
    chains: list[tuple[int, ...]] = [() for _ in reads]
    for _ in range(_LONGEST_EPILOGUE + 1):
        indices = [-1 if read.index is None else read.index for read in reads]
        inside = [layer for layer, index in enumerate(indices) if index in window]
        if len(inside) == 1:
            # The value of one layer is in the window: the value of the next layer has to be in the next window.
            (layer,) = inside
            expected = Read(indices[layer] + window.period, reads[layer].number)
            follows = all(read == expected for read in reads[layer + 1 : layer + 2])
            is_ordered = all(0 <= index < window.first for index in indices[:layer])
            if follows and is_ordered and all(index >= window.end for index in indices[layer + 1 :]):
                return LayerResult(layer, reads[layer], tuple(chains))
        # Go one operation further back from the return.
        if -1 in indices:
            return None
        chains = [(index, *chain) for index, chain in zip(indices, chains, strict=True)]
        sources = [
            [source for source in sequence.reads[chain[0]] if source.constant is None] for chain in chains
        ]
        if len({sequence.keys[chain[0]] for chain in chains}) > 1 or any(len(read) != 1 for read in sources):
            return None
        reads = [read for (read,) in sources]
    return None
