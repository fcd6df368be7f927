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

from spyre_mlir.errors import CompileError
from spyre_mlir.mlir import (
    PassManager,
    execution_engine,
    ir,
    location_of,
    memref_descriptor,
    register_torch_passes,
)
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


def _load_half_conversions() -> None:
    """Load libgcc globally, because compiled f16 code calls its conversions, such as __truncdfhf2."""
    try:
        ctypes.CDLL("libgcc_s.so.1", ctypes.RTLD_GLOBAL).__truncdfhf2  # noqa: B018
    except (OSError, AttributeError) as error:
        raise CompileError(
            "The CPU reference needs libgcc_s.so.1 of GCC 12 or later for 16-bit floats."
        ) from error


def _clone(module: ir.Module) -> ir.Module:
    """Copy a module, because the lowering changes it in place."""
    bytecode = io.BytesIO()
    module.operation.write_bytecode(bytecode)
    return ir.Module.parse(bytecode.getvalue(), module.context)


def _without_layout_ops(module: ir.Module) -> ir.Module:
    """Replace the results of all ``stick.pin`` and ``stick.restickify`` by their operands, in place."""
    layout_ops: list[ir.Operation] = []

    def visit(op: ir.Operation) -> ir.WalkResult:
        if op.name in ("stick.pin", "stick.restickify"):
            layout_ops.append(op)
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit)
    for op in layout_ops:  # after the walk, which an erased op would break
        source, result = op.operands[0], op.results[0]
        if source.type != result.type:  # one of the two types has a layout
            with ir.InsertionPoint(op), op.location:
                source = ir.Operation.create("tensor.cast", results=[result.type], operands=[source]).result
        result.replace_all_uses_with(source)
        op.erase()
    return module


def _without_index_reads(module: ir.Module) -> ir.Module:
    """Replace all ``sdsc.read_index`` by upstream's operations, in place."""
    reads: list[ir.Operation] = []

    def visit(op: ir.Operation) -> ir.WalkResult:
        if op.name == "sdsc.read_index":
            reads.append(op)
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit)
    for op in reads:
        with ir.InsertionPoint(op), op.location:
            op.results[0].replace_all_uses_with(_plain_read(op))
        op.erase()
    return module


def _plain_read(op: ir.Operation) -> ir.Value:
    """Build the index that an ``sdsc.read_index`` reads; a negative index counts from the end. Callers check ranges."""
    index, source = ir.IndexType.get(), op.operands[0]
    type_ = ir.RankedTensorType(source.type)
    element, size = (
        ir.IntegerAttr(op.attributes["element"]).value,
        op.attributes["sdsc.index_bounds"]["upper"],
    )
    places = [_index(place) for place in np.unravel_index(element, tuple(type_.shape))]
    read = ir.Operation.create("tensor.extract", [type_.element_type], [source, *places]).result
    read = ir.Operation.create("arith.index_cast", [index], [read]).result
    behind = ir.Operation.create("arith.addi", [index], [read, _index(ir.IntegerAttr(size).value)]).result
    return ir.Operation.create("arith.select", [index], [_is_negative(read), behind, read]).result


def _is_negative(value: ir.Value) -> ir.Value:
    less = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), 2)  # arith's predicate slt
    boolean = ir.IntegerType.get_signless(1)
    operands = [value, _index(0)]
    return ir.Operation.create("arith.cmpi", [boolean], operands, {"predicate": less}).result


def _index(value: SupportsInt) -> ir.Value:
    index = ir.IndexType.get()
    attributes = {"value": ir.IntegerAttr.get(index, int(value))}
    return ir.Operation.create("arith.constant", [index], attributes=attributes).result


def _function(module: ir.Module, name: str) -> ir.Operation:
    for op in (view.operation for view in module.body.operations):
        if op.name == "func.func" and ir.StringAttr(op.attributes["sym_name"]).value == name:
            return op
    raise CompileError(f"The module has no function @{name}.", location_of(module.operation.location))


def _tensor_type(value: ir.Type) -> ir.RankedTensorType:
    if not isinstance(value, ir.RankedTensorType) or not value.has_static_shape:
        raise CompileError(f"The CPU reference takes and gives tensors of static shape, not {value}.")
    if str(value.element_type) not in _NUMPY:
        raise CompileError(f"The CPU reference has no numbers of the type {value.element_type}.")
    return value


def _engine(lowered: ir.Module) -> Any:
    """Compile a lowered module for this machine; ``CompileError`` if the lowering is incomplete."""
    context = lowered.context
    with contextlib.ExitStack() as stack:
        handler = context.attach_diagnostic_handler(lambda _: True)
        stack.callback(handler.detach)
        try:
            return execution_engine(lowered)
        except RuntimeError:
            reason = "Upstream's lowering to this machine leaves out an operation of this program."
            raise CompileError(reason) from None


class CpuReference:
    """A function of a linalg module, compiled for the CPU: ``CpuReference(module)(x, w) -> [y]``."""

    def __init__(self, module: ir.Module, function: str = "main") -> None:
        _load_half_conversions()
        self._name = function
        signature = ir.FunctionType(
            ir.TypeAttr(_function(module, function).attributes["function_type"]).value
        )
        self._inputs = [_shape_and_dtype(_tensor_type(value)) for value in signature.inputs]
        self._results = [_shape_and_dtype(_tensor_type(value)) for value in signature.results]
        self._engine = _engine(_lower(_without_index_reads(_without_layout_ops(_clone(module)))))

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
        descriptors = [memref_descriptor(array) for array in (*operands, *results)]
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


def _shape_and_dtype(tensor: ir.RankedTensorType) -> tuple[tuple[int, ...], type]:
    return tuple(tensor.shape), _NUMPY[str(tensor.element_type)]


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


def evaluate(module: ir.Module, function: str = "main") -> list[np.ndarray]:
    """Run a function without arguments and return its results."""
    return CpuReference(module, function)()
