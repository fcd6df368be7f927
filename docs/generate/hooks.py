# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Hooks of mkdocs that change each page of the site: links in docstrings, titles of files, weights in the search."""

from __future__ import annotations

import re
from typing import Any

#: Pages of names and of tables: a search lists them after the pages that explain.
_LOOKED_UP = (
    "api/", "benchmarks.md", "changelog.md", "comparison.md", "coverage.md", "gallery.md", "operators.md", "sources.md",
    "specification.md",
)  # fmt: skip


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Set the weight of a page in a search, and show the name of a file as the title of its code block."""
    if page.file.src_uri.startswith(_LOOKED_UP):
        page.meta["search"] = {"boost": 0.2}
    return re.sub(r"^<!-- file: (\S+) -->\n```(\w+)$", r'```\2 title="\1"', markdown, flags=re.MULTILINE)


def on_page_content(html: str, page: Any, **_: Any) -> str:
    """Replace paths of pages in docstrings, such as docs/cost.md, by links to the pages."""
    if not page.file.src_uri.startswith("api/"):
        return html
    return re.sub(r"(?:<code>)?\bdocs/([\w-]+)\.md(?:</code>)?", r'<a href="../\1.html">\1</a>', html)
