# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Random programs over named dims under hints: right, and no error where the program without names compiles.

``fuzz_named_dims.py`` runs more of them.
"""

from __future__ import annotations

import pytest
from fuzz_named_dims import named_program, run

#: Seeds of past faults: a view of a tile that an inner loop cuts again; a conversion of a partly written buffer, also
#: in the outer of two loops; tiles of one element that come first in a dim.
FOUND = (1009, 1020, 1033, 10141, 10156)


@pytest.mark.parametrize("seed", [*range(20), *FOUND])
def test_random_programs_of_named_dims(seed):
    """Views that merge, split and permute named axes; products, reductions, softmax; one or two levels of hints."""
    assert not run(named_program(seed), with_unhinted=False).problem


def test_there_is_enough_in_them():
    """Most have loops to be, half a merged dim, a third two levels of hints."""
    programs = [named_program(seed) for seed in range(200)]
    assert sum(len(each.hints) > 1 for each in programs) > 50
    assert sum(any(len(own) > 1 for value in each.inputs for own in value.axes) for each in programs) > 60
