# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The flags of mlir-opt: the table of the manual equals the upstream driver and our parser."""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from pathlib import Path

import pytest
import torch_mlir.ir

from spyre_mlir.mlir import PassManager, ir, register_torch_passes
from spyre_mlir.pipelines import upstream
from spyre_mlir.tools import spyre_opt

PAGE = Path(__file__).parents[2] / "docs" / "mlir-opt-flags.md"
LIBRARIES = Path(torch_mlir.ir.__file__).parent / "_mlir_libs"


def rows() -> dict[str, tuple[str, str]]:
    """Verdict and note of each flag in the table."""
    found = re.findall(r"^\| `(--?[\w-]+)` \| (\w+) \| (.*?) ?\|$", PAGE.read_text(encoding="utf-8"), re.M)
    assert len({flag for flag, _, _ in found}) == len(found)
    return {flag: (verdict, note) for flag, verdict, note in found}


def flags_of_upstream(which: str) -> set[str]:
    """The flags that upstream's driver prints, without the passes, which are indented."""
    text = subprocess.run(
        [LIBRARIES / "torch-mlir-opt", which], capture_output=True, text=True, check=True
    ).stdout
    return set(re.findall(r"^  (--?[a-z][\w-]*)", text, re.M))


def our_flags() -> set[str]:
    return {flag for action in spyre_opt._parser()._actions for flag in action.option_strings}


def test_every_flag_of_upstream_has_a_row():
    assert flags_of_upstream("--help") - rows().keys() == set()


def test_every_hidden_flag_of_mlir_has_a_row():
    hidden = {flag for flag in flags_of_upstream("--help-hidden") if "mlir" in flag or "remarks-" in flag}
    assert {flag for flag in hidden - rows().keys() if not flag.startswith("--pass-remarks")} == set()


def test_no_row_is_of_a_flag_that_upstream_does_not_have():
    # Builds without assertions lack the flag of the log.
    assert rows().keys() - flags_of_upstream("--help-hidden") == {"--debug-only"}


def test_rows_say_what_our_parser_takes():
    ours, elsewhere = our_flags(), {"--load-pass-plugin", "--mlir-print-stacktrace-on-diagnostic"}
    for flag, (verdict, note) in rows().items():
        assert verdict in ("same", "like", "missing", "none"), flag
        assert (flag in ours) == (verdict in ("same", "like") and flag not in elsewhere), flag
        assert note or verdict == "same", f"{flag} needs a reason"


def test_nine_of_ten_flags_that_make_sense_are_ours():
    counts = Counter(verdict for verdict, _ in rows().values())
    ours = counts["same"] + counts["like"]
    assert ours >= 0.9 * (ours + counts["missing"])


def test_every_flag_of_ours_has_a_lit_test():
    folder = Path(__file__).parents[1] / "tools" / "spyre-opt"
    runs = "\n".join(path.read_text(encoding="utf-8") for path in folder.glob("*.*"))
    # One parser for all tools: devices and --load have their tests elsewhere, too.
    untested = {flag for flag in our_flags() if not re.search(rf"(?<![\w-]){flag}(?![\w-])", runs)}
    assert untested <= {"-h", "--pass", "--device"}


def test_the_names_of_upstreams_passes_exist():
    with ir.Context():
        assert [name for name in upstream.names() if not upstream.exists(name)] == []
        unknown = [name for name in upstream.names() if "does not refer" in upstream._refusal(name)]
    assert unknown == []


@pytest.mark.exhaustive
def test_the_names_of_upstreams_passes_are_all():
    """Every text of the library that is the name of a pass is in the list; a short one may be no text there."""
    register_torch_passes()
    data = (LIBRARIES / "libTorchMLIRAggregateCAPI.so").read_bytes()
    texts = {text.decode() for text in re.findall(rb"(?<![\w.-])[a-z][a-z0-9]*(?:-[a-z0-9]+)*(?=\0)", data)}
    texts |= {flag.lstrip("-") for flag in re.findall(r"--[\w-]+", upstream_help())}
    with ir.Context():
        passes = {text for text in texts if is_pass(text)}
    assert sorted(passes - set(upstream.names())) == []


def upstream_help() -> str:
    return subprocess.run(
        [LIBRARIES / "torch-mlir-opt", "--help"], capture_output=True, text=True, check=True
    ).stdout


def is_pass(name: str) -> bool:
    try:
        PassManager("builtin.module").add(name)
    except ValueError as error:
        return "does not refer to a registered pass" not in str(error)
    return True
