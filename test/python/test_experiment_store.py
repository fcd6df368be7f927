# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The store of results: a damaged or foreign store, or another version, is refused; rows are never lost."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from spyre_mlir.errors import CompileError
from spyre_mlir.experiments.sweeping import ResultStore
from spyre_mlir.experiments.task import LOST, REFUSED, Outcome

DONE = Outcome({"predicted_us": 1.25, "bundles": 1}, "", "", 2.0, 1.0)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A store with some rows."""
    path = tmp_path / "store.sqlite"
    with ResultStore(path) as store:
        for index in range(200):
            store.add(f"key{index:03}", {"program": "chain"}, DONE, 1)
    return path


def test_rows_come_back_as_they_were(path: Path) -> None:
    """Errors may have any text; the first result of a point stays, unless its workers died."""
    refused = Outcome(error="no: 'ä\n\0'", kind=REFUSED)
    with ResultStore(path) as store:
        assert store.outcomes(["key000", "key001", "other"]) == {"key000": DONE, "key001": DONE}
        store.add("key000", {}, refused, 1)
        store.add("refused", {"sencores": 4}, refused, 2)
        store.add("lost", {}, Outcome(error="died", kind=LOST), 3)
        store.add("lost", {}, DONE, 1)
    with ResultStore(path) as store:
        assert store.outcome("key000") == store.outcome("lost") == DONE
        assert store.outcome("refused") == Outcome(error="no: 'ä\n\0'", kind=REFUSED)
        assert store.outcome("absent") is None
        assert store.attempts()["refused"] == 2


def truncated(data: bytes) -> bytes:
    return data[: len(data) // 2]


def flipped(data: bytes) -> bytes:
    """Change one figure of one row, which SQLite does not detect."""
    assert data.count(b'"predicted_us": 1.25') > 1
    return data.replace(b'"predicted_us": 1.25', b'"predicted_us": 9.25', 1)


def torn(data: bytes) -> bytes:
    return data[:8192] + b"\xff" * 4096 + data[12288:]


def later(data: bytes) -> bytes:
    return data[:60] + (99).to_bytes(4, "big") + data[64:]


def other(data: bytes) -> bytes:
    """A database of another program."""
    return data[:68] + b"\0\0\0\0" + data[72:]


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (truncated, "The store is damaged, and was not changed"),
        (
            flipped,
            "The store is damaged, and was not changed: the digest of the row of the point key... is wrong",
        ),
        (torn, "The store is damaged, and was not changed"),
        (later, "The store is of version 99; this compiler has version 1"),
        (other, "The file is not a store of results, and was not changed"),
        (lambda data: b"name,age\nx,3\n", "The file is not a store of results, and was not changed"),
        (lambda data: data[:40], "The file is not a store of results, and was not changed"),
    ],
)
def test_a_damaged_store_is_refused_and_stays(
    path: Path, damage: Callable[[bytes], bytes], message: str
) -> None:
    path.write_bytes(damage(path.read_bytes()))
    before = path.read_bytes()
    with pytest.raises(CompileError, match=message.replace("(", r"\(")) as caught:
        ResultStore(path)
    assert caught.value.location == str(path) and path.read_bytes() == before
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_a_store_that_is_killed_while_it_is_made_is_new(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    path.touch()
    with ResultStore(path) as store:
        store.add("key", {}, DONE, 1)
    with ResultStore(path) as store:
        assert store.outcome("key") == DONE


def test_a_store_that_cannot_be_written_is_one_error(tmp_path: Path) -> None:
    with pytest.raises(CompileError, match="The folder of the store does not exist"):
        ResultStore(tmp_path / "none" / "store.sqlite")
    with pytest.raises(CompileError, match="The store cannot be read: Is a directory"):
        ResultStore(tmp_path)


def test_a_transaction_that_was_killed_is_rolled_back(path: Path) -> None:
    """An open transaction of another process is not a row, and does not damage the store."""
    other_process = sqlite3.connect(path, isolation_level=None)
    other_process.execute("BEGIN IMMEDIATE")
    other_process.execute("DELETE FROM results")
    other_process.close()
    with ResultStore(path) as store:
        assert len(store.attempts()) == 200


def test_errors_are_sentences(path: Path) -> None:
    path.write_bytes(b"x" * 4096)
    with pytest.raises(CompileError) as caught:
        ResultStore(path)
    assert re.fullmatch(r"[A-Z].*\.", caught.value.message)
