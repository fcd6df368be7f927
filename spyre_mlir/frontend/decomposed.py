# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Decomposition of an exported program into core operations, in which equal calls are decomposed once.

The result equals ``ExportedProgram.run_decompositions``, node by node, which traces the program twice. A program that
writes to an argument or to the base of a view needs the latter: only a whole program can be made functional.
"""

from __future__ import annotations

import copy
import operator
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import torch
from torch import Tensor
from torch._export.utils import _rename_without_collisions
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensor
from torch.export import ExportedProgram
from torch.export._unlift import _register_attrs_to_new_gm
from torch.export.graph_signature import (
    ExportGraphSignature,
    InputKind,
    InputSpec,
    OutputKind,
    OutputSpec,
    TensorArgument,
)
from torch.fx import Graph, Node
from torch.fx._lazy_graph_module import _LazyGraphModule
from torch.fx.node import map_arg
from torch.fx.traceback import NodeSource, NodeSourceAction
from torch.utils import _pytree as pytree

from spyre_mlir.frontend.composites import decomposing_again
from spyre_mlir.frontend.decomposed_calls import CallDecomposer, DecomposedCall, NeedsWholeProgramError
from spyre_mlir.frontend.storage import storages_of, written_by, written_storages

#: Metadata that a node passes on to the operations that it decomposes into.
_INHERITED = ("stack_trace", "nn_module_stack", "torch_fn", "source_fn_stack", "custom")
#: Arguments and results that are tensors, or known numbers.
_PLAIN_KINDS = {
    InputKind.USER_INPUT, InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR, OutputKind.USER_OUTPUT,
}  # fmt: skip
#: Metadata of a placeholder that a decomposed program keeps.
_KEPT = ("val", "tensor_meta", "custom")


def decomposed(program: ExportedProgram, table: Mapping[Any, Callable[..., Any]]) -> ExportedProgram:
    """Decompose a program by a table from operations to functions, as ``run_decompositions`` does."""
    mode = next((value.fake_mode for node in program.graph.nodes for value in _tensors(node)), None)
    if mode is not None and _has_plain_signature(program.graph_signature) and _is_functional(program.graph):
        try:
            return _Decomposition(program, CallDecomposer(table, mode)).run()
        # The operation needs its own constants, which PyTorch makes arguments of the program.
        except NeedsWholeProgramError:
            pass
    with decomposing_again():
        return program.run_decompositions(dict(table))


def _tensors(node: Node) -> Iterator[FakeTensor]:
    """Fake tensors that a node returns."""
    return (leaf for leaf in pytree.tree_leaves(node.meta.get("val")) if isinstance(leaf, FakeTensor))


def _has_plain_signature(signature: ExportGraphSignature) -> bool:
    """Return whether a program takes only tensors, changes none of them, and is not a gradient."""
    kinds = {spec.kind for spec in signature.output_specs} | {spec.kind for spec in signature.input_specs}
    return kinds <= _PLAIN_KINDS and signature.backward_signature is None


def _is_functional(graph: Graph) -> bool:
    """Return whether each operation computes tensors from tensors, and none writes to a shared storage.

    An operation may overwrite the whole result of another operation, as ``relu_`` does.
    """
    written = written_storages(graph)
    first: dict[int, Node] = {}
    for node in graph.nodes:
        if node.op not in ("placeholder", "call_function", "output"):
            return False
        if node.op == "call_function" and not _computes_tensors(node):
            return False
        is_written_whole = _is_in_place(node) and _is_written_whole(node)
        if _is_in_place(node) and not is_written_whole:
            return False
        for storage in storages_of(node) & written:
            allocator = first.setdefault(storage, node)
            is_part = node.target is operator.getitem and node.args[0] is allocator
            if not _allocates(allocator) or not (node is allocator or is_part or is_written_whole):
                return False
    return True


def _allocates(node: Node) -> bool:
    """Return whether a node is an operation whose results are not views.

    If a view is the first node with its storage, ``address_storages`` has removed the operation that made the storage.
    """
    returns = node.target._schema.returns if isinstance(node.target, OpOverload) else ()
    return bool(returns) and all(result.alias_info is None for result in returns)


def _computes_tensors(node: Node) -> bool:
    """Return whether a node is an operation, or a part of its result, that returns only tensors."""
    if not isinstance(node.target, OpOverload) and node.target is not operator.getitem:
        return False
    return all(
        leaf is None or (type(leaf) is FakeTensor and leaf.layout == torch.strided)
        for leaf in pytree.tree_leaves(node.meta.get("val"))
    )


def _is_in_place(node: Node) -> bool:
    """Return whether a node is an operation that may write to its operands; ``detach_`` does not write."""
    if not isinstance(node.target, OpOverload) or node.target is torch.ops.aten.detach_.default:
        return False
    return node.target._schema.is_mutable or any(written_by(node))


def _is_written_whole(node: Node) -> bool:
    """Return whether an in-place operation returns the tensor that it writes, and writes no other tensor."""
    written = list(written_by(node))
    return (
        len(written) == 1
        and written[0] is node.args[0]
        and torch.Tag.inplace_view not in cast(OpOverload, node.target).tags
        and bool(storages_of(node))
        and storages_of(node) == storages_of(written[0])
        and written[0].meta["val"].shape == node.meta["val"].shape
    )


class _Decomposition:
    """Graph of a decomposed program; operations are added in the order of the program."""

    def __init__(self, program: ExportedProgram, decomposer: CallDecomposer) -> None:
        self.program = program
        self.decomposer = decomposer
        self.graph = Graph()
        #: New node for each node of the program; a structure of nodes if a node returns several tensors.
        self.values: dict[Node, Any] = {}
        #: Last value of each written storage, and the storage of each node of the program whose storage is written.
        self.latest: dict[int, Node] = {}
        self.storages: dict[Node, int] = {}

    def run(self) -> ExportedProgram:
        """Return the decomposed program; ``NeedsWholeProgramError`` if an operation needs more than its operands."""
        program, signature = self.program, self.program.graph_signature
        placeholders = {node.name: node for node in program.graph.find_nodes(op="placeholder")}
        specs = _input_specs(program)
        for index, spec in enumerate(specs):
            self._add_placeholder(placeholders[spec.arg.name], f"arg{index}_1")
        written = written_storages(program.graph)
        with self.decomposer:
            for node in program.graph.nodes:
                if node.op == "call_function":
                    self.values[node] = self._added(node)
                    self._note_writes(node, written)
        output = program.graph.output_node()
        new_output = self.graph.output(map_arg(output.args[0], self._value))
        new_output.meta.update(output.meta)
        self.graph.eliminate_dead_code()
        _rename(self.graph, specs)
        outputs = _output_specs(signature, cast(Sequence, new_output.args[0]))
        result = copy.copy(program)
        # The constructor would write Python code for the graph and check properties that hold by construction.
        result._graph_module = _LazyGraphModule({}, self.graph)
        result._graph_signature = ExportGraphSignature(specs, outputs)
        return result

    def _add_placeholder(self, node: Node, name: str) -> None:
        placeholder = self.graph.placeholder(name)
        placeholder.meta = {key: node.meta[key] for key in _KEPT if key in node.meta}
        self.values[node] = placeholder

    def _value(self, node: Node) -> Any:
        """Return the value of a node at this point: for a written tensor, the last value."""
        return self.latest[self.storages[node]] if node in self.storages else self.values[node]

    def _note_writes(self, node: Node, written: set[int]) -> None:
        """Record the value of a node, in place or not, as the last value of the written storages that it has."""
        if isinstance(node.meta.get("val"), Tensor):
            for storage in storages_of(node) & written:
                self.storages[node] = storage
                # A part of a result may be extracted after the part is written.
                if node.target is not operator.getitem or storage not in self.latest:
                    self.latest[storage] = self.values[node]

    def _added(self, node: Node) -> Any:
        """Add the operations that a node decomposes into, and return its value."""
        if node.target is operator.getitem:
            source, index = node.args
            return self.values[cast(Node, source)][index]
        args, kwargs = map_arg((node.args, node.kwargs), self._value)
        call, operands = self.decomposer.decomposed(cast(OpOverload, node.target), args, kwargs)
        copies = self._copied(call, operands, node)
        return pytree.tree_map_only(Node, copies.__getitem__, call.result)

    def _copied(self, call: DecomposedCall, operands: Sequence[Node], node: Node) -> dict[Node, Node]:
        """Copy the nodes of a decomposed call into the graph; ``node`` of the program is their source."""
        copies = dict(zip(call.inputs, operands, strict=True))
        inherited = {key: node.meta[key] for key in _INHERITED if key in node.meta}
        source = NodeSource(node, "decomposed", NodeSourceAction.CREATE)
        for step in call.steps:
            args, kwargs = map_arg((step.node.args, step.node.kwargs), copies.__getitem__)
            new = self.graph.create_node("call_function", step.node.target, args, kwargs, step.name)
            new.meta = {**step.node.meta, **inherited, "from_node": [source]}
            copies[step.node] = new
        return copies


def _input_specs(program: ExportedProgram) -> list[InputSpec]:
    """Inputs in the order of ``run_decompositions``: parameters, buffers and constants by module, then arguments."""
    signature, module = program.graph_signature, _LazyGraphModule({}, Graph())
    _register_attrs_to_new_gm(module, signature, program.state_dict, program.constants)
    state = {spec.target: spec for spec in signature.input_specs if spec.kind != InputKind.USER_INPUT}
    for name in signature.lifted_tensor_constants:
        path, _, attribute = name.rpartition(".")
        owner = module.get_submodule(path)
        constant = getattr(owner, attribute)
        delattr(owner, attribute)
        owner.register_buffer(attribute, constant)
    parameters = (name for name, _ in module.named_parameters(remove_duplicate=False))
    buffers = (name for name, _ in module.named_buffers(remove_duplicate=False))
    arguments = (spec for spec in signature.input_specs if spec.kind == InputKind.USER_INPUT)
    return [*(state[name] for name in (*parameters, *buffers)), *arguments]


def _output_specs(signature: ExportGraphSignature, values: Sequence[Any]) -> list[OutputSpec]:
    """Output specs of the program for the new output values."""
    return [
        replace(spec, arg=TensorArgument(value.name)) if isinstance(value, Node) else spec
        for spec, value in zip(signature.output_specs, values, strict=True)
    ]


def _rename(graph: Graph, specs: Sequence[InputSpec]) -> None:
    """Give placeholders the names of their arguments, and rename operations that have such a name."""
    names: dict[str, str] = {}
    counts: dict[str, int] = defaultdict(int)
    used: set[str] = set()
    placeholders = list(zip(graph.find_nodes(op="placeholder"), specs, strict=True))
    # Inputs first, because the user knows their names.
    for node, spec in sorted(placeholders, key=lambda pair: pair[1].kind != InputKind.USER_INPUT):
        node.target = _rename_without_collisions(names, counts, used, node.name, spec.arg.name, True)
    for node in graph.nodes:
        if node.op != "placeholder":
            _rename_without_collisions(names, counts, used, node.name, node.name)
    for node in graph.nodes:
        node.name = names[node.name]
