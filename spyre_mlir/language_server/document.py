# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A document of the editor at one of its versions, and its positions in the units that the editor counts."""

from __future__ import annotations

import functools

from spyre_mlir.language_server.lsp_types import TextLocation, TextPosition, TextRange
from spyre_mlir.language_server.text_index import NameUse, TextIndex
from spyre_mlir.records import dataclass

#: The codec of each encoding of positions, and the bytes of its units.
UNITS = {"utf-8": ("utf-8", 1), "utf-16": ("utf-16-le", 2), "utf-32": ("utf-32-le", 4)}


@dataclass(frozen=True)
class Document:
    """The text of a document; ``encoding`` is that of the columns of an editor."""

    uri: str
    version: int | None
    text: str
    encoding: str

    @property
    def index(self) -> TextIndex:
        """The names of the text."""
        return _index(self.text)

    def name_at(self, position: TextPosition) -> NameUse | None:
        """Return the name at a position of the editor."""
        return self.index.at(position.line, self.column(position))

    def column(self, position: TextPosition) -> int:
        """Return the column of a position of the editor, in characters; the end of the line for one behind it."""
        lines = self.index.lines
        line = lines[position.line] if position.line < len(lines) else ""
        codec, size = UNITS[self.encoding]
        if line.isascii():
            return min(position.character, len(line))
        return len(line.encode(codec)[: position.character * size].decode(codec, "ignore"))

    def position(self, line: int, column: int) -> TextPosition:
        """Return a position for the editor; within the text, whatever the line and the column are."""
        lines = self.index.lines
        line = min(line, len(lines) - 1)
        if lines[line].isascii():
            return TextPosition(line, min(column, len(lines[line])))
        codec, size = UNITS[self.encoding]
        return TextPosition(line, len(lines[line][:column].encode(codec)) // size)

    def range(self, line: int, begin: int, end: int) -> TextRange:
        """Return the range between two columns of a line."""
        return TextRange(self.position(line, begin), self.position(line, end))

    def range_of(self, use: NameUse) -> TextRange:
        """Return the range of a name."""
        return self.range(use.line, use.column, use.end)

    def location_of(self, use: NameUse) -> TextLocation:
        """Return the location of a name."""
        return TextLocation(self.uri, self.range_of(use))


def plain_text(source: str) -> str:
    r"""Return a text whose lines end in ``\n`` alone, and that UTF-8 has bytes for: positions are those of ``source``.

    The parser ends a line at no other character than the editor does, which ends one at a lone ``\r``, too.
    """
    text = source.replace("\r\n", "\n").replace("\r", "\n")
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


@functools.lru_cache(8)
def _index(text: str) -> TextIndex:
    return TextIndex(text)
