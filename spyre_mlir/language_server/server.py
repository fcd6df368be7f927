# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The server: requests of an editor, answered from the text and from what the compiler makes of it.

Two processes beside it know MLIR: one checks texts while they are typed, the other compiles, which takes longer. So
the server answers from names at once, and from decisions once they are known.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

from lsprotocol import types
from pygls.exceptions import JsonRpcException, JsonRpcInternalError, JsonRpcInvalidParams
from pygls.lsp.server import LanguageServer

from spyre_mlir.faults import internal_error
from spyre_mlir.language_server import text_names
from spyre_mlir.language_server.compiler_process import CompilerProcess, CompilerProcessError
from spyre_mlir.language_server.document import Document, plain_text
from spyre_mlir.language_server.text_errors import TextError
from spyre_mlir.language_server.text_levels import LEVELS
from spyre_mlir.version import VERSION

#: The command of a code lens: the arguments are the document, the level and the line of a program, the answer is its
#: IR there.
SHOW_LEVEL = "spyre.showLevel"

_SEVERITIES = {
    "error": types.DiagnosticSeverity.Error,
    "warning": types.DiagnosticSeverity.Warning,
    "remark": types.DiagnosticSeverity.Information,
    "note": types.DiagnosticSeverity.Hint,
}
_WORD = "%@#!^.$_abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"


class SpyreServer(LanguageServer):
    """A language server with the processes of the compiler; ``prepare(arguments)`` is called in each of them."""

    def __init__(self, prepare: Callable[[Sequence[str]], object], arguments: Sequence[str]) -> None:
        # An editor sends the whole text: to apply edits, pygls takes more characters for ends of lines than editors do.
        super().__init__("spyre-lsp", VERSION, types.TextDocumentSyncKind.Full)
        self.checks = CompilerProcess(prepare, arguments, niceness=0)
        self.plans = CompilerProcess(prepare, arguments, niceness=10)  # what an editor waits for comes first
        #: Whether the editor has said that the session ends.
        self.is_shut_down = False
        #: The requests that wait for the compiler.
        self.waiting: set[asyncio.Task[str]] = set()

    def shutdown(self) -> None:
        """End the processes of the compiler, too."""
        self.checks.end()
        self.plans.end()
        super().shutdown()

    def document(self, uri: str) -> Document:
        """Return an open document as it is."""
        if not self.is_open(uri):
            raise JsonRpcInvalidParams(f"The document '{uri}' is not open.")
        document = self.workspace.get_text_document(uri)
        encoding = str(getattr(self.workspace.position_encoding, "value", self.workspace.position_encoding))
        return Document(uri, document.version, plain_text(document.source), encoding)

    def is_open(self, uri: str) -> bool:
        """Return whether the editor has a document open."""
        known = self.workspace.get_text_document(uri)
        return any(known is document for document in self.workspace.text_documents.values())

    def supports(self, *capabilities: str) -> object:
        """Return a capability of the editor; None for one that it does not name."""
        found: object = self.client_capabilities
        for capability in capabilities:
            found = getattr(found, capability, None)
        return found


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


def server(prepare: Callable[[Sequence[str]], object], arguments: Sequence[str]) -> SpyreServer:
    """Return a server with all of its features."""
    new = SpyreServer(prepare, arguments)
    new.feature(types.INITIALIZED)(_initialized)
    new.feature(types.SHUTDOWN)(_shut_down)
    new.feature(types.TEXT_DOCUMENT_DID_OPEN)(_answering(_opened))
    new.feature(types.TEXT_DOCUMENT_DID_CHANGE)(_answering(_changed))
    new.feature(types.TEXT_DOCUMENT_DID_SAVE)(_answering(_opened))
    new.feature(types.TEXT_DOCUMENT_DID_CLOSE)(_answering(_closed))
    new.feature(types.TEXT_DOCUMENT_HOVER)(_answering(_hover))
    new.feature(types.TEXT_DOCUMENT_DEFINITION)(_answering(_definition))
    new.feature(types.TEXT_DOCUMENT_REFERENCES)(_answering(_references))
    new.feature(types.TEXT_DOCUMENT_DOCUMENT_HIGHLIGHT)(_answering(_highlights))
    new.feature(types.TEXT_DOCUMENT_RENAME, types.RenameOptions(prepare_provider=True))(_answering(_renamed))
    new.feature(types.TEXT_DOCUMENT_PREPARE_RENAME)(_answering(_renameable))
    new.feature(types.TEXT_DOCUMENT_COMPLETION, types.CompletionOptions(["%", "@", "#", "^", "!"]))(
        _answering(_completions)
    )
    new.feature(types.TEXT_DOCUMENT_FOLDING_RANGE)(_answering(_folds))
    new.feature(types.TEXT_DOCUMENT_DOCUMENT_SYMBOL)(_answering(_symbols))
    new.feature(types.TEXT_DOCUMENT_CODE_LENS)(_answering(_lenses))
    new.command(SHOW_LEVEL)(_show_level)
    return new


def _answering(handler: Callable[[SpyreServer, Any], Any]) -> Callable[[SpyreServer, Any], Any]:
    """Return a handler whose faults are an error of the protocol in one sentence."""

    @functools.wraps(handler)
    def answer(ls: SpyreServer, params: Any) -> Any:
        try:
            return handler(ls, params)
        except JsonRpcException:
            raise
        except Exception as error:
            raise JsonRpcInternalError(f"{_reason(error)}.") from None

    return answer


def _initialized(ls: SpyreServer, params: types.InitializedParams) -> None:
    ls.checks.call(_diagnostics, "")  # it is ready when the first document comes


async def _shut_down(ls: SpyreServer, params: None) -> None:
    ls.is_shut_down = True
    ls.checks.end()
    ls.plans.end()
    # To cancel requests that wait, pygls goes through a dictionary that each of them leaves then: none is left for it.
    if ls.waiting:
        await asyncio.wait(ls.waiting)


def _opened(
    ls: SpyreServer, params: types.DidOpenTextDocumentParams | types.DidSaveTextDocumentParams
) -> None:
    document = ls.document(params.text_document.uri)
    _check(ls, document)
    ls.plans.latest(document.uri, _decisions, document.text)


def _changed(ls: SpyreServer, params: types.DidChangeTextDocumentParams) -> None:
    _check(ls, ls.document(params.text_document.uri))


def _closed(ls: SpyreServer, params: types.DidCloseTextDocumentParams) -> None:
    uri = params.text_document.uri
    ls.checks.forget(uri)
    ls.plans.forget(uri)
    ls.text_document_publish_diagnostics(types.PublishDiagnosticsParams(uri, []))


def _check(ls: SpyreServer, document: Document) -> None:
    """Publish the errors of a document once they are known."""
    loop = asyncio.get_running_loop()
    publish = functools.partial(_publish, ls, document)
    check = ls.checks.latest(document.uri, _diagnostics, document.text)
    check.add_done_callback(functools.partial(_in_loop, loop, publish))


def _in_loop(
    loop: asyncio.AbstractEventLoop, publish: Callable[[Future[list[TextError]]], None], check: Future
) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(publish, check)


def _publish(ls: SpyreServer, document: Document, check: Future[list[TextError]]) -> None:
    if check.cancelled() or not ls.is_open(document.uri) or ls.document(document.uri) != document:
        return  # a check of the newer text tells of it
    try:
        found = [_diagnostic(ls, document, diagnostic) for diagnostic in check.result()]
    # Of the process, or of the server: the editor has to hear of it.
    except Exception as error:
        message = f"The check of this text failed: {_reason(error)}."
        found = [types.Diagnostic(document.range(0, 0, 1), message, source="spyre-mlir")]
    ls.text_document_publish_diagnostics(
        types.PublishDiagnosticsParams(document.uri, found, document.version)
    )


def _reason(error: Exception) -> str:
    """Return the reason of a failure: of a process of the compiler, or of the server itself."""
    is_of_process = isinstance(error, CompilerProcessError)
    return str(error) if is_of_process else internal_error(error).message.removesuffix(".")


def _diagnostic(ls: SpyreServer, document: Document, diagnostic: TextError) -> types.Diagnostic:
    # The range shows the operation, whose IR may be long.
    notes = [note for note in diagnostic.notes if not note.message.startswith("see current operation")]
    found = _range_of(document, diagnostic.location)
    message = diagnostic.message if found else f"{diagnostic.location}: {diagnostic.message}"
    related = None
    if ls.supports("text_document", "publish_diagnostics", "related_information"):
        related = [
            types.DiagnosticRelatedInformation(types.Location(document.uri, place), note.message)
            for note in notes
            if (place := _range_of(document, note.location))
        ]
        notes = [note for note in notes if not _range_of(document, note.location)]
    return types.Diagnostic(
        found or document.range(0, 0, 1),
        " ".join([message, *(note.message for note in notes)]),
        _SEVERITIES.get(diagnostic.severity, types.DiagnosticSeverity.Error),
        source="spyre-mlir",
        related_information=related or None,
    )


def _range_of(document: Document, location: str) -> types.Range | None:
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


def _hover(ls: SpyreServer, params: types.HoverParams) -> types.Hover | None:
    document = ls.document(params.text_document.uri)
    use = document.name_at(params.position)
    if use is None:
        return None
    line = (document.index.definition(use) or use).line
    sentences = _sentences(ls.plans.latest(document.uri, _decisions, document.text), line)
    code = document.index.lines[line].strip()
    formats = ls.supports("text_document", "hover", "content_format")
    if formats and types.MarkupKind.Markdown not in list(formats):  # pyright: ignore[reportArgumentType]
        plain = [sentence.replace("**", "").replace("`", "") for sentence in sentences]
        content = types.MarkupContent(types.MarkupKind.PlainText, "\n\n".join([code, *plain]))
    else:
        content = types.MarkupContent(
            types.MarkupKind.Markdown, "\n\n".join([f"```mlir\n{code}\n```", *sentences])
        )
    return types.Hover(content, document.range_of(use))


def _sentences(plan: Future[dict[int, list[str]]], line: int) -> list[str]:
    if not plan.done():
        return ["The compiler is planning this program."]
    failure = plan.exception()
    if failure is not None:
        return [f"The compiler failed on this program: {failure}."]
    return plan.result().get(line + 1, [])


def _definition(ls: SpyreServer, params: types.DefinitionParams) -> types.Location | None:
    return text_names.definition(ls.document(params.text_document.uri), params.position)


def _references(ls: SpyreServer, params: types.ReferenceParams) -> list[types.Location]:
    document = ls.document(params.text_document.uri)
    return text_names.references(document, params.position, params.context.include_declaration)


def _highlights(ls: SpyreServer, params: types.DocumentHighlightParams) -> list[types.DocumentHighlight]:
    return text_names.highlights(ls.document(params.text_document.uri), params.position)


def _renamed(ls: SpyreServer, params: types.RenameParams) -> types.WorkspaceEdit:
    return text_names.renamed(ls.document(params.text_document.uri), params.position, params.new_name)


def _renameable(ls: SpyreServer, params: types.PrepareRenameParams) -> types.Range | None:
    return text_names.renameable(ls.document(params.text_document.uri), params.position)


def _completions(ls: SpyreServer, params: types.CompletionParams) -> list[types.CompletionItem]:
    return text_names.completions(ls.document(params.text_document.uri), params.position)


def _folds(ls: SpyreServer, params: types.FoldingRangeParams) -> list[types.FoldingRange]:
    return text_names.folds(ls.document(params.text_document.uri))


def _symbols(
    ls: SpyreServer, params: types.DocumentSymbolParams
) -> list[types.DocumentSymbol] | list[types.SymbolInformation]:
    document = ls.document(params.text_document.uri)
    tree = text_names.symbols(document)
    if ls.supports("text_document", "document_symbol", "hierarchical_document_symbol_support"):
        return tree
    return list(text_names.flat(document.uri, tree))


def _lenses(ls: SpyreServer, params: types.CodeLensParams) -> list[types.CodeLens]:
    return text_names.lenses(ls.document(params.text_document.uri), SHOW_LEVEL)


async def _show_level(ls: SpyreServer, uri: str, level: str, line: int) -> str:
    """Return the IR of a program of a document at a level."""
    if level not in LEVELS:
        raise JsonRpcInvalidParams(f"'{level}' is not a level; the levels are {', '.join(LEVELS)}.")
    text = ls.document(uri).text
    task = asyncio.current_task()
    if task is not None:
        ls.waiting.add(task)
        task.add_done_callback(ls.waiting.discard)
    try:
        return await asyncio.wrap_future(ls.plans.call(_at_level, text, level, line))
    except CompilerProcessError as error:
        raise JsonRpcInternalError(f"The compiler failed on this program: {error}.") from None
