# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Names of graphs of torch.compile, and the places of graph breaks, for reports."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Literal

from torch._dynamo.utils import graph_break_reasons
from torch._guards import CompileContext
from torch.fx import GraphModule

from spyre_mlir.records import dataclass
from spyre_mlir.target.element_types import dtype_name

Kind = Literal["graph", "forward", "backward"]

#: A frame in the stack that Dynamo records for a node, and the name of a function resumed after a graph break.
_FRAME = re.compile(r'File "([^"]*)", line (\d+), in (\S+)')
_RESUMED = re.compile(r"torch_dynamo_resume_in_(.*)_at_\d+")

#: Number of digest digits in a name.
_DIGITS = 8


@dataclass(frozen=True)
class GraphLabel:
    """A graph of Dynamo, or its forward or backward graph, for inputs of given shapes.

    ``compile_id`` is Dynamo's: the number of the frame and of its compilation. ``place`` is ``file:line`` of the first
    operation, in ``function``. ``content`` is the text of the graph.
    """

    kind: Kind
    compile_id: str
    place: str
    function: str
    content: str
    inputs: tuple[str, ...] = ()

    @classmethod
    def of(cls, graph: GraphModule, kind: Kind = "graph", part: GraphModule | None = None) -> GraphLabel:
        """Describe a graph of Dynamo, or the ``part`` of it that AOTAutograd built."""
        place, function = _first_place(graph)
        modules = (module for module in (part or graph).modules() if isinstance(module, GraphModule))
        # Addresses of functions differ between runs.
        content = re.sub(r"0x[0-9a-f]+", "", "\n".join(str(module.graph) for module in modules))
        return cls(kind, str(CompileContext.current_compile_id() or "0/0"), place, function, content)

    def for_inputs(self, inputs: Sequence[Any]) -> GraphLabel:
        """Return the label of a program for these inputs."""
        texts = []
        for value in inputs:
            shape = getattr(value, "shape", None)
            dtype = dtype_name(getattr(value, "dtype", ""))
            texts.append(repr(value) if shape is None else f"{dtype} {list(shape)}")
        return replace(self, inputs=tuple(texts))

    def name(self, options: str) -> str:
        """Return a name for files: the same name for the same graph, inputs and options in any process."""
        text = "\n".join([self.content, *self.inputs, options])
        digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
        return f"{self.kind}_{re.sub(r'[^0-9]+', '_', self.compile_id)}_{digest[:_DIGITS]}"


Keep = Callable[[GraphLabel, Any], None]


def keeping(compile: Callable[..., Any], label: GraphLabel, keep: Keep | None) -> Callable[..., Any]:
    """Wrap ``compile`` so that ``keep`` is called with the label and the program of each compilation."""
    if keep is None:
        return compile

    def compile_and_keep(function: Callable[..., Any], inputs: Sequence[Any]) -> Any:
        program = compile(function, inputs)
        keep(label.for_inputs(inputs), program)
        return program

    return compile_and_keep


def _first_place(graph: GraphModule) -> tuple[str, str]:
    """Return the place and the function of the first operation, in its innermost frame; empty if none has one.

    If all frames belong to PyTorch, as in a ``Sequential``, the function is the class of the outermost module.
    """
    operations = [node for node in graph.graph.nodes if node.op not in ("placeholder", "output")]
    for node in operations:
        if frames := _FRAME.findall(node.stack_trace or ""):
            file, line, function = frames[-1]
            return f"{file}:{line}", _readable_function(function)
    for node in operations:
        for _, cls in (node.meta.get("nn_module_stack") or {}).values():
            return "", cls if isinstance(cls, str) else cls.__name__
    return "", ""


def _readable_function(name: str) -> str:
    match = _RESUMED.fullmatch(name)
    return match[1] if match else name


@dataclass(frozen=True)
class GraphBreak:
    """A place at which Dynamo ended a graph: the reason as a sentence, and the details that Dynamo adds."""

    place: str
    function: str
    line: str
    reason: str
    details: str


def graph_breaks() -> list[GraphBreak]:
    """Return the graph breaks of the process since Dynamo was last reset; each place and reason once."""
    breaks = []
    for entry in graph_break_reasons:
        reason, _, details = str(entry.reason).partition("\n")
        if reason.startswith("generic_jump"):
            reason, details = "A branch depends on the value of a tensor", reason
        frame = entry.user_stack[-1] if entry.user_stack else None
        place = f"{frame.filename}:{frame.lineno}" if frame else ""
        function, line = (_readable_function(frame.name), frame.line or "") if frame else ("", "")
        breaks.append(GraphBreak(place, function, line, reason, details.strip()))
    return list(dict.fromkeys(breaks))
