# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Calls of a model by a tracer: objects of any class as inputs and results, and Python changes during the call.

A tracer accepts pytrees of tensors. ``_ModelTrace`` lets the tracer call the model with inputs built from its tensors,
and returns the ``CallOutcome`` of the call, which includes changes of the inputs. The model and everything that it
reaches are restored. A program cannot repeat state changes of the call: the model then runs in pieces.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import itertools
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any, cast

import torch
from torch.export import ExportedProgram
from torch.fx.traceback import preserve_node_meta
from torch.utils import _pytree as pytree

from spyre_mlir.compile_lock import builtins_kept
from spyre_mlir.errors import Uncached, UncapturedError
from spyre_mlir.frontend.call_objects import CallInputs, CallOutcome, ModelEffect, plain_call
from spyre_mlir.frontend.capture_key import captured_key
from spyre_mlir.frontend.hints import name_tensor_dims, names_of
from spyre_mlir.frontend.object_graphs import (
    container_of,
    contents,
    flatten,
)
from spyre_mlir.frontend.object_state import ObjectState, StateChange

_REMEDY = "keep it in a buffer, or take it as an input and return it"


def export_call(
    module: torch.nn.Module,
    inputs: CallInputs,
    call: tuple[tuple[Any, ...], dict[str, Any]],
) -> ExportedProgram:
    """Export a module called with ``inputs``, which torch.export receives as the pytrees ``call``.

    A model that sets something in its first call only, such as a cache, is traced again: it is one program if both
    traces have the same key.
    """
    first, second = _ModelTrace(module, inputs), _ModelTrace(module, inputs)
    with first.calling():
        program = _exported(module, *call)
    if first.effect is None:
        return program
    with second.calling(after=first.effect):
        again = _exported(module, *call)
    if second.effect is not None or not _is_one_program(program, again):
        raise UncapturedError(
            f"The model {first.change} in a call, so the next call computes something else; {_REMEDY}."
        )
    spec = cast(pytree.TreeSpec, program.call_spec.out_spec)
    object.__setattr__(spec.context, "effect", ModelEffect(first.effect))
    return program


def _is_one_program(one: ExportedProgram, other: ExportedProgram) -> bool:
    specs = [program.call_spec.out_spec for program in (one, other)]
    try:
        return specs[0] == specs[1] and captured_key(one) == captured_key(other)
    except Uncached:
        return False


class _ModelTrace:
    """One trace: ``change`` describes what the model has changed, and ``effect`` applies the changes again."""

    def __init__(self, module: torch.nn.Module, inputs: CallInputs) -> None:
        self.change = ""
        self.effect: Callable[[], None] | None = None
        self._module, self._inputs = module, inputs
        self._after: Callable[[], None] | None = None
        self._is_running = False
        self._registered = _registered(module)

    @contextlib.contextmanager
    def calling(self, after: Callable[[], None] | None = None) -> Iterator[None]:
        """Context in which a tracer calls the module through another ``forward``, in the state that ``after`` sets."""
        # A tracer replaces containers of the model by equal containers.
        untouched = ObjectState([self._module])
        original = self._module.forward
        has_its_own = "forward" in vars(self._module)
        self._after = after
        tracer = threading.get_ident()

        @functools.wraps(original)
        def forward(*args: Any, **kwargs: Any) -> Any:
            """Call the model as the tracer does."""
            # During the trace another thread may call the model, and the model may call itself.
            if threading.get_ident() != tracer or self._is_running:
                return original(*args, **kwargs)
            self._is_running = True
            try:
                return self._run(original, args, kwargs)
            finally:
                self._is_running = False

        self._module.forward = forward
        try:
            yield
        finally:
            if has_its_own:
                self._module.forward = original
            else:
                del self._module.forward
            untouched.restore()

    def _run(
        self, model: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> CallOutcome:
        (args, kwargs), objects, leaves = plain_call((args, kwargs), self._inputs.graph)
        before = {
            index: parts
            for index, value in enumerate(objects)
            if container_of(type(value)) is not tuple and (parts := contents(value)) is not None
        }
        kept = ObjectState([self._module, model], registered=False)
        try:
            if self._after is not None:
                self._after()
            state = ObjectState([self._module, model], registered=False) if self._after else kept
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
        if any(isinstance(leaf, torch.Tensor) for change in changes for leaf in flatten([change.now])[1]):
            raise UncapturedError(
                f"The model {self.change} in a call, and one program returns tensors alone; {_REMEDY}."
            )

        def effect() -> None:
            """Apply the changes."""
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
        names = _registered(self._module)
        pairs = (
            (self._registered.get(id(one)), names.get(id(other))) for one, other in zip(old, new, strict=True)
        )
        return all(one is not None and one == other for one, other in pairs)

    def _check_inputs(self, args: Any, kwargs: Any, leaves: list[Any]) -> None:
        """Raise ``UncapturedError`` if the next call with the same inputs would need another program."""
        after = CallInputs(args, kwargs, self._names())
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

    def _names(self) -> list[str]:
        return list(inspect.signature(self._module.forward).parameters)


def _registered(module: torch.nn.Module) -> dict[int, str]:
    """Names of the parameters and buffers of a module by identity."""
    named = itertools.chain(module.named_parameters(), module.named_buffers())
    return {id(tensor): name for name, tensor in named}


def _exported(module: torch.nn.Module, args: Any, kwargs: Any) -> ExportedProgram:
    # The last annotations of one trace must not appear on the first nodes of the next trace.
    with preserve_node_meta():
        with builtins_kept():
            program = torch.export.export(module, args, kwargs)
    forget_notes_on_inputs(program)
    return program


def separated(call: Any) -> Any:
    """Operands of a call, with repeated tensors as separate inputs, which torch.export would otherwise merge."""
    seen: set[int] = set()

    def separate(tensor: torch.Tensor) -> torch.Tensor:
        """Return the tensor on its first occurrence, otherwise an alias of it; parameters stay shared."""
        if id(tensor) not in seen or isinstance(tensor, torch.nn.Parameter):
            seen.add(id(tensor))
            return tensor
        copy = tensor.detach()
        if names_of(tensor):
            name_tensor_dims(copy, names_of(tensor))
        return copy

    return pytree.tree_map_only(torch.Tensor, separate, call)


def forget_notes_on_inputs(program: ExportedProgram) -> None:
    """Drop Dynamo's annotation on the inputs of a traced function: Dynamo rejects a different one in a subgraph."""
    for node in program.graph.find_nodes(op="placeholder"):
        node.meta.pop("custom", None)
