# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A program of an operation as a function of storages: what each call would derive again is kept.

The key of a program in the cache of eager mode has the layouts and dtypes of its operands, so a call checks neither. A
program is prepared if it takes storages in layouts, returns new tensors and changes nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from spyre_mlir.driver.program import Program
from spyre_mlir.errors import CompileError
from spyre_mlir.frontend.call_objects import CallOutcome, CallOutcomeForm
from spyre_mlir.frontend.operations import OperationResults, ResultPlace, dense_layout
from spyre_mlir.frontend.signature import Signature, View, to_numpy
from spyre_mlir.layout import StickLayout
from spyre_mlir.tensors.device_tensor import DeviceTensor, Storage, host_type

#: What makes a tensor of the device of the arrays that a program returns.
_Maker = Callable[[Sequence[NDArray[Any]]], DeviceTensor]


class PreparedCall:
    """A call of a program on storages and numbers."""

    def __init__(self, program: Program, inputs: Sequence[tuple[str, int]], makers: Sequence[_Maker]) -> None:
        self._program, self._inputs, self._makers = program, inputs, makers

    @classmethod
    def of(
        cls,
        program: Program,
        results: OperationResults,
        layouts: Sequence[StickLayout | None],
        storages: Sequence[Storage],
    ) -> PreparedCall | None:
        """Prepare the call of a program that ran once on these storages; None if the program does more than that."""
        signature = program.signature
        if not isinstance(signature, Signature) or not _returns_its_results(signature) or program.state:
            return None
        if any(storage.form is None for storage in storages) or len(layouts) != len(results.places):
            return None
        if any(
            argument.kind == "input" and (argument.leaf is None or argument.part)
            for argument in signature.arguments
        ):
            return None
        # Results that share a storage are made together.
        if len({place.storage for place in results.places if place is not None}) < len(results.places):
            return None
        makers = [
            _maker(index, place, layout, str(signature.results[cast(int, cast(View, leaf).base)].dtype)[6:])
            for index, (place, layout, leaf) in enumerate(
                zip(results.places, layouts, signature.leaves, strict=True)
            )
        ]
        if any(maker is None for maker in makers):
            return None
        order = [cast(int, cast(View, leaf).base) for leaf in signature.leaves]
        if order != list(range(len(signature.results))):
            return None
        inputs = [
            (argument.name, cast(int, argument.leaf))
            for argument in signature.arguments
            if argument.kind == "input"
        ]
        return cls(program, inputs, cast(list[_Maker], makers))

    def __call__(self, storages: Sequence[Storage], numbers: Sequence[Any]) -> list[Any]:
        """Run the program; return its results on the device."""
        count = len(storages)
        arrays = {
            name: storages[leaf].read() if leaf < count else to_numpy(numbers[leaf - count])
            for name, leaf in self._inputs
        }
        if self._program.arrays:
            arrays = {**self._program.arrays, **arrays}
        made = self._program.run(arrays)
        return [maker(made) for maker in self._makers]


def _returns_its_results(signature: Signature) -> bool:
    """Return whether a call returns a list of the results of the program, and changes nothing."""
    form = signature.output_tree.context
    if (
        signature.updates
        or signature.numbers
        or signature.random
        or signature.output_tree.type is not CallOutcome
    ):
        return False
    if not isinstance(form, CallOutcomeForm) or form.changes or (form.effect and form.effect.acts):
        return False
    graph = form.graph
    is_list = len(graph.nodes) == 1 and graph.nodes[0].kind is list
    parts = [part for _, part in graph.nodes[0].parts] if is_list else []
    return (
        is_list
        and [(part.kind, part.value) for part in parts] == [("leaf", i) for i in range(len(signature.leaves))]
        and all(
            isinstance(leaf, View) and isinstance(leaf.base, int) and not leaf.steps
            for leaf in signature.leaves
        )
    )


def _maker(index: int, place: ResultPlace | None, layout: StickLayout | None, dtype: str) -> _Maker | None:
    """Return what makes the tensor of one result; None for a result in memory that is not its own and dense."""
    if place is None or not place.is_new or layout is None or (dense := dense_layout(place, layout)) is None:
        return None
    (form, order), kind, shape = dense, host_type(dtype), place.strided.shape
    shared = DeviceTensor.of(Storage(form, dtype, np.zeros(0, np.uint8)), place.strided)
    strided, steps = shared.strided, shared.steps

    def made(arrays: Sequence[NDArray[Any]]) -> DeviceTensor:
        """Tensor of the device with the numbers of a result."""
        array = arrays[index]
        if array.dtype != kind:
            raise CompileError(f"A result has numbers of {array.dtype}, not of {kind}.")
        storage = Storage(form, dtype, np.zeros(form.bytes, np.uint8))
        storage.write(np.ascontiguousarray(array.reshape(shape).transpose(order)))
        return DeviceTensor.viewing(storage, strided, steps)

    return made
