# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Sentences of files that people read, and the names by which they cite the sources of docs/sources.md."""

from __future__ import annotations

import ast
import functools
import io
import re
import tokenize
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "sources.md"

BLOCK = re.MULTILINE | re.DOTALL
COMMENT = {".mlir": re.compile(r"//(.*)"), ".toml": re.compile(r"#(.*)"), ".test": re.compile(r"#(.*)")}


def sources() -> list[Path]:
    """Every file of the checkout that is read by people."""
    folders = ("spyre_mlir", "test", "benchmarks", "examples", "docs")
    files = [file for folder in folders for file in (ROOT / folder).rglob("*")]
    return [each for each in (*files, *ROOT.glob("*.*")) if each.suffix in (".py", ".md", *COMMENT)]


def sentences(text: str, suffix: str) -> Iterator[tuple[int, str]]:
    """Comments, docstrings, and the prose of a page, with the line that they begin in."""
    if suffix == ".md":
        # Blocks of code are blanked, because a page writes and reads its own files there.
        prose = re.sub(r"^```.*?^```", lambda block: "\n" * block[0].count("\n"), text, flags=BLOCK)
        yield from enumerate(prose.splitlines(), 1)
    elif suffix == ".py":
        yield from _python_sentences(text)
    else:
        for number, line in enumerate(text.splitlines(), 1):
            comment = COMMENT[suffix].search(line)
            if comment is not None:
                yield number, comment[1]


@functools.cache
def _python_sentences(text: str) -> tuple[tuple[int, str], ...]:
    return tuple(_comments_and_docstrings(text))


def _comments_and_docstrings(text: str) -> Iterator[tuple[int, str]]:
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, documented) and (docstring := ast.get_docstring(node, clean=False)):
            yield getattr(node, "lineno", 1), docstring


@dataclass(frozen=True)
class Paragraph:
    """Lines that are read together, with their context: the head of the file and the headings above."""

    line: int
    text: str
    known: str


def paragraphs(text: str, suffix: str) -> Iterator[Paragraph]:
    """Join the sentences of a file: lines of one comment, parts of a docstring, lines of a page between empty ones."""
    if suffix == ".md":
        yield from _page_paragraphs(list(sentences(text, suffix)))
        return
    head = (ast.get_docstring(ast.parse(text)) or "") if suffix == ".py" else ""
    comment: list[str] = []
    first = last = 0
    for line, sentence in (*sorted(sentences(text, suffix)), (-1, "#")):
        is_docstring = suffix == ".py" and not sentence.startswith("#")
        if comment and (is_docstring or line != last + 1):
            yield Paragraph(first, "\n".join(comment), head)
            comment = []
        if is_docstring:
            yield from _parts(line, sentence, head)
            continue
        first, last = (line if not comment else first), line
        comment.append(sentence.lstrip("#:/ "))


def _parts(line: int, docstring: str, head: str) -> Iterator[Paragraph]:
    for part in re.split(r"\n\s*\n", docstring):
        yield Paragraph(line, part, head)
        line += part.count("\n") + 2


def _page_paragraphs(lines: Sequence[tuple[int, str]]) -> Iterator[Paragraph]:
    headings: dict[int, str] = {}
    intro, collected, first = "", [], 1
    for line, text in (*lines, (0, "")):
        heading = re.match(r"(#+) ", text)
        if text.strip() and not heading and not text.startswith("|"):
            first = first if collected else line
            collected.append(text)
            continue
        if collected:
            joined = "\n".join(collected)
            yield Paragraph(first, joined, intro + " ".join(headings.values()))
            # The text of a page before its first section applies to all sections.
            intro += "" if len(headings) > 1 else joined + "\n"
            collected = []
        if heading:
            depth = len(heading[1])
            headings = {each: name for each, name in headings.items() if each < depth} | {depth: text}
        if text.startswith("|"):
            yield Paragraph(line, text, intro + " ".join(headings.values()))


def cells(heading: str) -> list[str]:
    """The first column of the table below a heading of docs/sources.md: how its sources are cited."""
    section = PAGE.read_text(encoding="utf-8").split(f"\n## {heading}\n")[1].split("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("|")][2:]
    return [row.split("|")[1].strip() for row in rows]


def foreign_names() -> set[str]:
    """Return the names of torch-spyre on docs/specification.md that do not occur in the package."""
    page = (ROOT / "docs" / "specification.md").read_text(encoding="utf-8")
    rows = [
        line
        for line in page.split("\n## Names\n")[1].split("\n## ")[0].splitlines()
        if line.startswith("| `")
    ]
    names = {name for row in rows for name in re.findall(r"`(\w+)`", row.split("|")[1]) if len(name) > 8}
    files = list((ROOT / "spyre_mlir").rglob("*.py"))
    code = " ".join((*(path.stem for path in files), *(path.read_text(encoding="utf-8") for path in files)))
    return names - set(re.findall(r"\w+", re.sub(r"``.*?``|#.*", "", code)))
