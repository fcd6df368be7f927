# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Export of a PyTorch model as a checked FX graph: capture, decompose, fold, and name arguments and results."""

from __future__ import annotations

import contextlib
import functools
import inspect
import io
import itertools
import logging
import threading
import warnings
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping
from typing import Any, cast

import torch
from torch import Tensor
from torch._decomp import decomposition_table as pytorch_forms
from torch._export.utils import _get_decomp_for_cia
from torch._ops import OpOverload
from torch.export import ExportedProgram
from torch.export.graph_signature import ConstantArgument, InputKind, TensorArgument
from torch.fx import Graph, GraphModule, Node
from torch.fx._lazy_graph_module import _use_lazy_graph_module
from torch.fx.traceback import preserve_node_meta
from torch.utils import _pytree as pytree

from spyre_mlir.compile_lock import builtins_kept
from spyre_mlir.dialects.sdsc import INDEX_BOUNDS
from spyre_mlir.errors import CompileError, Uncached, UncapturedError, UnsupportedDtypeError, kind_of
from spyre_mlir.frontend import locations, normal_forms
from spyre_mlir.frontend.assertions import (
    check_computed_indices,
    check_known_indices,
    index_bounds,
    recording_texts,
    write_assertions,
    write_texts,
)
from spyre_mlir.frontend.autocast import autocast_dtype, autocasting, write_casts
from spyre_mlir.frontend.call_objects import CallInputs, CallOutcome, Inputs, ModelEffect, as_call, plain_call
from spyre_mlir.frontend.capture_key import captured_key
from spyre_mlir.frontend.complex_numbers import is_complex, split_complex_numbers
from spyre_mlir.frontend.control_flow import CONSTANT_DATA, inline_control_flow, is_inlined
from spyre_mlir.frontend.decomposed import check_functional_form, decomposed
from spyre_mlir.frontend.decompositions import CHECKED_BY_KERNELS, decomposition_table
from spyre_mlir.frontend.experts import dense_experts, grouped_products
from spyre_mlir.frontend.folding import ConstantFolder, cast_parameters, fold_batch_norms
from spyre_mlir.frontend.graph_edits import call_key
from spyre_mlir.frontend.hints import dim_sizes, name_tensor_dims, names_of, resolve_hints
from spyre_mlir.frontend.inference import inferring_once
from spyre_mlir.frontend.object_graphs import (
    ObjectState,
    StateChange,
    container_of,
    contents,
    flatten,
)
from spyre_mlir.frontend.outputs import UPDATES, split_outputs
from spyre_mlir.frontend.random_numbers import UndrawnError, draw_of, draw_outside, is_random, random_forms
from spyre_mlir.frontend.row_writes import write_rows
from spyre_mlir.frontend.sharded_models import functional_collectives, name_ranks
from spyre_mlir.frontend.signature import (
    CONSTANT,
    INPUT,
    MOST_DIMS,
    PARAMETER,
    Argument,
    ResultType,
    Signature,
    to_tensor,
)
from spyre_mlir.frontend.storage import address_storages, own_written_results
from spyre_mlir.frontend.tile_loops import check_loops, check_writes_in_loops, marking_loops
from spyre_mlir.frontend.torch_device import as_device_tensor
from spyre_mlir.records import dataclass
from spyre_mlir.target.element_types import dtype_name
from spyre_mlir.tensors.device_tensor import DeviceTensor

_DTYPES = (
    torch.float16, torch.bfloat16, torch.float32,
    torch.float64, torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float8_e4m3fn,
)  # fmt: skip


_STATE_KINDS = {
    InputKind.PARAMETER: PARAMETER, InputKind.BUFFER: CONSTANT, InputKind.CONSTANT_TENSOR: CONSTANT,
}  # fmt: skip


@dataclass(frozen=True)
class ExportedGraph:
    """An FX graph whose placeholders are the arguments of ``signature`` and whose outputs are its results.

    ``dim_sizes`` contains all declared dims, if the graph has hints or named dims.
    """

    graph_module: GraphModule
    signature: Signature
    dim_sizes: dict[str, int]


class _FunctionModule(torch.nn.Module):
    """A plain Python function as a module; the parameters of the function, if it declares them, name the inputs."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function
        # A builtin such as torch.exp does not have a signature.
        with contextlib.suppress(ValueError):
            inspect.signature(function)
            self.forward = function

    def forward(self, *inputs: Any) -> Any:
        """Call the function; the signature of the function, if it has one, replaces this signature."""
        return self.function(*inputs)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Context that suppresses stdout, stderr and logs of torch; errors are raised as exceptions."""
    disabled = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings(), contextlib.ExitStack() as streams:
            warnings.simplefilter("ignore")
            streams.enter_context(contextlib.redirect_stdout(io.StringIO()))
            streams.enter_context(contextlib.redirect_stderr(io.StringIO()))
            yield
    finally:
        logging.disable(disabled)


def off_the_device(leaf: Any) -> Any:
    """Convert an example input to a PyTorch tensor on the host, with the names of its dims."""
    leaf = as_device_tensor(leaf)
    if not isinstance(leaf, DeviceTensor):
        return leaf
    tensor = to_tensor(leaf.numpy(), getattr(torch, leaf.dtype))
    if names := names_of(leaf):
        name_tensor_dims(tensor, names)
    return tensor


def call_inputs(inputs: Inputs, model: Any = None) -> CallInputs:
    """Example inputs as a graph of objects; messages use the input names of ``model``."""
    names: list[str] = []
    with contextlib.suppress(ValueError, TypeError):
        names += inspect.signature(getattr(model, "forward", model)).parameters
    return CallInputs(*as_call(inputs), names)


# Calls of a model by a tracer: objects of any class as inputs and results, and Python changes during the call.
#
# A tracer accepts pytrees of tensors. ``_ModelTrace`` lets the tracer call the model with inputs built from its
# tensors, and returns the ``CallOutcome`` of the call, which includes changes of the inputs. The model and everything
# that it reaches are restored. A program cannot repeat state changes of the call: the model then runs in pieces.

_REMEDY = "keep it in a buffer, or take it as an input and return it"


def _program(model: Any, inputs: Inputs, dtype: torch.dtype | None = None) -> ExportedProgram:
    """Capture a model under an autocast to ``dtype``; an exported program is returned with its casts written."""
    if isinstance(model, ExportedProgram):
        write_casts(model, None)
        name_ranks(model)
        return model
    if not callable(model):
        weights = isinstance(model, Mapping) and any(
            isinstance(value, torch.Tensor) for value in model.values()
        )
        remedy = "; create the model, and give it these weights with load_state_dict" if weights else ""
        raise CompileError(
            f"A model is an nn.Module, a function or an ExportedProgram, not {kind_of(model)}{remedy}."
        )
    module = model if isinstance(model, torch.nn.Module) else _FunctionModule(model)
    walked = call_inputs(inputs, model)
    call = _separated(pytree.tree_map(off_the_device, walked.call))
    # The graph is not called, so its Python code is not written.
    with inferring_once(), _use_lazy_graph_module(True):
        with autocasting(dtype), recording_texts() as texts:
            program = _export_call(module, walked, call)
        write_texts(program.graph, texts)
        write_casts(program, dtype)
        name_ranks(program)
        return program


def _separated(call: Any) -> Any:
    """Operands of a call, with repeated tensors as separate inputs, which torch.export would otherwise merge."""
    seen: set[int] = set()

    def separate(tensor: Tensor) -> Tensor:
        # Parameters stay shared.
        if id(tensor) not in seen or isinstance(tensor, torch.nn.Parameter):
            seen.add(id(tensor))
            return tensor
        alias = tensor.detach()
        if names := names_of(tensor):
            name_tensor_dims(alias, names)
        return alias

    return pytree.tree_map_only(Tensor, separate, call)


def _export_call(
    module: torch.nn.Module, inputs: CallInputs, call: tuple[tuple[Any, ...], dict[str, Any]]
) -> ExportedProgram:
    """Export a module called with ``inputs``, which torch.export receives as the pytrees ``call``.

    A model that sets something in its first call only, such as a cache, is traced again: it is one program if both
    traces have the same key.
    """
    first, second = _ModelTrace(module, inputs), _ModelTrace(module, inputs)
    program = first.exported(call)
    if first.effect is None:
        return program
    again = second.exported(call, after=first.effect)
    specs = [cast(pytree.TreeSpec, one.call_spec.out_spec) for one in (program, again)]
    is_one_program = second.effect is None and specs[0] == specs[1]
    with contextlib.suppress(Uncached):
        if is_one_program and captured_key(program) == captured_key(again):
            object.__setattr__(specs[0].context, "effect", ModelEffect(first.effect))
            return program
    raise UncapturedError(
        f"The model {first.change} in a call, so the next call computes something else; {_REMEDY}."
    )


class _ModelTrace:
    """One trace: ``change`` describes what the model has changed, and ``effect`` applies the changes again."""

    def __init__(self, module: torch.nn.Module, inputs: CallInputs) -> None:
        self.change = ""
        self.effect: Callable[[], None] | None = None
        self._module, self._inputs = module, inputs
        self._registered = self._names_of_tensors()

    def _names_of_tensors(self) -> dict[int, str]:
        """Names of the parameters and buffers of the module by identity."""
        named = itertools.chain(self._module.named_parameters(), self._module.named_buffers())
        return {id(tensor): name for name, tensor in named}

    def exported(self, call: Any, after: Callable[[], None] | None = None) -> ExportedProgram:
        """Export the module through another ``forward``, in the state that ``after`` sets."""
        # A tracer replaces containers of the model by equal containers.
        untouched = ObjectState([self._module])
        original = self._module.forward
        has_its_own = "forward" in vars(self._module)
        tracer, is_running = threading.get_ident(), False

        @functools.wraps(original)
        def forward(*args: Any, **kwargs: Any) -> Any:
            nonlocal is_running
            # During the trace another thread may call the model, and the model may call itself.
            if threading.get_ident() != tracer or is_running:
                return original(*args, **kwargs)
            is_running = True
            try:
                return self._run(original, args, kwargs, after)
            finally:
                is_running = False

        self._module.forward = forward
        try:
            # The last annotations of one trace must not appear on the first nodes of the next trace.
            with preserve_node_meta():
                with builtins_kept():
                    program = torch.export.export(self._module, *call)
            _forget_notes_on_inputs(program)
            return program
        finally:
            if has_its_own:
                self._module.forward = original
            else:
                del self._module.forward
            untouched.restore()

    def _run(
        self, model: Callable[..., Any], args: Any, kwargs: Any, after: Callable[[], None] | None
    ) -> CallOutcome:
        (args, kwargs), objects, leaves = plain_call((args, kwargs), self._inputs.graph)
        before = {
            index: parts
            for index, value in enumerate(objects)
            if container_of(type(value)) is not tuple and (parts := contents(value)) is not None
        }
        kept = state = ObjectState([self._module, model], registered=False)
        try:
            if after is not None:
                after()
                state = ObjectState([self._module, model], registered=False)
            result = model(*args, **kwargs)
            self._note([change for change in state.changes() if not self._is_mirrored(change)])
        finally:
            kept.restore()
        self._check_inputs(args, kwargs, leaves)
        return CallOutcome.of(result, self._inputs, objects, before, leaves, state.objects)

    def _note(self, changes: list[StateChange]) -> None:
        """Record changes of the model's state; ``UncapturedError`` if the changed state contains tensors."""
        self.effect = None
        if not changes:
            return
        self.change = changes[0].sentence
        if any(isinstance(leaf, Tensor) for change in changes for leaf in flatten([change.now])[1]):
            raise UncapturedError(
                f"The model {self.change} in a call, and one program returns tensors alone; {_REMEDY}."
            )

        def effect() -> None:
            for change in changes:
                change.apply()

        self.effect = effect

    def _is_mirrored(self, change: StateChange) -> bool:
        """Return whether a part holds the same parameters and buffers as before, up to a tracer's replacements.

        A recurrent layer has a list of its parameters, which it renews in a call.
        """
        (before, old), (now, new) = flatten([change.before]), flatten([change.now])
        if before != now or not new:
            return False
        names = self._names_of_tensors()
        pairs = (
            (self._registered.get(id(one)), names.get(id(other))) for one, other in zip(old, new, strict=True)
        )
        return all(one is not None and one == other for one, other in pairs)

    def _check_inputs(self, args: Any, kwargs: Any, leaves: list[Any]) -> None:
        """Raise ``UncapturedError`` if the next call with the same inputs would need another program."""
        after = CallInputs(args, kwargs, list(inspect.signature(self._module.forward).parameters))
        before = self._inputs.graph
        if after.graph == before or after.graph.shape() != before.shape():
            return
        if any(one.shape != other.shape for one, other in zip(leaves, after.leaves, strict=True)):
            return
        path, old, new = before.difference(after.graph) or ("an input", "one value", "another")
        raise UncapturedError(
            f"The model changes '{path}' from {old} to {new} in a call, so the next call is another program; keep "
            "it in a tensor."
        )


def _forget_notes_on_inputs(program: ExportedProgram) -> None:
    """Drop Dynamo's annotation on the inputs of a traced function: Dynamo rejects a different one in a subgraph."""
    for node in program.graph.find_nodes(op="placeholder"):
        node.meta.pop("custom", None)


@contextlib.contextmanager
def _tracing(model: Any) -> Iterator[None]:
    """Context for code that traces a model or its graph; errors of torch become ``CompileError``."""
    try:
        with (
            torch.no_grad(),
            preserve_node_meta(),
            locations.recording_all_frames(),
            dense_experts(),
            functional_collectives(),
            marking_loops(),
            quiet(),
            autocasting(None),
        ):
            yield
    except CompileError as error:
        # A check may know the operation but not the line; the trace then has the last line of the model.
        error.location = error.location or locations.source_of_error(error)
        raise
    # torch.export also raises the errors of the model and of its own passes.
    except Exception as error:
        raise locations.refusal_of_error(error, model) from error


def capture(model: Any, inputs: Inputs, autocast: torch.dtype | str | None = None) -> ExportedProgram:
    """Trace a model as the graph of the operations that it calls; an exported program is returned.

    ``autocast`` is the option of ``compile``; without it the autocast of the caller applies.
    """
    if isinstance(model, ExportedProgram) and autocast is not None:
        raise CompileError(
            "An exported program has the types that it was exported with; give the model itself for 'autocast'."
        )
    if isinstance(model, type):
        raise CompileError(
            f"'{model.__name__}' is a class; give an instance of it, as {model.__name__}() makes it."
        )
    dtype = autocast_dtype(autocast)
    locations.check_inputs(call_inputs(inputs).call)
    with _tracing(model):
        return _program(model, inputs, dtype)


def export(
    model: Any, inputs: Inputs, precision: str = "device", wider: WiderForms | None = None
) -> ExportedProgram:
    """Export a model as a functional graph of core operations. Errors of torch become ``CompileError``."""
    with _tracing(model):
        program = _program(model, inputs)
        # Tracing a graph again carries out the transforms of ``torch.func`` in it, such as vmap.
        targets = (node.target for node in program.graph.nodes if node.op == "call_function")
        if any(getattr(target, "__module__", "") == "torch._functorch.predispatch" for target in targets):
            program = program.run_decompositions({})
        _check_nodes(program)
        _forget_notes_on_inputs(program)
        write_assertions(program.graph_module)
        normal_forms.copy_scattered_rows(program.graph)
        # Before decomposition, when an index still belongs to the operation that the model calls.
        bounds = index_bounds(program.graph)
        check_computed_indices(program.graph)
        # These checks look at in-place writes, which a functional graph does not have.
        check_writes_in_loops(program.graph)
        address_storages(program)
        check_functional_form(program)
        normal_forms.give_scalars_a_dim(program.graph)
        normal_forms.convert_copied_values(program.graph)
        table = decomposition_table(precision) | grouped_products() | random_forms()
        own_written_results(program.graph, table)
        program = decomposed(program, table if wider is None else wider.added_to(table))
        placeholders = program.graph.find_nodes(op="placeholder")
        for node, spec in zip(placeholders, program.graph_signature.input_specs, strict=True):
            # The key is the name, because decomposition has built a new graph.
            node.meta[INDEX_BOUNDS] = bounds.get(node.name)
            # A loop may start to count at a constant.
            if spec.kind == InputKind.CONSTANT_TENSOR:
                node.meta[CONSTANT_DATA] = program.constants[cast(str, spec.target)]
        # Before the checks, so that they also see the operations of the branches.
        inline_control_flow(program.graph_module)
        check_loops(program.graph)
        _check_nodes(program)
        for node in program.graph.nodes:
            if is_random(node) and draw_of(node) is None:
                raise locations.refusal_at(
                    node,
                    "Its random numbers cannot be drawn before a call; draw them outside and give them as an input.",
                    UndrawnError,
                )
        normal_forms.widen_narrow_integers(program.graph)
        write_rows(program)
        normal_forms.compare_with_itself(program.graph)
        normal_forms.count_dims_from_the_front(program.graph)
        normal_forms.count_indices_from_the_front(program.graph)
        return program


def _check_nodes(program: ExportedProgram) -> None:
    """Raise ``CompileError`` for a dynamic shape, types that do not match, or control flow that is not inlined."""
    for node in program.graph.nodes:
        locations.check_operands(node)
        for tensor, described in _described_tensors(node):
            if tensor.ndim > MOST_DIMS:
                message = f"A tensor has at most {MOST_DIMS} dims, and {described} has {tensor.ndim}."
                raise locations.refusal_at(node, message)
            for dim, size in enumerate(tensor.shape):
                if isinstance(size, torch.SymInt):
                    message = (
                        f"The size of dim {dim} of {described} is dynamic; export the model with fixed sizes."
                        if node.op == "placeholder"
                        else f"The size of dim {dim} of {described} depends on values; shapes must be known when "
                        "compiling: compute with a mask, as torch.where does."
                    )
                    raise locations.refusal_at(node, message, UncapturedError)
        if isinstance(node.target, torch._ops.HigherOrderOperator) and not is_inlined(node):
            if node.target.name().startswith("auto_functionalized"):
                message = (
                    f"The operation {node.args[0]} writes to its operands; define it with mutates_args=(), so that it "
                    "returns new tensors."
                )
            else:
                message = f"Control flow by torch's '{node.target}' is not supported."
            raise locations.refusal_at(node, message, UncapturedError)


def _described_tensors(node: Node) -> Iterator[tuple[Tensor, str]]:
    """The tensors that a node returns, with a description for a message."""
    described = f"input '{node.name}'" if node.op == "placeholder" else "the result"
    for leaf in pytree.tree_leaves(node.meta.get("val")):
        if isinstance(leaf, Tensor):
            yield leaf, described


def _arguments(
    program: ExportedProgram, state: Collection[str]
) -> tuple[dict[Node, Argument], dict[int, Any]]:
    """Argument of every placeholder, and the leaves that are not tensors, whose values are fixed in the graph."""
    signature = program.graph_signature
    examples = pytree.tree_leaves(program.example_inputs)
    # Names of inputs in the graph, targets of buffers and parameters.
    changed = {cast(str, spec.target) for spec in signature.output_specs if spec.kind in UPDATES}
    leaves = itertools.count()
    arguments: dict[Node, Argument] = {}
    numbers: dict[int, Any] = {}
    for node, spec in zip(program.graph.find_nodes(op="placeholder"), signature.input_specs, strict=True):
        leaf = next(leaves) if spec.kind == InputKind.USER_INPUT else None
        if leaf is not None and isinstance(spec.arg, ConstantArgument):
            numbers[leaf] = spec.arg.value
        elif leaf is not None and isinstance(spec.arg, TensorArgument):
            example = examples[leaf]
            # Dynamo makes the parameters of a model inputs.
            is_parameter = isinstance(example, torch.nn.Parameter) and node.name not in changed
            kind, data = (PARAMETER, example.detach()) if is_parameter else (INPUT, None)
            arguments[node] = Argument(node.name, kind, data, leaf, names_of(example))
        elif spec.kind in _STATE_KINDS and isinstance(spec.arg, TensorArgument):
            # A parameter, a buffer (also a non-persistent one) or a lifted constant.
            name = cast(str, spec.target)
            kind = INPUT if name in changed or name in state else _STATE_KINDS[spec.kind]
            data = program.state_dict[name] if name in program.state_dict else program.constants[name]
            arguments[node] = Argument(name, kind, cast(Tensor, data), dims=names_of(data))
        else:
            raise locations.refusal_at(
                node, f"The input '{spec.arg.name}' is neither a tensor nor a number; pass it as a tensor."
            )
        if node in arguments and node.meta[INDEX_BOUNDS] is not None:
            arguments[node] = arguments[node]._replace(index_bounds=node.meta[INDEX_BOUNDS])
            check_known_indices(node, arguments[node])
    for node, draw in draw_outside(program.graph).items():
        arguments[node] = Argument(node.name, INPUT, draw=draw)
    # An input may have the name of a parameter or a buffer.
    state_names = {argument.name for argument in arguments.values() if argument.leaf is None}
    for node, argument in arguments.items():
        name = argument.name
        while argument.leaf is not None and name in state_names:
            name += "_input"
        arguments[node] = argument._replace(name=name)
    return arguments, numbers


def _arrange(graph: Graph, arguments: dict[Node, Argument]) -> list[Argument]:
    """Sort the arguments in the order of the placeholders: changed buffers last, so inputs keep their positions.

    Placeholders of fixed values, of data that is unused after folding, and of empty tensors are dropped.
    """
    placeholders = graph.find_nodes(op="placeholder")
    if not placeholders:
        return []
    last = placeholders[-1]
    for node in placeholders:
        argument = arguments.get(node)
        is_from_a_call = argument is not None and argument.kind == INPUT and argument.leaf is not None
        is_from_a_call = is_from_a_call and not normal_forms.is_empty(node)
        if not is_from_a_call and (argument is None or not node.users):
            graph.erase_node(node)
        elif argument is not None and argument.kind == INPUT and argument.leaf is None:
            # Node.append moves a node that is already in the graph.
            last.append(node)
            last = node
    return [arguments[node] for node in graph.find_nodes(op="placeholder")]


def export_graph(
    model: Any,
    inputs: Inputs,
    precision: str = "device",
    wider: WiderForms | None = None,
    state: Collection[str] = (),
) -> ExportedGraph:
    """Export, decompose, fold and check a model, called with example ``inputs``.

    ``wider`` has decompositions of rejected calls. ``state`` names buffers that are inputs, changed or not.
    """
    program = export(model, inputs, precision, wider)
    graph = program.graph
    normal_forms.drop_empty_parts(graph)
    arguments, numbers = _arguments(program, state)
    # Before folding, so that the parts of a complex constant fold like other tensors.
    split_complex_numbers(graph, arguments, decomposition_table(precision))
    cast_parameters(graph, arguments)
    fold_batch_norms(graph, arguments)
    known = {
        node: argument.tensor
        for node, argument in arguments.items()
        if argument.kind == CONSTANT and argument.tensor is not None
    }
    folder = ConstantFolder(graph, known)
    folder.run()
    for node, data in folder.arguments.items():
        arguments[node] = Argument(node.name, CONSTANT, data, source_bytes=folder.source_bytes[node])
    normal_forms.drop_empty_operands(graph, folder.values)
    # After folding, which turns a uniform index into an ``aten.full``.
    normal_forms.fold_uniform_lookups(graph)
    normal_forms.look_up_before_pointwise(graph)
    nodes, leaves, updates = split_outputs(program, arguments, folder.values)
    # The program has arguments for the parts of a complex argument that is split.
    split = {
        (argument.leaf, argument.name.rpartition(".")[0]) for argument in arguments.values() if argument.part
    }
    for node, argument in list(arguments.items()):
        if is_complex(node) and (argument.leaf, argument.name) in split:
            del arguments[node]
    graph.eliminate_dead_code()
    ordered = _arrange(graph, arguments)
    for node in graph.nodes:
        for tensor, described in _described_tensors(node):
            if tensor.dtype not in _DTYPES:
                name = dtype_name(tensor.dtype)
                message = f"The element type {name} of {described} is not supported; cast to another one."
                raise locations.refusal_at(node, message, UnsupportedDtypeError)
    is_hinted = resolve_hints(graph)
    sizes = dim_sizes() if is_hinted or any(argument.dims for argument in ordered) else {}
    results = [ResultType(tuple(node.meta["val"].shape), node.meta["val"].dtype) for node in nodes]
    trees = (cast(pytree.TreeSpec, tree) for tree in (program.call_spec.in_spec, program.call_spec.out_spec))
    random = [argument for argument in arguments.values() if argument.draw is not None]
    signature = Signature(ordered, results, leaves, updates, numbers, random, *trees)
    return ExportedGraph(program.graph_module, signature, sizes)


#: Decompositions by operation.
Forms = Mapping[Any, Callable[..., Any]]


class WiderForms:
    """Decompositions of rejected calls, on top of the decompositions of the rest of a program."""

    def __init__(self) -> None:
        self._calls: dict[OpOverload, set[Hashable]] = {}

    def add(self, graph: Graph, names: Collection[str]) -> bool:
        """Add the calls of nodes that PyTorch decomposes; return whether any call is new."""
        is_new = False
        for node in graph.nodes:
            if node.name in names and isinstance(node.target, OpOverload) and _is_decomposed(node.target):
                calls = self._calls.setdefault(node.target, set())
                key = call_key(node.target, node.args, node.kwargs)
                is_new = is_new or key not in calls
                calls.add(key)
        return is_new

    def added_to(self, forms: Forms) -> Forms:
        """Return decompositions in which the added calls use PyTorch's decomposition."""
        return {**forms, **{operator: self._form(operator, forms.get(operator)) for operator in self._calls}}

    def _form(self, operator: OpOverload, otherwise: Callable[..., Any] | None) -> Callable[..., Any]:
        # A composite operation does not have a kernel, or a form that it could keep.
        if _is_composite(operator):
            return _get_decomp_for_cia(operator)
        calls = self._calls[operator]

        def form(*args: Any, **kwargs: Any) -> Any:
            """PyTorch's decomposition of an added call; for other calls the previous form, or the call unchanged."""
            if call_key(operator, args, kwargs) in calls:
                return pytorch_forms[operator](*args, **kwargs)
            return NotImplemented if otherwise is None else otherwise(*args, **kwargs)

        return form


def _is_decomposed(operator: OpOverload) -> bool:
    """Return whether to use PyTorch's decomposition, except for pointwise operators, which stay one operator."""
    if operator._overloadpacket in CHECKED_BY_KERNELS:
        return False
    is_pointwise = torch.Tag.pointwise in operator.tags
    return _is_composite(operator) or (operator in pytorch_forms and not is_pointwise)


def _is_composite(operator: OpOverload) -> bool:
    return operator.has_kernel_for_dispatch_key(torch._C.DispatchKey.CompositeImplicitAutograd)
