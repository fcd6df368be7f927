# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Programs of PyTorch models: weights, calling convention, and entries in the cache on disk."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numpy.typing import NDArray

from spyre_mlir.driver.program import Program
from spyre_mlir.driver.program_cache import ProgramCache, tell_uncached
from spyre_mlir.driver.program_calls import Bound
from spyre_mlir.driver.stored_program import StoredProgram
from spyre_mlir.errors import Uncached
from spyre_mlir.frontend.capture_key import captured_key, content_digests, input_layouts_key
from spyre_mlir.frontend.content_reads import ContentReads
from spyre_mlir.frontend.signature import (
    Argument,
    Signature,
    signature_from_plain,
    signature_to_plain,
    to_numpy,
)
from spyre_mlir.records import dataclass


def bind_model(program: Program, signature: Signature) -> None:
    """Bind the weights of a model to its program, and set the calling convention of the model."""
    program.arrays.update(weights_of(signature))
    program.signature = signature

    def bind(*values: Any, **named: Any) -> Bound:
        call = signature.bind(values, named, program.state)
        names = (argument.name for argument in signature.arguments)
        return dict(zip(names, call.operands(), strict=True)), call.finish

    program._bind = bind


def bind_inputs(program: Program, signature: Signature) -> None:
    """Set the calling convention of a model for a program that already has its weights."""
    program.signature = signature

    def bind(*values: Any, **named: Any) -> Bound:
        call = signature.bind(values, named, program.state)
        pairs = zip(signature.arguments, call.operands(), strict=True)
        return {
            argument.name: operand for argument, operand in pairs if argument.kind == "input"
        }, call.finish

    program._bind = bind


def _is_given(argument: Argument) -> bool:
    """Return whether a call passes the array of an argument."""
    return argument.kind == "input" or argument.leaf is not None


def weights_of(signature: Signature) -> dict[str, NDArray[Any]]:
    """Return the weights and constants of a model by name, as arrays that share memory with its tensors."""
    weights = (argument for argument in signature.arguments if argument.kind != "input")
    return {argument.name: to_numpy(argument.tensor) for argument in weights}


@dataclass(frozen=True)
class ModelCache:
    """The cache entry of one model; the key is computed from ``captured``, the graph of the model."""

    programs: ProgramCache
    captured: Any
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

    def serve(self, restore: Callable[[StoredProgram], Program]) -> Program | None:
        """Return the program of the entry, bound to the model's weights; None if no entry is valid for them."""

        def bound(stored: StoredProgram) -> Program | None:
            digests = stored.described["reads"]
            reads = ContentReads(set(digests["tensors"]), digests["inputs"] is not None)
            if content_digests(self.captured, reads) != digests:
                return None
            program = restore(stored)
            signature = signature_from_plain(stored.described["signature"], stored.arrays, self.captured)
            bind_model(program, signature)
            return program

        return self.programs.serve(self.key, bound)

    def keep(self, program: Program, signature: Signature, reads: ContentReads) -> None:
        """Write the entry of a program; ``reads`` are the tensors whose values the import has used."""
        weights = [argument.name for argument in signature.arguments]

        def store() -> StoredProgram:
            plain, arrays = signature_to_plain(signature, self.captured)
            digests = content_digests(self.captured, reads)
            return StoredProgram.of(self.key, program, program.source_text(), digests, plain, arrays, weights)

        self.programs.keep(self.key, store)
