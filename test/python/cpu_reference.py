# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The CPU reference: run a linalg module on numpy arrays with upstream's lowering and execution engine.

The reference is the oracle of the tests of all code that works on linalg. It is slow (naive loops, about 0.4 GFLOP/s)
and independent of our passes and of the evaluator in host/. It runs native code without bounds checks, so modules must
be trusted. numpy does not have bfloat16, so bfloat16 values are passed as their bits in uint16. Reductions accumulate
in order, in the type in the IR. Layouts and layout ops do not change values and are removed.
"""

from __future__ import annotations

import contextlib
import ctypes
import io
from collections.abc import Sequence
from typing import Any, SupportsInt

import numpy as np
from torch_mlir.execution_engine import ExecutionEngine
from torch_mlir.runtime import get_ranked_memref_descriptor

from spyre_mlir.errors import CompileError
from spyre_mlir.mlir import PassManager, ir, location_of, register_torch_passes
from spyre_mlir.target.element_types import ELEMENT_TYPES

# copy-before-write, and not eliminate-empty-tensors: torch-mlir's bufferization of tm_tensor leaves to_tensor
# without `restrict`. modify-public-functions: otherwise the results of @main are never written.
# refback-munge-memref-copy: the wheel does not have memrefCopy. Not refback-expand-ops-for-llvm: its erf is a
# polynomial in f16. bf16 is computed in f32 and rounded by integer operations: a processor without bf16 would call
# __truncsfbf2, which libgcc before 13 does not have.
_PASSES = (
    "func.func(canonicalize,cse)",
    "convert-shape-to-std",
    "func.func(refback-generalize-tensor-pad,refback-generalize-tensor-concat)",
    "func.func(tm-tensor-bufferize)",
    "func.func(empty-tensor-to-alloc-tensor)",
    "one-shot-bufferize{copy-before-write=true bufferize-function-boundaries=true "
    "function-boundary-type-conversion=identity-layout-map}",
    "buffer-results-to-out-params{modify-public-functions=true add-result-attr=true}",
    "buffer-deallocation-pipeline",
    "func.func(tm-tensor-to-loops,refback-munge-memref-copy)",
    "func.func(convert-linalg-to-loops,lower-affine)",
    "inline",
    "convert-scf-to-cf",
    "func.func(arith-emulate-unsupported-floats{source-types=bf16 target-type=f32},"
    "math-extend-to-supported-types{extra-types=f16 target-type=f32},memref-expand,arith-expand{include-bf16=true})",
    "expand-strided-metadata",
    "lower-affine",
    "func.func(math-expand-ops{ops=fpowi},convert-math-to-llvm)",
    "func.func(llvm-request-c-wrappers)",
    "convert-math-to-libm",
    "convert-math-to-funcs",
    "convert-bufferization-to-memref",
    "finalize-memref-to-llvm",
    "convert-arith-to-llvm",
    "convert-index-to-llvm",
    "convert-vector-to-llvm",
    "convert-cf-to-llvm",
    "convert-ub-to-llvm",
    "convert-func-to-llvm",
    "reconcile-unrealized-casts",
    "symbol-dce",
)
PIPELINE = f"builtin.module({','.join(_PASSES)})"

#: numpy types by MLIR element type, without 8-bit floats: upstream's lowering has no arithmetic on them.
_NUMPY = {
    name: element.storage.type
    for name, element in ELEMENT_TYPES.items()
    if element.storage is not None and not name.startswith("f8")
}


def _ops_named(module: ir.Module, *names: str) -> list[ir.Operation]:
    """Return the operations of the given names, in a list, because erasing an operation would break a walk."""
    named: list[ir.Operation] = []

    def visit(op: ir.Operation) -> ir.WalkResult:
        if op.name in names:
            named.append(op)
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit)
    return named


def _replace_our_ops(module: ir.Module) -> None:
    """Replace layout ops by their operands, and all ``sdsc.read_index`` by upstream's operations."""
    for op in _ops_named(module, "stick.pin", "stick.restickify"):
        source, result = op.operands[0], op.results[0]
        if source.type != result.type:  # one of the two types has a layout
            with ir.InsertionPoint(op), op.location:
                source = ir.Operation.create("tensor.cast", results=[result.type], operands=[source]).result
        result.replace_all_uses_with(source)
        op.erase()
    for op in _ops_named(module, "sdsc.read_index"):
        with ir.InsertionPoint(op), op.location:
            op.results[0].replace_all_uses_with(_plain_read(op))
        op.erase()


def _plain_read(op: ir.Operation) -> ir.Value:
    """Build the index that an ``sdsc.read_index`` reads; a negative index counts from the end. Callers check ranges."""
    index, source, boolean = ir.IndexType.get(), op.operands[0], ir.IntegerType.get_signless(1)
    type_ = ir.RankedTensorType(source.type)
    element, size = (
        ir.IntegerAttr(op.attributes["element"]).value,
        op.attributes["sdsc.index_bounds"]["upper"],
    )
    places = [_index(place) for place in np.unravel_index(element, tuple(type_.shape))]
    read = ir.Operation.create("tensor.extract", [type_.element_type], [source, *places]).result
    read = ir.Operation.create("arith.index_cast", [index], [read]).result
    behind = ir.Operation.create("arith.addi", [index], [read, _index(ir.IntegerAttr(size).value)]).result
    less = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), 2)  # arith's predicate slt
    is_negative = ir.Operation.create("arith.cmpi", [boolean], [read, _index(0)], {"predicate": less}).result
    return ir.Operation.create("arith.select", [index], [is_negative, behind, read]).result


def _index(value: SupportsInt) -> ir.Value:
    index = ir.IndexType.get()
    attributes = {"value": ir.IntegerAttr.get(index, int(value))}
    return ir.Operation.create("arith.constant", [index], attributes=attributes).result


def _shape_and_dtype(type_: ir.Type) -> tuple[tuple[int, ...], type]:
    if not isinstance(type_, ir.RankedTensorType) or not type_.has_static_shape:
        raise CompileError(f"The CPU reference takes and returns tensors of static shape, not {type_}.")
    if str(type_.element_type) not in _NUMPY:
        raise CompileError(f"The CPU reference has no numbers of the type {type_.element_type}.")
    return tuple(type_.shape), _NUMPY[str(type_.element_type)]


def _lower(module: ir.Module) -> ir.Module:
    """Lower a module to the LLVM dialect, in place."""
    register_torch_passes()
    try:
        with module.context:
            PassManager.parse(PIPELINE).run(module.operation)
    except ir.MLIRError as error:
        diagnostics = error.error_diagnostics
        reason = diagnostics[0].message if diagnostics else str(error)
        location = location_of(diagnostics[0].location) if diagnostics else ""
        raise CompileError(f"The CPU reference cannot lower the module: {reason}", location) from error
    return module


def _compiled(module: ir.Module) -> Any:
    """Compile a copy of a module for this machine; ``CompileError`` if an operation cannot be lowered."""
    bytecode = io.BytesIO()
    module.operation.write_bytecode(bytecode)
    lowered = ir.Module.parse(bytecode.getvalue(), module.context)
    _replace_our_ops(lowered)
    _lower(lowered)
    with contextlib.ExitStack() as stack:
        handler = lowered.context.attach_diagnostic_handler(lambda _: True)
        stack.callback(handler.detach)
        try:
            return ExecutionEngine(lowered, opt_level=0)
        except RuntimeError:
            reason = "Upstream's lowering to this machine leaves out an operation of this program."
            raise CompileError(reason) from None


class CpuReference:
    """A function of a linalg module, compiled for the CPU: ``CpuReference(module)(x, w) -> [y]``."""

    def __init__(self, module: ir.Module, function: str = "main") -> None:
        # Compiled f16 code calls conversions of libgcc, such as __truncdfhf2, so libgcc is loaded globally.
        try:
            getattr(ctypes.CDLL("libgcc_s.so.1", ctypes.RTLD_GLOBAL), "__truncdfhf2")
        except (OSError, AttributeError) as error:
            raise CompileError(
                "The CPU reference needs libgcc_s.so.1 of GCC 12 or later for 16-bit floats."
            ) from error
        self._name = function
        named = {
            ir.StringAttr(view.operation.attributes["sym_name"]).value: view.operation
            for view in module.body.operations
            if view.operation.name == "func.func"
        }
        if function not in named:
            raise CompileError(
                f"The module has no function @{function}.", location_of(module.operation.location)
            )
        signature = ir.FunctionType(ir.TypeAttr(named[function].attributes["function_type"]).value)
        self._inputs = [_shape_and_dtype(value) for value in signature.inputs]
        self._results = [_shape_and_dtype(value) for value in signature.results]
        self._engine = _compiled(module)

    @property
    def dtypes(self) -> list[np.dtype]:
        """The dtypes of the arguments, in order."""
        return [np.dtype(dtype) for _, dtype in self._inputs]

    @property
    def result_count(self) -> int:
        """The number of arrays that a call returns."""
        return len(self._results)

    def __call__(self, *arrays: np.ndarray) -> list[np.ndarray]:
        operands = self._checked(arrays)
        results = [np.zeros(shape, dtype) for shape, dtype in self._results]
        descriptors = [get_ranked_memref_descriptor(array) for array in (*operands, *results)]
        pointers = [ctypes.pointer(ctypes.pointer(descriptor)) for descriptor in descriptors]
        self._engine.invoke(self._name, *pointers)
        return results

    def _checked(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Check number, types and shapes of the arguments; return dense copies."""
        if len(arrays) != len(self._inputs):
            raise CompileError(f"@{self._name} takes {len(self._inputs)} arrays, not {len(arrays)}.")
        for index, (array, (shape, dtype)) in enumerate(zip(arrays, self._inputs, strict=True)):
            if not isinstance(array, np.ndarray) or array.shape != shape or array.dtype != dtype:
                is_array = isinstance(array, np.ndarray)
                actual = f"{array.dtype} {array.shape}" if is_array else type(array).__name__
                raise CompileError(
                    f"Argument {index} of @{self._name} is {np.dtype(dtype)} {shape}, not {actual}."
                )
        # np.array keeps rank 0, which np.ascontiguousarray does not.
        return [np.array(array, copy=True, order="C") for array in arrays]


def evaluate(module: ir.Module, function: str = "main") -> list[np.ndarray]:
    """Run a function without arguments and return its results."""
    return CpuReference(module, function)()
