"""Imports go one way: target <- mathematics <- dialects <- passes <- pipelines <- tools."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "spyre_mlir"
FILES = sorted(PACKAGE.rglob("*.py"))

#: Small modules without ideas of the compiler, for everybody.
EVERYBODY = {"errors", "files", "logs", "options", "remarks", "timing", "version"}
MATHEMATICS = {"layout", "division", "scratchpad", "tiling", "cost"}
BINDINGS = {"mlir", "diagnostics"}
IR = {"target", *MATHEMATICS, *BINDINGS, "dialects"}
COMPILER = {*IR, "bundle", "host", "export", "plans", "passes", "pipelines"}

#: What each part may import of spyre_mlir, besides itself and EVERYBODY; a part without a line may all.
ALLOWED = {
    "errors": set(),
    "options": set(),
    "files": set(),
    "logs": set(),
    "timing": set(),
    "version": set(),
    "remarks": set(),
    "target": set(),
    **{part: {"target", *MATHEMATICS} for part in MATHEMATICS},
    "mlir": set(),
    "diagnostics": BINDINGS,
    "dialects": IR,
    "bundle": {"target"},
    "reference": {"target", *BINDINGS},
    "export": {*IR, "bundle"},
    "plans": {"bundle", "tiling"},
    "partition": set(),
    "passes": {*IR, "bundle", "host", "export", "plans", "partition"},
    "host": {"target", *BINDINGS},
    "pipelines": {*COMPILER, "timeline"},
    "simulator": {"target", "bundle"},
    "timeline": {"target", "bundle", "cost", "division"},
    "device_views": {"target", *MATHEMATICS},
    "device_tensor": {"target", *MATHEMATICS, "bundle", "device_views"},
    "device_factories": {"device_tensor", "device_views"},
    "argument_layouts": {*IR, "device_tensor"},
    "frontend": {*COMPILER, "device_tensor", "device_views"},
}


def imports(path: Path) -> set[str]:
    """The dotted names that a file imports, those inside functions and of ``from a import b`` as ``a.b``."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def part(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_go_one_way(path: Path) -> None:
    """A file imports of spyre_mlir only what its part may."""
    if part(path) not in ALLOWED:
        return
    ours = {name.split(".")[1] for name in imports(path) if name.startswith("spyre_mlir.")}
    assert ours - {part(path)} - EVERYBODY <= ALLOWED[part(path)]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_foreign_roots_have_one_home(path: Path) -> None:
    """Only frontend/ imports torch; only mlir.py, and frontend/ for the importer, names torch_mlir."""
    roots = {name.split(".")[0] for name in imports(path)}
    if part(path) != "frontend":
        assert "torch" not in roots
    if part(path) not in ("mlir", "frontend"):
        assert "torch_mlir" not in roots


def test_the_tools_start_without_torch() -> None:
    """torch costs seconds; loading every pass must not load it, and --version not even the bindings."""
    code = "import sys; from spyre_mlir import passes; passes.load_all(); print('torch' in sys.modules)"
    assert _python(code) == "False"
    code = "import sys, spyre_mlir.tools.spyre_opt; print('torch_mlir' in sys.modules)"
    assert _python(code) == "False"


def _python(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=PACKAGE.parent, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()
