# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Messages to users: one short sentence each, with the line and the module of the model, and no IR of the compiler."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import bad_programs
import pytest
import torch
from bad_programs import BAD

import spyre_mlir
import spyre_mlir.experiments
from spyre_mlir.errors import LONGEST, CompileError, RangeWarning, brief, listed
from spyre_mlir.target.target import packaged_text

#: Without types, because the calls of users are wrong.
spyre: Any = spyre_mlir
compile, sweep, tune = spyre.compile, spyre.experiments.sweep, spyre.experiments.tune

#: Parts of MLIR models, or of messages of PyTorch, that must not occur in a sentence.
RAW = re.compile(r"%\w+ =|%arg|<\{|!torch|torch\.export cannot|FakeTensor|OpOverload|\n")

#: Refused before any code of the model runs, or because of the call.
WITHOUT_A_LINE = {
    "missing input", "too many inputs", "unknown option", "wrong option", "too many cores", "precision", "autocast",
    "layouts", "layout dims", "no model", "no inputs", "no file", "uint16", "input uint32", "float8", "quantized",
    "sparse", "other shape", "other type", "other count", "other number", "no tensor", "index outside",
    "many parameters",
}  # fmt: skip

#: Cases that compile and run, with a warning.
WARNED = {"host work", "host work of many", "range", "scores", "tolist"}


def messages_of(name: str) -> list[str]:
    """Return the messages that a program writes to stderr."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            BAD[name]()
            texts = []
        except CompileError as error:
            texts = [str(error)]
    return [*texts, *(str(each.message) for each in caught)]


@pytest.mark.parametrize("name", BAD)
def test_a_message_is_a_short_sentence(name):
    texts = messages_of(name)
    assert texts, "Nothing is said."
    for text in texts:
        assert len(text) <= 300 and text.endswith("."), text
        assert not RAW.search(text), text


@pytest.mark.parametrize("name", sorted(BAD.keys() - WITHOUT_A_LINE - WARNED))
def test_an_error_says_where(name):
    (text,) = messages_of(name)
    is_mlir = name.endswith("MLIR")
    assert re.match(r"-:\d+:\d+: error: " if is_mlir else r".*bad_programs\.py:\d+(:0)?: error: ", text), text


@pytest.mark.parametrize(
    "name, words",
    (
        ("dtypes", "matmul in 'layers.1': Its operands are float16 and float32"),
        ("linear dtypes", "linear in 'layers.1.function'"),
        ("no fallback", "sin in 'layers.1': "),
        ("nonzero", "nonzero in 'layers.1': The size of dim 0"),
        ("raises lines", "in 'layers.1': The model raises RuntimeError: first line."),
        ("allclose", "allclose in 'layers.1': Its result is only known when the program runs"),
        ("missing input", "cannot be called with these example inputs: missing a required argument: 'y'."),
        ("many parameters", "2.bias and 35 more"),
        ("unknown option", "its options: sencores, "),
        ("host work", "autocast=torch.float16"),
        ("host work of many", "and 4 more reasons."),
    ),
)
def test_an_error_names_the_operation_and_the_module(name, words):
    assert any(words in text for text in messages_of(name)), messages_of(name)


def test_stderr_has_no_causes(tmp_path):
    """For an error that a script does not catch, Python prints the line of the script and the message."""
    script = tmp_path / "script.py"
    script.write_text("from bad_programs import BAD\nBAD['raises']()\n")
    folder = Path(bad_programs.__file__).parent
    run = subprocess.run(
        [sys.executable, str(script)],
        capture_output=True,
        text=True,
        cwd=folder,
        env=_environment(folder),
        check=False,
    )
    assert run.returncode == 1 and "direct cause" not in run.stderr
    assert max(map(len, run.stderr.replace(str(folder), "").splitlines())) <= 300
    assert "SPYRE_TRACEBACK=1 shows the rest" in run.stderr.splitlines()[-1]


def _environment(folder: Path) -> dict[str, str]:
    import os

    return {
        **os.environ,
        "PYTHONPATH": f"{folder.parents[1]}:{folder}",
        "SPYRE_CACHE": "0",
        "SPYRE_TRACEBACK": "",
    }


def test_the_traceback_lifts_the_bound(monkeypatch):
    long = "word " * 100 + "\nsecond line"
    assert len(str(CompileError(long))) <= LONGEST
    assert len(str(RangeWarning(long))) <= LONGEST
    monkeypatch.setenv("SPYRE_TRACEBACK", "1")
    assert str(CompileError(long)) == f"error: {long}"


def test_long_lists_and_texts_are_cut():
    assert listed("abcdefg") == "a, b, c, d, e, f, g" and listed("abcdefgh") == "a, b, c, d, e, f and 2 more"
    assert listed(()) == "none" and brief("short.") == "short."
    assert brief("x" * 400).endswith("x ... (SPYRE_TRACEBACK=1 shows the rest).")


def test_the_remedy_is_never_cut():
    """A remedy longer than most of the space is cut as the rest of the message."""
    remedy = "compile the model with autocast=torch.float16"
    for most in (LONGEST, 200):
        text = brief(f"{'word ' * 100}; and more; {remedy}.", most)
        assert text.endswith(f"word ... (SPYRE_TRACEBACK=1 shows the rest); {remedy}.") and len(text) <= most
    assert len(brief(f"A problem; {'word ' * 100}.")) <= LONGEST


@pytest.mark.parametrize("folder", ("", "/a" * 100))
def test_a_message_is_the_same_in_every_folder(folder: str) -> None:
    """The length of a location does not shorten the message after it."""
    text = str(CompileError("word " * 100, f"{folder}/model.py:1:2"))
    assert text.removeprefix(folder) == str(CompileError("word " * 100, "/model.py:1:2"))


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(64, 64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x)


X = torch.ones(4, 64)
HALF = X.half()
EXP = """func.func @main(%x: tensor<4x64xf16>) -> tensor<4x64xf16> {
  %e = tensor.empty() : tensor<4x64xf16>
  %y = linalg.exp ins(%x : tensor<4x64xf16>) outs(%e : tensor<4x64xf16>) -> tensor<4x64xf16>
  return %y : tensor<4x64xf16>
}
"""
TWICE = EXP + EXP.replace("@main", "@other")


def hinted(tiles: Any) -> Any:
    def function(x: torch.Tensor) -> torch.Tensor:
        with spyre.spyre_hint(tiles=tiles):
            return torch.exp(x)

    return compile(function, (HALF,))


def declared(*sizes: int) -> None:
    """Declare the dim ``rows`` with sizes, and name the rows of ``HALF``."""
    try:
        for size in sizes:
            spyre.declare_tensor_dim("rows", size)
        spyre.name_tensor_dims(HALF, ["rows"])
    finally:
        spyre.clear_tensor_dims()


def compiled_by_torch(**settings: Any) -> Any:
    torch._dynamo.reset()
    return torch.compile(torch.exp, backend="spyre", **settings)(HALF)


def swept(program: Any, **axes: Any) -> Any:
    return sweep([program], store="unused.sqlite", **axes)


#: User errors, and their messages: the likely cause, and the remedy.
MISTAKES: dict[str, tuple[Callable[[], Any], str]] = {
    # What is compiled.
    "onnx": (lambda: compile("model.onnx"), "cannot be read: there is no such file"),
    "pt2": (lambda: compile("model.pt2"), "cannot be read: there is no such file"),
    "weights": (lambda: compile("model.safetensors"), "create the model, load the weights into it"),
    "path of weights": (lambda: compile(Path("a/model.pth")), "create the model, load the weights into it"),
    "script": (
        lambda: compile("model.py"),
        "import it in Python, and give the model that it defines to spyre_mlir",
    ),
    "hub": (
        lambda: compile("meta-llama/Llama-3.1-8B"),
        "nor the path of an .mlir file; give a PyTorch model, such as",
    ),
    "zoo": (
        lambda: compile("zoo:suite/mlp"),
        r"program of the zoo; give \*spyre_mlir.zoo.load\('suite/mlp'\)",
    ),
    "class": (lambda: compile(Model, (X,)), "'Model' is a class; give an instance of it, as Model()"),
    "weights alone": (
        lambda: compile(Model().state_dict(), (X,)),
        "not an OrderedDict; create the model, and give it these weights with load_state_dict",
    ),
    "nothing": (lambda: compile(None, (X,)), "A model is an nn.Module, .* not None"),
    "optimizer": (lambda: compile(torch.optim.SGD(Model().parameters()), (X,)), "not an SGD"),
    "two functions": (lambda: compile(TWICE), "this module has 2; compile one public func.func per file"),
    "empty module": (
        lambda: compile("module {}"),
        "this module has 0; compile one public func.func per file",
    ),
    # Inputs.
    "a tensor": (
        lambda: compile(Model(), X),
        "are a tuple of tensors, .*not a Tensor; give one input as .x,.",
    ),
    "numpy": (lambda: compile(Model(), (X.numpy(),)), "Input 0 is an array of numpy; give a tensor"),
    "None as inputs": (lambda: compile(Model(), None), "not None; give one input as .x,."),
    "forgotten inputs": (
        lambda: compile(Model()),
        "cannot be called with these .*: missing a required argument: 'x'",
    ),
    "another precision": (lambda: compile(Model().half(), (X,)), "cast them to one type, or give autocast"),
    "no inputs": (lambda: compile(lambda: X + 1, ())(X), "takes 0 inputs, not 1"),
    "number of inputs": (lambda: compile(lambda x: x + 1, (X,))(X, X), "takes 1 input, not 2"),
    # Options of ``compile``.
    "misspelt option": (
        lambda: compile(EXP, tile_for_lex=True),
        "'tile_for_lex'; .*.did you mean 'tile_for_lx'.",
    ),
    "misspelt keyword": (lambda: compile(EXP, autocasts="fp16"), "'autocasts'; .*.did you mean 'autocast'."),
    "option in text": (lambda: compile(EXP, **{"verify-eachs": True}), "its options: verify_each, "),
    "flag in words": (
        lambda: compile(EXP, verify_each="yes"),
        "'verify_each' .* must be True or False, not 'yes'",
    ),
    "cores": (lambda: compile(EXP, sencores=64), "sencores is 64; the device has 1 to 32 cores"),
    "half a core": (lambda: compile(EXP, sencores=2.5), "must be an integer, not '2.5'"),
    "device by name": (lambda: compile(EXP, device="cuda"), "a device is the path of a TOML file"),
    "solver": (
        lambda: compile(EXP, layout_solver="bestest"),
        "the solvers are bestfit, .*.did you mean 'bestfit'.",
    ),
    "autocast of MLIR": (
        lambda: compile(EXP, autocast="fp16"),
        "for PyTorch models; spyre-compile --autocast",
    ),
    "autocast": (
        lambda: compile(Model(), (X,), autocast="fp8"),
        "takes torch.float16 or torch.bfloat16, not 'fp8'",
    ),
    "dynamic": (lambda: compile(Model(), (X,), dynamic=3), "mapping from names of dims to .* not 3"),
    "dynamic list": (lambda: compile(Model(), (X,), dynamic=[3]), "'dynamic' takes pairs .* 'x' has 3"),
    "dynamic names": (
        lambda: compile(Model(), (X,), dynamic={"n": (1, 8)}),
        "name_tensor_dims say which dims",
    ),
    "layouts": (lambda: compile(EXP, layouts=[{}]), "is a mapping from names such as .* not a list"),
    "layout key": (
        lambda: compile(EXP, layouts={0: {"stick_dim": [0]}}),
        "has no 'stick_dim'; it has stick_dims",
    ),
    "layout of a dim": (
        lambda: compile(EXP, layouts={0: {"stick_dims": [2]}}),
        "has rank 2; dims count from 0",
    ),
    "layout name": (lambda: compile(EXP, layouts={"y": {"stick_dims": [0]}}), "'y' to lay out; .* are arg0"),
    "level of passes": (
        lambda: compile(EXP, passes={"late": "cse"}),
        "There is no level 'late'; the levels are",
    ),
    "pass": (lambda: compile(EXP, passes={"tiled": "csee"}), r"no pass named 'csee'; did you mean 'cse'\?$"),
    "function as pass": (
        lambda: compile(EXP, passes={"tiled": [print]}),
        "an instance of a class of passes, .* not a",
    ),
    "plan": (lambda: compile(EXP, plan="missing.json"), "'missing.json' cannot be read: No such file"),
    # torch.compile.
    "mode": (lambda: compiled_by_torch(mode="max-autotune"), "has no modes; remove mode='max-autotune'"),
    "options in a list": (lambda: compiled_by_torch(options=["sencores"]), "mapping such as .* not a list"),
    "option of torch.compile": (
        lambda: compiled_by_torch(options={"sencoress": 4}),
        ".did you mean 'sencores'.",
    ),
    # Tensors on the device.
    "float64": (
        lambda: spyre.to_device(X.double()),
        "float64 is not supported .*; choose one of float16",
    ),
    "float64 of PyTorch": (
        lambda: torch.zeros(4, dtype=torch.float64, device="spyre"),
        "The dtype float64 is not supported by the device; choose one of float16",
    ),
    "dtype by name": (lambda: spyre.zeros((4,), dtype="float17"), "float17 is not supported"),
    "ragged list": (
        lambda: spyre.to_device([[1], [2, 3]]),
        "with a sequence; give a tensor or an array",
    ),
    "mixed tensors": (lambda: spyre.to_device(HALF) + HALF, "on the host; move it with to_device"),
    "restickify on the host": (
        lambda: spyre.restickify(HALF, [0]),
        "not a Tensor; transfer it with to_device",
    ),
    "stick dim": (lambda: spyre.to_device(HALF, stick_dims=[2]), "has rank 2; dims count from 0"),
    # Hints.
    "undeclared dim": (lambda: hinted({"columns": 2}), "no dim is declared; declare_tensor_dim declares one"),
    "tiles in a list": (lambda: hinted(["rows"]), "mapping such as .'M': 8., not a list"),
    "no tiles": (lambda: hinted({"rows": 0}), "numbers of parts, which must be positive, not 'rows': 0"),
    "name of no dim": (
        lambda: declared(),
        "'rows' is not declared; call declare_tensor_dim.'rows', size. first",
    ),
    "two sizes": (lambda: declared(4, 8), "take another name, or start again with clear_tensor_dims"),
    "size of a dim": (lambda: declared(8), "the product of their sizes must be 256"),
    "names of no tensor": (lambda: spyre.name_tensor_dims([1], []), "not the dims of a list"),
    # Programs, sweeps and tuning.
    "load": (
        lambda: spyre.Program.load("missing"),
        "no bundle folder .*; spyre-compile -o and Program.save",
    ),
    "report": (lambda: compile(EXP).report("x.pdf"), "must end in .html, .json or .svg"),
    "traffic": (lambda: compile(EXP).traffic(), "has not run yet; call it first"),
    "shape": (lambda: compile(EXP)(HALF[:2]), r"but the argument has \[4, 64\]; compile for this shape"),
    "type": (lambda: compile(EXP)(X), "is float32, but the argument is float16; cast the array"),
    "model in a sweep": (
        lambda: swept(Model()),
        "Workers cannot import a Model; give the path 'module:function'",
    ),
    "onnx in a sweep": (
        lambda: swept("model.onnx"),
        "is not MLIR; spyre_mlir.compile and spyre-compile read it",
    ),
    "axis": (
        lambda: swept(EXP, sencoress=[4]),
        "There is no option 'sencoress' to sweep; there are sencores, ",
    ),
    "field": (
        lambda: swept(EXP, axes={"device.lx.byte": [1]}),
        "unknown field lx.byte; .*.did you mean 'bytes'.",
    ),
    "module of a sweep": (
        lambda: swept("no_module:f"),
        "no module 'no_module' .*; add its folder to PYTHONPATH",
    ),
    "no program": (lambda: sweep([], store="unused.sqlite"), "The sweep has no programs"),
    "objective": (lambda: tune(EXP, objective="speed"), "no figure 'speed'; there are predicted_us"),
    "no trials": (lambda: tune(EXP, trials=0), "at least one trial and one worker, not 0 and 1"),
}

#: Wrong command lines: DIR is the folder of a bundle, MLIR the file that it comes from, OUT a new name.
WRONG_COMMANDS = {
    "compile MLIR": "arguments are required: -o; see 'spyre-compile --help'",
    "compile missing.mlir -o OUT": "cannot be read: No such file or directory",
    "compile SCRIPT -o OUT": "import it in Python, and give the model that it defines to spyre_mlir.compile",
    "compile MLIR -o MLIR": "A bundle is a folder, but there is a file with this name",
    "compile MLIR -o -": "cannot be written to stdout; name a folder",
    "compile MLIR -o OUT --sencore 4": r"did you mean '--sencores'\?$",
    "compile MLIR -o OUT --autocast fp8": "choose from 'float16'",
    "compile MLIR -o OUT --pipeline lx-plannin=false": ".did you mean 'lx-planning'.",
    "compile MLIR -o OUT --pipeline lx-planning=no": "must be 'true' or 'false', not 'no'",
    "compile MLIR -o OUT --passes laidout=cse": ".did you mean 'laid-out'.",
    "compile MLIR -o OUT --layout 0 stick-dim=0": ".did you mean 'stick-dims'.",
    "compile MLIR -o OUT --report x.pdf": "must end in .html, .json or .svg",
    "compile MLIR -o OUT --load missing.py": "of --load does not exist",
    "compile MLIR -o OUT --device missing.toml": "a device is the path of a TOML file",
    "compile MLIR -o OUT --device TYPO": "unknown field cores.cuont; .*.did you mean 'count'.",
    "compile MLIR -o OUT --device TEXT": "must be an integer of at most 281474976710656, not '32'",
    "opt MLIR --choose-layout": r"did you mean 'choose-layouts'\?$",
    "opt MLIR --spyre-pipeline --to-level=place": ".did you mean 'placed'.",
    "opt MLIR --to-level=placed": "so it needs --spyre-pipeline",
    "opt MLIR --work-distribution": "has no #stick.layout; run choose-layouts first",
    "translate MLIR": "is required; see 'spyre-translate --help'",
    "translate MLIR --to-bundle OUT": "run the spyre pipeline on it first",
    "run missing": "spyre-compile -o and Program.save write one",
    "run DIR": "no array was given for this input; give an array with its name",
    "run DIR --inputs MLIR": "not an archive of numpy arrays: .*; numpy.savez writes one",
    "validate MLIR": "There is no bundle folder with this name; spyre-compile -o",
    "validate EMPTY": "The folder does not contain a bundle; spyre-compile -o",
    "validate BROKEN": "sdsc_0.json: error: The file is missing from the bundle",
    "report": "One of DIR, --layout and --lx is required",
    "report DIR -o x.pdf": "must end in .html, .json or .svg",
    "report --layout 512x240": "neither a type such as 512x240xf16 nor a file",
    "report --layout 4x4xf16 --stick-dims 2": "has rank 2; dims count from 0",
    "diff DIR": "required: DIR_B; see",
    "plan MLIR --capacity 1MB": "neither a number of bytes nor NAME=BYTES",
    "plan MLIR --capacity 64": "The first line has to name the columns",
    "calibrate EMPTY": "measured.csv' cannot be read: No such file",
    "sweep MLIR": "The sweep is not TOML",
    "tune MLIR --objective speed": "no figure 'speed'; there are predicted_us",
    "tune zoo:nlp": "The zoo has no 'nlp'; it has",
    "lsp --port 80": "see 'spyre-lsp --help'",
}


def check_sentence(text: str, message: str) -> None:
    """A message is one whole sentence on one line."""
    assert re.search(message, text), text
    assert "SPYRE_TRACEBACK" not in text and "Internal error" not in text and text.endswith((".", "?")), text
    assert len(text.splitlines()) == 1 and not re.search(r"\. [A-Z]", text), text


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_of_a_user(mistake: str) -> None:
    call, message = MISTAKES[mistake]
    with pytest.raises(CompileError) as raised, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        call()
    check_sentence(str(raised.value), message)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("mistakes")
    names = {name: folder / name.lower() for name in ("DIR", "OUT", "EMPTY", "BROKEN", "TYPO", "TEXT")}
    names |= {"MLIR": folder / "exp.mlir", "SCRIPT": folder / "model.py"}
    names["MLIR"].write_text(EXP)
    names["SCRIPT"].write_text("import torch\n")
    program = compile(EXP)
    program.save(names["DIR"])
    program.save(names["BROKEN"])
    (names["BROKEN"] / "sdsc_0.json").unlink()
    names["EMPTY"].mkdir()
    device = packaged_text()
    names["TYPO"].write_text(device.replace("\ncount = 32", "\ncuont = 32"))
    names["TEXT"].write_text(device.replace("\ncount = 32", "\ncount = '32'"))
    return {name: str(path) for name, path in names.items()}


@pytest.mark.parametrize("command", WRONG_COMMANDS)
def test_wrong_commands(command: str, files: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    """The diagnostic is on the first line; a source line with a caret may follow."""
    tool, *arguments = command.split()
    main = importlib.import_module(f"spyre_mlir.tools.spyre_{tool}").main
    assert main([files.get(argument, argument) for argument in arguments]) == 1
    output = capsys.readouterr()
    first, *rest = output.err.splitlines()
    check_sentence(first if first.endswith((".", "?")) else first + ".", WRONG_COMMANDS[command])
    assert output.out == "" and len(rest) in (0, 2)
    assert not Path(files["OUT"]).exists()
