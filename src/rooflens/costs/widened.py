"""Products of values that were made wider first: 16 bits cast to fp32 multiply exactly as well as they are.

A matrix unit multiplies two numbers of 16 bits without a rounding and sums in fp32: the cast gives a product nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from rooflens.costs.registry import Need, cost, family_of
from rooflens.records import Device, Operation

_PRODUCTS = frozenset({"mm", "addmm", "bmm", "baddbmm"})
_FACTORS = frozenset({"self", "mat1", "mat2", "batch1", "batch2"})
_NARROW = ("bf16", "fp16")
_WIDE = "matmul.fp32"
FORMULA = "Its operands were cast from {0} to fp32: a product of them in {0}, summed in fp32, is the same."


def widened_needs(operations: Sequence[Operation], needs: Mapping[int, Need]) -> dict[int, Need]:
    """What products in fp32 need, by index, whose operands were cast from 16 bits; the rest as `needs` have it."""
    narrow: dict[int, str] = {}
    found: dict[int, Need] = {}
    for index, operation in enumerate(operations):
        call = operation.call
        types = {narrow.get(access.block) for access in operation.reads}
        (kind,) = types if len(types) == 1 else (None,)
        if kind is not None and call.name in _PRODUCTS and _is_plain(operation):
            found[index] = _in(kind, operation, needs.get(index))
        for access in operation.writes:
            narrow.pop(access.block, None)
        if family_of(call.name) != "copy" or len(operation.reads) != 1 or len(operation.writes) != 1:
            continue
        source, made = _type_read(operation), call.outputs[0].dtype if call.outputs else ""
        kind = kind if source == "fp32" else source
        if made == "fp32" and kind in _NARROW:
            narrow[operation.writes[0].block] = kind
    return found


def needed_on(device: Device | None, need: Need | None, written: Mapping[str, float]) -> Need | None:
    """Return a need where it runs: a device without a faster unit for 16 bits multiplies in fp32, as `written` does."""
    if device is None or need is None or need.flops is None:
        return need
    wide = device.ceiling(_WIDE)
    slower = set()
    for name in {f"matmul.{kind}" for kind in _NARROW} & need.flops.keys() - written.keys():
        narrow = device.ceiling(name)
        if narrow is None or (wide is not None and narrow.rate < wide.rate):
            slower.add(name)
    if not slower:
        return need
    return replace(need, flops={_WIDE if name in slower else name: count for name, count in need.flops.items()})


def _type_read(operation: Operation) -> str:
    given = operation.call.get("self") or operation.call.get("src")
    return getattr(given, "dtype", "")


def _is_plain(operation: Operation) -> bool:
    """True for a product without anything that is added to it."""
    return all(name in _FACTORS for name, value in operation.call.arguments if hasattr(value, "shape"))


def _in(kind: str, operation: Operation, known: Need | None) -> Need:
    priced = cost(operation.call)
    flops = known.flops if known is not None else None
    flops = (priced.kernel_work or priced.work).flops if flops is None else flops
    inside = {f"matmul.{kind}" if name == _WIDE else name: count for name, count in flops.items()}
    said, less = FORMULA.format(kind), sum(access.nbytes for access in operation.reads) // 2
    moved = priced.work.bytes["dram"] if known is None or known.bytes is None else known.bytes
    if known is None:
        return Need(flops=inside, bytes=moved - less, cause="expansion", formula=said)
    if known.cause != "cache copies" and moved >= 2 * less:  # else the cache is read as it is held already
        moved -= less
    return replace(known, flops=inside, bytes=moved, formula=f"{known.formula} {said}".strip())
