# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Bundles for simulator tests from a few lines: tensors, then operations on them.

program = Program()
program.tensor("x", {"mb": 128, "out": 200}, kind="input")
program.tensor("z", {"mb": 128, "out": 200}, kind="result")
program.op("exp", "x", "z", splits={"mb": 2})
run(program.bundle(), {"x": ...})
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from math import prod

import numpy as np
import pytest

from spyre_mlir.bundle.core_slices import core_offset_bytes, lx_bytes
from spyre_mlir.bundle.model import (
    INPUT,
    OUTPUT,
    Add,
    Allocate,
    Buffer,
    Bundle,
    Constant,
    Design,
    Execute,
    Extract,
    HeldSlices,
    IndexConstant,
    KernelArgument,
    Manifest,
    Operand,
    Parameter,
    Statement,
    Transfer,
)
from spyre_mlir.simulator import SimulationError, run
from spyre_mlir.target.formats import FORMATS, constant_bits
from spyre_mlir.target.target import default_target

FP16 = "SEN169_FP16"
HOST_DTYPES = {FP16: "float16", "IEEE_FP32": "float32", "IEEE_INT32": "int32"}


@dataclass
class Tensor:
    """``sizes`` are host sizes by label, in host order; ``order`` is innermost first. A sparse tensor has
    one element per stick along ``stick``, which is then no label of its sizes. ``lx`` is an address.
    """

    name: str
    sizes: dict[str, int]
    kind: str | None = None
    order: tuple[str, ...] = ()
    stick: str = "out"
    data_format: str = FP16
    lx: int | None = None
    fill: float | None = 0.0
    host_dtype: str = ""
    rows: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.lanes = FORMATS[self.data_format].stick_elements(default_target().stick_bytes)
        self.order = self.order or tuple(
            dict.fromkeys((*reversed([*self.sizes][:-1]), *self.sizes, self.stick))
        )
        if self.stick not in self.order:
            self.order = (*self.order, self.stick)
        self.extents = {**self.sizes, **self.rows}
        if self.stick in self.sizes:
            self.extents[self.stick] = -(-self.extents[self.stick] // self.lanes) * self.lanes

    @property
    def bytes(self) -> int:
        lanes = 1 if self.stick in self.sizes else self.lanes
        return prod(self.extents.values()) * lanes * FORMATS[self.data_format].bytes

    def operand(self, role: str, sizes: dict[str, int], start: tuple[int, ...]) -> Operand:
        scale = {label: 1 if label in self.sizes else -1 for label in self.order}
        if self.stick not in self.sizes:
            scale[self.stick] = -2
        gap = {label: extent - sizes[label] for label, extent in self.extents.items()}
        return Operand(
            role=role,
            data_format=self.data_format,
            memory="hbm" if self.lx is None else "lx",
            dim_order=self.order,
            stick_dim=self.stick,
            stick_elements=self.lanes,
            scale=scale,
            start=start,
            gap={label: more for label, more in gap.items() if more} if self.lx is None else {},
        )

    def transfer(self) -> Transfer:
        """Return one loop per dim of the device, outermost first, the stick dim in sticks; then the element slots."""
        labels, host, step = list(self.sizes), {}, 1
        for label in reversed(labels):
            host[label], step = step, step * self.sizes[label]
        loops, stride, bounds = [], self.lanes, ()
        for label in self.order:
            if label not in self.sizes:
                continue
            if label == self.stick:
                sticks = self.extents[label] // self.lanes
                loops.append((sticks, host[label] * self.lanes, stride))
                stride *= sticks
            else:
                loops.append((self.sizes[label], host[label], stride))
                stride *= self.extents[label]
        loops.reverse()
        if self.stick in self.sizes:
            position = list(reversed([label for label in self.order if label in self.sizes])).index(
                self.stick
            )
            bounds = (((position, len(loops)), (self.lanes, 1), self.sizes[self.stick]),)
            loops.append((self.lanes, host[self.stick], 1))
        return Transfer(*(tuple(column) for column in zip(*loops, strict=True)), bounds)

    def argument(self, parameter: str) -> KernelArgument:
        assert self.kind is not None
        return KernelArgument(
            name=self.name,
            kind=self.kind,
            parameter=parameter,
            host_dtype=self.host_dtype or HOST_DTYPES[self.data_format],
            host_shape=tuple(self.sizes.values()),
            data_format=self.data_format,
            device_size=(self.bytes // default_target().stick_bytes, self.lanes),
            bytes=self.bytes,
            transfer=self.transfer(),
            fill=self.fill,
        )


class Program:
    """Collects tensors and operations; core ids go over the split dims, the first one fastest."""

    def __init__(self) -> None:
        self.tensors: dict[str, Tensor] = {}
        self.designs: dict[str, Design] = {}
        self.statements: list[Statement] = []
        self.uses: list[tuple[str, ...]] = []
        self.lx_bytes: dict[str, int] = {}
        self._symbols = 0

    def tensor(self, name: str, sizes: dict[str, int], **fields) -> None:
        tensor = self.tensors[name] = Tensor(name, sizes, **fields)
        if tensor.kind is not None:
            self.statements.append(Extract(f"{name}_base", f"arg_{name}"))
        elif tensor.lx is None:
            self.statements.append(Allocate(f"{name}_base", tensor.bytes))

    def op(
        self,
        opcode: str,
        *names: str,
        splits: dict[str, int] | None = None,
        masks: tuple[str, ...] = (),
        mask_value: float = 0.0,
        constants: dict[str, float] | None = None,
        copies: int = 1,
        held: tuple[HeldSlices, ...] = (),
    ) -> Design:
        """Adds an operation. ``copies`` are cores for each part of the result, ``held`` is of its operands."""
        tensors = [self.tensors[name] for name in names]
        valid = {label: size for tensor in tensors for label, size in tensor.sizes.items()}
        valid = {**valid, **{tensor.stick: valid.get(tensor.stick, 1) for tensor in tensors}}
        lanes = {tensor.stick: max(t.lanes for t in tensors if t.stick == tensor.stick) for tensor in tensors}
        sizes = {
            label: -(-size // lanes.get(label, 1)) * lanes.get(label, 1) for label, size in valid.items()
        }
        splits = splits or {}
        if copies > 1:
            sizes, splits = {**sizes, "c": copies}, {**splits, "c": copies}
        form = tensors[0].data_format
        values = {**(constants or {}), **({"mask": mask_value} if masks else {})}
        bits = tuple(Constant(name, form, constant_bits(value, form)) for name, value in values.items())
        shares = {}
        for label, size in sizes.items():
            unit = lanes.get(label, 1)
            shares[label] = -(-size // unit // splits.get(label, 1)) * unit
        design = Design(
            index=len(self.designs),
            opcode=opcode,
            unit="pt" if opcode == "batchmatmul" else "sfp",
            data_format=form,
            sizes=sizes,
            slices={label: splits.get(label, 1) for label in sizes},
            shares=shares,
            core_slices=_iterated(sizes, held[-1]) if held else _core_slices(sizes, splits),
            operands=(),
            padding={label: sizes[label] - size for label, size in valid.items() if sizes[label] != size},
            masks={label: (valid[label], sizes[label] - valid[label]) for label in masks},
            mask_constant=len(bits) - 1 if masks else -1,
            constants=bits,
        )
        return self._add(design, tensors, held)

    def relayout(
        self,
        source: str,
        target: str,
        written: Design,
        splits: dict[str, int],
        copies: int = 1,
        cores: Collection[int] = range(32),
    ) -> Design:
        """A shuffle of what ``cores`` have of the result of ``written`` to new slices, each on ``copies`` cores."""
        labels = self.tensors[source].sizes
        own = [{label: each[label] for label in labels} for each in written.core_slices]
        parts = [own[core] if core in cores and core < len(own) else None for core in range(len(own))]
        held = HeldSlices({label: written.slices[label] for label in labels}, tuple(parts))
        parts = copies * _core_slices(labels, splits)
        return self.shuffle(source, target, held, HeldSlices(dict.fromkeys(labels, 1) | splits, tuple(parts)))

    def shuffle(self, source: str, target: str, held: HeldSlices, result: HeldSlices) -> Design:
        """A relayout from any distribution to any other one; cores that neither names hold nothing."""
        return self.op("shuffle", source, target, splits=result.slices, held=_on_all_cores(held, result))

    def _add(self, design: Design, tensors: list[Tensor], held: tuple[HeldSlices, ...]) -> Design:
        operands, symbols, values = [], [], []
        for k, tensor in enumerate(tensors):
            role = OUTPUT if k == len(tensors) - 1 else INPUT
            if tensor.lx is not None:
                operand = tensor.operand(role, design.sizes, (tensor.lx,) * design.cores)
                operands.append(replace(operand, held=held[k] if held else None))
                self.lx_bytes[tensor.name] = lx_bytes(design, operands[-1])
                continue
            start = tuple(-self._symbols - core - 1 for core in range(design.cores))
            self._symbols += design.cores
            operands.append(tensor.operand(role, design.sizes, start))
            for core, symbol in enumerate(start):
                offset = core_offset_bytes(design, operands[-1], core)
                self.statements += [
                    IndexConstant(f"o{-symbol}", offset),
                    Add(f"v{-symbol}", f"{tensor.name}_base", f"o{-symbol}"),
                ]
                symbols.append(symbol)
                values.append(f"v{-symbol}")
        design = Design(**{**vars(design), "operands": tuple(operands)})
        self.designs[design.filename] = design
        self.statements.append(Execute(design.filename, tuple(values), tuple(symbols)))
        self.uses.append(tuple(tensor.name for tensor in tensors))
        return design

    def bundle(self) -> Bundle:
        arguments = tuple(t.argument(f"arg_{t.name}") for t in self.tensors.values() if t.kind)
        buffers = [Buffer(a.name, a.parameter, 0, a.bytes) for a in arguments]
        for tensor in self.tensors.values():
            if tensor.lx is not None:
                buffers.append(Buffer(tensor.name, "lx", tensor.lx, self.lx_bytes[tensor.name]))
            elif tensor.kind is None:
                buffers.append(Buffer(tensor.name, f"{tensor.name}_base", 0, tensor.bytes))
        return Bundle(
            parameters=tuple(Parameter(a.parameter) for a in arguments),
            statements=tuple(self.statements),
            designs=dict(self.designs),
            manifest=Manifest(arguments, tuple(buffers), tuple(self.uses)),
        )


def _on_all_cores(*distributions: HeldSlices) -> tuple[HeldSlices, ...]:
    """Distributions over as many cores as that with the most."""
    cores = max(len(each.core_slices) for each in distributions)
    missing = [(None,) * (cores - len(each.core_slices)) for each in distributions]
    return tuple(
        HeldSlices(each.slices, each.core_slices + rest)
        for each, rest in zip(distributions, missing, strict=True)
    )


def _iterated(sizes: dict[str, int], result: HeldSlices) -> tuple[dict[str, int], ...]:
    """Return the slices of the cores of a relayout: slices of its result, or the first ones for a core without any."""
    return tuple(dict.fromkeys(sizes, 0) | (slices or {}) for slices in result.core_slices)


def _core_slices(sizes: dict[str, int], splits: dict[str, int]) -> tuple[dict[str, int], ...]:
    slices = []
    for core in range(prod(splits.values())):
        part = {}
        for label in sizes:
            core, part[label] = divmod(core, splits.get(label, 1))
        slices.append(part)
    return tuple(slices)


# Good bundles with one thing changed.


def change_design(bundle: Bundle, filename: str = "sdsc_0.json", **changes) -> Bundle:
    design = replace(bundle.designs[filename], **changes)
    return replace(bundle, designs={**bundle.designs, filename: design})


def change_operand(bundle: Bundle, position: int, filename: str = "sdsc_0.json", **changes) -> Bundle:
    operands = list(bundle.designs[filename].operands)
    operands[position] = replace(operands[position], **changes)
    return change_design(bundle, filename, operands=tuple(operands))


def change_manifest(bundle: Bundle, **changes) -> Bundle:
    return replace(bundle, manifest=replace(bundle.manifest, **changes))


def change_buffer(bundle: Bundle, name: str, **changes) -> Bundle:
    buffers = tuple(replace(b, **changes) if b.name == name else b for b in bundle.manifest.buffers)
    return change_manifest(bundle, buffers=buffers)


def change_constant(bundle: Bundle, result: str, value: int) -> Bundle:
    statements = tuple(
        replace(s, value=value) if isinstance(s, IndexConstant) and s.result == result else s
        for s in bundle.statements
    )
    return replace(bundle, statements=statements)


def failure(bundle: Bundle, arrays: dict[str, np.ndarray], **options) -> SimulationError:
    with pytest.raises(SimulationError) as caught:
        run(bundle, arrays, **options)
    return caught.value
