# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The base class of passes: a pass has a name, options as dataclass fields, and its help as the docstring.

    @dataclass(frozen=True)
    class ChooseLayouts(Pass):
        \"""Give every device tensor a stick layout.\"""

        name: ClassVar[str] = "choose-layouts"
        solver: str = "greedy"

        def run(self, module: ir.Operation) -> None:
            ...

The class statement registers the pass. It raises ``TypeError`` if the name is a pass of the compiler or of upstream, or
if the class does not have a ``run`` method. A pass runs on the whole module; a pass of the compiler may have ``run_on``
instead, which runs on each function. It raises ``CompileError`` for a problem that the user must fix, calls
``self.remark`` for every decision, and calls ``self.warn`` for a problem that the user may want to fix. A pass that
evaluates the costs of its choices is an ``EvaluatingPass``.
"""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Protocol

from spyre_mlir import remarks
from spyre_mlir.analysis.aliasing import functions
from spyre_mlir.mlir import PassManager, ir, location_of, source_note
from spyre_mlir.options import Options
from spyre_mlir.records import Statement, dataclass

if TYPE_CHECKING:
    from spyre_mlir.analysis.program_cost import ProgramCost

PASSES: dict[str, type[Pass]] = {}

#: The package of the compiler's passes, and the pattern of pass names.
_PACKAGE = "spyre_mlir.passes"
_NAME = re.compile(r"[A-Za-z_][\w.-]*")


@dataclass(frozen=True)
class Pass(Options):
    """A pass of the compiler, which rewrites a module in place, or checks a module.

    Attributes:
        name: The name of the pass in pipelines. A subclass with a name is registered under it.
        is_evaluated: Whether evaluations run the pass if it is among the remaining passes of a pipeline.
    """

    name: ClassVar[str] = ""
    is_evaluated: ClassVar[bool] = True

    #: The method that runs the pass, and its parameters.
    _entry: ClassVar[tuple[str, str]] = ("run", "self, module")

    def __init_subclass__(cls) -> None:
        if not cls.__dict__.get("name"):
            return
        if not is_ours(cls):
            if not _NAME.fullmatch(cls.name):
                raise TypeError(
                    f"'{cls.name}' cannot be the name of a pass, which has letters, digits and dashes."
                )
            is_ours_too = Path(__file__).with_name(f"{cls.name.replace('-', '_')}.py").is_file()
            if is_ours_too or _is_upstream(cls.name):
                owner = "The compiler" if is_ours_too else "MLIR"
                text = f"{owner} has a pass named '{cls.name}'; give the class '{cls.__qualname__}' another name."
                raise TypeError(text)
        # A Python module that is loaded twice defines its passes twice; only different classes are a conflict.
        known, new = (f"{each.__module__}.{each.__qualname__}" for each in (PASSES.get(cls.name, cls), cls))
        if known != new:
            raise TypeError(f"Two passes are named '{cls.name}': {known} and {new}.")
        if not is_ours(cls):
            name, parameters = cls._entry
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
        PASSES[cls.name] = cls

    @classmethod
    def title(cls) -> str:
        return f"pass '{cls.name}'"

    @classmethod
    def unknown_option(cls, key: str, separator: str = "-") -> str:
        """Return the message for an option that the pass does not have. Some options belong to ``attach-target``."""
        if key.replace("-", "_") in inspect.get_annotations(cls):
            return (
                f"The {cls.title()} has no option '{key}', for its class is not a dataclass: write "
                "'@dataclass(frozen=True)' above it."
            )
        if key.replace("-", "_") not in ("device", "sencores", "lx_frac_avail"):
            return super().unknown_option(key, separator)
        return f"The {cls.title()} has no option '{key}'; 'attach-target{{{key}=..}}' sets it for all later passes."

    def __str__(self) -> str:
        options = self.given()
        return f"{self.name}{{{options}}}" if options else self.name

    def run(self, module: ir.Operation) -> None:
        """Rewrite ``module`` (a ``builtin.module`` operation) in place, by default function by function."""
        for func in functions(module):
            self.run_on(func)

    def run_on(self, func: ir.Operation) -> None:
        """Rewrite a function in place; ``run`` calls this for each function of a module.

        Args:
            func: A ``func.func`` operation.
        """
        raise NotImplementedError

    def in_evaluation(self) -> Pass | None:
        """Return the pass in the form that an evaluation runs; None if evaluations skip the pass."""
        return self if self.is_evaluated else None

    def remark(
        self,
        op: ir.Operation | ir.OpView,
        kind: str,
        reason: str | Statement,
        before: float | None = None,
        after: float | None = None,
    ) -> None:
        """Record a decision about ``op``: its ``kind``, as a word, and the ``reason``, as a sentence or record.

        ``before`` and ``after`` are costs, in the unit that the reason names.
        """
        operation = op.operation
        where, path = location_of(operation.location), source_note(operation.location, "module")
        data = reason if isinstance(reason, Statement) else None
        given = self.name, where, operation.name, kind, str(reason)
        remarks.add(remarks.Remark(*given, before, after, path, data))

    def warn(self, op: ir.Operation | ir.OpView, reason: str) -> None:
        """Record a warning about the program at ``op``; ``reason`` describes a problem that allows compilation."""
        self.remark(op, remarks.WARNING, reason)


@dataclass(frozen=True)
class Refusal:
    """The diagnostic of the passes that refuse a module.

    ``is_part`` marks a module that may still run as a part of a fused operation or in another format.
    """

    reason: str
    location: str = ""
    is_part: bool = False


class Evaluator(Protocol):
    """The remaining passes of a pipeline, which evaluate modules at the level that a pass produces.

    The remaining passes run on the given module, in place, with their options, including user-defined passes. Passes
    that evaluate choices themselves are skipped, or decide as they do without an evaluator (``is_evaluated``).
    """

    def behind(self, name: str) -> Pass | None:
        """Return the pass named ``name`` among the remaining passes; None if there is none."""
        ...

    def cost(self, module: ir.Module) -> ProgramCost | None:
        """Evaluate the placements of buffers with the cost model; None if the remaining passes refuse the module.

        Equal modules are evaluated once.
        """
        ...

    def time(self, module: ir.Module) -> ProgramCost | None:
        """Evaluate the bundle by its timeline; None if the remaining passes refuse the module.

        Modules that are equal just before scratchpad planning are evaluated once.
        """
        ...

    def refusal(self, module: ir.Module) -> Refusal | None:
        """Return the diagnostic of the passes up to layouts if the device cannot run a module; else None."""
        ...


class NoEvaluator:
    """An ``Evaluator`` without a pipeline: it refuses no module and returns no costs."""

    def behind(self, name: str) -> None:
        return None

    def cost(self, module: ir.Module) -> None:
        return None

    time = refusal = cost


@dataclass(frozen=True)
class EvaluatingPass(Pass):
    """A pass that decides by the costs of its choices; the runner provides the evaluator."""

    is_evaluated: ClassVar[bool] = False
    _entry: ClassVar[tuple[str, str]] = ("decide", "self, module, evaluator")

    def run(self, module: ir.Operation) -> None:
        """Rewrite ``module`` in place with the decisions that the pass makes without an evaluator."""
        self.decide(module, NoEvaluator())

    def decide(self, module: ir.Operation, evaluator: Evaluator) -> None:
        """Rewrite ``module`` in place, by default function by function."""
        for func in functions(module):
            self.decide_on(func, evaluator)

    def decide_on(self, func: ir.Operation, evaluator: Evaluator) -> None:
        """Rewrite a function in place."""
        raise NotImplementedError


def is_ours(cls: type[Pass]) -> bool:
    """Return whether a pass is part of the compiler and not user-defined."""
    return cls.__module__.startswith(f"{_PACKAGE}.")


def _is_upstream(name: str) -> bool:
    with ir.Context():
        try:
            PassManager("builtin.module").add(name)
        except ValueError as error:
            return "does not refer to a registered pass" not in str(error)
    return True
