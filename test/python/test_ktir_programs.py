# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Groups of programs in KTIR, in tensors and at addresses, on unmodified ktir-cpu, with its LX of 2 MiB."""

from __future__ import annotations

import pytest
from ktir_programs import OUTSIDE, RIGHT, groups, outcome
from test_ktir import needs_interpreter

GROUPS = groups()
CASES = [(group, name) for group, cases in GROUPS.items() if group != "programs" for name in cases]


@needs_interpreter
@pytest.mark.sampled(24)
@pytest.mark.parametrize("cores", [7, 32])
@pytest.mark.parametrize(("group", "name"), CASES)
def test_numbers_are_right_in_both_modes(group: str, name: str, cores: int) -> None:
    for addresses, (kind, reason) in outcome(name, GROUPS[group][name], cores).items():
        assert kind in (RIGHT, OUTSIDE) and reason != "LX", f"addresses={addresses}: {kind}: {reason}"
