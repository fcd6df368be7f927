# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Hints in IR: the attributes of working-set reduction, and the locations that carry hints.

From the source to level *device ops* a hint is part of locations, which survive every rewrite::

    loc(fused<{sdsc.hints = [{id = 3 : i64, tiles = [{dim = "M", count = 8 : i64}]}]}>["model.py":12:0])

At that level ``sdsc.hints`` and ``sdsc.dims`` become attributes of the operations, until ``sdsc.tiling`` replaces
them. The manual of the ``sdsc`` dialect describes the attributes.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from spyre_mlir.dialects.attributes import from_attribute, to_attribute
from spyre_mlir.errors import CompileError
from spyre_mlir.mlir import ir, location_of
from spyre_mlir.tiling import Hint, TiledLoop

HINTS, DIMS, DIM_SIZES, TILING = "sdsc.hints", "sdsc.dims", "sdsc.dim_sizes", "sdsc.tiling"

_HINTS_FORM = 'a list like [{id = 3 : i64, tiles = [{dim = "M", count = 8 : i64}]}], outermost hint first'
_DIMS_FORM = 'a list of lists of names like [["M"], ["K"], []], one per iteration dim'
_SIZES_FORM = "a dictionary of positive sizes like {M = 64 : i64}"
_TILING_FORM = (
    'a list like [{loop = "3.M", dim = 0 : i64, tiles = 8 : i64}], with "tile = 9 : i64" where the last tile is '
    "smaller, outermost loop first"
)


# -- attributes ---------------------------------------------------------------------------------------


def hints_attr(hints: Sequence[Hint]) -> ir.ArrayAttr:
    """Build ``sdsc.hints`` from hints, outermost first. Needs a current context."""
    return to_attribute(
        [
            {"id": hint.id, "tiles": _entries(hint.tiles)}
            | ({"slices": _entries(hint.slices)} if hint.slices else {})
            for hint in hints
        ]
    )


def _entries(counts: Sequence[tuple[str, int]]) -> list[dict[str, Any]]:
    return [{"dim": dim, "count": count} for dim, count in counts]


def hints_of(attr: ir.Attribute, location: ir.Location) -> tuple[Hint, ...]:
    """Return the hints of ``sdsc.hints``, outermost first; ``CompileError`` at ``location`` for anything else."""
    hints = []
    for entry in _list(attr, HINTS, _HINTS_FORM, location):
        match entry:
            case {"id": int(number), "tiles": [*tiles], **rest} if number > 0 and rest.keys() <= {"slices"}:
                tiles, slices = (
                    tuple(_counts(number, entries, noun, location))
                    for noun, entries in (("tiles", tiles), ("slices", rest.get("slices", [])))
                )
                hints.append(Hint(number, tiles, slices))
            case _:
                raise _malformed(HINTS, _HINTS_FORM, location)
    for outer, inner in itertools.pairwise(hints):
        if inner.id <= outer.id:
            raise CompileError(
                f"hint {inner.id} is inside of hint {outer.id}; an inner hint has the larger id",
                location_of(location),
            )
    return tuple(hints)


def _counts(hint: int, entries: Any, noun: str, location: ir.Location) -> Sequence[tuple[str, int]]:
    """Return the dims that a hint cuts, with the number of tiles or slices, the ``noun``, of each."""
    cut = []
    if not isinstance(entries, list):
        raise _malformed(HINTS, _HINTS_FORM, location)
    for entry in entries:
        match entry:
            case {"dim": str(dim), "count": int(count)}:
                cut.append((dim, count))
            case _:
                raise _malformed(HINTS, _HINTS_FORM, location)
    counts: dict[str, int] = {}
    for dim, count in cut:
        problem = f"into {count} {noun}; expected 1 or more" if count < 1 else None
        if dim in counts:
            problem = f"twice, into {counts[dim]} and into {count} {noun}"
        if problem is not None:
            raise CompileError(f"hint {hint} cuts '{dim}' {problem}", location_of(location))
        counts[dim] = count
    return cut


def dims_attr(dims: Sequence[Sequence[str]]) -> ir.ArrayAttr:
    """Build ``sdsc.dims`` of an operation from the names of each iteration dim. Needs a current context."""
    return to_attribute([list(names) for names in dims])


def dims_of(op: ir.Operation) -> tuple[tuple[str, ...], ...]:
    """Return the names of each iteration dim of an operation, outermost first; ``CompileError`` if malformed."""
    dims = _list(op.attributes[DIMS], DIMS, _DIMS_FORM, op.location)
    if not all(_is_names(names) for names in dims):
        raise _malformed(DIMS, _DIMS_FORM, op.location)
    return tuple(tuple(names) for names in dims)


def argument_dims(attributes: Mapping[str, ir.Attribute], location: ir.Location) -> tuple[str, ...]:
    """Return the names of the storage dims of an argument, outermost first; () if it has none."""
    if DIMS not in attributes:
        return ()
    form = 'a list of names like ["M", "K"]'
    names = _list(attributes[DIMS], DIMS, form, location)
    if not _is_names(names):
        raise _malformed(DIMS, form, location)
    return tuple(names)


def dim_sizes_of(func: ir.Operation) -> dict[str, int]:
    """Return the declared dims of a function and their sizes in elements; {} if it does not declare any."""
    if DIM_SIZES not in func.attributes:
        return {}
    sizes = _plain(func.attributes[DIM_SIZES])
    if not isinstance(sizes, dict) or not all(isinstance(size, int) and size > 0 for size in sizes.values()):
        raise _malformed(DIM_SIZES, _SIZES_FORM, func.location)
    return sizes


def tiling_attr(loops: Sequence[TiledLoop]) -> ir.ArrayAttr:
    """Build ``sdsc.tiling`` from the loops around an operation, outermost first. Needs a current context."""
    return to_attribute([each.plain() for each in loops])


def tiling_of(op: ir.Operation, name: str = TILING) -> tuple[TiledLoop, ...]:
    """Return the loops around an operation, outermost first; () if there are none.

    ``name`` is the name of the attribute with the loops.
    """
    if name not in op.attributes:
        return ()
    loops = []
    for entry in _list(op.attributes[name], name, _TILING_FORM, op.location):
        match entry:
            case {"loop": str(loop), "dim": int(dim), "tiles": int(tiles), **rest} if dim >= 0 and tiles > 0:
                tile, unrolled = rest.get("tile"), rest.get("unrolled")
                # Not ``isinstance``: bool is also an int in Python.
                is_tile = tile is None or (type(tile) is int and tile > 0)
                is_flag = unrolled is None or isinstance(unrolled, bool)
                if not is_tile or not is_flag or not rest.keys() <= {"tile", "unrolled"}:
                    raise _malformed(name, _TILING_FORM, op.location)
                loops.append(TiledLoop(loop, dim, tiles, tile, unrolled))
            case _:
                raise _malformed(name, _TILING_FORM, op.location)
    return tuple(loops)


def _list(attr: ir.Attribute, name: str, form: str, location: ir.Location) -> list[Any]:
    found = _plain(attr)
    if not isinstance(found, list):
        raise _malformed(name, form, location)
    return found


def _plain(attr: ir.Attribute) -> Any:
    try:
        return from_attribute(attr)
    # None is neither a list nor a dictionary, so each caller reports it together with the form that it expects.
    except TypeError:
        return None


def _is_names(names: Any) -> bool:
    return isinstance(names, list) and all(isinstance(name, str) for name in names)


def _malformed(name: str, form: str, location: ir.Location) -> CompileError:
    return CompileError(f"'{name}' must be {form}", location_of(location))


# -- locations ----------------------------------------------------------------------------------------


def with_hints(location: ir.Location, hints: ir.Attribute) -> ir.Location:
    """Return a location that carries ``sdsc.hints``, with unchanged source positions."""
    return ir.Location.fused([location], metadata=ir.DictAttr.get({HINTS: hints}, context=location.context))


def hints_in(location: ir.Location) -> ir.Attribute | None:
    """Return the outermost ``sdsc.hints`` in the tree of a location; None if there are none."""
    if isinstance(location, ir.FusedLoc):
        metadata = _metadata(location)
        if metadata is not None and HINTS in metadata:
            return metadata[HINTS]
    return next((found for part in _parts(location) if (found := hints_in(part)) is not None), None)


def without_hints(location: ir.Location) -> ir.Location:
    """Return a location without its hints."""
    parts = [without_hints(part) for part in _parts(location)]
    if isinstance(location, ir.FusedLoc):
        metadata: ir.Attribute | None = location.metadata
        if (entries := _metadata(location)) is not None:
            left = {entry.name: entry.attr for entry in entries if entry.name != HINTS}
            if not left and len(parts) == 1:
                return parts[0]
            metadata = ir.DictAttr.get(left, context=location.context) if left else None
        return ir.Location.fused(parts, metadata=metadata, context=location.context)
    if isinstance(location, ir.CallSiteLoc):
        return ir.Location.callsite(parts[0], parts[1:], context=location.context)
    if isinstance(location, ir.NameLoc):
        return ir.Location.name(location.name_str, parts[0], context=location.context)
    return location


def _metadata(location: ir.FusedLoc) -> ir.DictAttr | None:
    if location.metadata is None:
        return None
    metadata = location.metadata.maybe_downcast()  # the bindings give it by its base class
    return metadata if isinstance(metadata, ir.DictAttr) else None


def _parts(location: ir.Location) -> list[ir.Location]:
    if isinstance(location, ir.FusedLoc):
        return list(location.locations)
    if isinstance(location, ir.CallSiteLoc):
        return [location.callee, location.caller]
    return [location.child_loc] if isinstance(location, ir.NameLoc) else []
