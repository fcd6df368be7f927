# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""spyre-lsp: a language server for MLIR at all levels of the compiler, on the standard streams.

    spyre-lsp

An editor starts it. It shows errors while typing; layout, division, placement and cost of a value; definitions; an
outline with the level of each function; lenses with the IR after a level. editors/vscode is a VS Code extension.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from spyre_mlir.language_server.server import SpyreServer
from spyre_mlir.tools import _common


@_common.tool
def main(argv: Sequence[str] | None = None) -> int:
    """Serve until the editor ends the session; return 0 if the editor requested the shutdown before."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    _prepare(arguments)
    # stdout carries only answers, because the editor parses every byte; all other output goes to stderr, its log.
    with os.fdopen(os.dup(1), "wb") as answers:
        os.dup2(2, 1)
        server = SpyreServer(_prepare, arguments, sys.stdin.buffer, answers)
        server.serve()
    return 0 if server.is_shut_down else 1


def _prepare(arguments: Sequence[str]) -> None:
    """Process the arguments in a server or compiler process: set the device and load files."""
    _parser().parse_args(arguments)


def _parser() -> _common.ArgumentParser:
    parser = _common.ArgumentParser("spyre-lsp", __doc__)
    parser.add_argument("--stdio", action="store_true", help="use the standard streams, as always")
    return parser


if __name__ == "__main__":
    sys.exit(main())
