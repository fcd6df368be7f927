# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The server: requests of an editor, answered from the text and from what the compiler makes of it.

Two processes beside it know MLIR: one checks texts while they are typed, the other compiles, which takes longer. So
the server answers from names at once, and from decisions once they are known.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, BinaryIO

from spyre_mlir.faults import internal_error
from spyre_mlir.language_server import json_rpc, lsp_types, text_names
from spyre_mlir.language_server.compiler_process import CompilerProcess, CompilerProcessError
from spyre_mlir.language_server.document import UNITS, Document, plain_text
from spyre_mlir.language_server.json_rpc import Connection, ProtocolError
from spyre_mlir.language_server.lsp_types import Severity
from spyre_mlir.language_server.text_errors import TextError
from spyre_mlir.language_server.text_levels import LEVELS
from spyre_mlir.version import VERSION

#: The command of a code lens: the arguments are the document, the level and the line of a program, the answer is its
#: IR there.
SHOW_LEVEL = "spyre.showLevel"

_SEVERITIES = {"warning": Severity.WARNING, "remark": Severity.INFORMATION, "note": Severity.HINT}
_WORD = "%@#!^.$_abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"


class SpyreServer:
    """A language server with the processes of the compiler; ``prepare(arguments)`` is called in each of them."""

    def __init__(
        self,
        prepare: Callable[[Sequence[str]], object],
        arguments: Sequence[str],
        source: BinaryIO,
        sink: BinaryIO,
    ) -> None:
        self.checks = CompilerProcess(prepare, arguments, niceness=0)
        self.plans = CompilerProcess(prepare, arguments, niceness=10)  # what an editor waits for comes first
        self.connection = Connection(source, sink, _sentence)
        #: Whether the editor has said that the session ends.
        self.is_shut_down = False
        #: The capabilities of the editor, None before it initializes the session, and the units of its columns.
        self.editor: dict[str, Any] | None = None
        self.encoding = "utf-16"
        self.documents: dict[str, Document] = {}

    def serve(self) -> None:
        """Answer until the session ends, and end the processes of the compiler."""
        methods: dict[str, json_rpc.Method] = {
            "initialize": self._initialize,
            "initialized": self._initialized,
            "shutdown": self._shut_down,
            "textDocument/didOpen": self._opened,
            "textDocument/didChange": self._changed,
            "textDocument/didSave": self._saved,
            "textDocument/didClose": self._closed,
            "textDocument/hover": self._at_place(self._hover),
            "textDocument/definition": self._at_place(text_names.definition),
            "textDocument/references": self._references,
            "textDocument/documentHighlight": self._at_place(text_names.highlights),
            "textDocument/rename": self._renamed,
            "textDocument/prepareRename": self._at_place(text_names.renameable),
            "textDocument/completion": self._at_place(text_names.completions),
            "textDocument/foldingRange": self._of_document(text_names.folds),
            "textDocument/documentSymbol": self._of_document(self._symbols),
            "textDocument/codeLens": self._of_document(lambda found: text_names.lenses(found, SHOW_LEVEL)),
            "workspace/executeCommand": self._execute,
        }
        try:
            self.connection.serve({name: self._in_session(name, method) for name, method in methods.items()})
        finally:
            self.checks.end()
            self.plans.end()

    def document(self, uri: object) -> Document:
        """Return an open document as it is."""
        if uri not in self.documents:
            raise ProtocolError(f"The document '{uri}' is not open.")
        return self.documents[str(uri)]

    def supports(self, *capabilities: str) -> Any:
        """Return a capability of the editor; None for one that it does not name."""
        return _found(self.editor, *capabilities)

    def _in_session(self, name: str, method: json_rpc.Method) -> json_rpc.Method:
        """Return a method that is refused outside of the session, whose result is JSON."""

        def answer(params: Any) -> Any:
            if self.editor is None and name != "initialize":
                raise ProtocolError("The session is not initialized.", json_rpc.NOT_INITIALIZED)
            if self.is_shut_down:
                raise ProtocolError("The session is shut down.", json_rpc.INVALID_REQUEST)
            result = method(params)
            return result if isinstance(result, Future) else lsp_types.as_json(result)

        return answer

    def _of_document(self, answer: Callable[[Document], object]) -> json_rpc.Method:
        return lambda params: answer(self.document(_field(params, "textDocument", "uri")))

    def _at_place(self, answer: Callable[[Document, lsp_types.TextPosition], object]) -> json_rpc.Method:
        return lambda params: answer(*self._place(params))

    def _place(self, params: Any) -> tuple[Document, lsp_types.TextPosition]:
        line, character = (_field(params, "position", name, kind=int) for name in ("line", "character"))
        return self.document(_field(params, "textDocument", "uri")), lsp_types.TextPosition(line, character)

    def _initialize(self, params: Any) -> object:
        self.editor = _found(params, "capabilities") or {}
        known = [each for each in self.supports("general", "positionEncodings") or () if each in UNITS]
        self.encoding = known[0] if known else "utf-16"
        renames = (
            {"prepareProvider": True} if self.supports("textDocument", "rename", "prepareSupport") else True
        )
        capabilities = {
            "positionEncoding": self.encoding,
            # An editor sends the whole text.
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
        self.checks.call(_diagnostics, "")  # it is ready when the first document comes

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
        uri, version = (
            _field(params, "textDocument", "uri", kind=str),
            _found(params, "textDocument", "version"),
        )
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
        """Publish the errors of a document once they are known."""
        check = self.checks.latest(document.uri, _diagnostics, document.text)
        check.add_done_callback(functools.partial(self._publish, document))

    def _publish(self, document: Document, check: Future[list[TextError]]) -> None:
        with self.connection.lock:
            if check.cancelled() or self.documents.get(document.uri) != document:
                return  # a check of the newer text tells of it
            try:
                found = [self._diagnostic(document, error) for error in check.result()]
            # Of the process, or of the server: the editor has to hear of it.
            except Exception as error:
                message = f"The check of this text failed: {_reason(error)}."
                found = [lsp_types.EditorDiagnostic(document.range(0, 0, 1), message)]
            params = {"uri": document.uri, "diagnostics": lsp_types.as_json(found)}
            if document.version is not None:
                params["version"] = document.version
            self.connection.notify("textDocument/publishDiagnostics", params)

    def _diagnostic(self, document: Document, error: TextError) -> lsp_types.EditorDiagnostic:
        # The range shows the operation, whose IR may be long.
        notes = [note for note in error.notes if not note.message.startswith("see current operation")]
        found = _range_of(document, error.location)
        message = error.message if found else f"{error.location}: {error.message}"
        related = []
        if self.supports("textDocument", "publishDiagnostics", "relatedInformation"):
            related = [
                lsp_types.RelatedInformation(lsp_types.TextLocation(document.uri, place), note.message)
                for note in notes
                if (place := _range_of(document, note.location))
            ]
            notes = [note for note in notes if not _range_of(document, note.location)]
        return lsp_types.EditorDiagnostic(
            found or document.range(0, 0, 1),
            " ".join([message, *(note.message for note in notes)]),
            _SEVERITIES.get(error.severity, Severity.ERROR),
            related_information=related or None,
        )

    def _hover(self, document: Document, position: lsp_types.TextPosition) -> lsp_types.HoverText | None:
        use = document.name_at(position)
        if use is None:
            return None
        line = (document.index.definition(use) or use).line
        sentences = _sentences(self.plans.latest(document.uri, _decisions, document.text), line)
        code = document.index.lines[line].strip()
        formats = self.supports("textDocument", "hover", "contentFormat")
        if formats and "markdown" not in formats:
            plain = [sentence.replace("**", "").replace("`", "") for sentence in sentences]
            content = lsp_types.MarkupContent("plaintext", "\n\n".join([code, *plain]))
        else:
            text = "\n\n".join([f"```mlir\n{code}\n```", *sentences])
            content = lsp_types.MarkupContent("markdown", text)
        return lsp_types.HoverText(content, document.range_of(use))

    def _references(self, params: Any) -> object:
        with_definition = _field(params, "context", "includeDeclaration", kind=bool)
        return text_names.references(*self._place(params), with_definition)

    def _renamed(self, params: Any) -> object:
        return text_names.renamed(*self._place(params), _field(params, "newName", kind=str))

    def _symbols(self, document: Document) -> object:
        tree = text_names.symbols(document)
        if self.supports("textDocument", "documentSymbol", "hierarchicalDocumentSymbolSupport"):
            return tree
        return list(text_names.flat(document.uri, tree))

    def _execute(self, params: Any) -> Future[str]:
        """Return the IR of a program of a document at a level."""
        command, arguments = _field(params, "command"), _found(params, "arguments")
        match arguments:
            case [str(uri), str(level), int(line)] if command == SHOW_LEVEL:
                pass
            case _:
                raise ProtocolError(f"The command is '{SHOW_LEVEL}', for a document, a level and a line.")
        if level not in LEVELS:
            raise ProtocolError(f"'{level}' is not a level; the levels are {', '.join(LEVELS)}.")
        return self.plans.call(_at_level, self.document(uri).text, level, line)


def _found(value: Any, *names: str) -> Any:
    """Return what is in objects at a path of names; None if an object is missing."""
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _field(params: Any, *names: str, kind: type = str) -> Any:
    """Return a parameter at a path of names; ``ProtocolError`` for one that is missing, or of another type."""
    value = _found(params, *names)
    if not isinstance(value, kind):
        raise ProtocolError(f"The parameter '{'.'.join(names)}' must be of the type '{kind.__name__}'.")
    return value


# The compiler is imported in its processes alone: the editor waits for the server to start.
def _decisions(text: str) -> dict[int, list[str]]:
    from spyre_mlir.language_server.decisions import decisions

    return decisions(text)


def _at_level(text: str, level: str, line: int) -> str:
    from spyre_mlir.language_server.decisions import at_level

    return at_level(text, level, line)


def _diagnostics(text: str) -> list[TextError]:
    from spyre_mlir.language_server.decisions import diagnostics

    return diagnostics(text)


def _reason(error: Exception) -> str:
    """Return the reason of a failure: of a process of the compiler, or of the server itself."""
    is_of_process = isinstance(error, CompilerProcessError)
    return str(error) if is_of_process else internal_error(error).message.removesuffix(".")


def _sentence(error: Exception) -> str:
    is_of_process = isinstance(error, CompilerProcessError)
    return f"The compiler failed on this program: {error}." if is_of_process else f"{_reason(error)}."


def _range_of(document: Document, location: str) -> lsp_types.TextRange | None:
    """Return the rest of the word at ``-:line:col``, whose column counts bytes; None for a place in another file."""
    file, *place = location.rsplit(":", 2)
    if len(place) < 2 or file != "-":
        return None
    line = min(int(place[0]), len(document.index.lines)) - 1
    text = document.index.lines[line]
    column = len(text.encode()[: max(int(place[1]) - 1, 0)].decode("utf-8", "ignore"))
    word = len(text[column:]) - len(text[column:].lstrip(_WORD))
    # Behind the end of a line there is nothing to be shown.
    column = max(min(column, len(text) - 1), 0)
    return document.range(line, column, column + max(word, 1))


def _sentences(plan: Future[dict[int, list[str]]], line: int) -> list[str]:
    if not plan.done():
        return ["The compiler is planning this program."]
    failure = plan.exception()
    if failure is not None:
        return [f"The compiler failed on this program: {failure}."]
    return plan.result().get(line + 1, [])
