# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""man_pages: write the man pages of all tools, from their parsers.

    python -m spyre_mlir.tools.man_pages ~/.local/share/man

The folder gets man1/spyre-opt.1 and so on. No package for argparse is used, because such packages join the examples of
a description into one paragraph and would be another build dependency.
"""

from __future__ import annotations

import argparse
import importlib
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from spyre_mlir.files import write_text
from spyre_mlir.tools import _common
from spyre_mlir.version import VERSION

_TOOLS = sorted(path.stem for path in Path(__file__).parent.glob("spyre_*.py"))

_EXIT_STATUS = "0 on success, 1 after an error or where a check fails, 130 after an interrupt."
_ENVIRONMENT = {
    "SPYRE_DEVICE": "the device file, where --device does not name one",
    "SPYRE_LOG": "what to report, as --log",
    "SPYRE_TRACEBACK": "1 shows the traceback of an internal error and all of a long message",
}


@_common.tool
def main(argv: Sequence[str] | None = None) -> int:
    """Write the pages; return 0 on success."""
    parser = _common.ArgumentParser("man_pages", __doc__)
    parser.add_argument("folder", metavar="DIR", help="the folder in which man1/ is written")
    folder = Path(parser.parse_args(argv).folder, "man1")
    folder.mkdir(parents=True, exist_ok=True)
    tools = parsers()
    for tool in tools:
        others = [other.prog for other in tools if other is not tool]
        write_text(str(folder / f"{tool.prog}.1"), "\n".join(_page(tool, others)) + "\n")
    return 0


def parsers() -> list[argparse.ArgumentParser]:
    """Return the parsers of all tools, by name."""
    return [importlib.import_module(f"spyre_mlir.tools.{tool}")._parser() for tool in _TOOLS]


def groups(parser: argparse.ArgumentParser) -> Iterator[tuple[str, list[argparse.Action]]]:
    """Yield the title of each argument group of a parser, with the arguments that its help shows."""
    for group in parser._action_groups:
        actions = [action for action in group._group_actions if action.help != argparse.SUPPRESS]
        if actions:
            yield group.title or "", actions


def _page(parser: argparse.ArgumentParser, others: Sequence[str]) -> Iterator[str]:
    """Yield the lines of the page of one tool, whose description begins with ``name: title``."""
    title, _, description = (parser.description or "").partition("\n")
    usage = " ".join(parser.format_usage().removeprefix("usage: ").split())
    yield f'.TH {parser.prog.upper()} 1 "" "spyre-mlir {VERSION}" "spyre-mlir"'
    yield from (".SH NAME", _escaped(f"{parser.prog} - {title.partition(': ')[2].rstrip('.')}"))
    yield from (".SH SYNOPSIS", _escaped(usage))
    yield from (".SH DESCRIPTION", *_described(description))
    for title, actions in groups(parser):
        yield f".SH {_escaped(title.upper())}"
        for action in actions:
            yield from (".TP", f".B {_escaped(invocation(action))}", _escaped(help_of(parser, action)))
    yield from (".SH EXIT STATUS", _EXIT_STATUS, ".SH ENVIRONMENT")
    for name, text in _ENVIRONMENT.items():
        yield from (".TP", f".B {name}", _escaped(text))
    yield from (".SH SEE ALSO", ",\n".join(f".BR {_escaped(other)} (1)" for other in others))


def _described(text: str) -> Iterator[str]:
    """Yield the paragraphs of a docstring in roff; indented paragraphs are not filled."""
    for paragraph in re.split(r"\n\s*\n", text.strip("\n")):
        lines = paragraph.split("\n")
        is_code = all(line.startswith("    ") for line in lines)
        body = [_escaped(line) for line in lines]
        yield from (".PP", ".nf", *body, ".fi") if is_code else (".PP", *body)


def help_of(parser: argparse.ArgumentParser, action: argparse.Action) -> str:
    """Return the help of an argument, with its default filled in."""
    return parser._get_formatter()._expand_help(action) if action.help else ""


def invocation(action: argparse.Action) -> str:
    """Return an argument in the form ``-o, --output FILE``."""
    value = action.metavar or "|".join(map(str, action.choices or ())) or action.dest.upper()
    value = " ".join(value) if isinstance(value, tuple) else value
    if not action.option_strings:
        return value
    flags = ", ".join(action.option_strings)
    if action.nargs == 0:
        return flags
    return f"{flags} [{value}]" if action.nargs == "?" else f"{flags} {value}"


def _escaped(text: str) -> str:
    """Escape roff syntax: backslashes, dashes, and dots and quotes at the beginning of a line."""
    text = text.replace("\\", r"\e").replace("-", r"\-")
    return rf"\&{text}" if text[:1] in (".", "'") else text


if __name__ == "__main__":
    sys.exit(main())
