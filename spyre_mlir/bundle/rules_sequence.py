# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rules on the buffers that pass between bundles of a sequence, for a single bundle and for the whole sequence."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from spyre_mlir.bundle.context import Context, Diagnostic
from spyre_mlir.bundle.model import Bundle, Resident
from spyre_mlir.bundle.sequence import LX, residents

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


def _problems(context: Context, resident: Resident) -> Iterator[str]:
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
    elif sorted(set(resident.cores)) != [*resident.cores] or not _are_cores(resident.cores, count):
        yield f"on the cores {list(resident.cores)}; expected rising numbers from 0 to {count - 1}"


def _are_cores(cores: Sequence[int], count: int) -> bool:
    return cores[0] >= 0 and cores[-1] < count


def hint(context: Context) -> Iterator[Diagnostic]:
    """Check that a bundle is non-terminal if and only if it leaves data in LX."""
    manifest = context.bundle.manifest
    # Device memory always keeps its contents; LX keeps its contents only after a non-terminal bundle.
    in_lx = [resident.buffer for resident in manifest.leaves if context.buffers[resident.buffer].base == LX]
    if in_lx and not manifest.non_terminal:
        yield f"It leaves {', '.join(in_lx)} in LX and is terminal; expected non_terminal.", _WHERE
    if manifest.non_terminal and not in_lx:
        yield "It is non-terminal but leaves nothing in LX; expected a terminal bundle.", _WHERE


def sequence(names: Sequence[str], bundles: Sequence[Bundle]) -> Iterator[Diagnostic]:
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
            text = "but no bundle of the program runs right behind it"
            yield f"It leaves {_list(leaves)} for a bundle behind it, {text}.", f"{name}/{_WHERE}"
    for (_, earlier), (name, later) in itertools.pairwise(zip(names, bundles, strict=True)):
        yield from ((text, f"{name}/{_WHERE}") for text in _mismatches(earlier, later))
    for name, bundle, expected in zip(names, bundles, residents(bundles), strict=False):
        if set(bundle.manifest.expects) != set(expected):
            odd = min(resident.buffer for resident in set(bundle.manifest.expects) ^ set(expected))
            text = f"It does not say of {odd} what the bundles before it leave and it or a later one uses"
            yield f"{text}.", f"{name}/{_WHERE}"


def _mismatches(earlier: Bundle, later: Bundle) -> Iterator[str]:
    """Describe each difference between the buffers that a bundle leaves and the ones that the next expects."""
    leaves, expects = (
        {resident.buffer: resident for resident in entries}
        for entries in (earlier.manifest.leaves, later.manifest.expects)
    )
    for name in sorted(leaves.keys() ^ expects.keys()):
        does = "leaves" if name in leaves else "does not leave"
        expected = "does not expect" if name in leaves else "expects"
        yield f"It {expected} {name}, which the bundle before {does}."
    places = [
        {buffer.name: (buffer.base, buffer.offset, buffer.bytes) for buffer in bundle.manifest.buffers}
        for bundle in (earlier, later)
    ]
    for name in sorted(places[0].keys() & places[1].keys()):
        if places[0][name] != places[1][name]:
            yield f"It has {name} at {_place(places[1][name])}, the bundle before at {_place(places[0][name])}."
    for name in sorted(leaves.keys() & expects.keys()):
        if leaves[name] != expects[name]:
            yield f"It expects {name} on other cores or in another layout than the bundle before leaves it."


def _place(place: tuple[str, int, int]) -> str:
    base, offset, size = place
    return f"[{offset}, {offset + size}) of {base}"


def _list(names: set[str]) -> str:
    return ", ".join(sorted(names))
