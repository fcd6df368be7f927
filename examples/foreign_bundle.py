# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Run a foreign bundle: designs of another compiler, validated, simulated and timed (SuperDSC specification).

    python examples/foreign_bundle.py

The simulator reads what torch-spyre's front end writes: a design per operation and the program that executes them, with
addresses in the designs and no ``manifest.json``. Nothing here comes from our compiler. The script is a tiny front end
itself: it writes ``gelu(x @ w)``, once with the product in device memory and once in the scratchpads (LX), where every
core finds its own rows; and once so that it does not. The folders are where the script is called.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from spyre_mlir.bundle import read_bundle
from spyre_mlir.bundle.validate import validate
from spyre_mlir.simulator import run
from spyre_mlir.timeline import timeline

CORES, STICK_BYTES, STICK = 8, 128, 64

#: Sizes of the iteration dims, in the names of the format: rows, the reduced dim, columns.
SIZES = {"mb": 256, "in": 256, "out": 512}


@dataclass(frozen=True)
class Tensor:
    """A tensor of fp16 numbers: its role, its dims from the innermost to the outermost, its address and memory.

    The last dim is the stick dim. The first dim is the innermost dim outside the sticks.
    """

    role: str
    dims: tuple[str, str]
    address: int
    memory: str = "hbm"

    def start(self, slices: dict[str, int], counts: dict[str, int]) -> int:
        """Return the address of a core's part, by the number of its slice of each dim."""
        if self.memory == "lx":
            return self.address
        inner, stick = self.dims
        rows = SIZES[inner] // counts[inner] * slices[inner]
        columns = SIZES[stick] // counts[stick] * slices[stick] // STICK
        return self.address + (columns * SIZES[inner] + rows) * STICK_BYTES


def design(index: int, opcode: str, unit: str, tensors: list[Tensor], split: str) -> dict[str, Any]:
    """Return the JSON of one operation, whose dim ``split`` is divided over all cores; the result comes last."""
    dims = list(dict.fromkeys(dim for tensor in tensors for dim in tensor.dims))
    counts = {dim: CORES if dim == split else 1 for dim in dims}
    slices = [{dim: core if dim == split else 0 for dim in dims} for core in range(CORES)]
    return {
        f"{index}_{opcode}": {
            "sdscFoldProps_": [{"factor_": 1, "label_": "time"}],
            "sdscFolds_": {**folds(("time", 1, 1)), "data_": {"[0]": "0"}},
            "coreFoldProp_": {"factor_": CORES, "label_": "core"},
            "coreletFoldProp_": {"factor_": 1, "label_": "corelet"},
            "numCoresUsed_": CORES,
            "coreIdToDsc_": {str(core): 0 for core in range(CORES)},
            "numWkSlicesPerDim_": counts,
            "coreIdToWkSlice_": {str(core): slices[core] for core in range(CORES)},
            "coreIdToDscSchedule": {str(core): [[-1, 0, 0, 0]] for core in range(CORES)},
            "dscs_": [{opcode: configuration(opcode, unit, tensors, counts, slices)}],
        }
    }


def configuration(
    opcode: str, unit: str, tensors: list[Tensor], counts: dict[str, int], slices: list[dict[str, int]]
) -> dict[str, Any]:
    """Return the part of a design that all cores share: sizes, layouts, allocations, and what is computed."""
    part = {"name_": "core", **{f"{dim}_": SIZES[dim] // count for dim, count in counts.items()}}
    names = [f"Tensor{number}-idx{number}" for number in range(len(tensors))]
    return {
        "numCoresUsed_": CORES,
        "numCoreletsUsed_": 1,
        "coreIdsUsed_": list(range(CORES)),
        "N_": {"name_": "n", **{f"{dim}_": SIZES[dim] for dim in counts}},
        "coordinateMasking_": {},
        "maskingConstId_": -1,
        "constantInfo_": "{}",
        "dataStageParam_": {"0": {"ss_": part, "el_": part}},
        "primaryDsInfo_": {tensor.role: layout(tensor) for tensor in tensors},
        "scheduleTree_": [allocation(*numbered, counts, slices) for numbered in enumerate(tensors)],
        "labeledDs_": [labeled(*numbered) for numbered in enumerate(tensors)],
        "computeOp_": [
            {
                "exUnit": unit,
                "opFuncName": opcode,
                "attributes_": {"dataFormat_": "SEN169_FP16", "fidelity_": "regular"},
                "location": "Inner",
                "inputLabeledDs": names[:-1],
                "outputLabeledDs": names[-1:],
            }
        ],
    }


def layout(tensor: Tensor) -> dict[str, Any]:
    """Return the layout of a role: the order of the dims, and which of them is in the sticks."""
    return {"layoutDimOrder_": list(tensor.dims), "stickDimOrder_": [tensor.dims[-1]], "stickSize_": [STICK]}


def folds(*levels: tuple[str, int, int]) -> dict[str, Any]:
    """Return a sum of counters: the label of each, its number of steps, and what a step adds."""
    return {
        "dim_prop_func": [{"Affine": {"alpha_": step, "beta_": 0}} for _, _, step in levels],
        "dim_prop_attr": [{"factor_": count, "label_": label} for label, count, _ in levels],
    }


def coordinate(dim: str, count: int, is_stick: bool) -> dict[str, Any]:
    """Return which elements of a dim a core has: a slice, and of that whole sticks if the dim is in the sticks."""
    share = SIZES[dim] // count
    elements = [("elem_arr_1", share // STICK, STICK), ("elem_arr_0", STICK, 1)]
    levels = [("core_fold", count, share), ("corelet_fold", 1, 0), ("row_fold", 1, 0)]
    levels += elements if is_stick else [("elem_arr_0", share, 1)]
    fields = {"spatial": 3, "temporal": 0, "elemArr": 2 if is_stick else 1, "padding": "nopad"}
    return {**fields, "folds": folds(*levels)}


def allocation(
    number: int, tensor: Tensor, counts: dict[str, int], slices: list[dict[str, int]]
) -> dict[str, Any]:
    """Return the node that says where each core finds its part of a tensor, and which part that is."""
    coordinates = {dim: coordinate(dim, counts[dim], dim == tensor.dims[-1]) for dim in tensor.dims}
    starts = [tensor.start(core, counts) for core in slices]
    return {
        "nodeType_": "allocate",
        "name_": f"allocate-Tensor{number}_{tensor.memory}",
        "prev_": "",
        "ldsIdx_": number,
        "component_": tensor.memory,
        "layoutDimOrder_": list(tensor.dims),
        "maxDimSizes_": [-1, -1],
        "startAddressCoreCorelet_": {
            "dim_prop_func": [{"Map": {}}, {"Const": {}}, {"Const": {}}],
            "dim_prop_attr": [
                {"factor_": factor, "label_": label}
                for label, factor in (("core", CORES), ("corelet", 1), ("time", 1))
            ],
            "data_": {f"[{core}, 0, 0]": str(start) for core, start in enumerate(starts)},
        },
        "coordinates_": {"coordInfo": coordinates, "coreIdToWkSlice_": {}},
    }


def labeled(number: int, tensor: Tensor) -> dict[str, Any]:
    """Return the description of a tensor: its role, its format, its memory."""
    return {
        "ldsIdx_": number,
        "dsName_": f"Tensor{number}",
        "dsType_": tensor.role,
        "scale_": [1, 1],
        "wordLength": 2,
        "dataFormat_": "SEN169_FP16",
        "memOrg_": {memory: {"isPresent": int(memory == tensor.memory)} for memory in ("hbm", "lx")},
    }


def write_folder(folder: Path, memory: str, split: str) -> None:
    """Write ``gelu(x @ w)`` with the product in a memory, divided by rows, and the GELU divided along ``split``."""
    address = 0 if memory == "lx" else 2 << 30
    product = Tensor("OUTPUT", ("mb", "out"), address, memory)
    designs = [
        design(
            0,
            "batchmatmul",
            "pt",
            [Tensor("INPUT", ("mb", "in"), 0), Tensor("KERNEL", ("in", "out"), 1 << 30), product],
            "mb",
        ),
        design(1, "gelufwd", "sfp", [product, Tensor("OUTPUT", ("mb", "out"), 3 << 30)], split),
    ]
    folder.mkdir(exist_ok=True)
    for index, value in enumerate(designs):
        (folder / f"sdsc_{index}.json").write_text(json.dumps(value, indent=1), encoding="utf-8")
    executes = "\n".join(
        f'    sdscbundle.sdsc_execute () {{sdsc_filename="sdsc_{index}.json"}}' for index in range(2)
    )
    program = f"module {{\n  func.func @sdsc_bundle() {{\n{executes}\n    return\n  }}\n}}\n"
    (folder / "bundle.mlir").write_text(program, encoding="utf-8")


def gelu(x: np.ndarray) -> np.ndarray:
    """Return the GELU of an array."""
    return 0.5 * x * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))


def show(folder: Path) -> None:
    """Validate a folder, run it on random numbers, and print what it moves and how long the device would take."""
    bundle = read_bundle(folder)
    findings = validate(bundle)
    print(f"{folder.name}: {len(bundle.designs)} designs, errors: {len(findings)}")
    for finding in findings:
        print(f"  {finding}")
    if findings:
        return
    numbers = np.random.default_rng(0)
    inputs = {
        argument.name: (0.1 * numbers.standard_normal(argument.host_shape)).astype(np.float16)
        for argument in bundle.manifest.arguments
        if argument.kind == "input"
    }
    # The host has the dims of a tensor from the outermost to the innermost.
    x, w = (array.T.astype(np.float64) for array in inputs.values())
    expected = gelu(x @ w).T
    result = run(bundle, inputs)
    error = np.abs(result.outputs["sdsc_1.Tensor1"] - expected).max() / np.abs(expected).max()
    print(f"  largest error {error:.5f} of the largest number")
    for execute, timed in zip(result.statistics.executes.values(), timeline(bundle).executions, strict=True):
        moved = f"{execute.read_bytes:>9,} bytes read {execute.write_bytes:>9,} written"
        print(f"  {execute.opcode:<12}{execute.cores} cores {moved} {timed.total_ns / 1000:>6.1f} us")
    print(f"  together {timeline(bundle)}")


def main() -> None:
    for name, memory, split in (
        ("in_memory", "hbm", "mb"),
        ("in_lx", "lx", "mb"),
        ("in_lx_of_others", "lx", "out"),
    ):
        folder = Path(f"{name}.foreign")
        write_folder(folder, memory, split)
        show(folder)


if __name__ == "__main__":
    main()
