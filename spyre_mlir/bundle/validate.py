# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The semantic rules of a bundle, as one table, and the validator that applies them.

A rule is a generator of diagnostics, (sentence, where). The rules of a level run only if all levels before
it found nothing, because later rules rely on the properties that earlier rules guarantee.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from spyre_mlir.bundle import rules_design, rules_memory, rules_structure, sequence
from spyre_mlir.bundle.context import Context, Diagnostic, each_design
from spyre_mlir.bundle.instances import instance, sizes_to_check
from spyre_mlir.bundle.memory_order import memory_order
from spyre_mlir.bundle.model import Bundle
from spyre_mlir.errors import CompileError
from spyre_mlir.records import dataclass

Rule = Callable[[Context], Iterator[Diagnostic]]

STRUCTURE: dict[str, Rule] = {
    "opcode": each_design(rules_structure.known_opcode),
    "arity": each_design(rules_structure.arity),
    "dims": each_design(rules_structure.dims_declared),
    "operand-dims": each_design(rules_structure.operand_dims),
    "cores": each_design(rules_structure.core_mapping),
    "start-addresses": each_design(rules_structure.start_addresses),
    "roles": each_design(rules_structure.roles),
    "held": each_design(rules_design.source_slices),
    "files": rules_structure.files_match,
    "values": rules_structure.values_defined,
    "loop-bounds": rules_structure.loop_bounds,
    "symbols": rules_structure.symbols_bound,
    "uses": rules_structure.uses_match,
    "origins": rules_structure.origins_match,
    "residents": sequence.described,
}

DESIGN: dict[str, Rule] = {
    "unit": each_design(rules_design.unit),
    "formats": each_design(rules_design.formats),
    "stick-size": each_design(rules_design.stick_sizes),
    "constants": each_design(rules_design.constants),
    "masks": each_design(rules_design.masks),
    "padding": each_design(rules_design.padding),
    "windows": each_design(rules_design.windows),
    "coverage": each_design(rules_design.coverage),
    "whole-sticks": each_design(rules_design.whole_sticks),
    "stick": each_design(rules_design.stick_rules),
    "relayout": each_design(rules_design.relayout),
    "arguments": rules_structure.arguments,
    "sources": rules_structure.sources,
    "non-terminal": sequence.hint,
}

PLACES: dict[str, Rule] = {
    "span": each_design(rules_memory.span),
    "lx-address": rules_memory.lx_addresses,
    "lx-overlap": rules_memory.lx_overlap,
    "restickify-source": each_design(rules_memory.restickify_source),
    "relayout-overlap": each_design(rules_design.disjoint),
    "symbol-values": rules_memory.symbol_values,
    "hbm-address": rules_memory.hbm_addresses,
    "pool-limit": rules_memory.pool_limit,
    "buffers": rules_memory.buffers,
    "operand-in-buffer": rules_memory.operands_in_buffers,
    "transfer": rules_structure.transfers,
}

BYTES: dict[str, Rule] = {
    "core-offset": rules_memory.core_offsets,
    "write-conflict": rules_memory.write_conflicts,
    "race": rules_memory.races,
    "uninitialised-read": rules_memory.initialised,
}

ELEMENTS: dict[str, Rule] = {
    "elements": rules_memory.elements,
    "whole-inputs": rules_structure.whole_inputs,
    "results": rules_structure.results,
}

LEVELS = (STRUCTURE, DESIGN, PLACES, BYTES, ELEMENTS)

RULES: dict[str, Rule] = {name: rule for level in LEVELS for name, rule in level.items()}


#: Rules that compare whole buffers; the analysis of races compares their accesses.
_ON_BUFFERS = {"lx-overlap", "relayout-overlap"}


@dataclass(frozen=True)
class Finding:
    """One violation of a rule.

    Attributes:
        rule: The name of the rule.
        message: A whole sentence about the error.
        where: The file or the place in it.
    """

    rule: str
    message: str
    where: str

    def __str__(self) -> str:
        return f"{self.where}: {self.message} [{self.rule}]"


#: The rules on several bundles together, and on run-time sizes.
SEQUENCE, SIZES = "sequence", "sizes"


def sound_context(bundle: Bundle, lx_backend_fraction: float | None = None) -> Context:
    """Return the context of a structurally sound bundle; ``CompileError`` for a bundle that breaks a structure rule.

    ``lx_backend_fraction`` is the fraction of LX that the back end keeps; the default is the target's fraction.
    """
    context = Context(bundle, lx_backend_fraction)
    for rule in STRUCTURE.values():
        for sentence, where in rule(context):
            raise CompileError(sentence, where)
    return context


def validate(bundle: Bundle, lx_backend_fraction: float | None = None) -> list[Finding]:
    """Return all violations of the first level that has any; an empty list for a valid bundle.

    Args:
        bundle: The bundle; with run-time sizes, checked at the largest, the smallest and an intermediate size.
        lx_backend_fraction: The fraction of LX, 0 to 1, that the bundle may not use; by default from the target.
    """
    if not bundle.manifest.sizes:
        return _validate(bundle, lx_backend_fraction)
    for sizes in sizes_to_check(bundle):
        try:
            findings = _validate(instance(bundle, sizes), lx_backend_fraction)
        except CompileError as error:
            return [Finding(SIZES, error.message, error.location or "manifest.json")]
        if findings:
            shown = ", ".join(f"{name} = {size}" for name, size in sizes.items())
            return [replace(finding, where=f"{finding.where}, at {shown}") for finding in findings]
    return []


def races(bundle: Bundle, lx_backend_fraction: float | None = None) -> list[Finding]:
    """Return the races of a bundle, which are defined in docs/concurrency.md; at its largest sizes.

    If the bundle breaks a rule that the analysis relies on, the violations of this rule are returned instead.

    Args:
        bundle: The bundle.
        lx_backend_fraction: See ``validate``.
    """
    context = Context(bundle, lx_backend_fraction)
    for level in (STRUCTURE, DESIGN, PLACES):
        rules = {name: rule for name, rule in level.items() if name not in _ON_BUFFERS}
        if findings := _findings(rules, context):
            return findings
    return [
        Finding("race", f"A race: {race}.", race.other.step.where) for race in memory_order(context).races
    ]


def _findings(rules: Mapping[str, Rule], context: Context) -> list[Finding]:
    return [Finding(name, message, where) for name, rule in rules.items() for message, where in rule(context)]


def _validate(bundle: Bundle, lx_backend_fraction: float | None) -> list[Finding]:
    context = Context(bundle, lx_backend_fraction)
    for level in LEVELS:
        if findings := _findings(level, context):
            return findings
    return []


def validate_sequence(
    names: Sequence[str], bundles: Sequence[Bundle], lx_backend_fraction: float | None = None
) -> list[Finding]:
    """Return all violations of the bundles between two host functions, each of which is valid by itself.

    A sequence is valid if each bundle expects what the previous one leaves, and if the joined bundle obeys the rules.
    """
    findings = [Finding(SEQUENCE, *diagnostic) for diagnostic in sequence.mismatches(names, bundles)]
    # The joined bundle would repeat each mismatch in other words.
    if findings or len(bundles) == 1:
        return findings
    return validate(sequence.join(bundles), lx_backend_fraction)
