# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The target that a module carries.

``sdsc.target = {cores = {usable = 4 : i64}, lx = {bytes = 1048576 : i64}}`` on a ``builtin.module`` are the fields that
differ from the packaged device file, by section. A module without it is for the default target; a run of
passes attaches the default target if it is not the packaged one.
"""

from __future__ import annotations

from typing import Any

from spyre_mlir.dialects.attributes import from_attribute, to_attribute
from spyre_mlir.errors import CompileError
from spyre_mlir.mlir import ir, location_of
from spyre_mlir.target.target import Target, default_target, packaged_target

TARGET = "sdsc.target"

_TARGETS: dict[str, Target] = {}


def target_of(op: ir.Operation | ir.OpView | ir.Module) -> Target:
    """Return the target of the module around an operation, or the default target.

    Args:
        op: The operation, or the module.

    Raises:
        CompileError: The target is malformed.
    """
    module = _module_of(op)
    if TARGET not in module.attributes:
        return default_target()
    text = str(module.attributes[TARGET])
    if text not in _TARGETS:
        location = location_of(module.location)
        try:
            sections: Any = from_attribute(module.attributes[TARGET])
        except TypeError:
            sections = None
        if not isinstance(sections, dict):
            raise CompileError(
                f"'{TARGET}' must be a dictionary of the sections of a device file, not {text}", location
            )
        _TARGETS[text] = packaged_target().overlaid(sections, location)
    return _TARGETS[text]


def empty_module(op: ir.Operation | ir.OpView) -> ir.Module:
    """Create a module, at the current location, for the target of the module around an operation."""
    module, around = ir.Module.create(), _module_of(op)
    if TARGET in around.attributes:
        module.operation.attributes[TARGET] = around.attributes[TARGET]
    return module


def _module_of(op: ir.Operation | ir.OpView | ir.Module) -> ir.Operation:
    """Return the module around an operation; a detached operation has no target."""
    module = op.operation
    while module.name != "builtin.module":
        module = module.parent.operation
    return module


def attach(module: ir.Operation | ir.OpView | ir.Module, target: Target) -> None:
    """Set the target of a module."""
    operation = module.operation
    with operation.context:
        operation.attributes[TARGET] = to_attribute(target.differences())


def settle(module: ir.Operation | ir.OpView | ir.Module) -> None:
    """Attach the default target to a module without a target, unless it is the packaged one: its text then has it."""
    if TARGET not in module.operation.attributes and default_target() != packaged_target():
        attach(module, default_target())
