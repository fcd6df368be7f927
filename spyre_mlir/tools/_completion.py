# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Completion of a shell's command line, by the package argcomplete: flags, choices, files, passes and levels.

    eval "$(register-python-argcomplete spyre-opt)"

It asks the tool at each TAB, so the bindings of MLIR are not loaded for it: names of passes are read from files.
"""

from __future__ import annotations

import argparse
import importlib
import re
from collections.abc import Iterable
from pathlib import Path

from spyre_mlir.errors import CompileError
from spyre_mlir.language_server.text_levels import LEVELS

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
            # A pipeline may stand alone, which is rewritten where arguments are parsed.
            action.nargs = "?"
        elif action.dest in ("list_passes", "mlir_print_ir_before", "mlir_print_ir_after"):
            # Without choices, which would be checked: each of these takes more than the names.
            vars(action)["completer"] = lambda **_: pass_names()
    if any(action.dest == "invocations" for action in parser._actions):
        _add_passes(parser)
    argcomplete.autocomplete(parser)


def _add_passes(parser: argparse.ArgumentParser) -> None:
    """Add the passes, which are flags that the parser does not know by name."""
    known = {flag for action in parser._actions for flag in action.option_strings}
    for name in pass_names():
        if f"--{name}" not in known:
            parser.add_argument(f"--{name}", action="store_true", help="a pass")


def pass_names() -> Iterable[str]:
    """Return the names of our passes, then of upstream's."""
    texts = (path.read_text(encoding="utf-8") for path in sorted((_PACKAGE / "passes").glob("[a-z]*.py")))
    ours = [match[1] for text in texts if (match := _NAME.search(text)) and match[1]]
    upstream = (_PACKAGE / "pipelines" / "upstream_passes.txt").read_text(encoding="utf-8").split()
    return [*ours, *upstream]
