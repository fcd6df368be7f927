# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""JSON-RPC 2.0 over two streams, framed as the Language Server Protocol frames it.

Written for the standard library alone: the import of a library for it, with a class for each message, takes longer than
all else at the start of the server.
"""

from __future__ import annotations

import json
import queue
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import CancelledError, Future
from typing import Any, BinaryIO

PARSE_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, INVALID_PARAMS, INTERNAL_ERROR = (
    -32700, -32600, -32601, -32602, -32603,
)  # fmt: skip
NOT_INITIALIZED, CANCELLED = -32002, -32800

#: A method: it takes the parameters, and returns the result or the future of it.
Method = Callable[[Any], Any]


class ProtocolError(Exception):
    """An error that is the answer to a request."""

    def __init__(self, message: str, code: int = INVALID_PARAMS) -> None:
        super().__init__(message)
        self.code = code


class Connection:
    """The messages of one session: each is handled before the next one is read, and none waits for a future.

    Attributes:
        lock: Held while a method runs, and to be held where another thread uses what the methods use.
    """

    def __init__(self, source: BinaryIO, sink: BinaryIO, fault: Callable[[Exception], str]) -> None:
        """Keep the streams; ``fault`` returns the sentence about an exception that no method expects."""
        self.lock = threading.RLock()
        self._source, self._sink, self._fault = source, sink, fault
        self._waiting: dict[object, Future[Any]] = {}
        self._messages: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()

    def serve(self, methods: Mapping[str, Method]) -> None:
        """Handle messages until ``exit`` or the end of the stream."""
        # A thread writes, so that an editor that writes before it reads stops nothing.
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
            elif "method" in message:  # and no answer: the server asks nothing
                with self.lock:
                    self._handle(message, methods)
        self._messages.put(None)
        writer.join(5)  # an editor that does not read holds up no end

    def notify(self, method: str, params: object) -> None:
        """Send a notification."""
        self._send({"method": method, "params": params})

    def _handle(self, message: dict[str, Any], methods: Mapping[str, Method]) -> None:
        name, number, is_request = message["method"], message.get("id"), "id" in message
        try:
            if name not in methods:
                if not is_request:
                    return  # a notification that the server does not know is nothing that it must do
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
                return  # cancelled, and answered
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
            pass  # the editor has left, which the end of its messages says, too

    def _body(self) -> bytes | None:
        """Return the body of the next message; None at the end of the stream."""
        length = 0
        while line := self._source.readline():
            name, _, value = line.partition(b":")
            if name.strip().lower() == b"content-length" and value.strip().isdigit():
                length = int(value)
            elif not line.strip() and length:
                body = self._source.read(length)
                return body if len(body) == length else None
        return None
