# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Decomposition of an exported program into core operations, in which equal calls are decomposed once.

The result equals ``ExportedProgram.run_decompositions``, node by node, which traces the program twice. A program that
writes to an argument or to the base of a view needs the latter: only a whole program can be made functional.
"""

from __future__ import annotations

import contextlib
import copy
import operator
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, cast
from unittest import mock

import torch
from torch import Tensor
from torch._C import DispatchKey
from torch._dispatch.python import enable_python_dispatcher
from torch._export.utils import (
    _collect_all_valid_cia_ops_for_aten_namespace,
    _compiling_state_context,
    _is_preservable_cia_op,
    _materialize_cpp_cia_ops,
    _rename_without_collisions,
    _special_op_to_preserve_cia,
)
from torch._functorch._aot_autograd.functional_utils import from_fun, to_fun
from torch._ops import OperatorBase, OpOverload, _OpNamespace
from torch._subclasses.fake_impls import op_implementations_dict as fake_rules
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode, unset_fake_temporarily
from torch._subclasses.functional_tensor import FunctionalTensorMode
from torch.export import ExportedProgram, exported_program
from torch.export._trace import _ignore_backend_decomps
from torch.export._unlift import _register_attrs_to_new_gm
from torch.export.exported_program import _override_composite_implicit_decomp
from torch.export.graph_signature import (
    ExportGraphSignature,
    InputKind,
    OutputKind,
    TensorArgument,
)
from torch.fx import Graph, Interpreter, Node
from torch.fx._lazy_graph_module import _LazyGraphModule
from torch.fx.experimental.proxy_tensor import (
    ProxyTorchDispatchMode,
    PythonKeyTracer,
    get_proxy_slot,
    track_tensor_tree,
)
from torch.fx.node import map_arg
from torch.fx.traceback import NodeSource, NodeSourceAction
from torch.utils import _pytree as pytree

from spyre_mlir.frontend.content_reads import note_read_of_inputs
from spyre_mlir.frontend.graph_edits import argument_key, schema_name, tensor_key
from spyre_mlir.frontend.locations import refusal_at
from spyre_mlir.frontend.meta_tensors import numbers_are_missing
from spyre_mlir.frontend.outputs import UPDATES
from spyre_mlir.frontend.signature import state_of
from spyre_mlir.frontend.storage import EXACT_VIEWS, storages_of, written_by, written_storages
from spyre_mlir.records import dataclass

#: Metadata that a node passes on to the operations that it decomposes into.
_INHERITED = ("stack_trace", "nn_module_stack", "torch_fn", "source_fn_stack", "custom")
#: Arguments and results that are tensors, or known numbers.
_PLAIN_KINDS = {
    InputKind.USER_INPUT, InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR, OutputKind.USER_OUTPUT,
}  # fmt: skip
#: Metadata of a placeholder that a decomposed program keeps.
_KEPT = ("val", "tensor_meta", "custom")


class NeedsWholeProgramError(Exception):
    """Raised for an operation whose decomposition is not a graph of operations on its operands alone."""


class DecomposedCall(NamedTuple):
    """Operations that a call on ``inputs`` decomposes into; ``result`` has a node for each returned tensor.

    Each of the ``steps`` is a node, and the name that copies of the node request.
    """

    inputs: list[Node]
    steps: list[tuple[Node, str]]
    result: Any


class CallDecomposer:
    """Decompositions of the calls of one program, by a table from operations to functions; use it as a context."""

    def __init__(self, table: Mapping[Any, Callable[..., Any]], mode: FakeTensorMode) -> None:
        implicit, explicit = split_forms(table)
        self._table = cast(dict[OpOverload, Callable[..., Any]], explicit)
        self._decomposed: dict[Hashable, DecomposedCall] = {}
        self._contexts = contextlib.ExitStack()
        # The contexts of run_decompositions.
        self._entered = (
            mode, overriding(implicit), _ignore_backend_decomps(),
            _compiling_state_context(), torch.no_grad(), enable_python_dispatcher(),
        )  # fmt: skip

    def __enter__(self) -> CallDecomposer:
        for context in self._entered:
            self._contexts.enter_context(context)
        return self

    def __exit__(self, *error: object) -> None:
        self._contexts.close()

    def decomposed(self, target: OpOverload, args: Any, kwargs: Any) -> tuple[DecomposedCall, list[Node]]:
        """Return the decomposition of a call on nodes that have values, and the nodes that are its inputs.

        Calls are equal if their operation, the metadata of their tensors and their other arguments are equal.
        """
        indices: dict[Node, int] = {}

        def index(node: Node) -> int:
            return indices.setdefault(node, len(indices))

        key = (target, argument_key(args, Node, index), argument_key(kwargs, Node, index))
        values = [node.meta["val"] for node in indices]
        if any(value._has_symbolic_sizes_strides for value in values):
            raise NeedsWholeProgramError
        key = (*key, *map(tensor_key, values))
        if key not in self._decomposed:
            self._decomposed[key] = self._traced(
                target, (args, kwargs), dict(zip(indices, values, strict=True))
            )
        return self._decomposed[key], list(indices)

    def _traced(self, target: OpOverload, call: Any, values: Mapping[Node, Tensor]) -> DecomposedCall:
        """Trace the decomposition of a call on nodes that have these values, as ``run_decompositions`` does.

        Functionalization is above the decompositions, and these are above fake tensors.
        """
        tracer = PythonKeyTracer()
        tracer.root, tracer.graph, tracer.tensor_attrs = torch.nn.Module(), Graph(), {}
        operands = [value.detach().requires_grad_(value.requires_grad) for value in values.values()]
        for index, operand in enumerate(operands):
            proxy = tracer.create_proxy("placeholder", f"operand_{index}", (), {})
            track_tensor_tree(operand, proxy, constant=None, tracer=tracer)
        guard = torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(torch._C.DispatchKey.Functionalize))
        with (
            ProxyTorchDispatchMode(tracer, "real", decomposition_table=self._table),
            FunctionalTensorMode(pre_dispatch=False, _allow_token_discovery=True),
            guard,
        ):
            functional = dict(zip(values, map(to_fun, operands), strict=True))
            args, kwargs = pytree.tree_map_only(Node, functional.__getitem__, call)
            # A decomposed operand may have other strides than the captured tensor, of which the model takes a view.
            is_view = target is torch.ops.aten.view.default
            function = torch.ops.aten.reshape.default if is_view else target
            returned = pytree.tree_map(from_fun, function(*args, **kwargs))

        def node(tensor: Tensor) -> Node:
            slot = get_proxy_slot(tensor, tracer, None)
            # A constant, which PyTorch makes an argument of the program.
            if slot is None:
                raise NeedsWholeProgramError
            return slot.proxy.node

        nodes = list(tracer.graph.nodes)
        inputs, steps = nodes[: len(operands)], []
        for step in nodes[len(operands) :]:
            if step.op != "call_function":
                raise NeedsWholeProgramError
            called = (
                step.target.overloadpacket.__name__ if isinstance(step.target, OpOverload) else step.target
            )
            steps.append((step, tracer.graph._target_to_str(called)))
        return DecomposedCall(inputs, steps, pytree.tree_map_only(Tensor, node, returned))


def decomposed(program: ExportedProgram, table: Mapping[Any, Callable[..., Any]]) -> ExportedProgram:
    """Decompose a program by a table from operations to functions, as ``run_decompositions`` does."""
    values = (leaf for node in program.graph.nodes for leaf in pytree.tree_leaves(node.meta.get("val")))
    mode = next((value.fake_mode for value in values if isinstance(value, FakeTensor)), None)
    signature = program.graph_signature
    kinds = {spec.kind for spec in (*signature.output_specs, *signature.input_specs)}
    is_plain = kinds <= _PLAIN_KINDS and signature.backward_signature is None
    if mode is not None and is_plain and _is_functional(program.graph):
        try:
            return _Decomposition(program, CallDecomposer(table, mode)).run()
        # The operation needs its own constants, which PyTorch makes arguments of the program.
        except NeedsWholeProgramError:
            pass
    with decomposing_again():
        return program.run_decompositions(dict(table))


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
        # ``detach_`` does not write.
        may_write = isinstance(node.target, OpOverload) and node.target is not torch.ops.aten.detach_.default
        may_write = may_write and (node.target._schema.is_mutable or any(written_by(node)))
        if may_write and not _is_written_whole(node):
            return False
        for storage in storages_of(node) & written:
            allocator = first.setdefault(storage, node)
            # If a view is the first node with its storage, ``address_storages`` has removed the allocation.
            returns = allocator.target._schema.returns if isinstance(allocator.target, OpOverload) else ()
            if not returns or any(result.alias_info is not None for result in returns):
                return False
            is_part = node.target is operator.getitem and node.args[0] is allocator
            if not (node is allocator or is_part or may_write):
                return False
    return True


def _computes_tensors(node: Node) -> bool:
    """Return whether a node is an operation, or a part of its result, that returns only tensors."""
    if not isinstance(node.target, OpOverload) and node.target is not operator.getitem:
        return False
    return all(
        leaf is None or (type(leaf) is FakeTensor and leaf.layout == torch.strided)
        for leaf in pytree.tree_leaves(node.meta.get("val"))
    )


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
        program = self.program
        placeholders = {node.name: node for node in program.graph.find_nodes(op="placeholder")}
        # Inputs are in the order of ``run_decompositions``: parameters, buffers, constants by module, then arguments.
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
        specs = [*(state[name] for name in (*parameters, *buffers)), *arguments]
        for index, spec in enumerate(specs):
            node = placeholders[spec.arg.name]
            new = self.values[node] = self.graph.placeholder(f"arg{index}_1")
            new.meta = {key: node.meta[key] for key in _KEPT if key in node.meta}
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
        # Give placeholders the names of their arguments, and rename operations that have such a name.
        graph = self.graph
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
        outputs = [
            replace(spec, arg=TensorArgument(value.name)) if isinstance(value, Node) else spec
            for spec, value in zip(
                program.graph_signature.output_specs, cast(Sequence, new_output.args[0]), strict=True
            )
        ]
        result = copy.copy(program)
        # The constructor would write Python code for the graph and check properties that hold by construction.
        result._graph_module = _LazyGraphModule({}, self.graph)
        result._graph_signature = ExportGraphSignature(specs, outputs)
        return result

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
        copies = dict(zip(call.inputs, operands, strict=True))
        inherited = {key: node.meta[key] for key in _INHERITED if key in node.meta}
        source = NodeSource(node, "decomposed", NodeSourceAction.CREATE)
        for step, name in call.steps:
            args, kwargs = map_arg((step.args, step.kwargs), copies.__getitem__)
            copies[step] = new = self.graph.create_node("call_function", step.target, args, kwargs, name)
            new.meta = {**step.meta, **inherited, "from_node": [source]}
        return pytree.tree_map_only(Node, copies.__getitem__, call.result)


# Composite operations while a program is decomposed: their forms, registered as by ``run_decompositions``.
#
# For each program PyTorch lists its 500 composite operations and builds the kernels that replace them again. For a
# small program this takes longer than the rest of the import. The list and the kernels depend only on the registered
# operations, so the list and the kernels of the previous program are used unless a registration has changed.


#: Forms, keyed by operation.
Forms = dict[OperatorBase, Callable[..., Any]]


@dataclass(frozen=True)
class _Override:
    """Kernels that replace the original kernels of an operation, and its rule for fake tensors if it had none."""

    original: Mapping[Any, Any]
    kernels: Mapping[Any, Any]
    fake_rule: Callable[..., Any] | None

    def is_of(self, operation: OperatorBase) -> bool:
        """Return whether nothing has been registered for the operation since."""
        has_rule = operation in fake_rules or self.fake_rule is not None
        return has_rule and self.original == operation.py_kernels

    def enter(self, operation: OperatorBase, form: Callable[..., Any]) -> None:
        """Replace the original kernels; ``form`` becomes the composition."""
        operation.py_kernels.update(self.kernels)
        operation.py_kernels[DispatchKey.CompositeImplicitAutograd] = form
        operation._dispatch_cache.clear()
        fake_rules.setdefault(operation, self.fake_rule)

    def leave(self, operation: OperatorBase) -> None:
        """Restore the original kernels, and remove the rule."""
        operation.py_kernels.clear()
        operation.py_kernels.update(self.original)
        operation._dispatch_cache.clear()
        fake_rules.pop(operation)


#: Overrides of the operations of earlier programs.
_overrides: dict[OperatorBase, _Override] = {}

#: Compositions that were registered in C++ when ``torch.ops`` was last filled.
_registered: list[str] = []


def split_forms(table: Mapping[OperatorBase, Callable[..., Any]]) -> tuple[Forms, Forms]:
    """Forms of all composite operations, preserved where the table has no form, and forms of other operations."""
    # Composite operations that do not write to an operand or return a view.
    registered = torch._C._dispatch_get_registrations_for_dispatch_key("CompositeImplicitAutograd")
    if registered != _registered:
        _materialize_cpp_cia_ops()
        _registered[:] = registered
    # The operations of aten are fixed; other namespaces may register an operation at any time, also in Python.
    composites = set(_collect_all_valid_cia_ops_for_aten_namespace())
    for name in torch.ops._dir:
        namespace = getattr(torch.ops, name)
        if name != "aten" and isinstance(namespace, _OpNamespace):
            packets = (getattr(namespace, packet) for packet in namespace)
            overloads = (overload for packet in packets for overload in packet.op_overloads())
            composites.update(filter(_is_preservable_cia_op, overloads))
    implicit = {operation: table.get(operation, _special_op_to_preserve_cia) for operation in composites}
    return implicit, {operation: form for operation, form in table.items() if operation not in composites}


@contextlib.contextmanager
def overriding(forms: Forms) -> Iterator[None]:
    """Context in which composite operations have these forms, and fake tensors see the original operations."""
    rules = {operation: fake_rules[operation] for operation in forms if operation in fake_rules}
    known = {op: override for op in forms if (override := _overrides.get(op)) and override.is_of(op)}
    new = {operation: form for operation, form in forms.items() if operation not in known}
    originals = {operation: dict(operation.py_kernels) for operation in new}
    with contextlib.ExitStack() as contexts:
        # On exit rules are removed, also the rules that operations had before.
        contexts.callback(fake_rules.update, rules)
        contexts.enter_context(_override_composite_implicit_decomp(new))
        for operation, original in originals.items():
            rule = None if operation in rules else fake_rules[operation]
            _overrides[operation] = _Override(original, dict(operation.py_kernels), rule)
        for operation, override in known.items():
            contexts.callback(override.leave, operation)
            override.enter(operation, forms[operation])
        yield


@contextlib.contextmanager
def decomposing_again() -> Iterator[None]:
    """Context in which ``run_decompositions`` uses the compositions and the kernels of this module."""
    with mock.patch.multiple(
        exported_program,
        _override_composite_implicit_decomp=overriding,
        _split_decomp_table_to_cia_and_python_decomp=split_forms,
    ):
        yield


# Check that PyTorch's functional form of in-place operations computes the same numbers as the model.
#
# PyTorch inverts views that are written through, and not all inverses are right. The views in ``_PROVEN`` are tested.
# If a written tensor is seen through another view, model and functional form are run on the example inputs and
# compared.


#: Views with correct results: their inverse is exact, or ``address_storages`` writes through them.
_PROVEN = EXACT_VIEWS | {"broadcast_to", "expand", "expand_as", "unfold"}


def check_functional_form(program: ExportedProgram) -> None:
    """Raise ``CompileError`` if a write through a view gives other numbers in the functional form.

    The check costs two runs of the model in PyTorch. It runs only for models that write through an unproven view, and
    only if the parameters have data.
    """
    unproven = _unproven_view(program)
    if unproven is None or numbers_are_missing.get():
        return
    note_read_of_inputs()
    leaves = iter(pytree.tree_leaves(program.example_inputs))
    state = state_of(program)
    operands = [
        next(leaves) if spec.kind == InputKind.USER_INPUT else state[cast(str, spec.target)]
        for spec in program.graph_signature.input_specs
    ]
    if any(isinstance(leaf, FakeTensor) or leaf.is_meta for leaf in operands if isinstance(leaf, Tensor)):
        return
    expected = _results_of(program, operands)
    with decomposing_again():
        functional = program.run_decompositions({})
    values = _results_of(functional, operands)
    # NaN equals NaN, and only tensors are compared.
    is_equal = len(expected) == len(values) and all(
        one.shape == other.shape and torch.allclose(one, other, rtol=0, atol=0, equal_nan=True)
        for one, other in zip(expected, values, strict=True)
        if isinstance(one, Tensor) and isinstance(other, Tensor)
    )
    if not is_equal:
        raise refusal_at(
            unproven,
            "The model writes in place to the result of this view, for which PyTorch's functional form computes other "
            "numbers; write to another view, for example to a slice.",
        )


def _unproven_view(program: ExportedProgram) -> Node | None:
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


def _results_of(program: ExportedProgram, operands: list[Any]) -> list[Any]:
    """Results of a program, followed by the program's arguments after the run; ``operands`` are not changed."""
    specs = program.graph_signature.output_specs
    # The generator is forked, because a check must not consume the user's random numbers.
    with unset_fake_temporarily(), torch.random.fork_rng([]), torch.no_grad():
        # Both runs draw the same random numbers.
        torch.manual_seed(0)
        copies = pytree.tree_map_only(Tensor, lambda leaf: leaf.detach().clone(), operands)
        names = (node.name for node in program.graph.find_nodes(op="placeholder"))
        named = dict(zip(names, copies, strict=True))
        named |= {
            cast(str, spec.target): value
            for spec, value in zip(program.graph_signature.input_specs, copies, strict=True)
            if spec.target is not None
        }
        results = Interpreter(program.graph_module).run(*copies)
        for spec, value in zip(specs, results, strict=True):
            # A functional graph returns the new value of each tensor that the model changes in place.
            if spec.kind in UPDATES:
                named[cast(str, spec.target)].copy_(value)
    returned = [
        value for spec, value in zip(specs, results, strict=True) if spec.kind is OutputKind.USER_OUTPUT
    ]
    return [*returned, *copies]
