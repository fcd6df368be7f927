"""Whether the device can run an operation: it is compiled alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from spyre_mlir.errors import CompileError
from spyre_mlir.mlir import ir
from spyre_mlir.passes._outlining import Outlined
from spyre_mlir.passes._stages import run_steps, to_device_ops
from spyre_mlir.remarks import Remarks
from spyre_mlir.timing import scope


@dataclass(frozen=True)
class Verdict:
    """Why the device cannot run an op, and where it says so; ``reason`` is empty if it can.

    ``is_part`` marks what it might run beside others: as a part of a fused operation, or in another format.
    """

    reason: str = ""
    location: str = ""
    is_part: bool = False


@dataclass
class DeviceTrials:
    """Compiles groups of ops to the level *laid out*; equal groups are tried once."""

    precision: str
    known: dict[str, Verdict] = field(default_factory=dict)

    def verdict(self, outlined: Outlined) -> Verdict:
        """Whether the ops of a group can be one program of the device."""
        module = _module(outlined)
        text = str(module)
        if text not in self.known:
            self.known[text] = self._tried(module)
        return self.known[text]

    @scope("trial")
    def _tried(self, module: ir.Module) -> Verdict:
        steps = to_device_ops(self.precision)
        alone = next(at for at, step in enumerate(steps) if step.startswith("apply-precision"))
        with Remarks().collecting():
            return (
                _failure(module, steps[:alone])
                or _failure(module, steps[alone:], is_part=True)
                or _failure(module, ("choose-layouts", "resolve-padding"))
                or Verdict()
            )


def _failure(module: ir.Module, steps: Sequence[str], is_part: bool = False) -> Verdict | None:
    """Runs passes; what they say if they refuse the module."""
    try:
        run_steps(module, steps)
    except CompileError as error:
        return Verdict(error.message, error.location, is_part)
    return None


def _module(outlined: Outlined) -> ir.Module:
    """A program of its own; its arguments are inputs."""
    with outlined.inside[0].context, ir.Location.unknown():
        made = ir.Module.create()
        with ir.InsertionPoint(made.body):
            outlined.build("main", [ir.DictAttr.get({})] * len(outlined.arguments), layouts=False)
        return made
