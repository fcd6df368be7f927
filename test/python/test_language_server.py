# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The language server, asked by a client over the standard streams as an editor asks."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable

import pytest

pytest.importorskip("pygls")

from lsprotocol import types
from patience import HANG_SECONDS
from pygls.lsp.client import LanguageClient

from spyre_mlir.language_server.decisions import at_level, decisions
from spyre_mlir.language_server.text_index import LEVELS, level_of
from spyre_mlir.pipelines import SpyrePipeline

URI = "file:///chain.mlir"


def chain(count: int) -> str:
    """Return a program of ``count`` operations."""
    lines = [
        "func.func @main(%x: tensor<512x64xf16>) -> tensor<512x64xf16> {",
        "  %e = tensor.empty() : tensor<512x64xf16>",
    ]
    last, type_ = "%x", "tensor<512x64xf16>"
    for number in range(count):
        lines.append(f"  %v{number} = linalg.exp ins({last} : {type_}) outs(%e : {type_}) -> {type_}")
        last = f"%v{number}"
    return "\n".join([*lines, f"  return {last} : {type_}", "}", ""])


class Editor(LanguageClient):
    """A client that keeps the last diagnostics of each document."""

    def __init__(self) -> None:
        super().__init__("test", "1")
        self.published: asyncio.Queue[list[types.Diagnostic]] = asyncio.Queue()

        @self.feature(types.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)
        def _(params: types.PublishDiagnosticsParams) -> None:
            self.published.put_nowait(list(params.diagnostics))

    async def open(self, text: str) -> list[types.Diagnostic]:
        item = types.TextDocumentItem(URI, "mlir", 1, text)
        self.text_document_did_open(types.DidOpenTextDocumentParams(item))
        return await self.published.get()

    async def change(self, text: str, version: int) -> list[types.Diagnostic]:
        document = types.VersionedTextDocumentIdentifier(version, URI)
        change = types.TextDocumentContentChangeWholeDocument(text)
        self.text_document_did_change(types.DidChangeTextDocumentParams(document, [change]))
        return await self.published.get()

    async def hover(self, line: int, column: int) -> str:
        place = types.HoverParams(types.TextDocumentIdentifier(URI), types.Position(line, column))
        answer = await self.text_document_hover_async(place)
        return answer.contents.value if answer else ""


def session(talk: Callable[[Editor], Awaitable[None]]) -> None:
    """Start a server, talk to it, and end it."""

    async def run() -> None:
        editor = Editor()
        await editor.start_io(sys.executable, "-m", "spyre_mlir.tools.spyre_lsp")
        outline = types.DocumentSymbolClientCapabilities(hierarchical_document_symbol_support=True)
        texts = types.TextDocumentClientCapabilities(document_symbol=outline)
        await editor.initialize_async(types.InitializeParams(types.ClientCapabilities(text_document=texts)))
        editor.initialized(types.InitializedParams())
        try:
            await talk(editor)
        finally:
            await editor.shutdown_async(None)
            editor.exit(None)
            await editor.stop()

    asyncio.run(asyncio.wait_for(run(), HANG_SECONDS))


def test_errors_come_while_typing():
    async def talk(editor: Editor) -> None:
        text = chain(3)
        assert await editor.open(text) == []
        (error,) = await editor.change(text.replace("ins(%v0", "ins(%v9"), 2)
        assert "undeclared SSA value name" in error.message
        assert (error.range.start.line, error.range.start.character) == (3, text.split("\n")[3].index("%v0"))
        assert error.range.end.character - error.range.start.character == 3
        assert await editor.change(text, 3) == []

    session(talk)


def test_a_value_has_its_definition_and_the_decisions_about_it():
    async def talk(editor: Editor) -> None:
        text = chain(3)
        await editor.open(text)
        column = text.split("\n")[3].index("%v0")
        place = types.Position(3, column + 1)
        params = types.DefinitionParams(types.TextDocumentIdentifier(URI), place)
        definition = await editor.text_document_definition_async(params)
        assert (definition.range.start.line, definition.range.start.character) == (2, 2)
        assert "%v0 = linalg.exp" in await editor.hover(3, column)
        answer = ""
        while "**exp**" not in answer:
            await asyncio.sleep(0.2)
            answer = await editor.hover(3, column)
        assert "layout `(d0, d1) -> (" in answer and "division `[" in answer
        assert "placement `#sdsc.lx<" in answer and " us, " in answer

    session(talk)


def test_the_outline_has_levels_and_lenses_show_the_ir_behind_them():
    async def talk(editor: Editor) -> None:
        await editor.open(chain(2))
        document = types.TextDocumentIdentifier(URI)
        (function,) = await editor.text_document_document_symbol_async(types.DocumentSymbolParams(document))
        assert (function.name, function.detail) == ("@main", "linalg")
        names = [(child.name, child.detail) for child in function.children]
        assert names == [
            ("%x", "argument"),
            ("%e", "tensor.empty"),
            ("%v0", "linalg.exp"),
            ("%v1", "linalg.exp"),
        ]
        lenses = await editor.text_document_code_lens_async(types.CodeLensParams(document))
        assert [lens.command.title for lens in lenses][:2] == ["run to device-ops", "run to tiled"]
        lens = next(lens for lens in lenses if lens.command.title == "run to placed")
        params = types.ExecuteCommandParams(lens.command.command, lens.command.arguments)
        text = await editor.workspace_execute_command_async(params)
        assert "sdsc.placement" in text and level_of(text) == "placed"

    session(talk)


def test_a_program_that_is_refused_says_why_in_the_place_of_its_ir():
    async def talk(editor: Editor) -> None:
        await editor.open(
            "func.func @main(%x: f16) -> f16 {\n  %0 = math.exp %x : f16\n  return %0 : f16\n}\n"
        )
        params = types.ExecuteCommandParams("spyre.showLevel", [URI, "placed", 0])
        text = await editor.workspace_execute_command_async(params)
        assert text.startswith("// ") and "error:" in text
        # The session goes on.
        assert "math.exp" in await editor.hover(1, 3)

    session(talk)


def test_the_levels_are_those_of_the_pipeline():
    assert tuple(level for level, _ in SpyrePipeline().stages()) == LEVELS


def test_ir_of_a_level_has_its_decisions_in_itself():
    text = at_level(chain(2), "placed")
    assert level_of(text) == "placed"
    sentences = [sentence for texts in decisions(text).values() for sentence in texts]
    assert len(sentences) == 2 and all("placement" in sentence for sentence in sentences)
    assert "sdscbundle.sdsc_execute" in at_level(text, "bundle")
