# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Imports go one way: target <- mathematics <- dialects <- passes <- pipelines <- driver <- frontend <- tools."""

from __future__ import annotations

import graphlib
import importlib
import subprocess
import sys
from pathlib import Path

import pytest
from import_graph import PACKAGE, imports, module_of

from spyre_mlir.moved_modules import MOVED

FILES = sorted(PACKAGE.rglob("*.py"))

#: Small modules without ideas of the compiler, for everybody.
EVERYBODY = {
    "algorithms",
    "compile_lock",
    "eager_mode",
    "jit",
    "errors",
    "faults",
    "files",
    "loading",
    "logs",
    "options",
    "problems",
    "records",
    "remarks",
    "systems",
    "tables",
    "timing",
    "version",
}
BINDINGS = {"mlir", "diagnostics"}
ALGEBRA = {"layout", "division"}
#: Without IR. The searches are above the cost model, which reads the algebra.
MATHEMATICS = {"optimization", *ALGEBRA, "scratchpad", "tiling", "cost", "layout_search", "division_search"}
IR = {"target", *MATHEMATICS, *BINDINGS, "dialects"}
#: IR, without passes.
SHARED = {"analysis", "rewriting", "lowering"}
COMPILER = {*IR, *SHARED, "bundle", "ktir", "host", "plans", "timeline", "passes", "pipelines"}

#: Imports of spyre_mlir that each folder and each single file may have, besides itself and EVERYBODY.
ALLOWED = {
    **{part: set() for part in EVERYBODY},
    "target": set(),
    "optimization": set(),
    "layout": {"target"},
    "tiling": {"target", "layout"},
    "division": {"target", "layout"},
    "scratchpad": {"optimization", "target"},
    "cost": {"target", *ALGEBRA},
    "layout_search": {"target", *ALGEBRA, "cost", "optimization"},
    "division_search": {"target", *ALGEBRA, "cost", "optimization", "scratchpad"},
    "mlir": {"bindings"},
    "diagnostics": BINDINGS,
    "dialects": IR,
    "bundle": {"target", *ALGEBRA},
    "plans": {"bundle", "tiling"},
    "timeline": {"target", *ALGEBRA, "bundle", "cost"},
    "calibration": {"target", *ALGEBRA, "cost", "division_search", "bundle", "timeline"},
    "simulator": {"target", "bundle"},
    "report": {"target", "layout", "scratchpad", "bundle", "simulator", "timeline"},
    "findings": {"bundle", "report"},
    "host": {"target", *BINDINGS, "dialects"},
    "analysis": {*IR, "plans"},
    "rewriting": {*IR, "analysis"},
    "lowering": {*IR, "analysis", "bundle"},
    "ktir": {"target", *ALGEBRA, *BINDINGS, "dialects", "rewriting", "bundle"},
    "passes": COMPILER - {"pipelines", "timeline"},
    "pipelines": COMPILER,
    "tensors": {"target", *MATHEMATICS, "bundle"},
    "driver": {*COMPILER, "findings", "report", "simulator", "tensors"},
    "frontend": {*COMPILER, "driver", "findings", "report", "tensors", "device_declaration"},
    "meshes": {"driver", "frontend", "target"},
    "api": {"driver", "frontend", "meshes", "mlir", "pipelines"},
    "experiments": {*COMPILER, "api", "driver", "zoo"},
    "language_server": COMPILER,
    "tools": {
        *COMPILER,
        "api",
        "calibration",
        "driver",
        "experiments",
        "frontend",
        "language_server",
        "report",
        "simulator",
        "zoo",
    },
    "zoo": set(),
    "moved_modules": set(),
    "device_declaration": set(),
    "torch_autoload": {"device_declaration", "frontend"},
    "torch_spyre": {"frontend", "target", "tensors"},
    "__init__": {"api", "driver", "frontend", "meshes", "moved_modules", "tensors"},
}

#: Parts on top of the compiler: the compiler does not need them, and none of its folders imports them.
COMPANIONS = {
    "api",
    "calibration",
    "experiments",
    "frontend",
    "language_server",
    "meshes",
    "tools",
    "torch_autoload",
    "torch_spyre",
    "zoo",
}


def part(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def test_imports_go_one_way() -> None:
    """A file imports of spyre_mlir only what its part may; every part is described."""
    wrong = {}
    for path in FILES:
        ours = {name.split(".")[1] for name in imports(path) if name.startswith("spyre_mlir.")}
        if more := ours - {part(path)} - EVERYBODY - ALLOWED[part(path)]:
            wrong[str(path.relative_to(PACKAGE))] = more
    assert wrong == {}


def test_the_compiler_imports_no_companion() -> None:
    """The driver and all that it imports run without the frontend, so without PyTorch, and without the others."""
    compiler = ALLOWED.keys() - COMPANIONS - {"__init__"}
    assert {part: more for part in compiler if (more := ALLOWED[part] & COMPANIONS)} == {}
    assert {"driver", "tensors"} <= compiler


def test_foreign_roots_have_one_home() -> None:
    """frontend/, meshes/, the zoo and PyTorch's kernels import torch; only mlir.py and frontend/ name torch_mlir."""
    wrong = {}
    for path in FILES:
        roots = {name.split(".")[0] for name in imports(path)}
        torch_homes = {
            "device_declaration", "frontend", "host/torch_kernels.py", "meshes", "torch_autoload", "torch_spyre", "zoo",
        }  # fmt: skip
        foreign = {"torch": torch_homes, "torch_mlir": {"mlir", "frontend"}}
        places = {part(path), path.relative_to(PACKAGE).as_posix()}
        if more := [root for root, homes in foreign.items() if root in roots and not places & homes]:
            wrong[str(path.relative_to(PACKAGE))] = more
    assert wrong == {}


def test_dataclasses_are_those_of_records() -> None:
    """The decorator of the standard library compiles methods at each start of a tool."""
    assert [path.name for path in FILES if "dataclasses.dataclass" in imports(path)] == ["records.py"]


@pytest.mark.parametrize("by", ["file", "part"])
def test_no_circles(by: str) -> None:
    """No file imports itself through others, imports for type checking included; nor does a folder."""
    modules = {module_of(path): path for path in FILES}
    group = {module: module if by == "file" else part(path) for module, path in modules.items()}
    edges: dict[str, set[str]] = {name: set() for name in group.values()}
    for module, path in modules.items():
        for name in imports(path):
            target = name if name in modules else name.rpartition(".")[0]
            if target in modules:
                edges[group[module]].add(group[target])
    for name, targets in edges.items():
        targets.discard(name)
    graphlib.TopologicalSorter(edges).prepare()


def test_the_tools_start_without_torch() -> None:
    """torch costs seconds; loading every pass and the whole driver must not load it, and --version no bindings."""
    code = "import sys; from spyre_mlir import passes; passes.load_all(); print('torch' in sys.modules)"
    assert _python(code) == "False"
    every = "import pkgutil, importlib, spyre_mlir.driver as d; "
    every += (
        "[importlib.import_module(f'spyre_mlir.driver.{m.name}') for m in pkgutil.iter_modules(d.__path__)]"
    )
    code = (
        f"import sys, spyre_mlir.api; {every}; print({{'torch', 'spyre_mlir.frontend'}} & set(sys.modules))"
    )
    assert _python(code) == "set()"
    code = "import sys, spyre_mlir.tools.spyre_opt; print('torch_mlir' in sys.modules)"
    assert _python(code) == "False"


SOFTMAX = PACKAGE / "zoo" / "linalg" / "softmax.mlir"
#: How a process starts, modules that it must not import, and how many of our own it may import.
STARTS = {
    "the package": (
        "import spyre_mlir",
        {"numpy", "torch_mlir", "dataclasses", "inspect", "logging", "json"},
        6,
    ),
    "--version": ("import spyre_mlir.tools.spyre_opt", {"numpy", "torch_mlir", "tempfile", "difflib"}, 16),
    "softmax": (
        f"import spyre_mlir.tools.spyre_opt as tool; tool.main(['{SOFTMAX}', '--spyre-pipeline', '-o', '/dev/null'])",
        {
            "torch",
            "asyncio",
            "multiprocessing",
            "tempfile",
            "difflib",
            "spyre_mlir.driver",
            "spyre_mlir.simulator",
        },
        340,
    ),
    "the language server": (
        "import spyre_mlir.tools.spyre_lsp",
        {"numpy", "torch_mlir", "pygls", "lsprotocol", "asyncio", "spyre_mlir.dialects"},
        26,
    ),
}

#: Prints the modules of the process, and how many classes of ours have methods that ``dataclasses`` has compiled.
REPORT = """
import sys
ours = [module for name, module in [*sys.modules.items()] if name.split(".")[0] == "spyre_mlir"]
inits = [vars(each).get("__init__") for module in ours for each in vars(module).values() if isinstance(each, type)]
print(*sys.modules)
print(sum(hasattr(init, "__code__") and init.__code__.co_filename == "<string>" for init in inits))
"""


@pytest.mark.parametrize("start", STARTS)
def test_a_start_imports_what_it_uses_and_compiles_no_dataclass(start: str) -> None:
    """The time of a start is in its imports, and was in the methods that ``dataclasses`` compiles for each class."""
    code, unwanted, most = STARTS[start]
    imported, compiled = (line.split() for line in _python(f"{code}\n{REPORT}").splitlines())
    assert unwanted & set(imported) == set() and compiled == ["0"]
    assert sum(name.split(".")[0] == "spyre_mlir" for name in imported) <= most


def _python(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=PACKAGE.parent, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


@pytest.mark.parametrize("old", MOVED)
def test_a_module_that_moved_is_named(old: str) -> None:
    """The old path is an error with the new one, which exists."""
    with pytest.raises(ModuleNotFoundError, match=f"is '{MOVED[old]}' now"):
        importlib.import_module(old)
    importlib.import_module(MOVED[old])
