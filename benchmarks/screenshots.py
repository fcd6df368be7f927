# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Pictures of the page of a report for the documentation, light and dark: ``python -m benchmarks.screenshots``."""

from __future__ import annotations

import importlib
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.measure import ROOT
from benchmarks.programs import programs

#: The program and the window, in pixels.
_PROGRAM, _WIDTH, _HEIGHT = "llama_block", 1300, 740

_SCHEMES = ("light", "dark")


def main() -> int:
    """Compile the program, open its page and write a picture for each scheme of colours; 1 without a browser."""
    import spyre_mlir

    model, inputs = programs()[_PROGRAM]()
    browser: Any = importlib.import_module("browser")
    if browser.CHROMIUM is None:
        print("No Chromium was found; install it, for example Debian's package chromium.", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as work, browser.Browser(Path(work) / "profile") as opened:
        page = Path(work) / "Llama block.html"
        spyre_mlir.compile(model, inputs).report(page)
        for scheme in _SCHEMES:
            opened.appear(_WIDTH, scheme, _HEIGHT)
            opened.open(page)
            opened.settle()
            (ROOT / "docs" / f"report-{scheme}.png").write_bytes(opened.screenshot())
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
