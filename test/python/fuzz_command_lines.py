# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Random command lines of the tools: flags that exist with values that fit, or do not, and files of every kind."""

from __future__ import annotations

import argparse
import importlib
import random
import re
import zipfile
from pathlib import Path
from types import ModuleType

TOOLS = (
    "opt",
    "translate",
    "compile",
    "validate",
    "run",
    "report",
    "plan",
    "diff",
    "calibrate",
    "sweep",
    "tune",
)

PROGRAM = """func.func @main(%x: tensor<64x128xf16>) -> tensor<64x128xf16> {
  %e = tensor.empty() : tensor<64x128xf16>
  %y = linalg.exp ins(%x : tensor<64x128xf16>) outs(%e : tensor<64x128xf16>) -> tensor<64x128xf16>
  return %y : tensor<64x128xf16>
}
"""

#: The bundle that is there from the beginning, and a file with other text.
BUNDLE, EXISTING = "in.bundle", "existing"

#: The input of each tool; random command lines combine these and ``_OTHERS``.
_INPUTS = {
    "opt": "in.mlir", "translate": "in.mlir", "compile": "in.mlir", "validate": BUNDLE, "run": BUNDLE, "report": BUNDLE,
    "plan": "in.csv", "diff": BUNDLE, "calibrate": "measured.csv", "sweep": "in.toml", "tune": "in.mlir",
}  # fmt: skip
_OTHERS = (
    "empty", "all.bin", "crlf.mlir", "latin-1.mlir", "damaged.mlirbc", "{}.json", "a =.toml", "ä µ.mlir", "folder",
    "objects.npz", "long.mlir", "missing", "", "-", "/dev/null", "fails.py", "nothing.py", "missing/x", "in.mlir/x",
    "a\nb", "a\0b", "x" * 300, "\udcff.mlir", "--", "512x64xf16", "zoo:missing", f"{BUNDLE}/bundle.mlir",
)  # fmt: skip
_OUTPUTS = (
    "o.mlir", "o.json", "o.svg", "o.html", "o.csv", "o.npz", "o.toml", "o.bundle", "missing/o", "folder",
    "/dev/null", "-", "", "in.mlir/x", "x" * 300, "a\0b", "ä µ", EXISTING, BUNDLE,
)  # fmt: skip
_VALUES = (
    "", "0", "1", "-1", "4", "999999999999", "1.5", "nan", "inf", "true", "false", "x=1", "{", "}", "{}", "a,b", "'",
    '"', "sencores=4", "sencores=x", "cse", "canonicalise", "builtin.module(cse)", "builtin.module(", "laid-out=cse",
    "laid-out=", "=", "lx=128", "0,1", "ä", "\udcff", "a\nb", "%4", "main", "all", "portfolo", "device", "dl16", "ktir",
    "placed", "predicted_us", "x" * 500, "()", "[", "(?P<", "debug", "lx-planning=maybe", "max-iterations=x",
)  # fmt: skip
_PASSES = ("cse", "canonicalize", "choose-layouts", "csee", "", "work-distribution", "spyre-pipeline")


def module_of(tool: str) -> ModuleType:
    """The module of a tool."""
    return importlib.import_module(f"spyre_mlir.tools.spyre_{tool}")


def write_inputs(folder: Path) -> None:
    """Write the files that command lines name, without the bundle."""
    texts = {
        "in.mlir": PROGRAM, "ä µ.mlir": PROGRAM, "empty": "", "{}.json": "{}", "a =.toml": "a =", EXISTING: "before",
        "fails.py": "import missing_module\n", "nothing.py": "",
        "in.csv": "id,lower,upper,size\na,0,1,128\nb,0,2,256\n",
        "measured.csv": "B,M,N,K,cores_b,cores_m,cores_n,cores_k,measured_us\n1,512,512,512,1,4,4,1,100\n",
        "in.toml": 'programs = ["in.mlir"]\nstore = "o.sqlite"\nworkers = 1\n[axes]\nsencores = [1]\n',
        "crlf.mlir": PROGRAM.replace("\n", "\r\n"), "long.mlir": f"func.func @f() {{ {'x' * 200_000} }}",
    }  # fmt: skip
    for name, text in texts.items():
        (folder / name).write_bytes(text.encode())
    (folder / "latin-1.mlir").write_bytes(b"// \xe9\n" + PROGRAM.encode())
    (folder / "all.bin").write_bytes(bytes(range(256)))
    (folder / "damaged.mlirbc").write_bytes(b"ML\xefR" + bytes(40))
    (folder / "folder").mkdir()
    with zipfile.ZipFile(folder / "objects.npz", "w") as archive:
        archive.writestr("x.npy", b"\x93NUMPY\x01\x00" + bytes(100))


def command_line(tool: str, rng: random.Random) -> list[str]:
    """Draw the arguments of a tool."""
    actions = [
        action for action in module_of(tool)._parser()._actions if action.dest not in ("help", "version")
    ]
    flags = [action for action in actions if action.option_strings and "--pass" not in action.option_strings]
    argv = [
        _INPUTS[tool] if rng.random() < 0.6 else rng.choice((*_INPUTS.values(), *_OTHERS))
        for action in actions
        if not action.option_strings
    ]
    required = [flag for flag in flags if flag.required]
    for flag in (*required, *rng.sample(flags, rng.choice((0, 1, 1, 2, 3)))):
        argv += _flag(flag, rng)
    if tool == "opt":
        argv += [
            f"--{rng.choice(_PASSES)}{rng.choice(('', '', '=' + rng.choice(_VALUES)))}" for _ in range(2)
        ]
    if rng.random() < 0.1:
        argv.insert(rng.randrange(len(argv) + 1), rng.choice((*_VALUES, "--unknown", "-z", "--help")))
    if rng.random() < 0.1:
        rng.shuffle(argv)
    return [*argv, "--trials", "1"] if tool == "tune" else argv


def _flag(flag: argparse.Action, rng: random.Random) -> list[str]:
    name = rng.choice(flag.option_strings)
    if flag.nargs == 0:
        return [name]
    count = flag.nargs if isinstance(flag.nargs, int) else 1
    values = [_value(flag, rng) for _ in range(count)]
    if count == 1 and name.startswith("--") and rng.random() < 0.6:
        return [f"{name}={values[0]}"]
    return [name, *(values if rng.random() < 0.95 else [])]


def _value(flag: argparse.Action, rng: random.Random) -> str:
    if flag.choices and rng.random() < 0.7:
        return rng.choice(list(flag.choices))
    if re.search("FILE|DIR|toml", f"{flag.metavar}") and rng.random() < 0.8:
        return rng.choice((*_INPUTS.values(), *_OTHERS, *_OUTPUTS, *_OUTPUTS))
    return rng.choice(_VALUES)
