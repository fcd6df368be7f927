# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Storages of the tensors of one call of a model: without numbers while the model runs, real ones behind each piece."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator
from dataclasses import field

import torch
from torch import Tensor
from torch._C._functorch import is_functorch_wrapped_tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from spyre_mlir.errors import CompileError
from spyre_mlir.records import dataclass


@dataclass
class CallStorage:
    """A storage: ``fake`` has no numbers, ``real`` has them, or is None until the piece has run that fills it.

    ``base`` is the tensor that was made with it. ``is_callers`` is True for what the model or its caller holds.
    """

    fake: torch.UntypedStorage
    real: torch.UntypedStorage | None = None
    is_callers: bool = False
    base: Tensor | None = None
    tensors: list[weakref.ref[Tensor]] = field(default_factory=list)

    def alive(self) -> list[Tensor]:
        """Tensors in the storage that somebody still holds."""
        return [tensor for ref in self.tensors if (tensor := ref()) is not None]

    def is_covered(self) -> bool:
        """Return whether ``base`` has every element of the storage once."""
        base = self.base
        if base is None or base.storage_offset() or base.numel() * base.itemsize != self.fake.nbytes():
            return False
        inner = 1
        for stride, size in sorted(zip(base.stride(), base.shape, strict=True)):
            if size > 1 and stride != inner:
                return False
            inner *= size
        return True

    def view(self, tensor: Tensor) -> Tensor:
        """The numbers of a tensor, where they are."""
        assert self.real is not None
        alias = torch.empty(0, dtype=tensor.dtype)
        alias.set_(self.real, tensor.storage_offset(), tensor.shape, tensor.stride())
        # The bits of these are set, not their numbers.
        alias = torch.ops.aten._neg_view.default(alias) if tensor.is_neg() else alias
        return alias.conj() if tensor.is_conj() else alias

    def write(self, tensor: Tensor, values: Tensor) -> None:
        """Give a tensor of the storage its numbers, which it has not had before."""
        if self.real is None:
            self.real = torch.UntypedStorage(self.fake.nbytes())
        to = self.view(tensor)
        # The piece was recorded in another state of PyTorch than it was compiled in.
        if to.dtype != values.dtype or to.shape != values.shape:
            raise CompileError(
                f"A piece of the model gives {values.dtype} {list(values.shape)}, and {to.dtype} {list(to.shape)} when "
                "the model runs; set types in the model where they do not depend on a context."
            )
        for dim, stride in enumerate(to.stride()):
            if not stride and to.shape[dim] > 1:
                to, values = to.narrow(dim, 0, 1), values.narrow(dim, 0, 1)
        to.copy_(values)


class CallStorages:
    """All storages of a call. With ``keep_callers`` nothing is written to the caller's, but to copies of them."""

    def __init__(self, keep_callers: bool) -> None:
        self.mode = FakeTensorMode()
        self._keep_callers = keep_callers
        self._by_fake: dict[int, CallStorage] = {}
        self._by_real: dict[int, CallStorage] = {}
        #: Tensors of the caller by their identity, with what stands for them, and the other way round.
        self._entered: dict[int, tuple[Tensor, Tensor]] = {}
        self._originals: dict[int, Tensor] = {}

    def is_fake(self, value: object) -> bool:
        """Return whether a value stands for a tensor of this call."""
        return isinstance(value, FakeTensor) and value.fake_mode is self.mode

    def enter(self, tensor: Tensor) -> Tensor:
        """What stands for a tensor that the model or its caller holds."""
        if id(tensor) not in self._entered:
            if isinstance(tensor, FakeTensor):
                raise CompileError(
                    "The model uses a tensor that it has kept from an earlier call outside of the attributes of its "
                    "modules; keep it in a buffer."
                )
            if is_functorch_wrapped_tensor(tensor):
                raise CompileError("The model calls torch.func, as vmap, which a model in pieces cannot.")
            fake = self.adopt(tensor, is_callers=True)
            self._entered[id(tensor)] = tensor, fake
            self._originals[id(fake)] = tensor
        return self._entered[id(tensor)][1]

    def adopt(self, tensor: Tensor, is_callers: bool = False) -> Tensor:
        """What stands for a tensor with numbers, in a storage that may be known already."""
        real = tensor.untyped_storage()
        buffer = self._by_real.get(real._cdata)
        if buffer is not None and not buffer.is_callers:
            return self._alias(buffer, tensor)
        fake = self.mode.from_tensor(tensor, static_shapes=True)
        if buffer is None:
            buffer = self.add(fake)
            buffer.real, buffer.is_callers = real, is_callers
            self._by_real[real._cdata] = buffer
        else:
            buffer.tensors.append(weakref.ref(fake))
        return fake

    def _alias(self, buffer: CallStorage, tensor: Tensor) -> Tensor:
        """What stands for a tensor in a storage that a piece or the host has made."""
        for other in buffer.alive():
            if other.dtype == tensor.dtype:
                with self.mode:
                    fake = other.as_strided(tensor.size(), tensor.stride(), tensor.storage_offset())
                buffer.tensors.append(weakref.ref(fake))
                return fake
        raise CompileError(f"A view as {tensor.dtype} of a tensor of another type is not supported here.")

    def add(self, tensor: Tensor) -> CallStorage:
        """The storage of a tensor, a new one if it is not known."""
        storage = tensor.untyped_storage()
        buffer = self._by_fake.get(storage._cdata)
        if buffer is None:
            buffer = self._by_fake[storage._cdata] = CallStorage(storage)
            # Without the tensor itself, which would then be held.
            with self.mode:
                buffer.base = tensor.detach()
        if all(other is not tensor for other in buffer.alive()):
            buffer.tensors.append(weakref.ref(tensor))
        return buffer

    def of(self, tensor: Tensor) -> CallStorage:
        """The storage of a tensor of this call; ``CompileError`` for one that no recorded call has made."""
        buffer = self._by_fake.get(tensor.untyped_storage()._cdata)
        if buffer is None:
            raise CompileError(
                "The model has a tensor that no function of PyTorch has made, so its numbers are not known; "
                "compile the parts around it."
            )
        return buffer

    def is_original(self, tensor: Tensor) -> bool:
        """Return whether a tensor stands for one that the model or its caller holds."""
        return id(tensor) in self._originals

    def real(self, tensor: Tensor) -> Tensor:
        """The tensor with numbers: the caller's own object, or a view of a storage."""
        buffer = self.of(tensor)
        original = self._originals.get(id(tensor))
        if original is None or buffer.real is None:
            return buffer.view(tensor)
        is_same = original.untyped_storage()._cdata == buffer.real._cdata
        return original if is_same else buffer.view(tensor)

    def before_running(self, operands: Iterable[Tensor], changed: Iterable[CallStorage]) -> None:
        """Take copies of the caller's storages that may change, where these have to stay.

        Some operations change more than they say, as the running mean of a batch norm: all operands but parameters.
        """
        if not self._keep_callers:
            return
        others = (self.of(tensor) for tensor in operands if not isinstance(tensor, torch.nn.Parameter))
        for buffer in (*changed, *others):
            if buffer.is_callers and buffer.real is not None:
                buffer.real, buffer.is_callers = buffer.real.clone(), False
                self._by_real[buffer.real._cdata] = buffer

    def forget_constants(self, operands: Iterable[Tensor]) -> None:
        """Forget numbers that are known without running a piece, of tensors that the host may have changed."""
        for tensor in operands:
            if isinstance(tensor, FakeTensor) and tensor.constant is not None:
                self.mode.fake_tensor_converter.invalidate_constant_aliases(tensor.constant)

    def filled(self, buffer: CallStorage) -> None:
        """Register the real storage of a buffer."""
        if buffer.real is not None:
            self._by_real[buffer.real._cdata] = buffer

    def pending(self) -> Iterator[CallStorage]:
        """Storages that have tensors and no numbers yet."""
        for buffer in list(self._by_fake.values()):
            if buffer.real is None and buffer.alive():
                yield buffer

    def forget_dead(self) -> None:
        """Drop the storages whose tensors nobody holds any more."""
        for key, buffer in list(self._by_fake.items()):
            buffer.tensors = [ref for ref in buffer.tensors if ref() is not None]
            if not buffer.tensors:
                del self._by_fake[key]
                if buffer.real is not None:
                    self._by_real.pop(buffer.real._cdata, None)
