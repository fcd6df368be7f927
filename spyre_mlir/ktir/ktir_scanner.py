# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Scanner of the text of KTIR: brackets, types, attributes, and errors at a place of it."""

from __future__ import annotations

import re

from spyre_mlir.errors import CompileError


class KtirScanner:
    """Scanner of a text from a position on; ``path`` is what errors call the text, ``line`` the number of its first."""

    def __init__(self, text: str, path: str, line: int = 1) -> None:
        self.text, self.path, self.line = text, path, line
        self.position = 0

    def failure(self, position: int, message: str) -> CompileError:
        while self.text[position : position + 1].isspace():
            position += 1
        line = self.text.count("\n", 0, position) + self.line
        column = position - (self.text.rfind("\n", 0, position) + 1) + 1
        return CompileError(message, f"{self.path}:{line}:{column}")

    def closing(self, begin: int, opening: str, closing: str) -> int:
        """Return the position behind the bracket that closes the one at ``begin``."""
        # Arrows and comparisons are no brackets.
        depth = 0
        position = begin
        while position < len(self.text):
            if self.text[position : position + 2] in ("->", ">="):
                position += 2
                continue
            depth += (self.text[position] == opening) - (self.text[position] == closing)
            position += 1
            if depth == 0:
                return position
        raise self.failure(begin, f"this '{opening}' is never closed")

    def take(self, pattern: str, what: str) -> re.Match[str]:
        match = re.compile(r"\s*" + pattern).match(self.text, self.position)
        if match is None:
            raise self.failure(self.position, f"{what} is expected here")
        self.position = match.end()
        return match

    def bracketed(self, opening: str, closing: str) -> str:
        begin = self.take(re.escape(opening), f"'{opening}'").end() - 1
        self.position = self.closing(begin, opening, closing)
        return self.text[begin + 1 : self.position - 1]

    def attributes(self) -> dict[str, str]:
        """Take a dictionary of attributes; return the texts of its values."""
        body = self.bracketed("{", "}")
        found: dict[str, str] = {}
        for part in split_outside(body):
            name, equals, value = part.partition("=")
            if not equals:
                raise self.failure(self.position, f"'{part.strip()}' is no attribute")
            found[name.strip()] = " ".join(value.split())
        return found

    def type(self) -> str:
        """Take a type."""
        match = self.take(r"(index|[fi]\d+|(?:tensor|memref|!ktdp\.\w+)(?=<))", "a type")
        if match[1] in ("index",) or re.fullmatch(r"[fi]\d+", match[1]):
            return match[1]
        begin = self.position
        self.position = self.closing(begin, "<", ">")
        return _future(match[1] + " ".join(self.text[begin : self.position].split()))

    def types(self) -> list[str]:
        types = [self.type()]
        while re.compile(r"\s*,\s*(?!%)").match(self.text, self.position):
            self.take(",", "','")
            types.append(self.type())
        return types


def split_outside(text: str) -> list[str]:
    """Split a text at its commas outside of brackets."""
    parts, depth, last = [], 0, 0
    plain = text.replace("->", "  ").replace(">=", "  ")
    for position, character in enumerate(plain):
        depth += (character in "([{<") - (character in ")]}>")
        if character == "," and depth == 0:
            parts.append(text[last:position])
            last = position + 1
    parts.append(text[last:])
    return [part for part in parts if part.strip()]


def _future(type_: str) -> str:
    """Return a type with what a future produces, and its groups, as the dialect has them."""
    match = re.fullmatch(r"!ktdp\.tile_future<(tensor<.*?>), groups = affine_set<(.*)>>", type_)
    return type_ if match is None else f'!ktdp.tile_future<{match[1]}, "{match[2]}">'
