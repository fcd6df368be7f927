# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Infeasible subsets: a small part of an infeasible set that is infeasible, too (deletion filtering)."""

from __future__ import annotations

from collections.abc import Callable

#: Questions that may be asked for one set.
_MOST_QUESTIONS = 64


def infeasible_subset(members: list[int], is_infeasible: Callable[[list[int]], bool]) -> list[int]:
    """A subset of ``members`` (rising, so in order of time) that is infeasible too.

    Leaves out runs of members, long ones first, wherever ``is_infeasible`` says that it is proven for the rest.
    Where it knows no proof the members stay, so the result is not always minimal.
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
