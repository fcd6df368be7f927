# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A program of several bundles as a folder: its annotations of LX, and errors of wrong annotations."""

from __future__ import annotations

import copy
import json
import random
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from residency import MN, SOFTMAX, annotated, findings

import spyre_mlir
from spyre_mlir.tools import spyre_compile, spyre_report, spyre_run, spyre_validate


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Softmax in three bundles, as spyre-compile writes it, with its inputs in the same folder."""
    place = tmp_path_factory.mktemp("residency")
    (place / "softmax.mlir").write_text(SOFTMAX)
    arguments = [str(place / "softmax.mlir"), "-o", str(place / "program"), "--sencores=1"]
    assert spyre_compile.main([*arguments, "--bundle-operations=2", "--check"]) == 0
    x = np.random.default_rng(0).standard_normal((512, 1024)).astype(np.float16)
    np.savez(place / "in.npz", arg0=x)
    return place


def test_a_folder_of_bundles_runs(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    out = tmp_path / "out.npz"
    arguments = [
        str(folder / "program"),
        "--inputs",
        str(folder / "in.npz"),
        "--outputs",
        str(out),
        "--stats",
    ]
    assert spyre_run.main(arguments) == 0
    shown = capsys.readouterr().out
    assert [line.split() for line in shown.splitlines() if line.startswith("total")] == [
        ["total", "2", "1", "1,048,576", "0"],
        ["total", "2", "1", "0", "0"],
        ["total", "2", "1", "0", "1,048,576"],
    ]
    x = np.load(folder / "in.npz")["arg0"]
    assert np.array_equal(np.load(out)["result0"], spyre_mlir.compile(SOFTMAX, sencores=1)(x))
    assert spyre_validate.main([str(folder / "program")]) == 0


def test_the_folder_says_what_stays(folder: Path) -> None:
    program = json.loads((folder / "program" / "program.json").read_text())
    assert [step.get("non_terminal", False) for step in program["steps"]] == [True, True, False]
    manifests = [
        json.loads((folder / "program" / step["name"] / "manifest.json").read_text())
        for step in program["steps"]
    ]
    first, second, last = manifests
    assert (first["leaves"], second["leaves"]) == (second["expects"], last["expects"])
    assert "expects" not in first and "leaves" not in last and "non_terminal" not in last
    assert second["leaves"] == [
        {"buffer": "buffer3", "cores": [0], "layout": ["SEN169_FP16, sticks of 64 out: mb 512, out 1024"]}
    ]
    places = {each["name"]: (each["base"], each["offset"], each["bytes"]) for each in last["buffers"]}
    assert places["buffer3"] == ("lx", 0, MN)


def test_the_same_bytes_every_time_and_in_place_of_the_old_ones(folder: Path, tmp_path: Path) -> None:
    written = [path for path in sorted((folder / "program").rglob("*")) if path.is_file()]
    first = spyre_mlir.Program.load(folder / "program")
    for _ in range(2):
        first.save(tmp_path / "program")
    for path in written:
        if path.name != "remarks.jsonl":
            assert (tmp_path / path.relative_to(folder)).read_bytes() == path.read_bytes()
    again = [spyre_mlir.compile(SOFTMAX, sencores=1, bundle_operations=2).bundles for _ in range(2)]
    assert [step.bundle for step in again[0]] == [step.bundle for step in again[1]]


def test_weights_are_laid_out_for_each_bundle(tmp_path: Path) -> None:
    linear = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 64)).half()
    x = torch.randn(64, 64).half()
    program = spyre_mlir.compile(linear, (x,), sencores=4, bundle_operations=1)
    expected = np.asarray(program(x).detach())
    program.save(tmp_path / "linear", lay_out_weights=True)
    assert np.array_equal(spyre_mlir.Program.load(tmp_path / "linear")(np.asarray(x)), expected)


def test_one_of_the_bundles_alone(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    """The bundle is valid and has a page, but no bundle leaves the buffers that it expects."""
    alone = str(folder / "program" / "device_0_1")
    assert spyre_validate.main([alone]) == 0
    assert spyre_report.main([alone, "-o", str(tmp_path / "page.html")]) == 0
    capsys.readouterr()
    assert spyre_run.main([alone]) == 1
    error = capsys.readouterr().err
    assert error.startswith("error: the bundle expects buffers of the previous bundle (buffer0, buffer1);")
    assert len(error.splitlines()) == 1


def _manifest(name: str, change: Callable[[Any], object]) -> Callable[[Path], None]:
    """Changes the manifest of one bundle."""

    def edit(folder: Path) -> None:
        path = folder / name / "manifest.json"
        value = json.loads(path.read_text())
        change(value)
        path.write_text(json.dumps(value))

    return edit


def _steps(change: Callable[[list], None]) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        path = folder / "program.json"
        value = json.loads(path.read_text())
        change(value["steps"])
        path.write_text(json.dumps(value))

    return edit


def _both(*edits: Callable[[Path], None]) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        for each in edits:
            each(folder)

    return edit


def _host_step(folder: Path) -> None:
    """Insert a host function of the input of the first bundle between the first two bundles."""
    text = "func.func @main(%x: tensor<512x1024xf16>) -> tensor<512x1024xf16> {\n  return %x : tensor<512x1024xf16>\n}"
    (folder / "host_0.mlir").write_text(text)
    step = {
        "name": "host_0",
        "kind": "host",
        "float_operations": 0,
        "inputs": ["arg0"],
        "outputs": ["host_0.0"],
    }
    _steps(lambda steps: steps.insert(1, step))(folder)


def _another_address(folder: Path) -> None:
    """Change the address from which the second bundle reads the maximum, in its manifest and its designs."""
    _manifest("device_0_1", lambda m: m["buffers"][1].update(offset=1179648))(folder)
    for path in (folder / "device_0_1").glob("sdsc_*.json"):
        path.write_text(path.read_text().replace('"1048576"', '"1179648"'))


def _terminal(manifest: Any) -> None:
    del manifest["non_terminal"]


#: Name -> edit and error.
WRONG: dict[str, tuple[Callable[[Path], None], str]] = {
    "another address": (
        _manifest("device_0_1", lambda m: m["buffers"][1].update(offset=1179648)),
        "expected to be inside [1179648, 1181696) of the buffer buffer1",
    ),
    "another address, in the design too": (
        _another_address,
        "It has buffer1 at [1179648, 1181696) of lx, the bundle before at [1048576, 1050624) of lx",
    ),
    "a resident is missing": (
        _manifest("device_0_1", lambda m: m["expects"].pop()),
        "reads Tensor1 (buffer buffer1) at byte",
    ),
    "nothing is left": (
        _both(
            _manifest("device_0_1", lambda m: (m.pop("leaves"), m.pop("non_terminal"))),
            _steps(lambda steps: steps[1].pop("non_terminal")),
        ),
        "It writes the buffer buffer3, which nothing reads",
    ),
    "left, but never written": (
        _manifest("device_0_0", lambda m: m["leaves"].append({"buffer": "arg0"})),
        "which is in arg_0_base_addr, where the host puts an argument",
    ),
    "a resident too many": (
        _manifest(
            "device_0_2",
            lambda m: (
                m["buffers"].append({"name": "buffer9", "base": "lx", "offset": 1400064, "bytes": 128}),
                m["expects"].append({**m["expects"][0], "buffer": "buffer9"}),
            ),
        ),
        "It expects buffer9, which the bundle before does not leave",
    ),
    "terminal": (
        _both(_manifest("device_0_0", _terminal), _steps(lambda steps: steps[0].pop("non_terminal"))),
        "in LX and is terminal; expected non_terminal",
    ),
    "terminal in the manifest only": (
        _manifest("device_0_0", _terminal),
        "must both say that it is non-terminal",
    ),
    "terminal in the program only": (
        _steps(lambda steps: steps[0].pop("non_terminal")),
        "must both say that it is non-terminal",
    ),
    "non-terminal at the end": (
        _both(
            _manifest("device_0_2", lambda m: m.update(non_terminal=True)),
            _steps(lambda steps: steps[2].update(non_terminal=True)),
        ),
        "It is non-terminal but leaves nothing in LX",
    ),
    "other cores": (
        _manifest("device_0_1", lambda m: m["expects"][0].update(cores=[0, 1])),
        "on other cores or in another layout",
    ),
    "another layout": (
        _manifest("device_0_1", lambda m: m["expects"][0].update(layout=["by columns"])),
        "on other cores or in another layout",
    ),
    "another layout on both sides": (
        _both(
            _manifest("device_0_0", lambda m: m["leaves"][0].update(layout=["by columns"])),
            _manifest("device_0_1", lambda m: m["expects"][0].update(layout=["by columns"])),
        ),
        "the buffers that it needs of earlier bundles differ in buffer0",
    ),
    "a host step between": (_host_step, "but no bundle of the program runs right after it"),
    "the first bundle is gone": (
        lambda folder: (_steps(lambda steps: steps.pop(0))(folder), shutil.rmtree(folder / "device_0_0"))[1],
        "of a bundle before it, but no bundle of the program runs right before it",
    ),
    "another order": (
        _steps(lambda steps: steps.insert(0, steps.pop(1))),
        "of a bundle before it, but no bundle of the program runs right before it",
    ),
    "cores that are none": (
        _manifest("device_0_1", lambda m: m["expects"][0].update(cores=[99])),
        "rising numbers from 0 to 31",
    ),
    "cores of another type": (
        _manifest("device_0_1", lambda m: m["expects"][0].update(cores="0")),
        'The field expects[0].cores must be a list but is "0"',
    ),
    "a hint of another type": (
        _manifest("device_0_0", lambda m: m.update(non_terminal=1)),
        "The field non_terminal must be true or false but is 1",
    ),
    "a field too many": (
        _manifest("device_0_0", lambda m: m["leaves"][0].update(bytes=4)),
        "The field leaves[0].bytes is not part of the format",
    ),
    "a resident that is no buffer": (
        _manifest("device_0_0", lambda m: m["leaves"][0].update(buffer="nothing")),
        "which the manifest does not have",
    ),
    "a resident without cores": (
        _manifest("device_0_0", lambda m: m["leaves"][0].pop("cores")),
        "expected its cores and its layout",
    ),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_annotation_is_refused(
    wrong: str, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """spyre-validate refuses it, and spyre-run with one error."""
    # The folder of a test uses most of the length of a message.
    monkeypatch.setenv("SPYRE_TRACEBACK", "1")
    edit, expected = WRONG[wrong]
    shutil.copytree(folder / "program", tmp_path / "program")
    edit(tmp_path / "program")
    capsys.readouterr()
    assert spyre_validate.main([str(tmp_path / "program")]) == 1
    told = capsys.readouterr()
    assert expected in told.out + told.err
    assert spyre_run.main([str(tmp_path / "program"), "--inputs", str(folder / "in.npz")]) == 1
    error = capsys.readouterr().err
    assert expected in error
    assert len(error.splitlines()) == 1


def test_random_changes_of_the_annotation(folder: Path, tmp_path: Path) -> None:
    """A random change is refused, or has the same meaning."""
    program = spyre_mlir.Program.load(folder / "program")
    parts = [step.bundle for step in program.bundles]
    rng = random.Random(5)
    accepted = 0
    for _ in range(150):
        changed = copy.copy(parts)
        at = rng.randrange(len(parts))
        manifest = parts[at].manifest
        side = rng.choice(["expects", "leaves"])
        entries = list(getattr(manifest, side))
        change = rng.choice(["drop", "twice", "cores", "layout", "name", "hint", "order"])
        if change == "hint":
            changed[at] = annotated(parts[at], non_terminal=not manifest.non_terminal)
        elif not entries:
            continue
        else:
            chosen = rng.randrange(len(entries))
            if change == "drop":
                entries.pop(chosen)
            elif change == "twice":
                entries.append(entries[chosen])
            elif change == "cores":
                entries[chosen] = replace(entries[chosen], cores=(rng.randrange(32),))
            elif change == "layout":
                entries[chosen] = replace(entries[chosen], layout=("sticks",))
            elif change == "name":
                entries[chosen] = replace(entries[chosen], buffer=f"buffer{rng.randrange(6)}")
            else:
                rng.shuffle(entries)
            changed[at] = annotated(parts[at], **{side: tuple(entries)})
        if findings(changed) == []:
            accepted += 1
            same = (set(each.manifest.expects) for each in changed)
            assert list(same) == [set(each.manifest.expects) for each in parts]
    assert accepted
