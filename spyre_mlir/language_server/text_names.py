# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Answers about the names of a document, from its text alone."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

from spyre_mlir.language_server import lsp_types as types
from spyre_mlir.language_server.document import Document
from spyre_mlir.language_server.json_rpc import ProtocolError
from spyre_mlir.language_server.text_index import NAME, NameUse, Outline, TextIndex
from spyre_mlir.language_server.text_levels import LEVELS, level_of

_KINDS = {"module": types.SymbolKind.MODULE, "global": types.SymbolKind.VARIABLE}


def definition(document: Document, position: types.TextPosition) -> types.TextLocation | None:
    """Return where the name at a position is defined."""
    use = document.name_at(position)
    found = use and document.index.definition(use)
    return document.location_of(found) if found else None


def references(
    document: Document, position: types.TextPosition, with_definition: bool
) -> list[types.TextLocation]:
    """Return where what the name at a position refers to is named."""
    uses = _references(document, position)
    return [document.location_of(use) for use in uses if with_definition or not use.is_definition]


def highlights(document: Document, position: types.TextPosition) -> list[types.Highlight]:
    """Return the same places within the text, the definition as one that writes."""
    kinds = {True: types.AccessKind.WRITE, False: types.AccessKind.READ}
    return [
        types.Highlight(document.range_of(use), kinds[use.is_definition])
        for use in _references(document, position)
    ]


def renamed(document: Document, position: types.TextPosition, name: str) -> types.WorkspaceEdit:
    """Return the edits that give what the name at a position refers to another name; one that changes no meaning."""
    uses = _references(document, position)
    if not uses:
        raise ProtocolError("There is no name with a definition here.")
    sigil = uses[0].name[0]
    new = name if name.startswith(sigil) else sigil + name
    if not re.fullmatch(NAME, new):
        raise ProtocolError(f"'{new}' is not a name of MLIR.")
    if f"::{uses[0].name}" in document.text:
        raise ProtocolError(f"'{uses[0].name}' is named within another symbol, where it is not followed.")
    after = TextIndex(_with_name(document.index.lines, uses, new))
    if after.bindings() != document.index.bindings():
        raise ProtocolError(f"'{new}' is the name of something else where this is used.")
    return types.WorkspaceEdit({document.uri: [types.TextEdit(document.range_of(use), new) for use in uses]})


def renameable(document: Document, position: types.TextPosition) -> types.TextRange | None:
    """Return the range of the name at a position, if it has a definition to be renamed with."""
    use = document.name_at(position)
    return document.range_of(use) if use and document.index.definition(use) else None


def folds(document: Document) -> list[types.FoldingRange]:
    """Return the lines between braces."""
    return [types.FoldingRange(begin, end - 1) for begin, end in document.index.folds if end - 1 > begin]


def completions(document: Document, position: types.TextPosition) -> list[types.Completion]:
    """Return the names that may stand at a position: values that are visible there, and all others of the kind."""
    lines = document.index.lines
    line = lines[position.line] if position.line < len(lines) else ""
    column = document.column(position)
    typed = re.search(r"[%@^#!][A-Za-z0-9$._-]*$", line[:column])
    if typed is None:
        return []
    kind = typed[0][0]
    if kind == "%":
        found = TextIndex("\n".join([*lines[: position.line], line[:column]])).visible.values()
    else:
        found = document.index.definitions
    names = {use.name: use for use in found if use.name[0] == kind and use.line != position.line}
    place = document.range(position.line, typed.start(), column)
    return [
        types.Completion(
            name, lines[use.line].strip()[:200], types.TextEdit(place, name), filter_text=name
        )
        for name, use in names.items()
    ]  # fmt: skip


def symbols(document: Document) -> list[types.DocumentSymbol]:
    """Return the functions, whose details are their levels, with their values."""
    return [_symbol(document, outline) for outline in document.index.outline]


def lenses(document: Document, command: str) -> list[types.CodeLens]:
    """Return a lens above each function for each level that is below its own."""
    found = []
    for function in _functions(document.index.outline):
        begin = level_of(_text(document, function))
        levels = LEVELS[LEVELS.index(begin) + 1 :] if begin in LEVELS else LEVELS
        for level in levels:
            arguments = [document.uri, level, function.name.line]
            action = types.EditorCommand(f"run to {level}", command, arguments)
            found.append(types.CodeLens(document.range_of(function.name), action))
    return found


def flat(
    uri: str, tree: list[types.DocumentSymbol], container: str | None = None
) -> Iterator[types.SymbolInformation]:
    """Return an outline without a tree, for an editor that knows none."""
    for symbol in tree:
        place = types.TextLocation(uri, symbol.range)
        yield types.SymbolInformation(symbol.name, symbol.kind, place, container)
        yield from flat(uri, list(symbol.children or ()), symbol.name)


def _symbol(document: Document, outline: Outline) -> types.DocumentSymbol:
    lines, name = document.index.lines, outline.name
    keyword = re.search(r"(module|global)\b[^@]*$", lines[name.line][: name.column])
    values = [
        types.DocumentSymbol(
            use.name, types.SymbolKind.VARIABLE,
            document.range(use.line, use.column, len(lines[use.line])),
            document.range_of(use), document.index.operation(use),
        )
        for use in outline.values
    ]  # fmt: skip
    return types.DocumentSymbol(
        name.name,
        _KINDS[keyword[1]] if keyword else types.SymbolKind.FUNCTION,
        types.TextRange(document.position(name.line, 0), document.position(*outline.end)),
        document.range_of(name),
        level_of(_text(document, outline)),
        children=[*values, *(_symbol(document, inner) for inner in outline.symbols)],
    )


def _text(document: Document, outline: Outline) -> str:
    return "\n".join(document.index.lines[outline.name.line : outline.end[0] + 1])


def _functions(outlines: list[Outline]) -> Iterator[Outline]:
    """Yield the symbols of a text with a body, modules aside."""
    for outline in outlines:
        yield from _functions(outline.symbols) if outline.symbols else [outline]


def _references(document: Document, position: types.TextPosition) -> list[NameUse]:
    use = document.name_at(position)
    return document.index.references(use) if use else []


def _with_name(lines: list[str], uses: list[NameUse], name: str) -> str:
    changed = list(lines)
    for line, in_line in itertools.groupby(uses, lambda use: use.line):
        for use in reversed(list(in_line)):
            changed[line] = changed[line][: use.column] + name + changed[line][use.end :]
    return "\n".join(changed)
