# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Logs of the compiler: levels, topics, the progress line."""

from __future__ import annotations

import logging
import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from spyre_mlir import dialects, logs
from spyre_mlir.mlir import ir
from spyre_mlir.pipelines import SpyrePipeline, run_pipeline
from spyre_mlir.remarks import WARNING, Remark, Remarks
from spyre_mlir.timing import scope
from spyre_mlir.tools._common import show_warnings

ROOT = Path(__file__).parents[2]
PROGRAM = """
func.func @main(%x: tensor<64x128xf16>) -> tensor<64x128xf16> {
  %e = tensor.empty() : tensor<64x128xf16>
  %y = linalg.exp ins(%x : tensor<64x128xf16>) outs(%e : tensor<64x128xf16>) -> tensor<64x128xf16>
  return %y : tensor<64x128xf16>
}
"""


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    """Restore the log, which is shared by the whole process."""
    yield
    logs.configure("")


def told(words: str, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """The lines of one record per level, about the pass 'cse' and about the pass 'inline'."""
    logs.configure(words)
    for pass_name in ("cse", "inline"):
        for name, level in logs.LEVELS.items():
            logs.tell(level, f"{name} of {pass_name}", "passes", ["laid-out", pass_name])
    return capsys.readouterr().err.splitlines()


@pytest.mark.parametrize("level", logs.LEVELS)
def test_a_level_shows_what_is_as_urgent(level: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Levels go from error to debug."""
    order = ["error", "warning", "remark", "info", "debug"]
    expected = order[: order.index(level) + 1]
    assert told(level, capsys)[: len(expected)] == [f"{name}: {name} of cse" for name in expected]


def test_a_topic_leaves_the_others_out(capsys: pytest.CaptureFixture[str]) -> None:
    """All levels of the topic are shown, and only warnings of other topics."""
    assert told("cse", capsys) == [
        *(f"{name}: {name} of cse" for name in logs.LEVELS),
        "error: error of inline",
        "warning: warning of inline",
    ]


def test_a_level_and_a_topic(capsys: pytest.CaptureFixture[str]) -> None:
    """Both must match, in any order of the words."""
    expected = ["error: error of cse", "warning: warning of cse", "remark: remark of cse"]
    assert told("cse, remark", capsys)[:3] == expected
    assert told("remark,passes", capsys) == told("remark", capsys) == told("remark,laid-out", capsys)


def test_a_topic_of_which_nothing_is_told_is_known(capsys: pytest.CaptureFixture[str]) -> None:
    """A tool can therefore report a misspelt name."""
    told("debug,cse,csee", capsys)
    assert logs.silent_topics() == ["csee"]


def test_a_record_has_its_place_in_the_source(capsys: pytest.CaptureFixture[str]) -> None:
    """The log of a record has its source location, as a diagnostic has."""
    logs.configure("remark")
    logs.tell(logs.REMARK, "[cse] found: two", location="a.mlir:1:2")
    assert capsys.readouterr().err == "a.mlir:1:2: remark: [cse] found: two\n"


@pytest.mark.parametrize(("words", "expected"), [("", "a.mlir:1:2: warning: twice\n"), ("error", "")])
def test_a_log_of_errors_hides_warnings(
    words: str, expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The tools show warnings of passes in any other case, once."""
    logs.configure(words)
    show_warnings([Remark("cse", "a.mlir:1:2", "func.func", WARNING, "twice")])
    assert capsys.readouterr().err == expected


@pytest.mark.parametrize("topic", ["choose-layouts", "laid-out", "layouts", "remarks"])
def test_remarks_are_told_by_pass_stage_and_kind(topic: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Remarks of a pipeline with a collector are logged, by one topic each."""
    logs.configure(f"remark,{topic}")
    module = ir.Module.parse(PROGRAM, dialects.context())
    run_pipeline(module, SpyrePipeline().pipeline("laid-out"), remarks=Remarks())
    assert capsys.readouterr().err.count("remark: [choose-layouts] layouts: 2 tensors") == 1


def test_loggers_of_a_user_are_topics(capsys: pytest.CaptureFixture[str]) -> None:
    """A pass of somebody else needs nothing but Python's logging."""
    logs.configure("my-pass")
    logging.getLogger("spyre_mlir.my-pass").info("%d loops", 3)
    logging.getLogger("spyre_mlir.other").info("nothing")
    assert capsys.readouterr().err == "info: 3 loops\n"


def test_without_a_request_records_are_python_s(caplog: pytest.LogCaptureFixture) -> None:
    """A program that uses the library has its own handlers and levels."""
    logs.configure("")
    with caplog.at_level(logging.DEBUG, logger="spyre_mlir.passes"), scope("cse", "passes"):
        pass
    assert [(record.name, record.levelname) for record in caplog.records] == [("spyre_mlir.passes", "DEBUG")]


def test_progress_elsewhere_is_a_line_for_each_pass(capsys: pytest.CaptureFixture[str]) -> None:
    """In a file nothing can be written over, and parts of passes come by the thousand."""
    logs.configure("progress")
    with (
        scope("device_1", "stages", place=(2, 3)),
        scope("auto-tiling", "passes", place=(3, 7)),
        scope("trial"),
    ):
        pass
    assert capsys.readouterr().err == "[2/3] device_1\n[2/3 3/7] device_1 > auto-tiling\n"


def test_progress_on_a_terminal_is_one_line_and_leaves_nothing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The line is overwritten, cut to the width of the terminal, removed for other lines, and removed at the end."""
    on_a_terminal(monkeypatch, columns=24)
    logs.configure("progress,remark")
    with scope("tiled", "stages"), scope("auto-tiling", "passes", place=(3, 7)):
        logs.tell(logs.REMARK, "done")
        with scope("trial"):
            pass
    begin, end = "\r", "\x1b[K"
    lines = ("tiled", "[3/7] tiled > auto-tili", "", "remark: done\n", "[3/7] tiled > auto-tili", "")
    expected = "".join(each if each.endswith("\n") else begin + each + end for each in lines)
    assert capsys.readouterr().err == expected


@pytest.mark.parametrize(("words", "is_shown"), [("", True), ("info", False), ("info,progress", True)])
def test_a_tool_shows_progress_where_it_is_alone(
    words: str, is_shown: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a terminal, unless a level is asked for."""
    on_a_terminal(monkeypatch, columns=80)
    logs.configure(words, terminal=True)
    with scope("cse", "passes"):
        pass
    assert ("\rcse\x1b[K" in capsys.readouterr().err) == is_shown


def test_a_tool_leaves_the_terminal_as_it_was(tmp_path: Path) -> None:
    """On a terminal progress is shown by default, and removed at the end."""
    (tmp_path / "a.mlir").write_text(PROGRAM)
    ours, terminal = pty.openpty()
    command = [sys.executable, "-m", "spyre_mlir.tools.spyre_opt", "a.mlir", "--cse", "-o", "b.mlir"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "SPYRE_LOG": "", "COLUMNS": "80"}
    subprocess.run(command, cwd=tmp_path, env=environment, stderr=terminal, check=True)
    os.close(terminal)
    assert os.read(ours, 1000).decode() == "\r[1/1] cse\x1b[K\r\x1b[K"
    os.close(ours)


def test_a_library_shows_no_progress_unasked(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The terminal is the user's."""
    on_a_terminal(monkeypatch, columns=80)
    logs.configure("")
    with scope("cse", "passes"):
        pass
    assert capsys.readouterr().err == ""


def test_progress_is_hidden_while_others_write(capsys: pytest.CaptureFixture[str]) -> None:
    """IR that upstream prints is not mixed with it."""
    logs.configure("progress")
    with logs.hidden_progress(), scope("cse", "passes"):
        pass
    with scope("inline", "passes"):
        pass
    assert capsys.readouterr().err == "inline\n"


def on_a_terminal(monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", str(columns))
