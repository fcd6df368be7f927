# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Module names of the model: each operation has the path of its module, at every level and in all reports."""

from __future__ import annotations

import functools
import itertools
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from language_models import LANGUAGE_MODELS
from torch import Tensor, nn

import spyre_mlir
from spyre_mlir.bundle.folder import read_bundle, write_bundle
from spyre_mlir.bundle.model import Bundle
from spyre_mlir.bundle.sequence import join, split
from spyre_mlir.bundle.validate import validate
from spyre_mlir.driver.steps import BundleStep
from spyre_mlir.driver.stored_program import bundle_from_json, bundle_to_json
from spyre_mlir.errors import CompileError
from spyre_mlir.frontend import import_torch
from spyre_mlir.frontend.dynamo import CompiledGraph
from spyre_mlir.lowering.export import export
from spyre_mlir.mlir import ir, source_note
from spyre_mlir.pipelines import SpyrePipeline, run_pipeline
from spyre_mlir.remarks import Remark, Remarks
from spyre_mlir.report import difference as differences
from spyre_mlir.report.difference import difference
from spyre_mlir.report.modules import MODEL, ModuleNode, module_lines, module_rows, module_tree
from spyre_mlir.report.program_facts import Operation
from spyre_mlir.timeline import timeline
from spyre_mlir.timeline.trace import trace_events

TRANSFORMERS = pytest.mark.parametrize("name", ["llama", "bert", "vit"])


class Block(nn.Module):
    """A norm, a linear layer and a residual."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(128)
        self.inner = nn.Linear(128, 128)

    def forward(self, x: Tensor) -> Tensor:
        return x + torch.relu(self.inner(self.norm(x)))


class Stack(nn.Module):
    """Equal blocks, and one operation of the model itself."""

    def __init__(self, depth: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Block() for _ in range(depth))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return torch.exp(x)


def rows() -> Tensor:
    return torch.randn(64, 128).half()


@functools.cache
def stack(depth: int = 6, **options: Any) -> spyre_mlir.Program:
    return spyre_mlir.compile(Stack(depth).half().eval(), (rows(),), **options)


@functools.cache
def transformer(name: str) -> tuple[nn.Module, dict[str, Any]]:
    torch.manual_seed(0)
    model, inputs = LANGUAGE_MODELS[name]()
    return model.eval(), inputs


def operations(*programs: spyre_mlir.Program) -> list[Operation]:
    steps = (step for program in programs for step in program.steps if isinstance(step, BundleStep))
    return [operation for step in steps for operation in step.facts().operations]


def by_torch_compile(
    model: Any, monkeypatch: pytest.MonkeyPatch, *inputs: Any, **named: Any
) -> list[Operation]:
    """The operations of all graphs that torch.compile makes of a call."""
    programs: list[spyre_mlir.Program] = []
    call = CompiledGraph.__call__

    def recorded(graph: CompiledGraph, *given: Any) -> Any:
        result = call(graph, *given)
        programs.extend(getattr(program, "program", program) for program in graph.programs.values())
        return result

    monkeypatch.setattr(CompiledGraph, "__call__", recorded)
    torch._dynamo.reset()
    with torch.no_grad():
        torch.compile(model, backend=spyre_mlir.torch_backend, options={"autocast": torch.float16})(
            *inputs, **named
        )
    assert programs
    return operations(*programs)


# -- all operations ----------------------------------------------------------------------------------------


@TRANSFORMERS
def test_all_operations_of_a_model_have_their_module(name):
    model, inputs = transformer(name)
    paths = {
        operation.module
        for operation in operations(spyre_mlir.compile(model, inputs, autocast=torch.float16))
    }
    assert "" not in paths and paths <= dict(model.named_modules()).keys()


@TRANSFORMERS
def test_all_operations_have_it_under_torch_compile(name, monkeypatch):
    model, inputs = transformer(name)
    paths = {operation.module for operation in by_torch_compile(model, monkeypatch, **inputs)}
    assert "" not in paths and paths <= dict(model.named_modules()).keys()


def test_variables_and_items_of_dynamo_are_paths(monkeypatch):
    """Two models of a list; a model of PyTorch's own, around which torch.compile puts a function."""

    def run(models: list[nn.Module], x: Tensor) -> Tensor:
        for model in models:
            x = model(x)
        return x

    paths = {
        each.module for each in by_torch_compile(run, monkeypatch, [Block().half(), Block().half()], rows())
    }
    assert {"models.0.inner", "models.1.inner", "models.0", "models.1"} <= paths
    sequence = nn.Sequential(nn.Linear(128, 128), nn.Sigmoid()).half()
    assert {each.module for each in by_torch_compile(sequence, monkeypatch, rows())} == {"0", "1"}


def test_pieces_have_the_modules_of_the_model():
    class Branching(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = Block(), Block()

        def forward(self, x: Tensor) -> Tensor:
            y = self.first(x)
            return self.second(y + 1) if y.sum() > 1e9 else self.second(y).exp()

    program = spyre_mlir.compile(Branching().half().eval(), (rows(),))
    with torch.no_grad():
        program(rows())
    paths = {operation.module for operation in operations(program)}
    assert {"first.inner", "second.inner", "first.norm", "second.norm"} <= paths


def test_a_function_has_no_modules():
    program = spyre_mlir.compile(lambda x: torch.relu(x) + 1, (rows(),))
    assert {operation.module for operation in operations(program)} == {""}
    assert module_tree(operations(program)) is None and "modules" not in program.summary()


def test_equal_designs_have_an_origin_each():
    """Layers share designs; the origin belongs to the execute, by module, line and operation of PyTorch."""
    shared = [operation for operation in operations(stack()) if operation.sharing > 1]
    by_design = itertools.groupby(
        sorted(shared, key=lambda each: each.design.filename), lambda each: each.design
    )
    assert any(len({operation.module for operation in group}) > 1 for _, group in by_design)
    relus = [operation for operation in operations(stack()) if operation.opcode == "relufwd"]
    assert [relu.module for relu in relus] == [f"layers.{number}" for number in range(6)]
    assert {relu.origin.aten_op for relu in relus} == {"aten.relu.default"}
    assert all(relu.source.startswith("test_module_names.py:") for relu in relus)


def test_replayed_layers_have_their_own_names():
    """Layers that are copies of a planned one are named as those that are planned each."""
    copied, planned = (operations(stack(10, reuse=reuse)) for reuse in (True, False))
    assert [(one.opcode, one.origin) for one in copied] == [(one.opcode, one.origin) for one in planned]
    assert {f"layers.{number}.inner" for number in range(10)} <= {operation.module for operation in copied}


# -- level by level ----------------------------------------------------------------------------------------


def computing(module: ir.Module) -> Iterator[ir.Operation]:
    """The operations of a module that are in its executes at the end."""
    found: list[ir.Operation] = []

    def visit(op: ir.Operation) -> ir.WalkResult:
        is_linalg = op.name.startswith("linalg.") and op.name not in (
            "linalg.yield",
            "linalg.index",
            "linalg.fill",
        )
        if is_linalg or op.name in ("sdsc.shuffle", "stick.restickify", "sdscbundle.sdsc_execute"):
            found.append(op)
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit)
    yield from found


@pytest.mark.parametrize("level", ["linalg", "device-ops", "laid-out", "divided", "placed", "bundle"])
def test_each_level_has_the_modules(level):
    module = import_torch(Stack(2).half(), (rows(),), context=ir.Context()).module
    assert module is not None
    if level != "linalg":
        run_pipeline(module, SpyrePipeline().pipeline(to_level=level))
    # As text, as tools hand it on.
    text = module.operation.get_asm(enable_debug_info=True)
    parsed = ir.Module.parse(text, module.context)
    ops = list(computing(parsed))
    of_model = [op.name for op in ops if not source_note(op.location, "module")]
    assert len(of_model) <= 2, of_model
    assert all(source_note(op.location, "aten") for op in ops)
    paths = {source_note(op.location, "module") for op in ops}
    assert {"layers.0.inner", "layers.0", "layers.1.norm", "layers.1"} <= paths


def test_the_module_of_a_bundle_exports_its_origins():
    """The manifest has them, so text without locations has them, too."""
    text = str(stack().module)
    assert "loc(" not in text
    bundle, _ = export(ir.Module.parse(text, stack().module.context))
    assert bundle.manifest == stack().bundle.manifest and bundle.manifest.origins


def test_debug_handles_name_the_module():
    design = stack().bundle.designs["sdsc_0.json"]
    assert design.debug is not None and design.debug.ir_chain[0] == "layers.0.norm"


# -- files -------------------------------------------------------------------------------------------------


def test_a_folder_keeps_the_origins(tmp_path):
    stack().save(tmp_path / "one")
    read = spyre_mlir.Program.load(tmp_path / "one")
    assert [each.origin for each in operations(read)] == [each.origin for each in operations(stack())]
    value = json.loads((tmp_path / "one" / "manifest.json").read_text())
    assert len(value["executes_from"]) == len(operations(stack()))
    assert len(value["origins"]) == len({each.origin for each in operations(stack())})
    assert bundle_from_json(bundle_to_json(stack().bundle), "stored") == stack().bundle


def without_origins(bundle: Bundle) -> Bundle:
    return replace(bundle, manifest=bundle.manifest.with_origins(()))


def test_a_bundle_without_origins_has_those_of_its_designs(tmp_path):
    write_bundle(without_origins(stack().bundle), tmp_path / "old")
    assert "origins" not in json.loads((tmp_path / "old" / "manifest.json").read_text())
    bundle = read_bundle(tmp_path / "old")
    assert validate(bundle) == []
    steps = spyre_mlir.report.program_facts.program_facts(bundle).operations
    assert all(each.origin == bundle.designs[f"sdsc_{0}.json"].origin for each in steps[:1])
    assert all(each.source and not each.module for each in steps)


@pytest.mark.parametrize("value", [{"module": 3}, {"path": "layers.0"}, 7])
def test_origins_of_another_form_are_refused(value, tmp_path):
    write_bundle(stack(2).bundle, tmp_path / "wrong")
    path = tmp_path / "wrong" / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest["origins"][0] = value
    path.write_text(json.dumps(manifest))
    with pytest.raises(CompileError, match=r"origins\[0\]"):
        read_bundle(tmp_path / "wrong")


def test_a_sequence_has_the_origins_of_the_whole():
    program = spyre_mlir.compile(Stack(3).half().eval(), (rows(),), bundle_operations=8)
    bundles = [step.bundle for step in program.steps if isinstance(step, BundleStep)]
    assert len(bundles) > 1
    whole = join(bundles)
    origins = [each.origin for each in operations(program)]
    assert whole.manifest.execute_origins() == origins
    parts = split(stack(2).bundle, [4])
    executes = [origin for part in parts for origin in part.manifest.execute_origins()]
    assert executes == stack(2).bundle.manifest.execute_origins()
    joined = join([without_origins(bundles[0]), *bundles[1:]])
    assert (
        joined.manifest.execute_origins()[len(bundles[0].manifest.uses) :]
        == origins[len(bundles[0].manifest.uses) :]
    )


def test_the_cache_keeps_the_origins(cache_log):
    """A program of the cache equals the compiled program, with its remarks."""
    model = Stack(2).half().eval()
    first = spyre_mlir.compile(model, (rows(),))
    cache_log.clear()
    second = spyre_mlir.compile(model, (rows(),))
    assert any("no pass runs" in record.getMessage() for record in cache_log.records)
    assert first.bundle.manifest == second.bundle.manifest and second.bundle.manifest.origins
    assert list(second.remarks) == list(first.remarks) and any(remark.module for remark in second.remarks)


# -- reports of operations ---------------------------------------------------------------------------------


def test_remarks_name_the_module():
    remarks = [remark for remark in stack().remarks if remark.kind == "fusion"]
    assert remarks and {remark.module.split(".")[0] for remark in remarks} == {"layers"}
    assert f"fusion: in '{remarks[0].module}': " in str(remarks[0])
    read = Remarks.from_json_lines(Remarks(stack().remarks).json_lines())
    assert read == list(stack().remarks)


def test_remarks_of_older_files_are_read():
    line = '{"pass_name": "p", "op_location": "", "op_name": "o", "kind": "k", "reason": "r"}'
    assert Remarks.from_json_lines(line) == [Remark("p", "", "o", "k", "r")]
    assert "module" not in Remarks([Remark("p", "", "o", "k", "r")]).json_lines()


def test_errors_of_passes_name_the_module():
    class Sine(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.sin(x)

    with pytest.raises(CompileError, match=r"sin in 'layers\.1': ") as caught:
        model = Stack(2)
        model.layers[1] = Sine()
        spyre_mlir.compile(model.half().eval(), (rows(),), fallback=False)
    assert caught.value.module == "layers.1"


def test_the_summary_folds_equal_layers():
    lines = stack().summary().splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith("modules"))
    table = list(itertools.takewhile(lambda line: line.startswith("  "), lines[first + 1 :]))
    assert len(table) <= 10 and any("layers.0 .. 5.inner  x 6" in line for line in table)
    assert any(line.strip().startswith(MODEL) for line in table)


def test_rows_have_each_operation_once():
    root = tree(stack())
    for most in (1, 3, 5, 100):
        rows = module_rows(root, most)
        assert sum(row.work.executes for row in rows) == root.work.executes == len(operations(stack()))
        assert sum(row.work.picoseconds for row in rows) == root.work.picoseconds
        assert sum(row.work.bytes for row in rows) == sum(each.traffic for each in operations(stack()))
    whole = stack().steps[0].facts().timeline.shares.total
    assert root.work.picoseconds == whole
    # More modules than rows: modules with the least time are merged.
    lines = module_lines(operations(spyre_mlir.compile(Wide().half().eval(), (rows_of_wide(),))), 4)
    assert len(lines) == 5 and lines[-1].startswith("3 others")


class Wide(nn.Module):
    """Parallel modules, none of which equals another."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two, self.three = nn.Sigmoid(), nn.Tanh(), nn.ReLU()
        self.four, self.five, self.six = nn.Softmax(-1), nn.LayerNorm(128), nn.Linear(128, 64)

    def forward(self, x: Tensor) -> Tensor:
        return self.six(self.five(self.four(self.three(self.two(self.one(x))))))


def rows_of_wide() -> Tensor:
    return torch.randn(256, 128).half()


def tree(program: spyre_mlir.Program) -> ModuleNode:
    root = module_tree(operations(program))
    assert root is not None
    return root


def test_equal_layers_are_one_node_and_others_are_not():
    (layers,) = [child for child in tree(stack()).children if child.label == "layers"]
    (layer,) = layers.children
    assert layer.label == "layers.0 .. 5" and layer.times == 6
    assert [child.label for child in layer.children] == ["layers.0 .. 5.norm", "layers.0 .. 5.inner"]
    each = layer.work_of_each()
    assert len(each) == 6 and sum(work.picoseconds for work in each) == layer.work.picoseconds

    class Mixed(Stack):
        def __init__(self) -> None:
            super().__init__(4)
            self.layers[2] = nn.Sequential(nn.Softmax(-1))

    mixed = tree(spyre_mlir.compile(Mixed().half().eval(), (rows(),)))
    (layers,) = [child for child in mixed.children if child.label == "layers"]
    assert [child.label for child in layers.children] == ["layers.0 .. 1, 3", "layers.2"]


def test_the_trace_has_the_modules():
    events = trace_events(timeline(stack().bundle))
    computed = [event for event in events if event["ph"] == "X" and "design" in event["args"]]
    assert {"layers.3.inner", "layers.5"} <= {event["args"]["module"] for event in computed}
    (process,) = [e["pid"] for e in events if e["name"] == "process_name" and e["args"]["name"] == "modules"]
    bars = [event for event in events if event["ph"] == "X" and event["pid"] == process]
    second = [bar["name"] for bar in bars if bar["tid"] == 2]
    assert second == [f"layers.{number}" for number in range(6)]
    for inner in (bar for bar in bars if bar["tid"] == 3):
        (outer,) = [
            bar
            for bar in bars
            if bar["tid"] == 2 and inner["args"]["module"].startswith(bar["args"]["module"] + ".")
        ]
        assert outer["ts"] <= inner["ts"]
        assert inner["ts"] + inner["dur"] <= outer["ts"] + outer["dur"] + 1e-6


def test_the_difference_has_the_modules():
    """Operations of other modules are reported with their modules, and equal operations are matched by them."""
    found = difference(stack(3).bundle, stack(4).bundle)
    text = differences.text(found)
    assert "in layers.3.inner" in text
    assert "in layers.3.inner" in differences.page(found)
    fewer = difference(stack(3, sencores=8).bundle, stack(3).bundle)
    pairs = [pair for pair in fewer.operations if pair.before is not None and pair.after is not None]
    assert pairs and all(pair.before.module == pair.after.module for pair in pairs)


def test_equal_input_gives_equal_bytes(tmp_path: Path):
    names = []
    for number in range(2):
        folder = tmp_path / str(number)
        torch.manual_seed(1)
        spyre_mlir.compile(Stack(2).half().eval(), (rows(),)).save(folder)
        names.append((folder / "manifest.json").read_bytes())
    assert names[0] == names[1]
