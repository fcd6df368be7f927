# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Names of operations in layers that come back: those that ``name-operations`` gives in the whole function."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from spyre_mlir.analysis.operation_sequence import OperationSequence
from spyre_mlir.analysis.planned_layers import LayerWindow
from spyre_mlir.dialects import sdsc
from spyre_mlir.mlir import ir

#: What operations are called by, their number among those, and what passes made of the operation.
_NAME = re.compile(r"(?P<stem>.*?)\.(?P<number>\d+)(?P<part>/.*)?")


class LayerNames:
    """How names go on from layer to layer: by the number of operations of the same stem that a layer has.

    What is called by an argument of a layer, as ``w/clone.0``, has the name of the argument so many layers on, which
    ``arguments`` tells: by name those of all layers, and the layer of this one.
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
        """Give an operation, and those in its regions, the names of those so many layers on."""
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
    """Yield the operations with a name among an operation and those in its regions."""
    if sdsc.NAME in op.attributes:
        yield op
    if op.name == "scf.for":
        for inner in op.regions[0].blocks[0].operations:
            yield from _named(inner.operation)


def _name(op: ir.Operation) -> str:
    return ir.StringAttr(op.attributes[sdsc.NAME]).value
