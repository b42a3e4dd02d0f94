"""The formula of an operation with its numbers filled in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rooflens.api.arguments import check_names, option_names
from rooflens.api.estimation import estimate
from rooflens.errors import InvalidValue, UnknownName, check_torch
from rooflens.explanation import Explanation
from rooflens.explanation.from_records import explain_records
from rooflens.machine import find_all
from rooflens.records import EVERY_PHASE, Device, Phase, Record, is_record_file, is_training
from rooflens.results import RecordSet

if TYPE_CHECKING:
    import torch

_IMPORT = " (torch knows an operator of your own after the import of the package that defines it)"


def explain(
    what: str | Path | Record | RecordSet | torch.nn.Module,
    *,
    shapes: Sequence[Any] = (),
    path: str | None = None,
    phase: Phase | None = None,
    device: str | Device | Sequence[str | Device] | None = None,
    dtype: str | None = None,
    in_full: bool = False,
    **arguments: Any,
) -> Explanation:
    """Explain the work of operations: each formula in words and with its numbers filled in, as with pen and paper.

    >>> print(explain("mm", shapes=[(1024, 512), (512, 256)]))  # doctest: +SKIP
    >>> print(explain("resnet18", batch=256, path="layer1.0.conv1", device="t4"))  # doctest: +SKIP

    The numbers are those of an estimate: the same formulas compute them.

    Args:
        what: an operation (``convolution``, ``mm``, ``attention``, ``lstm``, any of torch's operators, or a custom one
            with its namespace, ``mylib::gemm``); or a record file, a record or a set of records; or a model as
            `estimate` takes it, which is estimated first.
        shapes: of an operation's tensors, in order: tuples, or text like ``32x128:int64``.
        path: of a model or file: the module to explain, with those inside it; ``""`` is the whole model.
        phase: forward, backward or optimizer. Default: forward for an operation, all for a model or file.
        device: where the time is bounded and expected; default of records: their own devices.
        dtype: of an operation or model, as in `estimate`.
        in_full: the text has every operation of a model or module that has many, and not only the parts of their sum.
        arguments: of an operation by name (``input=(256, 3, 224, 224), stride=2``); of a model those of `estimate`
            (``batch=256, mode="train"``).

    Returns:
        `.text` (and ``str``) for a person, `.data` for a program, `.operations` for Python.

    Raises:
        UnknownName: no such operation, model, argument, module path or device; near names are listed.
        InvalidValue: what is needed is missing, or an argument cannot be used.
        ModelError: torch refuses the shapes.
    """
    if phase is not None and phase not in EVERY_PHASE:
        raise InvalidValue(f"unknown phase {phase!r}; known: {', '.join(EVERY_PHASE)}")
    devices = find_all(device)
    if isinstance(what, Record):
        what = RecordSet([what])
    if isinstance(what, Path) or is_record_file(what):
        what = RecordSet.load(what)
    if isinstance(what, RecordSet):
        if shapes or arguments or dtype is not None:
            raise InvalidValue("records know their shapes and types; give path and phase to choose some")
        return Explanation(explain_records(what, path, phase, devices), in_full)
    if isinstance(what, str) and (shapes or (path is None and _is_word(what))):
        check_torch()
        from rooflens.explanation import from_shapes

        if path is None and from_shapes.is_operator(what):
            chapter = from_shapes.explain_operation(
                what, shapes, arguments, dtype=dtype or "fp32", phase=phase or "forward", devices=devices
            )
            return Explanation((chapter,))
        if shapes or not from_shapes.is_model(what):
            known = {*from_shapes.operator_names(), *from_shapes.model_names()}
            name = what.removeprefix("aten::")
            raise UnknownName("operation or model", name, known, _IMPORT if "::" in name else "")
    elif shapes:
        raise InvalidValue("shapes are those of an operation")
    return Explanation(explain_records(_estimate(what, phase, devices, dtype, arguments), path, phase, ()), in_full)


def _is_word(what: str) -> bool:
    """True if this may name an operation, like ``mm`` and ``mylib::gemm``."""
    return all(name.isidentifier() for name in what.split("::", 1))


def _estimate(
    model: str | torch.nn.Module,
    phase: Phase | None,
    devices: Sequence[Device],
    dtype: str | None,
    arguments: Mapping[str, Any],
) -> RecordSet:
    check_names("explain", arguments, (*option_names(explain), *option_names(estimate)))
    options = dict(arguments)
    if is_training([phase]):
        options.setdefault("mode", "train")
    return estimate(model, device=devices, dtype=dtype, **options)
