# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Citations in comments, docstrings and pages are in the repository, or in the table of docs/sources.md."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from cited_sources import ROOT, Paragraph, cells, foreign_names, paragraphs, sentences, sources

pytestmark = pytest.mark.documents

#: A file of text, named in a sentence: notes, pages of the manual. Data files are not cited by a bare name.
CITATION = re.compile(r"(?<![\w/.-])[\w./-]*\w\.(?:md|txt|rst|pdf)\b")

#: Folders of torch-spyre's repositories, of which docs/sources.md names files.
ELSEWHERE = (
    "docs/source/",
    "0248-SdscBundleSpec/",
    "2244-SdscSemantics/",
    "ProgramExecution/",
    "docs/inter-tile-communication.md",
    "//github.com/torch-spyre/",
)

#: Pages of the site, of which docs/generate makes some when it is built.
SITE = set(re.findall(r"[\w/-]+\.md", (ROOT / "mkdocs.yml").read_text(encoding="utf-8")))


def missing(text: str, suffix: str, folder: Path = ROOT) -> list[tuple[int, str]]:
    """The citations of files that are not in the repository, by line; a page also names its neighbours."""
    folders = (ROOT, folder) if suffix == ".md" else (ROOT,)
    return [
        (line, cited)
        for line, sentence in sentences(text, suffix)
        for cited in CITATION.findall(sentence)
        if not cited.startswith(ELSEWHERE) and not any((each / cited).is_file() for each in folders)
        if not (suffix == ".md" and os.path.relpath(folder / cited, ROOT / "docs") in SITE)
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

#: Files outside of the repository: files of torch-spyre.
FOREIGN = {
    "allocator.py", "codegen/compute_ops.py", "firstfit_bestfit_solver.py", "passes.py", "plan_solver.py",
    "spyre_kernel.py", "utils.py",
}  # fmt: skip
#: Files that a reader of the manual writes: files of its blocks, and two of its sentences.
WRITTEN = {"foo_bar.py", "spyre_hints.py", "spyre_mlir/passes/cap_exponents.py"} | {
    name
    for page in ROOT.glob("docs/*.md")
    for name in re.findall(r"<!-- file: (\S+)", page.read_text(encoding="utf-8"))
}


def test_every_cited_module_is_in_the_repository() -> None:
    """A module that moved is cited by its new path."""
    modules = [f"/{path.relative_to(ROOT)}" for path in sources() if path.suffix == ".py"]
    absent = [
        f"{path.relative_to(ROOT)}:{line} {cited}"
        for path in sources()
        for line, sentence in sentences(path.read_text(encoding="utf-8"), path.suffix)
        for cited in MODULE.findall(sentence)
        if cited not in FOREIGN | WRITTEN and not any(module.endswith(f"/{cited}") for module in modules)
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
        ("[Made](docs/reference/passes.md), [not](docs/reference/no.md).\n", ".md", [1]),
    ],
)  # fmt: skip
def test_a_citation_is_found(text: str, suffix: str, lines: list[int]) -> None:
    assert [line for line, _ in missing(text, suffix)] == lines


# -- sources of others ------------------------------------------------------------------------------------

#: Names by which docs/sources.md cites its sources, and authors and year of each publication.
SOURCES = [
    name.strip('"')
    for cell in cells("The device and its tool chain")
    for name in re.split(r", (?=\w|\")", cell)
]
PAPERS = cells("Algorithms")

#: A name of a source, or the page itself, which also lists untraced facts.
NAMED = re.compile(
    "|".join(
        rf"(?<![\w-]){re.escape(name)}(?![\w-]| #)".replace(r"\ ", r"\s+")
        for name in (*SOURCES, "MiniMalloc")
    )
    + r"|\bsources\.md"
)

#: Words that attribute a fact, so the same paragraph must name the source.
HEARSAY = re.compile(
    r"\bRFCs?\b(?! \d{4}\b)|\bpublish(?:ed|es)\b|\bas (?:was )?measured\b"
    r"|\b(?:fitted|measured|divided|laid out) (?:by )?upstream\b"
    r"|\b[Uu]pstream(?:'s)? (?:measure|fit|divide|lays|design|issue|list|emitter|schema)\w*"
    r"|\b(?:[Aa]s|[Ss]ee|[Ff]rom|[Ii]n|[Oo]f|[Bb]y) the (?:notes|paper|thesis|brief|memo|prototype|slides)\b"
    r"|\b(?:first|early|original) sketch\b|\b[Ii]ssue #?\d+|\b[Pp]ull request\b|\bPR #?\d+|\b[Ss]ession \d+"
    r"|\b[\w/]+\.(?:cpp|hpp|cc)\b"
)

#: Words with an article, for which the head of the file or a heading may name the source.
DEFINITE = re.compile(
    r"\b[Tt]he (?:public |reference |official |JSON )?(?:specification|schema|emitter|tool chain|front end)\b(?!\.)"
    r"|\bpublic (?:documents?|formats?|interfaces?|schema|interpreter|tool chain)\b"
    r"|\bpublic (?:inputs?|outputs?|lists?|texts?|forms?)\b"
    r"|\b(?:hardware's|official|upstream|those) documents?\b|\bthe documents'|\bof the documents\b"
    r"|\b(?:in|of|as) the document\b(?! as)|\bthe document's\b"
    r"|`(?:" + "|".join(map(re.escape, FOREIGN)) + r")`|\b(?:" + "|".join(sorted(foreign_names())) + r")\b"
)

#: A discussion by its number; the repository is part of its name in the table.
NUMBERED = re.compile(r"([\w/-]+ #\d{3,5}|RFC \d{4})\b")

#: A year that ends a citation.
YEAR = re.compile(r"(?<![#\d])((?:19[4-9]\d|20[0-2]\d))(?=[);.,])")
MONTH = re.compile(
    r"(?:January|February|March|April|May|June|July|August|September|October|November|December) $"
)


def nowhere(text: str, suffix: str) -> list[tuple[int, str]]:
    """The references of a file that no reader can look up, by line."""
    return [(part.line, each) for part in paragraphs(text, suffix) for each in _nowhere(part)]


def _nowhere(part: Paragraph) -> Iterator[str]:
    if not NAMED.search(part.text):
        yield from (match[0] for match in HEARSAY.finditer(part.text))
        if not NAMED.search(part.known):
            yield from (match[0] for match in DEFINITE.finditer(part.text))
    yield from (name for name in NUMBERED.findall(part.text) if name not in SOURCES)


def unlisted(text: str, suffix: str) -> list[tuple[int, str]]:
    """The publications of a file, by author and year, that docs/sources.md does not have."""
    return [(part.line, year) for part in paragraphs(text, suffix) for year in _unlisted(part.text)]


def _unlisted(text: str) -> Iterator[str]:
    end = 0
    for found in YEAR.finditer(text):
        # The authors stand between the year before and this one.
        before, year, end = text[end : found.start()], found[0], found.end()
        words = set(re.findall(r"\w+", before))
        listed = [paper for paper in PAPERS if year in paper and words & set(re.findall(r"[A-Z]\w+", paper))]
        if not listed and not MONTH.search(before):
            yield year


def test_what_is_cited_has_a_name_in_the_table_of_sources() -> None:
    """Each cited fact of others has a name in docs/sources.md, with its address."""
    found = {
        str(path.relative_to(ROOT)): lost
        for path in sources()
        if path != ROOT / "docs" / "sources.md"
        if (lost := nowhere(path.read_text(encoding="utf-8"), path.suffix))
    }
    assert found == {}


def test_publications_are_in_the_table_of_sources() -> None:
    found = {
        str(path.relative_to(ROOT)): lost
        for path in sources()
        if path.suffix == ".py" and path.is_relative_to(ROOT / "spyre_mlir")
        if (lost := unlisted(path.read_text(encoding="utf-8"), path.suffix))
    }
    assert found == {}


def test_every_row_of_the_table_is_cited_and_its_files_are_there() -> None:
    page = ROOT / "docs" / "sources.md"
    texts = [path.read_text(encoding="utf-8") for path in sources() if path != page]
    assert [name for name in SOURCES if not any(name in " ".join(text.split()) for text in texts)] == []
    named = re.findall(r"`((?:spyre_mlir|test|benchmarks)/[\w./]+)`", page.read_text(encoding="utf-8"))
    assert len(named) > 40 and [name for name in named if not (ROOT / name).exists()] == []


@pytest.mark.parametrize(
    "text, suffix, found",
    [
        ("# The RFC has it.\nx = 1\n", ".py", ["RFC"]),
        ("# RFC 0047 has it.\nx = 1\n", ".py", []),
        ('"""As RFC 9999 says, of torch-spyre #9999."""\n', ".py", ["RFC 9999", "torch-spyre #9999"]),
        ("def f():\n    \"\"\"Divided as published.\"\"\"\n", ".py", ["published"]),
        ('def f():\n    """Divided as published in\n    "Work Division\n    Planning".\n    """\n', ".py", []),
        ("[a]\nb = 1  # A: fitted upstream\n", ".toml", ["fitted upstream"]),
        ("[a]\nb = 1  # A: Upstream measured\n    # 130 (issue 12)\n", ".toml", ["Upstream measured", "issue 12"]),
        ("[a]\nb = 1  # A: published\nc = 2  # by ktir-cpu\n", ".toml", []),
        ("// In the notes.\nfunc.func private @f()\n// A first sketch.\n", ".mlir", ["In the notes", "first sketch"]),
        ('"""Conformance to torch-spyre."""\n# What the schema says.\nx = 1\n', ".py", []),
        ('"""Conformance."""\n# What the schema says.\nx = 1\n', ".py", ["the schema"]),
        ("# As ``must_split_vars`` does, in LifetimeBoundBuffer.\nx = 1\n", ".py", ["must_split_vars"]),
        ("# A page\n\nAs the public interpreter has it.\n", ".md", ["public interpreter"]),
        ("# A page\n\nOf ktir-cpu.\n\n## A\n\nThe schema.\n\n## B\n\nThe schema, published.\n", ".md", ["published"]),
        ("# A page\n\n## RFC 0047\n\n| as the document's example |\n\n## Next\n\nThe document's.\n", ".md", []),
        ("# A page\n\n## RFC 0047\n\nIts.\n\n## Next\n\n| of the documents |\n", ".md", ["of the documents"]),
        ("`spyre_kernel.py` has it; its `memory.cpp` too.\n", ".md", ["memory.cpp", "`spyre_kernel.py`"]),
        ("# The judge and the document of an editor: session ends, noted upstream as a pass.\n", ".py", []),
    ],
)  # fmt: skip
def test_a_reference_to_nowhere_is_found(text: str, suffix: str, found: list[str]) -> None:
    assert [each for _, each in nowhere(text, suffix)] == found


@pytest.mark.parametrize(
    "text, years",
    [
        ('"""The dual simplex method (Lemke, 1954)."""\n', []),
        ('"""The dual simplex method (Lemke, 1955), and Dantzig et al., 1954."""\n', ["1955", "1954"]),
        ("# Of 2000 ops, in November 2026.\n", []),
        ("# Of Gomes\n# et al., 2000; of Nobody, 2001.\n", ["2001"]),
    ],
)
def test_a_publication_that_is_not_listed_is_found(text: str, years: list[str]) -> None:
    assert [year for _, year in unlisted(text, ".py")] == years
