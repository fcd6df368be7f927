# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""PyTorch's operations one by one: the number that run, and where."""

from __future__ import annotations

from benchmarks.programs import op_coverage
from benchmarks.registry import Metrics, Noted, benchmark


@benchmark(not_run_ratio=0.05)
def op_cases() -> Metrics:
    """All cases and samples of docs/coverage.md on the simulator: how many run on the device, and with the host.

    Wrong numbers stop the benchmark. Notes list differences from the page.
    """
    coverage = op_coverage()
    outcomes = {name: coverage.outcome(name) for name in coverage.ALL}
    listed = coverage.listed(coverage.PAGE.read_text(encoding="utf-8"))
    kinds = [each.where for each in outcomes.values()]
    changed = [name for name in outcomes if outcomes[name] != listed.get(name)]
    return Noted(
        {
            "programs": len(kinds),
            "on_the_device": kinds.count(coverage.DEVICE),
            "with_the_host": kinds.count(coverage.BOTH) + kinds.count(coverage.ON_HOST),
            "in_pieces": kinds.count(coverage.PIECES),
            "not_run_ratio": kinds.count(coverage.NOT) / len(kinds),
            "different_from_the_page": len(changed),
        },
        [f"{name}: {outcomes[name].where}: {outcomes[name].reason}".rstrip(": ") for name in changed],
    )
