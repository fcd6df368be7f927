# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Run the tests that reach the files changed since a commit, and a few programs end to end: ``make check-changed``."""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Sequence

from import_graph import ROOT, lit_tests, python_tests

#: Programs that use most of the compiler, compiled and compared with PyTorch whatever is changed.
PROGRAMS = (
    "softmax_dim_last_63x65", "layernorm_odd", "gelu_mlp", "sdpa_mask_bool", "llama_block_small", "matmul_4d",
    "sum_0_2_of_3", "cat_columns", "embedding", "transpose_3", "cast_float_sum", "std_dim_0",
)  # fmt: skip
END_TO_END = [f"test/python/test_programs.py::test_equals_pytorch[{name}]" for name in PROGRAMS]


def changed_files(base: str) -> list[str]:
    """Return the files that differ from a commit, and those that git does not know yet, without the deleted ones."""
    commands = (["diff", "--name-only", base], ["ls-files", "--others", "--exclude-standard"])
    texts = [
        subprocess.run(["git", *command], cwd=ROOT, check=True, capture_output=True, text=True).stdout
        for command in commands
    ]
    return sorted(name for name in set("".join(texts).splitlines()) if (ROOT / name).is_file())


def main(argv: Sequence[str] | None = None) -> int:
    """Run the tests; 1 if any of them fails."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--base", default="HEAD", help="the commit to compare with")
    parser.add_argument("--jobs", default="2", help="the number of processes")
    parser.add_argument("--list", action="store_true", help="list the tests alone")
    options = parser.parse_args(argv)
    changed = changed_files(options.base)
    lit, python = lit_tests(changed), python_tests(changed)
    programs = [name for name in END_TO_END if name.partition("::")[0] not in python]
    print(
        f"{len(changed)} changed files since {options.base}: {len(lit)} files of lit, {len(python)} of pytest"
    )
    if options.list:
        print(*lit, *python, *programs, sep="\n")
        return 0
    pytest = [sys.executable, "-m", "pytest", "-q", "-n", options.jobs, "--dist", "loadfile"]
    commands = [[*pytest, "-m", "not exhaustive", *python, *programs]]
    if lit:
        command = "from lit.main import main; main()"
        commands.insert(0, [sys.executable, "-c", command, "-sv", f"-j{options.jobs}", *lit])
    return max(subprocess.run(command, cwd=ROOT).returncode != 0 for command in commands)


if __name__ == "__main__":
    sys.exit(main())
