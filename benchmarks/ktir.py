"""Programs of the tests in KTIR on the public interpreter: how many run, are right, and why the others are not."""

from __future__ import annotations

import importlib.util
import time
from collections import Counter
from typing import Any

from benchmarks.programs import programs
from benchmarks.registry import Metrics, Noted, benchmark

CORES = 7


@benchmark(tensors_not_right=9, addresses_not_right=34, emission_of_12_layers_seconds=1)
def ktir() -> Metrics:
    """KTIR: programs that the public interpreter runs with right numbers, of all of the tests, in both modes."""
    metrics: dict[str, float] = {"emission_of_12_layers_seconds": _emission_seconds()}
    if importlib.util.find_spec("ktir_cpu") is None:
        return Noted(metrics, ["The public interpreter is not on PYTHONPATH, so nothing was run."])
    reasons: Counter[str] = Counter()
    for mode in ("tensors", "addresses"):
        outcomes = Counter(_outcome(name, mode == "addresses", reasons) for name in programs())
        metrics |= {f"{mode}_programs": sum(outcomes.values()), f"{mode}_right": outcomes["right"]}
        metrics |= {f"{mode}_{what}": outcomes[what] for what in ("wrong", "refused")}
        metrics[f"{mode}_not_right"] = outcomes["wrong"] + outcomes["refused"]
    return Noted(metrics, [f"{count} x {reason}" for reason, count in sorted(reasons.items())])


def _outcome(name: str, addresses: bool, reasons: Counter[str]) -> str:
    """Run a program; what became of it."""
    from programs import check_close  # pyright: ignore[reportAttributeAccessIssue]

    from spyre_mlir import CompileError, compile
    from spyre_mlir.dialects import context
    from spyre_mlir.frontend import import_torch

    model, inputs = programs()[name]()
    imported = import_torch(model, inputs, context=context())
    operands = zip(imported.arguments, imported.operands(*inputs), strict=True)
    try:
        program = compile(imported.module, target="ktir", sencores=CORES, ktir_addresses=addresses)
        results = program.run({**program.arrays, **{argument.name: array for argument, array in operands}})
        check_close(name, imported.bind(*inputs).finish(results), model, inputs)
    except CompileError as error:
        reasons[error.message] += 1
        return "refused"
    except AssertionError as error:
        reasons[str(error)] += 1
        return "wrong"
    return "right"


def _emission_seconds() -> float:
    """Return the CPU seconds of the text of twelve layers, from their plan on."""
    import torch

    programs()  # its module becomes importable
    from programs import LlamaBlock  # pyright: ignore[reportAttributeAccessIssue]

    import spyre_mlir
    from spyre_mlir.driver.ktir_program import KtirProgram

    layers: Any = torch.nn.Sequential(*(LlamaBlock(2048, 512, 32, 8, 8192) for _ in range(12))).half().eval()
    program = spyre_mlir.compile(layers, (torch.randn(1, 512, 2048).half(),))
    begun = time.process_time()
    KtirProgram.of(program)
    return time.process_time() - begun
