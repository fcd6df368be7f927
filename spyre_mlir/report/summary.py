"""The one-page summary of a compiled program."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from spyre_mlir.bundle.folder import executed_files
from spyre_mlir.bundle.model import Allocate, Bundle
from spyre_mlir.remarks import Remark
from spyre_mlir.simulator.statistics import Statistics
from spyre_mlir.timeline import Timeline


def summarize(
    bundle: Bundle,
    remarks: Sequence[Remark],
    compile_seconds: float,
    statistics: Statistics | None,
    predicted: Timeline,
) -> str:
    """Operations, cores, memory, traffic and predicted time of a bundle, as lines of text.

    Traffic and LX are those of ``statistics``, the last run; without a run they are left out.
    """
    designs = [bundle.designs[name] for name in executed_files(bundle.statements)]
    counts = Counter(design.opcode for design in designs)
    arguments = bundle.manifest.arguments
    moved = sum(argument.bytes for argument in arguments)
    pool = sum(each.bytes for each in bundle.statements if isinstance(each, Allocate))
    rows = [
        ("operations", f"{len(designs)}: " + ", ".join(f"{n} {name}" for name, n in counts.most_common())),
        ("cores", _cores([design.cores for design in designs])),
        ("restickifies", str(counts.get("ReStickifyOpHBM", 0))),
        ("arguments", f"{len(arguments)}, {_bytes(moved)} on the device"),
        ("pool", _bytes(pool)),
    ]
    if statistics is not None:
        rows += [
            ("HBM read", _bytes(statistics.read_bytes)),
            ("HBM written", _bytes(statistics.write_bytes)),
            ("least traffic", f"{_bytes(moved)} (each argument once)"),
            ("LX used", _bytes(max(statistics.lx_high_water_bytes.values(), default=0)) + " per core"),
        ]
    rows += [
        ("predicted time", str(predicted)),
        (
            "decisions",
            ", ".join(f"{n} {kind}" for kind, n in Counter(r.kind for r in remarks).most_common()) or "none",
        ),
        ("compile time", f"{compile_seconds:.2f} s"),
    ]
    return table(rows)


def table(rows: Sequence[tuple[str, str]]) -> str:
    """Two columns, the first as wide as its longest entry."""
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"{name:<{width}}  {value}" for name, value in rows)


def _bytes(count: int) -> str:
    return f"{count:,} bytes"


def _cores(used: list[int]) -> str:
    if not used:
        return "no operation"
    if min(used) == max(used):
        return str(used[0])
    return f"{min(used)} to {max(used)}, mean {sum(used) / len(used):.1f}"
