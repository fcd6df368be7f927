# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``spyre_mlir.compile``: modules go to the driver, models go to the frontend, which imports PyTorch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Unpack, overload

from spyre_mlir.driver import compilation
from spyre_mlir.driver.mesh_program import MeshProgram
from spyre_mlir.driver.program import Program
from spyre_mlir.mlir import ir
from spyre_mlir.pipelines.pipeline_options import LevelChoice

if TYPE_CHECKING:
    from spyre_mlir.frontend.dynamic import DynamicProgram
    from spyre_mlir.frontend.piecewise import PiecewiseProgram


@overload
def compile(
    module_or_mlir: Any,
    inputs: Sequence[Any] | Mapping[str, Any] = (),
    *,
    dynamic: None = None,
    **options: Unpack[compilation.CompileKeywords],
) -> Program: ...


@overload
def compile(
    module_or_mlir: Any,
    inputs: Sequence[Any] | Mapping[str, Any] = (),
    *,
    dynamic: Mapping[str, Any] | Sequence[Any],
    **options: Unpack[compilation.CompileKeywords],
) -> DynamicProgram[Program]: ...


@overload
def compile(
    module_or_mlir: Any,
    inputs: Sequence[Any] | Mapping[str, Any] = (),
    *,
    mesh: Sequence[int] | Mapping[str, int],
    **options: Unpack[compilation.CompileKeywords],
) -> MeshProgram: ...


@compilation.with_pipeline_options
def compile(
    module_or_mlir: Any,
    inputs: Sequence[Any] | Mapping[str, Any] = (),
    *,
    device: str | Path | None = None,
    sencores: int | None = None,
    precision: Literal["device", "strict"] = "device",
    numerics: Literal["ieee", "dl16"] | None = None,
    layouts: Mapping[str | int, Any] | None = None,
    plan: Mapping[str, Any] | str | Path | None = None,
    fallback: bool = True,
    autocast: Any = None,
    dynamic: Mapping[str, Any] | Sequence[Any] | None = None,
    one_bundle: bool = True,
    target: Literal["bundle", "ktir"] = "bundle",
    cache: bool | None = None,
    check: bool = False,
    passes: Mapping[str, LevelChoice] | Sequence[str] | None = None,
    state: bool | Sequence[str] | Mapping[str, Any] | None = None,
    mesh: Sequence[int] | Mapping[str, int] | None = None,
    **pipeline_options: Unpack[compilation.PipelineKeywords],
) -> Program | DynamicProgram[Program] | MeshProgram | PiecewiseProgram:
    """Compile a ``torch.nn.Module``, a function, an exported program, or MLIR.

    Warnings of passes are issued as Python warnings. ``HostWorkWarning`` is issued if the host runs over 1 % of the
    floating-point operations.

    Args:
        module_or_mlir: A PyTorch model, or a linalg module: its text, the path of an .mlir file, or an ``ir.Module``. A
            path may also be an ONNX file, or a .pt2 file of ``torch.export``, which has example inputs.
        inputs: Example inputs of a PyTorch model: a tuple, or a mapping for keyword inputs. For a module: arrays or
            device tensors by position. The layout of a ``DeviceTensor`` becomes the layout of the input.
        device: A device file (default: SPYRE_DEVICE, or the packaged one; docs/devices.md).
        sencores: The number of cores that the program may use (default: SENCORES, or all).
        precision: "device" (fp16 islands stay fp16) or "strict" (the types of the linalg).
        numerics: The numerics of the simulator, "ieee" or bit-true "dl16" (the default for programs with bfloat16,
            because IEEE fp16 cannot represent its range).
        layouts: Layouts of inputs, parameters and constants, by name or by the position of an input, and of results, as
            "result0": each a mapping with the ``stick_dims``, ``dim_order`` and ``stick_outermost`` of ``to_device``.
        plan: Fixed decisions of the compiler: a plan file, or the value of ``Program.plan`` (docs/plans.md).
        fallback: Run operations that the device does not support on the host; if False, they are an error
            (docs/host.md).
        autocast: A type (torch.float16, torch.bfloat16, or the name of one) to which a PyTorch model is cast as by
            ``torch.autocast("cpu", ..)``; "dl16" means fp16, with "dl16" as the default of ``numerics``.
        dynamic: The granularity and the largest size in elements of named dims of the inputs, or the
            ``dynamic_shapes`` of ``torch.export``; ``torch._dynamo.mark_dynamic`` on an input has the same effect
            (docs/dynamic.md).
        one_bundle: Use one bundle for all sizes of ``dynamic`` if possible; otherwise one bundle per requested size.
        target: "bundle", or "ktir" for a program in KTIR, which ktir-cpu runs (docs/ktir.md).
        cache: Reuse programs from the cache on disk (default: SPYRE_CACHE, or True; docs/cache.md).
        check: Report races of the bundles as errors (docs/concurrency.md).
        passes: User-defined passes, keyed by the level after which they run: ``{"laid-out": [MyPass()]}``, as instances
            or as pipeline text (docs/writing-a-pass.md).
        state: The arguments that stay in device memory between calls as ``Program.state``: True for all buffers that
            the model changes, names of arguments, or a mapping from names to tensors, such as the state of another
            program, which is then shared (docs/serving.md).
        mesh: The extents of a mesh of cards, (4,) or ``{"tp": 4}``. The model is then a function from a ``DeviceMesh``
            to the model of one rank, and this process runs all ranks (docs/several-cards.md).
        **pipeline_options: The options of the pipeline, the fields of ``SpyrePipeline``.

    Returns:
        The program; a ``MeshProgram`` with ``mesh``, a ``DynamicProgram`` with ``dynamic``, a ``KtirProgram`` for
        "ktir", and a ``PiecewiseProgram`` for a model whose shapes or branches depend on values.

    Raises:
        CompileError: The model, the module or an option is rejected; the message says what to change.
    """
    suffix = Path(module_or_mlir).suffix if isinstance(module_or_mlir, str | Path) else ""
    if suffix in (".onnx", ".pt2"):
        from spyre_mlir.frontend import model_files  # imports PyTorch

        read = model_files.import_onnx if suffix == ".onnx" else model_files.load_exported
        module_or_mlir = read(module_or_mlir)
    if mesh is not None:
        from spyre_mlir.meshes import mesh_compilation

        front_end = mesh_compilation.front_end(mesh)
    elif isinstance(module_or_mlir, ir.Module | str | Path):
        front_end = compilation.mlir_program
    else:
        from spyre_mlir.frontend.model_compilation import model_program as front_end  # imports PyTorch
    return compilation.compile_with(
        front_end, module_or_mlir, inputs, device=device, sencores=sencores, precision=precision, numerics=numerics,
        layouts=layouts, plan=plan, fallback=fallback, autocast=autocast, dynamic=dynamic, one_bundle=one_bundle,
        target=target, cache=cache, check=check, passes=passes, state=state, **pipeline_options,
    )  # fmt: skip


def load(folder: str | Path, numerics: str | None = None) -> Program:
    """Load a program from a folder that ``Program.save`` or ``spyre-compile -o`` wrote.

    Args:
        folder: The folder.
        numerics: Numerics of the simulator, "ieee" or "dl16"; the numerics of the saved program by default.

    Returns:
        The program; call it by position. It returns tensors for tensors, on their device, and arrays for arrays.

    Raises:
        CompileError: The folder is not a program, a file of it is damaged (the message names it), or ``numerics`` is
            unknown.
    """
    return Program.load(folder, numerics)
