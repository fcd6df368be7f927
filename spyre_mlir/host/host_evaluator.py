# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Evaluation of linalg functions on numpy arrays: host functions, constants, and the reference of ``--check``.

A function is a list of numpy kernels, built by a rule per op. Only ops in the tables of rules can run: an op without a
rule, another symbol or a type without a bound is a ``CompileError`` when the evaluator is built, so a file from an
untrusted source can only compute. Indices, divisors and loops are checked during the run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spyre_mlir.errors import CompileError, FailedAssertionError
from spyre_mlir.host import scalar_ops, structured_ops, tensor_ops, torch_kernels
from spyre_mlir.host.block import BlockScope, Frame, Kernel, failure, integer, only_block
from spyre_mlir.host.number_types import is_tensor, number_type, tensor_shape
from spyre_mlir.mlir import ir, location_of, source_note

# Rules for control flow of ``scf``, and for assertions.


def for_rule(op: ir.Operation, scope: BlockScope) -> Kernel:
    """Rule for ``scf.for``: the body runs for each index from the lower to the upper bound, on its iter_args."""
    body = scope.block(only_block(op), "scf.yield", op)

    def kernel(
        frame: Frame, lower: NDArray[Any], upper: NDArray[Any], step: NDArray[Any], *iter_args: NDArray[Any]
    ) -> list[NDArray[Any]]:
        """Run the loop; return the yielded values of its last iteration."""
        bounds = [integer(bound) for bound in (lower, upper, step)]
        if bounds[2] < 1:
            raise failure(op, f"has the step {bounds[2]}")
        values = list(iter_args)
        for index in range(*bounds):
            # Bounds are data, so a loop can be stopped only while it runs.
            frame.charge(op, body)
            values = body.run(frame, [np.array(index, dtype=np.asarray(lower).dtype), *values])
        return values

    return kernel


def if_rule(op: ir.Operation, scope: BlockScope) -> Kernel:
    """Rule for ``scf.if``, whose else region may be missing if it has no results."""
    chosen = scope.block(only_block(op, 0), "scf.yield", op)
    has_other = len(list(op.regions[1].blocks)) > 0
    if not has_other and len(op.results):
        raise failure(op, "has results but no else")
    other = scope.block(only_block(op, 1), "scf.yield", op) if has_other else None

    def kernel(frame: Frame, condition: NDArray[Any]) -> list[NDArray[Any]]:
        branch = chosen if integer(condition) else other
        return [] if branch is None else branch.run(frame)

    return kernel


def while_rule(op: ir.Operation, scope: BlockScope) -> Kernel:
    """Rule for ``scf.while``: while the first region's condition holds, the second computes new iter_args."""
    before = scope.block(only_block(op, 0), "scf.condition", op)
    after = scope.block(only_block(op, 1), "scf.yield", op)

    def kernel(frame: Frame, *iter_args: NDArray[Any]) -> list[NDArray[Any]]:
        """Run the loop; return the values that the first region passes on when its condition fails."""
        values = list(iter_args)
        while True:
            frame.charge(op, before)
            condition, *passed = before.run(frame, values)
            if not integer(condition):
                return passed
            frame.charge(op, after)
            values = after.run(frame, passed)

    return kernel


def assert_rule(op: ir.Operation, scope: BlockScope) -> Kernel:
    """Rule for ``cf.assert``: ``FailedAssertionError`` with its message if the condition fails."""
    message = ir.StringAttr(op.attributes["msg"]).value

    def kernel(frame: Frame, condition: NDArray[Any]) -> tuple[()]:
        if not np.all(condition):
            place = location_of(op.location), "", source_note(op.location, "module")
            raise FailedAssertionError(f"An assertion does not hold: {message.rstrip('.')}.", *place)
        return ()

    return kernel


RULES = {
    **scalar_ops.RULES,
    **tensor_ops.RULES,
    **structured_ops.RULES,
    "scf.for": for_rule,
    "scf.if": if_rule,
    "scf.while": while_rule,
    "cf.assert": assert_rule,
    **torch_kernels.RULES,
}


class HostEvaluator:
    """``HostEvaluator(module)(x, w) -> [y]``: the one function of a module, on arrays of the signature's shapes.

    Sums are accumulated in float64; powers and roots of 16-bit floats in float32, and rounded at an op's result.
    bfloat16 is passed as bits in uint16. Raises ``CompileError`` for an op without a rule, and on a call for arrays of
    other shapes, an index out of bounds, an integer division by 0, a failed assertion, or an endless loop.
    """

    def __init__(self, module: ir.Module | ir.OpView | ir.Operation) -> None:
        # The ops live as long as the module does.
        self._module = module
        ops = [entry.operation for entry in module.operation.regions[0].blocks[0].operations]
        other = next((op for op in ops if op.name != "func.func"), None)
        if other is not None:
            raise failure(other, "is not allowed in the module of a host function, which is one func.func")
        if len(ops) != 1 or not ops[0].regions[0].blocks:
            where = location_of(module.operation.location)
            raise CompileError("The module of a host function is one function with a body.", where)
        (self._func,) = ops
        signature = ir.FunctionType(ir.TypeAttr(self._func.attributes["function_type"]).value)
        self._inputs = [_tensor(type_, self._func) for type_ in signature.inputs]
        self._results = [_tensor(type_, self._func) for type_ in signature.results]
        scope = BlockScope(RULES)
        self._body = scope.block(only_block(self._func), "func.return", self._func)
        self._slots = len(scope.slots)

    @property
    def work(self) -> int:
        """The scalar operations of a call; each loop counts once."""
        return self._body.work

    def __call__(self, *arrays: NDArray[Any]) -> list[NDArray[Any]]:
        self._check(arrays)
        numbers = [number_type(type_) for type_ in self._inputs]
        operands = [number.from_host(array) for number, array in zip(numbers, arrays, strict=True)]
        # Infinities and NaN are results and not warnings, as in PyTorch.
        with np.errstate(all="ignore"):
            try:
                results = self._body.run(Frame([None] * self._slots), operands)
            except MemoryError as error:
                raise failure(self._func, "needs more memory than there is") from error
        return [
            number_type(type_).to_host(array) for type_, array in zip(self._results, results, strict=True)
        ]

    def _check(self, arrays: Sequence[NDArray[Any]]) -> None:
        name = ir.StringAttr(self._func.attributes["sym_name"]).value
        if len(arrays) != len(self._inputs):
            raise CompileError(f"@{name} takes {len(self._inputs)} arrays, not {len(arrays)}.")
        for index, (array, type_) in enumerate(zip(arrays, self._inputs, strict=True)):
            shape, dtype = tensor_shape(type_), number_type(type_).host
            if not isinstance(array, np.ndarray) or array.shape != shape or array.dtype != dtype:
                actual = (
                    f"{array.dtype} {array.shape}" if isinstance(array, np.ndarray) else type(array).__name__
                )
                raise CompileError(f"Argument {index} of @{name} is {dtype} {shape}, not {actual}.")


def evaluate(module: ir.Module) -> list[NDArray[Any]]:
    """Return the results of a function without arguments."""
    return HostEvaluator(module)()


def _tensor(type_: ir.Type, func: ir.Operation) -> ir.Type:
    """Return a type of the signature, which must be a tensor of static shape and of a number type of the host."""
    if not is_tensor(type_):
        raise failure(func, f"takes and returns tensors, not {type_}")
    try:
        tensor_shape(type_)
        number_type(type_)
    except CompileError as error:
        raise CompileError(error.message, location_of(func.location)) from error
    return type_


_UNCOUNTED = {"arith.constant", "tensor.empty", "linalg.fill", "func.return"}


class HostFunction(HostEvaluator):
    """``HostFunction(module)(x, indices) -> [y]``: the function @main of a module.

    Arrays have the types of the simulator: bfloat16 is given as float32 numbers or bits in uint16, and returned as
    bits. Raises ``CompileError`` for an unsupported host function, and for a call that fails.
    """

    def __init__(self, module: ir.Module) -> None:
        self.module = module
        super().__init__(module)

    def __call__(self, *arrays: NDArray[Any]) -> list[NDArray[Any]]:
        dtypes = [number_type(type_).host for type_ in self._inputs]
        return super().__call__(*(as_bits(array, type_) for array, type_ in zip(arrays, dtypes, strict=True)))

    @property
    def counts(self) -> tuple[int, int]:
        """The number of arguments and the number of results."""
        return len(self._inputs), len(self._results)

    @property
    def operations(self) -> int:
        """The number of ops that compute or move tensors, without constants and empty tensors."""
        body = self.module.body.operations[0].regions[0].blocks[0].operations
        return sum(op.operation.name not in _UNCOUNTED for op in body)

    def text(self) -> str:
        """The text of the module, with its locations."""
        return str(self.module.operation.get_asm(enable_debug_info=True)) + "\n"


def as_bits(array: NDArray[Any], dtype: np.dtype) -> NDArray[Any]:
    """Return a float32 array as bfloat16 bits if ``dtype`` is uint16; the simulator only returns exact numbers."""
    if dtype == np.uint16 and array.dtype == np.float32:
        return np.asarray(np.asarray(array).view(np.uint32) >> np.uint32(16), dtype=np.uint16)
    return np.asarray(array)
