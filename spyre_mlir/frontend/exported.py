# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Export of a PyTorch model as a checked FX graph: capture, decompose, fold, and name arguments and results."""

from __future__ import annotations

import contextlib
import inspect
import io
import itertools
import logging
import operator
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, cast

import torch
from torch import Tensor
from torch.export import ExportedProgram
from torch.export.graph_signature import ConstantArgument, InputKind, InputSpec, TensorArgument
from torch.fx import Graph, GraphModule, Node
from torch.fx._lazy_graph_module import _use_lazy_graph_module
from torch.fx.node import map_arg
from torch.fx.traceback import preserve_node_meta
from torch.utils import _pytree as pytree

from spyre_mlir.dialects.sdsc import INDEX_BOUNDS
from spyre_mlir.errors import CompileError, UncapturedError
from spyre_mlir.frontend.assertions import recording_texts, write_assertions, write_texts
from spyre_mlir.frontend.autocast import autocast_dtype, autocasting, write_casts
from spyre_mlir.frontend.batch_norms import fold_batch_norms
from spyre_mlir.frontend.call_objects import CallInputs
from spyre_mlir.frontend.complex_numbers import split_complex_numbers
from spyre_mlir.frontend.complex_operations import is_complex
from spyre_mlir.frontend.control_flow import CONSTANT_DATA, inline_control_flow, is_inlined
from spyre_mlir.frontend.decomposed import decomposed
from spyre_mlir.frontend.decompositions import decomposition_table
from spyre_mlir.frontend.experts import dense_experts, grouped_products
from spyre_mlir.frontend.folding import ConstantFolder
from spyre_mlir.frontend.functional import check_functional_form
from spyre_mlir.frontend.graph_edits import call_before, metadata_for, operands_of, schema_name
from spyre_mlir.frontend.hints import dim_sizes, name_tensor_dims, names_of, resolve_hints
from spyre_mlir.frontend.index_bounds import check_computed_indices, check_known_indices, index_bounds
from spyre_mlir.frontend.inference import inferring_once
from spyre_mlir.frontend.locations import recording_all_frames, source_of_error
from spyre_mlir.frontend.loop_marks import check_loops, check_writes_in_loops, marking_loops
from spyre_mlir.frontend.narrow_integers import widen_narrow_integers
from spyre_mlir.frontend.normal_forms import (
    compare_with_itself,
    convert_copied_values,
    count_dims_from_the_front,
    count_indices_from_the_front,
    drop_empty_operands,
    is_empty,
)
from spyre_mlir.frontend.outputs import UPDATES, split_outputs
from spyre_mlir.frontend.parameter_casts import cast_parameters
from spyre_mlir.frontend.random_numbers import UndrawnError, draw_of, draw_outside, is_random, random_forms
from spyre_mlir.frontend.refusals import check_inputs, check_product_types, refusal_at, refusal_of_error
from spyre_mlir.frontend.row_writes import write_rows
from spyre_mlir.frontend.signature import (
    CONSTANT,
    INPUT,
    PARAMETER,
    Argument,
    ResultType,
    Signature,
    to_tensor,
)
from spyre_mlir.frontend.storage import address_storages, own_written_results
from spyre_mlir.frontend.torch_device import as_device_tensor
from spyre_mlir.frontend.traced_calls import export_call, forget_notes_on_inputs, separated
from spyre_mlir.frontend.wider_forms import WiderForms
from spyre_mlir.records import dataclass
from spyre_mlir.tensors.device_tensor import DeviceTensor

#: Example inputs: a tuple, or a mapping from the names of keyword inputs.
Inputs = Sequence[Any] | Mapping[str, Any]

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


def _program(model: Any, inputs: Inputs, dtype: torch.dtype | None = None) -> ExportedProgram:
    """Capture a model under an autocast to ``dtype``; an exported program is returned with its casts written."""
    if isinstance(model, ExportedProgram):
        write_casts(model, None)
        return model
    if not callable(model):
        raise CompileError(
            f"A model is an nn.Module, a function or an ExportedProgram, not a {type(model).__name__}."
        )
    module = model if isinstance(model, torch.nn.Module) else _FunctionModule(model)
    walked = call_inputs(inputs, model)
    call = separated(pytree.tree_map(off_the_device, walked.call))
    # The graph is not called, so its Python code is not written.
    with inferring_once(), _use_lazy_graph_module(True):
        with autocasting(dtype), recording_texts() as texts:
            program = export_call(module, walked, call)
        write_texts(program.graph, texts)
        write_casts(program, dtype)
        return program


def off_the_device(leaf: Any) -> Any:
    """Convert an example input to a PyTorch tensor on the host, with the names of its dims."""
    leaf = as_device_tensor(leaf)
    if not isinstance(leaf, DeviceTensor):
        return leaf
    tensor = to_tensor(leaf.numpy(), getattr(torch, leaf.dtype))
    if names := names_of(leaf):
        name_tensor_dims(tensor, names)
    return tensor


def as_call(inputs: Inputs) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Positional and keyword inputs of a call, from example inputs."""
    if isinstance(inputs, Mapping):
        return (), dict(inputs)
    if isinstance(inputs, (tuple, list)):
        return tuple(inputs), {}
    raise CompileError(
        "The example inputs are a tuple of tensors, or a mapping from the names of keyword inputs, "
        f"not a {type(inputs).__name__}."
    )


def call_inputs(inputs: Inputs, model: Any = None) -> CallInputs:
    """Example inputs as a graph of objects; messages use the input names of ``model``."""
    names: list[str] = []
    with contextlib.suppress(ValueError, TypeError):
        names += inspect.signature(getattr(model, "forward", model)).parameters
    return CallInputs(*as_call(inputs), names)


@contextlib.contextmanager
def _tracing(model: Any) -> Iterator[None]:
    """Context for code that traces a model or its graph; errors of torch become ``CompileError``."""
    try:
        with (
            torch.no_grad(),
            preserve_node_meta(),
            recording_all_frames(),
            dense_experts(),
            marking_loops(),
            quiet(),
            autocasting(None),
        ):
            yield
    except CompileError as error:
        # A check may know the operation but not the line; the trace then has the last line of the model.
        error.location = error.location or source_of_error(error)
        raise
    # torch.export also raises the errors of the model and of its own passes.
    except Exception as error:
        raise refusal_of_error(error, model) from error


def capture(model: Any, inputs: Inputs, autocast: torch.dtype | str | None = None) -> ExportedProgram:
    """Trace a model as the graph of the operations that it calls; an exported program is returned.

    ``autocast`` is the option of ``compile``; without it the autocast of the caller applies.
    """
    if isinstance(model, ExportedProgram) and autocast is not None:
        raise CompileError(
            "An exported program has the types that it was exported with; give the model itself for 'autocast'."
        )
    dtype = autocast_dtype(autocast)
    check_inputs(call_inputs(inputs).call)
    with _tracing(model):
        return _program(model, inputs, dtype)


def export(
    model: Any, inputs: Inputs, precision: str = "device", wider: WiderForms | None = None
) -> ExportedProgram:
    """Export a model as a functional graph of core operations. Errors of torch become ``CompileError``."""
    with _tracing(model):
        program = _program(model, inputs)
        _check_nodes(program)
        forget_notes_on_inputs(program)
        write_assertions(program.graph_module)
        copy_scattered_rows(program.graph)
        # Before decomposition, when an index still belongs to the operation that the model calls.
        bounds = index_bounds(program.graph)
        check_computed_indices(program.graph)
        # These checks look at in-place writes, which a functional graph does not have.
        check_writes_in_loops(program.graph)
        address_storages(program)
        check_functional_form(program)
        give_scalars_a_dim(program.graph)
        convert_copied_values(program.graph)
        table = decomposition_table(precision) | grouped_products() | random_forms()
        own_written_results(program.graph, table)
        program = decomposed(program, table if wider is None else wider.over(table))
        for node in program.graph.find_nodes(op="placeholder"):
            # By name, because decomposition has built a new graph.
            node.meta[INDEX_BOUNDS] = bounds.get(node.name)
        # Before the checks, so that they also see the operations of the branches.
        _note_constants(program)
        inline_control_flow(program.graph_module)
        check_loops(program.graph)
        _check_nodes(program)
        _check_random(program)
        widen_narrow_integers(program.graph)
        write_rows(program)
        compare_with_itself(program.graph)
        count_dims_from_the_front(program.graph)
        count_indices_from_the_front(program.graph)
        return program


def _note_constants(program: ExportedProgram) -> None:
    """Store the data of constants at their placeholders: a loop may start to count at a constant."""
    for node, spec in zip(
        program.graph.find_nodes(op="placeholder"), program.graph_signature.input_specs, strict=True
    ):
        if spec.kind == InputKind.CONSTANT_TENSOR:
            node.meta[CONSTANT_DATA] = program.constants[cast(str, spec.target)]


def _check_nodes(program: ExportedProgram) -> None:
    """Raise ``CompileError`` for a dynamic shape, types that do not match, or control flow that is not inlined."""
    for node in program.graph.nodes:
        check_product_types(node)
        for tensor in _tensors_of(node):
            _check_static(node, tensor)
        if isinstance(node.target, torch._ops.HigherOrderOperator) and not is_inlined(node):
            message = f"Control flow by torch's '{node.target}' is not supported."
            raise refusal_at(node, message, UncapturedError)


def _check_random(program: ExportedProgram) -> None:
    """Raise ``CompileError`` for random numbers that a call cannot draw in advance."""
    for node in program.graph.nodes:
        if is_random(node) and draw_of(node) is None:
            raise refusal_at(
                node,
                "Its random numbers cannot be drawn before a call; draw them outside and give them as an input.",
                UndrawnError,
            )


def _tensors_of(node: Node) -> list[torch.Tensor]:
    return [leaf for leaf in pytree.tree_leaves(node.meta.get("val")) if isinstance(leaf, torch.Tensor)]


def _description(node: Node) -> str:
    return f"input '{node.name}'" if node.op == "placeholder" else "the result"


def _check_static(node: Node, tensor: torch.Tensor) -> None:
    for dim, size in enumerate(tensor.shape):
        if isinstance(size, torch.SymInt):
            raise refusal_at(
                node,
                f"The size of dim {dim} of {_description(node)} depends on values; shapes must be known when "
                "compiling: compute with a mask, as torch.where does.",
                UncapturedError,
            )


def _check_dtypes(graph_module: GraphModule) -> None:
    """Raise ``CompileError`` for a tensor of an element type that no later stage supports."""
    for node in graph_module.graph.nodes:
        for tensor in _tensors_of(node):
            if tensor.dtype not in _DTYPES:
                name = str(tensor.dtype).removeprefix("torch.")
                message = (
                    f"The element type {name} of {_description(node)} is not supported; cast to another one."
                )
                raise refusal_at(node, message)


def _state_argument(program: ExportedProgram, spec: InputSpec, kind: str) -> Argument:
    """Argument for a parameter, a buffer (also a non-persistent one) or a lifted constant."""
    target = cast(str, spec.target)
    data = program.state_dict[target] if target in program.state_dict else program.constants[target]
    return Argument(target, kind, cast(torch.Tensor, data), dims=names_of(data))


def _input_argument(name: str, leaf: int, example: Any, is_changed: bool) -> Argument:
    """Argument that each call passes.

    A parameter is still a parameter, because Dynamo makes the parameters of a model inputs.
    """
    if isinstance(example, torch.nn.Parameter) and not is_changed:
        return Argument(name, PARAMETER, example.detach(), leaf, names_of(example))
    return Argument(name, INPUT, None, leaf, names_of(example))


def _mutated_names(program: ExportedProgram) -> set[str]:
    """Names of values that change in place: names of inputs in the graph, targets of buffers and parameters."""
    return {cast(str, spec.target) for spec in program.graph_signature.output_specs if spec.kind in UPDATES}


def _arguments(
    program: ExportedProgram, state: Collection[str]
) -> tuple[dict[Node, Argument], dict[int, Any]]:
    """Argument of every placeholder, and the leaves that are not tensors, whose values are fixed in the graph."""
    placeholders = [node for node in program.graph.nodes if node.op == "placeholder"]
    examples = pytree.tree_leaves(program.example_inputs)
    changed = _mutated_names(program)
    leaves = itertools.count()
    arguments: dict[Node, Argument] = {}
    numbers: dict[int, Any] = {}
    for node, spec in zip(placeholders, program.graph_signature.input_specs, strict=True):
        leaf = next(leaves) if spec.kind == InputKind.USER_INPUT else None
        if leaf is not None and isinstance(spec.arg, ConstantArgument):
            numbers[leaf] = spec.arg.value
        elif leaf is not None and isinstance(spec.arg, TensorArgument):
            arguments[node] = _input_argument(node.name, leaf, examples[leaf], node.name in changed)
        elif spec.kind in _STATE_KINDS and isinstance(spec.arg, TensorArgument):
            kind = INPUT if spec.target in changed or spec.target in state else _STATE_KINDS[spec.kind]
            arguments[node] = _state_argument(program, spec, kind)
        else:
            raise refusal_at(
                node, f"The input '{spec.arg.name}' is no tensor and no number; give it as a tensor."
            )
        if node in arguments and node.meta[INDEX_BOUNDS] is not None:
            arguments[node] = arguments[node]._replace(index_bounds=node.meta[INDEX_BOUNDS])
            check_known_indices(node, arguments[node])
    for node, draw in draw_outside(program.graph).items():
        arguments[node] = Argument(node.name, INPUT, draw=draw)
    return _with_unique_names(arguments), numbers


def _with_unique_names(arguments: dict[Node, Argument]) -> dict[Node, Argument]:
    """Rename inputs that have the name of a parameter or a buffer."""
    state_names = {argument.name for argument in arguments.values() if argument.leaf is None}
    for node, argument in arguments.items():
        name = argument.name
        while argument.leaf is not None and name in state_names:
            name += "_input"
        arguments[node] = argument._replace(name=name)
    return arguments


def _fold(program: ExportedProgram, arguments: dict[Node, Argument]) -> ConstantFolder:
    """Fold constants, and add the remaining constants to the arguments."""
    known = {
        node: argument.tensor
        for node, argument in arguments.items()
        if argument.kind == CONSTANT and argument.tensor is not None
    }
    folder = ConstantFolder(program.graph, known)
    folder.run()
    for node, data in folder.arguments.items():
        arguments[node] = Argument(node.name, CONSTANT, data, source_bytes=folder.source_bytes[node])
    return folder


def _drop_empty_parts(graph: Graph) -> None:
    """Remove operands without elements from concatenations, such as the first keys of an empty cache."""
    for node in graph.find_nodes(op="call_function", target=torch.ops.aten.cat.default):
        parts = [part for part in cast(Sequence[Node], node.args[0]) if part.meta["val"].numel()]
        if len(parts) == 1:
            node.replace_all_uses_with(parts[0])
        elif parts:
            node.args = (parts, *node.args[1:])


def _drop_complex_arguments(arguments: dict[Node, Argument]) -> None:
    """Remove complex arguments that are split: the program has arguments for their parts."""
    split = {
        (argument.leaf, argument.name.rpartition(".")[0]) for argument in arguments.values() if argument.part
    }
    for node, argument in list(arguments.items()):
        if is_complex(node) and (argument.leaf, argument.name) in split:
            del arguments[node]


def _arrange(graph: Graph, arguments: dict[Node, Argument]) -> list[Argument]:
    """Sort the arguments in the order of the placeholders: changed buffers last, so inputs keep their positions.

    Placeholders of fixed values, of data that is unused after folding, and of empty tensors are dropped.
    """
    placeholders = [node for node in graph.nodes if node.op == "placeholder"]
    if not placeholders:
        return []
    last = placeholders[-1]
    for node in placeholders:
        argument = arguments.get(node)
        is_from_a_call = argument is not None and argument.kind == INPUT and argument.leaf is not None
        is_from_a_call = is_from_a_call and not is_empty(node)
        if not is_from_a_call and (argument is None or not node.users):
            graph.erase_node(node)
        elif argument is not None and argument.kind == INPUT and argument.leaf is None:
            # Node.append moves a node that is already in the graph.
            last.append(node)
            last = node
    return [arguments[node] for node in graph.nodes if node.op == "placeholder"]


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
    _drop_empty_parts(program.graph)
    arguments, numbers = _arguments(program, state)
    # Before folding, so that the parts of a complex constant fold like other tensors.
    table = decomposition_table(precision)
    split_complex_numbers(program.graph, arguments, table)
    cast_parameters(program.graph, arguments)
    fold_batch_norms(program.graph, arguments)
    folder = _fold(program, arguments)
    drop_empty_operands(program.graph, folder.values)
    # After folding, which turns a uniform index into an ``aten.full``.
    fold_uniform_lookups(program.graph)
    look_up_before_pointwise(program.graph)
    nodes, leaves, updates = split_outputs(program, arguments, folder.values)
    _drop_complex_arguments(arguments)
    program.graph.eliminate_dead_code()
    ordered = _arrange(program.graph, arguments)
    _check_dtypes(program.graph_module)
    is_hinted = resolve_hints(program.graph)
    sizes = dim_sizes() if is_hinted or any(argument.dims for argument in ordered) else {}
    results = [ResultType(tuple(node.meta["val"].shape), node.meta["val"].dtype) for node in nodes]
    trees = (cast(pytree.TreeSpec, tree) for tree in (program.call_spec.in_spec, program.call_spec.out_spec))
    random = [argument for argument in arguments.values() if argument.draw is not None]
    signature = Signature(ordered, results, leaves, updates, numbers, random, *trees)
    return ExportedGraph(program.graph_module, signature, sizes)


# Scatters of whole rows, like ``index_copy``: the index is repeated for all elements of a row.

aten = torch.ops.aten

_COPIES = {
    aten.scatter.src: aten.index_copy.default,
    aten.scatter_.src: aten.index_copy_.default,
}


def copy_scattered_rows(graph: Graph) -> None:
    """Rewrite scatter(x, dim, expand(index), rows) as index_copy(x, dim, index, rows), with one index per row.

    This runs before decomposition, which compares the elements of an index.
    """
    for node in list(graph.nodes):
        if node.op != "call_function" or node.target not in _COPIES:
            continue
        operands = operands_of(node)
        index = _index_of_rows(operands["self"], operands["dim"], operands["index"], operands["src"])
        if index is None:
            continue
        flat = call_before(node, aten.reshape.default, index, [-1])
        node.target = _COPIES[node.target]
        node.args = (operands["self"], operands["dim"], flat, operands["src"])
        node.kwargs = {}


def _index_of_rows(x: Node, dim: int, index: Node, rows: Node) -> Node | None:
    """Return the tensor that an index repeats for all elements of each row; None for another index."""
    if index.op != "call_function" or index.target not in (aten.expand.default, aten.expand_as.default):
        return None
    source = cast(Node, index.args[0])
    shapes = [list(node.meta["val"].shape) for node in (x, index, rows, source)]
    shape, repeated, values, single = shapes
    if not shape or values != repeated or len(repeated) != len(shape):
        return None
    dim %= len(shape)
    single = [1] * (len(shape) - len(single)) + single
    is_whole = all(size == shape[d] for d, size in enumerate(repeated) if d != dim)
    is_single = all(size == 1 for d, size in enumerate(single) if d != dim) and single[dim] == repeated[dim]
    return source if is_whole and is_single else None


# Tensors without dims as tensors of one dim of size 1, for operations along a dim: PyTorch accepts both.
#
# Decompositions and torch-mlir look only at the rank of an operand, and do not find a dim 0 in a scalar.

#: Names of operands that are dims.
_DIMS = ("dim", "dims")
#: Operations along a dim whose schema does not have such a name, or that reduce all dims.
_ALONG_ALL = {"median", "nanmedian"}


def give_scalars_a_dim(graph: Graph) -> None:
    """Rewrite operations along a dim of tensors without dims to use tensors of one dim of size 1, in place."""
    for node in list(graph.nodes):
        if node.op == "call_function" and _has_dim_argument(node):
            _give_a_dim(node)


def _has_dim_argument(node: Node) -> bool:
    """Return whether all operands and results of an operation are without dims, and it works along a dim."""
    target = node.target
    if not isinstance(target, torch._ops.OpOverload) or target.is_view or target._schema.is_mutable:
        return False
    along = any(argument.name in _DIMS for argument in target._schema.arguments)
    if not node.all_input_nodes or not (along or schema_name(node) in _ALONG_ALL):
        return False
    values = [source.meta.get("val") for source in node.all_input_nodes]
    results = node.meta["val"] if isinstance(node.meta["val"], (tuple, list)) else [node.meta["val"]]
    return all(isinstance(value, Tensor) and value.ndim == 0 for value in (*values, *results))


def _give_a_dim(node: Node) -> None:
    """Replace an operation by the same operation on tensors of one dim, and its results by their only elements."""
    sources = {
        source: call_before(node, aten.reshape.default, source, [1]) for source in node.all_input_nodes
    }
    args = map_arg(node.args, sources.__getitem__)
    kwargs = map_arg(node.kwargs, sources.__getitem__)
    result = call_before(node, node.target, *args, **kwargs)  # type: ignore[arg-type]
    if isinstance(node.meta["val"], Tensor):
        _replace(node, call_before(node, aten.reshape.default, result, []))
        return
    for user in list(node.users):
        index = user.args[1]
        with node.graph.inserting_before(node):
            part = node.graph.call_function(operator.getitem, (result, index))
        part.meta = metadata_for(user, result.meta["val"][index])
        _replace(user, call_before(node, aten.reshape.default, part, []))
    node.graph.erase_node(node)


def _replace(node: Node, value: Node) -> None:
    """Replace a node by a value that takes over the name of the node, to which the signature of a program refers."""
    name = node.name
    node.replace_all_uses_with(value)
    node.graph.erase_node(node)
    value._rename(name)


# Lookups that become cheaper: embeddings by one known number, and gathers of pointwise results.


def fold_uniform_lookups(graph: Graph) -> None:
    """Rewrite embedding(table, full(shape, row)) as expand(slice(table, row), shape): a view instead of a gather.

    This runs after constant folding, which writes a tensor of equal elements as ``aten.full``.
    """
    for node in graph.find_nodes(op="call_function", target=aten.embedding.default):
        table, index = node.args[:2]
        if isinstance(index, Node) and index.target is aten.full.default:
            row = cast(int, index.args[1])
            part = call_before(node, aten.slice.Tensor, table, 0, row, row + 1)
            shape = list(node.meta["val"].shape)
            # A dim of size 1 for each dim of the index, along which expand repeats the row.
            part = call_before(node, aten.view.default, part, [1] * (len(shape) - 1) + shape[-1:])
            node.replace_all_uses_with(call_before(node, aten.expand.default, part, shape))
            graph.erase_node(node)


def look_up_before_pointwise(graph: Graph) -> None:
    """Rewrite gather(f(a, b), index) as f(gather(a, index), gather(b, index)), where f is a pointwise operation.

    The host looks up single elements. For log probabilities, as in a cross entropy, the host then looks up logits,
    which it has, and the device does not compute and write all others. ``b`` may be the same for all positions.
    """
    gathers = list(graph.find_nodes(op="call_function", target=aten.gather.default))
    while gathers:
        gather = gathers.pop()
        source, dim, index = cast(tuple[Node, int, Node], gather.args[:3])
        if not _selects(index, source, dim) or not _moves(source, dim):
            continue
        operands = [
            call_before(gather, aten.gather.default, operand, dim, index)
            if operand in _whole_operands(source)
            else operand
            for operand in source.args
        ]
        gathers += [
            operand for operand in operands if isinstance(operand, Node) and operand not in source.args
        ]
        operation = cast(torch._ops.OpOverload, source.target)
        gather.replace_all_uses_with(call_before(gather, operation, *operands, **source.kwargs))
        graph.erase_node(gather)


def _moves(source: Node, dim: int) -> bool:
    """Return whether a gather along a dim may move before the pointwise operation that it reads."""
    if not _is_pointwise(source):
        return False
    shape, whole = source.meta["val"].shape, _whole_operands(source)
    others = (operand for operand in source.all_input_nodes if operand not in whole)
    if not whole or any(_varies_along(operand, dim - len(shape)) for operand in others):
        return False
    return all(
        operand.op == "placeholder" or len(operand.users) > 1 or _moves(operand, dim) for operand in whole
    )


def _whole_operands(node: Node) -> list[Node]:
    """Return the operands that have the same shape as the result."""
    shape = node.meta["val"].shape
    return [operand for operand in node.all_input_nodes if operand.meta["val"].shape == shape]


def _varies_along(operand: Node, axis: int) -> bool:
    """Return whether a smaller operand has several positions along an axis, which is negative."""
    sizes = operand.meta["val"].shape
    return len(sizes) >= -axis and sizes[axis] != 1


def _is_pointwise(node: Node) -> bool:
    """Return whether a node computes each element of one tensor from the operand elements at the same index."""
    target = node.target
    if not isinstance(target, torch._ops.OpOverload) or not isinstance(node.meta["val"], torch.Tensor):
        return False
    # Random numbers would differ in another shape.
    return torch.Tag.pointwise in target.tags and torch.Tag.nondeterministic_seeded not in target.tags


def _selects(index: Node, source: Node, dim: int) -> bool:
    """Return whether an index selects fewer positions of ``dim`` than exist, and all positions of the other dims."""
    sizes, extents = (tuple(node.meta["val"].shape) for node in (index, source))
    return bool(extents) and sizes[dim] < extents[dim] and _without(sizes, dim) == _without(extents, dim)


def _without(sizes: tuple[int, ...], dim: int) -> tuple[int, ...]:
    return (*sizes[:dim], *sizes[dim + 1 :])
