# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Shell completion with the package argcomplete: flags, choices, files, passes and levels.

    eval "$(register-python-argcomplete spyre-opt)"

The shell runs the tool at each TAB, so completion does not load the MLIR bindings; pass names are read from files.
"""

from __future__ import annotations

import argparse
import importlib
import re
from collections.abc import Iterable
from pathlib import Path

from spyre_mlir.errors import CompileError
from spyre_mlir.language_server.text_index import LEVELS

_PACKAGE = Path(__file__).parents[1]
_NAME = re.compile(r'^    name: ClassVar\[str\] = "([\w-]+)"', re.MULTILINE)


def complete(parser: argparse.ArgumentParser) -> None:
    """Answer the shell and end the process."""
    try:
        argcomplete = importlib.import_module("argcomplete")
    except ImportError:
        raise CompileError("Completion needs 'argcomplete': pip install 'spyre-mlir[completion]'.") from None
    for action in parser._actions:
        if action.dest == "to_level":
            action.choices = LEVELS
        elif action.dest == "invocations":
            # A pipeline flag needs no value; argument parsing adds the default.
            action.nargs = "?"
        elif action.dest in ("list_passes", "mlir_print_ir_before", "mlir_print_ir_after"):
            # Not as ``choices``, which argparse would check: these flags accept more than pass names.
            vars(action)["completer"] = lambda **_: pass_names()
    if any(action.dest == "invocations" for action in parser._actions):
        known = {flag for action in parser._actions for flag in action.option_strings}
        for name in pass_names():
            if f"--{name}" not in known:
                parser.add_argument(f"--{name}", action="store_true", help="a pass")
    argcomplete.autocomplete(parser)


def pass_names() -> Iterable[str]:
    """Return the names of our passes, then the names of upstream's passes."""
    texts = (path.read_text(encoding="utf-8") for path in sorted((_PACKAGE / "passes").glob("[a-z]*.py")))
    ours = [match[1] for text in texts if (match := _NAME.search(text)) and match[1]]
    upstream = (_PACKAGE / "pipelines" / "upstream_passes.txt").read_text(encoding="utf-8").split()
    return [*ours, *upstream]
