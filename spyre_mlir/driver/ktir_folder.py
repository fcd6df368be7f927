# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Folders of KTIR programs: ``program.mlir``, ``manifest.json`` and ``constants.npz``; the latency table of a run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from spyre_mlir.bundle.folder import ARRAYS, MANIFEST, write_arrays
from spyre_mlir.bundle.json_fields import load, write_json
from spyre_mlir.bundle.plain import from_plain, to_plain
from spyre_mlir.bundle.regular_files import read_text
from spyre_mlir.bundle.replacing import replacing
from spyre_mlir.driver.ktir_interpreter import InterpreterRun
from spyre_mlir.ktir.ktir_manifest import KtirManifest
from spyre_mlir.report.summary import table

#: The file name of the KTIR text in a folder.
KTIR = "program.mlir"
_TEXT_BYTES = 1 << 28


def write_ktir(
    folder: str | Path, text: str, manifest: KtirManifest, arrays: Mapping[str, np.ndarray]
) -> None:
    """Write the folder of a program; an existing program is replaced."""
    with replacing(folder) as fresh:
        (fresh / KTIR).write_text(text, encoding="utf-8")
        write_json(fresh / MANIFEST, to_plain(manifest, for_json=True))
        if arrays:
            write_arrays(fresh / ARRAYS, arrays)


def is_ktir(folder: str | Path) -> bool:
    """Return whether a folder holds a program in KTIR."""
    return (Path(folder) / KTIR).is_file()


def read_ktir(folder: str | Path) -> tuple[str, KtirManifest]:
    """Return the KTIR text in a folder, and its manifest."""
    folder = Path(folder)
    text = read_text(folder / KTIR, _TEXT_BYTES)
    return text, from_plain(KtirManifest, load(folder / MANIFEST), from_json=True)


def latency_table(run: InterpreterRun, predicted_us: float) -> str:
    """Return a table of the predicted time by the timeline and by the interpreter's model, with its bottleneck."""
    report: Any = run.latency
    rows = [("timeline", f"{predicted_us:,.1f} us")]
    rows.append(("interpreter", f"{report.kernel_time_us:,.1f} us, bound by {report.bottleneck}"))
    return table(rows)
