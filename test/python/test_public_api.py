# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The public API: pages of docs/api that name all of it, docstrings that say all of it, types that hold outside."""

from __future__ import annotations

import ast
import json
import re
import shutil
import subprocess
import sys
import tomllib
import venv
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import griffe
import pytest
from api_reference import (
    ROOT,
    Entry,
    entries,
    entries_of,
    has_summary,
    is_documented,
    lacks_unit,
    loaded,
    members,
    package,
    public,
    resolved,
    unannotated,
    unnamed_errors,
    unnamed_parameters,
    warnings_of,
)

import spyre_mlir

pytestmark = pytest.mark.documents

TYPING = ROOT / "test" / "typing"

#: Blocks of Python in a page.
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def canonical_names() -> list[str]:
    """The paths of all names of the pages, by where they are defined."""
    return [resolved(package(), entry.name).path for entry in entries()]


def test_every_name_exists_and_is_on_one_page() -> None:
    assert [name for name, count in Counter(canonical_names()).items() if count > 1] == []


def test_what_the_package_exports_is_on_a_page() -> None:
    exported = [
        resolved(package(), f"spyre_mlir.{name}").path for name in spyre_mlir.__all__ if name[0] != "_"
    ]
    assert set(exported) <= set(canonical_names())


def imported(text: str) -> Iterator[tuple[str, str]]:
    """Yield the modules and names of ``from`` statements of our package in a block of Python."""
    try:
        tree = ast.parse(text)
    except SyntaxError:  # an excerpt
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "spyre_mlir":
            yield from ((str(node.module), alias.name) for alias in node.names)


def unlisted(module: str, name: str) -> bool:
    """Return whether no page has a public name; a page has a module if it has one of its names."""
    whole = f"{module}.{name}"
    if any(
        listed == whole or listed.startswith(f"{whole}.") for listed in (entry.name for entry in entries())
    ):
        return False
    try:
        obj = resolved(package(), whole)
    except (KeyError, griffe.AliasResolutionError):
        # A name of the bindings, which their module passes on.
        return module != "spyre_mlir.mlir"
    shown = {
        member.path for entry in entries() for _, member in members(entry, resolved(package(), entry.name))
    }
    return obj.path not in {*canonical_names(), *shown}


def test_what_the_manual_imports_is_on_a_page() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    blocks = [(path, block) for path in pages for block in BLOCK.findall(path.read_text(encoding="utf-8"))]
    blocks += [(path, path.read_text(encoding="utf-8")) for path in (ROOT / "examples").rglob("*.py")]
    uses = {(module, name): path.name for path, block in blocks for module, name in imported(block)}
    assert len(uses) > 50
    assert [(path, use) for use, path in uses.items() if unlisted(*use)] == []
    assert unlisted("spyre_mlir.driver.build", "build")


def problems(obj: griffe.Object, owner: griffe.Object | None) -> list[str]:
    """Return the gaps in the documentation of a public object."""
    found = [] if is_documented(obj, owner) else ["no docstring"]
    found += [] if has_summary(obj) else ["no summary of one sentence"]
    found += [f"no type of {name}" for name in unannotated(obj)]
    found += [f"nothing about {name}" for name in unnamed_parameters(obj, owner)]
    found += [f"{name} is raised" for name in unnamed_errors(obj)]
    return found + (["no unit"] if lacks_unit(obj, owner) else []) + warnings_of(obj)


def test_every_public_name_is_documented() -> None:
    """A summary of one sentence, types, each parameter, each exception, units; nothing that griffe warns of."""
    names = list(public())
    assert len(names) > 800
    found = {name: lacks for name, obj, owner in names if (lacks := problems(obj, owner))}
    assert found == {}


PLANTED = '''
from dataclasses import dataclass

class PlantedError(Exception):
    """An error."""

def silent(x: int) -> None:
    pass

def talkative() -> None:
    """Do something. Then do more."""

def untyped(x, y: int) -> None:
    """Add ``x`` and ``y``."""

def unnamed(x: int, *, y: int = 0) -> None:
    """Do something.

    Args:
        x: A number.
    """

def raising(x: int) -> None:
    """Check ``x``."""
    if x:
        raise PlantedError("no")

def moved_bytes() -> int:
    """Return how much is moved."""
    return 0

def misspelt() -> None:
    """Do something.

    Args:
        z: There is no such parameter.
    """

@dataclass
class Fields:
    """A class.

    Attributes:
        x: A field.
    """

    x: int
    y: int
'''


def test_a_planted_fault_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / "planted.py").write_text(PLANTED)
    module = loaded(tmp_path, "planted")
    cls = resolved(module, "planted.Fields")
    names = [name for name, member in module.members.items() if not isinstance(member, griffe.Alias)]
    found = {name: problems(resolved(module, f"planted.{name}"), None) for name in names}
    assert found.pop("silent") == ["no docstring", "nothing about x"]
    assert found.pop("talkative") == ["no summary of one sentence"]
    assert found.pop("untyped") == ["no type of x"]
    assert found.pop("unnamed") == ["nothing about y"]
    assert found.pop("raising") == ["PlantedError is raised"]
    assert found.pop("moved_bytes") == ["no unit"]
    assert "Parameter 'z' does not appear in the function signature" in " ".join(found.pop("misspelt"))
    assert not any(found.values())
    fields = {name: problems(part, cls) for name, part in members(Entry("page", "planted.Fields"), cls)}
    assert (fields["x"], fields["y"]) == ([], ["no docstring"])
    assert fields["__init__"] == ["nothing about y"]


def test_a_directive_is_read_with_its_options() -> None:
    page = '# A\n\n::: spyre_mlir.a\n    options:\n      filters: ["!^_", "!^set_"]\n::: spyre_mlir.b\n'
    first, second = entries_of("page", page)
    assert (first.name, first.shows("set_it"), first.shows("it")) == ("spyre_mlir.a", False, True)
    assert (second.name, second.shows("set_it"), second.shows("_it")) == ("spyre_mlir.b", True, False)


def test_every_extra_is_on_a_page() -> None:
    """Extras for users; other extras are for developers of the compiler."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"][
        "optional-dependencies"
    ]
    text = "\n".join(
        path.read_text(encoding="utf-8")
        for path in [ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "spyre_mlir").rglob("*.py")]
    )
    named = {
        name
        for names in re.findall(r"(?:spyre-mlir|\.whl\)\")\[([a-z,-]+)\]", text)
        for name in names.split(",")
    }
    assert extras.keys() - named == {"docs", "dev"} and named <= extras.keys()


# -- types, as seen by users of the installed package --------------------------------------------------


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment with the wheel; other packages come from the environment of the tests."""
    folder = tmp_path_factory.mktemp("installed")
    sources = folder / "sources"
    shutil.copytree(ROOT / "spyre_mlir", sources / "spyre_mlir", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, sources)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    wheel = [
        "wheel",
        "--no-deps",
        "--no-build-isolation",
        "--no-index",
        "--wheel-dir",
        str(folder),
        str(sources),
    ]
    subprocess.run([*pip, *wheel], check=True)
    shutil.rmtree(sources)
    venv.create(folder / "env", with_pip=False)
    site = next((folder / "env").rglob("site-packages"))
    (archive,) = folder.glob("*.whl")
    shutil.unpack_archive(archive, site, "zip")
    # After the wheel in sys.path; a .pth file does not make Python read editable installs of the named folder.
    (site / "shared.pth").write_text(f"{Path(pytest.__file__).parents[1]}\n")
    for script in TYPING.glob("*.py"):
        shutil.copy(script, folder)
    return folder


def python_of(folder: Path) -> str:
    scripts = "Scripts" if sys.platform == "win32" else "bin"
    return str(folder / "env" / scripts / "python")


def wrong_lines() -> set[int]:
    lines = (TYPING / "wrong_uses.py").read_text(encoding="utf-8").splitlines()
    return {number for number, line in enumerate(lines, 1) if line.endswith("# wrong")}


def check_findings(findings: list[tuple[str, int, str]]) -> None:
    """Assert that the user's script has no findings, and that each wrong use has one."""
    assert [finding for finding in findings if finding[0] == "user_script.py"] == []
    wrong = {line for name, line, _ in findings if name == "wrong_uses.py"}
    assert wrong == wrong_lines(), findings


def test_mypy_at_its_strictest(environment: Path) -> None:
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--output=json"]
    command += ["--python-executable", python_of(environment), "--cache-dir", str(environment / "cache")]
    done = subprocess.run(
        [*command, "user_script.py", "wrong_uses.py"],
        cwd=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert not done.stderr, done.stderr
    findings = [json.loads(line) for line in done.stdout.splitlines()]
    check_findings(
        [(each["file"], each["line"], each["message"]) for each in findings if each["severity"] == "error"]
    )


def test_pyright_at_its_strictest(environment: Path) -> None:
    config = {"typeCheckingMode": "strict", "include": ["*.py"], "venvPath": ".", "venv": "env"}
    (environment / "pyrightconfig.json").write_text(json.dumps(config))
    command = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", python_of(environment)]
    done = subprocess.run(command, cwd=environment, capture_output=True, text=True, check=False)
    findings = json.loads(done.stdout)["generalDiagnostics"]
    check_findings(
        [(Path(each["file"]).name, each["range"]["start"]["line"] + 1, each["message"]) for each in findings]
    )


def test_the_script_has_every_public_name() -> None:
    tree = ast.parse((TYPING / "user_script.py").read_text(encoding="utf-8"))
    used = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    used |= {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    assert [entry.name for entry in entries() if entry.name.rpartition(".")[2] not in used] == []
