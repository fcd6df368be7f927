# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Measured times of several sources: text tables are read, and cores of one sum that are apart are slow."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.measured_sources import all_measurements, measured_sources, products, restickifies
from spyre_mlir.calibration.fit import BLOCKS, contradicted, fitted_constants, matmul_space
from spyre_mlir.cost.cost_model import compute_ns
from spyre_mlir.cost.of_space import even_work, operation_work
from spyre_mlir.division import Division
from spyre_mlir.division_search.work_division import by_cost
from spyre_mlir.target.target import packaged_target, packaged_text

TABLES = {
    "diag_hmi_bw_split_pattern_results.txt": """# a table
| shape | (M, N, K) | bytes (MB) | split | wall ms | compute ms | hmi ms | implied BW (GB/s) |
|---|---|---:|---|---:|---:|---:|---:|
| wide M=128 | (128,4096,4096) | 138 | pure-M | 6.500 | 1.1 | +3.5 | 39 |
| wide M=128 | (128,4096,4096) | 138 | pure-K | 5.000 | 0.5 | +2.0 | 64 |
| wide M=128 | (128,4096,4096) | 138 | (1,16,2) | 7.000 | 0.5 | +4.0 | 34 |
| wide M=128 | (128,4096,4096) | 138 | (2,16,1) | 3.100 | 0.5 | +0.1 | 141 |
""",
    "diag_hmi_bw_pure_m_results.txt": """| shape | M | N | K | B | wall ms | compute ms | above | eff | repl |
|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|
| B=8MB  M=64 | 64 | 1024 | 4096 | 9 | 4.000 | 0.067 | +0.079 | 114.4 | 3402.7 |
| B=512MB M=64 | 64 | 16384 | 16384 | - | EAR overflow | - | - | - | - |
""",
    "diag_hmi_bw_k_split_results.txt": """| shape | config | wall ms | pred-full ms | pred-cluster ms |
|---|---|---:|---:|---:|
| Mixtral kv_proj M=2048 | (1,8,4)kf | 4.500 | 9.137 | 6.149 |
| Mixtral kv_proj M=2048 | (1,8,4)id | 9.900 | 9.137 | 6.149 |
""",
    "diag_hmi_cost_model_calibrate_results.txt": """| shape | mode | measured ms | pred ms | err | rel | class |
|---|---|---|---|---|---|---|
| DSv3 q_a_proj M=32 | natural | 4.000 | 3.000 | -0.3 | 9.3% | bound |
| DSv3 q_a_proj M=128 +kf | kf | 4.100 | 3.000 | -0.3 | 9.3% | bound |
""",
    "hierarchy_rows.csv": """mode,status,case,size,median_ms
a,ok,matmul_control,1024,0.129
a,ok,matmul_lhs_wrong_stick,1024,0.171
b,ok,matmul_control,1024,0.127
b,ok,matmul_lhs_wrong_stick,1024,0.165
a,failed,matmul_rhs_wrong_stick,1024,
a,ok,matmul_control,128,0.050
a,ok,matmul_lhs_wrong_stick,128,0.054
""",
    "matmul.csv": """lx_backend_fraction,cores_b,cores_m,cores_n,cores_k,B,M,N,K,measured_us
0.2,1,4,8,1,1,512,4096,4096,317.36
0.2,1,8,4,1,1,512,4096,4096,330
""",
}


@pytest.fixture
def folder(tmp_path) -> Path:
    path = tmp_path / "measured"
    path.mkdir()
    for name, text in TABLES.items():
        (path / name).write_text(text)
    return path


def test_rows_above_the_launch_are_read(folder):
    """Times are without 3 ms of a launch; rows with less than 0.7 ms more are left out."""
    rows = [row for group in products(folder) for row in group.rows]
    assert [(row.source, row.slices, row.is_scattered, row.measured_ns / 1e6) for row in rows] == [
        ("split pattern", (32, 1, 1), False, 3.5),
        ("split pattern", (1, 1, 32), False, 2.0),
        ("split pattern", (1, 16, 2), True, 4.0),
        ("rows", (32, 1, 1), False, 1.0),
        ("sums", (1, 8, 4), False, 1.5),
        ("sums", (1, 8, 4), True, pytest.approx(6.9)),
        ("calibration", (32, 1, 1), False, 1.0),
        ("calibration", (1, 16, 2), False, pytest.approx(1.1)),
    ]


def test_a_restickify_is_the_difference_to_a_control(folder):
    (found,) = restickifies(folder / "hierarchy_rows.csv")
    assert found.measured_ns.tolist() == [pytest.approx(40_000)]
    assert 0.8 < found.predicted_ns(packaged_target())[0] / 40_000 < 1.2


def test_each_source_is_left_out(folder, monkeypatch):
    monkeypatch.setenv("SPYRE_TEST_DATA", str(folder.parent))
    metrics = measured_sources()
    assert metrics["rows"] == sum(len(group.splits) for group in all_measurements(folder)) == 11
    sources = {name.partition(".rows")[0] for name in metrics if name.endswith(".rows")}
    assert sources == {"packaged", "profiler, 0.2 of LX", "wall times", "restickify"}


def test_a_constant_that_is_not_contradicted_keeps_its_value(folder):
    constants = fitted_constants(packaged_text(), "spyre.toml")
    device = packaged_target()
    consistent = [group for group in all_measurements(folder) if group.shape == "restickify"]
    assert contradicted(consistent, device, constants) == {}


def test_without_the_tables_the_benchmark_says_so(monkeypatch, tmp_path):
    monkeypatch.setenv("SPYRE_TEST_DATA", str(tmp_path))
    assert measured_sources() == {}


def test_cores_of_a_sum_that_are_apart_work_at_another_rate():
    """Divisions of this compiler have such cores as neighbours."""
    space = matmul_space(packaged_target(), (1, 128, 8192, 8192), BLOCKS)
    near, far = (
        operation_work(
            "batchmatmul", space, replace(Division.mixed_radix((1, 1, 16, 2), order), reduced=frozenset({3}))
        )
        for order in ((3, 0, 1, 2), (2, 0, 1, 3))
    )
    assert far.scattered and not near.scattered and compute_ns(far) > 4 * compute_ns(near)
    rate = packaged_target().array.scattered_sum_multiply_adds_per_ns
    assert compute_ns(far) == pytest.approx(128 * 8192 * 8192 / 32 / rate)


def test_of_costs_within_a_percent_fewer_slices_of_the_sum_come_first():
    space = matmul_space(packaged_target(), (1, 128, 7168, 16384), BLOCKS)
    splits = np.array([(1, 1, 8, 4), (1, 1, 16, 2), (1, 32, 1, 1)]).T
    assert by_cost("batchmatmul", space, splits).tolist() == [1, 0, 2]
    assert np.array(even_work("batchmatmul", space, tuple(splits)).parts).tolist() == [4, 2, 1]
