# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Front end of PyTorch models: one program, a program for each piece of a model, or a program of several sizes."""

from __future__ import annotations

import copy
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from spyre_mlir.compile_lock import one_at_a_time
from spyre_mlir.cost.work import ProgramBound
from spyre_mlir.dialects import context as new_context
from spyre_mlir.driver.argument_layouts import lay_out
from spyre_mlir.driver.build import Built
from spyre_mlir.driver.checking import ModuleComparisons
from spyre_mlir.driver.compilation import (
    CompileOptions,
    Inputs,
    ProgramOptions,
    compile_with,
    compiled,
    warn_of_passes,
)
from spyre_mlir.driver.program import Program, Provenance
from spyre_mlir.driver.program_findings import Trials
from spyre_mlir.errors import CompileError, UncapturedError
from spyre_mlir.findings import Batch, Freeze, Halve, ModelEdit, MovedStick, Resize, Untranspose
from spyre_mlir.frontend.capture_key import ModelCache
from spyre_mlir.frontend.content_reads import ContentReads
from spyre_mlir.frontend.dynamic import DynamicProgram
from spyre_mlir.frontend.dynamic_inputs import (
    DynamicMarks,
    example_inputs_of,
    marks_of_inputs,
    marks_of_shapes,
)
from spyre_mlir.frontend.hints import name_tensor_dims, names_of
from spyre_mlir.frontend.importer import capture_torch, import_torch
from spyre_mlir.frontend.meta_tensors import stand_ins
from spyre_mlir.frontend.module_comparison import module_comparisons
from spyre_mlir.frontend.module_pairs import check_padding_safety
from spyre_mlir.frontend.piecewise import PiecewiseProgram
from spyre_mlir.frontend.sharded_models import is_sharded, is_simulated, localized, place_of
from spyre_mlir.target.target import compiling_for, default_target
from spyre_mlir.tensors.device_tensor import DeviceTensor, Storage, to_device

# Edits of a PyTorch model and its example inputs, to evaluate changes that a user could make.

#: Maximum number of bytes of weights that are copied for an evaluation.
_MOST_COPIED = 4 << 30

_TRANSPOSES = frozenset({
    torch.t, torch.transpose, torch.permute, torch.swapaxes, torch.swapdims, torch.movedim, torch.moveaxis,
    torch.adjoint, torch.Tensor.t, torch.Tensor.transpose, torch.Tensor.permute, torch.Tensor.swapaxes,
    torch.Tensor.swapdims, torch.Tensor.movedim, torch.Tensor.moveaxis, torch.Tensor.adjoint,
    *(vars(torch._C.TensorBase)[name].__get__ for name in ("T", "mT", "H", "mH")),
})  # fmt: skip


class ModelTrials(Trials):
    """The call of ``compile`` that produced the program of a model."""

    is_model = True

    @property
    def inputs_on_device(self) -> frozenset[int]:
        return places_on_device(self.inputs())

    def compared(self, model: Any, inputs: Sequence[Any], numerics: str) -> ModuleComparisons:
        compile_model = partial(self.compile, **self.options)
        return module_comparisons(model, inputs, numerics, compile_model)

    def edited(self, edit: ModelEdit) -> tuple[Any, Any]:
        inputs = self.inputs()
        match edit:
            case Resize(size, to):
                return resized(self.source, inputs, size, to)
            case MovedStick(key, stick_dim):
                return with_stick_dim(self.source, inputs, key, stick_dim)
            case Untranspose(lines):
                return untransposed(self.source, inputs, lines)
            case Batch(size, times):
                return batched(self.source, inputs, size, times)
            case Freeze(keys):
                return frozen(self.source, inputs, keys)
            case Halve():
                return halved(self.source, inputs)

    def released(self) -> ModelTrials:
        leaves, structure = pytree.tree_flatten(self.inputs())
        makers = [_maker(leaf) for leaf in leaves]
        return replace(self, inputs=lambda: structure.unflatten([make() for make in makers]))


def _maker(leaf: Any) -> Callable[[], Any]:
    """Return a function that makes an input of the same form, with other numbers; it does not refer to the input."""
    names = names_of(leaf)
    if isinstance(leaf, DeviceTensor):
        storage, strided, steps = leaf.storage, leaf.strided, leaf.steps
        form, dtype, size, plain = storage.form, storage.dtype, storage.data.size, storage.plain_shape

        def make() -> Any:
            return DeviceTensor.viewing(Storage(form, dtype, np.zeros(size, np.uint8), plain), strided, steps)
    elif isinstance(leaf, torch.Tensor):
        shape, strides, kind = leaf.shape, leaf.stride(), leaf.dtype
        is_parameter = isinstance(leaf, torch.nn.Parameter)

        def make() -> Any:
            elements = 1 + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
            # Equal numbers, as a scale or a table, could need fewer operations.
            last = 0.5 if kind.is_floating_point else 0
            memory = torch.linspace(2 * last, last, max(elements, 0)).to(kind)
            tensor = memory.as_strided(shape, strides)
            return torch.nn.Parameter(tensor, requires_grad=False) if is_parameter else tensor
    else:
        return lambda: leaf
    return lambda: name_tensor_dims(make(), names) if names else make()


class UneditableError(Exception):
    """Raised for a model or inputs that an edit does not support."""


def resized(model: Any, inputs: Any, size: int, to: int) -> tuple[Any, Any]:
    """Return the model with inputs of ``to`` rows wherever they had ``size``; the last row is repeated.

    ``DifferentPrograms`` if the first rows of the results are not proven to equal the results of the model.
    """

    def resize(tensor: torch.Tensor) -> torch.Tensor:
        for dim, extent in enumerate(tensor.shape):
            if extent == size:
                rows = torch.arange(to, device=tensor.device).clamp(max=size - 1)
                tensor = tensor.index_select(dim, rows)
        return tensor

    larger, context = _mapped(resize, inputs), new_context()
    smaller, padded = (
        import_torch(capture_torch(model, example, None), example, context=context)
        for example in (inputs, larger)
    )
    check_padding_safety(smaller, padded)
    return model, larger


def places_on_device(inputs: Any) -> frozenset[int]:
    """Return the indices of device tensors among the tensors of a call."""
    leaves = pytree.tree_leaves(inputs)
    return frozenset(
        place for place, index in enumerate(_tensors(leaves)) if isinstance(leaves[index], DeviceTensor)
    )


def _tensors(leaves: Sequence[Any]) -> list[int]:
    """The indices of the tensors among the leaves of the inputs; numbers are not inputs of a program."""
    return [index for index, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor | DeviceTensor)]


def with_stick_dim(model: Any, inputs: Any, key: tuple[int, str], stick_dim: int) -> tuple[Any, Any]:
    """Return the model with the device input that ``key`` names laid out along ``stick_dim``."""
    leaves, structure = pytree.tree_flatten(inputs)
    index = _tensors(leaves)[key[0]]
    if isinstance(inputs, Mapping):
        index = list(inputs).index(key[1])
    leaves[index] = to_device(leaves[index].numpy(), stick_dims=[stick_dim])
    return model, pytree.tree_unflatten(leaves, structure)


def untransposed(model: Any, inputs: Any, lines: Collection[tuple[str, int]]) -> tuple[Any, Any]:
    """Return the model in which transposes in the functions that contain these lines return their argument."""
    return _Untransposed(model, frozenset(lines)), inputs


class _Untransposed(torch.nn.Module):
    """A model without the transposes in the functions that contain given lines."""

    def __init__(self, model: Callable[..., Any], lines: frozenset[tuple[str, int]]) -> None:
        super().__init__()
        self.model = model
        self._lines = lines

    def forward(self, *inputs: Any, **named: Any) -> Any:
        with _WithoutTransposes(self._lines):
            return self.model(*inputs, **named)


class _WithoutTransposes(TorchFunctionMode):
    """Context in which transposes in functions that contain given lines return their argument."""

    def __init__(self, lines: frozenset[tuple[str, int]]) -> None:
        super().__init__()
        self._lines = lines

    def __torch_function__(
        self,
        function: Callable[..., Any],
        types: Any,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        if function in _TRANSPOSES:
            code = sys._getframe(1).f_code
            numbers = {line for _, _, line in code.co_lines()}
            if any(file == code.co_filename and line in numbers for file, line in self._lines):
                return args[0]
        return function(*args, **(kwargs or {}))


def batched(model: Any, inputs: Any, size: int, times: int) -> tuple[Any, Any]:
    """Return the model with ``times`` as many samples in every input whose first dim is ``size``."""

    def repeat(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.dim() and tensor.shape[0] == size:
            return torch.cat([tensor] * times)
        return tensor

    return model, _mapped(repeat, inputs)


def halved(model: Any, inputs: Any) -> tuple[Any, Any]:
    """Return a float16 copy of the model and its inputs; for a function only the inputs are converted."""

    def half(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.half() if tensor.dtype in (torch.float32, torch.float64) else tensor

    if not isinstance(model, torch.nn.Module):
        return model, _mapped(half, inputs)
    if sum(tensor.nbytes for tensor in model.state_dict().values()) > _MOST_COPIED:
        raise UneditableError("the weights are too large for a copy")
    return copy.deepcopy(model).half(), _mapped(half, inputs)


def frozen(model: Any, inputs: Any, keys: Sequence[tuple[int, str]]) -> tuple[Any, Any]:
    """Return the model as a function of the other inputs, with the inputs that ``keys`` name as buffers."""
    leaves = pytree.tree_leaves(inputs)
    if len(leaves) != len(inputs):
        raise UneditableError("the inputs are nested")
    if isinstance(inputs, Mapping):
        values = {name: inputs[name] for _, name in keys}
        others = {name: value for name, value in inputs.items() if name not in values}
        return _Frozen(model, {}, values), others
    tensors = _tensors(leaves)
    chosen = {tensors[place]: leaves[tensors[place]] for place, _ in keys}
    return _Frozen(model, chosen, {}), tuple(v for index, v in enumerate(inputs) if index not in chosen)


class _Frozen(torch.nn.Module):
    """A model in which some inputs are buffers."""

    def __init__(
        self, model: Callable[..., Any], positions: Mapping[int, Any], names: Mapping[str, Any]
    ) -> None:
        super().__init__()
        self.model = model
        self._positions, self._names = list(positions), list(names)
        for number, value in enumerate([*positions.values(), *names.values()]):
            self.register_buffer(f"frozen_{number}", value)

    def forward(self, *inputs: Any, **named: Any) -> Any:
        count = len(self._positions) + len(self._names)
        buffers = iter([getattr(self, f"frozen_{number}") for number in range(count)])
        places = {position: next(buffers) for position in self._positions}
        given = iter(inputs)
        total = len(inputs) + len(places)
        whole = [places[position] if position in places else next(given) for position in range(total)]
        return self.model(*whole, **named, **{name: next(buffers) for name in self._names})


def _mapped(function: Callable[[torch.Tensor], torch.Tensor], inputs: Any) -> Any:
    """The inputs with ``function`` applied to each tensor; a device tensor is rejected, because it has a layout."""
    if any(isinstance(leaf, DeviceTensor) for leaf in pytree.tree_leaves(inputs)):
        raise UneditableError("an input is a tensor of the device")
    return pytree.tree_map_only(torch.Tensor, function, inputs)


def compile_model(model: Any, inputs: Inputs = (), **options: Any) -> Any:
    """Compile a model, with the options and the results of ``spyre_mlir.compile``."""
    return compile_with(model_program, model, inputs, **options)


def model_program(
    model: Any,
    inputs: Inputs,
    dynamic: Any,
    words: ProgramOptions,
    options: dict[str, Any],
) -> Program | DynamicProgram[Program] | PiecewiseProgram:
    """Front end of models: compile a model, or read its program from the cache."""
    if isinstance(inputs, tuple) and not inputs:
        inputs = example_inputs_of(model)
    place = place_of(model, inputs)
    if is_sharded(model, inputs):
        model, inputs = localized(model, inputs)
    marks = _dynamic_marks(model, inputs, dynamic)
    if dynamic is None and marks is None:
        trials = ModelTrials(model, lambda: inputs, options, compile_model)
        program = _program(model, inputs, CompileOptions.of(trials, **options))
        if isinstance(program, Program):
            program.place = place
        return program
    if words.target != "bundle":
        raise CompileError("A program with dynamic dims has no form in KTIR; compile it for one size.")
    marked, dims, occurrences = marks or (model, dict(dynamic or {}), ())
    checked = replace(CompileOptions.of(**options), fallback=False)
    symbolic = partial(_symbolic_program, checked) if words.one_bundle else None
    autocast = options.get("autocast")
    return DynamicProgram(
        marked,
        inputs,
        dims,
        partial(compile_model, **options),
        partial(_symbolic_program, CompileOptions.of(**options)),
        symbolic,
        autocast,
        occurrences,
    )


def _dynamic_marks(model: Any, inputs: Inputs, dynamic: Any) -> DynamicMarks | None:
    """Return the dynamic dims that PyTorch objects declare, in the option or else in the model and its inputs."""

    def names_dims(entry: Any) -> bool:
        """Return whether an entry of the option is in the form of ``dynamic_shapes`` of ``torch.export``."""
        dims = (
            entry.values() if isinstance(entry, Mapping) else entry if isinstance(entry, tuple | list) else ()
        )
        return isinstance(entry, Mapping) or any(
            hasattr(dim, "max") and hasattr(dim, "__name__") for dim in dims
        )

    if dynamic is None:
        return marks_of_inputs(model, inputs)
    if not isinstance(dynamic, Mapping | tuple | list):
        raise CompileError(
            "The option 'dynamic' is a mapping from names of dims to (granularity, largest size), such as "
            f"{{'rows': (64, 1024)}}, or the dynamic_shapes of torch.export, not {dynamic!r:.40}."
        )
    is_by_name = isinstance(dynamic, Mapping) and not any(map(names_dims, dynamic.values()))
    return None if is_by_name else marks_of_shapes(model, inputs, dynamic)


def _program(model: Any, inputs: Inputs, options: CompileOptions) -> Program | PiecewiseProgram:
    """Compile a model for the shapes of its inputs."""
    try:
        return _compiled_model(model, inputs, options)
    except UncapturedError as reason:
        return _in_pieces(model, inputs, replace(options, trials=None), reason)


def _symbolic_program(
    options: CompileOptions, model: Any, inputs: Any, *, mark: Callable[..., None]
) -> Program | PiecewiseProgram:
    """Compile a model whose sizes ``mark`` makes parameters of the program."""
    return _program(model, inputs, replace(options, mark=mark))


def _in_pieces(
    model: Any,
    inputs: Inputs,
    options: CompileOptions,
    reason: UncapturedError,
) -> PiecewiseProgram:
    """Compile a model piece by piece; raise the ``reason`` why it is not one program if pieces are not allowed."""
    # An exported program is one graph, without Python code that could run between pieces.
    # The pieces of one rank would wait for the pieces of the others.
    if not options.fallback or not callable(model) or hasattr(model, "graph_signature") or is_simulated():
        raise reason
    if (
        options.layouts
        or options.pipeline.use_plan
        or options.plan is not None
        or options.autocast is not None
        or options.state
    ):
        raise CompileError(
            "The options 'layouts', 'plan', 'autocast' and 'state' are for a model that is one program. "
            f"{reason.message}",
            reason.location,
        ) from reason

    def compiled_piece(function: Callable[..., Any], example: Sequence[Any]) -> Program:
        """Compile a piece and issue the warnings of its passes, but no ``HostWorkWarning``."""
        with one_at_a_time():
            program = _compiled_model(function, example, options)
        warn_of_passes(program, stacklevel=4)
        return program

    return PiecewiseProgram(model, inputs, compiled_piece, reason)


def _compiled_model(model: Any, inputs: Inputs, options: CompileOptions) -> Program:
    """Compile a PyTorch model, or read its program from the cache, with its weights and its state."""
    with stand_ins(model, inputs) as (example, missing):
        program = _without_state(model, example, options)
        if options.state:
            program.state = options.state.tensors(program._built, program.signature, example)
    if missing:
        program.drop_numbers(missing)
    return program


def _without_state(model: Any, inputs: Inputs, options: CompileOptions) -> Program:
    """Compile a PyTorch model, or read its program from the cache, with its weights."""
    begun = time.perf_counter()
    programs = (
        options.open_cache()
    )  # before ``compiling_for``, which changes the settings that the cache notes
    reads, target = ContentReads(), options.pipeline.target_from(default_target())
    with compiling_for(target), reads.collecting():  # layouts that the model requests are created here
        captured = capture_torch(model, inputs, options.autocast)
        entry = ModelCache.open(programs, captured, inputs, options.key)
        if entry is not None:
            program = entry.serve(
                lambda stored, signature: options.restored(
                    stored, signature=signature, arrays=signature.weights()
                )
            )
            if program is not None:
                return program
        imported = import_torch(
            captured,
            inputs,
            context=new_context(),
            precision=options.pipeline.precision,
            state=options.state.given,
        )
        options.state.check(imported.signature)
    import_seconds = time.perf_counter() - begun
    if imported.module is not None:
        if options.mark is not None:
            with compiling_for(target):  # ``mark`` imports the model again
                options.mark(imported, options.state.given)
        lay_out(imported.module, options.pipeline, imported.input_layouts, options.layouts)
        built, provenance = compiled(imported.module, options, imported.signature.updated())
    elif results := [key for key in options.layouts if str(key).startswith("result")]:
        raise CompileError(
            f"There is no '{results[0]}' to lay out: the model computes nothing on the device."
        )
    else:
        built, provenance = Built([], [], [], []), Provenance(bound=ProgramBound(0, 0, {}))
    program = Program(
        built,
        options.numerics,
        arrays=imported.signature.weights(),
        signature=imported.signature,
        provenance=provenance,
        import_seconds=import_seconds,
        search=options.search,
    )
    if entry is not None and imported.module is not None:
        entry.keep(program, imported.signature, reads)
    return program
