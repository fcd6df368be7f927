# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Operation lists of models: how they are read, sizes of runs, outcomes, and lists of the zoo's models."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from operation_lists import Case, FullShape, list_text, read_cases, recorded, run_case

from spyre_mlir import CompileError

LIST = """
test_suite_config:
  files:
    - tests:
        - edits:
            ops:
              include:
                - name: torch.getitem
                  sample_inputs_func:
                    args:
                      - tensor: {shape: [4, 96], stride: [96, 1], storage_offset: 0, dtype: torch.float16}
                      - py: (Ellipsis, slice(None, 64, None))
                - name: torch.to
                  sample_inputs_func:
                    args:
                      - tensor: {shape: [855, 5120], stride: [5120, 1], dtype: torch.float16, device: cuda:0}
                      - value: cuda:0
                - name: torch.float
                  sample_inputs_func:
                    args:
                      - tensor: {shape: [64, 2], stride: [1, 64], dtype: torch.float16, init: rand}
                - name: torch.cat
                  sample_inputs_func:
                    args:
                      - tensor_list:
                          - {shape: [2, 64], dtype: torch.float16}
                          - {shape: [3, 64], dtype: torch.float16}
                  kwargs: {dim: 0}
                - name: torch.nn.functional.linear
                  sample_inputs_func:
                    args:
                      - tensor: {shape: [1, 12, 4096], dtype: torch.float16}
                      - tensor: {shape: [14336, 4096], dtype: torch.float16}
                      - value: null
"""


def test_a_public_list(tmp_path: Path) -> None:
    path = tmp_path / "list.yaml"
    path.write_text(LIST)
    cases = read_cases(str(path))
    assert [case.name.rpartition(".")[2] for case in cases] == ["getitem", "to", "float", "cat", "linear"]
    figures = FullShape()
    for case in cases:
        outcomes, figures, note = run_case(case, 1)
        assert {"right_eager", "right_compiled", "full"} <= {*outcomes} and not note, (
            str(case),
            outcomes,
            note,
        )
    assert figures.predicted_us > 100 and figures.operations == 2 * 12 * 4096 * 14336


def test_the_work_of_the_host_at_full_shape() -> None:
    """The host computes a sine of each element, and the device the absolute values; nothing runs."""
    tensor = {"tensor": {"shape": [1, 4096, 4096], "dtype": "torch.float32"}}
    outcomes, figures, note = run_case(Case("torch.Tensor.sin", [tensor]), 2)
    assert (outcomes, figures.on_host, note) == (["full", "host"], 4096 * 4096, "")
    assert run_case(Case("torch.Tensor.abs", [tensor]), 2)[0] == ["full"]


def test_outcomes_that_are_not_right() -> None:
    tensor = {"tensor": {"shape": [8, 64], "dtype": "torch.float16"}}
    with pytest.raises(CompileError, match=r"no operation 'torch\.nothing'"):
        Case("torch.nothing", [tensor]).function  # noqa: B018
    outcomes, _, note = run_case(Case("torch.Tensor.view", [tensor, {"value": [9, 64]}]), 1)
    assert outcomes == ["refused", "refused"] and "at full shape" in note


@pytest.mark.parametrize("text", ["[", "a: 1", "- 1", ""])
def test_a_file_that_is_not_a_list(tmp_path: Path, text: str) -> None:
    path = tmp_path / "list.yaml"
    path.write_text(text)
    with pytest.raises(CompileError, match="not an operation list"):
        read_cases(str(path))


def test_a_model_with_inputs_by_name_has_a_list() -> None:
    assert any(case.name.endswith("embedding") for case in recorded("t5_encoder"))


def test_the_list_of_a_model_of_the_zoo(tmp_path: Path) -> None:
    cases = recorded("gpt2")
    path = tmp_path / "gpt2.yaml"
    path.write_text(list_text(cases))
    again = read_cases(str(path))
    assert [str(case) for case in again] == [str(case) for case in cases] and len(cases) > 10
    view = next(case for case in again if case.name.endswith("view"))
    assert {"right_eager", "right_compiled"} <= {*run_case(view, 0)[0]}
    linear = next(case for case in again if case.name.endswith("addmm") or case.name.endswith("linear"))
    assert isinstance(linear.arguments(lambda entry, _: torch.empty(entry["shape"]), 1)[0][0], torch.Tensor)
