# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Planned layers: the layer of a planned function that can be copied for layers that ``fold-repeated-layers`` omitted.

Passes move operations across the ends of layers, insert some and fuse others. So the layer is searched as a window of
items (``OperationSequence``) that an equal window follows: the same operations with the same divisions and placements,
which read the same values, corresponding values of the previous window, or the arguments of the next layer. Such a
window leaves the memories in the state in which it found them, so any number of copies may follow it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property

from spyre_mlir.analysis.aliasing import argument_attributes
from spyre_mlir.analysis.operation_sequence import OperationSequence, Read
from spyre_mlir.analysis.repeated_layers import RepeatedLayers
from spyre_mlir.dialects import sdsc
from spyre_mlir.mlir import ir
from spyre_mlir.optimization.periodic_runs import periodic_runs
from spyre_mlir.records import dataclass

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
    returned, chosen = _returned(sequence, repetitions), list[LayerWindow]()
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


def _returned(sequence: OperationSequence, repetitions: Sequence[FoldedLayers]) -> dict[int, Read]:
    """Return the values that the function returns, keyed by result number in the whole function."""
    dropped = {
        number for layers in repetitions for column in layers.results for number in column[layers.kept :]
    }
    stays = (number for number in itertools.count() if number not in dropped)
    return dict(zip(stays, sequence.reads[-1], strict=False))


def _layer_result(
    sequence: OperationSequence, reads: Sequence[Read], window: LayerWindow
) -> LayerResult | None:
    """Return the result of a window's layer, given this result of all layers; None if the layers differ."""
    chains: list[tuple[int, ...]] = [() for _ in reads]
    for _ in range(_LONGEST_EPILOGUE + 1):
        layer = _returning_layer(reads, window)
        if layer is not None:
            return LayerResult(layer, reads[layer], tuple(chains))
        # Go one operation further back from the return.
        if any(read.index is None for read in reads):
            return None
        chains = [(_index(read), *chain) for read, chain in zip(reads, chains, strict=True)]
        sources = [
            [source for source in sequence.reads[chain[0]] if source.constant is None] for chain in chains
        ]
        if len({sequence.keys[chain[0]] for chain in chains}) > 1 or any(len(read) != 1 for read in sources):
            return None
        reads = [read for (read,) in sources]
    return None


def _index(read: Read) -> int:
    return -1 if read.index is None else read.index


def _returning_layer(reads: Sequence[Read], window: LayerWindow) -> int | None:
    """Return the layer whose value is in the window, if the next layer's value is in the next window; else None."""
    indices = [_index(read) for read in reads]
    layers = [layer for layer, index in enumerate(indices) if index in window]
    if len(layers) != 1:
        return None
    (layer,) = layers
    expected = Read(indices[layer] + window.period, reads[layer].number)
    follows = all(read == expected for read in reads[layer + 1 : layer + 2])
    in_front, behind = indices[:layer], indices[layer + 1 :]
    is_ordered = all(0 <= index < window.first for index in in_front) and all(
        index >= window.end for index in behind
    )
    return layer if follows and is_ordered else None
