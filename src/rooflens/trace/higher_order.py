"""Higher-order operations: calls that take functions, such as a branch, a loop or attention with a score function.

torch traces or compiles them, which it cannot do while another mode watches; here their functions are simply run.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from torch._C import DispatchKey
from torch._ops import HigherOrderOperator

from rooflens.errors import ModelError
from rooflens.trace import fused

_FLEX = "torch.nn.attention.flex_attention"
_WRITTEN_OUT = frozenset({"associative_scan", "map_impl", "while_loop"})
"""Operations whose plain form torch keeps as a function of tensors."""


def run(operation: HigherOrderOperator, *args: Any, **kwargs: Any) -> Any:
    """Run the plain operations that a higher-order operation stands for.

    Raises:
        ModelError: torch has no plain form of it.
    """
    name = operation.name()
    plain: Callable[..., Any] | None = _PLAIN.get(name)
    if plain is None and name in _WRITTEN_OUT:
        plain = operation.py_kernels.get(DispatchKey.CompositeExplicitAutograd)
    if plain is not None:
        return plain(*args, **kwargs)
    try:
        return operation(*args, **kwargs)
    except NotImplementedError as error:
        raise ModelError(
            f"the higher-order operation {name!r} cannot be traced; call its functions directly"
        ) from error


def _branch(pred: Any, true_fn: Callable[..., Any], false_fn: Callable[..., Any], operands: Any = ()) -> Any:
    return (true_fn if pred else false_fn)(*operands)


def _scan(combine_fn: Callable[..., Any], init: Any, xs: Any, additional_inputs: Any = (), **_: Any) -> Any:
    from torch._higher_order_ops.scan import generic_scan

    return generic_scan(combine_fn, init, xs, additional_inputs=additional_inputs)


def _flexible_attention(query: Tensor, key: Tensor, value: Tensor, *_: Any, **others: Any) -> Any:
    """One attention kernel, counted in full: only its values tell which blocks a mask leaves out.

    What the function of scores computes in the kernel is not counted.
    """
    statistics = query.new_empty(query.shape[:-1], dtype=torch.float32)
    return fused.attend(query, key, value), statistics, statistics


_PLAIN: dict[str, Callable[..., Any]] = {"cond": _branch, "scan": _scan, "flex_attention": _flexible_attention}


@contextmanager
def flexible_attention() -> Iterator[None]:
    """Let flex attention run uncompiled, with a backward on the CPU.

    Here it is an operation of our own. A torch without these switches is left as it is.
    """
    module = sys.modules.get(_FLEX)
    replaced = {"_validate_device": lambda query, key, value: None, "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG": True}
    with ExitStack() as patches:
        for name, value in replaced.items():
            if hasattr(module, name):
                patches.enter_context(patch.object(module, name, value))
        yield
