# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Check that PyTorch's functional form of in-place operations computes the same numbers as the model.

PyTorch inverts views that are written through, and not all inverses are right. The views in ``_PROVEN`` are tested. If
a written tensor is seen through another view, model and functional form are run on the example inputs and compared.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any, cast

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor, unset_fake_temporarily
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind
from torch.fx import Interpreter, Node
from torch.utils import _pytree as pytree

from spyre_mlir.frontend.composites import decomposing_again
from spyre_mlir.frontend.content_reads import note_read_of_inputs
from spyre_mlir.frontend.graph_edits import schema_name
from spyre_mlir.frontend.outputs import UPDATES
from spyre_mlir.frontend.refusals import refusal_at
from spyre_mlir.frontend.storage import EXACT_VIEWS, storages_of, written_by, written_storages

#: Views with correct results: their inverse is exact, or ``address_storages`` writes through them.
_PROVEN = EXACT_VIEWS | {"broadcast_to", "expand", "expand_as", "unfold"}


def check_functional_form(program: ExportedProgram) -> None:
    """Raise ``CompileError`` if a write through a view gives other numbers in the functional form.

    The check costs two runs of the model in PyTorch. It runs only for models that write through an unproven view, and
    only if the parameters have data.
    """
    unproven = _unproven(program)
    if unproven is None:
        return
    note_read_of_inputs()
    operands = _operands(program)
    if any(isinstance(leaf, FakeTensor) or leaf.is_meta for leaf in operands if isinstance(leaf, Tensor)):
        return
    with unset_fake_temporarily(), torch.random.fork_rng([]):
        # The generator is forked, because a check must not consume the user's random numbers.
        expected = _run(program, operands)
    with decomposing_again():
        functional = program.run_decompositions({})
    with unset_fake_temporarily(), torch.random.fork_rng([]):
        values = _run(functional, operands)
    if not all(map(_equal, expected, values)) or len(expected) != len(values):
        raise refusal_at(
            unproven,
            "The model writes in place to what this gives, and PyTorch's functional form of that has other numbers; "
            "write without it, for example to a slice.",
        )


def _unproven(program: ExportedProgram) -> Node | None:
    """First unproven operation that shares a written storage; None if there is none."""
    written = written_storages(program.graph)
    known: set[int] = set()
    for node in program.graph.nodes:
        shared = storages_of(node) & written
        is_first = not shared <= known
        known |= shared
        if node.op != "call_function" or is_first or not shared or any(written_by(node)):
            continue
        if node.target is not operator.getitem and schema_name(node) not in _PROVEN:
            return node
    return None


def _operands(program: ExportedProgram) -> list[Any]:
    """Values of the placeholders of an exported program, on the example inputs."""
    leaves = iter(pytree.tree_leaves(program.example_inputs))
    state: Mapping[str, Any] = {**program.constants, **program.state_dict}
    return [
        next(leaves) if spec.kind == InputKind.USER_INPUT else state[cast(str, spec.target)]
        for spec in program.graph_signature.input_specs
    ]


def _run(program: ExportedProgram, operands: list[Any]) -> list[Any]:
    """Results of a program, followed by the program's arguments after the run; ``operands`` are not changed."""
    # Both runs draw the same random numbers.
    torch.manual_seed(0)
    copies = pytree.tree_map_only(Tensor, lambda leaf: leaf.detach().clone(), operands)
    specs = program.graph_signature.output_specs
    named = dict(zip((node.name for node in program.graph.find_nodes(op="placeholder")), copies, strict=True))
    named |= {
        cast(str, spec.target): value
        for spec, value in zip(program.graph_signature.input_specs, copies, strict=True)
        if spec.target is not None
    }
    with torch.no_grad():
        results = Interpreter(program.graph_module).run(*copies)
    for spec, value in zip(specs, results, strict=True):
        # A functional graph returns the new value of each tensor that the model changes in place.
        if spec.kind in UPDATES:
            named[cast(str, spec.target)].copy_(value)
    returned = [
        value for spec, value in zip(specs, results, strict=True) if spec.kind is OutputKind.USER_OUTPUT
    ]
    return [*returned, *copies]


def _equal(one: Any, other: Any) -> bool:
    """Equality of tensors, where NaN equals NaN; values that are not tensors are not compared."""
    if not isinstance(one, Tensor) or not isinstance(other, Tensor):
        return True
    return one.shape == other.shape and torch.allclose(one, other, rtol=0, atol=0, equal_nan=True)
