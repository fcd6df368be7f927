# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The relayouts of a Granite model: over the ring and through device memory, alone and in programs of ours."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from benchmarks.granite import INTER_TILE, RELAYOUTS, ModelRelayout
from benchmarks.registry import Metrics, Noted, benchmark
from spyre_mlir.cost.cost_model import operation_cost
from spyre_mlir.cost.of_space import operation_work
from spyre_mlir.cost.ring_traffic import relayout_ns, relayout_traffic
from spyre_mlir.division import Division
from spyre_mlir.target.target import Target, packaged_target

CORES = 32
COLUMNS = (
    "ring_us",
    "memory_us",
    "bytes_over_ring",
    "program_us",
    "program_without_ring_us",
    "program_apart_us",
)

Shape = tuple[int, ...]


@dataclass(frozen=True)
class ModelProgram:
    """A part of the model in which a value flows from its producer to its consumer.

    The value is an operand of the last operation of a kind. ``by_position``: the first input are positions of rows.
    """

    function: Callable[..., Any]
    shapes: tuple[Shape, ...]
    opcode: str
    operand: int = 0
    by_position: bool = False

    def text(self) -> str:
        """Return the program in linalg. Imports torch."""
        import torch

        from spyre_mlir.dialects import context
        from spyre_mlir.frontend import import_torch

        class Apply(torch.nn.Module):
            def forward(_self, *inputs: torch.Tensor) -> Any:
                return self.function(*inputs)

        # Only shapes count, and the weights of a model are large.
        inputs = tuple(
            torch.zeros(shape, dtype=torch.int32)
            if self.by_position and not number
            else torch.empty(shape, dtype=torch.float16, device="meta")
            for number, shape in enumerate(self.shapes)
        )
        module = import_torch(Apply(), inputs, context=context()).module
        assert module is not None
        return module.operation.get_asm(enable_debug_info=True)


@dataclass(frozen=True)
class Residence:
    """The memory from which a consumer reads its value: LX, or device memory with the ``reasons`` of the plan."""

    relayouts: int
    reasons: tuple[str, ...]

    def __str__(self) -> str:
        if self.reasons:
            return f"memory: {self.reasons[0]}"
        return f"on chip, {'over the ring' if self.relayouts else 'on the cores that wrote it'}"


def compiled(program: ModelProgram, **options: Any) -> Any:
    """Compile a program for all cores."""
    import spyre_mlir

    return spyre_mlir.compile(program.text(), sencores=CORES, **options)


def residence(program: ModelProgram, result: Any) -> Residence:
    """Return the memory from which the consumer of a compiled program reads its value."""
    manifest = result.bundle.manifest
    buffers = {buffer.name: buffer for buffer in manifest.buffers}
    steps = [
        (result.bundle.designs[statement.filename], names)
        for statement, names in zip(_executes(result.bundle), manifest.uses, strict=True)
    ]
    position = max(index for index, (design, _) in enumerate(steps) if design.opcode == program.opcode)
    # The operands of a matmul may be swapped, so of one operand that a step wrote and one argument the first counts.
    operands = steps[position][1][:-1]
    made = [name for name in operands if any(names[-1] == name for _, names in steps[:position])]
    name, relayouts = made[0] if len(made) == 1 else operands[program.operand], 0
    while buffers[name].base == "lx":
        writer = max(index for index in range(position) if steps[index][1][-1] == name)
        design, names = steps[writer]
        if design.opcode not in ("shuffle", "identity"):
            return Residence(relayouts, ())
        # A copy of a value that was written elsewhere.
        relayouts += design.opcode == "shuffle"
        position, name = writer, names[0]
    return Residence(relayouts, buffers[name].reasons or ("it is an argument or a result",))


def _executes(bundle: Any) -> list[Any]:
    return [statement for statement in bundle.statements if hasattr(statement, "symbol_ids")]


def memory_ns(row: ModelRelayout, target: Target) -> float:
    """Return the time of a copy of the pieces to device memory, and of a copy back to the cores that need them."""
    space = row.space(target)
    total = 0.0
    for pieces, copies, in_lx in ((row.source, 1, 0), (row.target, row.target.copies, 1)):
        splits = (*(pieces.slices.get(label, 1) for label in row.labels), *((copies,) if copies > 1 else ()))
        work = operation_work(
            "identity", space.repeated(copies), Division.mixed_radix(splits), frozenset({in_lx})
        )
        total += operation_cost(work).total_ns
    return total


def _rms(x: Any) -> Any:
    return x * (x * x).mean(-1, keepdim=True).add(1e-5).rsqrt()


def _rotated(x: Any, cosine: Any, sine: Any) -> Any:
    import torch

    one, other = x[..., :64], x[..., 64:]
    return torch.cat((one * cosine - other * sine, other * cosine + one * sine), -1)


def _rotary(x: Any, weights: Any, cosine: Any, sine: Any) -> Any:
    heads = (x @ weights).reshape(x.shape[0], 32, 128)
    return _rotated(heads, cosine.exp()[:, None], sine.exp()[:, None])


def _silu(x: Any) -> Any:
    return x * x.sigmoid()


def _heads(p: Any, v: Any, w: Any) -> Any:
    return (p @ v).reshape(8, 4, 512, 128).permute(2, 0, 1, 3).reshape(512, 4096) @ w


def _embedded(positions: Any, table: Any, x: Any) -> Any:
    import torch

    return torch.nn.functional.embedding(positions, table) * 12 + x


def _keys(q: Any, x: Any, w: Any) -> Any:
    return q @ (x @ w).reshape(x.shape[0], 8, 128).permute(1, 2, 0)


def _projection(columns: int) -> ModelProgram:
    return ModelProgram(lambda x, w: _rms(x) @ w, ((1, 4096), (4096, columns)), "batchmatmul")


_LONG, _SQUARE = (512, 4096), (4096, 4096)

#: A program for each row of the table.
PROGRAMS: dict[str, ModelProgram] = {
    "P12": ModelProgram(lambda e, a, w: e * 12 + (a @ w) * 0.25, (_LONG, _LONG, _SQUARE), "add"),
    "P09": ModelProgram(lambda x, w: _rms(x) @ w, (_LONG, _SQUARE), "batchmatmul"),
    "P03": ModelProgram(
        lambda x, w, v: _silu(_rms(x) @ w) * (_rms(x) @ v), (_LONG, (4096, 12800), (4096, 12800)), "batchmatmul"
    ),
    "P04": ModelProgram(_heads, ((8, 2048, 512), (8, 512, 128), _SQUARE), "batchmatmul"),
    "P06": ModelProgram(lambda q, c, k: (q * c) @ k, ((8, 2048, 128),) * 2 + ((8, 128, 512),), "batchmatmul"),
    "P01": ModelProgram(lambda q, k: q @ k.exp(), ((8, 2048, 128), (8, 128, 512)), "batchmatmul", 1),
    "P02": ModelProgram(lambda p, v: p @ v.exp(), ((8, 2048, 512), (8, 512, 128)), "batchmatmul", 1),
    "P13": ModelProgram(lambda x, w: _rms(x[511:]) @ w, (_LONG, (4096, 48384)), "batchmatmul"),
    "P05": ModelProgram(lambda x, a, w: _rms(x + a @ w), (_LONG, _LONG, _SQUARE), "exx2_zeromean"),
    "P10": ModelProgram(lambda x, a, w: _rms(x + a @ w), (_LONG, _LONG, _SQUARE), "mul", 1),
    "P11": ModelProgram(lambda x, a, w: _rms(x + a @ w), (_LONG, _LONG, _SQUARE), "layernormscale"),
    "P07": ModelProgram(_rotary, (_LONG, _SQUARE, (512, 64), (512, 64)), "mul", 1),
    "P08": ModelProgram(_keys, ((8, 2048, 128), (512, 4096), (4096, 1024)), "batchmatmul", 1),
    "P14": ModelProgram(lambda x, a, w: (x + a @ w)[511:] * 3, (_LONG, _LONG, _SQUARE), "mul"),
    "P14, the row alone": ModelProgram(
        lambda x, a, w: _rms((x + a @ w)[511:]), (_LONG, _LONG, _SQUARE), "exx2_zeromean"
    ),
    "D1, x 32": _projection(4096),
    "D1, x 28": _projection(48384),
    "D1, x 25": _projection(12800),
    "D1, x 16": _projection(1024),
    "D2": ModelProgram(lambda x, w, v: _silu(x @ w) @ v, ((1, 4096), (4096, 12800), (12800, 4096)), "batchmatmul"),
    "D3": ModelProgram(
        lambda x, w, k: (x @ w).reshape(8, 4, 128) @ k, ((1, 4096), _SQUARE, (8, 128, 768)), "batchmatmul"
    ),
    "D4": ModelProgram(
        lambda q, k, v: (q @ k).softmax(-1) @ v, ((8, 4, 128), (8, 128, 768), (8, 768, 128)), "batchmatmul"
    ),
    "D5": ModelProgram(lambda p, v: p @ v.exp(), ((8, 4, 768), (8, 768, 128)), "batchmatmul", 1),
    "D6": ModelProgram(lambda q, k: q @ k.exp(), ((8, 4, 128), (8, 128, 768)), "batchmatmul", 1),
    "D7": ModelProgram(lambda x, a, w: _rms(x + a @ w), ((1, 4096), (1, 4096), _SQUARE), "exx2_zeromean"),
    "D8": ModelProgram(lambda x, a, w: _rms(x + a @ w), ((1, 4096), (1, 4096), _SQUARE), "mul", 1),
    "D9": ModelProgram(lambda q, k: (q @ k).softmax(-1), ((8, 4, 128), (8, 128, 768)), "max"),
    "D10": ModelProgram(lambda q, k: (q @ k).softmax(-1), ((8, 4, 128), (8, 128, 768)), "sub", 1),
    "D11, x 32": ModelProgram(_rotary, ((1, 4096), _SQUARE, (1, 64), (1, 64)), "mul", 1),
    "D11, x 8": ModelProgram(_rotary, ((1, 4096), (4096, 4096), (1, 64), (1, 64)), "sub", 1),
    "D12, 8 inputs": ModelProgram(
        lambda q, k: q @ k.exp().transpose(1, 2), ((8, 4, 128), (8, 768, 128)), "batchmatmul", 1
    ),
    "D12, 1 input": ModelProgram(_keys, ((8, 4, 128), (768, 4096), (4096, 1024)), "batchmatmul", 1),
    "D13": ModelProgram(
        lambda c, k, x: c.slice_scatter(k.exp() * x, 1, 767, 768), ((8, 768, 128), (8, 1, 128), (8, 1, 128)), "identity"
    ),
    "D14": ModelProgram(_embedded, ((1,), (49152, 4096), (1, 4096)), "mul", by_position=True),
}  # fmt: skip


def without_ring(program: ModelProgram) -> float:
    """Return the predicted nanoseconds of a program that joint planning plans without relayouts."""
    from spyre_mlir.dialects import context
    from spyre_mlir.lowering.export import export
    from spyre_mlir.mlir import ir
    from spyre_mlir.pipelines import run_pipeline
    from spyre_mlir.pipelines.spyre import SpyrePipeline
    from spyre_mlir.timeline import timeline

    module = ir.Module.parse(program.text(), context())
    steps = str(SpyrePipeline(sencores=CORES).pipeline())
    run_pipeline(module, steps.replace("joint-planning", "joint-planning{relayouts=false}"))
    return timeline(export(module)[0]).total_ns


def _measured(row: ModelRelayout) -> tuple[dict[str, float], str]:
    """Return the metrics of a row by column, and its note."""
    target, program = packaged_target(), PROGRAMS[row.name]
    relayout = row.relayout(target)
    ring, memory = relayout_ns(relayout), memory_ns(row, target)
    result = compiled(program)
    times = (
        ring, memory, 1000 * relayout_traffic(relayout).moved_bytes, result.timeline().total_ns, without_ring(program),
        compiled(program, co_optimizing_lx_planning=False).timeline().total_ns,
    )  # fmt: skip
    way = "the ring" if ring <= memory else "memory"
    costs = {column: value / 1000 for column, value in zip(COLUMNS, times, strict=True)}
    return costs, f"alone {way}; in the program {residence(program, result)}"


@benchmark(slower_than_without_ring=1.0)
def relayouts() -> Metrics:
    """The relayouts of a Granite model: over the ring, through device memory, and in programs planned by the compiler.

    ``ring_us`` and ``memory_us`` are times of the relayout of the row alone: over the ring from its source cores to
    its target cores, or by a copy to device memory and a copy back. ``program_us`` is a part of the model with the
    value of the row, as planned; ``program_without_ring_us`` without relayouts, ``program_apart_us`` with separate
    divisions of all operations. A note names the memory from which the consumer of the row reads its value.
    """
    metrics: dict[str, float] = {}
    notes, worst = [], 0.0
    for row in RELAYOUTS:
        costs, note = _measured(row)
        metrics |= {f"{row.name.replace('.', '')}.{column}": cost for column, cost in costs.items()}
        notes.append(f"{row.name} ({row.consumer}; {row.source.count} -> {row.target}): {note}")
        worst = max(worst, costs["program_us"] / costs["program_apart_us"])
    return Noted({**metrics, "slower_than_without_ring": worst}, notes, COLUMNS)


@benchmark(ring_slower_than_memory=0)
def inter_tile() -> Metrics:
    """The 51 measured relayouts of ktir-mlir-frontend by kind: over the ring, and by copies to device memory and back.

    ``ring_slower_than_memory`` counts kinds that are cheaper through device memory, without gathers to all cores.
    """
    metrics, notes, slower = dict[str, float](), [], 0
    for row in INTER_TILE:
        relayout = row.relayout(packaged_target())
        ring, memory = relayout_ns(relayout), memory_ns(row, packaged_target())
        values = (ring / 1000, memory / 1000, relayout_traffic(relayout).moved_bytes)
        metrics |= {f"{row.name}.{column}": value for column, value in zip(COLUMNS, values, strict=False)}
        slower += ring > memory and row.target.copies < CORES
        notes.append(
            f"{row.name} x {row.count} ({row.consumer}; {row.source.count} -> {row.target}): {row.operation}"
        )
    return Noted({**metrics, "ring_slower_than_memory": slower}, notes, COLUMNS[:3])


def prices() -> str:
    """Return the table of the measured relayouts in docs/relayouts.md."""
    lines = [
        "| row | relayouts | pieces -> pieces x copies | KTIR | ring us | memory us |",
        "|---|---|---|---|---:|---:|",
    ]
    target = packaged_target()
    for row in INTER_TILE:
        ring, memory = relayout_ns(row.relayout(target)) / 1000, memory_ns(row, target) / 1000
        pieces = f"{row.source.count} -> {row.target}"
        lines.append(f"| {row.name} | {row.count} | {pieces} | {row.operation} | {ring:.2f} | {memory:.2f} |")
    return "\n".join(lines)


def table() -> str:
    """Return the table of docs/relayouts.md."""
    head = (
        "row | consumer | shape | pieces -> pieces x copies | ring us | memory us | program us | no ring us"
    )
    lines = [f"| {head} | the consumer finds its value |", "|---|---|---|---|---:|---:|---:|---:|---|"]
    for row in RELAYOUTS:
        costs, note = _measured(row)
        shape = " ".join(f"{label}={size}" for label, size in row.sizes.items())
        times = " | ".join(f"{costs[column]:.2f}" for column in ("ring_us", "memory_us"))
        programs = " | ".join(f"{costs[column]:.1f}" for column in ("program_us", "program_without_ring_us"))
        pieces, place = (
            f"{row.source.count} -> {row.target}",
            note.partition("in the program ")[2].split(": ")[0],
        )
        lines.append(f"| {row.name} | {row.consumer} | {shape} | {pieces} | {times} | {programs} | {place} |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(table(), prices(), sep="\n\n")
