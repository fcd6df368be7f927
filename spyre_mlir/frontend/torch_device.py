"""The device "spyre" of PyTorch: its tensors are ``DeviceTensor``, its operations compiled programs of one each.

::

    x = torch.rand(64, 256, dtype=torch.float16).to("spyre")
    model.to("spyre")
    print(torch.compile(kernel)(x, y))

PyTorch's key for devices that it does not know, PrivateUse1, is ``spyre`` once ``spyre_mlir.frontend`` is imported.
A tensor is a wrapper without memory of PyTorch's; views share the storage of its ``device_tensor``. What an operation
changes in place is computed as a new tensor and written into that storage. Random numbers are drawn on the host.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, cast

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import return_and_correct_aliasing
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

from spyre_mlir.device_tensor import DeviceTensor, eager, to_device
from spyre_mlir.device_views import ViewStep
from spyre_mlir.errors import CompileError
from spyre_mlir.frontend.hints import name_tensor_dims, names_of
from spyre_mlir.frontend.signature import to_numpy
from spyre_mlir.layout.strided import StridedView

NAME = "spyre"

_aten = torch.ops.aten

#: Operations without a tensor among their arguments, which the host runs.
_FACTORIES = (
    "empty.memory_format", "empty_strided", "zeros", "ones", "full", "arange", "arange.start", "arange.start_step",
    "linspace", "eye", "eye.m", "rand", "rand.generator", "randn", "randn.generator", "randint", "randint.low",
    "randint.generator", "randint.low_generator", "randperm", "randperm.generator", "scalar_tensor", "tril_indices",
    "triu_indices",
)  # fmt: skip

#: Operations that take of a tensor its sizes and strides alone, and that the host runs.
_LIKE = {
    _aten.empty_like, _aten.zeros_like, _aten.ones_like, _aten.full_like, _aten.rand_like, _aten.randn_like,
    _aten.randint_like, _aten.new_empty, _aten.new_zeros, _aten.new_ones, _aten.new_full, _aten.new_empty_strided,
}  # fmt: skip

#: Operations that fill a tensor with numbers that the host makes.
_FILLS = {
    _aten.fill_, _aten.zero_, _aten.uniform_, _aten.normal_, _aten.bernoulli_, _aten.random_, _aten.exponential_,
    _aten.log_normal_, _aten.cauchy_, _aten.geometric_,
}  # fmt: skip

_ATTENTION = _aten.scaled_dot_product_attention.default

_COPIES = (_aten.copy_.default, _aten._to_copy.default)


class SpyreTensor(torch.Tensor):
    """A tensor on the device; ``device_tensor`` is its storage, layout and view, None while a compiler traces."""

    device_tensor: DeviceTensor | None
    _meta: torch.Tensor

    __torch_function__ = cast(Any, torch._C._disabled_torch_function_impl)

    @staticmethod
    def __new__(cls, meta: torch.Tensor, device_tensor: DeviceTensor | None = None) -> SpyreTensor:
        made = torch.Tensor._make_wrapper_subclass(
            cls, meta.size(), strides=meta.stride(), storage_offset=meta.storage_offset(), dtype=meta.dtype,
            device=torch.device(NAME, 0),
        )  # fmt: skip
        made._meta, made.device_tensor = meta, device_tensor
        return made

    @classmethod
    def of(cls, tensor: DeviceTensor) -> SpyreTensor:
        """PyTorch's tensor of one that is on the device."""
        storage = torch.empty(tensor.storage.layout.shape, dtype=getattr(torch, tensor.dtype), device="meta")
        return cls(storage.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset()), tensor)

    def __tensor_flatten__(self) -> tuple[list[str], None]:
        return ["_meta"], None

    @staticmethod
    def __tensor_unflatten__(
        inner: dict[str, torch.Tensor], context: Any, size: Any, stride: Any
    ) -> SpyreTensor:
        return SpyreTensor(inner["_meta"])

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        if self.device_tensor is None:
            return f"SpyreTensor(shape={list(self.shape)}, dtype={self.dtype})"
        text = repr(self.device_tensor.cpu())[:-1]
        layout = self.device_tensor.storage.layout
        gradient = ", requires_grad=True" if self.requires_grad else ""
        return f"{text}, device='{self.device}', device_size={list(layout.device_size)}{gradient})"

    def tolist(self) -> Any:
        return self.cpu().tolist()

    def restickify(self, stick_dims: Sequence[int]) -> SpyreTensor:
        """A copy with other stick dims, made on the device."""
        return SpyreTensor.of(_device_tensor(self).restickify(stick_dims))

    @classmethod
    def __torch_dispatch__(
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        named = kwargs or {}
        if any(_is_abstract(leaf) for leaf in pytree.tree_leaves((args, named))):
            return _abstract(func, args, named)
        packet = func.overloadpacket
        if packet in _LIKE:
            return _like(func, args, named)
        if func in _COPIES:
            return _to_copy(*args, **named) if func is _COPIES[1] else _copy(*args, **named)
        if func is _aten.lift_fresh.default:
            return args[0]
        if func is _aten._local_scalar_dense.default:
            return _host(args[0]).item()
        if func is _aten.equal.default:
            return torch.equal(*map(_host, args))
        if func is _ATTENTION:
            return _attention(*args, **named)
        if (composed := func.decompose(*args, **named)) is not NotImplemented:
            return composed
        if packet in _FILLS:
            return _filled(func, args, named)
        if func.is_view:
            return return_and_correct_aliasing(func, args, named, _viewed(func, args, named))
        if func._schema.is_mutable:
            return _in_place(func, args, named)
        return _on_device(eager().run(func, *_operands(func, args, named)))


def _is_abstract(leaf: Any) -> bool:
    return isinstance(leaf, SpyreTensor) and leaf.device_tensor is None


def _device_tensor(tensor: SpyreTensor) -> DeviceTensor:
    if tensor.device_tensor is None:
        raise CompileError("A tensor that a compiler traces has no numbers.")
    return tensor.device_tensor


def _host(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor on the host, by no operation of PyTorch: inside of one these have other meanings."""
    return _device_tensor(tensor).cpu() if isinstance(tensor, SpyreTensor) else tensor


def _attention(*args: Any, **named: Any) -> Any:
    """Attention as one program; where a gradient is wanted, as matmuls and a softmax, which have gradients."""
    tensors = [leaf for leaf in pytree.tree_leaves((args, named)) if isinstance(leaf, torch.Tensor)]
    if any(map(_is_abstract, tensors)):
        return _abstract(_ATTENTION, args, named)
    if torch.is_grad_enabled() and any(each.requires_grad for each in tensors):
        names = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")
        given = dict(zip(names, args, strict=False)) | named
        return _aten._scaled_dot_product_attention_math.default(**given)[0]
    return _on_device(eager().run(_ATTENTION, *_operands(_ATTENTION, args, named)))


def _abstract(func: Any, args: Any, named: dict[str, Any]) -> Any:
    """An operation on tensors without numbers: what comes out is on the device, unless it is sent to another."""

    def meta(leaf: Any) -> Any:
        if isinstance(leaf, SpyreTensor):
            return leaf._meta
        if isinstance(leaf, torch.Tensor) and leaf.device.type == NAME:
            return torch.empty_strided(leaf.size(), leaf.stride(), dtype=leaf.dtype, device="meta")
        return torch.device("meta") if isinstance(leaf, torch.device) else leaf

    target = named.get("device")
    given, given_named = pytree.tree_map(meta, (args, named))
    results = func(*given, **given_named)
    if target is not None and target.type != NAME:
        return torch.empty_strided(results.size(), results.stride(), dtype=results.dtype, device=target)
    results = pytree.tree_map_only(torch.Tensor, SpyreTensor, results)
    if func.is_view or func._schema.is_mutable:
        return return_and_correct_aliasing(func, args, named, results)
    return results


def _on_the_host(leaf: Any) -> Any:
    """An argument of an operation that runs on the host."""
    if isinstance(leaf, torch.device) and leaf.type == NAME:
        return torch.device("cpu")
    return leaf


def _move(tensor: torch.Tensor, **layout: Any) -> SpyreTensor:
    """A tensor of the host on the device, with its strides as PyTorch keeps them in a copy."""
    order = sorted(range(tensor.dim()), key=lambda dim: (-tensor.stride(dim), tensor.shape[dim] == 1))
    if layout or order == list(range(tensor.dim())):
        return SpyreTensor.of(to_device(tensor, **layout))
    stored = to_device(tensor.permute(order))
    return SpyreTensor.of(stored.permute([order.index(dim) for dim in range(tensor.dim())]))


def _like(func: Any, args: Any, named: dict[str, Any]) -> Any:
    source = args[0]
    example = torch.empty_like(source._meta, device="cpu")
    target = named.get("device")
    made = func(example, *args[1:], **{name: _on_the_host(value) for name, value in named.items()})
    return made if target is not None and target.type != NAME else _move(made)


def _to_copy(tensor: torch.Tensor, *, dtype: Any = None, device: Any = None, **named: Any) -> Any:
    """A copy in another dtype, or on another device."""
    if not isinstance(tensor, SpyreTensor):
        return _move(tensor.to(dtype) if dtype is not None else tensor)
    source = _device_tensor(tensor)
    if device is not None and torch.device(device).type != NAME:
        host = source.cpu()
        return host.to(device, dtype) if dtype is not None else host.to(device)
    if dtype in (None, tensor.dtype):
        return _on_device(eager().run(_aten.clone.default, (source,), {}))
    return _on_device(eager().run(_aten._to_copy.default, (source,), {"dtype": dtype}))


def _copy(target: torch.Tensor, source: torch.Tensor, non_blocking: bool = False) -> torch.Tensor:
    host = _host(source)
    if not isinstance(target, SpyreTensor):
        return target.copy_(host)
    _write(target, host)
    return target


def _write(target: SpyreTensor, host: torch.Tensor) -> None:
    """Replace the numbers of a tensor, in its storage, by those of one on the host, converted and broadcast."""
    tensor = _device_tensor(target)
    values = host.to(target.dtype).expand(target.shape)
    numbers = values.float().numpy() if values.dtype == torch.bfloat16 else to_numpy(values.contiguous())
    tensor.write(numbers)


def _filled(func: Any, args: Any, named: dict[str, Any]) -> Any:
    target, *rest = args
    example = torch.empty(target.shape, dtype=target.dtype)
    rest = [_host(each) if isinstance(each, torch.Tensor) else each for each in rest]
    _write(target, func(example, *rest, **named))
    return target


def _viewed(func: Any, args: Any, named: dict[str, Any]) -> Any:
    """What a view operation gives: the sizes and strides that PyTorch computes, on the same storage."""
    source, *rest = args
    tensor = _device_tensor(source)
    results = func(source._meta, *rest, **named)
    step = ViewStep(str(func).removeprefix("aten."), (*rest, *([named] if named else [])))
    if isinstance(results, torch.Tensor):
        return SpyreTensor(results, _view(tensor, results, step))
    return [
        SpyreTensor(part, _view(tensor, part, step._replace(number=at))) for at, part in enumerate(results)
    ]


def _view(tensor: DeviceTensor, meta: torch.Tensor, step: ViewStep) -> DeviceTensor:
    strided = StridedView(tuple(meta.shape), meta.stride(), int(meta.storage_offset()))
    return tensor if strided == tensor.strided else tensor.view_as(strided, step)


def _in_place(func: Any, args: Any, named: dict[str, Any]) -> Any:
    """An operation that changes a tensor: what its functional form computes is written into the storage."""
    functional, targets, args, named = _functional(func, args, named)
    results = eager().run(functional, *_operands(func, args, named))
    results = list(results) if isinstance(results, tuple | list) else [results]
    for target, result in zip(targets, results, strict=True):
        host = result.cpu()
        if tuple(host.shape) != tuple(target.shape):
            raise RuntimeError(
                f"{func} makes a tensor of {list(host.shape)}, which cannot be written into one of "
                f"{list(target.shape)} on {NAME}."
            )
        _copy(target, host)
    return targets[0] if len(targets) == 1 else tuple(targets)


def _functional(func: Any, args: Any, named: dict[str, Any]) -> tuple[Any, list[Any], Any, dict[str, Any]]:
    """The form of an operation that changes nothing, what the operation changes, and the arguments of the form."""
    arguments = func._schema.arguments
    changed = [each for each in arguments if each.alias_info is not None and each.alias_info.is_write]
    outputs = [each.name for each in changed if each.is_out]
    given = {each.name: value for each, value in zip(arguments, args, strict=False)} | named
    targets = [given[each.name] for each in changed]
    name = func._schema.name.removeprefix("aten::")
    packet = getattr(_aten, name.removesuffix("_") if not outputs else name, None)
    wanted = [each.name for each in arguments if each.name not in outputs]
    for overload in packet.overloads() if packet else ():
        form = getattr(packet, overload)
        names = [each.name for each in form._schema.arguments]
        types = [str(each.type) for each in form._schema.arguments]
        own = [str(each.type) for each in arguments if each.name in wanted]
        if not form._schema.is_mutable and names == wanted and types == own:
            rest = {key: value for key, value in named.items() if key not in outputs}
            return form, targets, args, rest
    raise CompileError(f"{func} changes a tensor on {NAME} in a way that has no functional form.")


def as_device_tensor(leaf: Any) -> Any:
    """The tensor of the device, with the names of its dims, that one of PyTorch is; else what is given."""
    if not isinstance(leaf, SpyreTensor):
        return leaf
    made = _device_tensor(leaf)
    if names := names_of(leaf):
        name_tensor_dims(made, names)
    return made


def operand(tensor: torch.Tensor) -> DeviceTensor:
    """An input of a compiled graph as the device has it."""
    return as_device_tensor(tensor) if isinstance(tensor, SpyreTensor) else to_device(tensor)


def _operands(func: Any, args: Any, named: dict[str, Any]) -> tuple[Any, Any]:
    """The arguments of a program: tensors of the device, and numbers of the host as such tensors."""

    def operand(leaf: Any) -> Any:
        if isinstance(leaf, SpyreTensor):
            return _device_tensor(leaf)
        if isinstance(leaf, torch.Tensor):
            if leaf.dim():
                raise RuntimeError(
                    f"{func} expects all tensors on one device, but found {NAME}:0 and {leaf.device}."
                )
            return to_device(leaf)
        return _on_the_host(leaf)

    return pytree.tree_map(operand, (tuple(args), dict(named)))


def _on_device(results: Any) -> Any:
    return pytree.tree_map_only(DeviceTensor, SpyreTensor.of, results)


# -- registration ---------------------------------------------------------------------------------------------


class _Module:
    """``torch.spyre``: one device, always there."""

    def is_initialized(self) -> bool:
        return True

    def is_available(self) -> bool:
        return True

    def current_device(self) -> int:
        return 0

    def device_count(self) -> int:
        return 1

    def synchronize(self, device: Any = None) -> None:
        """Nothing: a program has run when its call returns."""

    def manual_seed(self, seed: int) -> None:
        """Nothing: the host draws random numbers."""

    manual_seed_all = manual_seed

    def get_rng_state(self, device: Any = None) -> torch.Tensor:
        return torch.get_rng_state()

    def set_rng_state(self, state: torch.Tensor, device: Any = None) -> None:
        torch.set_rng_state(state)

    def _is_in_bad_fork(self) -> bool:
        return False


def _factory(operation: Any) -> Callable[..., Any]:
    def make(*args: Any, device: Any = None, pin_memory: Any = None, **named: Any) -> SpyreTensor:
        return _move(operation(*args, device="cpu", **named))

    return make


def _overload(name: str) -> Any:
    packet, _, overload = name.partition(".")
    return getattr(getattr(_aten, packet), overload or "default")


def _extended_to(move: Callable[..., Any]) -> Callable[..., Any]:
    """``torch.Tensor.to`` with the layouts of ``to_device`` for what goes to the device, as the RFC extends it."""

    @functools.wraps(move)
    def to(
        self: torch.Tensor, *args: Any, stick_dims: Any = None, dim_order: Any = None, **named: Any
    ) -> torch.Tensor:
        if stick_dims is None and dim_order is None:
            return move(self, *args, **named)
        moved = move(self, *args, **named)
        if not isinstance(moved, SpyreTensor):
            raise CompileError(
                "Stick dims are chosen for the way to the device: only a tensor that goes to 'spyre' takes them."
            )
        source = _device_tensor(moved) if isinstance(self, SpyreTensor) else _host(moved)
        return SpyreTensor.of(to_device(source, stick_dims=stick_dims, dim_order=dim_order))

    return to


_libraries: list[torch.library.Library] = []


def register() -> None:
    """Make ``spyre`` a device of PyTorch, once; another device of the same key stays what it is."""
    if _libraries or torch._C._get_privateuse1_backend_name() not in ("privateuseone", NAME):
        return
    _setup_privateuseone_for_python_backend(NAME, backend_module=_Module())
    library = torch.library.Library("aten", "IMPL")
    for name in _FACTORIES:
        library.impl(name, _factory(_overload(name)), "PrivateUse1")
    library.impl("_to_copy", _to_copy, "PrivateUse1")
    library.impl("scaled_dot_product_attention", _attention, "AutogradPrivateUse1")
    _libraries.append(library)
    torch.Tensor.to = _extended_to(torch.Tensor.to)
