# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Patterns of prose over which a reader stumbles: their numbers in the package and in the pages only fall."""

from __future__ import annotations

import ast
import functools
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.documents

ROOT = Path(__file__).parents[2]

#: Regular expressions with the number of lines that fit, and with the words to write instead.
PATTERNS = {
    r"\b(those|that) of\b": (0, "repeat the noun"),
    r"\b(is|are|was|were|be) no (?!longer|more|less|larger|smaller|worse|better|other\b|effect|need|such)\w+":
        (27, "is not a, does not have"),
    r"\bbehind\b": (0, "after, following"),
    r"\b(has|have) not(?=[,.;:)]|$)": (0, "does not have, does not support"),
    r"\b(tells?|told)\b": (0, "reports"),
    r"^\s*(\"\"\"|#)?\s*What\b": (0, "name the thing"),
    r"\bbeside\b": (0, "next to, with, in addition to"),
    r"\banew\b": (0, "again"),
    r"\bso many\b": (0, "the number of"),
    r"\bin front( of)?\b": (0, "before"),
    r"\bgoes? by\b": (0, "is determined by"),
    r"\bof (the|a) users?\b": (2, "user-defined"),
}  # fmt: skip


@functools.cache
def lines_of_prose() -> tuple[tuple[str, str], ...]:
    """All lines of comments, docstrings, messages and pages, with their places."""
    return tuple(_of_sources()) + tuple(_of_pages())


def _of_sources() -> Iterator[tuple[str, str]]:
    for path in sorted((ROOT / "spyre_mlir").rglob("*.py")):
        text, name = path.read_text(encoding="utf-8"), path.relative_to(ROOT)
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.COMMENT:
                yield f"{name}:{token.start[0]}", token.string
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
                for offset, line in enumerate(node.value.splitlines()):
                    yield f"{name}:{node.lineno + offset}", line


def _of_pages() -> Iterator[tuple[str, str]]:
    for path in (*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))):
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            yield f"{path.relative_to(ROOT)}:{number}", line


@pytest.mark.parametrize("pattern", PATTERNS)
def test_prose(pattern: str) -> None:
    """A sentence that is rewritten lowers the number."""
    most, instead = PATTERNS[pattern]
    found = [f"{place}: {line.strip()}" for place, line in lines_of_prose() if re.search(pattern, line)]
    assert len(found) <= most, f"Write: {instead}.\n" + "\n".join(found)


#: Pages on the way of a reader, from the home page.
PATHS = {
    "a model": ("index", "getting-started", "reading-a-report", "questions"),
    "passes": ("index", "levels", "writing-a-pass"),
    "research": ("index", "experiments", "zoo", "tuning"),
    "torch-spyre": ("index", "torch-spyre", "device-tensors"),
}


def words_of(page: str) -> int:
    """Return the words of a page outside of code blocks and comments."""
    text = (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")
    return len(re.sub(r"<!--.*?-->|```.*?```", "", text, flags=re.DOTALL).split())


@pytest.mark.parametrize("reader", PATHS)
def test_the_way_of_a_reader_is_short(reader: str) -> None:
    assert sum(map(words_of, PATHS[reader])) <= 6000


def test_the_manual_without_its_reference_is_short() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:")[2]
    pages = re.findall(r"([\w-]+)\.md", navigation.partition("  - Reference:")[0])
    assert len(pages) > 30 and sum(map(words_of, pages)) <= 36000
