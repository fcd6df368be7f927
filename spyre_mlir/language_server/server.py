# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The server: answers the requests of an editor, from the text and from the results of the compiler.

Two separate processes load MLIR: one checks texts while they are typed, the other compiles, which takes longer. The
server itself answers requests about names immediately, and requests about decisions when the compiler has finished.

Kinds and places are values of the Language Server Protocol, version 3.17; other values of the protocol are dictionaries
with its names. A field whose value is None is omitted in a message.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import json
import multiprocessing
import os
import queue
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from enum import IntEnum
from multiprocessing.connection import Connection as Pipe
from multiprocessing.process import BaseProcess
from typing import Any, BinaryIO

from spyre_mlir.faults import internal_error, is_fault
from spyre_mlir.language_server import text_index
from spyre_mlir.records import dataclass
from spyre_mlir.version import VERSION

# A compiler process separate from the server: the server neither waits for it nor fails with it.
#
# ``concurrent.futures`` has process pools too, but their exit may wait for a process that has been killed.

_SPAWN = multiprocessing.get_context("spawn")

Begin = tuple[Callable[[Sequence[str]], object], Sequence[str], int]


class CompilerProcessError(Exception):
    """The reason why a call did not return: an exception, or the end of the process."""


class CompilerProcess:
    """A process that runs calls one after the other; it starts with the first call."""

    def __init__(
        self, begin: Callable[[Sequence[str]], object], arguments: Sequence[str], niceness: int
    ) -> None:
        """Create a process that first calls ``begin(arguments)``, with a ``niceness`` for the scheduler."""
        self._begin: Begin = begin, tuple(arguments), niceness
        self._calls: queue.SimpleQueue[tuple[Future[Any], Callable[..., Any], tuple]] = queue.SimpleQueue()
        self._latest: dict[str, tuple[str, Future[Any]]] = {}
        self._lock = threading.Lock()
        self._process: BaseProcess | None = None
        self._pipe: Pipe | None = None
        self._is_ended = False
        threading.Thread(target=self._serve, daemon=True).start()

    def call(self, function: Callable[..., Any], *arguments: object) -> Future[Any]:
        """Call a function in the process; restart the process if it has ended, e.g. because it ran out of memory."""
        future: Future[Any] = Future()
        self._calls.put((future, function, arguments))
        return future

    def latest(self, uri: str, function: Callable[[str], Any], text: str) -> Future[Any]:
        """Call a function on the text of a document, once per text; cancel a waiting call for an older text."""
        known = self._latest.get(uri)
        if known is None or known[0] != text:
            self.forget(uri)
            self._latest[uri] = known = text, self.call(function, text)
        return known[1]

    def forget(self, uri: str) -> None:
        """Cancel the call for a document and drop its result."""
        if uri in self._latest:
            self._latest.pop(uri)[1].cancel()

    def end(self) -> None:
        """Kill the process, even during a call."""
        with self._lock:
            self._is_ended = True
            if self._process is not None:
                self._process.kill()

    def _serve(self) -> None:
        while True:
            future, function, arguments = self._calls.get()
            if future.set_running_or_notify_cancel():
                try:
                    answer = self._answer(function, arguments)
                except CompilerProcessError as error:
                    future.set_exception(error)
                # Report any other error to the caller and keep the thread alive, e.g. if the system cannot start the
                # process, or the server cannot read an answer.
                except Exception as error:
                    future.set_exception(
                        CompilerProcessError(internal_error(error).message.removesuffix("."))
                    )
                else:
                    future.set_result(answer)

    def _answer(self, function: Callable[..., Any], arguments: tuple) -> Any:
        with self._lock:
            if self._is_ended:
                raise CompilerProcessError("the server ends")
            if self._process is None or self._pipe is None or not self._process.is_alive():
                self._pipe, end = _SPAWN.Pipe()
                process = self._process = _SPAWN.Process(target=_work, args=(end, self._begin))
                process.start()
                end.close()  # so that the pipe closes when the process ends
            process, pipe = self._process, self._pipe
        try:
            pipe.send((function, arguments))
            succeeded, answer = pipe.recv()
        except (EOFError, OSError):
            process.join()
            raise CompilerProcessError(f"the process ended with the status {process.exitcode}") from None
        if not succeeded:
            raise CompilerProcessError(answer)
        return answer


def _work(pipe: Pipe, begin: Begin) -> None:
    """Run calls in the process until the server has ended."""
    prepare, arguments, niceness = begin
    os.nice(niceness)
    threading.Thread(target=_end_with_server, daemon=True).start()
    prepare(arguments)
    while True:
        try:
            function, values = pipe.recv()
        except EOFError:
            return
        try:
            answer = True, function(*values)
        except Exception as error:
            answer = (
                False,
                (internal_error(error).message if is_fault(error) else str(error)).removesuffix("."),
            )
        pipe.send(answer)


def _end_with_server() -> None:
    """Wait until the server ends, even if it is killed, and end this process."""
    server = multiprocessing.parent_process()
    if server is not None:
        server.join()
        os._exit(1)


Json = dict[str, Any]


class Severity(IntEnum):
    """The severity of a diagnostic."""

    ERROR, WARNING, INFORMATION, HINT = 1, 2, 3, 4


class SymbolKind(IntEnum):
    """The kind of a symbol in an outline."""

    MODULE, FUNCTION, VARIABLE = 2, 12, 13


class AccessKind(IntEnum):
    """The kind of access by a highlighted name."""

    READ, WRITE = 2, 3


#: The completion item kind of all completions.
VARIABLE = 6


@dataclass(frozen=True)
class TextPosition:
    """A line and a character, both from 0; characters are counted in the units of the editor."""

    line: int
    character: int


@dataclass(frozen=True)
class TextRange:
    """A range from ``start`` up to, but not including, ``end``."""

    start: TextPosition
    end: TextPosition


def as_json(value: Any) -> Any:
    """Convert an answer to a JSON value."""
    if dataclasses.is_dataclass(value):
        return {field.name: as_json(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {key: as_json(item) for key, item in value.items() if item is not None}
    return [as_json(item) for item in value] if isinstance(value, list | tuple) else value


#: The command of a code lens: the arguments are the document, the level and the line of a program; the result is the
#: IR of the program at that level.
SHOW_LEVEL = "spyre.showLevel"

_SEVERITIES = {"warning": Severity.WARNING, "remark": Severity.INFORMATION, "note": Severity.HINT}
_WORD = "%@#!^.$_abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"


class SpyreServer:
    """A language server with its two compiler processes; each process calls ``prepare(arguments)`` first."""

    def __init__(
        self,
        prepare: Callable[[Sequence[str]], object],
        arguments: Sequence[str],
        source: BinaryIO,
        sink: BinaryIO,
    ) -> None:
        self.checks = CompilerProcess(prepare, arguments, niceness=0)
        self.plans = CompilerProcess(prepare, arguments, niceness=10)  # checks have priority
        self.connection = Connection(source, sink, _sentence)
        #: Whether the editor has requested the shutdown.
        self.is_shut_down = False
        #: The capabilities of the editor (None before initialization), and the encoding that its columns count.
        self.editor: dict[str, Any] | None = None
        self.encoding = "utf-16"
        self.documents: dict[str, Document] = {}

    def serve(self) -> None:
        """Answer requests until the session ends, and then end the compiler processes."""
        methods: dict[str, Method] = {
            "initialize": self._initialize,
            "initialized": self._initialized,
            "shutdown": self._shut_down,
            "textDocument/didOpen": self._opened,
            "textDocument/didChange": self._changed,
            "textDocument/didSave": self._saved,
            "textDocument/didClose": self._closed,
            "textDocument/hover": self._at_place(self._hover),
            "textDocument/definition": self._at_place(definition),
            "textDocument/references": self._references,
            "textDocument/documentHighlight": self._at_place(highlights),
            "textDocument/rename": self._renamed,
            "textDocument/prepareRename": self._at_place(renameable),
            "textDocument/completion": self._at_place(completions),
            "textDocument/foldingRange": self._of_document(folds),
            "textDocument/documentSymbol": self._of_document(self._symbols),
            "textDocument/codeLens": self._of_document(lambda found: lenses(found, SHOW_LEVEL)),
            "workspace/executeCommand": self._execute,
        }
        try:
            self.connection.serve({name: self._in_session(name, method) for name, method in methods.items()})
        finally:
            self.checks.end()
            self.plans.end()

    def document(self, uri: object) -> Document:
        """Return the current version of an open document."""
        if uri not in self.documents:
            raise ProtocolError(f"The document '{uri}' is not open.")
        return self.documents[str(uri)]

    def supports(self, *capabilities: str) -> Any:
        """Return a capability of the editor at a path of names; None if the editor does not have it."""
        return _found(self.editor, *capabilities)

    def _in_session(self, name: str, method: Method) -> Method:
        """Wrap a method: reject it outside of the session, and convert its result to JSON."""

        def answer(params: Any) -> Any:
            if self.editor is None and name != "initialize":
                raise ProtocolError("The session is not initialized.", NOT_INITIALIZED)
            if self.is_shut_down:
                raise ProtocolError("The session is shut down.", INVALID_REQUEST)
            result = method(params)
            return result if isinstance(result, Future) else as_json(result)

        return answer

    def _of_document(self, answer: Callable[[Document], object]) -> Method:
        return lambda params: answer(self.document(_field(params, "textDocument", "uri")))

    def _at_place(self, answer: Callable[[Document, TextPosition], object]) -> Method:
        return lambda params: answer(*self._place(params))

    def _place(self, params: Any) -> tuple[Document, TextPosition]:
        """Return the document and the position that a request names."""
        line, character = (_field(params, "position", name, kind=int) for name in ("line", "character"))
        return self.document(_field(params, "textDocument", "uri")), TextPosition(line, character)

    def _initialize(self, params: Any) -> object:
        self.editor = _found(params, "capabilities") or {}
        known = [each for each in self.supports("general", "positionEncodings") or () if each in UNITS]
        self.encoding = known[0] if known else "utf-16"
        renames = (
            {"prepareProvider": True} if self.supports("textDocument", "rename", "prepareSupport") else True
        )
        capabilities = {
            "positionEncoding": self.encoding,
            # 1: an editor sends the whole text with each change.
            "textDocumentSync": {"openClose": True, "change": 1, "save": True},
            "completionProvider": {"triggerCharacters": ["%", "@", "#", "^", "!"]},
            "hoverProvider": True,
            "definitionProvider": True,
            "referencesProvider": True,
            "documentHighlightProvider": True,
            "documentSymbolProvider": True,
            "codeLensProvider": {"resolveProvider": False},
            "renameProvider": renames,
            "foldingRangeProvider": True,
            "executeCommandProvider": {"commands": [SHOW_LEVEL]},
        }
        return {"capabilities": capabilities, "serverInfo": {"name": "spyre-lsp", "version": VERSION}}

    def _initialized(self, params: Any) -> None:
        self.checks.call(_diagnostics, "")  # start the process before the first document is opened

    def _shut_down(self, params: Any) -> None:
        self.is_shut_down = True
        self.checks.end()
        self.plans.end()

    def _opened(self, params: Any) -> None:
        self._keep(params, _field(params, "textDocument", "text", kind=str))
        self._saved(params)

    def _changed(self, params: Any) -> None:
        changes = _field(params, "contentChanges", kind=list)
        self.document(_field(params, "textDocument", "uri"))
        for change in changes:
            if _found(change, "range") is not None:
                raise ProtocolError("The server takes changes of the whole text, without a range.")
            self._keep(params, _field(change, "text", kind=str))
        self._check(self.document(_field(params, "textDocument", "uri")))

    def _keep(self, params: Any, text: str) -> None:
        uri = _field(params, "textDocument", "uri", kind=str)
        version = _found(params, "textDocument", "version")
        self.documents[uri] = Document(uri, version, plain_text(text), self.encoding)

    def _saved(self, params: Any) -> None:
        document = self.document(_field(params, "textDocument", "uri"))
        self._check(document)
        self.plans.latest(document.uri, _decisions, document.text)

    def _closed(self, params: Any) -> None:
        uri = self.document(_field(params, "textDocument", "uri")).uri
        del self.documents[uri]
        self.checks.forget(uri)
        self.plans.forget(uri)
        self.connection.notify("textDocument/publishDiagnostics", {"uri": uri, "diagnostics": []})

    def _check(self, document: Document) -> None:
        """Check a document and publish its errors when the check is done."""
        check = self.checks.latest(document.uri, _diagnostics, document.text)
        check.add_done_callback(functools.partial(self._publish, document))

    def _publish(self, document: Document, check: Future[list[text_index.TextError]]) -> None:
        with self.connection.lock:
            if check.cancelled() or self.documents.get(document.uri) != document:
                return  # the check of the newer text sends the errors
            try:
                found = [self._diagnostic(document, error) for error in check.result()]
            # Any failure, of the process or of the server, is sent as a diagnostic.
            except Exception as error:
                message = f"The check of this text failed: {_reason(error)}."
                found = [_editor_diagnostic(document.range(0, 0, 1), message)]
            params = {"uri": document.uri, "diagnostics": as_json(found)}
            if document.version is not None:
                params["version"] = document.version
            self.connection.notify("textDocument/publishDiagnostics", params)

    def _diagnostic(self, document: Document, error: text_index.TextError) -> Json:
        # Drop the note with the IR of the operation, which may be long; the range shows the operation.
        notes = [note for note in error.notes if not note.message.startswith("see current operation")]
        found = _range_of(document, error.location)
        message = error.message if found else f"{error.location}: {error.message}"
        related = []
        if self.supports("textDocument", "publishDiagnostics", "relatedInformation"):
            related = [
                {"location": {"uri": document.uri, "range": place}, "message": note.message}
                for note in notes
                if (place := _range_of(document, note.location))
            ]
            notes = [note for note in notes if not _range_of(document, note.location)]
        return _editor_diagnostic(
            found or document.range(0, 0, 1),
            " ".join([message, *(note.message for note in notes)]),
            _SEVERITIES.get(error.severity, Severity.ERROR),
            related or None,
        )

    def _hover(self, document: Document, position: TextPosition) -> Json | None:
        use = document.name_at(position)
        if use is None:
            return None
        line = (document.index.definition(use) or use).line
        plan = self.plans.latest(document.uri, _decisions, document.text)
        if not plan.done():
            sentences = ["The compiler is planning this program."]
        elif failure := plan.exception():
            sentences = [f"The compiler failed on this program: {failure}."]
        else:
            sentences = plan.result().get(line + 1, [])
        code = document.index.lines[line].strip()
        formats = self.supports("textDocument", "hover", "contentFormat")
        if formats and "markdown" not in formats:
            kind = "plaintext"
            paragraphs = [code, *(sentence.replace("**", "").replace("`", "") for sentence in sentences)]
        else:
            kind, paragraphs = "markdown", [f"```mlir\n{code}\n```", *sentences]
        contents = {"kind": kind, "value": "\n\n".join(paragraphs)}
        return {"contents": contents, "range": document.range_of(use)}

    def _references(self, params: Any) -> object:
        with_definition = _field(params, "context", "includeDeclaration", kind=bool)
        return references(*self._place(params), with_definition)

    def _renamed(self, params: Any) -> object:
        return renamed(*self._place(params), _field(params, "newName", kind=str))

    def _symbols(self, document: Document) -> object:
        tree = symbols(document)
        if self.supports("textDocument", "documentSymbol", "hierarchicalDocumentSymbolSupport"):
            return tree
        return list(flat(document.uri, tree))

    def _execute(self, params: Any) -> Future[str]:
        """Run the command of a code lens: return the IR of a program at a level."""
        command, arguments = _field(params, "command"), _found(params, "arguments")
        match arguments:
            case [str(uri), str(level), int(line)] if command == SHOW_LEVEL:
                pass
            case _:
                raise ProtocolError(f"The command is '{SHOW_LEVEL}', for a document, a level and a line.")
        if level not in text_index.LEVELS:
            raise ProtocolError(f"'{level}' is not a level; the levels are {', '.join(text_index.LEVELS)}.")
        return self.plans.call(_of_compiler, "at_level", self.document(uri).text, level, line)


def _found(value: Any, *names: str) -> Any:
    """Return the value at a path of names in nested objects; None if an object is missing."""
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _field(params: Any, *names: str, kind: type = str) -> Any:
    """Return a parameter at a path of names; raise ``ProtocolError`` if it is missing or has another type."""
    value = _found(params, *names)
    if not isinstance(value, kind):
        raise ProtocolError(f"The parameter '{'.'.join(names)}' must be of the type '{kind.__name__}'.")
    return value


def _of_compiler(name: str, *arguments: object) -> Any:
    """Call a function of ``decisions``, imported only in a compiler process, so that the server starts quickly."""
    return getattr(importlib.import_module("spyre_mlir.language_server.decisions"), name)(*arguments)


#: Functions of the compiler for a text, which ``latest`` calls in a process.
_diagnostics, _decisions = (functools.partial(_of_compiler, name) for name in ("diagnostics", "decisions"))


def _editor_diagnostic(
    range_: TextRange, message: str, severity: Severity = Severity.ERROR, related: list[Json] | None = None
) -> Json:
    return {
        "range": range_,
        "message": message,
        "severity": severity,
        "source": "spyre-mlir",
        "relatedInformation": related,
    }


def _reason(error: Exception) -> str:
    """Return the reason for a failure of a compiler process or of the server itself."""
    is_of_process = isinstance(error, CompilerProcessError)
    return str(error) if is_of_process else internal_error(error).message.removesuffix(".")


def _sentence(error: Exception) -> str:
    """Return the message for a failed request."""
    prefix = "The compiler failed on this program: " if isinstance(error, CompilerProcessError) else ""
    return f"{prefix}{_reason(error)}."


def _range_of(document: Document, location: str) -> TextRange | None:
    """Return the range from ``-:line:col`` to the end of the word; None for another file. ``col`` counts bytes."""
    file, *place = location.rsplit(":", 2)
    if len(place) < 2 or file != "-":
        return None
    line = min(int(place[0]), len(document.index.lines)) - 1
    text = document.index.lines[line]
    column = len(text.encode()[: max(int(place[1]) - 1, 0)].decode("utf-8", "ignore"))
    word = len(text[column:]) - len(text[column:].lstrip(_WORD))
    # An editor shows nothing for a range after the end of a line.
    column = max(min(column, len(text) - 1), 0)
    return document.range(line, column, column + max(word, 1))


# Answers about the names of a document, from its text only.

_KINDS = {"module": SymbolKind.MODULE, "global": SymbolKind.VARIABLE}


def definition(document: Document, position: TextPosition) -> Json | None:
    """Return the location of the definition of the name at a position."""
    use = document.name_at(position)
    found = use and document.index.definition(use)
    return document.location_of(found) if found else None


def references(document: Document, position: TextPosition, with_definition: bool) -> list[Json]:
    """Return the locations of all names with the same definition as the name at a position."""
    uses = _references(document, position)
    return [document.location_of(use) for use in uses if with_definition or not use.is_definition]


def highlights(document: Document, position: TextPosition) -> list[Json]:
    """Return the ranges of all names with the same definition; the definition is marked as a write access."""
    return [
        {"range": document.range_of(use), "kind": AccessKind.WRITE if use.is_definition else AccessKind.READ}
        for use in _references(document, position)
    ]


def renamed(document: Document, position: TextPosition, name: str) -> Json:
    """Return the edits that rename the name at a position; ``ProtocolError`` if this would change a binding."""
    uses = _references(document, position)
    if not uses:
        raise ProtocolError("The cursor is not on a name with a definition.")
    sigil = uses[0].name[0]
    new = name if name.startswith(sigil) else sigil + name
    if not re.fullmatch(text_index.NAME, new):
        raise ProtocolError(f"'{new}' is not a name of MLIR.")
    if f"::{uses[0].name}" in document.text:
        raise ProtocolError(f"'{uses[0].name}' is named within another symbol, where it is not followed.")
    lines = list(document.index.lines)
    # From the end of each line, so that earlier columns stay valid.
    for use in reversed(uses):
        lines[use.line] = lines[use.line][: use.column] + new + lines[use.line][use.end :]
    after = text_index.TextIndex("\n".join(lines))
    if after.bindings() != document.index.bindings():
        raise ProtocolError(f"'{new}' already names another value or symbol at a use.")
    edits = [{"range": document.range_of(use), "newText": new} for use in uses]
    return {"changes": {document.uri: edits}}


def renameable(document: Document, position: TextPosition) -> TextRange | None:
    """Return the range of the name at a position if it can be renamed, i.e. has a definition."""
    use = document.name_at(position)
    return document.range_of(use) if use and document.index.definition(use) else None


def folds(document: Document) -> list[Json]:
    """Return the ranges of lines between braces."""
    return [
        {"startLine": begin, "endLine": end - 1} for begin, end in document.index.folds if end - 1 > begin
    ]


def completions(document: Document, position: TextPosition) -> list[Json]:
    """Return the names that may be used at a position: visible values, or all definitions with another sigil."""
    lines = document.index.lines
    line = lines[position.line] if position.line < len(lines) else ""
    column = document.column(position)
    typed = re.search(r"[%@^#!][A-Za-z0-9$._-]*$", line[:column])
    if typed is None:
        return []
    kind = typed[0][0]
    if kind == "%":
        found = text_index.TextIndex("\n".join([*lines[: position.line], line[:column]])).visible.values()
    else:
        found = document.index.definitions
    names = {use.name: use for use in found if use.name[0] == kind and use.line != position.line}
    place = document.range(position.line, typed.start(), column)
    return [
        {
            "label": name,
            "detail": lines[use.line].strip()[:200],
            "textEdit": {"range": place, "newText": name},
            "filterText": name,
            "kind": VARIABLE,
        }
        for name, use in names.items()
    ]


def symbols(document: Document) -> list[Json]:
    """Return the outline: functions with their levels as details, and their values."""
    return [_symbol(document, outline) for outline in document.index.outline]


def lenses(document: Document, command: str) -> list[Json]:
    """Return, for each function, one lens per level below the function's own level."""
    found = []
    for function in _functions(document.index.outline):
        begin = text_index.level_of(_text(document, function))
        if begin in text_index.LEVELS:
            levels = text_index.LEVELS[text_index.LEVELS.index(begin) + 1 :]
        else:
            levels = text_index.LEVELS
        for level in levels:
            arguments = [document.uri, level, function.name.line]
            action = {"title": f"run to {level}", "command": command, "arguments": arguments}
            found.append({"range": document.range_of(function.name), "command": action})
    return found


def flat(uri: str, tree: list[Json], container: str | None = None) -> Iterator[Json]:
    """Flatten an outline, for an editor that does not support trees."""
    for symbol in tree:
        yield {
            "name": symbol["name"],
            "kind": symbol["kind"],
            "location": {"uri": uri, "range": symbol["range"]},
            "containerName": container,
        }
        yield from flat(uri, symbol.get("children", []), symbol["name"])


def _symbol(document: Document, outline: text_index.Outline) -> Json:
    lines, name = document.index.lines, outline.name
    keyword = re.search(r"(module|global)\b[^@]*$", lines[name.line][: name.column])
    values = [
        {
            "name": use.name,
            "kind": SymbolKind.VARIABLE,
            "range": document.range(use.line, use.column, len(lines[use.line])),
            "selectionRange": document.range_of(use),
            "detail": document.index.operation(use),
        }
        for use in outline.values
    ]
    return {
        "name": name.name,
        "kind": _KINDS[keyword[1]] if keyword else SymbolKind.FUNCTION,
        "range": TextRange(document.position(name.line, 0), document.position(*outline.end)),
        "selectionRange": document.range_of(name),
        "detail": text_index.level_of(_text(document, outline)),
        "children": [*values, *(_symbol(document, inner) for inner in outline.symbols)],
    }


def _text(document: Document, outline: text_index.Outline) -> str:
    return "\n".join(document.index.lines[outline.name.line : outline.end[0] + 1])


def _functions(outlines: list[text_index.Outline]) -> Iterator[text_index.Outline]:
    """Yield the innermost symbols of an outline, i.e. functions without their modules."""
    for outline in outlines:
        yield from _functions(outline.symbols) if outline.symbols else [outline]


def _references(document: Document, position: TextPosition) -> list[text_index.NameUse]:
    use = document.name_at(position)
    return document.index.references(use) if use else []


# One version of a document in the editor, and its positions in the units that the editor counts.

#: The codec of each encoding of positions, and the bytes of its units.
UNITS = {"utf-8": ("utf-8", 1), "utf-16": ("utf-16-le", 2), "utf-32": ("utf-32-le", 4)}


@dataclass(frozen=True)
class Document:
    """The text of a document; ``encoding`` determines the units in which the editor counts columns."""

    uri: str
    version: int | None
    text: str
    encoding: str

    @property
    def index(self) -> text_index.TextIndex:
        """The names of the text."""
        return _index(self.text)

    def name_at(self, position: TextPosition) -> text_index.NameUse | None:
        """Return the name at an editor position."""
        return self.index.at(position.line, self.column(position))

    def column(self, position: TextPosition) -> int:
        """Convert an editor position to a column in characters; a position after the line is its end."""
        lines = self.index.lines
        line = lines[position.line] if position.line < len(lines) else ""
        codec, size = UNITS[self.encoding]
        if line.isascii():
            return min(position.character, len(line))
        return len(line.encode(codec)[: position.character * size].decode(codec, "ignore"))

    def position(self, line: int, column: int) -> TextPosition:
        """Convert a line and a column to an editor position, clamped to the text."""
        lines = self.index.lines
        line = min(line, len(lines) - 1)
        if lines[line].isascii():
            return TextPosition(line, min(column, len(lines[line])))
        codec, size = UNITS[self.encoding]
        return TextPosition(line, len(lines[line][:column].encode(codec)) // size)

    def range(self, line: int, begin: int, end: int) -> TextRange:
        """Return the range between two columns of a line."""
        return TextRange(self.position(line, begin), self.position(line, end))

    def range_of(self, use: text_index.NameUse) -> TextRange:
        """Return the range of a name."""
        return self.range(use.line, use.column, use.end)

    def location_of(self, use: text_index.NameUse) -> Json:
        """Return the location of a name."""
        return {"uri": self.uri, "range": self.range_of(use)}


def plain_text(source: str) -> str:
    r"""Normalize line ends to ``\n`` and replace lone surrogates; positions in ``source`` stay valid.

    The editor ends a line at ``\n``, ``\r\n`` and a lone ``\r``; after this, the parser ends lines at the same places.
    """
    text = source.replace("\r\n", "\n").replace("\r", "\n")
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


@functools.lru_cache(8)
def _index(text: str) -> text_index.TextIndex:
    return text_index.TextIndex(text)


# JSON-RPC 2.0 over two streams, with the framing of the Language Server Protocol.
#
# This uses only the standard library: importing an LSP library, with a class for each message, would take longer than
# the rest of the start of the server.

PARSE_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, INVALID_PARAMS, INTERNAL_ERROR = (
    -32700, -32600, -32601, -32602, -32603,
)  # fmt: skip
NOT_INITIALIZED, CANCELLED = -32002, -32800

#: A method: a function from the parameters to the result, or to a future of the result.
Method = Callable[[Any], Any]


class ProtocolError(Exception):
    """An error that is sent as the answer to a request."""

    def __init__(self, message: str, code: int = INVALID_PARAMS) -> None:
        super().__init__(message)
        self.code = code


class Connection:
    """The messages of one session; each message is handled before the next is read, without waiting for futures.

    Attributes:
        lock: Held while a method runs; other threads must hold it to access the state that methods use.
    """

    def __init__(self, source: BinaryIO, sink: BinaryIO, fault: Callable[[Exception], str]) -> None:
        """Create a connection over two streams; ``fault`` returns the message for an unexpected exception."""
        self.lock = threading.RLock()
        self._source, self._sink, self._fault = source, sink, fault
        self._waiting: dict[object, Future[Any]] = {}
        self._messages: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()

    def serve(self, methods: Mapping[str, Method]) -> None:
        """Handle messages until ``exit`` or the end of the stream."""
        # A separate thread writes, so that an editor that writes before it reads does not block the server.
        writer = threading.Thread(target=self._write, daemon=True)
        writer.start()
        methods = {**methods, "$/cancelRequest": self._cancel}
        while (body := self._body()) is not None:
            try:
                message = json.loads(body)
            except (ValueError, RecursionError) as error:
                self._refuse(None, ProtocolError(f"The message is not JSON: {error}", PARSE_ERROR))
                continue
            if not isinstance(message, dict):
                self._refuse(None, ProtocolError("A message is an object.", INVALID_REQUEST))
            elif message.get("method") == "exit":
                break
            elif "method" in message:  # answers are ignored: the server sends no requests
                with self.lock:
                    self._handle(message, methods)
        self._messages.put(None)
        writer.join(5)  # with a timeout: an editor that does not read must not block the end

    def notify(self, method: str, params: object) -> None:
        """Send a notification."""
        self._send({"method": method, "params": params})

    def _handle(self, message: dict[str, Any], methods: Mapping[str, Method]) -> None:
        name, number, is_request = message["method"], message.get("id"), "id" in message
        try:
            if name not in methods:
                if not is_request:
                    return  # unknown notifications may be ignored
                raise ProtocolError(f"The server has no method '{name}'.", METHOD_NOT_FOUND)
            result = methods[name](message.get("params"))
        except Exception as error:
            if is_request:
                self._refuse(number, error)
            else:
                self.notify("window/showMessage", {"type": 1, "message": str(self._error(error))})
            return
        if isinstance(result, Future):
            self._waiting[number] = result
            result.add_done_callback(lambda future: self._answer_later(number, future))
        elif is_request:
            self._send({"id": number, "result": result})

    def _answer_later(self, number: object, future: Future[Any]) -> None:
        with self.lock:
            if self._waiting.pop(number, None) is None:
                return  # cancelled, and answered already
            try:
                self._send({"id": number, "result": future.result()})
            except (Exception, CancelledError) as error:
                self._refuse(number, error)

    def _cancel(self, params: Any) -> None:
        number = params.get("id") if isinstance(params, dict) else None
        if (future := self._waiting.pop(number, None)) is not None:
            future.cancel()
            self._refuse(number, ProtocolError("The request was cancelled.", CANCELLED))

    def _refuse(self, number: object, error: Exception) -> None:
        known = self._error(error)
        self._send({"id": number, "error": {"code": known.code, "message": str(known)}})

    def _error(self, error: Exception) -> ProtocolError:
        return (
            error if isinstance(error, ProtocolError) else ProtocolError(self._fault(error), INTERNAL_ERROR)
        )

    def _send(self, message: dict[str, Any]) -> None:
        body = json.dumps({"jsonrpc": "2.0", **message}, separators=(",", ":")).encode()
        self._messages.put(b"Content-Length: %d\r\n\r\n%b" % (len(body), body))

    def _write(self) -> None:
        try:
            while (message := self._messages.get()) is not None:
                self._sink.write(message)
                self._sink.flush()
        except OSError:
            pass  # the editor has exited; ``serve`` ends at the end of its messages

    def _body(self) -> bytes | None:
        """Read the body of the next message; return None at the end of the stream."""
        length = 0
        while line := self._source.readline():
            name, _, value = line.partition(b":")
            if name.strip().lower() == b"content-length" and value.strip().isdigit():
                length = int(value)
            elif not line.strip() and length:
                body = self._source.read(length)
                return body if len(body) == length else None
        return None
