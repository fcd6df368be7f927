# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The lines of source files around those that a program comes from, where the files can be read."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

#: Lines told before and after a line that a program comes from; lines of all files together, so that a page stays
#: small; characters of a line; bytes of a file that is read.
_AROUND, _MOST_LINES, _CHARACTERS, _LARGEST = 4, 12_000, 160, 1 << 24


def source_lines(places: Iterable[tuple[str, int]]) -> dict[str, dict[int, str]]:
    """By file, the text of the lines around each place, which is a file and a line from 1; files not read are empty."""
    lines: dict[str, set[int]] = {}
    for file, line in places:
        lines.setdefault(file, set()).add(line)
    around = _AROUND if sum(map(len, lines.values())) * (2 * _AROUND + 1) <= _MOST_LINES else 0
    return {file: _texts(Path(file), numbers, around) for file, numbers in lines.items()}


def _texts(file: Path, numbers: set[int], around: int) -> dict[int, str]:
    try:
        if not file.is_file() or file.stat().st_size > _LARGEST:
            return {}
        # Not splitlines, for which a form feed ends a line too.
        texts = file.read_text(encoding="utf-8", errors="replace").split("\n")
    except OSError:
        return {}
    # A set, since the surroundings of neighbouring lines overlap.
    near = {line_number for line in numbers for line_number in range(line - around, line + around + 1)}
    return {
        line_number: texts[line_number - 1][:_CHARACTERS]
        for line_number in sorted(near)
        if 1 <= line_number <= len(texts)
    }
