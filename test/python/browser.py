"""A headless Chromium that opens a page and evaluates expressions in it, over the debugging protocol on two pipes."""

from __future__ import annotations

import itertools
import json
import os
import select
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")

_FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe", "--window-size=1280,800")

#: Seconds until a browser that says nothing is given up.
_PATIENCE = 60

#: The browser reads from file 3 and writes to file 4; the copies beyond keep either from being overwritten.
_START = """
import fcntl, os, sys
ends = [fcntl.fcntl(int(end), fcntl.F_DUPFD, 10) for end in sys.argv[1:3]]
os.dup2(ends[0], 3), os.dup2(ends[1], 4)
os.execv(sys.argv[3], sys.argv[3:])
"""


class Browser:
    """A browser with one page; ``errors`` are the messages of its console and the exceptions of its scripts."""

    def __init__(self, profile: Path) -> None:
        assert CHROMIUM is not None
        read_here, write_there = os.pipe()
        read_there, self._write = os.pipe()
        started = [sys.executable, "-c", _START, str(read_there), str(write_there), CHROMIUM]
        self._process = subprocess.Popen(
            [*started, *_FLAGS, f"--user-data-dir={profile}"],
            pass_fds=(read_there, write_there),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(read_there)
        os.close(write_there)
        self._read = os.fdopen(read_here, "rb", buffering=0)
        self._left = b""
        self._numbers = itertools.count(1)
        self._session: str | None = None
        self.errors: list[str] = []

    def __enter__(self) -> Browser:
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self._call(f"{domain}.enable")
        return self

    def __exit__(self, *_: object) -> None:
        self._session = None
        self._send("Browser.close")
        os.close(self._write)
        self._process.wait(timeout=30)
        self._read.close()

    def open(self, path: Path) -> None:
        """Show a file and wait until it is loaded."""
        self._call("Page.navigate", url=path.resolve().as_uri())
        while self._receive().get("method") != "Page.loadEventFired":
            pass

    def evaluate(self, expression: str) -> Any:
        """The value of an expression; that of a promise is waited for."""
        done = self._call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in done, done["exceptionDetails"]
        return done["result"].get("value")

    def press(self, key: str) -> None:
        """Press a key that types nothing, such as ArrowDown, on what has the focus."""
        for kind in ("rawKeyDown", "keyUp"):
            self._call("Input.dispatchKeyEvent", type=kind, key=key, code=key)

    def _call(self, method: str, **parameters: Any) -> Any:
        number = self._send(method, **parameters)
        while (message := self._receive()).get("id") != number:
            pass
        assert "error" not in message, f"{method}: {message['error']}"
        return message["result"]

    def _send(self, method: str, **parameters: Any) -> int:
        number = next(self._numbers)
        session = {"sessionId": self._session} if self._session else {}
        message = {"id": number, "method": method, "params": parameters, **session}
        os.write(self._write, json.dumps(message).encode() + b"\0")
        return number

    def _receive(self) -> dict[str, Any]:
        """The next message; they end with a zero byte."""
        while b"\0" not in self._left:
            waiting, _, _ = select.select([self._read], [], [], _PATIENCE)
            more = self._read.read(1 << 16) if waiting else b""
            assert more, "the browser has gone or says nothing"
            self._left += more
        text, _, self._left = self._left.partition(b"\0")
        message = json.loads(text)
        if message.get("method") in ("Runtime.exceptionThrown", "Log.entryAdded", "Runtime.consoleAPICalled"):
            self.errors.append(text.decode())
        return message
