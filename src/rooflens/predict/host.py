"""What a step costs the host: seconds to dispatch each operation, view and module call.

A host differs from another by a factor of two, and no data sheet of a GPU tells of it: these are the constants of a
middle one, until `rooflens calibrate --suite` has measured on the target how fast it is. In autocast each operation of
a forward pass costs more. Backward runs on a thread of its own, which may be faster or slower than the one of forward.
A scan that is written as a loop in Python launches all operations of its turns.
"""

from __future__ import annotations

from collections.abc import Iterable

from rooflens.costs import launched
from rooflens.predict.card import Card
from rooflens.records import HostCalls, Record, Tensor

_DEARER = frozenset({"convolution", "normalization", "matmul", "attention"})
_OF_ENGINE = frozenset({"add", "add_"})
"""What autograd's engine runs itself in a backward pass, and no node of it: gradients that meet are added."""


def dispatching(record: Record, card: Card) -> float:
    """Seconds in which the host launches one call of an operation, eagerly."""
    if record.call is not None and record.name.startswith(("_foreach_", "_fused_")):
        lists = (value for _, value in record.call.arguments if isinstance(value, tuple))
        return card["host.list"] + card["host.tensor"] * sum(isinstance(t, Tensor) for its in lists for t in its)
    seconds = card[f"host.{record.kind}" if record.kind in _DEARER else "host.operation"] + _of_code(record, card)
    if record.phase == "backward":
        node = 0.0 if record.name in _OF_ENGINE else card["host.backward"]
        return (seconds * _runs(record) + node) * card["host.thread"]
    return seconds * (card["host.autocast"] if record.case.dtype.startswith("amp-") else 1.0)


def _of_code(record: Record, card: Card) -> float:
    """Seconds of further operations and views where a call stands for Python code, which launches them one by one."""
    if record.call is None:
        return 0.0
    operations, views = launched(record.call)
    return (operations - 1) * card["host.operation"] + views * card["host.view"]


def _runs(record: Record) -> int:
    """How many operations of a library it is: the gradients of a convolution for its input and its weights are two."""
    mask = None if record.call is None else record.call.get("output_mask")
    if not isinstance(mask, tuple) or record.kind != "convolution":
        return 1
    return max(1, sum(map(bool, mask[:2])))  # that of a bias alone is a sum


def around(calls: Iterable[HostCalls], card: Card) -> float:
    """Seconds of views and of calls of modules; in a backward pass a view is a node of autograd."""
    views = nodes = modules = 0
    for c in calls:
        if c.phase == "backward":
            nodes += c.views
        else:
            views += c.views
        modules += c.module_calls or 0
    return views * card["host.view"] + nodes * card["host.node"] * card["host.thread"] + modules * card["host.module"]
