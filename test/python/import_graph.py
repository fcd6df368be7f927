# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The imports between the files of the checkout, and the tests that reach a file through them.

A test that compiles a whole program reaches every file. So imports are not followed through ``DOORS``, the modules that
stand for the whole compiler, out of their folder: a test counts as reaching a file if it reaches the file in another
way, or names its pass.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "spyre_mlir"
TESTS = ROOT / "test" / "python"

#: Modules that import, or load by name, all of the compiler, and the fixtures of all tests.
DOORS = re.compile(
    r"conftest|spyre_mlir(\.(api|driver|frontend|pipelines|tools|experiments|language_server)(\..*)?|\.passes)?"
)


#: Nodes that tests of sources inspect: definitions, the names that they bind, and imports, by name too.
KINDS = (
    ast.FunctionDef, ast.ClassDef, ast.arg, ast.Name, ast.Attribute, ast.Import, ast.ImportFrom, ast.Call, ast.Assign
)  # fmt: skip


@functools.cache
def nodes(path: Path) -> list[ast.AST]:
    """The nodes of ``KINDS`` in a file, which is read once for all tests; of names those that are given."""
    every = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    return [
        node
        for node in every
        if isinstance(node, KINDS) and isinstance(getattr(node, "ctx", None), ast.Store | None)
    ]


def _statements(text: str) -> list[ast.AST]:
    """Return the statements of a source, nested ones too: a tenth of the nodes of its syntax tree."""
    found: list[ast.AST] = [ast.parse(text)]
    for node in found:
        for field in ("body", "orelse", "finalbody", "handlers", "cases"):
            found += getattr(node, field, ())
    return found


@functools.cache
def imports(path: Path) -> frozenset[str]:
    """The dotted names that a file imports, also inside functions and by name; ``from a import b`` is ``a.b``.

    Passes and algorithms, which registries load by their names, do not count.
    """
    names: set[str] = set()
    text = path.read_text(encoding="utf-8")
    # The tree of a file that loads nothing by name does not stay in memory: the garbage collector would visit it.
    for node in nodes(path) if re.search("import_module|_MODULES", text) else _statements(text):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            names |= _texts(node)
        # The tables of ``__getattr__`` of a package.
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "_MODULES":
            names |= _texts(node)
    return frozenset(names)


def _texts(node: ast.AST) -> set[str]:
    """The texts in a node that may be names of modules."""
    return {
        each.value
        for each in ast.walk(node)
        if isinstance(each, ast.Constant) and isinstance(each.value, str)
    }


def module_of(path: Path) -> str:
    """The dotted name of a file; a file of the tests is imported by its own name."""
    folder = TESTS if path.is_relative_to(TESTS) else ROOT
    return ".".join(path.relative_to(folder).with_suffix("").parts).removesuffix(".__init__")


@functools.cache
def modules() -> Mapping[str, Path]:
    """The files of the package, the benchmarks and the tests by their dotted names."""
    files = [
        path for folder in (PACKAGE, ROOT / "benchmarks", TESTS) for path in sorted(folder.rglob("*.py"))
    ]
    return {module_of(path): path for path in files}


@functools.cache
def imported_modules(name: str) -> frozenset[str]:
    """The modules of the checkout that a module imports."""
    known = modules()
    names = (each if each in known else each.rpartition(".")[0] for each in imports(known[name]))
    return frozenset(each for each in names if each in known)


@functools.cache
def reached(name: str) -> frozenset[str]:
    """Return a module and the modules that it imports, directly or not; the import of a door adds its folder."""
    found, waiting = {name}, [name]
    while waiting:
        module = waiting.pop()
        new = imported_modules(module) - found
        if module != name and (door := DOORS.fullmatch(module)):
            folder = f"spyre_mlir.{door[2]}."
            new = {each for each in new if each.startswith(folder)}
        found |= new
        waiting += new
    return frozenset(found)


def passes_of(changed: Collection[str]) -> set[str]:
    """The names of the passes whose modules reach a changed module."""
    files = sorted((PACKAGE / "passes").glob("*.py"))
    return {
        path.stem.replace("_", "-") for path in files
        if not path.stem.startswith("_") and not changed.isdisjoint(reached(module_of(path)))
    }  # fmt: skip


def python_tests(changed: Iterable[str]) -> list[str]:
    """The files of pytest that reach or name one of the changed files, whose paths are relative to the checkout."""
    paths = {ROOT / path for path in changed}
    names = {name for name, path in modules().items() if path in paths}
    # A table, a script or a style sheet belongs to the modules of its folder.
    data = {path.parent for path in paths if path.suffix != ".py" and path.is_relative_to(PACKAGE)}
    names |= {name for name, path in modules().items() if path.parent in data}
    own = {path.stem.replace("_", "-") for path in paths if path.parent == PACKAGE / "passes"}
    named = [nouns(path.stem) for path in paths if path.is_relative_to(PACKAGE)]
    pages = any(path.suffix == ".md" or path.is_relative_to(ROOT / "examples") for path in paths)
    found = []
    for path in sorted(TESTS.glob("test_*.py")):
        text = path.read_text(encoding="utf-8")
        if (
            not names.isdisjoint(reached(module_of(path)))
            or own & _words(text)
            or any(each <= nouns(path.stem) for each in named)
            or (pages and "pytest.mark.documents" in text)
        ):
            found.append(path.relative_to(ROOT).as_posix())
    return found


def lit_tests(changed: Iterable[str]) -> list[str]:
    """The files of lit that are changed, or that name a pass whose module reaches one of the changed files."""
    paths = {ROOT / path for path in changed}
    passes = passes_of({name for name, path in modules().items() if path in paths})
    tools = {path.stem.replace("_", "-") for path in paths if path.parent == PACKAGE / "tools"}
    found = []
    for path in sorted([*(ROOT / "test").rglob("*.mlir"), *(ROOT / "test").rglob("*.test")]):
        if not {"Inputs", "Output"} & {*path.parts}:
            runs = "\n".join(re.findall("RUN:(.*)", path.read_text(encoding="utf-8")))
            # Every file runs spyre-opt, with other passes.
            if path in paths or (passes | tools - {"spyre-opt"}) & _words(runs):
                found.append(path.relative_to(ROOT).as_posix())
    return found


def nouns(text: str) -> set[str]:
    """Return the words of a name without the s of the plural: ``test_convolution`` tests ``convolutions.py``."""
    return {word.removesuffix("s") for word in re.findall("[a-z0-9]+", text)}


def _words(text: str) -> set[str]:
    """The names of passes and tools in a text, with the hyphens inside."""
    return set(re.findall(r"[a-z0-9]+(?:-[a-z0-9]+)*", text))
