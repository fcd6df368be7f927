# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""lit: .mlir and .test files under test/; the tools in RUN lines are the modules of this checkout.

They are forked by a server; ``%python -m spyre_mlir.tools.NAME`` in a RUN line starts a process of its own.
"""
# ruff: noqa: F821 - lit defines `config`

import importlib.util
import os
import shlex
import sys
import tempfile

root = os.path.dirname(os.path.abspath(__file__))

sys.path.insert(0, os.path.join(root, "test"))
os.environ["PYTHONPATH"] = root

import fork_server  # noqa: E402
import lit_format  # noqa: E402

config.name = "spyre-mlir"
config.test_format = lit_format.QuotedPaths(execute_external=False)
config.suffixes = [".mlir", ".test"]
config.excludes = ["python", "Inputs", "Output"]
config.test_source_root = root
# %t also stands in options, where a space would end it.
config.test_exec_root = root if shlex.quote(root) == root else tempfile.mkdtemp(prefix="spyre-lit-")
config.environment["PYTHONPATH"] = root
# Tests are of the compiler, not of what it left in the cache; a test of that turns it on.
config.environment["SPYRE_CACHE"] = "0"

# The tools work without torch, and are tested so: `make check-lowest`.
if importlib.util.find_spec("torch"):
    config.available_features.add("torch")

files = sorted(os.listdir(os.path.join(root, "spyre_mlir", "passes")))
passes = [f"spyre_mlir.passes.{file.removesuffix('.py')}" for file in files if file.endswith(".py")]
server = fork_server.start("filecheck.main", "spyre_mlir.pipelines", "spyre_mlir.driver.compilation", *passes)
python = shlex.join(fork_server.command(server))
for tool in ("opt", "translate", "compile", "run", "validate", "report", "plan", "diff", "reduce"):
    config.substitutions.append(
        (rf"(?<![\w/.-])spyre-{tool}(?![\w/.-])", f"{python} -m spyre_mlir.tools.spyre_{tool}")
    )
config.substitutions.append((r"(?<![\w/.-])(?:filecheck|FileCheck)(?![\w/.-])", f"{python} -m filecheck"))
config.substitutions.append(("%python", shlex.quote(sys.executable)))
