# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Parts of a text between lines of ``// -----``: separate programs, as with ``--split-input-file``."""

from __future__ import annotations

import itertools
import re

SEPARATOR = "// -----\n"

_SEPARATOR = re.compile(r"^// -----[ \t]*(?:\n|\Z)", re.MULTILINE)


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
