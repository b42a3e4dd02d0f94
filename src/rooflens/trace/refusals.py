"""What cannot be estimated, each as a sentence, and what can only be with values."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    UnsupportedOperatorException,
)
from torch.nn.parameter import is_lazy

from rooflens.errors import DataDependent, ModelError
from rooflens.host_limits import available_memory
from rooflens.models import Step, running
from rooflens.trace.modules import ModulePaths
from rooflens.units import show

_NOT_ALLOCATED = "its data is not allocated yet"
"""What torch says where code in C++ reads values of a fake tensor, as of numbers in a list of indices."""
_NO_FAKE = re.compile(r"There was no fake impl registered for <CustomOpDef\((.+?)\)>")
"""What torch says of a custom operator that knows no shapes."""


def refuse_lazy(step: Step) -> None:
    """Raise for a lazy layer, which has no shapes before its first call."""
    for name, tensor in (*step.module.named_parameters(), *step.module.named_buffers()):
        if is_lazy(tensor):
            raise ModelError(
                f"{step.name}: {name!r} has no shape yet; call the model once, so that lazy layers are set up"
            )


def refuse_what_does_not_fit(step: Step, error: DataDependent) -> None:
    """Raise if parameters, their gradients and two numbers of an optimizer take more than half of the free memory.

    A step that is made with values holds the parameters once more, since a copy of them is run.
    """
    copies = (4 if step.training else 1) + (step.with_values is not None)
    nbytes = copies * sum(p.numel() * p.element_size() for p in step.module.parameters())
    free = available_memory()
    available = _memory() if free is None else free
    if available is not None and nbytes > available / 2:
        raise DataDependent(
            f"{error}. Running the model with values needs {show(nbytes, 'B')} for its parameters, and this machine has"
            f" {show(available, 'B')} free: rewrite the branch, estimate a smaller model, or end what runs beside it"
        ) from error


def _memory() -> int | None:
    """Bytes of this machine's memory; None where the system does not tell, like Windows."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return None


def refuse_iterator(name: str, output: Any) -> None:
    """Raise for a generator, whose work is not done when the call ends."""
    if isinstance(output, Iterator):
        raise ModelError(
            f"{name} gives an iterator ({type(output).__name__}), which runs nothing before it is read: return a list"
        )


def refuse_sparse_gradients(step: Step, parameters: Mapping[str, Tensor]) -> None:
    """Raise for gradients that no optimizer of a step takes: torch's error names neither of the two."""
    sparse = [name for name, p in parameters.items() if p.grad is not None and p.grad.layout is not torch.strided]
    if sparse:
        optimizer = "sgd with weight decay" if step.optimizer == "sgd" else step.optimizer
        raise ModelError(
            f"{step.name}: the gradient of {sparse[0]!r} is sparse, which {optimizer} does"
            " not take; use optimizer none, which stops after backward, or make it dense (sparse=False)"
        )


def _without_fake(step: Step, operator: str) -> DataDependent:
    return DataDependent(
        f"{step.name}: {operator} does not tell the shapes of its results (torch.library.register_fake does)"
    )


@contextmanager
def model_errors(step: Step, paths: ModulePaths) -> Iterator[None]:
    """Raise errors of the model as ours, with the module in which they happened."""
    with running(step.name, lambda: f" in module {paths.failed!r}" if paths.failed else "", step.hint):
        try:
            yield
        except (DataDependentOutputException, DynamicOutputShapeException) as error:
            raise DataDependent(
                f"{step.name}: the result of {error.func} depends on values, and an estimate has only shapes"
            ) from error
        except UnsupportedOperatorException as error:
            raise _without_fake(step, str(error)) from error
        except RuntimeError as error:
            if _NOT_ALLOCATED in str(error):
                raise DataDependent(
                    f"{step.name}: it reads values of a tensor, and an estimate has only shapes"
                ) from error
            operator = _NO_FAKE.search(str(error))
            if operator is None:
                raise
            raise _without_fake(step, operator[1]) from error
        except AssertionError as error:
            if "shape_env" not in str(error):
                raise
            # Jagged lengths that a model makes itself are sizes known only from values.
            raise DataDependent(f"{step.name}: the lengths of a jagged tensor depend on values") from error
