"""Bytecode of MLIR: modules in it are data, checked as text is before anything reads them."""

from __future__ import annotations

import os
import resource

from spyre_mlir.dialects.forms import check_forms
from spyre_mlir.dialects.parser_limits import check_survived, check_text
from spyre_mlir.errors import CompileError
from spyre_mlir.mlir import ir, load_tm_tensor

#: Bytes of memory that reading a module may take beside what is in use: its sizes are numbers that may be damaged.
_MEMORY_BYTES = 4 << 30


def parsed_bytecode(data: bytes, context: ir.Context, source: str) -> ir.Module:
    """Parse a module in bytecode; ``CompileError`` for damaged bytecode and for what text is refused for."""
    if b"tm_tensor" in data:
        load_tm_tensor(context)

    def attempt() -> None:
        _limit_memory()
        try:
            str(ir.Module.parse(data, context))
        except MemoryError:
            os.abort()

    # Printed there, too: the printer is recursive as the parser is.
    check_survived(attempt, source, "bytecode")
    try:
        module = ir.Module.parse(data, context)
    except ir.MLIRError as error:
        message = str(error.error_diagnostics[0].message).strip() if error.error_diagnostics else "no module"
        raise CompileError(f"The bytecode is damaged or has an invalid module: {message}.", source) from None
    check_text(str(module), source)
    check_forms(module)
    return module


def _limit_memory() -> None:
    resource.setrlimit(resource.RLIMIT_DATA, (_MEMORY_BYTES, resource.RLIM_INFINITY))
