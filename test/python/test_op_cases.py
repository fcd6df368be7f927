# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A part of docs/coverage.md is run; the whole of it by the benchmark op-cases."""

from __future__ import annotations

import functools

import pytest
from op_cases import CASES
from op_coverage import ALL, NOT, PAGE, Outcome, listed, outcome, page
from op_samples import SAMPLES

#: Of each group of cases some that are quick, of samples every eighth.
QUICK = (
    "softmax_dim0", "log_softmax", "logsumexp", "hf_rmsnorm", "batchnorm_eval", "groupnorm", "linear_f32acc", "mv",
    "einsum_bhqd", "int_mm_i8", "baddbmm", "outer_kron", "moe_topk_scatter", "moe_dynamic_where", "sdpa_mask_bool",
    "rotary_interleaved", "rotary_complex", "rotary_compute_cos", "decode_index_copy", "decode_inplace_buffer",
    "exp_log_sqrt_rsqrt", "clamp_where_cmp", "dropout_train", "cast_int", "cast_i8_roundtrip", "amax_amin",
    "max_dim_argmax", "cumsum", "topk", "sort", "searchsorted", "gather_op", "scatter_add", "index_put", "embedding",
    "nonzero", "slice_step", "pad_const", "pad_reflect", "flip_roll", "as_strided_window", "cond_hop", "conv2d_s2_dil",
    "conv2d_depthwise", "maxpool2d", "avgpool_adaptive", "interpolate_bilinear", "hf_mixtral_moe_eager",
    *list(SAMPLES)[::8],
)  # fmt: skip


@functools.cache
def written() -> dict[str, Outcome]:
    return listed(PAGE.read_text(encoding="utf-8"))


@pytest.mark.sampled(12)
@pytest.mark.parametrize("name", QUICK)
@pytest.mark.filterwarnings("ignore::spyre_mlir.HostWorkWarning")
def test_a_program_runs_where_the_page_says_with_the_numbers_of_pytorch(name):
    found = outcome(name)
    assert found.where == written()[name].where
    assert found.where != NOT or found == written()[name]


def test_the_page_has_every_program_and_its_counts():
    assert set(written()) == set(ALL)
    assert page(written()) == PAGE.read_text(encoding="utf-8")


@pytest.mark.parametrize("programs", (CASES, SAMPLES), ids=("cases", "samples"))
def test_of_the_programs_of_the_page_95_percent_run(programs):
    run = [name for name in programs if written()[name].where != NOT]
    assert len(run) >= 0.95 * len(programs)
