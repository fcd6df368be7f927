# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""MLIR bytecode: read in a separate process, which returns the text of the module.

The upstream reader trusts the numbers in the file: damaged numbers may overwrite memory without crashing the process.
So only the separate process reads bytecode; its text is checked like the text of any file.
"""

from __future__ import annotations

import os
import resource
import tempfile

from spyre_mlir.dialects import parsed
from spyre_mlir.dialects.parser_limits import check_survived, lower_limit
from spyre_mlir.errors import CompileError
from spyre_mlir.mlir import ir, load_tm_tensor

#: Limits of the bytes of memory and of text for reading a module, whose sizes may be damaged numbers.
_MEMORY_BYTES, _TEXT_BYTES = 4 << 30, 1 << 30

#: The first byte of the returned data: a text follows, or the reason why there is none.
_TEXT, _REASON = b"T", b"R"


def parsed_bytecode(data: bytes, context: ir.Context, source: str) -> ir.Module:
    """Parse a module in bytecode; ``CompileError`` for damaged bytecode, or for the same errors as in text."""
    if b"tm_tensor" in data:
        load_tm_tensor(context)
    with tempfile.TemporaryFile() as file:
        check_survived(lambda: _write_text(data, context, file.fileno()), source, "bytecode")
        file.seek(0)
        answer = file.read().decode("utf-8", "replace")
    if not answer.startswith(_TEXT.decode()):
        raise _damaged(answer[1:] or "it is not a module", source)
    try:
        return parsed(answer[1:], context)
    except ir.MLIRError as error:
        raise _damaged(str(error.error_diagnostics[0].message).strip(), source) from None
    except CompileError as error:
        # The location of the error is in the text, which the user does not see.
        raise CompileError(error.message, source) from None


def _damaged(reason: str, source: str) -> CompileError:
    return CompileError(f"The bytecode is damaged or has an invalid module: {reason}.", source)


def _write_text(data: bytes, context: ir.Context, descriptor: int) -> None:
    """Write the text of bytecode, or the reason why it has none, in a process that ends after this."""
    lower_limit(resource.RLIMIT_DATA, _MEMORY_BYTES)
    lower_limit(resource.RLIMIT_FSIZE, _TEXT_BYTES)
    try:
        module = ir.Module.parse(data, context)
        text = module.operation.get_asm(enable_debug_info=True, print_generic_op_form=True)
        answer = _TEXT + f"{text}".encode()
    except ir.MLIRError as error:
        message = str(error.error_diagnostics[0].message).strip() if error.error_diagnostics else ""
        answer = _REASON + message.encode()
    except MemoryError:
        os.abort()
    with open(descriptor, "wb", closefd=False) as file:
        file.write(answer)
