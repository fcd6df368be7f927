# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Random command lines: a status of 0 or 1, one diagnostic without a traceback, and after it files as they were."""

from __future__ import annotations

import os
import random
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from fuzz_command_lines import BUNDLE, TOOLS, command_line, module_of, write_inputs

#: Command lines of each tool that a test tries.
COUNT = 12


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("inputs")
    write_inputs(folder)
    assert module_of("compile").main([str(folder / "in.mlir"), "-o", str(folder / BUNDLE)]) == 0
    return folder


@pytest.fixture
def folder(inputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with the inputs, in which the tools run without anything on stdin."""
    copy = shutil.copytree(inputs, tmp_path / "run")
    monkeypatch.chdir(copy)
    with open(os.devnull) as nothing:
        monkeypatch.setattr("sys.stdin", nothing)
        yield copy


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("tool", TOOLS)
@pytest.mark.parametrize("seed", range(20))
def test_a_mistake_is_one_diagnostic_and_leaves_no_file(
    tool: str, seed: int, inputs: Path, folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    before = contents(inputs)
    rng = random.Random(f"{tool} {seed}")
    for _ in range(COUNT):
        argv = command_line(tool, rng)
        capfd.readouterr()
        try:
            status = module_of(tool).main(argv)
        except SystemExit as end:  # --help
            status = end.code
        printed, told = capfd.readouterr()
        assert status in (0, 1), argv
        assert "Internal error" not in told, (argv, told)
        # A file of --load has its own traceback.
        assert "fails.py" in told or "Traceback" not in told, (argv, told)
        after = contents(folder)
        if status == 1 and not is_answer(tool, argv, printed):
            errors = [line for line in told.splitlines() if re.match(r"(.*: )?error: ", line)]
            assert len(errors) == 1 and not printed, (argv, printed, told)
            changed = {name for name in {*before, *after} if before.get(name) != after.get(name)}
            assert changed <= asked_for(argv), (argv, changed)
        assert not [path for path in folder.rglob("*") if path.name.startswith(".")], argv
        if after != before:
            shutil.rmtree(folder)
            shutil.copytree(inputs, folder)
            os.chdir(folder)


def is_answer(tool: str, argv: list[str], printed: str) -> bool:
    """Return whether status 1 is the answer of a tool rather than a failure."""
    return bool(printed) and (tool in ("validate", "diff") or "--check" in argv)


def asked_for(argv: list[str]) -> set[str]:
    """Files that are written because a pass fails, or before one does."""
    flags = ("--mlir-generate-reproducer", "--mlir-pass-pipeline-crash-reproducer")
    pairs = zip(argv, [*argv[1:], ""], strict=True)
    return {
        (value or following)
        for name, following in pairs
        for flag, _, value in [name.partition("=")]
        if flag in flags
    }
