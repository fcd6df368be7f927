# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Reports about whole programs: exactly the file that is named, with all steps, as page, JSON and picture."""

from __future__ import annotations

import functools
import itertools
import json
import re
import tempfile
from pathlib import Path
from xml.etree import ElementTree

import pytest
import torch
from browser import CHROMIUM, Browser

import spyre_mlir
from spyre_mlir.errors import CompileError
from spyre_mlir.tools import spyre_compile, spyre_report

X = torch.linspace(-1, 1, 128 * 128).reshape(128, 128).half()


def with_host(x: torch.Tensor) -> torch.Tensor:
    return torch.tanh(torch.sin(torch.exp(x)) @ x.t()) @ torch.sin(x)


@functools.cache
def program(kind: str) -> spyre_mlir.Program:
    """A program of bundles and functions of the host, one of a sequence of bundles, one that is one bundle, or none."""
    match kind:
        case "host":
            return spyre_mlir.compile(with_host, (X,), sencores=4)
        case "sequence":
            model = lambda x: torch.tanh(torch.exp(x) @ x) @ x  # noqa: E731
            return spyre_mlir.compile(model, (X,), sencores=4, bundle_operations=2)
        case "one":
            return spyre_mlir.compile(lambda x: torch.exp(x) @ x, (X,), sencores=4)
        case _:
            return spyre_mlir.compile(lambda x: x, (X,), sencores=4)


KINDS = ("host", "sequence", "one", "nothing")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("ending", ["html", "json", "svg"])
def test_the_path_is_what_is_written(kind: str, ending: str, tmp_path: Path) -> None:
    """The report writes no other file; the same program gives the same bytes."""
    path = tmp_path / f"report.{ending}"
    assert program(kind).report(path) == path
    text = path.read_text(encoding="utf-8")
    program(kind).report(str(path))
    assert path.read_text(encoding="utf-8") == text
    assert list(tmp_path.iterdir()) == [path]
    if ending == "json":
        json.loads(text)
    else:
        ElementTree.fromstring(text.partition("\n")[2] if ending == "html" else text)


@pytest.mark.parametrize("name", ["report", "report.pdf", "report.html.gz", "html"])
def test_other_endings_are_an_error(name: str, tmp_path: Path) -> None:
    """The error names the three known endings."""
    with pytest.raises(CompileError, match=r"must end in \.html, \.json or \.svg"):
        program("one").report(tmp_path / name)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", ["host", "sequence"])
def test_a_page_has_every_step(kind: str, tmp_path: Path) -> None:
    """A row per step with what moves, and the page of each bundle inside."""
    steps = program(kind).steps
    text = program(kind).report(tmp_path / "page.html").read_text(encoding="utf-8")
    root = ElementTree.fromstring(text.partition("\n")[2])
    rows = [["".join(cell.itertext()) for cell in row] for row in root.iter("tr")]
    assert [row[0] for row in rows[1:]] == [step.name for step in steps]
    for row, step, moved in zip(rows[1:], steps, program(kind).transfers(), strict=True):
        is_host = step not in program(kind).bundles
        assert (row[1], row[4] == "not predicted") == ("host" if is_host else "device", is_host)
        for cell, values in zip(row[6:], (moved.to_device, moved.resident, moved.to_host), strict=True):
            total = sum(value.bytes for value in values)
            assert cell.startswith(f"{total:,} bytes: ") if values else cell == ""
    frames = [frame.get("data-page") for frame in root.iter("iframe")]
    assert len(frames) == len(program(kind).bundles)
    (shared,) = (json.loads(each.text or "") for each in root.iter("script") if each.get("id") == "shared")
    for frame, step in zip(frames, program(kind).bundles, strict=True):
        whole = re.sub("\ue000(\\d+)\ue000", lambda match: shared[int(match[1])], frame or "")
        assert whole.startswith("<!DOCTYPE html>\n<html") and f"page {step.name}</title>" in whole
        assert len(whole) > len(frame or "") > 1000
        ElementTree.fromstring(whole.partition("\n")[2])
    assert ("not predicted" in text) == (kind == "host")
    assert not re.search(r"(?:src|href)=.https?:", text)


def test_the_reasons_of_the_host_are_told(tmp_path: Path) -> None:
    text = program("host").report(tmp_path / "page.html").read_text(encoding="utf-8")
    assert "'math.sin' has no device operation" in text.replace("&#x27;", "'")


@pytest.mark.parametrize("kind", KINDS)
def test_the_figures_are_those_of_the_program(kind: str, tmp_path: Path) -> None:
    """The times of the steps add up to the predicted time, for a sequence reduced by the overlap of its bundles."""
    plain = json.loads(program(kind).report(tmp_path / "x.json").read_text(encoding="utf-8"))
    assert plain["metrics"] == program(kind).metrics()
    assert [step["name"] for step in plain["steps"]] == [step.name for step in program(kind).steps]
    times = [step["predicted_us"] for step in plain["steps"] if step["where"] == "device"]
    assert sum(times) == pytest.approx(plain["metrics"]["predicted_us"])
    operations = sum(step["operations"] for step in plain["steps"] if step["where"] == "device")
    assert operations == plain["metrics"]["device_operations"]
    assert all(
        len(step["page"]["operations"]) == step["operations"] for step in plain["steps"] if "page" in step
    )


def boxes(root: ElementTree.Element, name: str) -> list[tuple[float, float]]:
    """Begin and end of the rectangles of a class."""
    found = [rect for rect in root.iter("{http://www.w3.org/2000/svg}rect") if rect.get("class") == name]
    return [
        (float(rect.get("x", 0)), float(rect.get("x", 0)) + float(rect.get("width", 0))) for rect in found
    ]


@pytest.mark.parametrize("kind", ["host", "sequence"])
def test_steps_are_on_one_axis(kind: str, tmp_path: Path) -> None:
    """From left to right without overlap, host steps as gaps; the width of bundles is proportional to their time."""
    root = ElementTree.fromstring(program(kind).report(tmp_path / "x.svg").read_text(encoding="utf-8"))
    device, host = boxes(root, "step"), boxes(root, "host")
    assert (len(device), len(host)) == (len(program(kind).bundles), len(program(kind).steps) - len(device))
    order = sorted(device + host)
    assert all(first[1] <= second[0] + 0.2 for first, second in itertools.pairwise(order))
    kinds = ["device" if box in device else "host" for box in order]
    assert kinds == ["device" if step in program(kind).bundles else "host" for step in program(kind).steps]
    shares = [
        share for segment in program(kind).as_report("").segments if hasattr(segment, "shares")
        for _, share in segment.shares
    ]  # fmt: skip
    scale = sum(end - begin for begin, end in device) / sum(shares)
    assert [end - begin for begin, end in sorted(device)] == pytest.approx(
        [s * scale for s in shares], abs=0.3
    )


@pytest.mark.parametrize("kind", ["host", "one"])
def test_spyre_report_reads_folders(kind: str, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    """spyre-report also reads folders of several steps, with the same endings."""
    program(kind).save(tmp_path / "folder")
    for ending in ("html", "json", "svg"):
        assert spyre_report.main([str(tmp_path / "folder"), "-o", str(tmp_path / f"folder.{ending}")]) == 0
    page = (tmp_path / "folder.html").read_text(encoding="utf-8")
    assert all(step.name in page for step in program(kind).steps) or kind == "one"
    plain = json.loads((tmp_path / "folder.json").read_text(encoding="utf-8"))
    assert plain["metrics"]["predicted_us"] == pytest.approx(program(kind).metrics()["predicted_us"])
    picture = (tmp_path / "folder.svg").read_text(encoding="utf-8")
    assert picture == program(kind).report(tmp_path / "folder2.svg").read_text().replace("folder2", "folder")
    assert spyre_report.main([str(tmp_path / "folder"), "-o", str(tmp_path / "folder.png")]) == 1
    assert "must end in .html, .json or .svg" in capsys.readouterr().err


def test_spyre_compile_checks_the_ending_first(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    assert (
        spyre_compile.main([str(tmp_path / "none.mlir"), "-o", str(tmp_path / "b"), "--report", "x.txt"]) == 1
    )
    assert "must end in .html, .json or .svg" in capsys.readouterr().err


def test_programs_of_many_sizes_have_one_page(tmp_path: Path) -> None:
    """The page links the page of each size; a path that is not a page is an error."""
    model = torch.nn.Linear(64, 64).half()
    spyre_mlir.declare_tensor_dim("B", 4)
    spyre_mlir.declare_tensor_dim("C", 64)
    x = torch.ones(4, 64).half()
    spyre_mlir.name_tensor_dims(x, ["B", "C"])
    dynamic = spyre_mlir.compile(model, (x,), sencores=2, dynamic={"B": (4, 12)})
    dynamic.program(B=8)
    text = dynamic.report(tmp_path / "x.html").read_text(encoding="utf-8")
    assert text.count("<iframe") == 2 and "B = 4: " in text and "B = 8: " in text
    assert repr(dynamic) == "<spyre_mlir.DynamicProgram: B of 4 to 12; compiled for (B = 4), (B = 8)>"
    with pytest.raises(CompileError, match=r"must end in \.html"):
        dynamic.report(tmp_path / "x.json")


def test_programs_in_pieces_have_one_page(tmp_path: Path) -> None:
    """With why there are pieces, and the page of each program."""

    def model(x: torch.Tensor) -> torch.Tensor:
        y = torch.exp(x)
        return torch.tanh(y) if float(y.sum()) > 0 else y

    pieces = spyre_mlir.compile(model, (X,), sencores=2)
    pieces(X)
    text = pieces.report(tmp_path / "x.html").read_text(encoding="utf-8")
    assert isinstance(pieces, spyre_mlir.PiecewiseProgram)
    assert text.count("<iframe") == len(pieces.programs) == 2
    assert "The model runs in pieces." in text and "Last call, piece 0: program 0, until" in text
    assert repr(pieces) == "<spyre_mlir.PiecewiseProgram: 2 programs, 2 pieces in the last call>"


@pytest.mark.skipif(CHROMIUM is None, reason="needs a browser")
@pytest.mark.parametrize("size", [(380, 800), (1280, 800)])
def test_pages_inside_open_on_demand(size: tuple[int, int], tmp_path: Path) -> None:
    """A frame is filled when it is opened, by a page whose scripts run; nothing is wider than the window."""
    path = program("host").report(tmp_path / "page.html")
    with tempfile.TemporaryDirectory() as profile, Browser(Path(profile)) as browser:
        browser._call(
            "Emulation.setDeviceMetricsOverride",
            width=size[0],
            height=size[1],
            deviceScaleFactor=1,
            mobile=False,
        )
        browser.open(path)
        assert browser.evaluate("document.documentElement.scrollWidth <= innerWidth")
        filled = "[...document.querySelectorAll('iframe')].map(frame => frame.srcdoc.length > 0)"
        assert browser.evaluate(filled) == [False, False]
        browser.evaluate("document.querySelector('summary').click()")
        browser.evaluate(
            "new Promise(done => document.querySelector('iframe').addEventListener('load', () => done()))"
        )
        assert browser.evaluate(filled) == [True, False]
        bars = "document.querySelector('iframe').contentDocument.querySelectorAll('#timeline-chart svg *').length"
        assert browser.evaluate(bars) > 10
        assert browser.errors == []
