# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Flags, options, passes, levels, files and modules that the prose of the manual names exist.

Blocks are run by test_readme.py; this is about what stands in backquotes between them, and about sentences and tables
that list what runs by default.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import importlib
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from test_readme import ALL_PAGES, ROOT, SCRIPTS

from spyre_mlir import passes
from spyre_mlir.algorithms import REGISTRIES
from spyre_mlir.pipelines import SpyrePipeline, upstream
from spyre_mlir.scratchpad.eligibility import TITLES
from spyre_mlir.tools import man_pages

pytestmark = pytest.mark.documents

#: Pages with many names of other projects; other tests check their names of this project.
FOREIGN = {
    f"docs/{name}.md"
    for name in (
        "comparison",
        "coverage",
        "linalg",
        "mlir-opt-flags",
        "operators",
        "sources",
        "specification",
    )
}
PAGES = sorted(set(ALL_PAGES) - FOREIGN - {"CHANGELOG.md", "CODE_OF_CONDUCT.md"})

#: Names of other tools, and example names that a reader replaces.
ELSEWHERE = {
    "--no-deps", "mlir-opt", "torch-mlir", "mlir-python-bindings", "requires-python", "foo-bar", "some-name",
    "foo_bar.py", "test/passes/foo-bar.mlir", "model.py", "passes.py",
}  # fmt: skip

BLOCK = re.compile(r"^```\w+\n.*?^```$", re.MULTILINE | re.DOTALL)


@functools.cache
def sources() -> str:
    """The text of all Python of the checkout but the tests, and the options of the project and of its tests."""
    files = [
        path for folder in ("spyre_mlir", "benchmarks", "examples") for path in (ROOT / folder).rglob("*.py")
    ]
    declared = (ROOT / "pyproject.toml", Path(__file__).with_name("conftest.py"))
    return "\n".join(path.read_text(encoding="utf-8") for path in (*files, *declared))


@functools.cache
def pass_names() -> set[str]:
    return {*passes.load_all(), *upstream.names()}


@functools.cache
def flags() -> dict[str, set[str]]:
    """The flags of each tool."""
    of_passes = {f"--{name}" for name in pass_names()}
    return {
        parser.prog: {flag for action in parser._actions for flag in action.option_strings} | of_passes
        for parser in man_pages.parsers()
    }


@functools.cache
def all_flags() -> set[str]:
    """The flags of examples, of ``python -m spyre_mlir..``, and of the tests, too."""
    written = re.findall(r'(?:add_argument|addoption)\(\s*"(--[\w-]+)"', sources())
    return set(written).union(*flags().values())


@functools.cache
def benchmarks() -> dict[str, set[str]]:
    """The benchmarks by name, each with its flags, which are its parameters."""
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in (ROOT / "benchmarks").glob("*.py")]
    functions = [each for tree in trees for each in tree.body if isinstance(each, ast.FunctionDef)]
    return {
        function.name.replace("_", "-"): {f"--{each.arg.replace('_', '-')}" for each in function.args.args}
        for function in functions
        if isinstance(function.returns, ast.Name) and function.returns.id == "Metrics"
    }


@functools.cache
def options() -> set[str]:
    classes = [SpyrePipeline, *passes.load_all().values()]
    return {
        field.name.replace("_", "-")
        for each in classes
        if dataclasses.is_dataclass(each)
        for field in dataclasses.fields(each)
    }


def wrong_flags(span: str) -> Iterator[str]:
    tool = re.match(r"spyre-\w+(?= )", span)
    known = flags()[tool[0]] if tool else all_flags()
    yield from (flag for flag in re.findall(r"(?<![\w-])--[a-z][\w-]*", span) if flag not in known)


def wrong_options(span: str) -> Iterator[str]:
    for name in re.findall(r"(?<![\w.-])([a-z]+(?:-[a-z]+)+)=", span):
        if name not in options() and f"--{name}" not in all_flags():
            yield name


def wrong_names(span: str) -> Iterator[str]:
    """A word with hyphens is a pass, an option, a tool, a benchmark, or another name that the code spells out."""
    is_name = re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)+", span)
    if is_name and span not in pass_names() | options() | SCRIPTS.keys():
        is_written = re.search(rf"""["'\[]{span}["'\]]|^{span} =""", sources(), re.MULTILINE)
        if not is_written and span not in benchmarks():
            yield span


def wrong_benchmarks(span: str) -> Iterator[str]:
    names = re.findall(r"-m benchmarks ([a-z][\w-]*)", span)
    yield from (name for name in names if name not in benchmarks())


def wrong_paths(span: str) -> Iterator[str]:
    """A path is one of the checkout, or of the package, where it is in a folder of theirs or a file of Python."""
    folders = [
        ROOT,
        ROOT / "spyre_mlir",
        *(ROOT / name for name in ("test/python", "benchmarks", "examples")),
    ]
    for path in re.findall(
        r"(?<![\w.~/<*-])(?:[\w-]+/)+[\w.-]*[\w/](?![\w.*-])|(?<![\w/.*])[a-z][\w-]*\.py\b", span
    ):
        head = path.partition("/")[0]
        is_ours = path.endswith(".py") or any((folder / head).is_dir() for folder in folders[:2])
        is_made = head == "dist"
        if is_ours and not is_made and not any((folder / path).exists() for folder in folders):
            yield path


def wrong_modules(span: str) -> Iterator[str]:
    """A dotted name of the package is a module, something in it, or a group of entry points."""
    groups = {registry.group for registry in REGISTRIES.values()}
    for name in re.findall(r"\bspyre_mlir(?:\.\w+)+", span):
        try:
            _resolve(name)
        except AttributeError:
            if name not in groups:
                yield name


def _resolve(name: str) -> None:
    module, _, rest = name.partition(".")
    found = importlib.import_module(module)
    for part in rest.split("."):
        module = f"{module}.{part}"
        found = getattr(found, part) if hasattr(found, part) else _imported(module)


def _imported(name: str) -> object:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise AttributeError(name) from error


CHECKS: tuple[Callable[[str], Iterator[str]], ...] = (
    wrong_flags,
    wrong_options,
    wrong_names,
    wrong_benchmarks,
    wrong_paths,
    wrong_modules,
)


def wrong(text: str) -> list[str]:
    """Return the names in backquotes that do not exist; names that blocks of the page define are valid."""
    made = "\n".join([*BLOCK.findall(text), *re.findall(r"<!-- file: (.+?) -->", text)])
    spans = [" ".join(span.split()) for span in re.findall(r"`([^`]+)`", BLOCK.sub("", text))]
    found = [name for span in dict.fromkeys(spans) for check in CHECKS for name in check(span)]
    known = ELSEWHERE | (
        set().union(*benchmarks().values()) if re.search(r"-m benchmarks|make bench", text) else set()
    )
    return [name for name in found if name not in known and name.lstrip("-").rpartition("/")[2] not in made]


@pytest.mark.parametrize("page", PAGES)
def test_what_the_prose_names_exists(page: str) -> None:
    assert wrong((ROOT / page).read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    "span",
    [
        "--native-windows",
        "spyre-run --list-passes",
        "lx-planing=false",
        "choose-layout",
        "python -m benchmarks familys",
        "passes/choose_layout.py",
        "test/passes/none.mlir",
        "spyre_mlir.drivers.compilation",
    ],
)
def test_a_wrong_name_is_seen(span: str) -> None:
    assert wrong(f"As `{span}` says.\n")


def by_default() -> dict[str, list[str]]:
    """The passes of ours that run by default, by level."""
    return {
        level: [step.name for step in pipeline.steps if step.ours]
        for level, pipeline in SpyrePipeline().stages()
    }


def test_the_table_of_levels_has_the_passes_that_run() -> None:
    """The passes are in order; passes that options add are listed with the default passes."""
    text = (ROOT / "docs/levels.md").read_text(encoding="utf-8")
    table = dict(
        re.findall(r"^\| `([\w-]+)` \|.*\| ([^|]+) \|$", text[text.index("## The levels") :], re.MULTILINE)
    )
    shown = {level: re.findall(r"`([\w-]+)`", cell) for level, cell in table.items()}
    assert shown.pop("placed") == [*_decisions("placed"), "cut-bundles"]
    assert shown == {level: _decisions(level) for level in by_default() if level != "placed"}


def _decisions(level: str) -> list[str]:
    return list(dict.fromkeys(name for name in by_default()[level] if not name.startswith("verify-")))


def test_the_checks_that_run_by_default() -> None:
    checks = [name for names in by_default().values() for name in names if name.startswith("verify-")]
    (said,) = re.findall(
        r"runs (\w+) of the checks, ((?:.|\n)*?):", (ROOT / "docs/design.md").read_text("utf-8")
    )
    assert re.findall(r"`([\w-]+)`", said[1]) == checks
    assert said[0] == ("no", "one", "two", "three", "four", "five", "six")[len(checks)]


def test_the_passes_of_the_scratchpad_that_do_not_run_by_default() -> None:
    text = (ROOT / "docs/scratchpad.md").read_text(encoding="utf-8")
    listed = set(
        re.findall(r"^\| `([\w-]+)` \|", text[text.index("## The passes") : text.index("## Joint")], re.M)
    )
    (said,) = re.findall(r"All but (.*) run by default", text)
    running = {name for names in by_default().values() for name in names}
    assert sorted(re.findall(r"`([\w-]+)`", said)) == sorted(listed - running)


@pytest.mark.parametrize("page", PAGES)
def test_numbers_that_are_options_are_their_defaults(page: str) -> None:
    """Written as 10 (the option `variants`)."""
    for number, name in re.findall(r"([\d.]+)\s\(the\soption\s`([\w-]+)`", (ROOT / page).read_text("utf-8")):
        assert number in defaults(name)


def defaults(option: str) -> set[str]:
    """The defaults of an option, one for each class that has it."""
    return {
        str(field.default)
        for each in (SpyrePipeline, *passes.load_all().values())
        if dataclasses.is_dataclass(each)
        for field in dataclasses.fields(each)
        if field.name.replace("_", "-") == option
    }


def rows(page: str, heading: str) -> list[str]:
    """The first cells of the first table below a heading, without its head."""
    text = (ROOT / page).read_text(encoding="utf-8")
    table = re.search(r"(?:^\|.*\n)+", text[text.index(f"\n{heading}\n") :], re.MULTILINE)
    assert table is not None
    return [line.split("|")[1].strip() for line in table[0].splitlines()[2:]]


def test_the_table_of_reasons() -> None:
    """In the order in which they are looked at."""
    assert rows("docs/scratchpad.md", "## Why a buffer is not in LX") == list(TITLES)


def test_the_table_of_solvers() -> None:
    names = [
        name for row in rows("docs/scratchpad.md", "## Solvers") for name in re.findall(r"`([\w-]+)`", row)
    ]
    registry = REGISTRIES["layout_solver"]
    # Other tests register solvers of their own, which stay for the rest of the process.
    assert set(names) == {name for name in registry.names() if not registry.find(name).is_foreign()}


def test_the_table_of_the_environment() -> None:
    """Every variable of ours that the package reads, by its name in quotes."""
    read = set(re.findall(r'"((?:SPYRE|LX|CO|DXP|LAYOUT)_[A-Z_]+|SENCORES)"', sources()))
    named = {name for row in rows("docs/tools.md", "## Environment") for name in re.findall(r"`(\w+)`", row)}
    assert named == read


def test_the_table_of_algorithms() -> None:
    text = (ROOT / "docs/writing-an-algorithm.md").read_text(encoding="utf-8")
    table = re.findall(r"^\| `([\w-]+)` \|.* \| `([\w-]+)` \| `([\w.]+)` \|$", text, re.MULTILINE)
    assert {option: (default, group) for option, default, group in table} == {
        option.replace("_", "-"): (registry.default, registry.group)
        for option, registry in REGISTRIES.items()
    }


def test_the_number_of_scripts() -> None:
    count = len(list(Path(ROOT, "examples").glob("*.py")))
    for page in ("README.md", "docs/index.md"):
        assert ("eight scripts" in (ROOT / page).read_text(encoding="utf-8")) == (count == 8)
