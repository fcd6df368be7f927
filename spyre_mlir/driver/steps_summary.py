# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The summary of a program of several steps: the place of each step and the reasons, and the transfers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from spyre_mlir.bundle.model import Bundle, KernelArgument
from spyre_mlir.bundle.sequence import LX
from spyre_mlir.driver.steps import BundleStep, HostStep, Step, Transfers
from spyre_mlir.remarks import HOST, Remark, Remarks
from spyre_mlir.report.finding_rows import finding_rows
from spyre_mlir.report.findings import ProgramFinding
from spyre_mlir.report.summary import Row, summarize, table

#: The largest fraction of floating-point operations, 0 to 1, that the host may run without a warning.
MOST_HOST_WORK = 0.01
_MOST_REASONS = 3
#: Part of the reason for a product on the host that autocast would move to the device.
_WIDE = "f32 x f32"
_ADVICE = " For matmuls of float32 give compile autocast=torch.float16 (spyre-compile --autocast fp16)."


def summarize_steps(
    steps: Sequence[Step],
    moved: Sequence[Transfers],
    remarks: Sequence[Remark],
    compile_seconds: float,
    findings: Sequence[ProgramFinding] = (),
) -> str:
    """Return a table of steps, transfers and reasons for host steps, followed by the summary of each bundle."""
    rows = [
        *finding_rows(findings),
        *_rows(steps, moved),
        *host_reasons(remarks),
        ("compile time", f"{compile_seconds:.2f} s"),
    ]
    parts = [table(rows)]
    for step in steps:
        if isinstance(step, BundleStep):
            seconds = sum(time for _, time in step.passes)
            summary = summarize(step.facts(), seconds, step.last_run and step.last_run.statistics)
            parts.append(f"{step.name}\n{'-' * len(step.name)}\n{summary}")
    return "\n\n".join(parts)


def host_share(steps: Sequence[Step]) -> float:
    """Return the fraction of floating-point operations that the host runs, 0 to 1."""
    whole = sum(step.float_operations for step in steps)
    on_host = sum(step.float_operations for step in steps if isinstance(step, HostStep))
    return on_host / whole if whole else 0.0


def host_work_warning(steps: Sequence[Step], remarks: Sequence[Remark]) -> str:
    """Return a warning about the host's share, with reasons and advice; empty if at most ``MOST_HOST_WORK``."""
    share = host_share(steps)
    if share <= MOST_HOST_WORK:
        return ""
    reasons = Counter((remark.op_name, remark.reason) for remark in Remarks(remarks).of_kind(HOST))
    products_first = sorted(reasons, key=lambda key: (not _is_product(key[0]), -reasons[key]))
    named = [f"{reasons[key]:,} x {_host_reason(*key)}" for key in products_first[:_MOST_REASONS]]
    left = len(reasons) - len(named)
    more = f", and {left} more reasons" if left > 1 else ", and 1 more reason" if left else ""
    sentence = f"{share:.2%} of the floating-point operations run on the host: {', '.join(named)}{more}."
    return sentence + (_ADVICE if any(_WIDE in reason for _, reason in reasons) else "")


def _host_reason(op_name: str, reason: str) -> str:
    """Shorten a reason for a list; for a product, add the name of the operation."""
    reason = reason.partition(";")[0]
    return f"{op_name} ({reason})" if _is_product(op_name) else reason


def _is_product(op_name: str) -> bool:
    return "matmul" in op_name or "conv" in op_name


def _rows(steps: Sequence[Step], moved: Sequence[Transfers]) -> Iterator[Row]:
    bundles = [step for step in steps if isinstance(step, BundleStep)]
    yield "steps", f"{len(bundles)} on the device, {len(steps) - len(bundles)} on the host"
    for step, transfers in zip(steps, moved, strict=True):
        yield f"  {step.name}", _described(step, transfers)
    yield "on the host", f"{host_share(steps):.2%} of the floating-point operations"


def _described(step: Step, transfers: Transfers) -> str:
    if isinstance(step, HostStep):
        return f"{step.operations:,} operations, {step.float_operations:,} on floats"
    residents = f", {_bytes(transfers.resident)} bytes stay from earlier steps" if transfers.resident else ""
    return (
        f"{len(step.facts().operations):,} operations; each call brings {_bytes(transfers.to_device)} bytes"
        f"{residents}, and takes {_bytes(transfers.to_host)}{_resident(step.bundle)}"
    )


def _resident(bundle: Bundle) -> str:
    """Return the clause on the buffers that a bundle leaves in LX; empty if it leaves none."""
    resident = {entry.buffer for entry in bundle.manifest.leaves}
    sizes = [
        buffer.bytes for buffer in bundle.manifest.buffers if buffer.name in resident and buffer.base == LX
    ]
    return f"; {sum(sizes):,} bytes per core stay in LX" if sizes else ""


def _bytes(arguments: Sequence[KernelArgument]) -> str:
    return f"{sum(argument.bytes for argument in arguments):,}"


def host_reasons(remarks: Sequence[Remark]) -> Iterator[Row]:
    """Yield rows with the reasons why operations run on the host, the most frequent first."""
    host_remarks = Remarks(remarks).of_kind(HOST)
    counts = Counter(remark.reason for remark in host_remarks)
    places: dict[str, str] = {}
    for remark in host_remarks:
        module = f" in {remark.module}" if remark.module else ""
        places.setdefault(remark.reason, (remark.op_location.rpartition("/")[2] + module).lstrip())
    name = "because"
    for reason, count in counts.most_common():
        where = f" ({places[reason]}{', ..' if count > 1 else ''})" if places[reason] else ""
        yield name, f"{count:,} x {reason}{where}"
        name = ""
