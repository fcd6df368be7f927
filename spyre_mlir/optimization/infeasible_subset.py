# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Infeasible subsets: find a small infeasible subset of an infeasible set (deletion filtering)."""

from __future__ import annotations

from collections.abc import Callable

#: Maximum number of queries for one set.
_MOST_QUESTIONS = 64


def infeasible_subset(members: list[int], is_infeasible: Callable[[list[int]], bool]) -> list[int]:
    """Return a subset of ``members`` (ascending, so in order of time) that is also infeasible.

    Removes runs of members, long runs first, if ``is_infeasible`` returns that the rest is proven infeasible. Without
    a proof the members stay, so the result is not always minimal.
    """
    subset, run, questions = members, len(members) // 2, 0
    while run and questions < _MOST_QUESTIONS:
        begin = 0
        while begin < len(subset) and questions < _MOST_QUESTIONS:
            rest = subset[:begin] + subset[begin + run :]
            questions += 1
            if rest and is_infeasible(rest):
                subset = rest
            else:
                begin += run
        run = min(run, len(subset)) // 2
    return subset
