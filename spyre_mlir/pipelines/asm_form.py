# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The form in which IR is printed, including the users of each value as comments, which upstream's bindings lack."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from spyre_mlir.mlir import ir
from spyre_mlir.records import dataclass

#: The file name of the locations that mark the operations of a module while their users are printed.
_MARK = "spyre-mlir-users"
_MARKED = re.compile(rf' loc\("{_MARK}":(\d+):1\)')


@dataclass(frozen=True)
class AsmForm:
    """Options for printing IR, named after the flags of mlir-opt."""

    debug_info: bool = False
    pretty_debug_info: bool = False
    generic: bool = False
    local_scope: bool = False
    value_users: bool = False
    skip_regions: bool = False
    names_of_locations: bool = False
    elide_larger_than: int | None = None
    elide_resources_larger_than: int | None = None

    def text(self, operation: ir.Operation) -> str:
        """Return the text of an operation, with one newline at its end."""
        if self.value_users:
            return _with_users(operation, self)
        text = operation.get_asm(
            enable_debug_info=self.debug_info or self.pretty_debug_info,
            pretty_debug_info=self.pretty_debug_info,
            print_generic_op_form=self.generic,
            use_local_scope=self.local_scope,
            use_name_loc_as_prefix=self.names_of_locations,
            skip_regions=self.skip_regions,
            large_elements_limit=self.elide_larger_than,
            large_resource_limit=self.elide_resources_larger_than,
        )
        return f"{text}".rstrip("\n") + "\n"

    @property
    def is_of_pass_managers(self) -> bool:
        """Whether upstream's pass managers print in this form by themselves."""
        pretty = self.pretty_debug_info or self.names_of_locations
        return not (pretty or self.local_scope or self.value_users or self.skip_regions)


def _with_users(operation: ir.Operation, form: AsmForm) -> str:
    """Print a copy whose locations are comment numbers, and replace each location by its comment at the end of line."""
    copy = operation.clone(ip=False).operation
    comments = _mark(copy, list(_operations(copy)), ir.AsmState(copy))
    # With local scope each line contains its location itself instead of an alias.
    marked = replace(form, value_users=False, debug_info=True, local_scope=True, pretty_debug_info=False)
    lines = []
    for line in marked.text(copy).splitlines():
        texts = [comments[int(number)] for number in _MARKED.findall(line) if comments[int(number)]]
        lines.append(" // ".join([_MARKED.sub("", line), *texts]))
    return "\n".join(lines) + "\n"


def _mark(copy: ir.Operation, operations: list[ir.Operation], state: ir.AsmState) -> list[str]:
    """Replace all locations by comment numbers, and return the comments."""
    # Names are computed before the locations change because names may come from locations.
    titled = [(op, "", list(op.results)) for op in operations]
    titled += [
        (argument, f"{argument.get_name(state)} ", [argument])
        for op in operations for region in op.regions for block in region.blocks for argument in block.arguments
    ]  # fmt: skip
    comments = [head + _users(values, state) if values else "" for _, head, values in titled]
    with copy.context:
        for number, (owner, _, _) in enumerate(titled):
            location = ir.Location.file(_MARK, number, 1)
            if isinstance(owner, ir.Operation):
                owner.location = location
            else:
                owner.set_location(location)
    return comments


def _operations(operation: ir.Operation) -> Iterator[ir.Operation]:
    yield operation
    for region in operation.regions:
        for block in region.blocks:
            for op in block.operations:
                yield from _operations(op.operation)


def _users(values: Sequence[ir.Value], state: ir.AsmState) -> str:
    texts = []
    for value in values:
        # An operation without results has its own name. The bindings list the last use first; an operation may use a
        # value twice.
        users = [use.owner.operation for use in value.uses]
        names = list(
            dict.fromkeys(
                user.results[0].get_name(state).partition("#")[0] if len(user.results) else user.name
                for user in reversed(users)
            )
        )
        texts.append(f"{'users' if len(names) > 1 else 'user'}: {', '.join(names)}" if names else "unused")
    return texts[0] if len(texts) == 1 else ", ".join(f"({text})" for text in texts)
