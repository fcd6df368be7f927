# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Text of a captured program that is equal for two captures if an import builds the same program from both.

The text contains the graph with the types, sources and hints of its nodes, the signature, the state and the PyTorch
settings that decompositions query. Buffers, constants and tensors in the graph are included with their data, parameters
without: the import records which parameters it reads (``content_reads.py``), and ``content_digests`` hashes these.

Python code that a model runs is not in the text, but the results of its trace are: another source, global or
environment that changes the graph changes the text. If something cannot be written as text, ``Uncached`` is raised.
"""

from __future__ import annotations

import enum
import hashlib
import operator
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor
from torch._decomp import global_decomposition_table
from torch._subclasses.fake_tensor import FakeTensor
from torch.export import ExportedProgram
from torch.export.graph_signature import (
    ConstantArgument,
    InputKind,
    InputSpec,
    OutputSpec,
    TensorArgument,
)
from torch.fx import GraphModule, Node
from torch.fx.immutable_collections import immutable_dict, immutable_list
from torch.fx.passes.shape_prop import TensorMetadata
from torch.utils import _pytree as pytree

from spyre_mlir.driver.program import Program
from spyre_mlir.driver.program_cache import ProgramCache, tell_uncached
from spyre_mlir.driver.stored_program import StoredProgram
from spyre_mlir.errors import Uncached
from spyre_mlir.frontend.call_objects import CallInputs, as_call
from spyre_mlir.frontend.content_reads import ContentReads
from spyre_mlir.frontend.hints import HINT_PREFIX, dim_sizes, hint_number, names_of
from spyre_mlir.frontend.signature import (
    Signature,
    signature_from_plain,
    signature_to_plain,
    state_of,
    without_repeats,
)
from spyre_mlir.frontend.torch_device import as_device_tensor
from spyre_mlir.records import dataclass
from spyre_mlir.tensors.device_tensor import DeviceTensor

#: Libraries whose operations are defined by a version of PyTorch, of transformers or of this package.
_LIBRARIES = {"aten", "prims", "prim", "spyre", "transformers", "_c10d_functional"}

#: Metadata of a node that counts the operations of autograd in a process, and does not describe the graph.
_COUNTER = "seq_nr"

_PLAIN_TYPES = (torch.dtype, torch.device, torch.layout, torch.memory_format, torch.Size, slice, type(...))

#: Classes of PyTorch whose fields describe them completely.
_RECORDS = (InputSpec, OutputSpec, TensorArgument, ConstantArgument, TensorMetadata)


def captured_key(program: ExportedProgram) -> str:
    """Digest of the text of a captured program; ``Uncached`` if the program cannot be written as text."""
    digest = hashlib.sha256()
    for line in _CaptureText(program).lines():
        digest.update(line.encode("utf-8", "surrogatepass") + b"\n")
    return digest.hexdigest()


def input_layouts_key(inputs: Any) -> str:
    """Text of the layouts of the example inputs on the device; a capture contains only the data of these inputs."""
    leaves = pytree.tree_leaves(pytree.tree_map(as_device_tensor, CallInputs(*as_call(inputs)).call))
    return repr([
        (index, leaf.layout) for index, leaf in enumerate(leaves) if isinstance(leaf, DeviceTensor)
    ])  # fmt: skip


def content_digests(program: ExportedProgram, reads: ContentReads) -> dict[str, Any]:
    """Digests of the data that an import read; ``Uncached`` for a tensor that the model does not have.

    A check on the example inputs runs the model, which reads its state.
    """
    state, leaves = state_of(program), pytree.tree_leaves(program.example_inputs)
    names = state.keys() if reads.example_inputs else reads.names
    missing = sorted(reads.names - state.keys())
    if missing:
        raise Uncached(f"reads the data of '{missing[0]}', which is not a tensor of the model")
    inputs = [content_digest(leaf) for leaf in leaves if isinstance(leaf, Tensor)]
    return {
        "tensors": {name: content_digest(state[name]) for name in sorted(names)},
        "inputs": inputs if reads.example_inputs else None,
    }


def content_digest(tensor: Tensor) -> str:
    """Digest of the data of a tensor, in the order of its elements; empty for a tensor without data."""
    if isinstance(tensor, FakeTensor) or tensor.device.type == "meta":
        return ""
    if tensor.layout != torch.strided or tensor.device.type != "cpu" or tensor.is_quantized:
        raise Uncached(f"has a tensor of layout {tensor.layout} on {tensor.device}")
    if type(tensor) not in (Tensor, torch.nn.Parameter, torch.nn.Buffer):
        raise Uncached(f"has a tensor of the class {type(tensor).__name__}")
    with torch.no_grad():
        # Repeated elements are hashed once: an expanded zero weight has as many elements as a real weight.
        data = without_repeats(tensor).detach().resolve_conj().resolve_neg().contiguous().reshape(-1)
        if data.stride() != (1,):
            data = data.new_empty(data.shape).copy_(data)  # a single element may have any stride
        return hashlib.sha256(data.view(torch.uint8).numpy().data).hexdigest()


class _CaptureText:
    """The text of one captured program, line by line; memories and hints are numbered in the order of their use."""

    def __init__(self, program: ExportedProgram) -> None:
        self.program = program
        self._memories: dict[int, int] = {}
        # The keys of hints, numbered over all hints of a process, are numbered within this program.
        modules = [part for part in program.graph_module.modules() if isinstance(part, GraphModule)]
        notes = (node.meta.get("custom") or {} for module in modules for node in module.graph.nodes)
        hints = {number: key for note in notes for key in note if (number := hint_number(key)) is not None}
        ordered = [hints[number] for number in sorted(hints)]
        self._hints = {key: f"{HINT_PREFIX}{number}" for number, key in enumerate(ordered, 1)}

    def lines(self) -> Iterator[str]:
        """Yield all lines; equal captures yield equal lines in the same order."""
        # PyTorch settings on which decompositions and the folding of constants depend.
        if torch._C._len_torch_function_stack() or torch._C._len_torch_dispatch_stack():
            raise Uncached("is compiled under a PyTorch mode that changes its operations")
        for name, table in global_decomposition_table.items():
            for operation, form in table.items():
                if getattr(form, "__module__", "torch").partition(".")[0] not in ("torch", "spyre_mlir"):
                    raise Uncached(f"is compiled with a user-defined decomposition of {operation} ({name})")
        cpu, cuda, mkldnn = torch.backends.cpu, torch.backends.cuda, torch.backends.mkldnn
        yield str([
            torch.get_default_dtype(), torch.are_deterministic_algorithms_enabled(),
            torch.get_float32_matmul_precision(), torch.is_autocast_enabled("cpu"), mkldnn.enabled,
            cpu.get_cpu_capability(), cuda.flash_sdp_enabled(), cuda.math_sdp_enabled(),
            cuda.mem_efficient_sdp_enabled(), "transformers.integrations.moe" in sys.modules,
        ])  # fmt: skip
        if self.program.range_constraints:
            raise Uncached("has dynamic shapes")
        yield f"dims {sorted(dim_sizes().items())}"
        signature = self.program.graph_signature
        yield from map(self._text, (*signature.input_specs, *signature.output_specs))
        yield from self._tensors()
        yield from self._graph(self.program.graph_module)

    def _tensors(self) -> Iterator[str]:
        """The tensors of the model and of the example call, with the memory that each tensor uses."""
        parameters = {
            spec.target
            for spec in self.program.graph_signature.input_specs
            if spec.kind is InputKind.PARAMETER
        }
        for name, value in sorted(state_of(self.program).items()):
            if not isinstance(value, Tensor):
                raise Uncached(f"has the constant '{name}' of the class {type(value).__name__}")
            content = "" if name in parameters else content_digest(value)
            yield f"state {name} {self._tensor(value)} {content}"
        spec = self.program.call_spec
        yield f"leaves {spec.in_spec and spec.in_spec.num_leaves} {spec.out_spec and spec.out_spec.num_leaves}"
        for leaf in pytree.tree_leaves(self.program.example_inputs):
            yield f"leaf {self._tensor(leaf) if isinstance(leaf, Tensor) else self._text(leaf)}"

    def _tensor(self, tensor: Tensor) -> str:
        """Text of a real tensor: its class, its type, its place in a memory and the names of its dims."""
        memory = tensor.untyped_storage()
        number = self._memories.setdefault(memory._cdata, len(self._memories))
        has_numbers = not isinstance(tensor, FakeTensor)
        kind = "parameter" if isinstance(tensor, torch.nn.Parameter) else "tensor"
        return (
            f"{kind} {has_numbers} {_shape_text(tensor)} in {number} of {memory.nbytes()} "
            f"at {tensor.storage_offset()} dims {names_of(tensor)}"
        )

    def _graph(self, module: GraphModule) -> Iterator[str]:
        """The nodes of a graph; the graph of a branch follows the node that names the branch."""
        for node in module.graph.nodes:
            meta = {
                key: self._meta(key, value) for key, value in sorted(node.meta.items()) if key != _COUNTER
            }
            target = self._text(node.target) if node.op == "call_function" else str(node.target)
            yield f"{node.op} {node.name} {target} {self._text([node.args, node.kwargs])} {meta}"
            if node.op != "get_attr":
                continue
            value = operator.attrgetter(node.target)(module)
            if isinstance(value, GraphModule):
                yield from self._graph(value)
            elif isinstance(value, Tensor):
                yield f"attribute {self._tensor(value)} {content_digest(value)}"
            else:
                raise Uncached(f"has an attribute of the class {type(value).__name__} in its graph")

    def _meta(self, key: str, value: Any) -> str:
        if key == "from_node":
            return self._text([_sources(source) for source in value])
        if key == "custom" and isinstance(value, Mapping):
            return self._text({self._hints.get(name, name): note for name, note in value.items()})
        return self._text(value)

    def _text(self, value: Any) -> str:
        """Text of a value by its type; ``Uncached`` for a type whose text may be incomplete."""
        if value is None or type(value) in (bool, int, str, float, complex, bytes):
            return repr(value)
        if isinstance(value, Node):
            return f"%{value.name}"
        if isinstance(value, _RECORDS):
            fields = value._asdict() if isinstance(value, tuple) else vars(value)
            return f"{type(value).__name__}({self._text(dict(fields))})"
        if isinstance(value, _PLAIN_TYPES) or isinstance(value, enum.Enum):
            return f"{type(value).__name__} {value}"
        if type(value) in (tuple, list, immutable_list):
            return f"{'(' if isinstance(value, tuple) else '['}{', '.join(map(self._text, value))}]"
        if type(value) in (dict, immutable_dict):
            return f"{{{', '.join(f'{self._text(key)}: {self._text(item)}' for key, item in value.items())}}}"
        if isinstance(value, Tensor):
            is_fake = isinstance(value, FakeTensor)
            return _shape_text(value) if is_fake else f"{self._tensor(value)} {content_digest(value)}"
        # The name of an operation of a known library.
        if isinstance(value, torch._ops.OpOverload):
            if value.namespace not in _LIBRARIES:
                raise Uncached(f"calls {value}, an operation of a library that may change")
            return f"operation {value}"
        if isinstance(value, torch._ops.HigherOrderOperator):
            return f"operator {value.name()}"
        if getattr(value, "__module__", "") in ("_operator", "math", "builtins") and callable(value):
            return f"function {value.__module__}.{value.__qualname__}"
        raise Uncached(f"has a value of the class {type(value).__qualname__} in its graph")


def _sources(source: Any) -> list[Any]:
    """Names of the nodes that a node comes from; the identity of their graph differs between processes."""
    return [source.name, str(source.target), [_sources(inner) for inner in source.from_node]]


def _shape_text(tensor: Tensor) -> str:
    """Text of the type of a tensor; ``Uncached`` for a tensor of unknown size or of a layout other than strided."""
    if tensor.layout != torch.strided:
        raise Uncached(f"has a tensor of the layout {tensor.layout}")
    sizes = (*tensor.shape, *tensor.stride(), tensor.storage_offset())
    if any(type(size) is not int for size in sizes):
        raise Uncached("has dynamic shapes")
    return f"{tensor.dtype} {sizes} {tensor.device} {tensor.requires_grad}"


# The entry of a model in the cache on disk (``driver/program_cache.py``).


@dataclass(frozen=True)
class ModelCache:
    """The cache entry of one model; the key is computed from ``captured``, the graph of the model."""

    programs: ProgramCache
    captured: ExportedProgram
    key: str

    @classmethod
    def open(
        cls, programs: ProgramCache | None, captured: Any, inputs: Any, choices: str
    ) -> ModelCache | None:
        """Return the entry of a captured model, called with ``inputs``; None without a cache or without a key."""
        if programs is None:
            return None
        try:
            source = captured_key(captured), input_layouts_key(inputs)
        # Any failure to compute a key only disables the cache; the model is compiled anyway.
        except Exception as reason:
            tell_uncached(str(reason) if isinstance(reason, Uncached) else f"has no key: {reason}")
            return None
        return cls(programs, captured, programs.key("model", *source, choices))

    def serve(self, restore: Callable[[StoredProgram, Signature], Program]) -> Program | None:
        """Return the program that ``restore`` creates; None if no entry is valid for the weights of the model."""

        def bound(stored: StoredProgram) -> Program | None:
            digests = stored.described["reads"]
            reads = ContentReads(set(digests["tensors"]), digests["inputs"] is not None)
            if content_digests(self.captured, reads) != digests:
                return None
            signature = signature_from_plain(stored.described["signature"], stored.arrays, self.captured)
            return restore(stored, signature)

        return self.programs.serve(self.key, bound)

    def keep(self, program: Program, signature: Signature, reads: ContentReads) -> None:
        """Write the entry of a program; ``reads`` are the tensors whose values the import has used."""
        weights = [argument.name for argument in signature.arguments]

        def store() -> StoredProgram:
            plain, arrays = signature_to_plain(signature, self.captured)
            digests = content_digests(self.captured, reads)
            return program.stored(self.key, reads=digests, signature=plain, arrays=arrays, weights=weights)

        self.programs.keep(self.key, store)
