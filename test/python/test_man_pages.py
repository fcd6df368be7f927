# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Man pages of the tools: the texts of their parsers, in roff that a formatter accepts."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest

from spyre_mlir.tools import man_pages

pytestmark = pytest.mark.documents


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("man")
    assert man_pages.main([str(path)]) == 0
    return path / "man1"


def test_there_is_a_page_for_each_tool_with_all_of_its_flags(folder):
    parsers = man_pages.parsers()
    assert len(list(folder.iterdir())) == len(parsers) >= 11
    for parser in parsers:
        text = (folder / f"{parser.prog}.1").read_text(encoding="utf-8").replace(r"\-", "-")
        flags = [
            flag
            for action in parser._actions
            if action.help != "==SUPPRESS=="
            for flag in action.option_strings
        ]
        assert [flag for flag in flags if flag not in text] == []
        assert f"{parser.prog} - " in text.split("\n")[2]


def test_lines_of_examples_stay_apart(folder):
    lines = (folder / "spyre-opt.1").read_text(encoding="utf-8").replace(r"\-", "-").split("\n")
    begin = lines.index(".nf")
    assert lines[begin + 1].startswith("    spyre-opt model.mlir --spyre-pipeline")
    assert lines[begin + 2].startswith("    spyre-opt --pass-pipeline")


def test_roff_is_escaped():
    assert man_pages._escaped(r".5 of a\b --x") == r"\&.5 of a\eb \-\-x"


@pytest.mark.skipif(shutil.which("groff") is None, reason="There is no groff.")
def test_groff_formats_every_page_without_a_warning(folder):
    for page in folder.iterdir():
        done = subprocess.run(["groff", "-man", "-ww", "-Tascii", str(page)], capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, ""), page.name
        # Bold letters are struck twice.
        assert "EXIT STATUS" in re.sub(".\b", "", done.stdout)
