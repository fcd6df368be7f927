# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Describe a new device: fewer cores, smaller scratchpads, faster memory; and what that does to a program.

    python examples/new_device.py

A device file has every size, limit and rate, and nothing else in the compiler writes one down. So a device that nobody
has built is a copy of the packaged file with other numbers, and the compiler, the simulator and the timeline follow.
The copy is the file ``small.toml`` where the script is called.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import resources
from pathlib import Path

import numpy as np

import spyre_mlir
from spyre_mlir import zoo
from spyre_mlir.target.target import Target

#: Lines of the packaged device file, up to the comment, with their replacements for the new device.
CHANGES = {
    "count = 32 ": "count = 8 ",
    "bytes = 2097152 ": "bytes = 1048576 ",
    "peak_bytes_per_ns = 204.8 ": "peak_bytes_per_ns = 409.6 ",
    "one_way_bytes_per_ns = 150 ": "one_way_bytes_per_ns = 300 ",
    "restickify_bytes_per_ns = 116 ": "restickify_bytes_per_ns = 232 ",
    "broadcast_bytes_per_ns = 118 ": "broadcast_bytes_per_ns = 236 ",
}


def write_device(path: str) -> None:
    """Write the packaged device file with our changes."""
    text = resources.files("spyre_mlir.target").joinpath("spyre.toml").read_text(encoding="utf-8")
    for line, changed in CHANGES.items():
        assert text.count(line) == 1, line
        text = text.replace(line, changed)
    Path(path).write_text(text, encoding="utf-8")


def cells_of(program: spyre_mlir.Program) -> dict[str, str]:
    """Return what each operation is on a device: slices of its dims, memory of its result, microseconds."""
    cells = {}
    rows = zip(program.plan()["operations"], program.timeline().executions, strict=True)
    for operation, execution in rows:
        slices, (place, *_) = str(operation["slices"]), operation["result"]["placement"]
        cells[operation["name"]] = f"{slices:<8}{place:<9}{execution.total_ns / 1000:>6.1f}"
    return cells


def print_programs(programs: dict[str, spyre_mlir.Program]) -> None:
    """Print the operations of one program on several devices, side by side, and the figures of all of it."""
    figures = [program.metrics() for program in programs.values()]
    columns = list(map(cells_of, programs.values()))
    print(f"{'':<18}" + "".join(f"{title:<27}" for title in programs).rstrip())
    # Relayouts over the ring, marked with a star, are operations of some devices only.
    for name in dict.fromkeys(name for cells in columns for name in cells):
        row = "    ".join(f"{cells.get(name, ''):<23}" for cells in columns)
        print(f"{name.replace('/shuffle.0', '*'):<18}{row}".rstrip())
    for text, figure in (
        ("us", "predicted_us"),
        ("us at least", "bound_us"),
        ("MB moved", None),
    ):
        values = [
            (row["hbm_read_bytes"] + row["hbm_written_bytes"]) / 1e6 if figure is None else row[figure]
            for row in figures
        ]
        print(f"{text:<18}" + "    ".join(f"{value:>23.1f}" for value in values))


def reasons(program: spyre_mlir.Program) -> Iterator[str]:
    """Yield why operations run in tiles, and why results are in device memory, each reason once."""
    for remark in program.remarks:
        if remark.pass_name == "auto-tiling":
            yield remark.reason.partition(";")[0]
    results = [operation["result"] for operation in program.plan()["operations"]]
    spilled = (reason for result in results if "pool" in result["placement"] for reason in result["spilled"])
    yield from dict.fromkeys(spilled)


def main() -> None:
    write_device("small.toml")
    for section, fields in Target.read("small.toml").differences().items():
        print(f"{section:<6}", ", ".join(f"{field} {value}" for field, value in fields.items()))

    text, inputs = zoo.load("linalg/layer_norm")
    programs = {
        "spyre": spyre_mlir.compile(text),
        "small": spyre_mlir.compile(text, device="small.toml"),
        "small, without tiles": spyre_mlir.compile(text, device="small.toml", tile_for_lx=False),
    }
    print_programs(programs)
    for title, program in programs.items():
        for reason in reasons(program):
            print(f"{title}: {reason}")

    numbers = np.random.default_rng(0)
    parameters = {name: numbers.standard_normal(4096).astype(np.float16) for name in ("weight", "bias")}
    results, cores = [], []
    for program in programs.values():
        program.arrays.update(parameters)
        results.append(program(*inputs))
        cores.append(program.last_run.statistics.cores if program.last_run else 0)
    # The simulator has the device of the bundle: its cores, and no byte of LX more than they have.
    # Sums that are split over cores are rounded in another order.
    close = all(np.allclose(result, results[0], rtol=0.01, atol=0.01) for result in results)
    print("all agree within a hundredth:", close)
    print("cores that ran:", *cores)


if __name__ == "__main__":
    main()
