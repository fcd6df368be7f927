# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs a program with the simulated torch-spyre: ``python -m spyre_mlir.torch_spyre (SCRIPT | -m MODULE) ..``."""

from __future__ import annotations

import os
import runpy
import sys

from spyre_mlir.errors import CompileError
from spyre_mlir.torch_spyre import install

USAGE = "usage: python -m spyre_mlir.torch_spyre (SCRIPT | -m MODULE) [ARGUMENTS ...]"


def main(arguments: list[str]) -> int:
    """Run a script or a module as ``python`` does."""
    is_module = arguments[:1] == ["-m"]
    if is_module:
        arguments = arguments[1:]
    if not arguments or arguments[0].startswith("-"):
        print(USAGE, file=sys.stderr)
        return 0 if arguments[:1] in (["-h"], ["--help"]) else 2
    try:
        install()
    except CompileError as error:
        print(error, file=sys.stderr)
        return 1
    if not is_module and not os.path.isfile(arguments[0]):
        print(
            CompileError(f"There is no file '{arguments[0]}' to run; name a Python script."), file=sys.stderr
        )
        return 1
    sys.argv = arguments
    # ``python SCRIPT`` finds modules in the folder of the script, ``python -m`` in the current folder.
    sys.path[0] = "" if is_module else os.path.dirname(os.path.abspath(arguments[0]))
    if is_module:
        runpy.run_module(arguments[0], run_name="__main__", alter_sys=True)
    else:
        runpy.run_path(arguments[0], run_name="__main__")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
