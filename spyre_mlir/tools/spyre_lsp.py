# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""spyre-lsp: a language server for MLIR at all levels of the compiler, on the standard streams.

    spyre-lsp

An editor starts it: errors while typing, the layout, division, placement and cost of a value, definitions, an outline
with the level of each function, and lenses that show the IR after a level. editors/vscode is an extension of VS Code.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from spyre_mlir.language_server.server import SpyreServer
from spyre_mlir.tools import _common


@_common.tool
def main(argv: Sequence[str] | None = None) -> int:
    """Serve until the editor ends the session; 0 if it said so before it did."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    _prepare(arguments)
    # Only the answers go to the editor, which takes every byte for one; what else is printed goes to its log.
    with os.fdopen(os.dup(1), "wb") as answers:
        os.dup2(2, 1)
        server = SpyreServer(_prepare, arguments, sys.stdin.buffer, answers)
        server.serve()
    return 0 if server.is_shut_down else 1


def _prepare(arguments: Sequence[str]) -> None:
    """Prepare a process for the arguments, which name a device or files to load."""
    _parser().parse_args(arguments)


def _parser() -> _common.ArgumentParser:
    parser = _common.ArgumentParser("spyre-lsp", __doc__)
    parser.add_argument("--stdio", action="store_true", help="use the standard streams, as always")
    return parser


if __name__ == "__main__":
    sys.exit(main())
