# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The assumptions about designs that no public source decides, as data.

The back end is not public. Where the documents are silent ("SuperDSC Semantics", "ldsShareInfo_ Field" and others of
docs/sources.md), the compiler decides, and each decision is one entry here: the field of a design that it concerns, the
source that was searched, and a function that finds the designs that rest on it. ``spyre-validate --conformance`` prints
the assumptions of a bundle (docs/conformance.md).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from spyre_mlir.bundle.conformance import WINDOWED, DesignFields, design_files
from spyre_mlir.bundle.json_fields import Field, load
from spyre_mlir.errors import CompileError
from spyre_mlir.records import dataclass
from spyre_mlir.target.ops import Kind


@dataclass(frozen=True)
class Assumption:
    """One decision without a source.

    ``concerns`` is the field of a design, or the part of a program, ``searched`` the source without an answer, and
    ``date`` the day of the search. ``applies`` decides whether a design rests on the assumption; None stands for the
    order of operations, on which every program rests.
    """

    concerns: str
    sentence: str
    searched: str
    date: str = "2026-11-28"
    applies: Callable[[DesignFields], bool] | None = None


def _windows(design: DesignFields) -> list[dict]:
    """Return the members of ``paddingSizes_`` over all cores and in each core, for a windowed operation."""
    places = [design.dsc["N_"], *(half for _, half in design.stages())] if design.kind in WINDOWED else []
    return [pad for place in places for pad in place.value.get("paddingSizes_", {}).values()]


def _is_padded(design: DesignFields) -> bool:
    return any(pad.get(side, 0) > 0 for pad in _windows(design) for side in ("padFront_", "padBack_"))


def _is_pooling(design: DesignFields) -> bool:
    return len(design.tensors) < 3


def _begins_before(design: DesignFields) -> bool:
    """Return whether slices of a shuffle's result begin before their share."""
    if design.kind is not Kind.RELAYOUT:
        return False
    folds = [info["folds"]["dim_prop_func"].items() for _, info in design.tensors[-1].coordinates()]
    return any(fold and "Affine" in fold[0] and fold[0]["Affine"]["beta_"].integer() < 0 for fold in folds)


def _divides_steps(design: DesignFields) -> bool:
    return any(pad.get("padFront_") == -1 and pad.get("stride_", 1) > 1 for pad in _windows(design))


def _is_eight_bits(design: DesignFields) -> bool:
    words = [tensor.label.value.get("wordLength") for tensor in design.tensors]
    return 1 in words and design.function not in ("fp8todl16", "qfp8ch")


def _is_gather(design: DesignFields) -> bool:
    return bool(design.named("indirectAccessIndexLabeledDs"))


def _lengths_differ(design: DesignFields) -> bool:
    halves = {name: half.value for name, half in design.stages()}
    sizes = [
        {key: value for key, value in half.items() if isinstance(value, int)} for half in halves.values()
    ]
    return any(size != sizes[0] for size in sizes)


_SEMANTICS = "SuperDSC Semantics"
_FRONT_END = "torch-spyre"
_PIPELINE = "Program Execution Pipeline"

#: The assumptions by id: W of windows, H of halos, E of 8 bits, D of other fields of designs, C of the order of time.
ASSUMPTIONS: dict[str, Assumption] = {
    "W1": Assumption(
        "paddingSizes_ of poolings",
        "a pooling with rows after its last window says so in unneededPad_, as convolutions do",
        _SEMANTICS,
        applies=lambda design: _is_pooling(design) and any(pad.get("unneededPad_") for pad in _windows(design)),
    ),
    "W2": Assumption(
        "padding of poolings",
        "a padded pooling has padded_nozeropad, as a padded convolution does",
        f"{_SEMANTICS}; {_FRONT_END} refuses padded poolings",
        applies=lambda design: _is_pooling(design) and _is_padded(design),
    ),
    "W3": Assumption(
        "padding",
        "positions outside of the image count as the neutral number of the operation, 0 for sums, the least number "
        "for a maximum",
        f"{_SEMANTICS}; {_FRONT_END} refuses padded convolutions",
        applies=_is_padded,
    ),
    "W4": Assumption(
        "coordInfo of a padded dim of INPUT",
        "coordinates count positions with padding, so the slice of the first core begins before the image",
        f"{_SEMANTICS}; {_FRONT_END} has such slices without padding only",
        applies=_is_padded,
    ),
    "W5": Assumption(
        "totalSize_ of a core",
        "a core has the positions that its windows reach, not a whole step after the last window",
        f"{_SEMANTICS}; {_FRONT_END} has whole steps for depthwise convolutions, not for others",
        applies=_divides_steps,
    ),
    "W6": Assumption(
        "unneededPadBack_",
        "padding is equal before and after the image where this does not change the number of windows",
        _SEMANTICS,
        applies=lambda design: any(pad.get("unneededPadBack_") for pad in _windows(design)),
    ),
    "H1": Assumption(
        "coordInfo of a shuffle",
        "positions of a halo outside of the image are neither moved nor in LX, so the first slice begins at the "
        "address of all others",
        "LX Relayout SHUFFLE Contract",
        applies=_begins_before,
    ),
    "E1": Assumption(
        "opFuncName",
        "csqint8ch with a scale of 1 keeps integers",
        "SuperDSC bundle specification",
        applies=lambda design: design.function == "csqint8ch",
    ),
    "E2": Assumption(
        "stickSize_",
        "elements of an 8-bit stick are in order, except for fp8todl16 and qfp8ch",
        "SuperDSC bundle specification",
        applies=_is_eight_bits,
    ),
    "E3": Assumption(
        "coordInfo of INPUT",
        "the first operand of batchmatmulfp8 is in order, as the host writes it",
        f"{_FRONT_END} has four levels of elements there, which alternate every 8 as qfp8ch writes them",
        applies=lambda design: design.function == "batchmatmulfp8",
    ),
    "D1": Assumption(
        "el_",
        "the last slice of a dim may be shorter, and el_ has its sizes",
        f"{_SEMANTICS}; {_FRONT_END} divides evenly",
        applies=_lengths_differ,
    ),
    "D2": Assumption(
        "coordinateMasking_",
        "a matmul masks the padding of its reduced dim",
        f"{_FRONT_END} pads operands with zeros and masks no matmul",
        applies=lambda design: design.kind is Kind.MATMUL and bool(design.dsc.value.get("coordinateMasking_")),
    ),
    "D3": Assumption(
        "dataFormat_",
        "positions of a gather are IEEE_INT32",
        f"{_FRONT_END} labels them SENUINT32 for the time being",
        applies=_is_gather,
    ),
    "D4": Assumption(
        "dsType_",
        "the table of a gather is KERNEL and has its rows as a dim",
        f"{_FRONT_END} has OUTPUT for the table and the result",
        applies=_is_gather,
    ),
    "C1": Assumption(
        "order",
        "an operation computes after all earlier operations have computed, on all cores; the ring follows the "
        "computation",
        _PIPELINE,
    ),
    "C2": Assumption(
        "coreIdToDscSchedule",
        "the back end places the barriers that accesses of different cores require",
        "coreIdToDscSchedule Field",
    ),
    "C3": Assumption(
        "order",
        "the loads of the next operation may run during an operation, not earlier; a copy into LX only if its result "
        "overlaps no buffer of this operation",
        "Dataflow Accelerator Architecture",
    ),
    "C4": Assumption(
        "order",
        "a load waits until stores to its bytes are visible, one memory access after the last byte; stores "
        "are in order",
        "Dataflow Accelerator Architecture",
    ),
    "C5": Assumption(
        "order",
        "inside of an operation nothing is ordered, except that a core reads an element before it writes it",
        "SuperDSC bundle specification",
    ),
    "C6": Assumption(
        "order",
        "iterations of a loop follow each other like operations without a loop, and bundles one after the other",
        _PIPELINE,
    ),
}  # fmt: skip


def assumptions_of(value: Any, filename: str) -> list[str]:
    """Return the ids of the assumptions that the JSON of a design rests on; none for JSON that is not a design."""
    try:
        design = DesignFields.of(Field(value, filename))
        return [
            key for key, entry in ASSUMPTIONS.items() if entry.applies is not None and entry.applies(design)
        ]
    # The check of conformance reports what is missing.
    except CompileError:
        return []


def assumptions_of_folder(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield the file and the id of each assumption of the designs in a folder."""
    for path in design_files(folder):
        for key in assumptions_of(load(path).value, path.name):
            yield path.relative_to(folder).as_posix(), key
