# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Repeated layers: consecutive equal groups of operations, each of which reads results of the previous group.

Layer ``r`` is the items ``first + r * period`` .. of an ``OperationSequence``. Layers are equal if items at the same
index have the same key and corresponding reads: the same constants or values from before all layers, results at the
same index in their own or the previous layer, and arguments that all layers read or that belong to one layer each, such
as weights. After the layers only results of the last layer are read, apart from results that every layer returns.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from spyre_mlir.analysis.aliasing import argument_attributes
from spyre_mlir.analysis.operation_sequence import OperationSequence, Read
from spyre_mlir.dialects import sdsc
from spyre_mlir.mlir import ir
from spyre_mlir.optimization.periodic_runs import PeriodicRun, periodic_runs
from spyre_mlir.records import dataclass

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
        for rest in _outside(run, chosen):
            for layers in _Repetition(sequence, rest, attributes).layers():
                if (layers.count - kept) * layers.period >= least:
                    chosen.append(layers)
    return sorted(chosen, key=lambda layers: layers.first)


def _outside(run: PeriodicRun, chosen: Sequence[RepeatedLayers]) -> list[PeriodicRun]:
    """Return the parts of a run that are not in a chosen repetition."""
    parts, begin, end = list[PeriodicRun](), run.first, run.first + run.length
    for layers in sorted(chosen, key=lambda layers: layers.first):
        if layers.end > begin and layers.first < end:
            parts.append(replace(run, first=begin, length=max(layers.first - begin, 0)))
            begin = layers.end
    return [*parts, replace(run, first=begin, length=max(end - begin, 0))]


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
                yield from self._checked(start, (layer - start) // self.run.period + 1)
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

    def _checked(self, first: int, count: int) -> Iterator[RepeatedLayers]:
        """Yield the layers with their arguments and results if operations outside read only values that they may."""
        if count < 2:
            return
        arguments = self._arguments(first, count)
        results = self._results(first, count)
        if arguments is not None and results is not None:
            yield RepeatedLayers(first, self.run.period, count, arguments, results)

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
        return tuple(_in_order(layers, count) for layers in by_layer)


def _in_order(layers: Mapping[int, int], count: int) -> tuple[int, ...]:
    return tuple(layers[layer] for layer in range(count))
