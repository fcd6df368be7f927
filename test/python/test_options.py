# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Numbers of options that the device cannot have are one diagnostic, wherever they are given."""

from __future__ import annotations

from pathlib import Path

import pytest

import spyre_mlir
from spyre_mlir import passes
from spyre_mlir.errors import CompileError
from spyre_mlir.layout import ViewError
from spyre_mlir.passes.attach_target import AttachTarget
from spyre_mlir.pipelines.spyre import SpyrePipeline
from spyre_mlir.target.target import packaged_target
from spyre_mlir.tools import spyre_compile, spyre_opt, spyre_validate

PROGRAM = """func.func @main(%x: tensor<64x64xf16>) -> tensor<64x64xf16> {
  %e = tensor.empty() : tensor<64x64xf16>
  %y = linalg.exp ins(%x : tensor<64x64xf16>) outs(%e : tensor<64x64xf16>) -> tensor<64x64xf16>
  return %y : tensor<64x64xf16>
}
"""

CORES = ("0", "-1", "33", "x", "1.5", "nan", "99999999999999999999")
FRACTIONS = ("-0.1", "1.5", "nan", "inf", "-inf", "x", "1e400")


@pytest.mark.parametrize(
    ("option", "values"), [("sencores", CORES), ("lx_frac_avail", FRACTIONS)], ids=("sencores", "lx")
)
def test_passes_refuse_numbers_that_the_device_cannot_have(option: str, values: tuple[str, ...]):
    """The pass that attaches a target does, and the pipeline."""
    for owner in (AttachTarget, SpyrePipeline):
        for value in values:
            with pytest.raises(CompileError, match=f"{option}|{option.replace('_', '-')}"):
                owner.parse(f"{option}={value}").target_from(packaged_target())


@pytest.mark.parametrize("option", ["sencores", "lx-frac-avail", "device"])
def test_options_of_the_target_are_of_no_other_pass(option: str) -> None:
    """The error is one sentence that names their pass."""
    names = {name for name, each in passes.load_all().items() if each.__module__.startswith("spyre_mlir.")}
    for name in names - {AttachTarget.name}:
        with pytest.raises(
            CompileError, match=rf"The pass '{name}' has no option '{option}'; 'attach-target\{{"
        ):
            passes.load_all()[name].parse(f"{option}=1")


@pytest.mark.parametrize("value", CORES)
def test_cores_from_the_environment(value: str, monkeypatch: pytest.MonkeyPatch):
    """SENCORES is checked as the option is."""
    monkeypatch.setenv("SENCORES", value)
    with pytest.raises(CompileError, match=r"sencores|SENCORES"):
        spyre_mlir.compile(PROGRAM)


@pytest.mark.parametrize("value", [0, -1, 33, 1.5, True, "x", [4], 10**30, float("nan")])
def test_cores_from_python(value: object):
    """The argument of ``compile`` may have any type."""
    with pytest.raises(CompileError, match="sencores"):
        spyre_mlir.compile(PROGRAM, sencores=value)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("tool", "flags"),
    [
        (spyre_compile, ["-o", "none.bundle", "--sencores=0"]),
        (spyre_opt, ["--spyre-pipeline=sencores=0"]),
        (spyre_opt, ["--attach-target=sencores=0"]),
        (spyre_opt, ["--attach-target=lx-frac-avail=2"]),
        (spyre_opt, [f"--mlir-elide-elementsattrs-if-larger={1 << 70}"]),
        (spyre_opt, ["--mlir-elide-elementsattrs-if-larger=-5"]),
        (spyre_opt, ["--outline-host-functions=precision=none"]),
        (spyre_validate, ["--lx-backend-fraction=2"]),
        (spyre_validate, ["--lx-backend-fraction=nan"]),
    ],
    ids=str,
)
def test_tools_refuse_them_too(
    tool, flags: list[str], tmp_path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
):
    """Status 1 and one line, before anything is read or written."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SPYRE_TRACEBACK", "1")
    (tmp_path / "program.mlir").write_text(PROGRAM)
    assert tool.main(["program.mlir", *flags]) == 1
    said = capsys.readouterr()
    assert said.err.count("error: ") == 1 and not said.out
    assert [path.name for path in tmp_path.iterdir()] == ["program.mlir"]


@pytest.mark.parametrize("size", [64, 256])
def test_a_layout_that_is_none_is_one_diagnostic(size: int, monkeypatch: pytest.MonkeyPatch):
    """int8 weights have no layout on a device with other sticks: the error of the layout is one diagnostic."""
    error = ViewError(f"the last digit is not one stick of {size} elements")

    def refuse(*_: object) -> None:
        raise error

    monkeypatch.setattr("spyre_mlir.passes.choose_layouts.ChooseLayouts.decide", refuse)
    with pytest.raises(
        CompileError,
        match=f"layout that an operation needs in sticks of 128 bytes: .* one stick of {size} elements",
    ):
        spyre_mlir.compile(PROGRAM, fallback=False)


def test_values_and_text_give_the_same_options() -> None:
    """``compile`` checks values, the tools parse text; a list is a tuple, None is the default."""
    values = {
        "sencores": 2,
        "lx_ops": ["add", "exp"],
        "use_plan": Path("p.json"),
        "moves": False,
        "device": None,
    }
    text = "sencores=2 lx-ops=add,exp use-plan=p.json moves=false"
    assert SpyrePipeline.of(**values) == SpyrePipeline.parse(text)
    assert SpyrePipeline.of(sencores="2", verify_each="true") == SpyrePipeline(sencores=2, verify_each=True)


def test_an_element_of_a_value_is_not_parsed() -> None:
    """A comma in an element of a tuple does not separate elements."""
    assert SpyrePipeline.of(insert=("cse,canonicalize@cse",)).insert == ("cse,canonicalize@cse",)
    steps = SpyrePipeline.of(insert=("cse,sccp@fold-constants",)).pipeline().steps
    assert [step.name for step in steps].count("sccp") == 1
