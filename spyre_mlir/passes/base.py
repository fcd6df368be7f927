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
user may want to change.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from spyre_mlir import remarks
from spyre_mlir.mlir import ir, location_of
from spyre_mlir.target.limits import DeviceOptions

PASSES: dict[str, type[Pass]] = {}


@dataclass(frozen=True)
class Pass(DeviceOptions):
    """One verb of the compiler: rewrites, or checks, a module in place."""

    name: ClassVar[str] = ""

    def __init_subclass__(cls) -> None:
        if not cls.__dict__.get("name"):
            return
        known = PASSES.setdefault(cls.name, cls)
        if (known.__module__, known.__qualname__) != (cls.__module__, cls.__qualname__):
            raise TypeError(f"Two passes are named '{cls.name}': {_origin(known)} and {_origin(cls)}.")
        PASSES[cls.name] = cls

    @classmethod
    def title(cls) -> str:
        return f"pass '{cls.name}'"

    def __str__(self) -> str:
        given = self.given()
        return f"{self.name}{{{given}}}" if given else self.name

    def run(self, module: ir.Operation) -> None:
        """Rewrite ``module`` (a ``builtin.module`` operation) in place."""
        raise NotImplementedError

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
        where = location_of(operation.location)
        remarks.add(remarks.Remark(self.name, where, operation.name, kind, reason, before, after))

    def warn(self, op: ir.Operation | ir.OpView, reason: str) -> None:
        """Record what is wrong with the user's program at ``op`` although it can be compiled."""
        self.remark(op, remarks.WARNING, reason)


def _origin(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"
