# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The folder of the cache: private, bounded, shared by processes; partly written entries are not entries."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch

import spyre_mlir
from spyre_mlir.driver.program_cache import CacheFolder
from spyre_mlir.errors import CompileError

ARRAYS = {"program": np.arange(1000, dtype=np.uint8), "weight": np.ones((8, 64), np.float16)}

#: Writes and reads entries that all other processes write too; prints the number of reads that were whole.
WORKER = """
import sys
from pathlib import Path
import numpy as np
from spyre_mlir.driver.program_cache import CacheFolder

folder, whole = CacheFolder(Path(sys.argv[1]), 300_000), 0
for step in range(int(sys.argv[2])):
    key = f"{step % 8:064x}"
    folder.write(key, {"data": np.full(50_000, step % 8, np.uint8)})
    print("written", flush=True)
    data = folder.read(key)
    if data is not None:
        assert data["data"].shape == (50_000,) and (data["data"] == step % 8).all()
        whole += 1
print(whole)
"""


def folder(tmp_path: Path, most_bytes: int = 1 << 20) -> CacheFolder:
    return CacheFolder(tmp_path / "cache", most_bytes)


def test_arrays_come_back(tmp_path: Path) -> None:
    entries = folder(tmp_path)
    assert entries.read("a" * 64) is None
    assert entries.write("a" * 64, ARRAYS)
    read = entries.read("a" * 64)
    assert read is not None and read.keys() == ARRAYS.keys()
    assert all((read[name] == ARRAYS[name]).all() for name in ARRAYS)


def test_only_the_owner_reads(tmp_path: Path) -> None:
    entries = folder(tmp_path)
    entries.write("a" * 64, ARRAYS)
    assert entries.folder.stat().st_mode & 0o777 == 0o700
    assert [path.stat().st_mode & 0o777 for path in entries.folder.iterdir()] == [0o600]


def test_a_folder_that_others_write_to_is_refused(tmp_path: Path) -> None:
    entries = folder(tmp_path)
    entries.write("a" * 64, ARRAYS)
    entries.folder.chmod(0o770)
    for use in (lambda: entries.read("a" * 64), lambda: entries.write("b" * 64, ARRAYS)):
        with pytest.raises(PermissionError, match="others may write"):
            use()


def test_the_entry_that_was_used_longest_ago_goes_first(tmp_path: Path) -> None:
    entries = folder(tmp_path, 12_000)
    for name in "abc":
        entries.write(name * 64, ARRAYS)
        os.utime(entries.folder / f"{name * 64}.npz", (time.time() - 100 + ord(name),) * 2)
    assert entries.read("a" * 64) is not None  # now the last used one
    for name in "def":
        entries.write(name * 64, ARRAYS)
    kept = {path.name[0] for path in entries.folder.iterdir()}
    assert kept == set("adef")
    assert sum(path.stat().st_size for path in entries.folder.iterdir()) <= 12_000


def test_an_entry_larger_than_the_cache_is_neither_kept_nor_read(tmp_path: Path) -> None:
    assert not folder(tmp_path, 1500).write("a" * 64, ARRAYS)
    folder(tmp_path).write("a" * 64, ARRAYS)
    with pytest.raises(ValueError, match="larger than the cache"):
        folder(tmp_path, 1500).read("a" * 64)


@pytest.mark.parametrize("damage", ["truncated", "flipped", "empty", "text", "object", "link"])
def test_a_damaged_entry_is_an_error(tmp_path: Path, damage: str) -> None:
    entries = folder(tmp_path)
    entries.write("a" * 64, ARRAYS)
    (path,) = entries.folder.iterdir()
    data = bytearray(path.read_bytes())
    if damage == "flipped":
        data[400] ^= 1
    path.write_bytes(
        {"truncated": data[: len(data) // 2], "empty": b"", "text": b"programs"}.get(damage, data)
    )
    if damage == "object":
        np.savez(path, program=np.array([print], object))
    if damage == "link":
        path.rename(tmp_path / "elsewhere")
        path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises((CompileError, ValueError, OSError)):
        entries.read("a" * 64)


def test_what_a_dead_process_left_goes_after_an_hour(tmp_path: Path) -> None:
    entries = folder(tmp_path)
    entries.write("a" * 64, ARRAYS)
    old, new = entries.folder / "old.writing", entries.folder / "new.writing"
    for path in (old, new):
        path.write_bytes(b"")
    os.utime(old, (time.time() - 4000,) * 2)
    entries.write("b" * 64, ARRAYS)
    assert not old.exists() and new.exists()


def test_processes_share_a_folder_and_one_is_killed(tmp_path: Path) -> None:
    """Four processes write, read and evict the same entries; each read is whole, and a killed one harms nobody."""
    steps = [40, 40, 40, 10**6]
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", WORKER, str(tmp_path), str(count)], stdout=subprocess.PIPE, text=True
        )
        for count in steps
    ]
    *others, killed = workers
    assert killed.stdout is not None and killed.stdout.readline() == "written\n"
    time.sleep(0.05)
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    assert [worker.communicate()[0].split()[-1] != "0" for worker in others] == [True] * 3
    assert [worker.returncode for worker in others] == [0] * 3
    entries = CacheFolder(tmp_path, 300_000)
    for path in entries.folder.glob("*.npz"):
        assert entries.read(path.stem) is not None


@pytest.mark.parametrize("text", ["-1", "1.5", "many"])
def test_a_size_that_is_no_number(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("SPYRE_CACHE_SIZE", text)
    with pytest.raises(CompileError, match=f"a number of mebibytes, not '{text}'"):
        CacheFolder.of_environment()
    with pytest.raises(CompileError, match=f"a number of mebibytes, not '{text}'"):
        spyre_mlir.compile(torch.exp, (torch.ones(4, 64).half(),), cache=True)


def test_the_folder_of_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SPYRE_CACHE_SIZE", "2")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("SPYRE_CACHE_DIR", raising=False)
    assert CacheFolder.of_environment().folder.parent == tmp_path / "spyre-mlir"
    monkeypatch.setenv("SPYRE_CACHE_DIR", str(tmp_path / "mine"))
    entries = CacheFolder.of_environment()
    assert (entries.folder.parent, entries.most_bytes) == (tmp_path / "mine", 2 << 20)
