# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The figures of programs as plain numbers: of one bundle, of several steps, of folders, and written by a tool."""

import json

import pytest
import torch

import spyre_mlir
from spyre_mlir.driver.program_figures import METRICS, UNKNOWN
from spyre_mlir.tools import spyre_compile

NAMES = [
    "predicted_us", "sequential_us", "host_us", "transfer_us", "total_us", "total_least_us", "total_most_us",
    "bound_us", "bound_bytes", "hbm_read_bytes", "hbm_written_bytes", "mean_cores", "device_operations",
    "host_operations", "host_flop_share", "bundles", "lx_peak_bytes", "compile_s", "import_s",
]  # fmt: skip
LOST = ("bound_us", "bound_bytes", "compile_s", "import_s")


@pytest.fixture(scope="module")
def linear():
    module = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.GELU()).half()
    return spyre_mlir.compile(module, (torch.zeros(64, 256).half(),))


def test_the_figures_of_a_bundle(linear):
    """The figures equal the timeline and the summary, and all are numbers."""
    metrics = linear.metrics()
    assert list(metrics) == list(METRICS) == NAMES
    assert all(type(value) in (int, float) for value in metrics.values())
    timeline = linear.timeline()
    assert metrics["predicted_us"] == timeline.total_ns / 1000
    assert metrics["sequential_us"] == timeline.sequential_ns / 1000
    assert (metrics["hbm_read_bytes"], metrics["hbm_written_bytes"]) == (
        timeline.read_bytes, timeline.written_bytes,
    )  # fmt: skip
    assert metrics["bound_bytes"] == 2 * (64 * 256 + 256 * 512 + 512 + 64 * 512)
    assert 0 < metrics["bound_us"] < metrics["predicted_us"]
    assert metrics["bundles"] == 1 and metrics["device_operations"] == len(linear.facts().operations)
    assert 1 <= metrics["mean_cores"] <= 32 and metrics["lx_peak_bytes"] == linear.facts().map.peak
    assert (
        metrics["host_operations"]
        == metrics["host_flop_share"]
        == metrics["host_us"]
        == metrics["transfer_us"]
        == 0
    )
    assert metrics["total_us"] == metrics["predicted_us"]
    assert (metrics["total_least_us"], metrics["total_most_us"]) == (
        timeline.lower_ns / 1000,
        timeline.upper_ns / 1000,
    )
    assert metrics["compile_s"] > 0 and metrics["import_s"] > 0
    assert linear.last_run is None


def test_what_a_folder_does_not_say_is_unknown(linear, tmp_path):
    """The source of the program and the time of its compilation; all else is the same."""
    linear.save(tmp_path / "linear")
    metrics, known = spyre_mlir.Program.load(tmp_path / "linear").metrics(), linear.metrics()
    assert [name for name in NAMES if metrics[name] == UNKNOWN] == [
        "bound_us",
        "bound_bytes",
        "compile_s",
        "import_s",
    ]
    assert {**metrics, **{name: known[name] for name in LOST}} == known


@pytest.mark.filterwarnings("ignore::spyre_mlir.HostWorkWarning")
def test_steps_of_the_host_are_counted(tmp_path):
    """Host operations and their share of the work are counted; time and traffic are of the bundles."""
    program = spyre_mlir.compile(lambda x: torch.sin(x + x) * 2, (torch.zeros(64, 64).half(),))
    metrics = program.metrics()
    assert metrics["bundles"] == len(program.bundles) and metrics["host_operations"] > 0
    assert "us in total (" in repr(program) and "us in total (" in program.summary()
    assert metrics["host_us"] > 0 < metrics["transfer_us"]
    assert 0 < metrics["host_flop_share"] < 1 and metrics["bound_bytes"] == 2 * 2 * 64 * 64
    parts = [step.facts().timeline for step in program.bundles]
    assert metrics["predicted_us"] == pytest.approx(sum(part.total_ns for part in parts) / 1000)
    program.save(tmp_path / "steps")
    loaded = spyre_mlir.Program.load(tmp_path / "steps").metrics()
    assert {**loaded, **{name: metrics[name] for name in LOST}} == metrics


@pytest.mark.filterwarnings("ignore::spyre_mlir.HostWorkWarning")
def test_the_total_is_device_and_host(tmp_path):
    """The estimate is the formula of docs/cost.md with the rates of the device file."""
    rates = "operations_per_ns = [2, 8]\nbytes_per_ns = [1e9, 1e9]\ncall_ns = [3000, 12000]\n"
    (tmp_path / "host.toml").write_text(f"[host]\n{rates}link_bytes_per_ns = [1, 4]\nlink_ns = [100, 400]\n")
    x = torch.zeros(64, 64).half()
    program = spyre_mlir.compile(lambda x: torch.sin(x + x) * 2, (x,), device=str(tmp_path / "host.toml"))
    metrics = program.metrics()
    # One function of 4,096 sines; its operand leaves the device, and its result returns: 8,192 bytes each.
    least, most = 3 + 4096 / 8 / 1000, 12 + 4096 / 2 / 1000
    least_copied, most_copied = 2 * (0.1 + 8.192 / 4), 2 * (0.4 + 8.192)
    assert metrics["host_us"] == pytest.approx((least * most) ** 0.5)
    assert metrics["transfer_us"] == pytest.approx((least_copied * most_copied) ** 0.5)
    device = sum(line.lower_ns for line in program.timelines) / 1000
    assert metrics["total_least_us"] == pytest.approx(device + least + least_copied)
    total = metrics["predicted_us"] + metrics["host_us"] + metrics["transfer_us"]
    assert metrics["total_us"] == pytest.approx(total) and metrics["total_most_us"] > total


@pytest.mark.filterwarnings("ignore::spyre_mlir.HostWorkWarning")
def test_work_of_the_host_is_not_fast():
    """The same model ranks by the total: f16 on the device, then f32 with products on the host."""
    totals = []
    for dtype in (torch.float16, torch.float32, torch.float64):
        layers = torch.nn.Linear(256, 512, dtype=dtype), torch.nn.GELU()
        program = spyre_mlir.compile(torch.nn.Sequential(*layers), (torch.zeros(64, 256, dtype=dtype),))
        totals.append(program.metrics()["total_us"])
    assert totals[0] < min(totals[1:]) / 10


def test_several_bundles_are_one_sequence():
    """Without starts between them: as long as the timeline of all, the highest peak of any."""
    module = torch.nn.Sequential(*(torch.nn.Linear(128, 128) for _ in range(3))).half()
    program = spyre_mlir.compile(module, (torch.zeros(64, 128).half(),), bundle_operations=2)
    metrics = program.metrics()
    assert metrics["bundles"] == len(program.bundles) > 1
    assert metrics["predicted_us"] == program.timeline().total_ns / 1000
    assert metrics["lx_peak_bytes"] == max(step.facts().map.peak for step in program.bundles)
    assert metrics["bound_bytes"] == 2 * (3 * (128 * 128 + 128) + 2 * 64 * 128)


def test_a_program_that_computes_nothing():
    metrics = spyre_mlir.compile(lambda x: x, (torch.zeros(4, 4).half(),)).metrics()
    assert list(metrics) == list(METRICS) == NAMES
    assert all(value == 0 for name, value in metrics.items() if name != "import_s")


def test_the_tool_writes_them(tmp_path):
    """The tool writes the metrics of the program in the folder as JSON; nothing was imported."""
    text = """
    func.func @main(%x: tensor<64x128xf16>) -> tensor<64x128xf16> {
      %empty = tensor.empty() : tensor<64x128xf16>
      %y = linalg.add ins(%x, %x : tensor<64x128xf16>, tensor<64x128xf16>)
                      outs(%empty : tensor<64x128xf16>) -> tensor<64x128xf16>
      return %y : tensor<64x128xf16>
    }"""
    (tmp_path / "add.mlir").write_text(text)
    file = tmp_path / "metrics.json"
    arguments = [str(tmp_path / "add.mlir"), "-o", str(tmp_path / "add"), "--metrics", str(file)]
    assert spyre_compile.main(arguments) == 0
    metrics = json.loads(file.read_text())
    assert list(metrics) == list(METRICS) == NAMES and metrics["import_s"] == 0 and metrics["compile_s"] > 0
    assert metrics["bound_bytes"] == 2 * 2 * 64 * 128
    loaded = spyre_mlir.Program.load(tmp_path / "add").metrics()
    assert {**loaded, **{name: metrics[name] for name in LOST}} == metrics
