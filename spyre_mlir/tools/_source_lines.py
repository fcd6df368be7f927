# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Source lines of diagnostics, with a caret below the column, in the style of clang and mlir-opt."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from pathlib import Path

_HEAD = re.compile(r"(.+?):(\d+):(\d+): (?:error|warning|remark|note): ")

#: Maximum bytes of a file that is read for a source line, and maximum characters of a line that are shown.
_MOST_BYTES, _MOST_SHOWN = 1 << 26, 160
_CUT = "..."


def with_source_lines(diagnostics: str, sources: Mapping[str, str]) -> str:
    """Add the source line, and a line with a caret, after each line that begins with ``file:line:col``.

    ``sources`` has texts by the file names in locations; other files are read from disk.
    """
    text_of = functools.cache(lambda name: sources[name] if name in sources else _text(name))
    lines = []
    for diagnostic in diagnostics.splitlines():
        lines.append(diagnostic)
        head = _HEAD.match(diagnostic)
        if head:
            lines += _excerpt(text_of(head[1]), int(head[2]), int(head[3]))
    return "\n".join(lines)


def _text(name: str) -> str:
    """Return the text of an MLIR file; empty if it cannot be read, because source lines are optional."""
    # Python tracebacks show their own source lines.
    if not name.endswith(".mlir"):
        return ""
    try:
        path = Path(name)
        if not path.is_file() or path.stat().st_size > _MOST_BYTES:
            return ""
        return path.read_bytes().decode("utf-8", "replace")
    except (OSError, ValueError):
        return ""


def _excerpt(text: str, line: int, column: int) -> list[str]:
    """Return a line of a text and the line with the caret; empty for a location outside of the text."""
    # Not splitlines, which recognizes more line ends than locations do.
    lines = text.split("\n", line)
    if not (0 < line <= len(lines) and column > 0):
        return []
    shown = lines[line - 1].rstrip("\r")
    data = shown.encode()
    if not shown.strip() or column > len(data) + 1:
        return []
    # Columns count bytes.
    before = data[: column - 1].decode("utf-8", "ignore")
    if len(shown) > _MOST_SHOWN:
        begin = max(0, min(len(before) - _MOST_SHOWN // 2, len(shown) - _MOST_SHOWN))
        end, head = begin + _MOST_SHOWN, _CUT if begin else ""
        shown = head + shown[begin:end] + (_CUT if end < len(shown) else "")
        before = head + before[begin:]
    # Tabs are kept, so that the caret is below its character for any tab width.
    indent = "".join("\t" if character == "\t" else " " for character in before)
    return [shown, f"{indent}^"]
