"""Activation checkpointing: of each block backward keeps the input, and computes the rest again.

Libraries that can do this do it themselves. Elsewhere a block is a layer of a stack: one of several modules of a class
that stand beside each other in a container.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import groupby
from typing import Any

from torch import nn
from torch.utils._pytree import tree_map
from torch.utils.checkpoint import checkpoint

from rooflens.errors import InvalidValue, class_of, first_line

_OF_TRANSFORMERS = ("activation_checkpointing_enable", "gradient_checkpointing_enable")
"""Its method; the second name is that of releases before 5.20."""
_OF_TIMM = "set_grad_checkpointing"
_CONTAINERS = (nn.Sequential, nn.ModuleList, nn.ModuleDict)


def checkpointed(module: nn.Module, name: str) -> nn.Module:
    """Return a model whose blocks are checkpointed from now on.

    Raises:
        InvalidValue: it has no blocks.
    """
    own = next((method for method in (*_OF_TRANSFORMERS, _OF_TIMM) if hasattr(module, method)), None)
    try:
        if own in _OF_TRANSFORMERS:
            _without_cache(module)
            getattr(module, own)({"use_reentrant": False})
            return module
        if own is not None:
            getattr(module, own)()
            return module
    except (ValueError, AssertionError, NotImplementedError) as error:  # how the libraries say that a model cannot
        why = f"{class_of(error)}: {first_line(error)}"
        raise InvalidValue(f"checkpoint=True: {name} cannot be checkpointed ({why}); leave it out") from error
    found = list(blocks(module))
    if not found:
        raise InvalidValue(
            f"checkpoint=True: {name} has no blocks to checkpoint (several modules of a class, with modules of their"
            " own, beside each other in a container); leave it out, or call torch.utils.checkpoint in a function of"
            " your own: path/file.py:function"
        )
    for block in found:
        forward: Any = partial(_run, block.forward)
        block.forward = forward
    return module


def _run(forward: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Run a block under a checkpoint. It gets lists of its own: what they hold when backward begins is longer."""
    args, kwargs = tree_map(lambda leaf: leaf, (args, kwargs))
    return checkpoint(forward, *args, use_reentrant=False, **kwargs)


def _without_cache(module: Any) -> None:
    """Keep no cache of keys and values: a block that is run again would append to it twice, so none is kept anyway."""
    for config in (module.config, module.config.get_text_config(decoder=True)):
        if getattr(config, "use_cache", False):
            config.use_cache = False


def blocks(module: nn.Module) -> Iterator[nn.Module]:
    """Return the layers of stacks, the outermost ones: what they hold is no block."""
    children = list(module.children())
    stands_in_order = isinstance(module, _CONTAINERS)
    for kind, those in groupby(children, type):
        alike = list(those)
        if stands_in_order and len(alike) > 1 and _is_block(kind) and any(alike[0].children()):
            yield from alike
        else:
            for child in alike:
                yield from blocks(child)


def _is_block(kind: type[nn.Module]) -> bool:
    """True if modules of a class compute something: a sequence only passes values on."""
    return not issubclass(kind, _CONTAINERS) or kind.forward not in [plain.forward for plain in _CONTAINERS]
