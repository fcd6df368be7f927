# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Copies the plan of one layer to the folded layers."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any, ClassVar

from spyre_mlir.analysis.aliasing import functions
from spyre_mlir.analysis.loops import terminator
from spyre_mlir.analysis.repeated_layers import (
    FoldedLayers,
    FunctionArguments,
    LayerResult,
    LayerWindow,
    OperationSequence,
    Read,
    windows,
)
from spyre_mlir.dialects import sdsc
from spyre_mlir.dialects.structured import defining_op
from spyre_mlir.mlir import ir
from spyre_mlir.passes.base import Pass
from spyre_mlir.passes.fold_repeated_layers import FoldRepeatedLayers, named_attributes
from spyre_mlir.records import dataclass
from spyre_mlir.rewriting.outlining import copied, read_by, replace_operands, set_function_type


class NotPeriodic(Exception):
    """Raised if the plans of the kept layers differ from layer to layer, so that no layer can be copied."""


@dataclass(frozen=True)
class UnfoldRepeatedLayers(Pass):
    """Restore the layers that ``fold-repeated-layers`` removed, as copies of a planned layer.

    Two kept layers must have equal plans, including the scratchpads (``analysis/repeated_layers.py``). Then any
    number of copies may be inserted between them. A copy reads the arguments of its layer and has the source lines of
    its layer. If no two plans are equal, the pass raises ``NotPeriodic``, and ``run_pipeline`` plans the whole program.

    The folded layers are known from the module before ``fold-repeated-layers``, which ``run_pipeline`` keeps. A
    module that another process folded is not changed. ``reuse=false`` plans each folded layer separately,
    at the position of the copied layer; a test uses this to check that both give the same program.

    Before, level *divided* with placements in LX, and after: the whole program at that level.
    """

    name: ClassVar[str] = "unfold-repeated-layers"
    is_evaluated: ClassVar[bool] = False
    reuse: bool = True

    def run(self, module: ir.Operation) -> None:
        """Leave the module unchanged: without ``unfold``, the pass does not know the folded layers."""

    def unfold(
        self,
        module: ir.Operation,
        whole: ir.Operation,
        folding: FoldRepeatedLayers,
        planned: Callable[[int], ir.Operation],
    ) -> bool:
        """Rewrite ``module`` in place, and return whether there were layers to restore.

        ``whole`` is the module before ``folding`` removed layers; ``planned`` plans it with another ``shift``.
        """
        if sdsc.FOLDED not in module.attributes:
            return False
        (whole_func,) = functions(whole)
        sequence = OperationSequence(whole_func.regions[0].blocks[0])
        repetitions = [
            FoldedLayers.of(sequence, layers, folding.kept)
            for layers in folding.repetitions(whole_func, sequence)
        ]
        most = 0 if self.reuse else max(layers.copies for layers in repetitions)
        modules = [planned(shift) for shift in range(1, most + 1)]
        funcs = [functions(operation)[0] for operation in (module, *modules)]
        unfolding = LayerUnfolding.of(funcs, whole_func, repetitions)
        if unfolding is None:
            raise NotPeriodic
        unfolding.apply()
        del module.attributes[sdsc.FOLDED]
        copies = sum(layers.copies for layers in repetitions)
        self.remark(funcs[0], "layers", f"{copies} layers are copies of one planned layer")
        return True


# Copies of the window of a planned layer, each with the arguments, results and locations of another layer.


@dataclass(frozen=True)
class LayerTemplate:
    """A function whose layers represent all layers, with the window of each repetition from which copies are made."""

    sequence: OperationSequence
    arguments: FunctionArguments
    windows: Sequence[LayerWindow]


@dataclass(frozen=True)
class LayerUnfolding:
    """The restoration of all layers of a planned function from which most layers were removed.

    Each function in ``shifted`` planned exactly the layer of one copy; without them all copies are made from ``main``.
    """

    repetitions: Sequence[FoldedLayers]
    boundary: UnfoldedBoundary
    main: LayerTemplate
    shifted: Sequence[LayerTemplate]
    #: Maps a value of a window to the value that replaces it after the copies of the window.
    latest: dict[ir.Value, ir.Value] = field(default_factory=dict)

    @classmethod
    def of(
        cls, funcs: Sequence[ir.Operation], whole: ir.Operation, repetitions: Sequence[FoldedLayers]
    ) -> LayerUnfolding | None:
        """Return the unfolding of the first function to the whole function, with the windows of the other functions.

        None is returned if the plan of a function differs from layer to layer.
        """
        boundary = UnfoldedBoundary(funcs[0], whole, repetitions)
        templates = []
        for func in funcs:
            sequence = OperationSequence(func.regions[0].blocks[0])
            arguments = FunctionArguments(func, boundary.names)
            chosen = windows(sequence, repetitions, arguments)
            if chosen is None:
                return None
            templates.append(LayerTemplate(sequence, arguments, chosen))
        main, *shifted = templates
        same = all(template.windows == main.windows for template in shifted)
        return cls(repetitions, boundary, main, shifted) if same else None

    def apply(self) -> None:
        """Rewrite the function in place."""
        for layers, window in zip(self.repetitions, self.main.windows, strict=True):
            _Copies(self, layers, window).insert()
        self.boundary.write()


class _Copies:
    """The copies of one window."""

    def __init__(self, unfolding: LayerUnfolding, layers: FoldedLayers, window: LayerWindow) -> None:
        self.unfolding, self.layers = unfolding, layers
        self.main, self.window = unfolding.main, window
        self.boundary = unfolding.boundary
        self.layer_arguments = self.main.arguments.layer_arguments(layers)
        # For each argument name of a layer, the corresponding names in all layers and the layer's index.
        whole = list(self.boundary.names)
        columns = [[whole[number] for number in column] for column in layers.arguments]
        names = {
            self.main.arguments.array_names[number]: (columns[argument.column], argument.layer)
            for number, argument in self.layer_arguments.items()
        }
        self.names = LayerNames(self.main.sequence, window, names)
        # Computed before the insertion: operations after the window belong to the last layers from then on.
        self.later_uses = self._later_uses()

    def insert(self) -> None:
        """Insert the copies after the window, and make later operations read the last copy."""
        window, results = self.window, dict[Read, ir.Value]()
        for item in range(window.first, window.end):
            for number, value in enumerate(self.main.sequence.items[item].results):
                results[Read(item, number)] = value
        copies = [results]
        for copy in range(1, self.layers.copies + 1):
            copies.append(self._copy(copy, copies[-1]))
        # Add the results that each layer returns to the results of the function.
        for column, result in zip(self.layers.results, self.window.results, strict=True):
            stays = [self.boundary.returned(number) for number in column[: self.layers.kept]]
            end = result.layer + 1
            middle = [
                self._returned(result, copy, values[result.origin])
                for copy, values in enumerate(copies[1:], 1)
            ]
            values = [*stays[:end], *middle, *stays[end:]]
            self.boundary.results.update(zip(column, values, strict=True))
        self._shift_what_follows(copies)

    def _copy(self, copy: int, before: Mapping[Read, ir.Value]) -> dict[Read, ir.Value]:
        """Insert one copy; return its values, keyed by the corresponding values of the window."""
        sequence = self._template(copy).sequence
        begin, end = sequence.positions[self.window.first], sequence.positions[self.window.end]
        anchor = self.main.sequence.items[self.window.end]
        values = self._operands(copy, before)
        ops = sequence.block_ops[begin:end]
        self._clone(ops, copy, anchor, values)
        results = (value for op in ops for value in op.results)
        reads = ((sequence.read_of(value), value) for value in results)
        return {read: values[value] for read, value in reads if read.index is not None}

    def _clone(
        self, ops: Sequence[ir.Operation], copy: int, anchor: ir.Operation, values: dict[ir.Value, ir.Value]
    ) -> None:
        """Insert clones before operation ``anchor``, with operands replaced by ``values``, and add their results."""
        template = self._template(copy)
        for op in ops:
            if template is not self.main:
                self._clone_constants(op, template, anchor, values)
            with ir.InsertionPoint(anchor):
                clone = copied(op, values)
            if template is self.main:
                clone.location = self.layers.shifted(op.location, copy)
                self.names.shift(clone, copy)

    def _template(self, copy: int) -> LayerTemplate:
        shifted = self.unfolding.shifted
        return shifted[copy - 1] if shifted else self.main

    def _clone_constants(
        self,
        op: ir.Operation,
        template: LayerTemplate,
        anchor: ir.Operation,
        values: dict[ir.Value, ir.Value],
    ) -> None:
        """Insert clones of the constants that an operation of a shifted function reads."""
        for value in read_by(op):
            producer = defining_op(value)
            if value in values or producer is None or template.sequence.read_of(value).constant is None:
                continue
            self._clone_constants(producer, template, anchor, values)
            clone = producer.clone(ir.InsertionPoint(anchor)).operation
            replace_operands(clone, values)
            values[value] = clone.results[0]

    def _operands(self, copy: int, before: Mapping[Read, ir.Value]) -> dict[ir.Value, ir.Value]:
        """Return for each outside value that the template's window reads the value that the copy reads instead."""
        template, window, values = self._template(copy), self.window, dict[ir.Value, ir.Value]()
        reads = self.main.sequence.reads
        for item in range(window.first, window.end):
            corresponding = zip(reads[item], reads[item + window.period], strict=True)
            for value, (read, other) in zip(template.sequence.values[item], corresponding, strict=True):
                if read.is_argument:
                    values[value] = self._argument(read.number, copy)
                elif read.index is not None and read.index < window.first:
                    # The corresponding value of the previous window, unless all windows read the same value.
                    common = self.main.sequence.value_of(read)
                    values[value] = (
                        self.unfolding.latest.get(common, common) if read == other else before[other]
                    )
        return values

    def _argument(self, number: int, layers: int) -> ir.Value:
        """Return the argument that corresponds to argument ``number`` in the layer ``layers`` layers later."""
        argument = self.layer_arguments.get(number)
        if argument is None:
            return self.main.sequence.arguments[number]
        whole_number = self.layers.arguments[argument.column][argument.layer + layers]
        return self.boundary.argument(whole_number, number)

    def _later_uses(self) -> list[tuple[ir.Value, ir.Operation, int]]:
        """Return the uses after the window of its values or of a layer's arguments: value, operation, operand index."""
        sequence, window = self.main.sequence, self.window
        values = [value for item in sequence.items[window.first : window.end] for value in item.results]
        values += [sequence.arguments[number] for number in self.layer_arguments]
        uses = []
        for used, use in [(value, use) for value in values for use in value.uses]:
            # The user, or its ancestor in the function's block.
            op = use.owner.operation
            while op.parent.operation.name != "func.func":
                op = op.parent.operation
            index = sequence.read_of(op.results[0]).index if op.results else None
            if index is None or (index >= window.end and index not in window.epilogues):
                uses.append((used, use.owner.operation, use.operand_number))
        return uses

    def _shift_what_follows(self, copies: Sequence[Mapping[Read, ir.Value]]) -> None:
        """Make operations after the window read the last copy and the arguments of the last layers."""
        sequence, last = self.main.sequence, copies[-1]
        numbers = {sequence.arguments[number]: number for number in self.layer_arguments}
        for value, op, index in self.later_uses:
            number = numbers.get(value)
            if number is not None:
                op.operands[index] = self._argument(number, self.layers.copies)
            else:
                op.operands[index] = last[sequence.read_of(value)]
        self.unfolding.latest.update({value: last[read] for read, value in copies[0].items()})
        for index in range(self.window.end, len(sequence.items) - 1):
            if index not in self.window.epilogues:
                op = sequence.items[index]
                op.location = self.layers.shifted(op.location, self.layers.copies)
                self.names.shift(op, self.layers.copies)

    def _returned(self, result: LayerResult, copy: int, value: ir.Value) -> ir.Value:
        """Return the result of a copy, for which the operations between the layer and the return are cloned."""
        chain = result.chains[result.layer]
        if not chain:
            return value
        sequence = self._template(copy).sequence
        ops = [sequence.items[index] for index in chain]
        origin = sequence.value_of(result.origin)
        values = {origin: value}
        # In the order of layers: before the result of the next layer.
        position = self.main.sequence.positions[chain[-1]]
        self._clone(ops, copy, self.main.sequence.block_ops[position + 1], values)
        return values[ops[-1].results[0]]


# Names of operations in restored layers: the names that ``name-operations`` assigns in the whole function.

#: The parts of a name: its stem, the number among operations with that stem, and the suffix of inserted operations.
_NAME = re.compile(r"(?P<stem>.*?)\.(?P<number>\d+)(?P<part>/.*)?")


class LayerNames:
    """Names of operations in later layers: numbers increase by the number of operations of the same stem per layer.

    An operation named after an argument of a layer, as ``w/clone.0``, is renamed after the corresponding argument of
    the later layer. ``arguments`` maps an argument name to the names in all layers and to the index of its layer.
    """

    def __init__(
        self,
        sequence: OperationSequence,
        window: LayerWindow,
        arguments: Mapping[str, tuple[Sequence[str], int]],
    ) -> None:
        self._arguments = arguments
        self._steps: dict[str, int] = {}
        for item in range(window.first, window.end):
            pairs = zip(
                _named(sequence.items[item]), _named(sequence.items[item + window.period]), strict=True
            )
            for one, other in pairs:
                before, after = _NAME.fullmatch(_name(one)), _NAME.fullmatch(_name(other))
                if before and after and before["stem"] == after["stem"]:
                    self._steps[before["stem"]] = int(after["number"]) - int(before["number"])

    def shift(self, op: ir.Operation, layers: int) -> None:
        """Rename an operation and its nested operations as the corresponding operations ``layers`` layers later."""
        for named in _named(op):
            named.attributes[sdsc.NAME] = ir.StringAttr.get(self._shifted(_name(named), layers), op.context)

    def _shifted(self, name: str, layers: int) -> str:
        argument, _, part = name.rpartition("/")
        if argument in self._arguments:
            names, layer = self._arguments[argument]
            return f"{names[layer + layers]}/{part}"
        match = _NAME.fullmatch(name)
        if match is None or match["stem"] not in self._steps:
            return name
        number = int(match["number"]) + layers * self._steps[match["stem"]]
        return f"{match['stem']}.{number}{match['part'] or ''}"


def _named(op: ir.Operation) -> Iterator[ir.Operation]:
    """Yield the named operations among an operation and its nested operations."""
    if sdsc.NAME in op.attributes:
        yield op
    if op.name == "scf.for":
        for inner in op.regions[0].blocks[0].operations:
            yield from _named(inner.operation)


def _name(op: ir.Operation) -> str:
    return ir.StringAttr(op.attributes[sdsc.NAME]).value


# Arguments and results of a function while its layers are restored.


class UnfoldedBoundary:
    """Arguments and results of a function that is being restored; new arguments are modelled on the kept arguments.

    ``results`` maps indices of results in the whole function to values, if they differ from the values that the
    function returns for them.
    """

    def __init__(self, func: ir.Operation, whole: ir.Operation, repetitions: Sequence[FoldedLayers]) -> None:
        self.func, self._whole_attributes = func, named_attributes(whole)
        self.names = {
            ir.StringAttr(entry["spyre.name"]).value: number
            for number, entry in enumerate(self._whole_attributes)
        }
        self.results: dict[int, ir.Value] = {}
        #: Maps each removed result to the corresponding result of the first of the equal layers.
        self._equal = {
            number: column[0]
            for layers in repetitions
            for column in layers.results
            for number in column[layers.kept :]
        }
        self._count = len(whole.regions[0].blocks[0].operations[-1].operands)
        self._stays = [number for number in range(self._count) if number not in self._equal]
        block = func.regions[0].blocks[0]
        self.block, self.values = block, list(block.arguments)
        self._returned = list(terminator(block).operands)
        arguments = FunctionArguments(func, self.names)
        self.entries, self.numbers = arguments.attributes, arguments.numbers
        self._suffixes = [
            ir.StringAttr(entry[sdsc.HOST].label).value.removeprefix(name)
            for entry, name in zip(arguments.attributes, arguments.array_names, strict=True)
        ]
        self._index = {key: index for index, key in enumerate(zip(self.numbers, self._suffixes, strict=True))}

    def returned(self, number: int) -> ir.Value:
        """Return the value that the function returned for a kept result before layers were restored."""
        return self._returned[self._stays.index(number)]

    def argument(self, whole_number: int, like: int) -> ir.Value:
        """Return the argument of a host array with the same layout as argument ``like``; a new one if necessary."""
        key = whole_number, self._suffixes[like]
        if key not in self._index:
            self._index[key] = len(self.values)
            self.values.append(self.block.add_argument(self.values[like].type, self.values[like].location))
            self.numbers.append(whole_number)
            self._suffixes.append(self._suffixes[like])
            entry, name = self.entries[like], self._whole_attributes[whole_number]["spyre.name"]
            host: Any = entry[sdsc.HOST]
            label = ir.StringAttr.get(f"{ir.StringAttr(name).value}{self._suffixes[like]}")
            renamed = {**entry, "spyre.name": name, sdsc.HOST: type(host).get(label, host.kind, host.dtype)}
            self.entries.append({**renamed, sdsc.SOURCE: name} if sdsc.SOURCE in entry else renamed)
        return self.values[self._index[key]]

    def write(self) -> None:
        """Write arguments, in the order of the whole function, and results, both with their attributes."""
        # Arrays that passes added come last, and so do additional layouts of an array.
        order = sorted(
            range(len(self.values)),
            key=lambda index: (
                bool(self._suffixes[index]),
                len(self.names) if self.numbers[index] is None else self.numbers[index],
                self._suffixes[index],
                index,
            ),
        )
        entries = []
        for index in order:
            value, number, entry = self.values[index], self.numbers[index], self.entries[index]
            value.replace_all_uses_with(self.block.add_argument(value.type, value.location))
            if sdsc.UPDATED in entry and number is not None:
                # The index of the updating result in the whole function.
                entry = {**entry, sdsc.UPDATED: self._whole_attributes[number][sdsc.UPDATED]}
            entries.append(ir.DictAttr.get(entry))
        for _ in order:
            self.block.erase_argument(0)
        self.func.attributes["arg_attrs"] = ir.ArrayAttr.get(entries)
        end = terminator(self.block)
        returned = dict(zip(self._stays, end.operands, strict=True)) | self.results
        with ir.InsertionPoint(end), end.location:
            ir.Operation.create("func.return", operands=[returned[number] for number in range(self._count)])
        end.erase()
        if "res_attrs" in self.func.attributes:
            kept = dict(zip(self._stays, ir.ArrayAttr(self.func.attributes["res_attrs"]), strict=True))
            entries = []
            for number in range(self._count if kept else 0):
                # A restored result has the attributes of the result of an equal layer.
                attributes = ir.DictAttr(kept[self._equal.get(number, number)])
                entry = {named.name: named.attr for named in attributes}
                host = entry.get(sdsc.HOST)
                if host is not None:
                    entry[sdsc.HOST] = type(host).get(
                        ir.StringAttr.get(f"result{number}"), host.kind, host.dtype
                    )
                entries.append(ir.DictAttr.get(entry))
            if kept:
                self.func.attributes["res_attrs"] = ir.ArrayAttr.get(entries)
        set_function_type(self.func)
