# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``device_report()``: places, compilations, transfers and the predicted time, against counts by hand."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest
import torch

import spyre_mlir
import spyre_mlir.frontend
from spyre_mlir.driver.device_report import Activity, activity_page, activity_text
from spyre_mlir.errors import CompileError
from spyre_mlir.tensors import device_activity


def test_a_report_counts_what_its_block_does():
    x = torch.ones(64, 96, dtype=torch.float16)
    with spyre_mlir.device_report() as report:
        on_device = x.to("spyre")
        first, _, _ = (on_device - 1 for _ in range(3))
        first.t()
        torch.sort(on_device.float())
        first.cpu()
        torch.compile(lambda x: x.softmax(-1) + 1)(on_device)
    on_device * 2
    activity = report.activity
    subtracted = activity.operation("aten.sub.Tensor")
    program = spyre_mlir.compile(lambda x: x - 1, (x,))
    assert subtracted.calls == {"device": 3} and not subtracted.reasons
    assert subtracted.device_us == pytest.approx(3 * program.metrics()["predicted_us"])
    assert activity.operation("aten.sort.default").calls == {"host": 1}
    assert any("sort" in reason for reason in activity.operation("aten.sort.default").reasons)
    assert activity.operation("compiled graph").calls == {"device": 1}
    assert "aten.t.default" not in activity.operations and "aten.mul.Tensor" not in activity.operations
    metrics = report.metrics()
    assert (metrics["to_device_bytes"], metrics["from_device_bytes"]) == (x.nbytes, x.nbytes)
    assert metrics["predicted_us"] == sum(row.device_us for row in activity.operations.values())


def test_programs_are_compiled_once():
    x = torch.ones(3, 71, device="spyre")
    x / 5
    with spyre_mlir.device_report() as report:
        x / 5
        x / 7
    assert report.activity.compiled == 1 and report.activity.operation("aten.div.Tensor").calls == {
        "device": 2
    }


def test_operations_of_the_host_have_their_reason():
    with spyre_mlir.device_report() as report:
        device_activity.record_host(torch.ops.aten.nonzero.default, "Its sizes depend on values.")
        device_activity.record_host(torch.ops.aten.nonzero.default, "Its sizes depend on values.")
        device_activity.record_copy(torch.empty(3 << 20, dtype=torch.uint8), to_device=False)
    lines = str(report).splitlines()
    assert "on the host         2 calls" in lines and "from the device     3 MiB in 1 copy" in lines
    assert lines[-1].split() == ["aten.nonzero.default", "2", *"Its sizes depend on values.".split()]


def test_a_page_is_xml_with_the_numbers_of_the_text(tmp_path: Path):
    with spyre_mlir.device_report() as report:
        torch.ones(2, 64, device="spyre") + 1
        device_activity.record_host(torch.ops.aten.equal.default, "It is <not> & is.")
    page = report.report(tmp_path / "block.html")
    root = ElementTree.fromstring(page.read_text().partition("\n")[2])
    rows = [[cell.text or "" for cell in row] for row in root.iter("tr")]
    assert ["aten.equal.default", "", "", "1", "", "", "It is <not> & is."] in rows
    assert ["on the device", "1 call"] in rows
    with pytest.raises(CompileError, match="html"):
        report.report(tmp_path / "block.svg")


def test_nothing_happened():
    assert "on the device       0 calls" in activity_text(Activity())
    assert "no operation ran on tensors of the device" in activity_page(Activity(), "Empty")


@pytest.mark.filterwarnings("ignore")
def test_integers_of_other_sizes_compile_nothing():
    """The host runs operations on integers by PyTorch's kernel once a program has shown that it runs them alone."""

    def counts(size: int) -> dict[str, float]:
        host = torch.arange(size)
        x, tensor = host.to("spyre"), spyre_mlir.to_device(host)
        with spyre_mlir.device_report() as report:
            results = (x * 3, x < 3, x * x, x.cumsum(0))
            assert torch.equal((tensor + tensor).cpu(), host + host)
        expected = (host * 3, host < 3, host * host, host.cumsum(0))
        assert all(torch.equal(one.cpu(), other) for one, other in zip(results, expected, strict=True))
        return report.metrics()

    counts(5)
    for size in (6, 7):
        metrics = counts(size)
        assert (metrics["compiled_programs"], metrics["host_calls"]) == (0, 5)
    # Numbers of another type have results of another type, which the device may compute.
    host = torch.arange(9)
    assert torch.equal((host.to("spyre") * 1.5).cpu(), host * 1.5)
