"""Formulas ask for arguments by name: the names are those of torch's schemas."""

from __future__ import annotations

import inspect
import re

import pytest
import torch

import rooflens.trace.fused  # noqa: F401  (defines rooflens::attention and its like)
from rooflens.costs import registry

ASKED = re.compile(r"call\.tensors?\(\"(\w+)\"\)|call\[\"(\w+)\"\]")


def schemas(name: str) -> list[set[str]]:
    """The argument names of every overload of an operation, of torch's or of our own, in place or not."""
    packets = [getattr(ops, n, None) for ops in (torch.ops.aten, torch.ops.rooflens) for n in (name, f"{name}_")]
    if name.startswith("quantized_"):  # of torch's namespace `quantized`, whose names are not all free in `aten`
        packets.append(getattr(torch.ops.quantized, name.removeprefix("quantized_"), None))
    return [
        {argument.name for argument in getattr(packet, overload)._schema.arguments}
        for packet in packets
        if packet is not None
        for overload in packet.overloads()
        if not overload.endswith("out")
    ]


@pytest.mark.parametrize("name", sorted(registry.ENTRIES))
def test_arguments_are_named_as_in_the_schema(name: str) -> None:
    source = inspect.getsource(registry.ENTRIES[name].formula)
    asked = {first or second for first, second in ASKED.findall(source)}
    if "call.name" in source:  # the formula asks one operation for this and another one for that
        formula = registry.ENTRIES[name].formula
        served = [n for n, entry in registry.ENTRIES.items() if entry.formula is formula]
        assert asked <= set().union(*(arguments for n in served for arguments in schemas(n)))
    else:
        assert all(asked <= arguments for arguments in schemas(name))
