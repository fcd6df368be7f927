# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""PyTorch's operator database: the numbers of right samples, where they run, and reasons of the others."""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.programs import fuzz_workers, opinfo_on_device, opinfo_samples
from benchmarks.registry import Metrics, Noted, benchmark
from spyre_mlir.errors import CompileError

DTYPES = ("f16", "f32", "bf16", "i64", "bool")

#: Tensors of the device, where operations run one by one or by ``torch.compile``; "" is ``spyre_mlir.compile``.
DEVICES = ("", "eager", "compiled")

#: Results of a sample on the device that are compared (test/python/opinfo_on_device.py).
KINDS = ("call", "in-place", "out", "empty", "0-d", "errors", "module")

#: Values of the inputs: numbers of the database, or special numbers as well.
VALUES = ("", "special")

#: Columns of the table: outcomes of samples that count, as in ``fuzz_workers``, and outcomes that do not count.
OUTCOMES = ("right", "refused", "wrong", "internal", "crash", "hang")
RIGHT, FAULTS, SKIPPED = OUTCOMES[0], OUTCOMES[2:], "skipped"
PLACES = ("device", "device and host", "host", "no work")
COLUMNS = ("samples", *OUTCOMES, SKIPPED, *(place.replace(" ", "_") for place in PLACES))

#: The limit of processor seconds of a sample.
SECONDS = 60.0

#: Characters of a reason in tables.
LONGEST_REASON = 200

#: The reason of an index beyond the samples of an operation, which does not count as skipped.
_NO_MORE = "no more samples"


@dataclass(frozen=True, order=True)
class Row:
    """A sample and its outcome; ``where`` is empty unless it was compiled."""

    dtype: str
    operation: str
    index: int
    outcome: str
    where: str = ""
    why: str = ""
    is_floating: bool = True
    kind: str = ""

    @property
    def fault(self) -> str:
        """Return the line of a sample that is not right and not refused."""
        kind = f" {self.kind}" if self.kind else ""
        return f"{self.operation} {self.dtype} {self.index}{kind}: {self.outcome}: {first_line(self.why)}"

    @property
    def group(self) -> str:
        """Return the line of the table that counts the sample."""
        return f"{self.dtype} {self.kind}".rstrip()

    def json_line(self) -> str:
        return json.dumps(asdict(self)) + "\n"


@benchmark(
    f16_not_right_ratio=0.03,
    f32_not_right_ratio=0.05,
    bf16_not_right_ratio=0.05,
    i64_not_right_ratio=0.05,
    bool_not_right_ratio=0.05,
    f16_floating_not_on_device_alone_ratio=0.25,
    eager_not_right_ratio=0.005,
    compiled_not_right_ratio=0.01,
    strides_samples=0,
    wrong_samples=0,
    internal_samples=0,
    crash_samples=0,
    hang_samples=0,
)
def opinfo(
    ops: str = "",
    dtype: str = ",".join(DTYPES),
    samples: int = 3,
    jobs: int = os.cpu_count() or 1,
    table: str = "",
    lines: str = "",
    values: str = "",
    device: str = "",
    kinds: str = ",".join(KINDS),
    resume: int = 0,
) -> Metrics:
    """Samples of PyTorch's operator database on the simulator: how many are right, by type, and where they run.

    The first ``samples`` of each operation and type, in ``jobs`` processes, by the rule of the tests. Ratios are of
    the samples that PyTorch itself can run. ``table`` is a page with a row per operation, ``lines`` a file of JSON
    with a line per sample, written as they come and sorted at the end. ``values`` is "special" for NaN, infinities,
    zeros of both signs, subnormal and largest numbers in the inputs of pointwise operations and reductions. ``device``
    puts the tensors on the device, "eager" or "compiled" by ``torch.compile``; ``kinds`` are then the compared
    results. With ``resume`` 1 the samples in the file ``lines`` are not run again.
    """
    if values not in VALUES:
        raise CompileError(f"There are no values '{values}'; leave them out, or write 'special'.")
    if device not in DEVICES:
        raise CompileError(f"A sample does not run on the device as '{device}'; write 'eager' or 'compiled'.")
    if unknown := [kind for kind in kinds.split(",") if kind not in KINDS]:
        raise CompileError(f"There is no kind '{unknown[0]}' of a sample; there are {', '.join(KINDS)}.")
    dtypes, module = _dtypes(dtype), _database()
    if device:
        module = opinfo_on_device()
        tickets = module.tickets(_names(ops, module.names()), dtypes, samples, device, kinds.split(","))
    else:
        tickets = module.tickets(_names(ops, module.operations()), dtypes, samples, values)
    rows = _measured(module.run, tickets, jobs, lines, resume)
    if table:
        _write(table, device_page(rows, device) if device else page(rows))
    return summarised(rows, device)


def _names(ops: str, known: dict[str, Any]) -> list[str]:
    if not ops:
        return list(known)
    chosen = ops.split(",")
    if unknown := [name for name in chosen if name not in known and name not in _families(known)]:
        raise CompileError(
            f"PyTorch's database has no operation '{unknown[0]}'; name it as in 'add,nn.functional.relu'."
        )
    return [name for name, operation in known.items() if {name, operation.name} & set(chosen)]


def _families(known: dict[str, Any]) -> set[str]:
    """Return the names of operations without names of variants."""
    return {operation.name for operation in known.values()}


def _dtypes(text: str) -> list[str]:
    chosen = text.split(",")
    if unknown := [name for name in chosen if name not in DTYPES]:
        raise CompileError(f"There is no type '{unknown[0]}'; there are {', '.join(DTYPES)}.")
    return chosen


def _database() -> Any:
    try:
        return opinfo_samples()
    except ModuleNotFoundError as error:
        raise CompileError(
            f"The operator database of PyTorch needs the package '{error.name}'; install it."
        ) from None


def _measured(
    run: Callable[[Any], tuple[str, str]], tickets: Iterable[Any], jobs: int, lines: str, resume: int
) -> list[Row]:
    """Return the rows of all samples, sorted; append each to the file ``lines`` when its sample ends."""
    rows = _read(lines) if lines and resume else []
    if lines:
        _write(lines, "".join(row.json_line() for row in rows))
    known = {(row.operation, row.dtype, row.index, row.kind) for row in rows}
    rest = (ticket for ticket in tickets if (*ticket[:3], getattr(ticket, "kind", "")) not in known)
    for row in _outcomes(run, rest, jobs):
        rows.append(row)
        if lines:
            with open(lines, "a", encoding="utf-8") as file:
                file.write(row.json_line())
        if row.outcome in FAULTS:
            print(row.fault, file=sys.stderr, flush=True)
    rows.sort()
    if lines:
        _write(lines, "".join(row.json_line() for row in rows))
    return rows


def _read(name: str) -> list[Row]:
    """Return the rows of a file of lines; none without the file."""
    if not Path(name).exists():
        return []
    return [Row(**json.loads(line)) for line in Path(name).read_text(encoding="utf-8").splitlines()]


def _outcomes(run: Callable[[Any], tuple[str, str]], tickets: Iterable[Any], jobs: int) -> Iterator[Row]:
    database = _database()
    with fuzz_workers().Workers(run, jobs, seconds=SECONDS) as workers:
        for ticket, outcome in workers.map(tickets):
            facts = database.facts(outcome.why)
            row = Row(
                ticket.dtype,
                ticket.operation,
                ticket.index,
                outcome.kind,
                facts.where,
                facts.why,
                facts.is_floating,
                getattr(ticket, "kind", ""),
            )
            if row.why != _NO_MORE:
                yield row


def summarised(rows: Sequence[Row], device: str = "") -> Noted:
    """Return metrics by type and of all; notes list reasons of samples that do not count, and faults one by one."""
    metrics: dict[str, float] = {}
    groups = {row.group: (DTYPES.index(row.dtype), row.kind) for row in rows}
    for group in sorted(groups, key=groups.__getitem__):
        of_group = [row for row in rows if row.group == group]
        metrics |= {f"{group}.{column}": count for column, count in _columns(of_group).items()}
    counted = [row for row in rows if row.outcome != SKIPPED]
    if device:
        # A ratio without samples is not shown: 0 would read as a target that is met.
        if counted:
            metrics[f"{device}_not_right_ratio"] = 1 - _share(counted, lambda row: row.outcome == RIGHT)
            metrics["strides_samples"] = sum(row.why.startswith("strides:") for row in counted)
    else:
        metrics |= _ratios(counted)
    metrics |= {f"{fault}_samples": sum(row.outcome == fault for row in rows) for fault in FAULTS}
    skipped = Counter(_skip_reason(row) for row in rows if row.outcome == SKIPPED)
    notes = [f"{count} samples do not count: {reason}" for reason, count in sorted(skipped.items())]
    missed = (*FAULTS, "refused") if device else FAULTS
    notes += [row.fault for row in rows if row.outcome in missed]
    return Noted(metrics, notes, COLUMNS)


def _ratios(counted: Sequence[Row]) -> dict[str, float]:
    """Return the fractions of the samples of each type that are not right, or not on the device alone."""
    metrics: dict[str, float] = {}
    for dtype in sorted({row.dtype for row in counted}, key=DTYPES.index):
        of_type = [row for row in counted if row.dtype == dtype]
        floating = [row for row in of_type if row.is_floating]
        metrics[f"{dtype}_not_right_ratio"] = 1 - _share(of_type, lambda row: row.outcome == RIGHT)
        if floating:
            metrics[f"{dtype}_floating_not_on_device_alone_ratio"] = 1 - _share(floating, _on_device)
    return metrics


def _columns(rows: Sequence[Row]) -> dict[str, int]:
    """Return the cells of a type."""
    outcomes = Counter(row.outcome for row in rows)
    places = Counter(row.where for row in rows if row.outcome == RIGHT)
    return {
        "samples": len(rows) - outcomes[SKIPPED],
        **{outcome: outcomes[outcome] for outcome in (*OUTCOMES, SKIPPED)},
        **{place.replace(" ", "_"): places[place] for place in PLACES},
    }


def _share(rows: Sequence[Row], holds: Callable[[Row], bool]) -> float:
    return sum(map(holds, rows)) / len(rows)


def _on_device(row: Row) -> bool:
    return row.outcome == RIGHT and row.where == PLACES[0]


def _skip_reason(row: Row) -> str:
    """Return the reason without the message of PyTorch."""
    return row.why.partition(":")[0]


#: Text of the page before its tables.
_HEAD = """# PyTorch's operator database

The samples of `torch.testing._internal.common_methods_invocations.op_db`, compiled with the defaults and run on the
simulator, by the rule of the tests: four times PyTorch's own error against float64, and integers exactly. Samples that
PyTorch itself cannot run, and samples of random operations, do not count. `python -m benchmarks opinfo --samples 1
--table docs/operators.md` writes this page.
"""


def page(rows: Sequence[Row]) -> str:
    """Return a page of Markdown: outcomes by type, and of each operation by type, with places and reasons."""
    counted = [row for row in rows if row.outcome != SKIPPED]
    dtypes = [dtype for dtype in DTYPES if any(row.dtype == dtype for row in counted)]
    by_type = [[row for row in counted if row.dtype == dtype] for dtype in dtypes]
    lines = [_HEAD, "| type | samples | right | " + " | ".join(PLACES) + " |", _rule(3 + len(PLACES))]
    lines += [_type_line(group) for group in by_type]
    lines += ["", "| operation | " + " | ".join(dtypes) + " | where | why not |", _rule(3 + len(dtypes))]
    groups: dict[str, list[Row]] = {}
    for row in sorted(counted, key=lambda row: (row.operation, DTYPES.index(row.dtype))):
        groups.setdefault(row.operation, []).append(row)
    lines += [_line(group, dtypes) for group in groups.values()]
    return "\n".join(lines) + "\n"


#: Text at the begin of the page about tensors of the device.
_DEVICE_HEAD = """# PyTorch's operator database on the device

Samples of the operators and modules of PyTorch's database with tensors on the device `spyre`, {way}. A sample is right
if numbers, types, sizes, strides and the memory that results share are as on the CPU. The kinds: the call, the variant
in place, results in `out=`, operands without elements, operands without dims, error inputs, and modules with their
gradients. Float64 and complex numbers do not count. `python -m benchmarks opinfo --device {device} --samples 1 --table
FILE` writes this page.
"""
_WAYS = {"eager": "operation by operation", "compiled": "by `torch.compile`"}


def device_page(rows: Sequence[Row], device: str) -> str:
    """Return a page of Markdown: the samples by kind and type, and each sample that is not right."""
    counted = [row for row in rows if row.outcome != SKIPPED]
    lines = [
        _DEVICE_HEAD.format(way=_WAYS[device], device=device),
        "| kind | type | samples | right |",
        _rule(4),
    ]
    for kind in KINDS:
        for dtype in DTYPES:
            if group := [row for row in counted if (row.kind, row.dtype) == (kind, dtype)]:
                right = _share(group, lambda row: row.outcome == RIGHT)
                lines.append(f"| {kind} | {dtype} | {len(group):,} | {right:.1%} |")
    lines += ["", "| operation | type | kind | sample | what is not right |", _rule(5)]
    for row in sorted(row for row in counted if row.outcome != RIGHT):
        why = f"{row.outcome}: {first_line(row.why)}".replace("|", "/")
        lines.append(f"| `{row.operation}` | {row.dtype} | {row.kind} | {row.index} | {why} |")
    return "\n".join(lines) + "\n"


def _rule(columns: int) -> str:
    return "|" + "---|" * columns


def _type_line(rows: Sequence[Row]) -> str:
    """Return the row of a type."""
    right = [row for row in rows if row.outcome == RIGHT]
    places = Counter(row.where for row in right)
    shares = f"{len(rows):,} | {len(right) / len(rows):.1%}"
    return f"| {rows[0].dtype} | {shares} | " + " | ".join(str(places[place]) for place in PLACES) + " |"


def _line(rows: Sequence[Row], dtypes: Sequence[str]) -> str:
    """Return the row of an operation: the reason of a wrong sample, or of a sample not on the device alone."""
    places = [place for place in PLACES if any(row.where == place and row.outcome == RIGHT for row in rows)]
    failed = [f"{row.outcome}: {first_line(row.why)}" for row in rows if row.outcome != RIGHT]
    reasons = failed or [first_line(row.why) for row in rows]
    reason = next(filter(None, reasons), "").replace("|", "/")
    cells = []
    for dtype in dtypes:
        outcomes = [row.outcome == RIGHT for row in rows if row.dtype == dtype]
        cells.append(f"{sum(outcomes)}/{len(outcomes)}" if outcomes else "")
    return f"| `{rows[0].operation}` | {' | '.join(cells)} | {', '.join(places)} | {reason} |"


def first_line(text: str) -> str:
    return (text.splitlines() or [""])[0][:LONGEST_REASON]


def _write(name: str, text: str) -> None:
    try:
        Path(name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise CompileError(f"The file '{name}' cannot be written: {error.strerror}.") from None
