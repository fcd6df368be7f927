# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``--verify-roundtrip``: check that printing and parsing a module, in every form, gives the same module."""

from __future__ import annotations

import io
from collections.abc import Iterator

from spyre_mlir.errors import CompileError
from spyre_mlir.mlir import ir
from spyre_mlir.pipelines.asm_form import AsmForm

#: The form in which two modules are compared.
_WHOLE = AsmForm(generic=True, debug_info=True, local_scope=True)


def verify_roundtrip(operation: ir.Operation, source: str) -> None:
    """Raise ``CompileError`` for a form that reads back as a different module, or cannot be read."""
    expected = _WHOLE.text(operation)
    for form, module in _read_back(operation, source):
        if _WHOLE.text(module) != expected:
            message = f"The module is another one once it is written as {form} and read."
            raise CompileError(message, f"{source}:1:1")


def _read_back(operation: ir.Operation, source: str) -> Iterator[tuple[str, ir.Operation]]:
    data = io.BytesIO()
    operation.write_bytecode(data)
    form = "text"
    try:
        for form, generic in (("text", False), ("generic text", True)):
            text = AsmForm(debug_info=True, generic=generic).text(operation)
            yield form, ir.Operation.parse(text, context=operation.context).operation
        form = "bytecode"
        if operation.name == "builtin.module":
            yield form, ir.Module.parse(data.getvalue(), operation.context).operation
    except ir.MLIRError as error:
        message = (
            f"The module cannot be read once it is written as {form}: {error.error_diagnostics[0].message}."
        )
        raise CompileError(message, f"{source}:1:1") from None
