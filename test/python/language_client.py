# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A client of the language server that sends and reads the bytes of the protocol itself."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from patience import HANG_SECONDS

URI = "file:///a%20folder/a.mlir"

#: Capabilities that some editors report, if the server reads them.
EDITORS: dict[str, dict[str, Any]] = {
    "none": {},
    "VS Code": {
        "general": {"positionEncodings": ["utf-16"]},
        "textDocument": {
            "hover": {"contentFormat": ["markdown", "plaintext"]},
            "documentSymbol": {"hierarchicalDocumentSymbolSupport": True},
            "publishDiagnostics": {"relatedInformation": True, "versionSupport": True},
            "rename": {"prepareSupport": True},
        },
    },
    "Neovim": {
        "general": {"positionEncodings": ["utf-8", "utf-16", "utf-32"]},
        "textDocument": {
            "hover": {"contentFormat": ["markdown", "plaintext"]},
            "documentSymbol": {"hierarchicalDocumentSymbolSupport": True},
            "publishDiagnostics": {"relatedInformation": True},
        },
    },
    "Eglot without Markdown": {
        "general": {"positionEncodings": ["utf-32", "utf-8", "utf-16"]},
        "textDocument": {"hover": {"contentFormat": ["plaintext"]}, "publishDiagnostics": {}},
    },
}


class Client:
    """A server and the talk with it; each answer is awaited, and each byte of its output is one of a message."""

    def __init__(self, *arguments: str, editor: str = "none", initialized: bool = True) -> None:
        command = [sys.executable, "-m", "spyre_mlir.tools.spyre_lsp", *arguments]
        self.server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._count = 0
        #: Notifications that no call has consumed.
        self.notifications: list[dict[str, Any]] = []
        if initialized:
            parameters = {"processId": os.getpid(), "rootUri": None, "capabilities": EDITORS[editor]}
            self.capabilities = self.ask("initialize", parameters)["capabilities"]
            self.tell("initialized", {})

    def send(self, message: dict[str, Any]) -> None:
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        self.server.stdin.write(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
        self.server.stdin.flush()

    def read(self) -> dict[str, Any]:
        length = 0
        while (line := self.server.stdout.readline()) != b"\r\n":
            assert line.startswith((b"Content-Length: ", b"Content-Type: ")), line
            if line.startswith(b"Content-Length"):
                length = int(line.split(b":")[1])
        return json.loads(self.server.stdout.read(length))

    def tell(self, method: str, parameters: object) -> None:
        self.send({"method": method, "params": parameters})

    def begin(self, method: str, parameters: object) -> int:
        self._count += 1
        self.send({"id": self._count, "method": method, "params": parameters})
        return self._count

    def answer(self, number: int) -> dict[str, Any]:
        """The answer to a request; those to requests that nobody waits for are dropped."""
        while (message := self.read()).get("id") != number:
            if "method" in message:
                self.notifications.append(message)
        return message

    def ask(self, method: str, parameters: object) -> Any:
        message = self.answer(self.begin(method, parameters))
        assert "error" not in message, message
        return message["result"]

    def at(self, method: str, line: int, column: int, uri: str = URI, **parameters: object) -> Any:
        place = {"textDocument": {"uri": uri}, "position": {"line": line, "character": column}}
        return self.ask(f"textDocument/{method}", place | parameters)

    def of(self, method: str, uri: str = URI) -> Any:
        return self.ask(f"textDocument/{method}", {"textDocument": {"uri": uri}})

    def open(self, text: str, uri: str = URI) -> list[dict[str, Any]]:
        item = {"uri": uri, "languageId": "mlir", "version": 1, "text": text}
        self.tell("textDocument/didOpen", {"textDocument": item})
        return self.published(uri, 1)

    def change(self, text: str, version: int, uri: str = URI) -> None:
        document = {"uri": uri, "version": version}
        self.tell("textDocument/didChange", {"textDocument": document, "contentChanges": [{"text": text}]})

    def published(self, uri: str = URI, version: int | None = None) -> list[dict[str, Any]]:
        """The diagnostics of a version of a document, which may have come before."""
        while True:
            waiting, self.notifications = self.notifications, []
            for message in waiting or [self.read()]:
                found = message["params"]
                if message["method"] != "textDocument/publishDiagnostics" or found["uri"] != uri:
                    self.notifications.append(message)
                elif found.get("version") == version:
                    return found["diagnostics"]

    def children(self) -> list[int]:
        """The processes that threads of the server have started."""
        tasks = Path(f"/proc/{self.server.pid}/task")
        texts = [(task / "children").read_text(encoding="utf-8") for task in tasks.iterdir()]
        return [int(process) for process in " ".join(texts).split()]

    def end(self) -> int:
        self.ask("shutdown", None)
        self.tell("exit", None)
        return self.server.wait(HANG_SECONDS)


@contextlib.contextmanager
def client(*arguments: str, editor: str = "none", initialized: bool = True) -> Iterator[Client]:
    """A client whose server ends with the block."""
    talk = Client(*arguments, editor=editor, initialized=initialized)
    try:
        yield talk
    finally:
        talk.server.kill()
        talk.server.wait()
        talk.server.stdin.close()
        talk.server.stdout.close()
