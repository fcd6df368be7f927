# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A headless Chromium that opens a page and evaluates expressions in it, over the debugging protocol on two pipes."""

from __future__ import annotations

import base64
import itertools
import json
import os
import select
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from patience import HANG_SECONDS

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")

_FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe", "--window-size=1280,800")

#: The default action of a browser, such as moving the focus, depends on the number of a key; some keys type text.
_CODES = {
    "Tab": 9,
    "Enter": 13,
    "Escape": 27,
    " ": 32,
    "ArrowLeft": 37,
    "ArrowUp": 38,
    "ArrowRight": 39,
    "ArrowDown": 40,
}
_TYPED = {"Enter": "\r"}

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
        self._process.wait(timeout=HANG_SECONDS)
        self._read.close()

    def open(self, path: Path, anchor: str = "") -> None:
        """Show a file, from an anchor such as #here on, and wait until it is loaded."""
        self._call("Page.navigate", url=path.resolve().as_uri() + anchor)
        while self._receive().get("method") != "Page.loadEventFired":
            pass

    def appear(self, width: int, scheme: str, height: int = 900) -> None:
        """Give the window a size in pixels, and the system the scheme of colours light or dark."""
        self._call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        preferred = [{"name": "prefers-color-scheme", "value": scheme}]
        self._call("Emulation.setEmulatedMedia", features=preferred)

    def screenshot(self) -> bytes:
        """Return the visible part of the page as PNG."""
        return base64.b64decode(self._call("Page.captureScreenshot", format="png")["data"])

    def travel(self, move: str) -> None:
        """Go back or forward to another place of the page."""
        self.evaluate(
            f"new Promise(done => {{ addEventListener('popstate', done, {{once: true}}); history.{move}(); }})"
            ".then(() => null)"
        )

    def evaluate(self, expression: str) -> Any:
        """Return the value of an expression; await it if it is a promise."""
        done = self._call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in done, done["exceptionDetails"]
        return done["result"].get("value")

    def press(self, key: str) -> None:
        """Press a key by its name, such as ArrowDown or +, on the focused element."""
        code = {"windowsVirtualKeyCode": _CODES[key]} if key in _CODES else {}
        typed = {"text": _TYPED.get(key, key)} if key in _TYPED or len(key) == 1 else {}
        self._call("Input.dispatchKeyEvent", type="keyDown", key=key, **code, **typed)
        self._call("Input.dispatchKeyEvent", type="keyUp", key=key, **code)
        self.settle()

    def point(self, x: float, y: float) -> None:
        """Move the mouse to a place of the window, in pixels."""
        self._mouse("mouseMoved", x, y)
        self.settle()

    def click(self, x: float, y: float) -> None:
        self.drag((x, y), (x, y))

    def drag(self, begin: tuple[float, float], end: tuple[float, float]) -> None:
        """Press the mouse at one place, move it and release it at another."""
        self._mouse("mouseMoved", *begin)
        self._mouse("mousePressed", *begin, button="left", clickCount=1)
        self._mouse("mouseMoved", *end, button="left")
        self._mouse("mouseReleased", *end, button="left", clickCount=1)
        self.settle()

    def turn(self, x: float, y: float, by: float) -> None:
        """Turn the wheel at a place, with Ctrl held."""
        self._mouse("mouseWheel", x, y, deltaX=0, deltaY=by, modifiers=2)
        self.settle()

    def settle(self) -> None:
        """Wait until changes are drawn."""
        self.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done())))")

    def print_pages(self) -> int:
        """Return the number of sheets of paper of the page."""
        return base64.b64decode(self._call("Page.printToPDF")["data"]).count(b"/Type /Page\n")

    def _mouse(self, kind: str, x: float, y: float, **more: Any) -> None:
        self._call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

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
