"""lit: .mlir and .test files under test/; the tools in RUN lines are the modules of this checkout."""
# ruff: noqa: F821 - lit defines `config`

import os
import sys

import lit.formats

root = os.path.dirname(os.path.abspath(__file__))

config.name = "spyre-mlir"
config.test_format = lit.formats.ShTest(execute_external=False)
config.suffixes = [".mlir", ".test"]
config.excludes = ["python", "Inputs", "Output"]
config.test_source_root = root
config.test_exec_root = root
config.environment["PYTHONPATH"] = root
# Tests are of the compiler, not of what it left in the cache; a test of that turns it on.
config.environment["SPYRE_CACHE"] = "0"

for tool in ("opt", "translate", "compile", "run", "validate", "report", "plan", "diff"):
    module = f"{sys.executable} -m spyre_mlir.tools.spyre_{tool}"
    config.substitutions.append((rf"(?<![\w/.-])spyre-{tool}(?![\w/.-])", module))
filecheck = os.path.join(os.path.dirname(sys.executable), "filecheck")
config.substitutions.append((r"(?<![\w/.-])(?:filecheck|FileCheck)(?![\w/.-])", filecheck))
config.substitutions.append(("%python", sys.executable))
