# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Writing over a bundle: other files stay, the old bundle is never lost, temporary files are removed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import bundles
import pytest
from patience import HANG_SECONDS

from spyre_mlir.bundle import read_bundle, write_bundle
from spyre_mlir.bundle.replacing import replacing
from spyre_mlir.driver.program import Program
from spyre_mlir.errors import CompileError

ADD, LOOP = bundles.add_bundle(), bundles.loop_bundle()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_bundle(ADD, tmp_path / "bundle")
    return tmp_path / "bundle"


@pytest.mark.parametrize("name", ["thesis.txt", "device_0/thesis.txt", "pictures"])
def test_what_is_no_bundle_is_not_removed(folder, name):
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    path.write_text("years of work")
    with pytest.raises(CompileError, match=f"holds '{name}' in addition to a bundle"):
        write_bundle(LOOP, folder)
    assert path.read_text() == "years of work" and read_bundle(folder) == ADD


def test_what_comes_while_writing_is_not_removed(folder):
    with pytest.raises(CompileError, match="thesis"), replacing(folder):
        (folder / "thesis.txt").write_text("years of work")
    assert read_bundle(folder) == ADD


def test_a_link_stays_a_link(folder):
    link = folder.with_name("latest")
    link.symlink_to(folder)
    write_bundle(LOOP, link)
    assert link.is_symlink() and read_bundle(folder) == LOOP
    assert sorted(path.name for path in folder.parent.iterdir()) == ["bundle", "latest"]


@pytest.mark.parametrize("failing", (0, 1))
def test_a_failure_at_either_renaming_leaves_the_old_bundle(folder, monkeypatch, failing):
    rename, calls = Path.rename, []

    def fail_once(path: Path, target: Path) -> Path:
        calls.append(path)
        if len(calls) == failing + 1:
            raise OSError("no space")
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", fail_once)
    with pytest.raises(CompileError, match="cannot be written: no space"):
        write_bundle(LOOP, folder)
    assert read_bundle(folder) == ADD
    assert [path.name for path in folder.parent.iterdir()] == ["bundle"]


def test_what_a_dead_process_left_is_put_back_and_removed(folder):
    """Killed between the two renamings, and another one while it wrote; a folder of another name is not touched."""
    between, writing, other = (
        folder.with_name(f".{name}.writing")
        for name in ("bundle.aaaaaaaa", "bundle.bbbbbbbb", "thesis.aaaaaaaa")
    )
    between.mkdir()
    folder.rename(between / "old")
    (writing / "fresh").mkdir(parents=True)
    other.mkdir()
    with pytest.raises(KeyboardInterrupt), replacing(folder):
        raise KeyboardInterrupt
    assert read_bundle(folder) == ADD
    assert sorted(path.name for path in folder.parent.iterdir()) == [other.name, "bundle"]


def test_the_work_of_a_process_that_lives_is_left_alone(folder):
    with replacing(folder) as first:
        (first / "bundle.mlir").write_text("first")
        write_bundle(LOOP, folder)
        assert first.exists()
    assert (folder / "bundle.mlir").read_text() == "first"
    assert [path.name for path in folder.parent.iterdir()] == ["bundle"]


def test_sigterm_leaves_the_old_bundle_and_nothing_else(folder):
    text = (
        "import sys, time; from spyre_mlir.bundle.replacing import replacing\n"
        "with replacing(sys.argv[1]) as fresh:\n    (fresh / 'x').write_text('x'); print('ready', flush=True)\n"
        "    time.sleep(60)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", text, str(folder)], stdout=subprocess.PIPE, env=os.environ
    )
    assert process.stdout is not None and process.stdout.readline() == b"ready\n"
    time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    assert process.wait(HANG_SECONDS) == 128 + signal.SIGTERM
    process.stdout.close()
    assert read_bundle(folder) == ADD
    assert [path.name for path in folder.parent.iterdir()] == ["bundle"]


@pytest.mark.parametrize("name", ["a" * 300, "a\0b"], ids=["too long", "NUL"])
def test_a_name_that_no_folder_has_is_one_error(name, tmp_path):
    with pytest.raises(CompileError, match=r"File name too long|NUL"):
        write_bundle(ADD, tmp_path / name)
    with pytest.raises(CompileError, match="name"):
        Program.load(tmp_path / name)
    with pytest.raises(CompileError, match="name"):
        read_bundle(tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_a_working_folder_that_is_gone_is_one_error(tmp_path, monkeypatch):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with pytest.raises(CompileError, match="cannot be written"):
        write_bundle(ADD, "out")
