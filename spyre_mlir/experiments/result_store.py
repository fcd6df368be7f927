# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The results of experiments in one SQLite file: a row per point, by the digest of its content.

Every row is committed by itself, so a process that is killed loses none, and several may write one file. Each has a
digest of its own, which is checked when it is read. A file that is no store, of another version or damaged is an
error; nothing is written to it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import sqlite3
from collections.abc import Container, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Self

from spyre_mlir.errors import CompileError
from spyre_mlir.experiments.task import LOST, Outcome

#: The version of the tables, and what marks a file of SQLite as ours: "spyr".
_VERSION, _APPLICATION = 1, 0x73707972
_MAGIC = b"SQLite format 3\0"

#: Seconds that a process waits for another one that writes.
_TIMEOUT = 60

_TABLE = """CREATE TABLE results (
    key TEXT PRIMARY KEY, point TEXT NOT NULL, metrics TEXT NOT NULL, error TEXT NOT NULL, kind TEXT NOT NULL,
    wall_s REAL NOT NULL, cpu_s REAL NOT NULL, attempts INTEGER NOT NULL, digest TEXT NOT NULL
) WITHOUT ROWID"""
_COLUMNS = ("key", "point", "metrics", "error", "kind", "wall_s", "cpu_s", "attempts")


class ResultStore:
    """An open file of results; a context that closes it."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        is_new = _is_new(self.path)
        with self._errors():
            self._connection = sqlite3.connect(self.path, timeout=_TIMEOUT, isolation_level=None)
            if is_new:
                self._create()
            self._check()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def outcomes(self, keys: Container[str]) -> dict[str, Outcome]:
        """Return the results of those points that have one, by their keys."""
        return {row["key"]: _outcome(row) for row in self._rows() if row["key"] in keys}

    def outcome(self, key: str) -> Outcome | None:
        """Return the result of a point; None if it has none."""
        return next(map(_outcome, self._rows(key)), None)

    def attempts(self) -> dict[str, int]:
        """Return how often each point was given to a worker, by its key."""
        return {row["key"]: row["attempts"] for row in self._rows()}

    def add(self, key: str, point: Mapping[str, Any], outcome: Outcome, attempts: int) -> None:
        """Write the result of a point; one that another process wrote meanwhile stays, unless its workers died."""
        plain = asdict(outcome)
        row = {
            **plain, "key": key, "point": json.dumps(point, default=str), "metrics": json.dumps(plain["metrics"]),
            "attempts": attempts,
        }  # fmt: skip
        values = [row[name] for name in _COLUMNS]
        marks = ", ".join("?" * (len(values) + 1))
        with self._errors():
            self._connection.execute("BEGIN IMMEDIATE")
            self._connection.execute("DELETE FROM results WHERE key = ? AND kind = ?", (key, LOST))
            self._connection.execute(
                f"INSERT OR IGNORE INTO results ({', '.join(_COLUMNS)}, digest) VALUES ({marks})",
                [*values, _digest(values)],
            )
            self._connection.execute("COMMIT")

    def _create(self) -> None:
        """Create the table, unless another process did meanwhile."""
        self._connection.execute("BEGIN IMMEDIATE")
        if not self._connection.execute("SELECT 1 FROM sqlite_schema").fetchall():
            self._connection.execute(f"PRAGMA application_id = {_APPLICATION}")
            self._connection.execute(f"PRAGMA user_version = {_VERSION}")
            self._connection.execute(_TABLE)
        self._connection.execute("COMMIT")

    def _check(self) -> None:
        (problem,) = self._connection.execute("PRAGMA quick_check(1)").fetchone()
        if problem != "ok":
            raise sqlite3.DatabaseError(problem)
        for _ in self._rows():
            pass

    def _rows(self, key: str | None = None) -> Iterator[dict[str, Any]]:
        """Yield all rows, or that of a key."""
        names = (*_COLUMNS, "digest")
        select = f"SELECT {', '.join(names)} FROM results WHERE ?1 IS NULL OR key = ?1 ORDER BY key"
        with self._errors():
            rows = self._connection.execute(select, (key,)).fetchall()
            for values in rows:
                if _digest(list(values[:-1])) != values[-1]:
                    raise sqlite3.DatabaseError(f"the row of the point {values[0]} is not as it was written")
        yield from (dict[str, Any](zip(names, values, strict=True)) for values in rows)

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        """Errors of SQLite as ``CompileError`` with the path."""
        try:
            yield
        except sqlite3.OperationalError as error:
            raise CompileError(f"The store cannot be used: {error}.", str(self.path)) from None
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
            raise CompileError(
                f"The store is damaged, and stays as it is: {error}. Move it away to begin anew.",
                str(self.path),
            ) from None


def _is_new(path: Path) -> bool:
    """Return whether there is no store yet; ``CompileError`` for a file that is none."""
    try:
        with path.open("rb") as file:
            head = file.read(100)
    except FileNotFoundError:
        if not path.parent.is_dir():
            raise CompileError("The folder of the store does not exist.", str(path)) from None
        return True
    except OSError as error:
        raise CompileError(f"The store cannot be read: {error.strerror}.", str(path)) from None
    if not head:
        return True
    application, version = (int.from_bytes(head[offset : offset + 4], "big") for offset in (68, 60))
    if not head.startswith(_MAGIC) or application != _APPLICATION:
        raise CompileError(
            "The file is no store of results, and stays as it is; name another one.", str(path)
        )
    if version != _VERSION:
        raise CompileError(
            f"The store is of version {version}; this compiler has version {_VERSION}. Name another file.",
            str(path),
        )
    return False


def _digest(values: list[Any]) -> str:
    return hashlib.sha256(json.dumps(values).encode("utf-8", "surrogatepass")).hexdigest()


def _outcome(row: Mapping[str, Any]) -> Outcome:
    return Outcome(json.loads(row["metrics"]), row["error"], row["kind"], row["wall_s"], row["cpu_s"])
