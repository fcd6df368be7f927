# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a comment or a docstring cites is in the repository, or a public document by its title."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

#: A file of text, named in a sentence: notes, pages of the manual. Data files are not cited by a bare name.
CITATION = re.compile(r"(?<![\w/.-])[\w./-]*\w\.(?:md|txt|rst|pdf)\b")

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
        # Blocks of code are blanked: a page writes and reads files of its own there.
        prose = re.sub(r"^```.*?^```", lambda block: "\n" * block[0].count("\n"), text, flags=BLOCK)
        yield from enumerate(prose.splitlines(), 1)
    elif suffix == ".py":
        yield from _python_sentences(text)
    else:
        for number, line in enumerate(text.splitlines(), 1):
            comment = COMMENT[suffix].search(line)
            if comment is not None:
                yield number, comment[1]


def _python_sentences(text: str) -> Iterator[tuple[int, str]]:
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, documented) and (docstring := ast.get_docstring(node, clean=False)):
            yield getattr(node, "lineno", 1), docstring


def missing(text: str, suffix: str, folder: Path = ROOT) -> list[tuple[int, str]]:
    """The citations of files that are not in the repository, by line; a page also names its neighbours."""
    folders = (ROOT, folder) if suffix == ".md" else (ROOT,)
    return [
        (line, cited)
        for line, sentence in sentences(text, suffix)
        for cited in CITATION.findall(sentence)
        if not any((each / cited).is_file() for each in folders)
    ]


def test_every_cited_file_is_in_the_repository() -> None:
    """A page of the manual by its path, as docs/layouts.md; notes of a session are nothing that a reader has."""
    found = {
        str(path.relative_to(ROOT)): absent
        for path in sources()
        if (absent := missing(path.read_text(encoding="utf-8"), path.suffix, path.parent))
    }
    assert found == {}


#: A Python file by its name or the end of its path, in quotes of code.
MODULE = re.compile(r"`((?:\w+/)*\w+\.py)`")

#: Files that are not of the repository: those of the public documents, and those that a reader of a page writes.
FOREIGN = {
    "allocator.py", "codegen/compute_ops.py", "firstfit_bestfit_solver.py", "plan_solver.py", "spyre_kernel.py",
    "utils.py", "foo_bar.py", "spyre_mlir/passes/cap_exponents.py",
}  # fmt: skip


def test_every_cited_module_is_in_the_repository() -> None:
    """A module that moved is cited by its new path."""
    modules = [f"/{path.relative_to(ROOT)}" for path in sources() if path.suffix == ".py"]
    absent = [
        f"{path.relative_to(ROOT)}:{line} {cited}"
        for path in sources()
        for line, sentence in sentences(path.read_text(encoding="utf-8"), path.suffix)
        for cited in MODULE.findall(sentence)
        if cited not in FOREIGN and not any(module.endswith(f"/{cited}") for module in modules)
    ]
    assert absent == []


@pytest.mark.parametrize(
    "text, suffix, lines",
    [
        ('"""As the notes say (hardware.md)."""\nx = "thesis.txt"\n', ".py", [1]),
        ("def f():\n    # work-division.txt has it\n    return 1\n", ".py", [2]),
        ('"""README.md and docs/layouts.md are here, layouts.md in the root is not."""\n', ".py", [1]),
        ("func.func private @f()\n// The example of ../notes/layouts.md.\n", ".mlir", [2]),
        ("[a]\nb = 1  # A: hardware.md\n", ".toml", [2]),
        ("As hardware.md says.\n```sh\ncat summary.txt\n```\nAnd docs/notes.md.\n", ".md", [1, 5]),
        ('"""docs/layouts.md"""\n# README.md\nx = 1\n', ".py", []),
    ],
)  # fmt: skip
def test_a_citation_is_found(text: str, suffix: str, lines: list[int]) -> None:
    assert [line for line, _ in missing(text, suffix)] == lines
