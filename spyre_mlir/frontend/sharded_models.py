# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Models that are distributed over the ranks of a mesh: DTensor code as the operations of one rank, with collectives.

A model with ``DTensor`` parameters is traced once with its local tensors. The trace is a model of plain tensors that
calls the operations of ``_c10d_functional`` where ranks communicate, so the rest of the frontend does not know about
meshes. ``name_ranks`` brings these operations into one form: synchronous, one tensor each, with the ranks of a group in
place of the name of the group, which differs between processes.
"""

from __future__ import annotations

import contextlib
import inspect
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial, reduce
from typing import Any, cast

import torch
import torch.distributed as dist
from torch._dispatch.python import enable_python_dispatcher
from torch._export.utils import _special_op_to_preserve_cia
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.export import ExportedProgram
from torch.export.exported_program import _override_composite_implicit_decomp
from torch.fx import Graph, Interpreter, Node
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils import _pytree as pytree

from spyre_mlir.dialects.torch_call import RANKS
from spyre_mlir.driver.collectives import COLLECTIVE_FORMS, MeshPlace
from spyre_mlir.errors import CompileError
from spyre_mlir.frontend import locations
from spyre_mlir.frontend.call_objects import Inputs, as_call
from spyre_mlir.frontend.graph_edits import call_before, operands_of
from spyre_mlir.frontend.kernel_calls import is_collective

_WAIT = "wait_tensor"
_ATTENTION = torch.ops.aten.scaled_dot_product_attention.default


def _distributed_tensor() -> type | None:
    """The class DTensor; None if nothing has imported it, so that no tensor is one."""
    module = sys.modules.get("torch.distributed.tensor")
    return None if module is None else module.DTensor


def local_tensor(value: Any) -> Any:
    """Return the shard of a distributed tensor that this rank has; other values unchanged."""
    kind = _distributed_tensor()
    if kind is None or not isinstance(value, kind):
        return value
    local = cast(Any, value).to_local().detach()
    return torch.nn.Parameter(local, requires_grad=False) if isinstance(value, torch.nn.Parameter) else local


def _distributed(model: Any, inputs: Any) -> list[Any]:
    """The distributed tensors among the parameters, the buffers and the inputs."""
    if (kind := _distributed_tensor()) is None:
        return []
    state = [*model.parameters(), *model.buffers()] if isinstance(model, torch.nn.Module) else []
    return [leaf for leaf in (*state, *pytree.tree_leaves(inputs)) if isinstance(leaf, kind)]


def is_sharded(model: Any, inputs: Inputs) -> bool:
    """Return whether a parameter, a buffer or an input is a distributed tensor."""
    return bool(_distributed(model, inputs))


def place_of(model: Any, inputs: Inputs) -> MeshPlace | None:
    """Return the place of this process in the mesh of the distributed tensors; None without a process group.

    Without distributed tensors, the ranks of the process group are the mesh.
    """
    if not (dist.is_available() and dist.is_initialized()):
        return None
    rank, size = dist.get_rank(), dist.get_world_size()
    meshes = [tensor.device_mesh for tensor in _distributed(model, inputs)]
    if not meshes or meshes[0].size() != size:
        return MeshPlace(rank, (size,))
    return MeshPlace(rank, tuple(meshes[0].shape), tuple(meshes[0].mesh_dim_names or ()))


def is_simulated() -> bool:
    """Return whether this process is one rank of a mesh without other processes (``meshes/mesh_compilation.py``)."""
    return dist.is_available() and dist.is_initialized() and dist.get_backend() == "fake"


def localized(model: Any, inputs: Inputs) -> tuple[LocalModel, Inputs]:
    """Return the operations of this rank as a model of its local tensors, and the local inputs.

    The parameters keep their names. Results that are distributed tensors are returned as local tensors.

    Raises:
        CompileError: The model fails, or calls a collective without a functional form.
    """
    state: dict[str, torch.Tensor] = {}
    if isinstance(model, torch.nn.Module):
        state = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    args, kwargs = as_call(inputs)
    leaves, structure = pytree.tree_flatten((tuple(args), dict(kwargs)))
    tensors = {index: leaf for index, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)}
    wholes = [*state.values(), *tensors.values()]
    local = LocalModel(model, {name: local_tensor(tensor) for name, tensor in state.items()}, list(tensors))

    def run(*flat: torch.Tensor) -> list[torch.Tensor]:
        """Call the model with distributed tensors of these local tensors; return its local results."""
        whole = [_like(one, other) for one, other in zip(flat, wholes, strict=True)]
        called = dict(enumerate(leaves)) | dict(zip(tensors, whole[len(state) :], strict=True))
        call = structure.unflatten(list(called.values()))
        if isinstance(model, torch.nn.Module):
            result = torch.func.functional_call(model, dict(zip(state, whole, strict=False)), *call)
        else:
            result = model(*call[0], **call[1])
        return local.keep(result)

    mode = FakeTensorMode(allow_non_fake_inputs=True)
    try:
        with (
            torch.no_grad(),
            locations.recording_all_frames(),
            # Attention on local tensors stays one operation, as in a trace of torch.export.
            enable_python_dispatcher(),
            _override_composite_implicit_decomp({_ATTENTION: _special_op_to_preserve_cia}),
            functional_collectives(),
        ):
            trace = make_fx(run, _forms(), record_stack_traces=True)
            local.take(trace(*map(partial(_without_data, mode), map(local_tensor, wholes))))
    except CompileError:
        raise
    except Exception as error:
        raise locations.refusal_of_error(error, model) from error
    return local, pytree.tree_map(local_tensor, inputs)


def is_on_a_mesh(inputs: Sequence[Any]) -> bool:
    """Return whether the inputs of a graph of Dynamo or AOTAutograd have a distributed tensor or a mesh."""
    module = sys.modules.get("torch.distributed.device_mesh")
    has_mesh = module is not None and any(isinstance(value, module.DeviceMesh) for value in inputs)
    return has_mesh or is_sharded(None, inputs)


def compiled_shards(
    compile: Callable[[LocalModel, Sequence[str], Sequence[Any]], Callable[..., Any]],
    function: Callable[..., Any],
    inputs: Sequence[Any],
) -> Callable[..., Any]:
    """Compile a graph of Dynamo for its local tensors; the callable takes and returns distributed tensors.

    ``compile`` compiles the local model with the names and the values of its tensors. Inputs that are not tensors, such
    as meshes, are fixed: Dynamo compiles another graph for others.
    """
    local, _ = localized(function, inputs)
    positions = [index for index, value in enumerate(inputs) if isinstance(value, torch.Tensor)]
    names = [name for index, name in enumerate(inspect.signature(function).parameters) if index in positions]
    program = compile(local, names, [local_tensor(inputs[index]) for index in positions])

    def call(*inputs: Any) -> Any:
        """Run the program on the local tensors."""
        results = list(program(*(local_tensor(inputs[index]) for index in positions)))
        return tuple(
            _like(result, local.distributed[index]) if index in local.distributed else result
            for index, result in enumerate(results)
        )

    return call


class LocalModel(torch.nn.Module):
    """A model of one rank: its operations as a graph, and its local tensors by the names of the whole tensors."""

    def __init__(self, model: Any, state: dict[str, torch.Tensor], positions: Sequence[int]) -> None:
        super().__init__()
        # In a list, because a trace must not be a part of the model.
        self._trace: list[torch.fx.GraphModule] = []
        self._names, self._positions = list(state), list(positions)
        for name, tensor in state.items():
            self._register(name, tensor, isinstance(tensor, torch.nn.Parameter) or tensor.requires_grad)
        call = self._call

        def forward(*args: Any, **kwargs: Any) -> Any:
            return call(args, kwargs)

        with contextlib.suppress(ValueError, TypeError):
            forward.__signature__ = inspect.signature(getattr(model, "forward", model))
        self.forward = forward

    def _register(self, name: str, tensor: torch.Tensor, is_parameter: bool) -> None:
        *path, last = name.split(".")
        holder: torch.nn.Module = self
        for part in path:
            if part not in holder._modules:
                holder.add_module(part, torch.nn.Module())
            holder = cast(torch.nn.Module, holder._modules[part])
        if is_parameter:
            holder.register_parameter(last, torch.nn.Parameter(tensor.detach(), requires_grad=False))
        else:
            holder.register_buffer(last, tensor)

    def take(self, trace: torch.fx.GraphModule) -> None:
        """Take the trace of the model: its constants become numbers or buffers, its views may copy."""
        self._trace = [trace]
        graph = trace.graph
        first = next(iter(graph.nodes))
        for node in graph.find_nodes(op="call_function", target=torch.ops.aten.view.default):
            # Another trace may give other strides, which a view would refuse.
            node.target = torch.ops.aten.reshape.default
        # The model may be compiled again when its process group does not exist any more.
        for node in filter(is_collective, graph.nodes):
            if cast(Any, node.target)._opname in COLLECTIVE_FORMS:
                _name_ranks(node)
        for node in graph.find_nodes(op="get_attr"):
            constant = getattr(trace, cast(str, node.target))
            with graph.inserting_before(node if constant.dim() == 0 else first):
                if constant.dim() == 0:
                    number = graph.call_function(torch.ops.aten.full.default, ((), constant.item()))
                    number.kwargs = {"dtype": constant.dtype}
                else:
                    number = graph.placeholder(cast(str, node.target))
                    self._register(cast(str, node.target), constant, False)
                    self._names.insert(0, cast(str, node.target))
                    first = number
            node.replace_all_uses_with(number)
            graph.erase_node(node)

    def keep(self, result: Any) -> list[torch.Tensor]:
        """Keep the structure of a result, with its leaves that are not tensors; return its local tensors."""
        leaves, self._structure = pytree.tree_flatten(result)
        self._results = [None if isinstance(leaf, torch.Tensor) else (leaf,) for leaf in leaves]
        #: The distributed tensors among the results, by index, without data.
        kind = _distributed_tensor()
        self.distributed = {
            index: leaf for index, leaf in enumerate(leaves) if kind is not None and isinstance(leaf, kind)
        }
        return [local_tensor(leaf) for leaf in leaves if isinstance(leaf, torch.Tensor)]

    def of_tensors(self, names: Sequence[str]) -> Callable[..., Any]:
        """Return the model as a function of its input tensors alone, which have these names."""

        def run(*tensors: torch.Tensor) -> Any:
            return self._run(tensors)

        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        run.__signature__ = inspect.Signature([inspect.Parameter(name, kind) for name in names])
        return run

    @property
    def trace(self) -> torch.fx.GraphModule:
        """The graph on the input tensors, for a model without state; ``CompileError`` if it has constants."""
        if self._names:
            raise CompileError("A graph on the device has constants that are not numbers.")
        return self.operations

    @property
    def operations(self) -> torch.fx.GraphModule:
        """The graph on the tensors of the model, of which there are ``state_count``, and on the input tensors."""
        return self._trace[0]

    @property
    def state_count(self) -> int:
        """The number of tensors of the model."""
        return len(self._names)

    def finish(self, results: Any) -> Any:
        """Return the result of the model from its tensors."""
        rest = iter(results)
        return self._structure.unflatten(
            [next(rest) if fixed is None else fixed[0] for fixed in self._results]
        )

    def _call(self, args: Any, kwargs: Any) -> Any:
        leaves = pytree.tree_leaves((args, kwargs))
        return self._run([leaves[index] for index in self._positions])

    def _run(self, tensors: Sequence[torch.Tensor]) -> Any:
        state = [reduce(getattr, name.split("."), self) for name in self._names]
        return self.finish(Interpreter(self._trace[0]).run(*state, *tensors))


def _like(local: torch.Tensor, whole: torch.Tensor) -> torch.Tensor:
    """Return a tensor with the distribution of ``whole`` and other local data."""
    kind = _distributed_tensor()
    if kind is None or not isinstance(whole, kind):
        return local
    names, context = cast(Any, whole).__tensor_flatten__()
    inner = {name: getattr(whole, name) for name in names}
    inner |= {name: local for name, value in inner.items() if isinstance(value, torch.Tensor)}
    return cast(Any, kind).__tensor_unflatten__(inner, context, whole.shape, whole.stride())


def _without_data(mode: FakeTensorMode, tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor for a trace; a tensor of the meta device becomes a tensor of the host, as the inputs."""
    if not tensor.is_meta:
        return mode.from_tensor(tensor)
    with mode:
        return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype)


def _group_of(name: str) -> Any:
    return cast(Any, dist.distributed_c10d)._resolve_process_group(name)


def _forms() -> dict[Any, Callable[..., Any]]:
    """Return the forms of collectives of DTensor that are not operations of ``_c10d_functional``."""
    if _distributed_tensor() is None:
        return {}
    from torch.distributed import _functional_collectives as functional

    def shard_dim_alltoall(tensor: Any, gather_dim: int, shard_dim: int, group_name: str) -> Any:
        """Gather along one dim, and keep the part of this rank along another dim."""
        group = _group_of(group_name)
        whole = functional.all_gather_tensor(tensor, gather_dim, group)
        part = whole.chunk(group.size(), shard_dim)[group.rank()]
        return part.contiguous()

    return {torch.ops._dtensor.shard_dim_alltoall.default: shard_dim_alltoall}


@contextlib.contextmanager
def functional_collectives() -> Iterator[None]:
    """Context in which the functions of ``torch.distributed`` are their functional forms, as Dynamo traces them."""
    if not (dist.is_available() and dist.is_initialized()):
        yield
        return
    from torch.distributed._functional_collectives import traceable_collective_remaps

    with contextlib.ExitStack() as restored:
        for module in (dist, dist.distributed_c10d):
            for function, form in traceable_collective_remaps.items():
                if vars(module).get(function.__name__) is function:
                    setattr(module, function.__name__, form)
                    restored.callback(setattr, module, function.__name__, function)
        yield


def name_ranks(program: ExportedProgram) -> None:
    """Bring the collectives of a graph into the form that programs have, in place.

    Raises:
        CompileError: A result of a collective is read without a wait, or a collective has no form in a program.
    """
    if not any(map(is_collective, program.graph.nodes)):
        return
    graph = program.graph
    for node in filter(is_collective, list(graph.nodes)):
        if "coalesced" in cast(Any, node.target)._opname:
            _separate(node)
    waits = [node for node in filter(is_collective, graph.nodes) if cast(Any, node.target)._opname == _WAIT]
    for node in filter(is_collective, graph.nodes):
        if node not in waits:
            _name_ranks(node)
    for node in waits:
        node.replace_all_uses_with(cast(Node, node.args[0]))
        graph.erase_node(node)
    _rename_outputs(program, graph)
    graph.lint()
    program.graph_module.recompile()


def _rename_outputs(program: ExportedProgram, graph: Graph) -> None:
    """Name the results in the signature after the nodes that compute them now."""
    outputs = cast(Sequence[Any], graph.output_node().args[0])
    for node, spec in zip(outputs, program.graph_signature.output_specs, strict=True):
        if isinstance(node, Node) and hasattr(spec.arg, "name"):
            spec.arg.name = node.name


def _separate(node: Node) -> None:
    """Replace a coalesced collective by a collective for each of its tensors."""
    operator = cast(Any, node.target)
    single = getattr(torch.ops._c10d_functional, operator._opname.removesuffix("_coalesced")).default
    tensors, *rest = node.args
    for read in list(node.users):
        one = call_before(read, single, cast(Any, tensors)[read.args[1]], *rest)
        read.replace_all_uses_with(one)
        node.graph.erase_node(read)
    node.graph.erase_node(node)


def _name_ranks(node: Node) -> None:
    group = str(operands_of(node)["group_name"])
    if group.startswith(RANKS):
        return
    name = cast(Any, node.target)._opname
    schema = cast(Any, node.target)._schema
    if schema.is_mutable or name not in COLLECTIVE_FORMS:
        raise locations.refusal_at(
            node,
            f"The collective {name} has no form in a program; the forms are {', '.join(COLLECTIVE_FORMS)}.",
        )
    for user in node.users:
        if getattr(user.target, "_opname", "") != _WAIT:
            raise locations.refusal_at(
                node,
                f"The result of {name} is read before it is complete; call wait_tensor on the result first.",
            )
    try:
        ranks = dist.get_process_group_ranks(_group_of(group))
    except (RuntimeError, ValueError, LookupError) as error:
        raise locations.refusal_at(node, f"The process group '{group}' of {name} does not exist.") from error
    operands = {**operands_of(node), "group_name": RANKS + ",".join(map(str, ranks))}
    node.args, node.kwargs = tuple(operands.values()), {}
