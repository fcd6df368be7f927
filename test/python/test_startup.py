# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Imports of a short process: modules that a small program does not need are imported on first use."""

from __future__ import annotations

import gc
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from spyre_mlir.optimization.arrays import distinct
from spyre_mlir.tools import spyre_opt

SOFTMAX = Path(__file__).parents[2] / "spyre_mlir" / "zoo" / "linalg" / "softmax.mlir"


def output_of(code: str) -> str:
    """Return the output of a new process."""
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("module", ["spyre_mlir", "spyre_mlir.mlir, spyre_mlir.pipelines"])
def test_importing_the_package_imports_no_large_library(module):
    code = f"import sys, {module}; print(sorted({{'torch', 'scipy', 'numba'}} & set(sys.modules)))"
    assert output_of(code) == "[]\n"


def test_a_small_pipeline_imports_what_it_needs():
    """It imports no search, rules of bundles, torch, linalg dialect, masked arrays, archives, or evaluator."""
    large = (
        "torch",
        "scipy",
        "numba",
        "yaml",
        "numpy.ma",
        "importlib.metadata",
        "shutil",
        "random",
        "zipfile",
        "spyre_mlir.host",
        "spyre_mlir.bundle.validate",
        "spyre_mlir.rewriting.window_unrolling",
        "spyre_mlir.scratchpad.buffer_selection",
        "spyre_mlir.scratchpad.spill_and_reload",
        "cp_model",
    )
    code = f"""
import sys
from spyre_mlir.tools.spyre_opt import main
assert main([{str(SOFTMAX)!r}, "--spyre-pipeline", "-o", "/dev/null"]) == 0
print([name for name in {large!r} if name in sys.modules])
"""
    assert output_of(code) == "[]\n"


@pytest.mark.parametrize(
    "statement",
    [
        "from torch_mlir.dialects import linalg; print(linalg.GenericOp.__name__, linalg.matmul is not None)",
        "import torch_mlir.dialects.linalg as linalg; print(linalg.GenericOp.__name__, True)",
        "from torch_mlir.dialects.linalg import GenericOp; print(GenericOp.__name__, True)",
        "import torch_mlir.dialects.linalg.opdsl.lang as lang; print('GenericOp', hasattr(lang, 'TensorDef'))",
        "from torch_mlir.dialects.linalg import *; print(GenericOp.__name__, True)",
        "from torch_mlir.dialects import arith; print('GenericOp', arith.AddFOp.OPERATION_NAME == 'arith.addf')",
    ],
)
def test_the_module_of_an_upstream_dialect_is_there_when_it_is_used(statement):
    assert output_of(f"import spyre_mlir.mlir\n{statement}") == "GenericOp True\n"


def test_an_unknown_name_of_linalg_is_an_error():
    code = "import spyre_mlir.mlir\ntry:\n from torch_mlir.dialects.linalg import no_such\nexcept ImportError: print(1)"
    assert output_of(code) == "1\n"


def test_the_bundle_reader_is_imported_on_use():
    code = """
import sys, spyre_mlir.bundle as bundle
print("spyre_mlir.bundle.folder" in sys.modules)
assert callable(bundle.read_bundle)
print("spyre_mlir.bundle.folder" in sys.modules)
"""
    assert output_of(code) == "False\nTrue\n"


def test_a_tool_leaves_the_garbage_collection_as_it_was():
    before = gc.get_threshold()
    assert spyre_opt.main([str(SOFTMAX), "--canonicalize", "-o", "/dev/null"]) == 0
    assert gc.get_threshold() == before


@pytest.mark.parametrize("values", [[], [3], [2, 2, 1, 5, 1], [1, 2, 3]])
def test_distinct_values_are_those_of_numpy(values):
    array = np.array(values, np.int64)
    assert distinct(array).tolist() == np.unique(array).tolist()
