# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""spyre-lsp: a language server for MLIR at all levels of the compiler, on the standard streams.

    pip install 'spyre-mlir[lsp]'
    spyre-lsp

An editor starts it: errors while typing, the layout, division, placement and cost of a value, definitions, an outline
with the level of each function, and lenses that show the IR after a level. editors/vscode is an extension of VS Code.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from spyre_mlir.errors import CompileError
from spyre_mlir.tools import _common


@_common.tool
def main(argv: Sequence[str] | None = None) -> int:
    """Serve until the editor ends the session; 0 on success."""
    _parser().parse_args(argv)
    try:
        from spyre_mlir.language_server.server import server
    except ImportError as error:
        if error.name not in ("pygls", "lsprotocol"):
            raise
        raise CompileError("The language server needs 'pygls': pip install 'spyre-mlir[lsp]'.") from None
    server().start_io()
    return 0


def _parser() -> _common.ArgumentParser:
    parser = _common.ArgumentParser("spyre-lsp", __doc__)
    parser.add_argument("--stdio", action="store_true", help="use the standard streams, as always")
    return parser


if __name__ == "__main__":
    sys.exit(main())
