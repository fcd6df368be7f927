# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Calls in a fork server are what calls of Python are."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))

import fork_server


@pytest.fixture(scope="module")
def server() -> str:
    return fork_server.start("json")


SCRIPT = """
import os, sys
print(__name__, sys.argv[1:], os.getcwd(), os.environ["COLOUR"], sys.stdin.read(), 'json' in sys.modules)
print("an error", file=sys.stderr)
sys.exit(int(sys.argv[1]))
"""


def both(server: str, folder: Path, *arguments: str) -> list[tuple[int, str, str]]:
    """Exit status, output and errors of Python and of the server."""
    environment = {**os.environ, "COLOUR": "green = blue"}
    runs = [
        subprocess.run(
            [*command, *arguments], cwd=folder, env=environment, input="in", capture_output=True, text=True
        )
        for command in ([sys.executable], fork_server.command(server))
    ]
    return [(run.returncode, run.stdout.replace("True", "False"), run.stderr) for run in runs]


@pytest.mark.parametrize("status", ["0", "3"])
@pytest.mark.parametrize(
    "form", [["script.py"], ["-m", "script"], ["-c", SCRIPT]], ids=["file", "module", "text"]
)
def test_a_call_is_one_of_python(form: list[str], status: str, server: str, tmp_path: Path) -> None:
    """With its arguments, its folder, its environment, its streams, and its exit status."""
    (tmp_path / "script.py").write_text(SCRIPT)
    alone, forked = both(server, tmp_path, *form, status, "an argument")
    assert forked == alone and forked[0] == int(status)
    assert "__main__" in forked[1] and "green = blue" in forked[1]


def test_modules_are_sought_in_the_folders_of_the_environment(
    server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "library").mkdir()
    (tmp_path / "library" / "only_there.py").write_text("print('imported')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "library"))
    assert both(server, tmp_path, "-c", "import only_there") == [(0, "imported\n", "")] * 2


def test_what_a_call_changes_is_gone(server: str, tmp_path: Path) -> None:
    text = "import json; print(hasattr(json, 'mark')); json.mark = 1"
    assert [both(server, tmp_path, "-c", text)[1][:2] for _ in range(2)] == [(0, "False\n")] * 2


def test_an_exception_is_told_and_fails(server: str, tmp_path: Path) -> None:
    status, _, errors = both(server, tmp_path, "-c", "raise ValueError('no')")[1]
    assert status == 1 and errors.endswith("ValueError: no\n")
    assert both(server, tmp_path, "-c", "import sys; sys.exit('bad')")[1] == (1, "", "bad\n")


def test_a_crash_is_no_success(server: str, tmp_path: Path) -> None:
    assert both(server, tmp_path, "-c", "import os; os.abort()")[1][0] == fork_server.ABORTED


def test_the_server_ends_with_its_starter() -> None:
    text = "import fork_server; print(fork_server.start())"
    folder = Path(fork_server.__file__).parent
    path = Path(subprocess.check_output([sys.executable, "-c", text], cwd=folder, text=True).strip())
    for _ in range(600):
        if not path.parent.exists():
            return
        time.sleep(0.1)
    raise AssertionError("the server still runs")
