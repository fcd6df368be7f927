"""The README and the manuals do what they say: its files are written, its commands run in order, its outputs compared.

``<!-- file: NAME -->`` before a block makes it a file; ``<!-- output -->`` makes it the expected output of
the block before, where a line with ``...`` stands for any lines and ``...`` at the end of a line for its
rest; the numbers of SSA values do not count.
Blocks of ``sh`` and ``python`` run in one folder; after ``<!-- in the checkout -->`` in the checkout; after
``<!-- make -->`` only the existence of the make targets is checked: .ci/run runs them.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(
    r"(?:^<!-- (?P<mark>.*?) -->\n)?^```(?P<kind>\w+)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL
)


@dataclass(frozen=True)
class Block:
    mark: str
    kind: str
    text: str


PAGES = (
    "README.md",
    "docs/cost.md",
    "docs/dynamic.md",
    "docs/host.md",
    "docs/hints.md",
    "docs/layouts.md",
    "docs/plans.md",
    "docs/scratchpad.md",
    "docs/tiling.md",
)


def blocks(page: str) -> list[Block]:
    return [
        Block(match["mark"] or "", match["kind"], match["text"])
        for match in BLOCK.finditer((ROOT / page).read_text(encoding="utf-8"))
    ]


def run(block: Block, folder: Path) -> str:
    """The output of a block; a failing command is a failure of the test."""
    command = ["bash", "-euo", "pipefail", "-c"] if block.kind == "sh" else [sys.executable, "-c"]
    tools = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": tools, "PYTHONPATH": str(ROOT)}
    where = ROOT if block.mark == "in the checkout" else folder
    done = subprocess.run([*command, block.text], cwd=where, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, f"{block.text}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def matches(expected: str, output: str) -> bool:
    expected, output = (re.sub(r"%\d+", "%0", each) for each in (expected, output))
    parts = [re.escape(part) for part in re.split(r"^ *\.\.\.\n|\.\.\.$", expected, flags=re.MULTILINE)]
    return re.search("(?s:.*?)".join(parts), output) is not None


@pytest.mark.parametrize("page", PAGES)
def test_commands_and_outputs(page: str, tmp_path: Path) -> None:
    """In the order of the page, as a reader would."""
    output, ran = "", 0
    for block in blocks(page):
        if block.mark.startswith("file: "):
            (tmp_path / block.mark.removeprefix("file: ")).write_text(block.text, encoding="utf-8")
        elif block.mark == "output":
            assert matches(block.text, output), f"{page} says\n{block.text}\nbut it is\n{output}"
        elif block.kind in ("sh", "python") and block.mark != "make":
            output, ran = run(block, tmp_path), ran + 1
    assert ran >= 4


@pytest.mark.parametrize("target", ["demo", "check", "wheel", "bench", "lint", "venv"])
def test_the_make_targets_of_the_page_exist(target: str) -> None:
    assert f"make {target}" in (ROOT / "README.md").read_text(encoding="utf-8")
    done = subprocess.run(["make", "--dry-run", target], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_an_expected_output_can_leave_lines_out() -> None:
    assert matches("a\n...\nb ...\n", "a\nx\ny\nb 12\n")
    assert not matches("a\n...\nc\n", "a\nb\n")


def test_the_numbers_of_values_do_not_count() -> None:
    assert matches("%1 = foo %12\n", "%7 = foo %8\n")


@pytest.mark.parametrize("page", PAGES)
def test_the_first_mark_of_every_block_is_known(page: str) -> None:
    """A misspelt mark would silently turn a check off."""
    known = ("", "output", "make", "in the checkout")
    assert [b.mark for b in blocks(page) if b.mark not in known and not b.mark.startswith("file: ")] == []
