"""What a step costs the host: seconds to launch each operation, and for each view and call of a module.

A host differs from another by a factor of two, and no data sheet of a GPU tells of it: these are the constants of a
middle one, until `rooflens calibrate --suite` has measured on the target how fast it is. Where autograd records a graph
all that forward does costs more. Backward runs on a thread of its own, which may be faster or slower than the one of
forward. A scan that is written as a loop in Python launches all operations of its turns.
"""

from __future__ import annotations

from collections.abc import Iterable

from rooflens.predict.call_on_device import CHANNELS_LAST, HALF
from rooflens.predict.card import Card
from rooflens.predict.launched_calls import launched
from rooflens.records import HostCalls, Phase, Record, Tensor

_FAMILIES = frozenset({"convolution", "matmul", "attention", "gather"})
"""Families that have a constant."""
_SIMPLE = frozenset({"elementwise", "dropout", "fill"})
_COPIES = frozenset({"clone", "_to_copy", "copy_"})
"""Copies that are one simple kernel: others pad, join or turn."""
_LIBRARY = frozenset({"depthwise", "channels"})
"""What cuDNN does where channels lie last in 16 bits, and kernels of PyTorch elsewhere."""
_OF_ENGINE = frozenset({"add", "add_"})
"""What autograd's engine runs itself in a backward pass, and no node of it: gradients that meet are added."""


def beginning(phase: Phase | None, card: Card, *, compiled: bool) -> float:
    """Seconds until the first kernel of a phase is launched: backward wakes its thread and orders its nodes."""
    if phase in ("backward", "optimizer"):
        return card[f"host.start_{phase}"]
    return card["host.call" if compiled else "host.start"]


def dispatching(record: Record, card: Card) -> float:
    """Seconds in which the host launches one call of an operation, eagerly."""
    if record.call is not None and record.name.startswith(("_foreach_", "_fused_")):
        lists = (value for _, value in record.call.arguments if isinstance(value, tuple))
        return card["host.list"] + card["host.tensor"] * sum(isinstance(t, Tensor) for its in lists for t in its)
    kind = _kind(record)
    seconds = card[f"host.{kind}"] + _of_layout(kind, record, card) + _of_code(record, card)
    if record.phase == "backward":
        node = 0.0 if record.name in _OF_ENGINE else card["host.backward"]
        return (seconds * card["host.share_backward"] * _runs(record) + node) * card["host.thread"]
    return seconds * recording(record, card)


def recording(record: Record, card: Card) -> float:
    """What the time of the host is multiplied with where autograd records a graph; 1 elsewhere."""
    return card["host.recording"] if record.case.mode == "train" and record.phase == "forward" else 1.0


def around(calls: Iterable[HostCalls], card: Card, factor: float = 1.0) -> float:
    """Seconds of views and of calls of modules; in a backward pass a view is a node of autograd.

    Args:
        factor: by which a forward pass that is recorded takes longer.
    """
    views = nodes = modules = 0
    for c in calls:
        if c.phase == "backward":
            nodes += c.views
        else:
            views += c.views
        modules += c.module_calls or 0
    forward = views * card["host.view"] + modules * card["host.module"]
    return forward * factor + nodes * card["host.node"] * card["host.thread"]


def _kind(record: Record) -> str:
    """The kind of operation that has a constant of its own."""
    name, family = record.name, record.kind
    if name in _COPIES:
        return "operation"
    if family in _SIMPLE:
        return "in_place" if name.endswith("_") else "operation"
    if family == "normalization":
        return "channels" if "batch_norm" in name else "rows"
    if family == "convolution" and record.call is not None and record.call.get("groups", 1) != 1:
        weight = record.call.get("weight")
        return "depthwise" if isinstance(weight, Tensor) and weight.shape[1] == 1 else "grouped"
    return family if family in _FAMILIES else "other"


def _of_layout(kind: str, record: Record, card: Card) -> float:
    """Seconds more of what cuDNN does with channels last in 16 bits."""
    if kind not in _LIBRARY or record.call is None or not record.call.inputs:
        return 0.0
    first = record.call.inputs[0]
    return card["host.last"] if first.dtype in HALF and first.memory_format in CHANNELS_LAST else 0.0


def _of_code(record: Record, card: Card) -> float:
    """Seconds of further operations and views where a call stands for Python code, which launches them one by one."""
    if record.call is None:
        return 0.0
    operations, views = launched(record.call, record.kind)
    return (operations - 1) * card["host.operation"] + views * card["host.view"]


def _runs(record: Record) -> int:
    """How many operations of a library it is: the gradients of a convolution for its input and its weights are two."""
    mask = None if record.call is None else record.call.get("output_mask")
    if not isinstance(mask, tuple) or record.kind != "convolution":
        return 1
    return max(1, sum(map(bool, mask[:2])))  # that of a bias alone is a sum
