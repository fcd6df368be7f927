# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Random programs and mutants of files: the numbers of right, refused and faulty cases.

``python -m benchmarks fuzz`` prints the table of docs/benchmarks.md, a row for each kind.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.programs import fuzz_kinds, fuzz_minimise, fuzz_workers
from benchmarks.registry import Metrics, Noted, benchmark
from spyre_mlir.errors import CompileError

#: Classes of ``test/python``, which the benchmarks import by name only: ``fuzz_kinds.Ticket``, ``fuzz_workers.Outcome``
#: and ``fuzz_workers.Workers``.
Ticket = Outcome = Workers = Any

#: Kinds of PyTorch programs, by the way to run them, and of mutants of files.
PROGRAMS = (
    "programs", "sizes", "state", "loops", "hints", "bytes", "types", "specials", "asserts", "eager", "graphs",
    "gradients", "ktir", "saved", "threads",
)  # fmt: skip
KINDS = (*PROGRAMS, "ir", "bundles", "plans", "npz", "csv")

#: Columns of the table, as ``fuzz_workers`` names them, and the classes that are faults.
COLUMNS = ("right", "refused", "wrong", "internal", "crash", "hang")
FAULTS = COLUMNS[2:]


@benchmark(faults=0)
def fuzz(
    count: int = 100, seed: int = 0, kind: str = ",".join(KINDS), minimise: str = "", jobs: int = 1
) -> Metrics:
    """Random programs and mutants of IR, bundles, plan files, arrays and tables: what became of them.

    ``count`` cases of each kind of ``kind``, in ``jobs`` processes. Faults are written as small as they get into the
    folder ``minimise``. A program is right by the rule of the tests: 4 times PyTorch's own error or a thousandth.
    Programs of one kind run in several sizes, with state, saved, on the device, .. as docs/security.md lists them.
    """
    kinds = kind.split(",")
    unknown = [name for name in kinds if name not in KINDS]
    if unknown:
        raise CompileError(f"There is no kind of cases '{unknown[0]}'; there are {', '.join(KINDS)}.")
    folder = _folder(minimise) if minimise else None
    counts: dict[str, Counter[str]] = {}
    notes = [f"seed {seed}, {count} cases of each kind"]
    with fuzz_workers().Workers(fuzz_kinds().run, jobs) as workers:
        for name in kinds:
            counts[name] = Counter()
            for ticket, outcome in workers.map(tickets(name, seed, range(count))):
                counts[name][outcome.kind] += 1
                if outcome.kind in FAULTS:
                    notes.append(f"{ticket}: {outcome.kind}: {outcome.why}")
                    print(notes[-1], file=sys.stderr, flush=True)
                    if folder is not None:
                        print(f"  {minimised(workers, ticket, outcome, folder)}", file=sys.stderr, flush=True)
    cells = {f"{name}.{column}": counts[name][column] for name in kinds for column in COLUMNS}
    faults = sum(found[column] for found in counts.values() for column in FAULTS)
    return Noted({**cells, "faults": faults}, notes, COLUMNS)


def tickets(kind: str, seed: int, indices: Iterable[int]) -> Iterator[Ticket]:
    """Return the cases of a kind with these numbers."""
    return (fuzz_kinds().Ticket(kind, seed, index) for index in indices)


def minimised(workers: Workers, ticket: Ticket, outcome: Outcome, folder: Path) -> Path:
    """Write a small case that fails like this one; return its path."""
    from dataclasses import replace

    kind = fuzz_kinds().KINDS[ticket.kind]

    def fails(case: object) -> bool:
        other = workers.one(replace(ticket, case=case))
        return other.kind == outcome.kind and reason(other.why) == reason(outcome.why)

    case = fuzz_minimise().minimise(ticket.drawn(), kind.smaller, fails)
    path = folder / f"{ticket.kind}-{ticket.seed}-{ticket.index}"
    return kind.write(case, f"{ticket}: {outcome.kind}: {outcome.why}", path)


def reason(why: str) -> str:
    """Return the part of a reason that is stable while a case is minimised: no numbers, except whether one is NaN."""
    if " instead of " in why:
        return "nan" if "nan instead" in why else "numbers"
    return re.sub(r"\d+|'[^']*'", "", why.split(": ")[-1])[:60]


def _folder(name: str) -> Path:
    folder = Path(name)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CompileError(f"The folder '{folder}' cannot be made: {error.strerror}.") from None
    return folder
