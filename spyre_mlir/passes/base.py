"""The base class of passes: a name, options as dataclass fields, help as the docstring.

    @dataclass(frozen=True)
    class ChooseLayouts(Pass):
        \"""Give every device tensor a stick layout.\"""

        name: ClassVar[str] = "choose-layouts"
        solver: str = "greedy"

        def run(self, module: ir.Operation) -> None:
            ...

The class statement registers the pass. A pass runs on the whole module. It raises ``CompileError`` for
what the user must change, and calls ``self.remark`` for every decision it takes, ``self.warn`` for what the
user may want to change. A pass that decides by what a choice costs is an ``EvaluatingPass``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Protocol

from spyre_mlir import remarks
from spyre_mlir.mlir import ir, location_of, source_note
from spyre_mlir.options import Options

if TYPE_CHECKING:
    from spyre_mlir.analysis.program_cost import ProgramCost

PASSES: dict[str, type[Pass]] = {}


@dataclass(frozen=True)
class Pass(Options):
    """One verb of the compiler: rewrites, or checks, a module in place."""

    name: ClassVar[str] = ""

    #: Whether evaluations run it where it is a part of the rest of a pipeline.
    is_evaluated: ClassVar[bool] = True

    def __init_subclass__(cls) -> None:
        if not cls.__dict__.get("name"):
            return
        # A module that is loaded twice defines its passes twice; only other classes are a conflict.
        known = PASSES.setdefault(cls.name, cls)
        if (known.__module__, known.__qualname__) != (cls.__module__, cls.__qualname__):
            raise TypeError(f"Two passes are named '{cls.name}': {_origin(known)} and {_origin(cls)}.")
        PASSES[cls.name] = cls

    @classmethod
    def title(cls) -> str:
        return f"pass '{cls.name}'"

    @classmethod
    def unknown_option(cls, key: str) -> str:
        """Return the message for an option that the pass does not have; some are of the target."""
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
        """Record a decision about ``op``; ``before`` and ``after`` are costs in the unit the reason names."""
        operation = op.operation
        where, path = location_of(operation.location), source_note(operation.location, "module")
        remarks.add(remarks.Remark(self.name, where, operation.name, kind, reason, before, after, path))

    def warn(self, op: ir.Operation | ir.OpView, reason: str) -> None:
        """Record what is wrong with the user's program at ``op`` although it can be compiled."""
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
        """Evaluate the bundle by its timeline; None if the rest refuses the module."""
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

    def run(self, module: ir.Operation) -> None:
        """Rewrite ``module`` in place as the pass does where nothing can be evaluated."""
        self.decide(module, NoEvaluator())

    def decide(self, module: ir.Operation, evaluator: Evaluator) -> None:
        """Rewrite ``module`` in place."""
        raise NotImplementedError


def _origin(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"
