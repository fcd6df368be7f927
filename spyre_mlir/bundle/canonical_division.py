# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Sizes, shares and slices of a design as other writers have them, in the form that ``design_json.py`` reads."""

from __future__ import annotations

from itertools import product
from math import prod
from typing import Any

from spyre_mlir.bundle.canonical_fields import FieldFilter, default, integer
from spyre_mlir.bundle.json_fields import Field, require_same

Json = dict[str, Any]

#: How a core uses its own units, or a size that is known at run time only: the simulator takes the largest.
_SPLITS = ("symbolicDimInfo_", "maxSymbolicVolume_", "coreletSplit_", "rowSplit_", "peSfpSplit_")


class DivisionCanonicalizer:
    """The sizes of a design and their division, in one form; ``padding`` by dim is no part of that."""

    def __init__(self, fields: FieldFilter) -> None:
        self.filter = fields
        self.padding: dict[str, int] = {}

    def convert_sizes(self, field: Field, *, is_total: bool) -> dict[str, int]:
        """Sizes by dim of one set of dims: those without elements are not used."""
        self.filter.drop(field, *_SPLITS)
        sizes: dict[str, int] = {}
        for key, member in list(field.members()):
            if key in ("name_", "paddingSizes_"):
                continue
            size = integer(member)
            field.value[key] = size
            if size < 1 and is_total:
                del field.value[key]
            else:
                sizes[key.removesuffix("_")] = size
        if not is_total:
            field.value.pop("name_", None)
            field.value.pop("paddingSizes_", None)
        else:
            default(field, "name_", "n")
            if "paddingSizes_" in field:
                self._take_padding(field, sizes)
        return sizes

    def _take_padding(self, field: Field, sizes: dict[str, int]) -> None:
        """Move the padding out of a design, where it stood before ``manifest.json`` had it."""
        paddings = field["paddingSizes_"]
        del field.value["paddingSizes_"]
        for dim, pad in paddings.members():
            reason = "moves the window of the dim, which is not simulated"
            self.filter.require_empty(
                pad, reason, "padFront_", "unneededPad_", "unneededPadFront_", "unneededPadBack_"
            )
            for key in ("stride_", "dilation_"):
                if pad.value.get(key) == 1:
                    del pad.value[key]
            # A window that adds nothing to its dim may have any size.
            if pad.value.get("padBack_") or pad.value.keys() - {"padBack_", "totalSize_", "windowDim_"}:
                if dim not in sizes:
                    pad.fail("is the padding of a dim that N_ does not declare")
                if pad.value.get("totalSize_") == "N/A":
                    del pad.value["totalSize_"]
                self.padding[dim] = pad["padBack_"].integer()
                same = {"padBack_": self.padding[dim], "totalSize_": sizes[dim]}
                require_same(pad, same, ("totalSize_",))

    def convert(self, body: Field, dsc: Field) -> None:
        """Complete the shares of the cores, the slices and who has which, from each other."""
        sizes = {
            key.removesuffix("_"): size
            for key, size in dsc["N_"].value.items()
            if key[:-1] and key != "name_"
        }
        cores = len(dsc["coreIdsUsed_"].items())
        shares = self._convert_stages(dsc, sizes)
        slices = self._slices(body, sizes, shares)
        if not shares:
            lanes = _stick_elements(dsc)
            shares = {dim: _share(size, slices.get(dim, 1), lanes.get(dim, 1)) for dim, size in sizes.items()}
            dsc.value["dataStageParam_"] = _stage(sizes, shares, slices)
        if "coreIdToWkSlice_" not in body:
            body.value["coreIdToWkSlice_"] = self._core_slices(body, dsc, slices, cores)
        core_slices = body["coreIdToWkSlice_"]
        if all(core.isdecimal() for core, _ in core_slices.members()):
            # Some writers sort the numbers of the cores as text.
            order = sorted(core_slices.value, key=lambda core: (len(core), core))
            body.value["coreIdToWkSlice_"] = {core: core_slices.value[core] for core in order}
            core_slices = body["coreIdToWkSlice_"]
        for core, member in list(core_slices.members()):
            used = {dim: index for dim, index in member.integers_by_key().items() if dim in sizes or index}
            core_slices.value[core] = {**dict.fromkeys(sizes, 0), **used}

    def _convert_stages(self, dsc: Field, sizes: dict[str, int]) -> dict[str, int]:
        """Sizes by dim of the share of a core; none if the file does not say."""
        if "dataStageParam_" not in dsc or "0" not in dsc["dataStageParam_"]:
            return {}
        stages = dsc["dataStageParam_"]
        self.filter.drop(stages, *(key for key, _ in list(stages.members()) if key != "0"))
        stage = stages["0"]
        default(stage, "name_", "core")
        halves = {half: self.convert_sizes(stage[half], is_total=False) for half in ("ss_", "el_")}
        # A size that one half lacks is that of the other: they differ for the last core alone.
        known = {**sizes, **halves["el_"], **halves["ss_"]}
        for half, parts in halves.items():
            used = {dim: size for dim, size in {**known, **parts}.items() if dim in sizes or size > 0}
            stage.value[half] = {f"{dim}_": size for dim, size in used.items()}
        return self.convert_sizes(stage["ss_"], is_total=False)

    def _slices(self, body: Field, sizes: dict[str, int], shares: dict[str, int]) -> dict[str, int]:
        """Slices by dim, of those of the file that are used, or from the sizes and the shares."""
        if "numWkSlicesPerDim_" in body:
            slices = body["numWkSlicesPerDim_"].integers_by_key()
            slices = {dim: count for dim, count in slices.items() if dim in sizes or count > 1}
        elif shares:
            slices = {dim: -(-size // max(shares[dim], 1)) for dim, size in sizes.items()}
        elif "coreIdToWkSlice_" in body:
            cores = [core.integers_by_key() for _, core in body["coreIdToWkSlice_"].members()]
            slices = {dim: 1 + max((core.get(dim, 0) for core in cores), default=0) for dim in sizes}
        else:
            body.fail("has none of numWkSlicesPerDim_, coreIdToWkSlice_ and dataStageParam_, so no division")
        implied = {dim: -(-size // max(shares.get(dim, size), 1)) for dim, size in sizes.items()}
        body.value["numWkSlicesPerDim_"] = {**implied, **slices}
        return body.value["numWkSlicesPerDim_"]

    def _core_slices(self, body: Field, dsc: Field, slices: dict[str, int], cores: int) -> Json:
        """Slices of each core as torch-spyre numbers them: contracted dims first, the first of the others next."""
        if prod(slices.values()) != cores:
            body.fail(f"has no coreIdToWkSlice_, and its slices are not one for each of its {cores} cores")
        output = dsc["primaryDsInfo_"][dsc["labeledDs_"].items()[-1]["dsType_"].text()][
            "layoutDimOrder_"
        ].texts()
        order = sorted(slices, key=lambda dim: dim in output)
        indices = product(*(range(slices[dim]) for dim in reversed(order)))
        return {
            str(core): dict(zip(reversed(order), index, strict=True)) for core, index in enumerate(indices)
        }


def _stick_elements(dsc: Field) -> dict[str, int]:
    """Elements of each dim that is in a stick, of the layout that has the most."""
    lanes: dict[str, int] = {}
    for _, layout in dsc["primaryDsInfo_"].members():
        sticks = zip(layout["stickDimOrder_"].texts(), layout["stickSize_"].integers(), strict=False)
        for dim, count in sticks:
            lanes[dim] = max(lanes.get(dim, 1), count)
    return lanes


def _share(size: int, slices: int, unit: int) -> int:
    return -(-size // max(slices * unit, 1)) * unit


def _stage(sizes: dict[str, int], shares: dict[str, int], slices: dict[str, int]) -> Json:
    last = {dim: size - (slices.get(dim, 1) - 1) * shares[dim] for dim, size in sizes.items()}
    ss, el = ({f"{dim}_": count for dim, count in half.items()} for half in (shares, last))
    return {"0": {"name_": "core", "ss_": ss, "el_": el}}
