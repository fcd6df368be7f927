# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What mkdocs does to each page on its way to the site: links in docstrings, and what a search finds first."""

from __future__ import annotations

import re
from typing import Any

#: Pages of names and of tables: a search shows them behind the pages that explain.
_LOOKED_UP = (
    "api/", "benchmarks.md", "changelog.md", "comparison.md", "coverage.md", "gallery.md", "operators.md", "sources.md",
    "specification.md",
)  # fmt: skip


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Give a page its weight in a search."""
    if page.file.src_uri.startswith(_LOOKED_UP):
        page.meta["search"] = {"boost": 0.2}
    return markdown


def on_page_content(html: str, page: Any, **_: Any) -> str:
    """Make links of the pages of the manual that docstrings name, as docs/cost.md."""
    if not page.file.src_uri.startswith("api/"):
        return html
    return re.sub(r"(?:<code>)?\bdocs/([\w-]+)\.md(?:</code>)?", r'<a href="../\1.html">\1</a>', html)
