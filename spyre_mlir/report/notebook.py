# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a notebook shows of a program: HTML among other cells, without styles or identifiers of a page."""

from __future__ import annotations

import base64
from html import escape


def notebook_html(title: str, summary: str, picture: str = "") -> str:
    """Return a title, the text of a summary that opens, and a picture in SVG, which is an image of its own."""
    parts = [
        f"<div><b>spyre_mlir.Program</b>: {escape(title)}",
        '<details open="open"><summary>summary</summary>'
        f'<pre style="max-height: 30em; overflow: auto">{escape(summary)}</pre></details>',
    ]
    if picture:
        data = base64.b64encode(picture.encode("utf-8")).decode("ascii")
        parts.append(
            f'<img style="max-width: 100%" alt="Timeline of the program" src="data:image/svg+xml;base64,{data}"/>'
        )
    return "\n".join([*parts, "</div>"])
