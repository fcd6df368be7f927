# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Parts of a PyTorch program for spyre-reduce: subgraphs of the graph of torch.export."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import fx

from spyre_mlir.errors import CompileError


class ExportedReduction:
    """Parts of the exported graph of a model, with recorded values as the inputs that replace removed operations."""

    def __init__(self, exported: torch.export.ExportedProgram, inputs: Sequence[Any]) -> None:
        module = exported.module()
        assert isinstance(module, fx.GraphModule)
        self._module, self._values = module, {}

        values = self._values

        class Recorder(fx.Interpreter):
            def run_node(self, n: fx.Node) -> Any:
                values[n] = super().run_node(n)
                return values[n]

        Recorder(module).run(*inputs)
        self.nodes = [
            node for node in module.graph.nodes if node.op.startswith("call_") and self._is_tensor(node)
        ]

    def _is_tensor(self, node: fx.Node) -> bool:
        return isinstance(self._values.get(node), torch.Tensor)

    def part(self, kept: Sequence[fx.Node]) -> torch.export.ExportedProgram:
        """Export the program of some nodes."""
        chosen, removed, needed = set(kept), set(self.nodes) - set(kept), set(kept)
        for node in reversed(list(self._module.graph.nodes)):
            if node in needed and node not in removed:
                needed.update(node.all_input_nodes)
        graph, copies, inputs = fx.Graph(), {}, []
        for node in self._module.graph.nodes:
            if node in needed and (node in removed or node.op == "placeholder"):
                copies[node] = graph.placeholder(f"x{len(inputs)}")
                inputs.append(self._values[node])
            elif node in needed:
                copies[node] = graph.node_copy(node, copies.__getitem__)
        leaving = [node for node in kept if not node.users.keys() <= chosen]
        graph.output(tuple(copies[node] for node in leaving))
        return torch.export.export(fx.GraphModule(self._module, graph), tuple(inputs))


def reduced(
    program: tuple[Any, Sequence[Any]] | str,
    output: str,
    path: Path,
    is_faulty: Callable[[int], bool],
    smallest: Callable[[Sequence[fx.Node], Callable[[Sequence[fx.Node]], bool]], list[fx.Node]],
) -> tuple[int, int, str]:
    """Write the smallest program with the fault to a file; return the operations before and after, and its code.

    Args:
        program: A model with its inputs, or a file of torch.export.save.
        output: The file to write.
        path: The file of the program that ``is_faulty`` checks; the argument is its number of operations.
        is_faulty: The check, which raises for a whole program without the fault.
        smallest: The search.
    """
    if isinstance(program, str):
        exported = torch.export.load(program)
        inputs, named = exported.example_inputs or ((), {})
        if named:
            raise CompileError("The exported program has inputs by name; export it with inputs by position.")
    else:
        model, inputs = program
        exported = torch.export.export(model, tuple(inputs))
    reduction = ExportedReduction(exported, inputs)

    def is_part_faulty(kept: Sequence[fx.Node]) -> bool:
        torch.export.save(reduction.part(kept), path)
        return is_faulty(len(kept))

    is_part_faulty(reduction.nodes)
    kept = smallest(reduction.nodes, lambda kept: bool(kept) and is_part_faulty(kept))
    smaller = reduction.part(kept)
    torch.export.save(smaller, output)
    return len(reduction.nodes), len(kept), smaller.graph_module.code.strip()
