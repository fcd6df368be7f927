# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""spyre-reduce on programs of 200 operations with a planted fault."""

from __future__ import annotations

import contextlib
import io
import random
import re
import resource
import shlex
import sys
import tempfile
from pathlib import Path

from benchmarks.measure import ROOT, seconds
from benchmarks.registry import Metrics, Noted, benchmark

OPERATIONS = 200
_TENSOR, _ROW = "tensor<64x128xf16>", "tensor<64xf16>"
_SAME, _FIRST = "affine_map<(d0, d1) -> (d0, d1)>", "affine_map<(d0, d1) -> (d0)>"


@benchmark(most_operations=10, most_seconds=120, most_cpu_seconds=120)
def reduction(kinds: int = 10, operations: int = OPERATIONS) -> Metrics:
    """spyre-reduce: ten planted faults of 200 operations, five that fail and five with wrong numbers."""
    metrics: dict[str, float] = {}
    for kind in range(kinds):
        begun = _cpu_seconds()
        count, time = reduced(kind, operations)
        metrics |= {f"{kind}.operations": count, f"{kind}.seconds": time}
        metrics |= {f"{kind}.cpu_seconds": _cpu_seconds() - begun}
    most = {
        f"most_{name}": max(value for key, value in metrics.items() if key.endswith(f".{name}"))
        for name in ("operations", "seconds", "cpu_seconds")
    }
    return Noted(metrics | most, [], ("operations", "seconds", "cpu_seconds"))


def _cpu_seconds() -> float:
    """Return the CPU time of this process and of its ended children."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def reduced(kind: int, operations: int = OPERATIONS) -> tuple[int, float]:
    """Return the operations that are left of a random program with a planted fault, and the seconds."""
    from spyre_mlir.tools import spyre_reduce

    faults = ROOT / "benchmarks" / "planted_faults.py"
    with tempfile.TemporaryDirectory() as folder:
        source, result = Path(folder, "source.mlir"), Path(folder, "result.mlir")
        source.write_text(random_module(kind, operations))
        python = shlex.quote(sys.executable)
        load = f"--load {shlex.quote(str(faults))}"
        if kind < 5:
            flags = f"--pass-pipeline='builtin.module(plant-fault{{kind={kind}}})' -o /dev/null"
            command = (
                f"{python} -m spyre_mlir.tools.spyre_opt {{}} {load} {flags} 2>&1 | grep -q 'planted {kind}'"
            )
        else:
            flags = f"--no-cache --passes 'device-ops=plant-fault{{kind={kind}}}' --check"
            out = shlex.quote(f"{folder}/out")
            command = (
                f"{python} -m spyre_mlir.tools.spyre_compile {{}} -o {out} {load} {flags} | grep -q FAIL"
            )
        report = io.StringIO()
        with contextlib.redirect_stderr(report):
            argv = [str(source), "--check", command, "-o", str(result)]
            time = seconds(lambda: spyre_reduce.main(argv))
        found = re.search(r"-> (\d+) operation", report.getvalue())
        assert found is not None, report.getvalue()
        return int(found[1]), time


def random_module(seed: int, operations: int) -> str:
    """Return a program of random operations on matrices of fp16, whose values stay in range."""
    generator = random.Random(seed)
    lines, matrices, rows = [], ["%x", "%y"], []

    def generic(name: str, operands: list[str], result: str, body: str) -> str:
        maps = [_FIRST if operand in rows else _SAME for operand in operands] + [
            _FIRST if result == _ROW else _SAME
        ]
        kinds = '"parallel", "reduction"' if result == _ROW else '"parallel", "parallel"'
        types = ", ".join(_ROW if operand in rows else _TENSOR for operand in operands)
        arguments = ", ".join(f"%a{index}: f16" for index in range(len(operands)))
        init = "%zero" if result == _ROW else "%empty"
        return (
            f"    %{name} = linalg.generic {{indexing_maps = [{', '.join(maps)}], iterator_types = [{kinds}]}} "
            f"ins({', '.join(operands)} : {types}) outs({init} : {result}) {{\n"
            f"    ^bb0({arguments}, %out: f16):\n      {body}\n      linalg.yield %v : f16\n    }} -> {result}"
        )

    for index in range(operations):
        name, choice = f"v{index}", generator.random()
        one, other = (generator.choice(matrices[-8:]) for _ in range(2))
        if choice < 0.1:
            lines.append(generic(name, [one], _ROW, "%v = arith.maximumf %a0, %out : f16"))
            rows.append(f"%{name}")
            continue
        if choice < 0.15:
            # Of a difference of bounded values, so that the number stays in range.
            bounded = "%m = arith.minimumf %a0, %one : f16\n      %v = math.exp %m : f16"
            lines.append(generic(name, [one], _TENSOR, bounded))
        else:
            operation = generator.choice(("addf", "subf", "maximumf", "mulf"))
            operands = [one, generator.choice(rows[-3:]) if rows and generator.random() < 0.2 else other]
            body = f"%w = arith.{operation} %a0, %a1 : f16\n      %v = arith.mulf %w, %part : f16"
            body = (
                body
                if operation == "addf" or operation == "subf"
                else body.split("\n")[0].replace("%w", "%v")
            )
            if operation == "mulf":
                body = "%w = arith.minimumf %a0, %one : f16\n      %v = arith.mulf %w, %a1 : f16"
            lines.append(generic(name, operands, _TENSOR, body))
        matrices.append(f"%{name}")
    last = [*matrices[10:-1:10], matrices[-1]]
    returned = ", ".join([_TENSOR] * len(last))
    return "\n".join(
        [
            f"func.func @main(%x: {_TENSOR}, %y: {_TENSOR}) -> ({returned}) {{",
            "    %part = arith.constant 0.75 : f16",
            "    %one = arith.constant 1.0 : f16",
            "    %low = arith.constant 0xFC00 : f16",
            f"    %empty = tensor.empty() : {_TENSOR}",
            f"    %row = tensor.empty() : {_ROW}",
            f"    %zero = linalg.fill ins(%low : f16) outs(%row : {_ROW}) -> {_ROW}",
            *lines,
            f"    return {', '.join(last)} : {returned}",
            "}",
            "",
        ]
    )
