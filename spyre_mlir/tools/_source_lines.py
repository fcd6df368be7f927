# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The source line of a diagnostic, and a caret below the column: as clang and mlir-opt print them."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from pathlib import Path

_HEAD = re.compile(r"(.+?):(\d+):(\d+): (?:error|warning|remark|note): ")

#: Bytes of a file at most that is read for one of its lines, and characters of a line at most that are shown.
_MOST_BYTES, _MOST_SHOWN = 1 << 26, 160
_CUT = "..."


def with_source_lines(diagnostics: str, sources: Mapping[str, str]) -> str:
    """Put behind each line that begins with ``file:line:col`` the line of that file, and a line with the caret.

    ``sources`` has the texts that were read, or are no files, by the names that they have in locations.
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
    """Return the text of a file of MLIR; empty if there is none that is read, for the message is complete without."""
    # Python shows its own lines.
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
    """Return a line of a text and the line of the caret; nothing for a place that the text does not have."""
    # Not splitlines, which takes more characters for ends of lines than locations do.
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
    # Tabs stay, so that the caret is below its character whatever their width.
    indent = "".join("\t" if character == "\t" else " " for character in before)
    return [shown, f"{indent}^"]
