# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The server: requests of an editor, answered from the text and from what the compiler makes of it.

What takes as long as a compilation, runs in a process of its own: hover answers at once, with the decisions once they
are known.
"""

from __future__ import annotations

import asyncio
import functools
import multiprocessing
import os
from concurrent.futures import Future, ProcessPoolExecutor
from typing import TYPE_CHECKING

from lsprotocol import types
from pygls.lsp.server import LanguageServer

from spyre_mlir.language_server.text_index import NameUse, Outline, TextIndex
from spyre_mlir.language_server.text_levels import LEVELS, level_of
from spyre_mlir.version import VERSION

if TYPE_CHECKING:
    from spyre_mlir.diagnostics import Diagnostic

#: The command of a code lens: the arguments are the document and the level, the answer is the IR.
SHOW_LEVEL = "spyre.showLevel"

_SEVERITIES = {
    "error": types.DiagnosticSeverity.Error,
    "warning": types.DiagnosticSeverity.Warning,
    "remark": types.DiagnosticSeverity.Information,
    "note": types.DiagnosticSeverity.Hint,
}


class SpyreServer(LanguageServer):
    """A language server with the indices and the decisions of the open documents."""

    def __init__(self) -> None:
        super().__init__("spyre-lsp", VERSION)
        self._pool: ProcessPoolExecutor | None = None
        self._planned: dict[str, tuple[str, Future[dict[int, list[str]]]]] = {}

    def compile(self, function, *arguments: str) -> Future:
        """Call a function in the process of the compiler, which starts with its first call."""
        if self._pool is None:
            self._pool = ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), _begin_compiling)
        return self._pool.submit(function, *arguments)

    def shutdown(self) -> None:
        """End the process of the compiler, too."""
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
        super().shutdown()

    def text(self, uri: str) -> str:
        """Return the text of a document."""
        return self.workspace.get_text_document(uri).source

    def plan(self, uri: str) -> Future[dict[int, list[str]]]:
        """Return the decisions about a document as it is, which are being made."""
        text = self.text(uri)
        known = self._planned.get(uri)
        if known is None or known[0] != text:
            if known is not None:
                known[1].cancel()
            self._planned[uri] = known = text, self.compile(_decisions, text)
        return known[1]

    def forget(self, uri: str) -> None:
        """Drop what is known of a document."""
        self._planned.pop(uri, None)


def _begin_compiling() -> None:
    """Prepare the process of the compiler: stdout is the editor's, whose answers come first."""
    os.dup2(2, 1)
    os.nice(10)


# The compiler is imported with the first document: the editor waits for the server to start.
def _decisions(text: str) -> dict[int, list[str]]:
    from spyre_mlir.language_server.decisions import decisions

    return decisions(text)


def _at_level(text: str, level: str) -> str:
    from spyre_mlir.language_server.decisions import at_level

    return at_level(text, level)


def _diagnostics(text: str) -> list[Diagnostic]:
    from spyre_mlir.language_server.decisions import diagnostics

    return diagnostics(text)


@functools.lru_cache(8)
def _index(text: str) -> TextIndex:
    return TextIndex(text)


def server() -> SpyreServer:
    """Return a server with all of its features."""
    new = SpyreServer()
    new.feature(types.TEXT_DOCUMENT_DID_OPEN)(_opened)
    new.feature(types.TEXT_DOCUMENT_DID_CHANGE)(_changed)
    new.feature(types.TEXT_DOCUMENT_DID_SAVE)(_opened)
    new.feature(types.TEXT_DOCUMENT_DID_CLOSE)(_closed)
    new.feature(types.TEXT_DOCUMENT_HOVER)(_hover)
    new.feature(types.TEXT_DOCUMENT_DEFINITION)(_definition)
    new.feature(types.TEXT_DOCUMENT_REFERENCES)(_references)
    new.feature(types.TEXT_DOCUMENT_DOCUMENT_SYMBOL)(_symbols)
    new.feature(types.TEXT_DOCUMENT_CODE_LENS)(_lenses)
    new.command(SHOW_LEVEL)(_show_level)
    return new


def _opened(
    ls: SpyreServer, params: types.DidOpenTextDocumentParams | types.DidSaveTextDocumentParams
) -> None:
    _publish(ls, params.text_document.uri)
    ls.plan(params.text_document.uri)


def _changed(ls: SpyreServer, params: types.DidChangeTextDocumentParams) -> None:
    _publish(ls, params.text_document.uri)


def _closed(ls: SpyreServer, params: types.DidCloseTextDocumentParams) -> None:
    ls.forget(params.text_document.uri)
    ls.text_document_publish_diagnostics(types.PublishDiagnosticsParams(params.text_document.uri, []))


def _publish(ls: SpyreServer, uri: str) -> None:
    lines = ls.text(uri).split("\n")
    found = [
        types.Diagnostic(
            _range_of(lines, diagnostic.location),
            " ".join([diagnostic.message, *(note.message for note in diagnostic.notes)]),
            _SEVERITIES.get(diagnostic.severity, types.DiagnosticSeverity.Error),
            source="spyre-mlir",
        )
        for diagnostic in _diagnostics(ls.text(uri))
    ]
    ls.text_document_publish_diagnostics(types.PublishDiagnosticsParams(uri, found))


def _range_of(lines: list[str], location: str) -> types.Range:
    """Return the rest of the word at ``file:line:col``, whose column counts bytes; the first line without a place."""
    parts = location.rsplit(":", 2)
    if len(parts) < 3 or not 0 < int(parts[1]) <= len(lines):
        return _range(0, 0, 1)
    line = int(parts[1]) - 1
    column = len(lines[line].encode()[: max(int(parts[2]) - 1, 0)].decode("utf-8", "ignore"))
    rest = lines[line][column:]
    word = len(rest) - len(
        rest.lstrip("%@#!^.$_abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789")
    )
    return _range(line, column, column + max(word, 1))


def _range(line: int, begin: int, end: int) -> types.Range:
    return types.Range(types.Position(line, begin), types.Position(line, end))


def _range_of_name(use: NameUse) -> types.Range:
    return _range(use.line, use.column, use.end)


def _hover(ls: SpyreServer, params: types.HoverParams) -> types.Hover | None:
    uri, place = params.text_document.uri, params.position
    index = _index(ls.text(uri))
    use = index.at(place.line, place.character)
    if use is None:
        return None
    definition = index.definition(use)
    line = definition.line if definition else use.line
    sentences = [f"```mlir\n{index.lines[line].strip()}\n```"]
    plan = ls.plan(uri)
    if not plan.done():
        sentences.append("The compiler is planning this program.")
    elif not plan.cancelled() and plan.exception() is None:
        sentences += plan.result().get(line + 1, [])
    content = types.MarkupContent(types.MarkupKind.Markdown, "\n\n".join(sentences))
    return types.Hover(content, _range_of_name(use))


def _definition(ls: SpyreServer, params: types.DefinitionParams) -> types.Location | None:
    uri = params.text_document.uri
    index = _index(ls.text(uri))
    use = index.at(params.position.line, params.position.character)
    definition = use and index.definition(use)
    return types.Location(uri, _range_of_name(definition)) if definition else None


def _references(ls: SpyreServer, params: types.ReferenceParams) -> list[types.Location]:
    uri = params.text_document.uri
    index = _index(ls.text(uri))
    use = index.at(params.position.line, params.position.character)
    definition = use and index.definition(use)
    same = [other for other in index.uses if definition and other.name == definition.name]
    return [
        types.Location(uri, _range_of_name(other)) for other in same if index.definition(other) == definition
    ]


def _symbols(ls: SpyreServer, params: types.DocumentSymbolParams) -> list[types.DocumentSymbol]:
    text = ls.text(params.text_document.uri)
    index = _index(text)
    return [_symbol(index, outline) for outline in index.outline()]


def _symbol(index: TextIndex, outline: Outline) -> types.DocumentSymbol:
    """Return a function, whose detail is its level, with its values."""
    body = types.Range(types.Position(outline.name.line, 0), types.Position(outline.last_line, 1))
    level = level_of("\n".join(index.lines[outline.name.line : outline.last_line + 1]))
    values = [
        types.DocumentSymbol(
            use.name, types.SymbolKind.Variable, _range(use.line, 0, len(index.lines[use.line])),
            _range_of_name(use), operation,
        )
        for use, operation in outline.values
    ]  # fmt: skip
    name = _range_of_name(outline.name)
    return types.DocumentSymbol(
        outline.name.name, types.SymbolKind.Function, body, name, level, children=values
    )


def _lenses(ls: SpyreServer, params: types.CodeLensParams) -> list[types.CodeLens]:
    uri = params.text_document.uri
    text = ls.text(uri)
    begin = level_of(text)
    levels = LEVELS[LEVELS.index(begin) + 1 :] if begin in LEVELS else LEVELS
    return [
        types.CodeLens(
            _range_of_name(outline.name),
            types.Command(f"run to {level}", SHOW_LEVEL, arguments=[uri, level]),
        )
        for outline in _index(text).outline() for level in levels
    ]  # fmt: skip


async def _show_level(ls: SpyreServer, uri: str, level: str) -> str:
    """Return the IR of a document at a level."""
    return await asyncio.wrap_future(ls.compile(_at_level, ls.text(uri), level))
