"""What a step costs the host: seconds to dispatch each operation, view and module call.

A host differs from another by a factor of two, and no data sheet of a GPU tells of it: these are the constants of a
middle one, until `rooflens calibrate --suite` has measured on the target how fast it is. In autocast each operation of
a forward pass costs more.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rooflens.predict.card import Card
from rooflens.records import HostCalls, Record, Tensor

_DEARER = frozenset({"convolution", "normalization", "matmul", "attention"})


def dispatching(record: Record, card: Card) -> float:
    """Seconds in which the host launches one call of an operation, eagerly."""
    if record.call is not None and record.name.startswith(("_foreach_", "_fused_")):
        lists = (value for _, value in record.call.arguments if isinstance(value, tuple))
        return card["host.list"] + card["host.tensor"] * sum(isinstance(t, Tensor) for its in lists for t in its)
    seconds = card[f"host.{record.kind}" if record.kind in _DEARER else "host.operation"]
    if record.phase == "backward":
        return seconds + card["host.backward"]
    return seconds * (card["host.autocast"] if record.case.dtype.startswith("amp-") else 1.0)


def around(calls: Iterable[HostCalls], card: Card) -> float:
    """Seconds of views and of calls of modules."""
    return sum(c.views * card["host.view"] + (c.module_calls or 0) * card["host.module"] for c in calls)


def eager(records: Sequence[Record], calls: Iterable[HostCalls], card: Card) -> float:
    """Seconds in which the host runs a step, operation by operation."""
    return sum(r.calls * dispatching(r, card) for r in records) + around(calls, card)


def compiled(launches: int, card: Card) -> float:
    """Seconds in which compiled code launches its kernels."""
    return card["host.call"] + launches * card["host.compiled"]
