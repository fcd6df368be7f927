# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Options of the caller that cost time: each option is tried with its default."""

from __future__ import annotations

from collections.abc import Iterator

from spyre_mlir.findings.planned import PlannedProgram
from spyre_mlir.findings.remedy import Remedy

#: Options of ``compile`` that define the program or the part of the device that it may use; they are not tried.
_MEANING = frozenset({
    "device", "sencores", "lx_frac_avail", "numerics", "layouts", "plan", "fallback", "autocast", "cache", "insert",
    "passes", "use_plan", "save_plan", "from_level", "verify_each", "reuse", "dynamic",
})  # fmt: skip


def costly_options(program: PlannedProgram) -> Iterator[Remedy]:
    """Yield the default of each option that the caller set to another value."""
    for name, value in program.options.items():
        if name in _MEANING or value is None:
            continue
        yield Remedy(
            f"option {name}",
            f"The option {name}={value!r} makes the program slower than its default does.",
            "It was given to compile.",
            f"leave out {name}={value!r}",
            program.ns,
            {name: None},
        )
