# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Decisions of the compiler about a program, by text line, as plain values that can be sent between processes."""

from __future__ import annotations

import re
from collections.abc import Iterator

from spyre_mlir import dialects
from spyre_mlir.analysis.aliasing import functions
from spyre_mlir.analysis.kept_usage import usage_kept, usage_of
from spyre_mlir.analysis.program_cost import operation_costs
from spyre_mlir.diagnostics import Diagnostic, compile_error, diagnostics_of
from spyre_mlir.dialects.structured import parsed_once
from spyre_mlir.errors import CompileError
from spyre_mlir.language_server.text_index import LEVELS, SEPARATOR, TextError, level_of, parts
from spyre_mlir.mlir import ir, location_of
from spyre_mlir.pipelines import SpyrePipeline, run_pipeline
from spyre_mlir.pipelines.printing import AsmForm

#: The file name in the locations of a text without a file.
TEXT = "-"

_LAYOUT = re.compile(r"#stick\.layout<affine_map<(.*?)>>")
_DIVISION = re.compile(r"#sdsc\.division<(\[[^\]]*\])")


def diagnostics(text: str) -> list[TextError]:
    """Return the errors that the parser and the verifiers report for a text."""
    return [_text_error(error) for begin, part in parts(text) for error in _errors(begin, part)]


def _text_error(error: Diagnostic) -> TextError:
    return TextError(error.severity, error.location, error.message, tuple(map(_text_error, error.notes)))


def at_level(text: str, level: str, line: int | None = None) -> str:
    """Return the IR of a program at a level, or as comments the diagnostic if the compiler rejects it.

    If the text has several programs, return the program at ``line``, or all programs if ``line`` is None.
    """
    programs = parts(text)
    if line is not None:
        programs = [program for program in programs if program[0] <= line][-1:]
    texts = []
    for begin, part in programs:
        try:
            module = _parsed(begin, part)
            _run(module, part, level)
            texts.append(AsmForm().text(module.operation))
        except CompileError as error:
            texts.append("".join(f"// {line}\n" for line in str(error).splitlines()))
    return SEPARATOR.join(texts)


def decisions(text: str) -> dict[int, list[str]]:
    """Return sentences about the operations of a text, by line number, starting at 1.

    If the compiler rejects a program, each of its lines has the reason. A program with parse errors has no sentences.
    """
    lines: dict[int, list[str]] = {}
    for begin, part in parts(text):
        if _errors(begin, part):
            continue
        try:
            module = _parsed(begin, part)
            _run(module, part, "placed")
            with module.context, parsed_once(), usage_kept():
                for line, sentence in _sentences(module.operation):
                    lines.setdefault(line, []).append(sentence)
        except CompileError as error:
            refusal = f"The compiler refuses this program: {error}"
            lines |= {line: [refusal] for line in range(begin + 1, begin + part.count("\n") + 2)}
    return lines


def _errors(begin: int, part: str) -> list[Diagnostic]:
    try:
        _parsed(begin, part)
    except CompileError as error:
        return diagnostics_of(error)
    return []


def _sentences(module: ir.Operation) -> Iterator[tuple[int, str]]:
    """Yield the line of each operation with a sentence about its layout, division, placement and cost."""
    for function in functions(module):
        for user, cost in operation_costs(usage_of(function)):
            place = location_of(user.op.location).rsplit(":", 2)
            if len(place) == 3 and place[0] == TEXT:
                layout = _LAYOUT.search(str(user.values[-1].type))
                division = _DIVISION.search(_attribute(user.op, "sdsc.division"))
                parts = [
                    f"layout `{layout[1]}`" if layout else "",
                    f"division `{division[1]}`" if division else "",
                    f"placement `{_attribute(user.op, 'sdsc.placement') or 'device memory'}`",
                    f"cost {cost}",
                ]
                yield int(place[1]), f"**{user.opcode}**: " + ", ".join(part for part in parts if part)


def _attribute(op: ir.Operation, name: str) -> str:
    return str(op.attributes[name]) if name in op.attributes else ""


def _run(module: ir.Module, text: str, level: str) -> None:
    """Run the pipeline from the level of a text to ``level``; do nothing for a text at or below that level."""
    begin = level_of(text)
    if begin == "linalg":
        run_pipeline(module, SpyrePipeline().pipeline(level))
    elif LEVELS.index(begin) < LEVELS.index(level):
        run_pipeline(module, SpyrePipeline(from_level=begin).pipeline(level))


def _parsed(begin: int, part: str) -> ir.Module:
    """Parse a part of a text that begins at a line; its locations are lines of the whole text."""
    context = dialects.context()
    try:
        return dialects.parsed("\n" * begin + part, context)
    except ir.MLIRError as error:
        raise compile_error(error, "The text cannot be parsed.") from error
