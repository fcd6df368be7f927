# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Copies of the window of a planned layer, each with the arguments, results and locations of a layer of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field

from spyre_mlir.analysis.operation_sequence import OperationSequence, Read
from spyre_mlir.analysis.planned_layers import (
    FoldedLayers,
    FunctionArguments,
    LayerResult,
    LayerWindow,
    windows,
)
from spyre_mlir.dialects.structured import defining_op
from spyre_mlir.mlir import ir
from spyre_mlir.records import dataclass
from spyre_mlir.rewriting.layer_names import LayerNames
from spyre_mlir.rewriting.outlining import read_by, replace_operands
from spyre_mlir.rewriting.unfolded_boundary import UnfoldedBoundary


@dataclass(frozen=True)
class LayerTemplate:
    """A function whose layers stand for all, with the window of each repetition that copies are made of."""

    sequence: OperationSequence
    arguments: FunctionArguments
    windows: Sequence[LayerWindow]

    @classmethod
    def of(
        cls, func: ir.Operation, repetitions: Sequence[FoldedLayers], names: Mapping[str, int]
    ) -> LayerTemplate | None:
        """Return a function with its windows; None if a repetition has none."""
        sequence = OperationSequence(func.regions[0].blocks[0])
        arguments = FunctionArguments(func, names)
        chosen = windows(sequence, repetitions, arguments)
        return None if chosen is None else cls(sequence, arguments, chosen)


@dataclass(frozen=True)
class LayerUnfolding:
    """A planned function without most of its layers, on the way back to all.

    ``shifted`` are functions of which each planned the very layer of one copy; without them all are copies of ``main``.
    """

    repetitions: Sequence[FoldedLayers]
    boundary: UnfoldedBoundary
    main: LayerTemplate
    shifted: Sequence[LayerTemplate]
    #: What stands for a value of a window behind the copies of that.
    latest: dict[ir.Value, ir.Value] = field(default_factory=dict)

    @classmethod
    def of(
        cls, funcs: Sequence[ir.Operation], whole: ir.Operation, repetitions: Sequence[FoldedLayers]
    ) -> LayerUnfolding | None:
        """Return the unfolding of the first function to the whole one, by the windows of the others.

        None if one is not planned alike from layer to layer.
        """
        boundary = UnfoldedBoundary(funcs[0], whole, repetitions)
        planned = [LayerTemplate.of(func, repetitions, boundary.names) for func in funcs]
        functions = [function for function in planned if function is not None]
        if len(functions) < len(funcs) or any(
            function.windows != functions[0].windows for function in functions
        ):
            return None
        return cls(repetitions, boundary, functions[0], functions[1:])

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
        self.names = LayerNames(self.main.sequence, window, self._argument_names())
        # Before anything is inserted: what stands behind the window is of the last layers from now on.
        self.later_uses = self._later_uses()

    def insert(self) -> None:
        """Insert the copies behind the window, and let what follows them read the last one."""
        window, results = self.window, dict[Read, ir.Value]()
        for item in range(window.first, window.end):
            for number, value in enumerate(self.main.sequence.items[item].results):
                results[Read(item, number)] = value
        copies = [results]
        for copy in range(1, self.layers.copies + 1):
            copies.append(self._copy(copy, copies[-1]))
        self._return_results(copies)
        self._shift_what_follows(copies)

    def _copy(self, copy: int, before: Mapping[Read, ir.Value]) -> dict[Read, ir.Value]:
        """Insert one copy; return its values by what they are in the window."""
        sequence = self._template(copy).sequence
        begin, end = sequence.positions[self.window.first], sequence.positions[self.window.end]
        behind = self.main.sequence.items[self.window.end]
        values = self._operands(copy, before)
        ops = sequence.block_ops[begin:end]
        self._clone(ops, copy, behind, values)
        results = (value for op in ops for value in op.results)
        reads = ((sequence.read_of(value), value) for value in results)
        return {read: values[value] for read, value in reads if read.index is not None}

    def _clone(
        self, ops: Sequence[ir.Operation], copy: int, behind: ir.Operation, values: dict[ir.Value, ir.Value]
    ) -> None:
        """Insert clones in front of an operation that read ``values`` in place of the keys, and add their results."""
        template = self._template(copy)
        for op in ops:
            if template is not self.main:
                self._clone_constants(op, template, behind, values)
            clone = op.clone(ir.InsertionPoint(behind)).operation
            replace_operands(clone, values)
            if template is self.main:
                clone.location = self.layers.shifted(op.location, copy)
                self.names.shift(clone, copy)
            values.update(zip(op.results, clone.results, strict=True))

    def _template(self, copy: int) -> LayerTemplate:
        shifted = self.unfolding.shifted
        return shifted[copy - 1] if shifted else self.main

    def _clone_constants(
        self,
        op: ir.Operation,
        template: LayerTemplate,
        behind: ir.Operation,
        values: dict[ir.Value, ir.Value],
    ) -> None:
        """Insert clones of the constants that an operation of another function reads."""
        for value in read_by(op):
            producer = defining_op(value)
            if value in values or producer is None or template.sequence.read_of(value).constant is None:
                continue
            self._clone_constants(producer, template, behind, values)
            clone = producer.clone(ir.InsertionPoint(behind)).operation
            replace_operands(clone, values)
            values[value] = clone.results[0]

    def _operands(self, copy: int, before: Mapping[Read, ir.Value]) -> dict[ir.Value, ir.Value]:
        """Return what a copy reads in place of each value from outside that the window of its template reads."""
        template, window, values = self._template(copy), self.window, dict[ir.Value, ir.Value]()
        reads = self.main.sequence.reads
        for item in range(window.first, window.end):
            corresponding = zip(reads[item], reads[item + window.period], strict=True)
            for value, (read, other) in zip(template.sequence.values[item], corresponding, strict=True):
                if read.is_argument:
                    values[value] = self._argument(read.number, copy)
                elif read.index is not None and read.index < window.first:
                    # The same place in the window before, unless all windows read one value.
                    common = self.main.sequence.value_of(read)
                    values[value] = (
                        self.unfolding.latest.get(common, common) if read == other else before[other]
                    )
        return values

    def _argument(self, number: int, layers: int) -> ir.Value:
        """Return the argument that stands for argument ``number`` so many layers on."""
        argument = self.layer_arguments.get(number)
        if argument is None:
            return self.main.sequence.arguments[number]
        whole_number = self.layers.arguments[argument.column][argument.layer + layers]
        return self.boundary.argument(whole_number, number)

    def _argument_names(self) -> dict[str, tuple[Sequence[str], int]]:
        """Return for the name of each argument of one layer those of all layers, and its layer."""
        whole = list(self.boundary.names)
        columns = [[whole[number] for number in column] for column in self.layers.arguments]
        return {
            self.main.arguments.array_names[number]: (columns[argument.column], argument.layer)
            for number, argument in self.layer_arguments.items()
        }

    def _later_uses(self) -> list[tuple[ir.Value, ir.Operation, int]]:
        """Return the operands behind the window that are of the window, or of one layer: value, operation, index."""
        sequence, window = self.main.sequence, self.window
        values = [value for item in sequence.items[window.first : window.end] for value in item.results]
        values += [sequence.arguments[number] for number in self.layer_arguments]
        return [
            (value, use.owner.operation, use.operand_number)
            for value in values
            for use in value.uses
            if self._is_behind(use.owner.operation)
        ]

    def _is_behind(self, op: ir.Operation) -> bool:
        """Return whether an operation, or the one of the function that it is in, is of what stands behind the layer."""
        while op.parent.operation.name != "func.func":
            op = op.parent.operation
        if not op.results:
            return True
        read = self.main.sequence.read_of(op.results[0])
        return read.index is None or (
            read.index >= self.window.end and read.index not in self.window.epilogues
        )

    def _shift_what_follows(self, copies: Sequence[Mapping[Read, ir.Value]]) -> None:
        """Let what stands behind the window read the last copy and the arguments of the last layers."""
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

    def _return_results(self, copies: Sequence[Mapping[Read, ir.Value]]) -> None:
        """Return what each layer returns."""
        for column, result in zip(self.layers.results, self.window.results, strict=True):
            stays = [self.boundary.returned(number) for number in column[: self.layers.kept]]
            behind = result.layer + 1
            middle = [
                self._returned(result, copy, values[result.origin])
                for copy, values in enumerate(copies[1:], 1)
            ]
            values = [*stays[:behind], *middle, *stays[behind:]]
            self.boundary.results.update(zip(column, values, strict=True))

    def _returned(self, result: LayerResult, copy: int, value: ir.Value) -> ir.Value:
        """Return the result of a copy, for which the operations between the layer and the return are cloned."""
        chain = result.chains[result.layer]
        if not chain:
            return value
        sequence = self._template(copy).sequence
        ops = [sequence.items[index] for index in chain]
        origin = sequence.value_of(result.origin)
        values = {origin: value}
        # In the order of layers: in front of what the next one returns.
        position = self.main.sequence.positions[chain[-1]]
        self._clone(ops, copy, self.main.sequence.block_ops[position + 1], values)
        return values[ops[-1].results[0]]
