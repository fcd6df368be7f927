# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Random programs that are large enough for plans to matter: divisions and what is in LX change no number.

Small ones are in ``test_fuzz.py``.
"""

from __future__ import annotations

import random

import pytest
from random_programs import LARGE, RandomProgram
from test_fuzz import check

#: Fractions of LX that the backend keeps, so that 20 to 6 KB remain, less than many programs need.
ROOMS = (0.2, 0.99, 0.997)


@pytest.mark.parametrize("seed", range(180, 300))
def test_planned_together_a_random_program_is_exact(seed):
    """On all cores or a few, in LX of several sizes."""
    program, rng = RandomProgram(seed, LARGE), random.Random(seed)
    options = {
        "sencores": 32 if seed % 3 else rng.choice((2, 3, 4, 6, 8)),
        "lx_frac_avail": rng.choice(ROOMS),
        "uneven_splits": rng.random() < 0.3,
    }
    text = "\n".join([*program.text, str(options)])
    check(program, tuple(program.inputs), text, **options)
