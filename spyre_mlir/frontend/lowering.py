"""From the torch dialect to linalg on tensors: torch-mlir's pipeline as pass lists of our own.

torch-mlir's driver prints the module with all its data before each stage and sends diagnostics to stderr.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

from spyre_mlir.errors import CompileError
from spyre_mlir.mlir import PassManager, arith, ir, location_of

_TO_LINALG = (
    "func.func(torch-match-quantized-custom-ops,torch-reduce-op-variants{extra-library=},canonicalize,"
    "torch-decompose-complex-ops,torch-recompose-complex-ops,canonicalize)",
    "func.func(torch-restructure-non-constant-axes,torch-fuse-quantized-ops,canonicalize,"
    "convert-torch-to-linalg,canonicalize,convert-torch-to-scf,convert-torch-to-arith,convert-torch-to-tensor)",
)
_FINISH = (
    "convert-torch-conversion-to-mlprogram",
    "func.func(memref-expand,canonicalize,resolve-shaped-type-result-dims,cse)",
    "torch-func-backend-type-conversion",
    "func.func(canonicalize,torch-finalizing-backend-type-conversion)",
    "func.func(linalg-inline-scalar-operands,canonicalize,cse)",
)
_ATEN_OP = re.compile(r'"?torch\.((?:aten|prims|prim)\.[\w.]+)"?')


def lower_to_linalg(module: ir.Module) -> ir.Module:
    """Lower in place; an operation without a lowering is a CompileError at the line of the model."""
    _run(module, _TO_LINALG)
    for operation in _operations(module.operation):
        if (named := _ATEN_OP.match(operation.name)) is not None:
            raise CompileError(
                f"The PyTorch operation {named[1]} has no form in linalg.", location_of(operation.location)
            )
    _run(module, _FINISH)
    _clean(module)
    _run(module, ("func.func(canonicalize,cse)",))
    return module


def _run(module: ir.Module, passes: tuple[str, ...]) -> None:
    """Run passes with the diagnostics in the exception, not on stderr."""
    context = module.context
    emit, context.emit_error_diagnostics = context.emit_error_diagnostics, False
    try:
        with context:
            PassManager.parse(f"builtin.module({','.join(passes)})").run(module.operation)
    except ir.MLIRError as error:
        raise _compile_error(error) from error
    finally:
        context.emit_error_diagnostics = emit


def _compile_error(error: ir.MLIRError) -> CompileError:
    if not error.error_diagnostics:
        return CompileError(f"Lowering to linalg failed: {error}")
    first = error.error_diagnostics[0]
    if named := _ATEN_OP.search(first.message):
        message = f"The PyTorch operation {named[1]} has no form in linalg."
    else:
        message = f"The model cannot be lowered to linalg: {first.message}"
    return CompileError(message, location_of(first.location))


def _operations(operation: ir.Operation) -> Iterator[ir.Operation]:
    for region in operation.regions:
        for block in region.blocks:
            for inner in block.operations:
                yield inner.operation
                yield from _operations(inner.operation)


def _clean(module: ir.Module) -> None:
    """Refuse dynamic shapes; fold scalar constants; drop torch's attributes and the assertions in bodies.

    ``aten.reciprocal`` asserts that no element is 0, where PyTorch gives an infinity.
    """
    for operation in list(_operations(module.operation)):
        _check_static(operation)
        for name in [name for name in operation.attributes if name.startswith("torch.")]:
            del operation.attributes[name]
        if operation.name == "cf.assert":
            operation.erase()
        elif operation.name in ("arith.truncf", "math.sqrt"):
            _fold_scalar(operation)


def _check_static(operation: ir.Operation) -> None:
    for value in operation.results:
        if isinstance(value.type, ir.RankedTensorType) and not value.type.has_static_shape:
            raise CompileError(f"The shape of {value.type} is not static.", location_of(operation.location))


def _fold_scalar(operation: ir.Operation) -> None:
    """A rounding or a root of a scalar constant, which upstream folds only where it is exact.

    Torch writes an epsilon as f64 rounded in the body, and sqrt(2) in gelu as a root.
    """
    source = operation.operands[0].owner
    if isinstance(source, ir.Block) or source.name != "arith.constant":
        return
    number = ir.FloatAttr(source.attributes["value"]).value
    result_type = operation.results[0].type
    with source.location, ir.InsertionPoint(source):
        value = ir.FloatAttr.get(result_type, math.sqrt(number) if operation.name == "math.sqrt" else number)
        constant = arith.ConstantOp(result_type, value)
    operation.results[0].replace_all_uses_with(constant.result)
    operation.erase()
