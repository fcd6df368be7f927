# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Split of one bundle into a sequence of several, join of a sequence, and rules on the buffers between the bundles.

The bundles of a sequence run one after the other without a host function between them. They have the parameters and
buffers of the whole bundle, by its names. A parameter is the same address in all of them, so device memory keeps its
contents. LX keeps its contents as well, if each bundle but the last is non-terminal.

A parameter is a kernel argument only if the host reads or writes it: an input until something writes it, a result in
the last bundle that writes it. Otherwise it is only device memory, like the pool, which becomes a parameter.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from spyre_mlir.bundle import model
from spyre_mlir.bundle.context import Context, Diagnostic
from spyre_mlir.bundle.core_slices import finishing_cores, holders
from spyre_mlir.errors import CompileError

LX = "lx"


def split(bundle: model.Bundle, cuts: Sequence[int]) -> list[model.Bundle]:
    """Return the bundle as a sequence; ``cuts`` are the executes (outside of loops, or first in one) that begin one."""
    if not cuts:
        return [bundle]
    if bundle.manifest.sizes:
        raise CompileError(
            "A bundle of run-time sizes is not cut into several: each call has one set of sizes."
        )
    # The cuts rise, and each begins a statement.
    counts = (len(model.executes_of([statement])) for statement in bundle.statements)
    starts = set(itertools.accumulate(counts)) - {0, len(bundle.manifest.uses)}
    if not starts.issuperset(cuts) or sorted(set(cuts)) != [*cuts]:
        raise CompileError(f"The program cannot be cut at its executes {list(cuts)}.")
    # An allocation belongs to one bundle; as a parameter the pool has the same address in all bundles.
    # The bundle with its allocations as parameters, before the other parameters.
    pools = {
        statement.result: f"{statement.result}_base_addr"
        for statement in bundle.statements
        if isinstance(statement, model.Allocate)
    }
    statements = tuple(
        model.Extract(statement.result, pools[statement.result])
        if isinstance(statement, model.Allocate)
        else statement
        for statement in bundle.statements
    )
    buffers = tuple(
        replace(buffer, base=pools[buffer.base]) if buffer.base in pools else buffer
        for buffer in bundle.manifest.buffers
    )
    parameters = (*(model.Parameter(name) for name in pools.values()), *bundle.parameters)
    manifest = replace(bundle.manifest, buffers=buffers)
    bundle = replace(bundle, parameters=parameters, statements=statements, manifest=manifest)
    ends = [*cuts, len(bundle.manifest.uses)]
    spans = [range(first, end) for first, end in zip([0, *cuts], ends, strict=True)]
    parts = [_part(bundle, spans, number) for number in range(len(spans))]
    expected = residents(parts)
    return [
        _annotated(part, *pair, bundle)
        for part, pair in zip(parts, itertools.pairwise(expected), strict=True)
    ]


def join(bundles: Sequence[model.Bundle]) -> model.Bundle:
    """Return a sequence as one bundle, which leaves nothing and expects what the first bundle expects."""
    if len(bundles) == 1:
        return bundles[0]
    statements: list[model.Statement] = []
    designs: dict[str, model.Design] = {}
    for number, bundle in enumerate(bundles):
        indices = {name: len(designs) + index for index, name in enumerate(bundle.designs)}
        statements += [_renamed(statement, f"b{number}.", indices) for statement in bundle.statements]
        designs |= _numbered(bundle.designs, indices)
    parameters = {parameter.name: parameter for bundle in bundles for parameter in bundle.parameters}
    return model.Bundle(tuple(parameters.values()), tuple(statements), designs, _joined_manifest(bundles))


def residents(bundles: Sequence[model.Bundle]) -> list[tuple[model.Resident, ...]]:
    """Return the buffers that each bundle takes over from earlier bundles for a current or later use; last, ()."""
    last = {
        name: number
        for number, bundle in enumerate(bundles)
        for uses in bundle.manifest.uses
        for name in uses
    }
    written: dict[str, model.Resident] = {}
    expected: list[tuple[model.Resident, ...]] = []
    for number, bundle in enumerate(bundles):
        # A buffer without a later use does not need to stay.
        written = {name: resident for name, resident in written.items() if last[name] >= number}
        expected.append(tuple(written[name] for name in sorted(written)))
        bases = {buffer.name: buffer.base for buffer in bundle.manifest.buffers}
        for execute, uses in zip(model.executes_of(bundle.statements), bundle.manifest.uses, strict=True):
            known = written.get(uses[-1], model.Resident(uses[-1]))
            is_lx = bases[uses[-1]] == LX
            written[uses[-1]] = _with_writer(known, bundle.designs[execute.filename]) if is_lx else known
    return [*expected, ()]


# -- splitting ----------------------------------------------------------------------------------------


def _part(bundle: model.Bundle, spans: Sequence[range], number: int) -> model.Bundle:
    """Return the executes of one span with the values they need, without annotation."""
    span, manifest = spans[number], bundle.manifest
    # The kernel arguments of one span: the inputs that it uses, and the results that no later span writes.
    bases = {buffer.name: buffer.base for buffer in manifest.buffers}
    written = [{bases[manifest.uses[position][-1]] for position in span} for span in spans]
    used = [{bases[name] for position in span for name in manifest.uses[position]} for span in spans]
    before, after = set().union(*written[:number]), set().union(*written[number + 1 :])
    inputs = {
        argument.array_name
        for argument in manifest.arguments
        if argument.kind != "result" and argument.parameter in used[number] - before
    }
    # An array of indices is not an operand, and it is small: each bundle gets it, whether or not it reads it.
    inputs.update(index.argument for index in manifest.indices)
    arguments = tuple(
        argument
        for argument in manifest.arguments
        if (argument.kind != "result" and argument.array_name in inputs)
        or (argument.kind == "result" and argument.parameter in written[number] - after)
    )
    statements = _statements(bundle.statements, span, {argument.parameter for argument in arguments})
    executed = {execute.filename for execute in model.executes_of(statements)}
    origins = manifest.execute_origins()[span.start : span.stop]
    indices = {
        name: index
        for index, name in enumerate(filename for filename in bundle.designs if filename in executed)
    }
    extracted = {statement.parameter for statement in statements if isinstance(statement, model.Extract)}
    return model.Bundle(
        tuple(parameter for parameter in bundle.parameters if parameter.name in extracted),
        tuple(_renamed(statement, "", indices) for statement in statements),
        _numbered({name: bundle.designs[name] for name in indices}, indices),
        replace(
            manifest,
            arguments=arguments,
            uses=manifest.uses[span.start : span.stop],
            demoted=tuple(position - span.start for position in manifest.demoted if position in span),
            amplified=tuple(position - span.start for position in manifest.amplified if position in span),
            wide_sums=tuple(position - span.start for position in manifest.wide_sums if position in span),
            indices=tuple(index for index in manifest.indices if index.parameter in extracted),
        ).with_origins(origins),
    )


def _statements(
    statements: Sequence[model.Statement], span: range, parameters: set[str]
) -> tuple[model.Statement, ...]:
    """Return the executes and loops of a span in order, with the values that they need and the parameters."""
    chosen, needed, position = set[int](), set[str](), 0
    for index, statement in enumerate(statements):
        count = len(model.executes_of([statement]))
        if count and position in span:
            chosen.add(index)
            for inner in model.statements_in_order([statement]):
                needed.update(model.operands_of(inner))
        position += count
    # The order is reversed, so that the operands of a kept value are kept too.
    for index in reversed(range(len(statements))):
        statement = statements[index]
        if isinstance(statement, model.Execute | model.Loop):
            continue
        is_parameter = isinstance(statement, model.Extract) and statement.parameter in parameters
        if statement.result in needed or is_parameter:
            chosen.add(index)
            needed.update(model.operands_of(statement))
    return tuple(statements[index] for index in sorted(chosen))


def _annotated(
    part: model.Bundle,
    expects: tuple[model.Resident, ...],
    leaves: tuple[model.Resident, ...],
    whole: model.Bundle,
) -> model.Bundle:
    """Return a part with its ``expects`` and ``leaves``, and with the buffers that it names and their parameters."""
    names = {name for uses in part.manifest.uses for name in uses}
    names.update(resident.buffer for resident in (*expects, *leaves))
    buffers = tuple(buffer for buffer in part.manifest.buffers if buffer.name in names)
    in_lx = {buffer.name for buffer in buffers if buffer.base == LX}
    present = {parameter.name for parameter in part.parameters}
    bases = present | {buffer.base for buffer in buffers}
    extracts = (statement for statement in whole.statements if isinstance(statement, model.Extract))
    passing = tuple(statement for statement in extracts if statement.parameter in bases - present)
    manifest = replace(
        part.manifest,
        buffers=buffers,
        non_terminal=any(resident.buffer in in_lx for resident in leaves),
        expects=expects,
        leaves=leaves,
    )
    return model.Bundle(
        tuple(parameter for parameter in whole.parameters if parameter.name in bases),
        (*passing, *part.statements),
        part.designs,
        manifest,
    )


# -- joining ------------------------------------------------------------------------------------------


def _joined_manifest(bundles: Sequence[model.Bundle]) -> model.Manifest:
    manifests = [bundle.manifest for bundle in bundles]
    starts = [sum(len(manifest.uses) for manifest in manifests[:number]) for number in range(len(manifests))]
    pairs = list(zip(starts, manifests, strict=True))
    # The last bundle states what the whole sequence leaves, and whether that is in LX.
    joined = replace(
        manifests[-1],
        arguments=tuple(
            {argument.name: argument for manifest in manifests for argument in manifest.arguments}.values()
        ),
        buffers=tuple(
            {buffer.name: buffer for manifest in manifests for buffer in manifest.buffers}.values()
        ),
        uses=tuple(uses for manifest in manifests for uses in manifest.uses),
        demoted=tuple(start + position for start, manifest in pairs for position in manifest.demoted),
        amplified=tuple(start + position for start, manifest in pairs for position in manifest.amplified),
        wide_sums=tuple(start + position for start, manifest in pairs for position in manifest.wide_sums),
        expects=manifests[0].expects,
        indices=tuple(
            {index.parameter: index for manifest in manifests for index in manifest.indices}.values()
        ),
    )
    executes = (step.origin for bundle in bundles for step in Context(bundle).steps)
    return joined.with_origins(executes if any(manifest.origins for manifest in manifests) else ())


def _numbered(designs: Mapping[str, model.Design], indices: Mapping[str, int]) -> dict[str, model.Design]:
    """Return designs under the file names of their new indices."""
    numbered = (replace(design, index=indices[name]) for name, design in designs.items())
    return {design.filename: design for design in numbered}


def _renamed(statement: model.Statement, prefix: str, indices: Mapping[str, int]) -> model.Statement:
    """Return a statement with a prefix on all values, and the design files of the new indices."""

    def all_of(names: Sequence[str]) -> tuple[str, ...]:
        return tuple(prefix + name for name in names)

    match statement:
        case model.Execute(filename, operands):
            return replace(statement, filename=f"sdsc_{indices[filename]}.json", operands=all_of(operands))
        case model.Loop(induction, lower, upper, step, body):
            inner = tuple(_renamed(statement, prefix, indices) for statement in body)
            return model.Loop(prefix + induction, prefix + lower, prefix + upper, prefix + step, inner)
        case model.Add(result, lhs, rhs):
            return model.Add(prefix + result, prefix + lhs, prefix + rhs)
        case model.Apply(result, dims, symbols):
            return replace(statement, result=prefix + result, dims=all_of(dims), symbols=all_of(symbols))
    return replace(statement, result=prefix + statement.result)


# -- buffers that pass between bundles ----------------------------------------------------------------


def _with_writer(resident: model.Resident, design: model.Design) -> model.Resident:
    """Return a buffer in LX after one more execute has written it."""
    result = design.operands[-1]
    cores = {*resident.cores, *finishing_cores(design).intersection(holders(design, result))}
    dims = (
        f"{dim} {design.sizes[dim]}" + (f" in {design.slices[dim]}" if design.slices[dim] > 1 else "")
        for dim in result.dim_order
        if result.scale[dim] == 1
    )
    layout = f"{result.data_format}, sticks of {result.stick_elements} {result.stick_dim}: {', '.join(dims)}"
    layouts = tuple(dict.fromkeys((*resident.layout, layout)))
    return replace(resident, cores=tuple(sorted(cores)), layout=layouts)


# -- rules on the buffers that pass between bundles ---------------------------------------------------

_WHERE = "manifest.json"


def described(context: Context) -> Iterator[Diagnostic]:
    """Check that a bundle expects and leaves buffers that it has; buffers in LX also need their cores and layouts."""
    manifest = context.bundle.manifest
    for what, entries in (("expects", manifest.expects), ("leaves", manifest.leaves)):
        names = [resident.buffer for resident in entries]
        if len(set(names)) != len(names):
            yield f"It {what} a buffer twice.", _WHERE
        for resident in entries:
            for problem in _problems(context, resident):
                yield f"It {what} the buffer {resident.buffer!r}, {problem}.", _WHERE
    known = {resident.buffer for resident in manifest.expects} | {uses[-1] for uses in manifest.uses if uses}
    for resident in manifest.leaves:
        if resident.buffer not in known:
            text = "which it neither expects nor writes"
            yield f"It leaves the buffer {resident.buffer!r}, {text}.", _WHERE


def _problems(context: Context, resident: model.Resident) -> Iterator[str]:
    buffer = context.buffers.get(resident.buffer)
    count = context.target.device_cores
    if buffer is None:
        yield "which the manifest does not have"
    elif buffer.base != LX:
        if resident.cores or resident.layout:
            yield f"which is in {buffer.base}, not in LX; expected neither cores nor a layout"
        if any(argument.kind != "result" for argument in context.arguments.get(buffer.base, ())):
            yield f"which is in {buffer.base}, where the host puts an argument"
    elif not resident.cores or not resident.layout:
        yield "which is in LX; expected its cores and its layout"
    elif sorted(set(resident.cores)) != [*resident.cores] or not set(resident.cores) <= set(range(count)):
        yield f"on the cores {list(resident.cores)}; expected rising numbers from 0 to {count - 1}"


def hint(context: Context) -> Iterator[Diagnostic]:
    """Check that a bundle is non-terminal if and only if it leaves data in LX."""
    manifest = context.bundle.manifest
    # Device memory always keeps its contents; LX keeps its contents only after a non-terminal bundle.
    in_lx = [resident.buffer for resident in manifest.leaves if context.buffers[resident.buffer].base == LX]
    if in_lx and not manifest.non_terminal:
        yield f"It leaves {', '.join(in_lx)} in LX and is terminal; expected non_terminal.", _WHERE
    if manifest.non_terminal and not in_lx:
        yield "It is non-terminal but leaves nothing in LX; expected a terminal bundle.", _WHERE


def mismatches(names: Sequence[str], bundles: Sequence[model.Bundle]) -> Iterator[Diagnostic]:
    """Check that each bundle expects exactly what the previous bundle leaves, and that this follows from the executes.

    The bundles are the bundles between two host functions; each bundle has already passed its own rules.
    """
    for index, (name, bundle) in enumerate(zip(names, bundles, strict=True)):
        before = bundles[index - 1] if index else None
        expects = {resident.buffer for resident in bundle.manifest.expects}
        if before is None and expects:
            text = "but no bundle of the program runs right before it"
            yield f"It expects {_list(expects)} of a bundle before it, {text}.", f"{name}/{_WHERE}"
        after = bundles[index + 1] if index + 1 < len(bundles) else None
        leaves = {resident.buffer for resident in bundle.manifest.leaves}
        if after is None and leaves:
            text = "but no bundle of the program runs right after it"
            yield f"It leaves {_list(leaves)} for a bundle after it, {text}.", f"{name}/{_WHERE}"
    for (_, earlier), (name, later) in itertools.pairwise(zip(names, bundles, strict=True)):
        yield from ((text, f"{name}/{_WHERE}") for text in _mismatches(earlier, later))
    for name, bundle, expected in zip(names, bundles, residents(bundles), strict=False):
        if set(bundle.manifest.expects) != set(expected):
            odd = min(resident.buffer for resident in set(bundle.manifest.expects) ^ set(expected))
            text = f"Its expected buffers and the buffers that it needs of earlier bundles differ in {odd}."
            yield text, f"{name}/{_WHERE}"


def _mismatches(earlier: model.Bundle, later: model.Bundle) -> Iterator[str]:
    """Describe each difference between the buffers that a bundle leaves and the ones that the next expects."""
    leaves, expects = (
        {resident.buffer: resident for resident in entries}
        for entries in (earlier.manifest.leaves, later.manifest.expects)
    )
    for name in sorted(leaves.keys() ^ expects.keys()):
        does = "leaves" if name in leaves else "does not leave"
        expected = "does not expect" if name in leaves else "expects"
        yield f"It {expected} {name}, which the bundle before {does}."
    before, here = (
        {
            buffer.name: f"[{buffer.offset}, {buffer.offset + buffer.bytes}) of {buffer.base}"
            for buffer in bundle.manifest.buffers
        }
        for bundle in (earlier, later)
    )
    for name in sorted(before.keys() & here.keys()):
        if before[name] != here[name]:
            yield f"It has {name} at {here[name]}, the bundle before at {before[name]}."
    for name in sorted(leaves.keys() & expects.keys()):
        if leaves[name] != expects[name]:
            yield f"It expects {name} on other cores or in another layout than the bundle before leaves it."


def _list(names: set[str]) -> str:
    return ", ".join(sorted(names))
