# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Time in which the language server answers an editor."""

from __future__ import annotations

import asyncio
import itertools
import sys
import time
from collections.abc import Awaitable

from benchmarks.registry import Metrics, benchmark

_URI, _TYPE = "file:///chain.mlir", "tensor<512x64xf16>"
_OPERATIONS, _REPEATS = 500, 5


@benchmark(
    initialise_seconds=0.2, open_seconds=0.2, change_seconds=0.2, hover_seconds=0.2, definition_seconds=0.2
)
def lsp() -> Metrics:
    """spyre-lsp on a program of 500 operations: seconds until an answer, best of 5; the first with the start."""
    return asyncio.run(_session())


async def _session() -> Metrics:
    # An optional package: the other benchmarks do not need it.
    from lsprotocol import types
    from pygls.lsp.client import LanguageClient

    client, published = LanguageClient("benchmark", "1"), asyncio.Queue()
    client.feature(types.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)(lambda params: published.put_nowait(params))
    begin = time.perf_counter()
    await client.start_io(sys.executable, "-m", "spyre_mlir.tools.spyre_lsp")
    await client.initialize_async(types.InitializeParams(types.ClientCapabilities()))
    metrics = {"initialise_seconds": time.perf_counter() - begin}
    document, place = types.TextDocumentIdentifier(_URI), types.Position(300, 3)

    def opened(version: int) -> Awaitable:
        item = types.TextDocumentItem(_URI, "mlir", version, _text(version))
        client.text_document_did_open(types.DidOpenTextDocumentParams(item))
        return published.get()

    def changed(version: int) -> Awaitable:
        named = types.VersionedTextDocumentIdentifier(version, _URI)
        change = types.TextDocumentContentChangeWholeDocument(_text(version))
        client.text_document_did_change(types.DidChangeTextDocumentParams(named, [change]))
        return published.get()

    questions = {
        "open_seconds": opened,
        "change_seconds": changed,
        "hover_seconds": lambda _: client.text_document_hover_async(types.HoverParams(document, place)),
        "definition_seconds": lambda _: client.text_document_definition_async(
            types.DefinitionParams(document, place)
        ),
    }
    for name, ask in questions.items():
        metrics[name] = min([await _seconds(ask(version)) for version in range(_REPEATS)])
    await client.shutdown_async(None)
    client.exit(None)
    await client.stop()
    return metrics


async def _seconds(answer: Awaitable) -> float:
    begin = time.perf_counter()
    await answer
    return time.perf_counter() - begin


def _text(version: int) -> str:
    values = ["%x", *(f"%v{number}" for number in range(_OPERATIONS))]
    lines = [
        f"  {new} = linalg.exp ins({old} : {_TYPE}) outs(%e : {_TYPE}) -> {_TYPE}"
        for old, new in itertools.pairwise(values)
    ]
    head = [f"func.func @main(%x: {_TYPE}) -> {_TYPE} {{", f"  %e = tensor.empty() : {_TYPE}"]
    return "\n".join([*head, *lines, f"  return {values[-1]} : {_TYPE}", "}", "\n" * version])
