# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Changes of types: host work moves to the device, and tensors wider than fp16 need fewer bytes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from spyre_mlir.findings.planned import PlannedProgram
from spyre_mlir.findings.remedy import Freeze, Halve, Remedy

KIND, WIDE = "work on the host", "wide types"

#: Types that need at least twice the bytes of fp16.
_WIDE_TYPES = ("float32", "float64")

#: Maximum number of reasons that a sentence names.
_NAMED = 2


def host_work(program: PlannedProgram) -> Iterator[Remedy]:
    """Yield changes of types, and inputs that may be buffers, for a program that runs partly on the host."""
    if not program.is_model or not program.host.operations:
        return
    first = program.host_remarks[0] if program.host_remarks else None
    module, location = (first.module, first.op_location) if first else ("", "")
    problem = f"The host runs {program.host.operations:,} operations of each call"
    if program.host.float_operations:
        problem += f", {program.host.float_operations:,} calculations with floats"
    cause = _cause(program)
    if program.options.get("autocast") is None:
        text = "spyre_mlir.compile(model, inputs, autocast=torch.float16)"
        yield Remedy(
            KIND,
            f"{problem}.",
            cause,
            text,
            program.ns,
            {"autocast": "float16"},
            module=module,
            location=location,
        )
    text = "model.half(), called with inputs of torch.float16"
    yield Remedy(KIND, f"{problem}.", cause, text, program.ns, edit=Halve(), module=module, location=location)
    whole = [value for value in program.inputs if "int" in value.dtype or value.dtype == "bool"]
    if whole and len(whole) < len(program.inputs):
        names = ", ".join(f"'{value.name}'" for value in whole)
        text = (
            f"if {names} {'is' if len(whole) == 1 else 'are'} the same at each call: keep what the model computes of "
            f"{'it' if len(whole) == 1 else 'them'} in a buffer, self.register_buffer(..)"
        )
        edit = Freeze(tuple(value.key for value in whole))
        yield Remedy(
            KIND, f"{problem}.", cause, text, program.ns, edit=edit, module=module, location=location
        )


def wide_types(program: PlannedProgram) -> Iterator[Remedy]:
    """Yield the model in float16 for a program that runs on the device and has wider arguments."""
    wide = {
        argument.array_name: argument.bytes
        for argument, _ in program.arguments()
        if argument.host_dtype in _WIDE_TYPES and argument.kind in ("input", "parameter")
    }
    if not program.is_model or not wide or program.host.operations:
        return
    largest = sorted(wide, key=lambda name: -wide[name])[:_NAMED]
    yield Remedy(
        WIDE,
        f"{len(wide)} of the arguments are wider than fp16, {sum(wide.values()):,} bytes of each call.",
        f"Numbers of float32 take twice the bytes and the lanes of fp16; the largest: {', '.join(largest)}.",
        "model.half(), called with inputs of torch.float16",
        program.ns,
        edit=Halve(),
    )


def _cause(program: PlannedProgram) -> str:
    """Return the most frequent reasons why operations run on the host, as a sentence."""
    reasons = Counter(
        f"{remark.op_name}: {remark.reason.partition(';')[0]}" for remark in program.host_remarks
    )
    named = [f"{count:,} x {reason}" for reason, count in reasons.most_common(_NAMED)]
    more = f", and {len(reasons) - _NAMED} more reasons" if len(reasons) > _NAMED else ""
    return f"The device cannot run them: {', '.join(named)}{more}."
