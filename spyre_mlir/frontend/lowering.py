# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Lowering of the torch dialect to linalg on tensors: torch-mlir's pipeline as pass lists of our own.

torch-mlir's driver prints the module with all its data before each stage and sends diagnostics to stderr.
"""

from __future__ import annotations

import re

from spyre_mlir.diagnostics import compile_error
from spyre_mlir.frontend.cleaning import clean, operations
from spyre_mlir.frontend.kernel_calls import UnloweredError, nodes_of
from spyre_mlir.mlir import PassManager, ir, location_of, source_note

_TO_LINALG = (
    "func.func(torch-match-quantized-custom-ops,torch-reduce-op-variants{extra-library=},canonicalize,"
    "torch-decompose-complex-ops,torch-recompose-complex-ops,canonicalize)",
    "func.func(torch-restructure-non-constant-axes,torch-fuse-quantized-ops,convert-torch-to-tmtensor,"
    "canonicalize,convert-torch-to-linalg)",
    "func.func(canonicalize,convert-torch-to-scf,convert-torch-to-arith,convert-torch-to-tensor)",
)
_FINISH = (
    "convert-torch-conversion-to-mlprogram,func.func(memref-expand,canonicalize,resolve-shaped-type-result-dims,cse),"
    "torch-func-backend-type-conversion,func.func(canonicalize,torch-finalizing-backend-type-conversion,canonicalize,cse)",
)
_ATEN_OP = re.compile(r'"?torch\.((?:aten|prims|prim)\.[\w.]+)"?')

#: What the bindings print behind a sentence: the operation in MLIR.
_IR = re.compile(r": (?=%|\(!|\")|\n")


def lower_to_linalg(module: ir.Module) -> ir.Module:
    """Lower a module in place; an operation without a lowering is an ``UnloweredError`` at the line of the model."""
    _run(module, _TO_LINALG)
    # Before the last passes: an operation without a lowering still has its PyTorch name here.
    unlowered = [
        (named[1], operation)
        for operation in operations(module.operation)
        if (named := _ATEN_OP.match(operation.name))
    ]
    if unlowered:
        name, first = unlowered[0]
        nodes = frozenset(node for _, operation in unlowered for node in nodes_of(operation.location))
        unlowered = UnloweredError(
            f"The PyTorch operation {name} has no form in linalg.", location_of(first.location), nodes
        )
        unlowered.module = source_note(first.location, "module")
        raise unlowered
    _run(module, _FINISH)
    clean(module)
    # Cleaning leaves constants that were folded into others without a use.
    _run(module, ("func.func(canonicalize,cse)",))
    return module


def load_conversion_dialect(context: ir.Context) -> None:
    """Load ``torch_c``, the casts between torch's types and tensors.

    The bindings cannot name it; a pass that makes such casts loads it, whatever it runs on.
    """
    with ir.Location.unknown(context):
        _run(ir.Module.create(), ("func.func(convert-torch-to-linalg)",))


def _run(module: ir.Module, passes: tuple[str, ...]) -> None:
    """Run passes with the diagnostics in the exception, not on stderr; the module is verified after each list."""
    context = module.context
    emit, context.emit_error_diagnostics = context.emit_error_diagnostics, False
    try:
        with context:
            for names in passes:
                manager = PassManager.parse(f"builtin.module({names})")
                # After each pass it would take as long as the passes.
                manager.enable_verifier(False)
                manager.run(module.operation)
                module.operation.verify()
    except ir.MLIRError as error:
        raise _named_operation(error) from error
    finally:
        context.emit_error_diagnostics = emit


def _named_operation(error: ir.MLIRError) -> UnloweredError:
    """First diagnostic as a sentence about the PyTorch operation that it names."""
    diagnostic = compile_error(error, f"Lowering to linalg failed: {error}")
    if named := _ATEN_OP.search(diagnostic.message):
        message = f"The PyTorch operation {named[1]} has no form in linalg."
    else:
        message = f"The model cannot be lowered to linalg: {_IR.split(diagnostic.message)[0]}."
    unlowered = UnloweredError(message, diagnostic.location, _nodes_of_error(error))
    unlowered.operation, unlowered.module = diagnostic.operation, diagnostic.module
    return unlowered


def _nodes_of_error(error: ir.MLIRError) -> frozenset[str]:
    """Names of the nodes that the first diagnostic is about."""
    for diagnostic in error.error_diagnostics[:1]:
        # The bindings return the location as the base class; built from its attribute it has its derived class.
        location = ir.Location.from_attr(diagnostic.location.attr, diagnostic.location.context)
        return frozenset(nodes_of(location))
    return frozenset()
