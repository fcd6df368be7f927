# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Lines of the operations of a bundle in the text of its `bundle.mlir`."""

from __future__ import annotations

from spyre_mlir.bundle.model import Bundle
from spyre_mlir.bundle.program_text import print_program
from spyre_mlir.records import dataclass

#: Characters of an execute that are told; with an address for each core of each operand it has thousands.
_CHARACTERS = 100


@dataclass(frozen=True)
class ExecuteLines:
    """``last`` is the line of an execute, from 1, ``first`` that of the first address computed for it alone.

    ``text`` is how the execute begins.
    """

    first: int
    last: int
    text: str


def execute_lines(bundle: Bundle) -> list[ExecuteLines]:
    """The lines of each execute, in program order."""
    executes = list[ExecuteLines]()
    first = 1
    for number, line in enumerate(print_program(bundle.parameters, bundle.statements).split("\n"), 1):
        text = line.strip()
        if text.startswith("sdscbundle.sdsc_execute"):
            executes.append(ExecuteLines(first, number, _beginning(text)))
        # Any other statement ends the addresses that stand before an execute.
        if not (text.startswith("%") and ("arith." in text or "affine.apply" in text)):
            first = number + 1
    return executes


def _beginning(text: str) -> str:
    return text if len(text) <= _CHARACTERS else text[:_CHARACTERS] + " …"
