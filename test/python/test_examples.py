# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The examples run, say what docs/examples.md says they do, and hold what they are about.

Each script runs once, in an empty folder. The blocks of the page are marked ``run by`` this test, so ``test_readme.py``
leaves them out. ``serve_llama.py`` has ``test_serve_llama.py``, at a size for tests.
"""

from __future__ import annotations

import ast
import functools
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from test_readme import FOREIGN, blocks

from spyre_mlir.driver.program import Program
from spyre_mlir.target.target import Target, packaged_target
from spyre_mlir.tools import spyre_validate

sys.path.insert(0, str(Path(__file__).parents[1]))

import fork_server

pytestmark = pytest.mark.documents

ROOT = Path(__file__).parents[2]
PAGE = "docs/examples.md"
SCRIPTS = sorted((ROOT / "examples").glob("*.py"))

#: Scripts that a test of their own runs.
TESTED_APART = {"serve_llama"}


@dataclass(frozen=True)
class Output:
    """Output of a script, and the folder in which it ran."""

    text: str
    folder: Path

    def lines(self, beginning: str) -> list[str]:
        """Return the lines that begin so, in order."""
        return [line for line in self.text.splitlines() if line.startswith(beginning)]

    def numbers(self, beginning: str) -> list[float]:
        """Return the numbers in the first line that begins with ``beginning``, after ``beginning``."""
        rest = self.lines(beginning)[0].removeprefix(beginning)
        return [float(text.replace(",", "")) for text in re.findall(r"\d[\d,]*(?:\.\d+)?", rest)]


@functools.cache
def server() -> str:
    """Return the socket of a fork server that has imported torch."""
    return fork_server.start(*FOREIGN)


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Output]:
    """The output of a script by name, which runs when it is first asked for."""

    @functools.cache
    def run(name: str) -> Output:
        folder = tmp_path_factory.mktemp(name)
        script = str(ROOT / "examples" / f"{name}.py")
        # Run as a reader would, because imports may warn, too.
        fresh = [sys.executable, script]
        command = fresh if name == "first_program" else [*fork_server.command(server()), script]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert done.stderr == "", "a warning or a log on stderr"
        return Output(done.stdout, folder)

    return run


def outputs_of_page() -> dict[str, str]:
    """Return the outputs that the page shows, by script; a block of one command is before each."""
    shown, script = {}, ""
    for block in blocks(PAGE):
        if block.kind == "sh":
            script = block.text.removeprefix("python examples/").removesuffix(".py\n")
        elif block.mark == "output":
            shown[script] = block.text
    return shown


def is_shown(expected: str, text: str) -> bool:
    """Return whether a text is all output of a block; ``...`` stands for any lines, or for the rest of one."""
    parts = [re.escape(part) for part in re.split(r"^\.\.\.\n|\.\.\.$", expected, flags=re.MULTILINE)]
    # The rest of a line ends with it.
    kinds = re.findall(r"^\.\.\.\n|\.\.\.$", expected, flags=re.MULTILINE)
    pattern = parts[0]
    for kind, part in zip(kinds, parts[1:], strict=True):
        pattern += ("(?s:.*)" if kind.endswith("\n") else ".*") + part
    return re.fullmatch(pattern, text) is not None


# -- checks of each script ----------------------------------------------------------------------------


def first_program(output: Output) -> None:
    """The result equals PyTorch except for rounding, and the folder is the program."""
    assert output.numbers("largest error: ")[0] < 0.002
    assert output.lines("the bundle on disk gives the same bits: True")
    program = Program.load(output.folder / "first_program.bundle")
    (planned,) = output.numbers("HBM read")
    assert program.metrics()["hbm_read_bytes"] == planned


def own_pass(output: Output) -> None:
    """Less time and less traffic, planned and counted, and the same logits."""
    before, after = output.numbers("time (us)")
    assert after < 0.5 * before
    planned = output.numbers("bytes read")
    # 1023 of 1024 rows of the input are not read any more.
    assert planned[0] - planned[1] > 0.99 * 1023 * 512 * 2
    counted = [output.numbers(f"{when}: ") for when in ("before", "after")]
    assert [read for read, _ in counted] == planned
    assert all(error < 0.002 for _, error in counted)


def own_solver(output: Output) -> None:
    """All packings have a perfect plan, the portfolio has it, and the wheel is better than one order; checks pass."""
    packings, programs = output.text.split("program ")[:2]
    moved = {row.split()[0]: int(row.split()[1].replace(",", "")) for row in packings.splitlines()[1:]}
    assert moved["portfolio"] == 0 < moved["squeaky-wheel"] < 0.25 * moved["largest-first"]
    assert len(output.lines("  ok  ")) == 6
    kilobytes = {row.split()[0]: row.split()[1] for row in programs.splitlines()[1:] if row[0] != " "}
    assert kilobytes["squeaky-wheel"] == kilobytes["portfolio"] < kilobytes["greedy"]


def tuning(output: Output) -> None:
    """The tuned plan is faster, if only by a little; its file has it, and it computes the same."""
    default, tuned = output.numbers("total_us")[:2]
    assert tuned < default
    assert output.numbers("from the plan file")[0] == pytest.approx(tuned, abs=0.05)
    assert output.lines("change ") and output.lines("both compute the same bits: True")
    assert '"slices": [16, 2]' in (output.folder / "tuned.json").read_text(encoding="utf-8")


def reading_a_report(output: Output) -> None:
    """Each round has the predicted time of the finding before, until the bound is near; each round has its page."""
    times, promises = (
        [[float(text) for text in re.findall(r"\d+\.\d+", line)] for line in output.lines(beginning)]
        for beginning in ("  time ", "  promise ")
    )
    assert [time for time, _ in times] == [after for _, after in promises]
    time, bound = times[-1]
    assert time < promises[0][0] / 50 and time < 1.05 * bound
    assert output.numbers("largest error against float32: ")[0] < 0.005
    for number in range(1, len(times) + 2):
        assert "<h2" in (output.folder / f"round_{number}.html").read_text(encoding="utf-8")


def foreign_bundle(output: Output) -> None:
    """The folders conform without a manifest of ours, and differ in traffic; the wrong folder is refused."""
    products, values = (
        [line.split() for line in output.lines(f"  {op}")] for op in ("batchmatmul", "gelufwd")
    )
    # Traffic of the product, in device memory and in LX.
    assert [row[6] for row in products] == [row[3] for row in values] == ["262,144", "0"]
    assert all(float(line.split()[2]) < 0.002 for line in output.lines("  largest error"))
    (refusal,) = output.lines("  bundle.mlir, execute 1 of sdsc_1.json (gelufwd): Core 1 reads")
    assert refusal.endswith("[elements]")
    for name, status in (("in_memory", 0), ("in_lx", 0), ("in_lx_of_others", 1)):
        folder = output.folder / f"{name}.foreign"
        assert sorted(path.name for path in folder.iterdir()) == ["bundle.mlir", "sdsc_0.json", "sdsc_1.json"]
        assert spyre_validate.main([str(folder)]) == status
        # Of the form of designs, in which the wrong one has no fault.
        assert spyre_validate.main([str(folder), "--conformance"]) == 0


def new_device(output: Output) -> None:
    """Device, division, loop and time differ, and the simulator has the cores of the device."""
    small = Target.read(str(output.folder / "small.toml"))
    assert (small.cores, small.lx_bytes) == (8, packaged_target().lx_bytes // 2)
    assert output.lines("small: 9 operations in 2 tiles")
    fast, slow, slowest = output.numbers("MB moved")
    assert fast == slow < 0.2 * slowest
    packaged, tiled, untiled = output.numbers("us  ")
    assert tiled < packaged < untiled
    assert output.lines("all agree within a hundredth: True") and output.lines("cores that ran: 32 8 8")


CHECKS: dict[str, Callable[[Output], None]] = {
    check.__name__: check
    for check in (
        first_program, own_pass, own_solver, tuning, reading_a_report, foreign_bundle, new_device,
    )
}  # fmt: skip


@pytest.mark.parametrize("name", [path.stem for path in SCRIPTS if path.stem not in TESTED_APART])
def test_script(name: str, output: Callable[[str], Output]) -> None:
    """The script succeeds without a warning, prints the output on the page, and passes its check."""
    result = output(name)
    shown = outputs_of_page()[name]
    assert is_shown(shown, result.text), f"{PAGE} says\n{shown}\nbut it is\n{result.text}"
    CHECKS[name](result)


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_docstring(path: Path) -> None:
    """The first line describes the script in a sentence; the command follows."""
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    first, blank, command, *_ = docstring.splitlines()
    assert first.endswith(".") and len(first.split()) > 4 and first[0].isupper() and blank == ""
    assert command.startswith(f"    python examples/{path.name}")


def test_the_page_has_all_scripts() -> None:
    """In its table; and outputs of all that run here."""
    text = (ROOT / PAGE).read_text(encoding="utf-8")
    assert re.findall(r"^\| `(\w+)\.py`", text, re.MULTILINE) == [*CHECKS, *TESTED_APART]
    assert sorted(outputs_of_page()) == sorted(CHECKS)


def test_an_output_is_compared_as_a_whole() -> None:
    assert is_shown("a\n...\nb 1...\n", "a\nx\ny\nb 12\n")
    assert not is_shown("a\n", "a\nb\n") and not is_shown("b\n", "a\nb\n")
    assert not is_shown("a 1...\nc\n", "a 12\nb\nc\n")
