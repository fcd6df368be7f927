# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The base class of passes: a name, options as dataclass fields, help as the docstring.

    @dataclass(frozen=True)
    class ChooseLayouts(Pass):
        \"""Give every device tensor a stick layout.\"""

        name: ClassVar[str] = "choose-layouts"
        solver: str = "greedy"

        def run(self, module: ir.Operation) -> None:
            ...

The class statement registers the pass; ``TypeError`` for a name that the compiler or upstream has, and for a class
without the method that runs it. A pass runs on the whole module. It raises ``CompileError`` for
what the user must change, and calls ``self.remark`` for every decision it takes, ``self.warn`` for what the
user may want to change. A pass that decides by what a choice costs is an ``EvaluatingPass``.
"""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Protocol

from spyre_mlir import remarks
from spyre_mlir.mlir import PassManager, ir, location_of, source_note
from spyre_mlir.options import Options
from spyre_mlir.records import dataclass

if TYPE_CHECKING:
    from spyre_mlir.analysis.program_cost import ProgramCost

PASSES: dict[str, type[Pass]] = {}

#: The package of the compiler's passes, and what may be the name of one.
_PACKAGE = "spyre_mlir.passes"
_NAME = re.compile(r"[A-Za-z_][\w.-]*")


@dataclass(frozen=True)
class Pass(Options):
    """One verb of the compiler: rewrites, or checks, a module in place.

    Attributes:
        name: The name of the pass in pipelines. A subclass that has one is known by it.
        is_evaluated: Evaluations run it where it is a part of the rest of a pipeline.
    """

    name: ClassVar[str] = ""

    #: Whether evaluations run it where it is a part of the rest of a pipeline.
    is_evaluated: ClassVar[bool] = True

    #: The method that runs it, and its parameters.
    _entry: ClassVar[tuple[str, str]] = ("run", "self, module")

    def __init_subclass__(cls) -> None:
        if not cls.__dict__.get("name"):
            return
        if not is_ours(cls):
            _require_own_name(cls)
        # A module that is loaded twice defines its passes twice; only other classes are a conflict.
        known = PASSES.get(cls.name, cls)
        if (known.__module__, known.__qualname__) != (cls.__module__, cls.__qualname__):
            raise TypeError(f"Two passes are named '{cls.name}': {_origin(known)} and {_origin(cls)}.")
        if not is_ours(cls):
            _require_method(cls, *cls._entry)
        PASSES[cls.name] = cls

    @classmethod
    def title(cls) -> str:
        return f"pass '{cls.name}'"

    @classmethod
    def unknown_option(cls, key: str) -> str:
        """Return the message for an option that the pass does not have; some are of the target."""
        if key.replace("-", "_") in inspect.get_annotations(cls):
            return (
                f"The {cls.title()} has no option '{key}', for its class is no dataclass: write "
                "'@dataclass(frozen=True)' above it."
            )
        if key.replace("-", "_") not in ("device", "sencores", "lx_frac_avail"):
            return super().unknown_option(key)
        return f"The {cls.title()} has no option '{key}'; 'attach-target{{{key}=..}}' in front sets it for all passes."

    def __str__(self) -> str:
        options = self.given()
        return f"{self.name}{{{options}}}" if options else self.name

    def run(self, module: ir.Operation) -> None:
        """Rewrite ``module`` (a ``builtin.module`` operation) in place."""
        raise NotImplementedError

    def in_evaluation(self) -> Pass | None:
        """Return the pass as an evaluation runs it; None if it leaves the pass out."""
        return self if self.is_evaluated else None

    def remark(
        self,
        op: ir.Operation | ir.OpView,
        kind: str,
        reason: str,
        before: float | None = None,
        after: float | None = None,
    ) -> None:
        """Record a decision.

        Args:
            op: The operation that it is about.
            kind: What was decided, as a word.
            reason: Why, as a sentence.
            before: The cost before, in the unit that the reason names.
            after: The cost after, in the same unit.
        """
        operation = op.operation
        where, path = location_of(operation.location), source_note(operation.location, "module")
        remarks.add(remarks.Remark(self.name, where, operation.name, kind, reason, before, after, path))

    def warn(self, op: ir.Operation | ir.OpView, reason: str) -> None:
        """Record what is wrong with the user's program at ``op``, a ``reason``, although it can be compiled."""
        self.remark(op, remarks.WARNING, reason)


@dataclass(frozen=True)
class Refusal:
    """The diagnostic of the passes that refuse a module.

    ``is_part`` marks a module that may run beside others: as a part of a fused operation, or in another format.
    """

    reason: str
    location: str = ""
    is_part: bool = False


class Evaluator(Protocol):
    """The rest of the pipeline that a pass is in, as a way to evaluate modules of the level that the pass leaves.

    The rest runs on the module that is given, in place, with its options and with the passes of the user among it;
    passes that evaluate themselves are left out, or decide as they do without an evaluator (``is_evaluated``).
    """

    def behind(self, name: str) -> Pass | None:
        """Return the pass of that name in the rest; None if there is none."""
        ...

    def cost(self, module: ir.Module) -> ProgramCost | None:
        """Evaluate the buffers' places by the cost model; None if the rest refuses the module.

        Equal modules are evaluated once.
        """
        ...

    def time(self, module: ir.Module) -> ProgramCost | None:
        """Evaluate the bundle by its timeline; None if the rest refuses the module.

        Modules that are equal when their scratchpads are to be planned are evaluated once.
        """
        ...

    def refusal(self, module: ir.Module) -> Refusal | None:
        """Return why the device cannot run a module: the diagnostic of the passes up to layouts; None if it can."""
        ...


class NoEvaluator:
    """An ``Evaluator`` without a pipeline: it refuses nothing, and nothing has a cost."""

    def behind(self, name: str) -> Pass | None:
        """Return None."""
        return None

    def cost(self, module: ir.Module) -> ProgramCost | None:
        """Return None."""
        return None

    def time(self, module: ir.Module) -> ProgramCost | None:
        """Return None."""
        return None

    def refusal(self, module: ir.Module) -> Refusal | None:
        """Return None."""
        return None


@dataclass(frozen=True)
class EvaluatingPass(Pass):
    """A pass that decides by what its choices cost; the runner gives it an evaluator."""

    is_evaluated: ClassVar[bool] = False
    _entry: ClassVar[tuple[str, str]] = ("decide", "self, module, evaluator")

    def run(self, module: ir.Operation) -> None:
        """Rewrite ``module`` in place as the pass does where nothing can be evaluated."""
        self.decide(module, NoEvaluator())

    def decide(self, module: ir.Operation, evaluator: Evaluator) -> None:
        """Rewrite ``module`` in place."""
        raise NotImplementedError


def _origin(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


def is_ours(cls: type[Pass]) -> bool:
    """Return whether a pass is one of the compiler's, and not a user's."""
    return cls.__module__.startswith(f"{_PACKAGE}.")


def _require_method(cls: type[Pass], name: str, parameters: str) -> None:
    """``TypeError`` for a class that lacks the method of a pass, or has it with other parameters."""
    method = getattr(cls, name)
    if method in (getattr(base, name, None) for base in (Pass, EvaluatingPass)):
        raise TypeError(f"The pass '{cls.name}' has no method '{name}({parameters})', which runs it.")
    try:
        inspect.signature(method).bind(*[None] * len(parameters.split(",")))
    except TypeError:
        raise TypeError(
            f"The method '{name}' of the pass '{cls.name}' takes {inspect.signature(method)}; it must take "
            f"({parameters})."
        ) from None


def _require_own_name(cls: type[Pass]) -> None:
    """``TypeError`` for a name that no pipeline could hold, or that another pass has there."""
    if not _NAME.fullmatch(cls.name):
        raise TypeError(f"'{cls.name}' cannot be the name of a pass, which has letters, digits and dashes.")
    if Path(__file__).with_name(f"{cls.name.replace('-', '_')}.py").is_file():
        raise TypeError(
            f"The compiler has a pass named '{cls.name}'; give the class '{cls.__qualname__}' another name."
        )
    if _is_upstream(cls.name):
        raise TypeError(
            f"MLIR has a pass named '{cls.name}'; give the class '{cls.__qualname__}' another name."
        )


def _is_upstream(name: str) -> bool:
    with ir.Context():
        try:
            PassManager("builtin.module").add(name)
        except ValueError as error:
            return "does not refer to a registered pass" not in str(error)
    return True
