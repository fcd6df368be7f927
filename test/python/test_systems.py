# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Systems: files that any of them can hold, links that may be texts, shells, limits, and what macOS lacks."""

from __future__ import annotations

import os
import re
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from spyre_mlir.dialects import parser_limits
from spyre_mlir.errors import CompileError
from spyre_mlir.experiments.sweeping import LocalWorkers
from spyre_mlir.simulator.workers import worker_count

sys.path.insert(0, str(Path(__file__).parents[1]))

import fork_server

ROOT = Path(__file__).parents[2]

needs_git = pytest.mark.skipif(
    not (ROOT / ".git").exists() or shutil.which("git") is None, reason="this is no checkout of git"
)


def git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout


# -- builds -------------------------------------------------------------------------------------------


@pytest.mark.skipif(shutil.which("cmake") is None, reason="cmake is not installed")
def test_cmake_has_the_targets_of_the_tests(tmp_path: Path) -> None:
    """The interpreter is this one; a target runs a tool of this interpreter."""

    def run(*command: str) -> str:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    run("cmake", "-S", str(ROOT), "-B", str(tmp_path), f"-DPython3_EXECUTABLE={sys.executable}")
    targets = run("cmake", "--build", str(tmp_path), "--target", "help")
    assert all(f"{name}\n" in targets for name in ("check", "check-lit", "check-python", "check-spyre"))
    tests = run("ctest", "--test-dir", str(tmp_path), "-N", "-V")
    assert re.search(r"Test command: .*lit\W", tests) and f"{sys.executable}" in tests


# -- files --------------------------------------------------------------------------------------------


@needs_git
def test_names_of_files_are_names_everywhere() -> None:
    """No two names differ in case alone, no name is reserved by Windows, and no path is too long."""
    names = git("ls-files", "-z").split("\0")[:-1]
    parts = {part for name in names for part in name.split("/")}
    assert len({name.lower() for name in names}) == len(names) > 1000
    reserved = re.compile(
        r'[<>:"|?*\\\x00-\x1f]|[. ]$|^(?:con|prn|aux|nul|com\d|lpt\d)(?:\.|$)', re.IGNORECASE
    )
    assert sorted(filter(reserved.search, parts)) == []
    assert max(map(len, names)) < 150


@needs_git
def test_lines_end_alike_everywhere() -> None:
    """A checkout with Windows line ends configured has the line ends of the repository."""
    texts = (
        "test/passes/coarse-tiling.mlir",
        "spyre_mlir/mlir.py",
        "spyre_mlir/target/spyre.toml",
        "Makefile",
    )
    told = git("-c", "core.autocrlf=true", "check-attr", "eol", "--", *texts)
    assert told.count("eol: lf") == len(texts)
    assert [line for line in git("ls-files", "--eol").splitlines() if "crlf" in line or "mixed" in line] == []


@needs_git
def test_a_checkout_without_links(tmp_path: Path) -> None:
    """The links of the root are small texts there; the package, its tools and the checks of the code are the same."""
    assert {line.split()[0] for line in git("ls-files", "-s", "dialects", "passes").splitlines()} == {
        "120000"
    }
    folder = tmp_path / "a check out"
    git("-c", "core.symlinks=false", "checkout-index", "--all", f"--prefix={folder}/")
    assert (folder / "dialects").is_file() and (folder / "passes").read_text() == "spyre_mlir/passes"
    pytest.importorskip("setuptools")
    packages = (
        "from setuptools import find_packages as f; print(*sorted(f(include=['spyre_mlir', 'spyre_mlir.*'])))"
    )
    for command in (
        ["-c", packages],
        ["-m", "ruff", "check", "--no-cache", "."],
        ["-m", "spyre_mlir.tools.spyre_opt", "spyre_mlir/zoo/linalg/softmax.mlir", "--spyre-pipeline"],
    ):
        runs = [
            subprocess.run(
                [sys.executable, *command], cwd=cwd, env={**os.environ, "PYTHONPATH": str(cwd)},
                capture_output=True, text=True,
            )
            for cwd in (folder, ROOT)
        ]  # fmt: skip
        assert [run.returncode for run in runs] == [0, 0], runs[0].stderr
        assert runs[0].stdout == runs[1].stdout != ""


# -- make and its shells ------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with spaces in its name and a Makefile."""
    made = tmp_path / "a check out"
    (made / "test" / "passes" / "Output").mkdir(parents=True)
    (made / "spyre_mlir.egg-info").mkdir()
    for name in ("Makefile", "pyproject.toml"):
        shutil.copy(ROOT / name, made)
    return made


def make(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["make", *arguments], cwd=folder, capture_output=True, text=True)


SHELLS = [path for name in ("sh", "bash", "dash", "zsh", "ksh") if (path := shutil.which(name))]


@pytest.mark.parametrize("shell", SHELLS)
def test_make_cleans_and_helps_with_any_shell(shell: str, folder: Path) -> None:
    """zsh ends a command whose pattern matches nothing, so recipes have no such pattern."""
    for _ in range(2):
        run = make(folder, "clean", f"SHELL={shell}")
        assert run.returncode == 0, run.stderr
    assert sorted(path.name for path in folder.iterdir()) == ["Makefile", "pyproject.toml", "test"]
    assert not (folder / "test" / "passes" / "Output").exists()
    lines = make(folder, "help", f"SHELL={shell}").stdout.splitlines()
    assert "  make check          what matters most, in minutes" in lines
    assert len(lines) == len(re.findall(r"^[a-z-]+:.*## ", (ROOT / "Makefile").read_text(), re.MULTILINE)) > 8


def test_recipes_use_what_all_systems_have() -> None:
    """Only GNU's sed supports a tab in a replacement, and macOS has make 3.81."""
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    recipes = "\n".join(line for line in text.splitlines() if line.startswith("\t"))
    assert not re.search(r"\bsed\b|\bgrep -P|\breadlink -f|\brealpath\b|\bfind (?!\S+ )|\[\[", recipes)
    removed = [re.sub(r"'[^']*'", "", line) for line in text.splitlines() if "rm -" in line]
    assert len(removed) > 3 and not any("*" in line for line in removed)
    assert not re.search(r"\.ONESHELL|\$\(file |!=|::=|\.RECIPEPREFIX|&:", text)


def test_an_old_python_gives_one_sentence(folder: Path, tmp_path: Path) -> None:
    old = tmp_path / "old-python"
    code = "import sys; sys.version_info = (3, 9, 18); exec(sys.argv[2])"
    old.write_text(f"#!/bin/sh\nexec '{sys.executable}' -c '{code}' \"$@\"\n")
    old.chmod(0o755)
    run = make(folder, "venv", f"PYTHON={old}")
    assert run.returncode == 2 and not (folder / ".venv").exists()
    sentence = "error: spyre-mlir needs Python 3.11 or later; name one: make venv PYTHON=python3.11"
    assert [line for line in run.stderr.splitlines() if not line.startswith("make")] == [sentence]


def test_ci_runs_with_the_bash_of_macos() -> None:
    """bash 3.2 does not support an empty array under ``set -u``, nor newer builtins."""
    text = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    newer = (
        r"\[@\]|\[\*\]|\bmapfile\b|\breadarray\b|declare -A|\$\{\w+(?:,,|\^\^|@)|&>>|\|&|\bwait -n\b|\$EPOCH"
    )
    assert re.findall(newer, text) == []
    assert subprocess.run(["bash", "-n", str(ROOT / ".ci" / "run")]).returncode == 0


# -- features that macOS and Windows do not have -------------------------------------------------------


def test_processors_where_the_system_does_not_tell_those_of_a_process(monkeypatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {1, 5, 7}, raising=False)
    assert (worker_count(), LocalWorkers().count) == (3, 3)
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: 6)
    assert (worker_count(), LocalWorkers().count) == (6, 6)


def test_windows_gives_one_sentence() -> None:
    code = "import os, pathlib; os.name = 'nt'; import spyre_mlir"
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert run.stderr.splitlines()[-1].startswith(
        "ImportError: spyre-mlir runs on Linux and macOS; on Windows"
    )


def test_without_sockets_of_messages_there_is_plain_python(monkeypatch, tmp_path: Path) -> None:
    assert fork_server.is_supported() == sys.platform.startswith("linux")

    def refuse(*_: object) -> None:
        raise OSError("Protocol not supported")

    monkeypatch.setattr(fork_server.socket, "socket", refuse)
    path = fork_server.start("json")
    assert (path, fork_server.command(path)) == ("", [sys.executable])


# -- limits that a user has set -----------------------------------------------------------------------


def limits_of(monkeypatch: pytest.MonkeyPatch, soft: int, hard: int) -> list[tuple[int, tuple[int, int]]]:
    """Return the limits that are set on a system that refuses to raise the hard limit."""
    lowered: list[tuple[int, tuple[int, int]]] = []

    def set_limit(kind: int, limits: tuple[int, int]) -> None:
        if hard != resource.RLIM_INFINITY and not 0 <= limits[1] <= hard:
            raise ValueError("not allowed to raise maximum limit")
        lowered.append((kind, limits))

    monkeypatch.setattr(resource, "getrlimit", lambda kind: (soft, hard))
    monkeypatch.setattr(resource, "setrlimit", set_limit)
    return lowered


@pytest.mark.parametrize(
    ("soft", "hard", "most", "limits"),
    [(-1, -1, 5, (5, -1)), (-1, 100, 5, (5, 100)), (3, 100, 5, (3, 100)), (-1, 4, 5, (4, 4)), (0, 0, 5, (0, 0))],
)  # fmt: skip
def test_a_limit_is_lowered_only(
    monkeypatch, soft: int, hard: int, most: int, limits: tuple[int, int]
) -> None:
    lowered = limits_of(monkeypatch, soft, hard)
    parser_limits.lower_limit(resource.RLIMIT_CPU, most)
    assert lowered == [(resource.RLIMIT_CPU, limits)]


def test_text_is_not_read_where_no_limit_can_be_set(monkeypatch, capfd) -> None:
    """The process that would have read it ends, and does not go on as a second one of the program."""

    def refuse(*_: object) -> None:
        raise ValueError("not allowed to raise maximum limit")

    monkeypatch.setattr(resource, "setrlimit", refuse)
    with pytest.raises(
        CompileError, match=r"^in.mlir: error: The text cannot be read safely: the system sets no limits"
    ):
        parser_limits.check_survived(lambda: None, "in.mlir")
    assert capfd.readouterr() == ("", "")


def test_a_tool_under_limits_of_a_user(tmp_path: Path) -> None:
    """The tool also runs where root may not raise limits."""
    (tmp_path / "in.mlir").write_text("func.func @f() { return }\n")
    plain = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"] if os.geteuid() == 0 else []
    if plain and shutil.which("setpriv") is None:
        pytest.skip("root has no setpriv here")
    script = 'ulimit -t 100; ulimit -c 0; exec "$0" -m spyre_mlir.tools.spyre_opt in.mlir'
    run = subprocess.run(
        [*plain, "bash", "-c", script, sys.executable], cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True, text=True,
    )  # fmt: skip
    assert (run.returncode, run.stderr) == (0, "") and "func.func @f" in run.stdout
