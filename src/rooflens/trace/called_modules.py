"""What the modules of a model are, and on which sizes a step calls them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules import module as module_hooks
from torch.nn.modules.module import register_module_forward_hook
from torch.utils._pytree import tree_leaves

from rooflens.records import Shape, TracedModule
from rooflens.trace.modules import ModulePaths
from rooflens.trace.packed import PackedOperands
from rooflens.trace.plain_tensors import distinct_bytes, plain_tensors


class CalledModules:
    """Sees on which sizes modules are called first. Calls are followed by a global hook, so the model gets none."""

    def __init__(self, paths: ModulePaths) -> None:
        self._paths = paths
        self._sizes: dict[str, tuple[tuple[Shape, ...], tuple[Shape, ...]]] = {}

    @contextmanager
    def followed(self) -> Iterator[None]:
        """Follow the calls that are ours; enter it before the paths are followed, which leave a module then."""

        def see(module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
            path = self._paths.current
            if path not in self._sizes and self._paths.is_ours():
                self._sizes[path] = _shapes((args, kwargs)), _shapes(output)

        hook = register_module_forward_hook(see, with_kwargs=True)
        try:
            yield
        finally:
            hook.remove()
            module_hooks._global_forward_hooks_with_kwargs.pop(hook.id, None)  # which torch leaves there

    def again(self, path: str, other: str) -> None:
        """Note that the modules in one module are called on the sizes of those in another."""
        inside = [(known, sizes) for known, sizes in self._sizes.items() if known.startswith(f"{path}.")]
        for known, sizes in inside:
            self._sizes.setdefault(other + known.removeprefix(path), sizes)

    def all(self, root: nn.Module, calls: Mapping[str, int], packed: PackedOperands) -> Iterator[TracedModule]:
        """Yield every module of a model, parents first, as it is while the step runs.

        Args:
            calls: of modules in forward, by path.
            packed: what objects of torch's C++ classes store.
        """
        held: set[int] = set()
        scripted: set[str] = set()
        for path, module in root.named_modules():
            is_script = isinstance(module, torch.jit.ScriptModule)
            if is_script or path.rpartition(".")[0] in scripted:
                scripted.add(path)
            own = [parameter for parameter in module._parameters.values() if parameter is not None]
            kept = [parameter for parameter in own if id(parameter) not in held]
            buffers = [one for one in module._buffers.values() if one is not None and id(one) not in held]
            held |= {id(tensor) for tensor in (*kept, *buffers)}
            weights, nbytes = packed.held_by(module)
            given, returned = self._sizes.get(path, ((), ()))
            yield TracedModule(
                path=path,
                kind=getattr(module, "original_name", type(module).__name__) if is_script else type(module).__name__,
                parameters=sum(parameter.numel() for parameter in kept) + weights,
                trainable=sum(parameter.numel() for parameter in kept if parameter.requires_grad),
                shared=sum(parameter.numel() for parameter in own if not any(parameter is one for one in kept)),
                nbytes=nbytes + sum(distinct_bytes(part) for t in (*kept, *buffers) for part in plain_tensors(t)),
                kernel_size=_kernel_size(module),
                inputs=given,
                outputs=returned,
                calls=calls.get(path, None if path in scripted else 0),
            )


def _kernel_size(module: nn.Module) -> tuple[int, ...]:
    """The kernel size of a convolution or a pooling of torch; a module of others may call anything so."""
    if not type(module).__module__.startswith("torch."):
        return ()
    size = getattr(module, "kernel_size", None)
    if isinstance(size, int):
        return (size,) * _dimensions(module)
    return tuple(size) if isinstance(size, tuple) and all(isinstance(n, int) for n in size) else ()


def _dimensions(module: nn.Module) -> int:
    """Return 2 of MaxPool2d; 1 of what does not tell."""
    digits = [int(letter) for letter in type(module).__name__ if letter.isdigit()]
    return digits[-1] if digits else 1


def _shapes(values: Any) -> tuple[Shape, ...]:
    """Shapes of the tensors among some values; one of unequal rows has none."""
    with torch._C.DisableTorchFunction():  # to look at a tensor is no call of the model's
        tensors: Iterable[Tensor] = (leaf for leaf in tree_leaves(values) if isinstance(leaf, Tensor))
        return tuple(tuple(map(int, tensor.shape)) for tensor in tensors if not tensor.is_nested)
