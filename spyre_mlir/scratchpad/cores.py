"""Why a set cannot be packed: a small part of it that cannot be packed either."""

from __future__ import annotations

from collections.abc import Callable

#: Questions that may be asked for one core.
_MOST_QUESTIONS = 64


def shrink(members: list[int], is_impossible: Callable[[list[int]], bool]) -> list[int]:
    """A subset of ``members`` (rising, so in order of time) that is impossible too.

    Leaves out runs of members, long ones first, wherever ``is_impossible`` says that it is proven for the rest.
    Where it knows no proof the members stay, so the result is not always minimal.
    """
    core, run, questions = members, len(members) // 2, 0
    while run and questions < _MOST_QUESTIONS:
        at = 0
        while at < len(core) and questions < _MOST_QUESTIONS:
            rest = core[:at] + core[at + run :]
            questions += 1
            if rest and is_impossible(rest):
                core = rest
            else:
                at += run
        run = min(run, len(core)) // 2
    return core
