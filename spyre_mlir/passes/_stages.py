"""The passes that more than the pipeline runs, and how a pass runs a few of them on a module of its own."""

from __future__ import annotations

from collections.abc import Sequence

from spyre_mlir.diagnostics import compile_error
from spyre_mlir.errors import CompileError
from spyre_mlir.layout import ViewError
from spyre_mlir.mlir import PassManager, ir
from spyre_mlir.passes import find
from spyre_mlir.passes.base import Pass
from spyre_mlir.target.device import device

CLEAN = ("canonicalize", "cse")


def to_device_ops(precision: str, sencores: int | None = None) -> tuple[str, ...]:
    """From linalg to the level *device ops*, for so many cores, by default those of the environment."""
    cores = "" if sencores is None else f"{{sencores={sencores}}}"
    return (
        "attach-hints",
        "drop-dead-results",
        "decompose-softmax",
        *CLEAN,
        "narrow-matmuls",
        f"unroll-windows{cores}",
        "func.func(linalg-fold-unit-extent-dims)",
        "func.func(linalg-generalize-named-ops)",
        *CLEAN,
        "fold-constants",
        "decompose-to-device-ops",
        *CLEAN,
        "fuse-device-ops",
        f"apply-precision{{policy={precision}}}",
        *CLEAN,
        "fuse-device-ops",
        "hoist-weight-views",
        "verify-device-ops",
    )


def run_steps(module: ir.Module, steps: Sequence[str]) -> None:
    """Run passes by their texts, ours or upstream's; a failure is a ``CompileError``.

    A text of ours has an option at most: ``name`` or ``name{key=value}``.
    """
    context = module.context
    emit, context.emit_error_diagnostics = context.emit_error_diagnostics, False
    try:
        with context, ir.Location.unknown():
            for text in steps:
                _run(module, text)
    except ir.MLIRError as error:
        raise compile_error(error, "A pass failed without a diagnostic.") from error
    finally:
        context.emit_error_diagnostics = emit


def no_layout(error: ViewError) -> CompileError:
    """The diagnostic for a layout that a pass needs and the device, of its stick size, does not have."""
    return CompileError(
        f"A tensor cannot lie in sticks of {device().stick_bytes} bytes as an operation wants it: {error}."
    )


def _run(module: ir.Module, text: str) -> None:
    pass_ = _ours(text)
    if pass_ is not None:
        try:
            pass_.run(module.operation)
        except ViewError as error:
            raise no_layout(error) from None
        return
    PassManager.parse(f"builtin.module({text})").run(module.operation)


def _ours(text: str) -> Pass | None:
    name, _, options = text.removesuffix("}").partition("{")
    found = find(name)
    return found.parse(options) if found is not None else None
