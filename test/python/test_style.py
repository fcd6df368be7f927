# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Names, docstrings and sizes of the package: the field's words, and parts that are small enough to read."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from import_graph import PACKAGE, ROOT, nodes

#: The first line of every source, after the line of the interpreter; lit tests and pages do not need it.
LICENSE = "SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception"

#: Participles and pronouns that do not say what a variable is; docs/glossary.md has the field's nouns.
VAGUE = set(
    "apart at done each found given held kept left made most own some taken told wanted".split()
)  # fmt: skip

#: Words of our own making, with the field's in docs/glossary.md.
HOME_MADE = {
    "agreement": "joint division", "banded": "halo tiling", "barred": "ineligible", "handover": "def-use edge",
    "home": "placement", "homes": "placements", "lane": "stick dim", "lives": "live ranges", "offers": "candidates",
    "patches": "im2col", "prefixes": "padding safety", "relaid": "relayout", "rooms": "padding", "seat": "constraint",
    "sisters": "variants", "touch": "access", "touched": "accessed", "twins": "equivalent values",
    "variant": "division candidate", "works": "ops",
}  # fmt: skip

#: Beginnings of docstrings that name no subject.
RELATIVE = ("what", "whether", "how", "those", "that", "the same", "where", "which")


FILES = sorted(PACKAGE.rglob("*.py"))


def names(path: Path) -> Iterator[tuple[int, str]]:
    """The names that a file gives, with their lines."""
    for node in nodes(path):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.lineno, node.name
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg
        elif isinstance(node, ast.Name):
            yield node.lineno, node.id
        elif isinstance(node, ast.Attribute):
            yield node.lineno, node.attr


def words(name: str) -> list[str]:
    """The words of a name in snake or camel case, in small letters."""
    spaced = "".join(f" {c}" if c.isupper() else c for c in name.replace("_", " "))
    return spaced.lower().split()


def classes() -> Iterator[tuple[Path, ast.ClassDef]]:
    for path in FILES:
        for node in nodes(path):
            if isinstance(node, ast.ClassDef):
                yield path, node


def sources() -> list[Path]:
    """Every source of the checkout that has a header."""
    folders = ("spyre_mlir", "benchmarks", "examples", "editors", "test", "typings")
    files = [file for folder in folders for file in (ROOT / folder).rglob("*")]
    return [
        file
        for file in files
        if file.suffix in (".py", ".pyi", ".js", ".css", ".toml")
        and file.is_file()
        and "Output" not in file.parts
    ]


def test_sources_name_their_license() -> None:
    bare = [file for file in sources() if LICENSE not in file.read_text(encoding="utf-8").split("\n\n")[0]]
    assert bare == []


@pytest.mark.parametrize(
    ("name", "expected"), [("StickLayout", ["stick", "layout"]), ("_is_touched", ["is", "touched"])]
)
def test_words_of_a_name(name: str, expected: list[str]) -> None:
    assert words(name) == expected


def test_variables_are_nouns() -> None:
    """At most 1 % of names say only that something was found, made or given."""
    every = [f"{path}:{line} {name}" for path in FILES for line, name in names(path)]
    vague = [entry for entry in every if entry.split()[-1] in VAGUE]
    assert len(vague) <= len(every) // 100, "\n".join(vague)


def test_names_are_the_fields() -> None:
    home_made = [
        f"{path}:{line} {name}: say {HOME_MADE[word]}"
        for path in FILES for line, name in names(path) for word in words(name) if word in HOME_MADE
    ]  # fmt: skip
    assert len(home_made) <= 3, "\n".join(home_made)


def test_docstrings_name_their_subject() -> None:
    definitions = [
        (path, node)
        for path in FILES
        for node in nodes(path)
        if isinstance(node, ast.FunctionDef | ast.ClassDef)
    ]
    docstrings = [
        (path, node.lineno, text) for path, node in definitions if (text := ast.get_docstring(node))
    ]
    relative = [
        f"{path}:{line} {text}" for path, line, text in docstrings if text.lower().startswith(RELATIVE)
    ]
    assert len(relative) <= len(docstrings) // 50, "\n".join(relative)


def test_public_functions_are_documented() -> None:
    public = [
        (path, node) for path in FILES for node in nodes(path)
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_")
    ]  # fmt: skip
    bare = [f"{path}:{node.lineno} {node.name}" for path, node in public if not ast.get_docstring(node)]
    assert len(bare) <= 0.15 * len(public), "\n".join(bare)


def test_a_name_is_one_class_and_one_file() -> None:
    """A class or a file name occurs once, private names included, but for the names of another package."""
    class_names = Counter(node.name.strip("_") for path, node in classes() if "public" not in path.parts)
    file_names = Counter(
        path.name for path in FILES if not path.name.startswith("__") and "public" not in path.parts
    )
    assert [name for name, count in (class_names + file_names).items() if count > 1] == []


def test_sizes() -> None:
    """No folder has more than 18 % of all lines."""
    lines = {path: path.read_text(encoding="utf-8").count("\n") for path in FILES}
    folders: Counter[str] = Counter()
    for path, count in lines.items():
        folders[path.relative_to(PACKAGE).parts[0]] += count
    large = [f"{name}: {count}" for name, count in folders.items() if count > 0.18 * sum(lines.values())]
    assert large == [], "\n".join(large)
