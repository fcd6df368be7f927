# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs a laid-out function on numpy arrays with the memory that its buffers share.

A view is a numpy view, what a loop carries is one array, and what is put into a buffer is written there when it is
made: an operation that writes too early shows.
"""

from __future__ import annotations

import numpy as np

from spyre_mlir.dialects import sdsc
from spyre_mlir.dialects.structured import shape_of, structured
from spyre_mlir.mlir import ir

_FUNCTIONS = {"tanh": np.tanh, "add": np.add, "sub": np.subtract}


def run_with_aliases(func: ir.Operation, inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
    """The results of a function of pointwise operations; ``inputs`` by the name of the host array."""
    block = func.regions[0].blocks[0]
    machine = _Machine()
    for argument, entry in zip(block.arguments, func.attributes["arg_attrs"], strict=True):
        attrs = ir.DictAttr(entry)
        name = attrs[sdsc.SOURCE] if sdsc.SOURCE in attrs else attrs[sdsc.HOST].label
        machine.values[argument] = inputs[ir.StringAttr(name).value].copy()
        machine.values[argument].flags.writeable = False
    return [machine.values[value] for value in machine.run(block).operands]


class _Machine:
    def __init__(self) -> None:
        self.values: dict[ir.Value, np.ndarray | int] = {}

    def run(self, block: ir.Block) -> ir.Operation:
        """Runs a block; its last op."""
        for op in block.operations:
            getattr(self, "_" + op.operation.name.replace(".", "_"))(op.operation)
        return op.operation

    def _inputs(self, op: ir.Operation) -> list:
        return [self.values[value] for value in op.operands]

    def _write(self, op: ir.Operation, array: np.ndarray) -> None:
        """Write the result into the slice of the buffer that it is inserted into, or into a separate buffer."""
        result = op.results[0]
        takers = [use.owner.operation for use in result.uses if use.operand_number == 0]
        taker = next((user for user in takers if user.name == "tensor.insert_slice"), None)
        if taker is None:
            self.values[result] = array.copy()
            return
        self.values[result] = self._place(taker, self._buffer(taker.operands[1]), 2)
        self.values[result][...] = array

    def _buffer(self, value: ir.Value) -> np.ndarray:
        while value not in self.values:  # an insertion that is yet to come
            value = value.owner.operation.operands[1]
        return self.values[value]

    def _place(self, op: ir.Operation, buffer: np.ndarray, dynamic: int) -> np.ndarray:
        given = iter(op.operands[at] for at in range(dynamic, len(op.operands)))
        offsets = ir.DenseI64ArrayAttr(op.attributes["static_offsets"])
        starts = [self.values[next(given)] if start < 0 else start for start in offsets]
        sizes = ir.DenseI64ArrayAttr(op.attributes["static_sizes"])
        return buffer[tuple(slice(a, a + n) for a, n in zip(starts, sizes, strict=True))]

    def _arith_constant(self, op: ir.Operation) -> None:
        self.values[op.results[0]] = ir.IntegerAttr(op.attributes["value"]).value

    def _affine_apply(self, op: ir.Operation) -> None:
        factor = ir.AffineMapAttr(op.attributes["map"]).value.results[0].rhs.value
        self.values[op.results[0]] = self.values[op.operands[0]] * factor

    def _tensor_empty(self, op: ir.Operation) -> None:
        self.values[op.results[0]] = np.full(shape_of(op.results[0]), np.nan, np.float16)

    def _tensor_extract_slice(self, op: ir.Operation) -> None:
        self.values[op.results[0]] = self._place(op, self.values[op.operands[0]], 1)

    def _tensor_insert_slice(self, op: ir.Operation) -> None:
        part, buffer = self._inputs(op)[:2]
        assert np.shares_memory(part, buffer)
        self.values[op.results[0]] = buffer

    def _sdsc_clone(self, op: ir.Operation) -> None:
        self._write(op, self.values[op.operands[0]])

    _stick_restickify = _sdsc_clone

    def _linalg_generic(self, op: ir.Operation) -> None:
        generic = structured(op)
        arrays = [
            self.values[value] if dims == (0, 1) else self.values[value].T
            for value, dims in zip(generic.inputs, generic.maps, strict=False)
        ]
        self._write(op, _FUNCTIONS[generic.opcode](*arrays))

    def _scf_for(self, op: ir.Operation) -> None:
        first, last, step, *carried = self._inputs(op)
        variable, *arguments = op.regions[0].blocks[0].arguments
        for number in range(first, last, step):
            self.values |= {variable: number, **dict(zip(arguments, carried, strict=True))}
            end = self.run(op.regions[0].blocks[0])
            for buffer, following in zip(carried, self._inputs(end), strict=True):
                buffer[...] = following
        self.values |= dict(zip(op.results, carried, strict=True))

    def _scf_yield(self, op: ir.Operation) -> None:
        """Do nothing, because the loop reads the operands."""

    _func_return = _scf_yield
