# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""References of passes, options, commands and device operations, as Markdown, from the code that has them."""

from __future__ import annotations

import argparse
import dataclasses
import inspect
import re
import typing
from collections.abc import Iterable, Iterator, Sequence

from spyre_mlir import passes
from spyre_mlir.bundle.assumptions import ASSUMPTIONS
from spyre_mlir.ktir.grammar import FORMS
from spyre_mlir.options import default_of, documentation_of, show_value
from spyre_mlir.pipelines import SpyrePipeline
from spyre_mlir.report.figures import figures
from spyre_mlir.target.expressions import Expression
from spyre_mlir.target.ops import DEVICE_OPS, DeviceOp, Kind
from spyre_mlir.tools import man_pages

_PASSES = """# Passes

A pass is a flag of `spyre-opt` and a name in `--pass-pipeline`; `spyre-opt --list-passes=NAME` prints the same. The
passes of the pipeline with its default options come level by level, in the order in which they run; passes of other
options and those that check a level come after them. Upstream's passes work too: `spyre-opt --list-passes` lists
them."""

_OPTIONS = """# Options of the pipeline

Keyword arguments of `spyre_mlir.compile`, with underscores, and options of `--spyre-pipeline` and `--pipeline`:
`spyre-opt --spyre-pipeline="sencores=4 verify-each"`."""

_COMMANDS = """# Commands

The text of `--help`, and of the man pages that `make man` writes. All commands exit with 0 on success and with 1 after
an error or where a check fails."""

_KTIR_FORMS = """# Forms of KTIR

The text of KTIR changes from version to version. `spyre-translate --from-ktir` reads the forms below, and
`spyre-translate --to-ktir --ktir-form=VERSION` writes one version ([KTIR](../ktir.md)). A version is the commit that
has the form: of ktir-mlir-frontend, of ktir-cpu (9e03d63), or of dataflow-scheduler (69736b4)."""

_ASSUMPTIONS = """# Assumptions

The back end of Spyre is not public. Each row is a decision about bundles that no public source makes
([sources](../sources.md)); `spyre-validate --conformance` prints the ids that a bundle rests on. C1 to C6 concern the
order of operations, so every program rests on them."""

_OPERATIONS = """# Device operations

The operations that the device runs, from the one table that the compiler, the simulator and the cost model refer to
([adding one](../adding-a-device-op.md)). A reduction combines the numbers that its expression gives."""


_FIGURES = """# Figures

Every figure that a tool or a page prints, by output. Times of the device are predictions of the timeline for one call
and do not contain the host, except for figures named *total*; bytes are planned unless a figure says that the
simulator counted them."""


def pages() -> dict[str, str]:
    """Return the pages of the reference by the name of their file."""
    return {
        "passes": "\n".join(_passes()) + "\n",
        "options": "\n".join(_options()) + "\n",
        "tools": "\n".join(_tools()) + "\n",
        "operations": "\n".join(_operations()) + "\n",
        "assumptions": "\n".join(_assumptions()) + "\n",
        "ktir-forms": "\n".join(_ktir_forms()) + "\n",
        "figures": "\n".join(_figures()) + "\n",
    }


def _passes() -> Iterator[str]:
    yield _PASSES
    known = passes.load_all()
    shown: set[str] = set()
    for level, pipeline in SpyrePipeline().stages():
        names = dict.fromkeys(step.name for step in pipeline.steps)
        in_level = [name for name in names if name in known and name not in shown]
        yield from ("", f"## To the level *{level}*")
        for name in in_level:
            yield from _pass(known[name])
        shown.update(in_level)
    for title, is_check in (("Others", False), ("Checks", True)):
        yield from ("", f"## {title}")
        for name in sorted(known.keys() - shown):
            if name.startswith("verify-") == is_check:
                yield from _pass(known[name])


def _pass(pass_: type[passes.Pass]) -> Iterator[str]:
    yield from ("", f"### `{pass_.name}`", "", markdown_of(inspect.getdoc(pass_) or ""))
    yield from _fields(pass_)


def _options() -> Iterator[str]:
    yield _OPTIONS
    yield from _fields(SpyrePipeline)


def _fields(owner: type) -> Iterator[str]:
    """Yield the table of the options of a pass or a pipeline, empty for one without."""
    fields = dataclasses.fields(owner) if dataclasses.is_dataclass(owner) else ()
    if not fields:
        return
    types = typing.get_type_hints(owner)
    rows = [
        (
            f"`{field.name.replace('_', '-')}`",
            f"`{_type_name(types[field.name])}`",
            f"`{show_value(default_of(field))}`",
            _prose(documentation_of(field)),
        )
        for field in fields
    ]
    documented = any(row[-1] for row in rows)
    head = ("option", "type", "default", "meaning")
    yield from (
        "",
        *table(head if documented else head[:-1], [row if documented else row[:-1] for row in rows]),
    )


def _type_name(type_: object) -> str:
    if typing.get_origin(type_) is typing.Literal:
        return " or ".join(str(choice) for choice in typing.get_args(type_))
    return (
        type_.__name__
        if isinstance(type_, type) and not typing.get_args(type_)
        else str(type_).replace("typing.", "")
    )


def _tools() -> Iterator[str]:
    yield _COMMANDS
    for parser in man_pages.parsers():
        title, _, description = (parser.description or "").partition("\n")
        yield from ("", f"## {parser.prog}", "", _sentence(title))
        yield from ("", markdown_of(description.strip("\n")))
        for group, actions in man_pages.groups(parser):
            yield from ("", f"**{group.capitalize()}**", "")
            yield from table(
                ("", "meaning"),
                [
                    (f"`{man_pages.invocation(action)}`", _prose(man_pages.help_of(parser, action)))
                    for action in actions
                ],
            )


def _argument(parser: argparse.ArgumentParser, action: argparse.Action) -> tuple[str, str]:
    return f"`{man_pages.invocation(action)}`", _prose(man_pages.help_of(parser, action))


def _sentence(title: str) -> str:
    """Return the title of a command, ``spyre-run: execute a folder``, as a sentence without the name."""
    text = title.partition(": ")[2]
    return text[:1].upper() + text[1:]


def _operations() -> Iterator[str]:
    yield _OPERATIONS
    for kind in Kind:
        operations = [op for op in DEVICE_OPS.values() if op.kind is kind]
        if operations:
            yield from ("", f"## {kind.value[:1].upper()}{kind.value[1:]}", "")
            yield from table(
                ("operation", "inputs", "constants", "computes", "combined by", "formats"),
                [_operation(op) for op in operations],
            )


def _figures() -> Iterator[str]:
    yield _FIGURES
    for output in dict.fromkeys(figure.output for figure in figures()):
        yield from ("", f"## {output}", "")
        rows = ((f"`{each.name}`", each.unit, each.covers) for each in figures() if each.output == output)
        yield from table(("figure", "unit", "covers"), rows)


def _operation(op: DeviceOp) -> Sequence[str]:
    computes = "" if op.expression is None else f"`{_text(op.expression)}`"
    formats = " or ".join(op.formats) + (f" -> {op.result}" if op.result else "")
    constants = ", ".join(f"`{constant}`" for constant in op.constants)
    return (f"`{op.name}`", ", ".join(op.operands), constants, computes, op.combine or "", formats)


def _assumptions() -> Iterator[str]:
    yield _ASSUMPTIONS
    yield ""
    rows = [
        (f"**{key}**", entry.concerns, entry.sentence, entry.searched, entry.date)
        for key, entry in ASSUMPTIONS.items()
    ]
    yield from table(("id", "concerns", "assumption", "searched without an answer", "date"), rows)


def _ktir_forms() -> Iterator[str]:
    yield _KTIR_FORMS
    yield ""
    rows = [
        (name, f"`{form.example}`", form.version, ", ".join(form.written), form.reason or "read")
        for name, form in FORMS.items()
    ]
    yield from table(("form", "example", "version", "written for", "read"), rows)


def _text(expression: Expression) -> str:
    """Return an expression as a call: ``add(x, mul(y, 2.0))``."""
    if not isinstance(expression, tuple):
        return str(expression)
    function, *arguments = expression
    return f"{function}({', '.join(_text(argument) for argument in arguments)})"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """Yield the lines of a table of Markdown."""
    yield "| " + " | ".join(head) + " |"
    yield "|" + "---|" * len(head)
    for row in rows:
        yield "| " + " | ".join(map(_cell, row)) + " |"


def _cell(text: str) -> str:
    """Return a cell in one line; bars are escaped except in code, where mkdocs would show the backslash."""
    return re.sub(r"(`[^`]*`)|\|", lambda match: match[1] or r"\|", text.replace("\n", " "))


def markdown_of(docstring: str) -> str:
    """Return a docstring as Markdown: an indented block, also directly after a line of prose, is a block of code."""
    lines: list[str] = []
    is_code = False
    for line in docstring.splitlines():
        indented = line.startswith("    ")
        if indented and not is_code:
            lines += ["", "```text"]
        elif line.strip() and is_code and not indented:
            lines = [*_without_blank_end(lines), "```", ""]
        is_code = indented or (is_code and not line.strip())
        lines.append(line[4:] if indented else line if is_code else _prose(line))
    return "\n".join([*_without_blank_end(lines), "```"] if is_code else lines)


def _prose(line: str) -> str:
    """Return a line with angle brackets as text, and with the pages of the manual that it names as links."""
    return re.sub(r"docs/([\w-]+)\.md", r"[\1](../\1.md)", line.replace("<", "&lt;"))


def _without_blank_end(lines: list[str]) -> list[str]:
    return lines[: next((index for index in range(len(lines), 0, -1) if lines[index - 1].strip()), 0)]
