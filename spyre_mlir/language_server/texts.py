# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Texts without parsing, because an editor needs answers immediately: parts between separators, level, and errors.

The parts of a text between lines of ``// -----`` are separate programs, as with ``--split-input-file``.
"""

from __future__ import annotations

import itertools
import re
from dataclasses import field

from spyre_mlir.records import dataclass

SEPARATOR = "// -----\n"

_SEPARATOR = re.compile(r"^// -----[ \t]*(?:\n|\Z)", re.MULTILINE)

LEVELS = ("device-ops", "tiled", "laid-out", "divided", "placed", "bundle")

#: A text that first occurs in the IR of each level, the lowest level first.
_MARKS = (
    ("bundle", "sdscbundle."),
    ("placed", "sdsc.placement"),
    ("divided", "sdsc.division"),
    ("laid-out", "#stick.layout"),
    ("device-ops", "#sdsc.op<"),
)

_COMMENT = re.compile(r'("(?:[^"\\\n]|\\.)*")|//[^\n]*')


@dataclass(frozen=True)
class TextError:
    """One message, with the fields of ``spyre_mlir.diagnostics.Diagnostic``, which needs the MLIR bindings."""

    severity: str
    location: str
    message: str
    notes: tuple[TextError, ...] = field(default=())


def part_starts(text: str) -> list[int]:
    """Return the offsets at which the second and later parts begin."""
    return [match.end() for match in _SEPARATOR.finditer(text)] if "// -----" in text else []


def parts(text: str) -> list[tuple[int, str]]:
    """Return the parts, each with the number of its first line, counted from 0."""
    bounds = [0, *part_starts(text), len(text)]
    found = []
    for begin, end in itertools.pairwise(bounds):
        found.append((text.count("\n", 0, begin), _SEPARATOR.sub("", text[begin:end])))
    return found


def level_of(text: str) -> str:
    """Return the level of a text from its content, ignoring comments; ``linalg`` before the first level."""
    if not any(mark in text for _, mark in _MARKS):
        return "linalg"
    code = _COMMENT.sub(lambda match: match[1] or "", text)
    return next((level for level, mark in _MARKS if mark in code), "linalg")
