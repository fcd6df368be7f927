"""From a PyTorch model to a checked FX graph: export, decompose, fold, name every argument and result."""

from __future__ import annotations

import contextlib
import inspect
import io
import itertools
import logging
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import ConstantArgument, InputKind, InputSpec, OutputKind, TensorArgument
from torch.fx import GraphModule, Node
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode
from torch.fx.traceback import preserve_node_meta
from torch.utils import _pytree as pytree

from spyre_mlir.errors import CompileError
from spyre_mlir.frontend.decompositions import decomposition_table
from spyre_mlir.frontend.folding import ConstantFolder
from spyre_mlir.frontend.hints import dim_sizes, names_of, resolve_hints
from spyre_mlir.frontend.locations import recording_all_frames, source_of, source_of_error

INPUT, PARAMETER, CONSTANT = "input", "parameter", "constant"

_DTYPES = (
    torch.float16, torch.bfloat16, torch.float32,
    torch.bool, torch.int8, torch.int16, torch.int32, torch.int64,
)  # fmt: skip


class Argument(NamedTuple):
    """One argument of @main.

    ``tensor`` is its data; an input has none. ``leaf`` is the position among the leaves of what the model is
    called with, of an argument that each call gives. ``dims`` are the named dims that it is made of.
    """

    name: str
    kind: str
    tensor: torch.Tensor | None = None
    leaf: int | None = None
    dims: tuple[str, ...] = ()


@dataclass(frozen=True)
class ExportedGraph:
    """An FX graph whose placeholders are ``arguments`` and whose outputs are all tensors.

    ``leaves`` are the leaves of what the model returns: the index of a result of the graph, or
    ``Fixed(value)`` for what is known at compile time. ``dim_sizes`` are all declared dims, if the graph has
    hints or named dims.
    """

    graph_module: GraphModule
    arguments: list[Argument]
    results: list[Node]
    leaves: list[int | Fixed]
    dim_sizes: dict[str, int]
    program: ExportedProgram


@dataclass(frozen=True)
class Fixed:
    """A leaf of the model's output that does not depend on its inputs."""

    value: Any


class _Function(torch.nn.Module):
    """A plain Python function as a module; its parameters, where it says them, name the inputs."""

    def __init__(self, function: Callable) -> None:
        super().__init__()
        self.function = function
        with contextlib.suppress(ValueError):  # a builtin such as torch.exp has no signature
            inspect.signature(function)
            self.forward = function

    def forward(self, *inputs: Any) -> Any:
        return self.function(*inputs)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Without what torch writes to stdout and stderr on the way; what is wrong is raised."""
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


def _program(model: Any, example_inputs: Sequence[Any]) -> ExportedProgram:
    if isinstance(model, ExportedProgram):
        return model
    if not callable(model):
        raise CompileError(
            f"A model is an nn.Module, a function or an ExportedProgram, not a {type(model).__name__}."
        )
    if not isinstance(example_inputs, (tuple, list)):
        raise CompileError(
            f"The example inputs are a tuple of tensors, not a {type(example_inputs).__name__}."
        )
    module = model if isinstance(model, torch.nn.Module) else _Function(model)
    return torch.export.export(module, tuple(example_inputs))


def export(model: Any, example_inputs: Sequence[Any]) -> ExportedProgram:
    """The model as a functional graph of core operations; what torch rejects is a CompileError."""
    try:
        with torch.no_grad(), preserve_node_meta(), recording_all_frames(), quiet():
            program = _program(model, example_inputs)
            _check_nodes(program)
            program = program.run_decompositions(decomposition_table())
            _check_mutation(program)
            _check_nodes(program)
            _check_convolutions(program)
            _check_deterministic(program)
            return program
    except CompileError as error:
        raise CompileError(error.message, error.location or source_of_error(error)) from error.__cause__
    except GuardOnDataDependentSymNode as error:
        where = source_of_error(error)
        raise CompileError("A branch or a shape depends on the values of a tensor.", where) from error
    except Exception as error:  # torch.export raises whatever the model and its own passes raise
        reason = str(error).strip().splitlines() or [type(error).__name__]
        raise CompileError(
            f"torch.export cannot capture the model: {reason[0]}", source_of_error(error)
        ) from error


def _check_mutation(program: ExportedProgram) -> None:
    signature = program.graph_signature
    mutated = [*signature.buffers_to_mutate.values(), *signature.user_inputs_to_mutate.values()]
    if mutated:
        names = ", ".join(f"'{name}'" for name in mutated)
        raise CompileError(f"The model changes {names} in place; return the new value instead.")


def _check_nodes(program: ExportedProgram) -> None:
    """Static shapes, no subgraphs."""
    for node in program.graph.nodes:
        for tensor in _tensors_of(node):
            _check_static(node, tensor)
        if isinstance(node.target, torch._ops.HigherOrderOperator):
            raise CompileError(f"Control flow by torch's '{node.target}' is not supported.", source_of(node))


def _check_convolutions(program: ExportedProgram) -> None:
    for node in program.graph.nodes:
        if node.target is torch.ops.aten.convolution.default and node.args[6]:
            raise CompileError("A transposed convolution is not supported.", source_of(node))


def _check_deterministic(program: ExportedProgram) -> None:
    for node in program.graph.nodes:
        if torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()):
            raise CompileError(f"The random numbers of {node.target} are not supported.", source_of(node))


def _tensors_of(node: Node) -> list[torch.Tensor]:
    return [leaf for leaf in pytree.tree_leaves(node.meta.get("val")) if isinstance(leaf, torch.Tensor)]


def _what(node: Node) -> str:
    return f"input '{node.name}'" if node.op == "placeholder" else f"the result of {node.target}"


def _check_static(node: Node, tensor: torch.Tensor) -> None:
    for dim, size in enumerate(tensor.shape):
        if isinstance(size, torch.SymInt):
            raise CompileError(
                f"Dimension {dim} of {_what(node)} is dynamic ({size}); shapes must be known when compiling.",
                source_of(node),
            )


def _check_dtypes(graph_module: GraphModule) -> None:
    for node in graph_module.graph.nodes:
        for tensor in _tensors_of(node):
            if tensor.dtype not in _DTYPES:
                name = str(tensor.dtype).removeprefix("torch.")
                message = f"The element type {name} of {_what(node)} is not supported."
                raise CompileError(message, source_of(node))


def _state(program: ExportedProgram, spec: InputSpec, kind: str) -> Argument:
    """A parameter, a buffer (also a non-persistent one) or a lifted constant."""
    target = cast(str, spec.target)
    data = program.state_dict[target] if target in program.state_dict else program.constants[target]
    return Argument(target, kind, cast(torch.Tensor, data).detach(), dims=names_of(data))


def _given(name: str, leaf: int, example: Any) -> Argument:
    """What each call gives. A parameter is one here, too: Dynamo makes the parameters of a model inputs."""
    if isinstance(example, torch.nn.Parameter):
        return Argument(name, PARAMETER, example.detach(), leaf, names_of(example))
    return Argument(name, INPUT, None, leaf, names_of(example))


def _arguments(program: ExportedProgram) -> dict[Node, Argument]:
    """The argument of every placeholder; those of plain Python values (burnt into the graph) are left out."""
    placeholders = [node for node in program.graph.nodes if node.op == "placeholder"]
    examples = pytree.tree_leaves(program.example_inputs)
    leaves = itertools.count()
    arguments = {}
    for node, spec in zip(placeholders, program.graph_signature.input_specs, strict=True):
        leaf = next(leaves) if spec.kind == InputKind.USER_INPUT else None
        if leaf is not None and isinstance(spec.arg, TensorArgument):
            arguments[node] = _given(node.name, leaf, examples[leaf])
        elif spec.kind == InputKind.PARAMETER:
            arguments[node] = _state(program, spec, PARAMETER)
        elif spec.kind in (InputKind.BUFFER, InputKind.CONSTANT_TENSOR):
            arguments[node] = _state(program, spec, CONSTANT)
        elif not isinstance(spec.arg, ConstantArgument):
            raise CompileError(f"The input '{spec.arg.name}' is not a tensor.", source_of(node))
    return arguments


def _fold(program: ExportedProgram, arguments: dict[Node, Argument]) -> ConstantFolder:
    known = {
        node: argument.tensor
        for node, argument in arguments.items()
        if argument.kind == CONSTANT and argument.tensor is not None
    }
    folder = ConstantFolder(program.graph, known)
    folder.run()
    arguments.update({node: Argument(node.name, CONSTANT, data) for node, data in folder.arguments.items()})
    return folder


def _split_outputs(program: ExportedProgram, folder: ConstantFolder) -> tuple[list[Node], list[int | Fixed]]:
    """Leave only computed tensors in the output of the graph; these, and where each leaf comes from."""
    output = program.graph.output_node()
    leaves: list[int | Fixed] = []
    results: list[Node] = []
    for value, spec in zip(cast(Sequence, output.args[0]), program.graph_signature.output_specs, strict=True):
        if spec.kind != OutputKind.USER_OUTPUT:
            raise CompileError(f"Outputs of kind {spec.kind.name.lower()} are not supported.")
        if not isinstance(value, Node):
            leaves.append(Fixed(value))
        elif value in folder.values:
            leaves.append(Fixed(folder.values[value]))
        else:
            leaves.append(len(results))
            results.append(value)
    if not results:
        raise CompileError(
            "The model returns no tensor that depends on its inputs, so there is nothing to compile."
        )
    output.args = (tuple(results),)
    return results, leaves


def _remove_unused(program: ExportedProgram, arguments: dict[Node, Argument]) -> None:
    """Drop the placeholders of burnt-in values and of data that folding left without a use."""
    for node in list(program.graph.nodes):
        if node.op != "placeholder":
            continue
        argument = arguments.get(node)
        if argument is None or (argument.kind != INPUT and not node.users):
            program.graph.erase_node(node)


def export_graph(model: Any, example_inputs: Sequence[Any]) -> ExportedGraph:
    """Export, decompose, fold and check a model."""
    program = export(model, example_inputs)
    arguments = _arguments(program)
    folder = _fold(program, arguments)
    results, leaves = _split_outputs(program, folder)
    program.graph.eliminate_dead_code()
    _remove_unused(program, arguments)
    program.graph_module.recompile()
    _check_dtypes(program.graph_module)
    ordered = [arguments[node] for node in program.graph.nodes if node.op == "placeholder"]
    is_hinted = resolve_hints(program.graph)
    sizes = dim_sizes() if is_hinted or any(argument.dims for argument in ordered) else {}
    return ExportedGraph(program.graph_module, ordered, results, leaves, sizes, program)
