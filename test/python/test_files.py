# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Files that tools write: whole or not at all, through links, and never in the place of a device."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from spyre_mlir.errors import CompileError
from spyre_mlir.files import read_text, require_writable, write_bytes, write_text, writing


def test_a_file_is_as_before_if_writing_fails(tmp_path: Path) -> None:
    path = tmp_path / "out"
    path.write_text("before")
    with pytest.raises(RuntimeError), writing(str(path)) as stream:
        stream.write(b"half")
        raise RuntimeError
    assert path.read_text() == "before" and os.listdir(tmp_path) == ["out"]


def test_a_link_stays_one(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "folder" / "out")
    write_text(str(link), "new")
    assert link.is_symlink() and (tmp_path / "folder" / "out").read_text() == "new"


def test_a_file_keeps_its_permissions(tmp_path: Path) -> None:
    path = tmp_path / "out"
    path.touch(0o600)
    write_text(str(path), "new")
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser writes to every file")
def test_a_file_without_permission_is_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "out"
    path.touch(0o400)
    with pytest.raises(CompileError, match="Permission denied"):
        write_text(str(path), "new")


def test_a_name_may_be_as_long_as_the_system_takes(tmp_path: Path) -> None:
    path = tmp_path / ("x" * 255)
    write_text(str(path), "new")
    assert path.read_text() == "new"


@pytest.mark.parametrize("name", ("/dev/stdout", "/dev/fd/1"))
def test_a_descriptor_is_written_in_place(tmp_path: Path, name: str) -> None:
    """For a redirected stdout neither the link in /dev nor the file of the shell is replaced."""
    code = f"from spyre_mlir.files import write_text; write_text({name!r}, 'new')"
    with open(tmp_path / "out", "wb") as file:
        subprocess.run([sys.executable, "-c", code], stdout=file, check=True)
        assert (tmp_path / "out").stat().st_ino == os.fstat(file.fileno()).st_ino
    assert (tmp_path / "out").read_text() == "new"


@pytest.mark.parametrize(
    "name, reason",
    (
        ("", "The name of a file is empty."),
        ("a\0b", "NUL character"),
        ("missing/out", "No such file or directory"),
        ("file/out", "Not a directory"),
        (".", "Is a directory"),
        ("x" * 256, "File name too long"),
    ),
)
def test_what_cannot_be_written_is_known_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, reason: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    for function in (require_writable, lambda path: write_bytes(path, b"")):
        with pytest.raises(CompileError, match=reason):
            function(name)
    assert os.listdir(tmp_path) == ["file"]


def test_the_device_without_room_is_an_error_that_says_so() -> None:
    assert require_writable("/dev/full") == "/dev/full"
    with pytest.raises(CompileError, match="No space left on device"):
        write_text("/dev/full", "new")


def test_what_is_not_utf_8_has_a_place(tmp_path: Path) -> None:
    path = tmp_path / "latin-1.mlir"
    path.write_bytes(b"module {\n  // \xe9\n}")
    with pytest.raises(CompileError) as caught:
        read_text(str(path))
    assert str(caught.value) == f"{path}:2:6: error: The byte 0xe9 is not text in UTF-8."
