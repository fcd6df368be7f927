# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Check a built site: all targets of links are in it, headings included, and no page loads from the network.

Headings descend level by level, and code in a table does not show backslashes of Markdown.

    python docs/generate/check_site.py dist/docs

mkdocs checks links between Markdown pages; this script also checks links of the theme, of pages that tools write, and
of HTML in Markdown.
"""

from __future__ import annotations

import itertools
import re
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

#: Attributes whose file a browser loads at once, by the element.
_LOADED = {"script": "src", "img": "src", "iframe": "src", "source": "srcset", "link": "href"}


class Page(HTMLParser):
    """The references and the anchors of one page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.has_backslash = re.search(r"<td[^>]*>(?:(?!</td>).)*<code>[^<]*\\\|", text) is not None
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.levels = [int(level) for level in re.findall(r"<h([1-6])\b", text)]
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attributes}
        self.anchors |= {values[name] for name in ("id", "name") if name in values}
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        elif _LOADED.get(tag, "") in values:
            self.loads.append(values[_LOADED[tag]])


def problems(site: Path) -> Iterator[str]:
    """Yield a sentence for each reference without a target, and for each file that a page loads from the network."""
    pages = {path: Page(path.read_text(encoding="utf-8")) for path in sorted(site.rglob("*.html"))}
    for path, page in pages.items():
        name = path.relative_to(site)
        if name.name == "404.html":
            continue  # Its references begin at the root of a server.
        if any(level > before + 1 for before, level in itertools.pairwise([0, *page.levels])):
            yield f"{name} has a heading that skips a level"
        if page.has_backslash:
            yield f"{name} shows a backslash before a bar in the code of a table"
        for target in (*page.links, *page.loads):
            url = urlsplit(target)
            if url.scheme or url.netloc:
                if target in page.loads and url.scheme != "data":
                    yield f"{name} loads {target} from the network"
                continue
            file = (path.parent / unquote(url.path)).resolve() if url.path else path
            if not file.is_relative_to(site) or not file.is_file():
                yield f"{name} refers to {target}, which is not in the site"
            elif url.fragment and file in pages and unquote(url.fragment) not in pages[file].anchors:
                yield f"{name} refers to {target}, which is not a heading there"


def main(folder: str) -> int:
    """Print all problems of a site; return 1 if there are any."""
    sentences = list(problems(Path(folder).resolve()))
    print(*sentences, sep="\n", end="\n" if sentences else "")
    return 1 if sentences else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
