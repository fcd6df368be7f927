"""One bundle as a sequence of several, and back: what goes from each to the next.

The bundles of a sequence run one after the other without a host function between them. They have the parameters and
buffers of the whole bundle, by its names: a parameter is the same address in all of them, so what is in device memory
stays there. What is in LX stays as well, if each bundle but the last is non-terminal.

A parameter is a kernel argument only where the host has to do with it: an input until something writes it, a result in
the last bundle that does. Elsewhere it is plain device memory, as the pool is, which becomes a parameter.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from spyre_mlir.bundle.context import statements_in_order
from spyre_mlir.bundle.core_slices import finishing_cores, holders
from spyre_mlir.bundle.model import (
    Add,
    Allocate,
    Apply,
    Bundle,
    Design,
    Execute,
    Extract,
    KernelArgument,
    Loop,
    Manifest,
    Parameter,
    Resident,
    Statement,
)
from spyre_mlir.errors import CompileError

LX = "lx"


def split(bundle: Bundle, cuts: Sequence[int]) -> list[Bundle]:
    """The bundle as a sequence; ``cuts`` are the executes, outside of loops or first in one, that begin another."""
    if not cuts:
        return [bundle]
    _check_cuts(bundle, cuts)
    bundle = _with_pool_parameters(bundle)
    ends = [*cuts, len(bundle.manifest.uses)]
    spans = [range(first, end) for first, end in zip([0, *cuts], ends, strict=True)]
    parts = [_part(bundle, spans, number) for number in range(len(spans))]
    expected = residents(parts)
    return [
        _annotated(part, *pair, bundle)
        for part, pair in zip(parts, itertools.pairwise(expected), strict=True)
    ]


def join(bundles: Sequence[Bundle]) -> Bundle:
    """A sequence as one bundle, which leaves nothing and expects what the first of them does."""
    if len(bundles) == 1:
        return bundles[0]
    statements: list[Statement] = []
    designs: dict[str, Design] = {}
    for number, bundle in enumerate(bundles):
        indices = {name: len(designs) + at for at, name in enumerate(bundle.designs)}
        statements += [_renamed(each, f"b{number}.", indices) for each in bundle.statements]
        designs |= _numbered(bundle.designs, indices)
    parameters = {each.name: each for bundle in bundles for each in bundle.parameters}
    return Bundle(tuple(parameters.values()), tuple(statements), designs, _joined_manifest(bundles))


def residents(bundles: Sequence[Bundle]) -> list[tuple[Resident, ...]]:
    """What each bundle finds of what those before it wrote, because it or a later one uses it; at the end nothing."""
    last = {
        name: number
        for number, bundle in enumerate(bundles)
        for uses in bundle.manifest.uses
        for name in uses
    }
    written: dict[str, Resident] = {}
    expected: list[tuple[Resident, ...]] = []
    for number, bundle in enumerate(bundles):
        written = {name: each for name, each in written.items() if last[name] >= number}
        expected.append(tuple(written[name] for name in sorted(written)))
        bases = {each.name: each.base for each in bundle.manifest.buffers}
        for design, name in _writes(bundle):
            known = written.get(name, Resident(name))
            written[name] = _with_writer(known, design) if bases[name] == LX else known
    return [*expected, ()]


# -- splitting ----------------------------------------------------------------------------------------


def _check_cuts(bundle: Bundle, cuts: Sequence[int]) -> None:
    """Each cut is where a statement of the program begins, behind the one before."""
    starts = set(itertools.accumulate(map(_executes, bundle.statements))) - {0, len(bundle.manifest.uses)}
    if not starts.issuperset(cuts) or sorted(set(cuts)) != [*cuts]:
        raise CompileError(f"The program cannot be cut at its executes {list(cuts)}.")


def _with_pool_parameters(bundle: Bundle) -> Bundle:
    """The bundle with its allocations as parameters, in front of the others."""
    pools = {
        each.result: f"{each.result}_base_addr" for each in bundle.statements if isinstance(each, Allocate)
    }
    statements = tuple(
        Extract(each.result, pools[each.result]) if isinstance(each, Allocate) else each
        for each in bundle.statements
    )
    buffers = tuple(
        replace(each, base=pools[each.base]) if each.base in pools else each
        for each in bundle.manifest.buffers
    )
    parameters = (*(Parameter(name) for name in pools.values()), *bundle.parameters)
    manifest = replace(bundle.manifest, buffers=buffers)
    return replace(bundle, parameters=parameters, statements=statements, manifest=manifest)


def _part(bundle: Bundle, spans: Sequence[range], number: int) -> Bundle:
    """The executes of one span with what they need, without annotation."""
    span, manifest = spans[number], bundle.manifest
    arguments = _arguments(manifest, spans, number)
    statements = _statements(bundle.statements, span, {each.parameter for each in arguments})
    executed = {each.filename for each in statements_in_order(statements) if isinstance(each, Execute)}
    indices = {name: at for at, name in enumerate(each for each in bundle.designs if each in executed)}
    extracted = {each.parameter for each in statements if isinstance(each, Extract)}
    return Bundle(
        tuple(each for each in bundle.parameters if each.name in extracted),
        tuple(_renamed(each, "", indices) for each in statements),
        _numbered({name: bundle.designs[name] for name in indices}, indices),
        replace(
            manifest,
            arguments=arguments,
            uses=manifest.uses[span.start : span.stop],
            demoted=tuple(each - span.start for each in manifest.demoted if each in span),
            amplified=tuple(each - span.start for each in manifest.amplified if each in span),
        ),
    )


def _statements(statements: Sequence[Statement], span: range, parameters: set[str]) -> tuple[Statement, ...]:
    """The executes and loops of a span in order, with the values that they need and the parameters."""
    chosen, needed, position = set[int](), set[str](), 0
    for index, statement in enumerate(statements):
        runs = _executes(statement)
        if runs and position in span:
            chosen.add(index)
            needed.update(_needed(statement))
        position += runs
    for index in reversed(range(len(statements))):
        statement = statements[index]
        if isinstance(statement, Execute | Loop):
            continue
        is_parameter = isinstance(statement, Extract) and statement.parameter in parameters
        if statement.result in needed or is_parameter:
            chosen.add(index)
            needed.update(_needed(statement))
    return tuple(statements[index] for index in sorted(chosen))


def _executes(statement: Statement) -> int:
    if isinstance(statement, Loop):
        return sum(map(_executes, statement.body))
    return int(isinstance(statement, Execute))


def _needed(statement: Statement) -> Iterator[str]:
    """The values that a statement takes from outside of it, and some that its loops define."""
    match statement:
        case Add(_, left, right):
            yield from (left, right)
        case Apply(_, dims, symbols):
            yield from (*dims, *symbols)
        case Execute(_, operands):
            yield from operands
        case Loop(_, lower, upper, step, body):
            yield from (lower, upper, step)
            for inner in body:
                yield from _needed(inner)


def _arguments(manifest: Manifest, spans: Sequence[range], number: int) -> tuple[KernelArgument, ...]:
    """The kernel arguments of one span: inputs that it uses, and results that nothing writes later."""
    bases = {each.name: each.base for each in manifest.buffers}
    written = [{bases[manifest.uses[at][-1]] for at in span} for span in spans]
    used = [{bases[name] for at in span for name in manifest.uses[at]} for span in spans]
    before, after = set().union(*written[:number]), set().union(*written[number + 1 :])
    inputs = {
        each.array_name
        for each in manifest.arguments
        if each.kind != "result" and each.parameter in used[number] - before
    }
    return tuple(
        each
        for each in manifest.arguments
        if (each.kind != "result" and each.array_name in inputs)
        or (each.kind == "result" and each.parameter in written[number] - after)
    )


def _annotated(
    part: Bundle, expects: tuple[Resident, ...], leaves: tuple[Resident, ...], whole: Bundle
) -> Bundle:
    """A part with what it expects and leaves, and with the buffers that it names and their parameters."""
    names = {name for uses in part.manifest.uses for name in uses}
    names.update(each.buffer for each in (*expects, *leaves))
    buffers = tuple(each for each in part.manifest.buffers if each.name in names)
    in_lx = {each.name for each in buffers if each.base == LX}
    present = {each.name for each in part.parameters}
    bases = present | {each.base for each in buffers}
    extracts = (each for each in whole.statements if isinstance(each, Extract))
    passing = tuple(each for each in extracts if each.parameter in bases - present)
    manifest = replace(
        part.manifest,
        buffers=buffers,
        non_terminal=any(each.buffer in in_lx for each in leaves),
        expects=expects,
        leaves=leaves,
    )
    return Bundle(
        tuple(each for each in whole.parameters if each.name in bases),
        (*passing, *part.statements),
        part.designs,
        manifest,
    )


# -- joining ------------------------------------------------------------------------------------------


def _joined_manifest(bundles: Sequence[Bundle]) -> Manifest:
    manifests = [each.manifest for each in bundles]
    starts = [sum(len(each.uses) for each in manifests[:number]) for number in range(len(manifests))]
    pairs = list(zip(starts, manifests, strict=True))
    return replace(
        manifests[-1],
        arguments=tuple({each.name: each for manifest in manifests for each in manifest.arguments}.values()),
        buffers=tuple({each.name: each for manifest in manifests for each in manifest.buffers}.values()),
        uses=tuple(uses for manifest in manifests for uses in manifest.uses),
        demoted=tuple(start + at for start, manifest in pairs for at in manifest.demoted),
        amplified=tuple(start + at for start, manifest in pairs for at in manifest.amplified),
        expects=manifests[0].expects,
    )


def _numbered(designs: Mapping[str, Design], indices: Mapping[str, int]) -> dict[str, Design]:
    """Designs under the files of their new indices."""
    numbered = (replace(design, index=indices[name]) for name, design in designs.items())
    return {design.filename: design for design in numbered}


def _renamed(statement: Statement, prefix: str, indices: Mapping[str, int]) -> Statement:
    """A statement with a prefix before the values, and the files of designs by their new indices."""

    def all_of(names: Sequence[str]) -> tuple[str, ...]:
        return tuple(prefix + name for name in names)

    match statement:
        case Execute(filename, operands):
            return replace(statement, filename=f"sdsc_{indices[filename]}.json", operands=all_of(operands))
        case Loop(induction, lower, upper, step, body):
            inner = tuple(_renamed(each, prefix, indices) for each in body)
            return Loop(prefix + induction, prefix + lower, prefix + upper, prefix + step, inner)
        case Add(result, left, right):
            return Add(prefix + result, prefix + left, prefix + right)
        case Apply(result, dims, symbols):
            return replace(statement, result=prefix + result, dims=all_of(dims), symbols=all_of(symbols))
    return replace(statement, result=prefix + statement.result)


# -- what goes from bundle to bundle -------------------------------------------------------------------


def _writes(bundle: Bundle) -> Iterator[tuple[Design, str]]:
    """Each execute of the program text with the buffer that it writes."""
    executes = (each for each in statements_in_order(bundle.statements) if isinstance(each, Execute))
    for execute, uses in zip(executes, bundle.manifest.uses, strict=True):
        yield bundle.designs[execute.filename], uses[-1]


def _with_writer(resident: Resident, design: Design) -> Resident:
    """A buffer in LX that one execute more has written."""
    cores = {*resident.cores, *_writing_cores(design)}
    layout = dict.fromkeys((*resident.layout, _layout(design)))
    return replace(resident, cores=tuple(sorted(cores)), layout=tuple(layout))


def _writing_cores(design: Design) -> set[int]:
    """The cores that have a finished part of the result."""
    return set(holders(design, design.operands[-1])) & finishing_cores(design)


def _layout(design: Design) -> str:
    """How an execute leaves its result on the cores, in words."""
    result = design.operands[-1]
    dims = (
        f"{dim} {design.sizes[dim]}" + (f" in {design.slices[dim]}" if design.slices[dim] > 1 else "")
        for dim in result.dim_order
        if result.scale[dim] == 1
    )
    return f"{result.data_format}, sticks of {result.stick_elements} {result.stick_dim}: {', '.join(dims)}"
