# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The README and the manuals do what they say: its files are written, its commands run in order, its outputs compared.

``<!-- file: NAME -->`` before a block makes it a file; ``<!-- output -->`` makes it the expected output of
the block before, where a line with ``...`` stands for any lines and ``...`` at the end of a line for its
rest; the numbers of SSA values do not count.
Blocks of ``sh`` and ``python`` run in one folder; after ``<!-- in the checkout -->`` in the checkout; after
``<!-- make -->`` only the existence of the make targets is checked: .ci/run runs them.
The tools and Python are forked by a server that has imported torch.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))

import fork_server

ROOT = Path(__file__).parents[2]
SCRIPTS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["scripts"]

#: What blocks wait for when they start, but for the package itself, which reads the environment when it is imported.
IMPORTED = ("numpy", "numba", "torch", "torch.export", "torch_mlir.fx")

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
    "docs/adding-a-device-op.md",
    "docs/cache.md",
    "docs/convolutions.md",
    "docs/cost.md",
    "docs/device-tensors.md",
    "docs/serving.md",
    "docs/division.md",
    "docs/dynamic.md",
    "docs/experiments.md",
    "docs/findings.md",
    "docs/getting-started.md",
    "docs/hints.md",
    "docs/eight-bits.md",
    "docs/host.md",
    "docs/ktir.md",
    "docs/layouts.md",
    "docs/levels.md",
    "docs/logs.md",
    "docs/loops.md",
    "docs/mlir-opt-flags.md",
    "docs/plans.md",
    "docs/reading-a-report.md",
    "docs/relayouts.md",
    "docs/scratchpad.md",
    "docs/security.md",
    "docs/specification.md",
    "docs/tiling.md",
    "docs/tuning.md",
    "docs/writing-a-pass.md",
    "docs/writing-a-solver.md",
    "docs/writing-an-algorithm.md",
    "docs/zoo.md",
)


def blocks(page: str) -> list[Block]:
    return [
        Block(match["mark"] or "", match["kind"], match["text"])
        for match in BLOCK.finditer((ROOT / page).read_text(encoding="utf-8"))
    ]


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of the tools and of Python, which start with torch imported."""
    folder = tmp_path_factory.mktemp("tools")
    python = shlex.join(fork_server.command(fork_server.start(*IMPORTED)))
    commands = {name: f"-m {script.partition(':')[0]}" for name, script in SCRIPTS.items()}
    for name, arguments in {"python": "", **commands}.items():
        (folder / name).write_text(f'#!/bin/sh\nexec {python} {arguments} "$@"\n')
        (folder / name).chmod(0o755)
    return folder


def run(block: Block, folder: Path, tools: Path) -> str:
    """The output of a block; a failing command is a failure of the test."""
    command = ["bash", "-euo", "pipefail", "-c"] if block.kind == "sh" else [str(tools / "python"), "-c"]
    path = os.pathsep.join([str(tools), str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT)}
    where = ROOT if block.mark == "in the checkout" else folder
    done = subprocess.run([*command, block.text], cwd=where, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, f"{block.text}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def matches(expected: str, output: str) -> bool:
    expected, output = (re.sub(r"%\d+", "%0", each) for each in (expected, output))
    parts = [re.escape(part) for part in re.split(r"^ *\.\.\.\n|\.\.\.$", expected, flags=re.MULTILINE)]
    return re.search("(?s:.*?)".join(parts), output) is not None


@pytest.mark.parametrize("page", PAGES)
def test_commands_and_outputs(page: str, tmp_path: Path, tools: Path) -> None:
    """In the order of the page, as a reader would."""
    output, ran = "", 0
    for block in blocks(page):
        if block.mark.startswith("file: "):
            (tmp_path / block.mark.removeprefix("file: ")).write_text(block.text, encoding="utf-8")
        elif block.mark == "output":
            assert matches(block.text, output), f"{page} says\n{block.text}\nbut it is\n{output}"
        elif block.kind in ("sh", "python") and block.mark != "make":
            output, ran = run(block, tmp_path, tools), ran + 1
    assert ran >= 3


@pytest.mark.parametrize("target", ["demo", "check", "check-all", "wheel", "bench", "lint", "venv"])
def test_the_make_targets_of_the_page_exist(target: str) -> None:
    assert f"make {target}" in (ROOT / "README.md").read_text(encoding="utf-8")
    done = subprocess.run(["make", "--dry-run", target], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_readme_links_every_page() -> None:
    """So a page is found, and pages are where the reader begins."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    missing = [
        page.name for page in sorted((ROOT / "docs").glob("*.md")) if f"(docs/{page.name})" not in text
    ]
    assert missing == []


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    """To a file of the checkout, and where they name a heading, to one that it has."""
    folder = (ROOT / page).parent
    for target in re.findall(r"\]\((?!https?:)([^)]+)\)", _prose(page)):
        path, _, anchor = target.partition("#")
        file = folder / path if path else ROOT / page
        assert file.exists(), f"{page} links {target}"
        assert not anchor or anchor in _anchors(file), f"{page} links {target}"


def _prose(page: str) -> str:
    return BLOCK.sub("", (ROOT / page).read_text(encoding="utf-8"))


def _anchors(file: Path) -> set[str]:
    """The anchors of the headings, as they are made of their words."""
    headings = re.findall(r"^#+ (.*)$", BLOCK.sub("", file.read_text(encoding="utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


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
