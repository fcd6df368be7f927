# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``torch_spyre._inductor.passes``: the restickifies of a program, as torch-spyre's plan has them.

A program that replaces ``finalize_layouts`` by a function of its own finds the restickifies of each compiled program in
``V.graph.restickify_plan`` of Inductor: the operations by name, each with the sizes of the tensor that it writes.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from torch._inductor.virtualized import V

from spyre_mlir.frontend.torch_programs import torch_backend


def finalize_layouts(graph: Any) -> None:
    """Do nothing: the layouts of a compiled program are final."""


def _report(program: Any) -> None:
    plan = {
        f"{number}/{name}": [{"target_layout": SimpleNamespace(size=list(design.sizes.values()))}]
        for number, step in enumerate(program.bundles)
        for name, design in step.bundle.designs.items()
        if design.opcode.startswith("ReStickify")
    }
    graph = SimpleNamespace(restickify_plan=plan)
    with V.set_graph_handler(cast(Any, graph)):
        finalize_layouts(graph)


torch_backend.on_program = _report
