"""Calls written by hand, as the trace would record them: no torch."""

from __future__ import annotations

from math import prod

from rooflens.records import Argument, Call, Tensor, Work

ITEM_BYTES = {
    "fp64": 8,
    "fp32": 4,
    "fp16": 2,
    "bf16": 2,
    "float8_e4m3fn": 1,
    "complex64": 8,
    "int8": 1,
    "int32": 4,
    "int64": 8,
    "bool": 1,
}


def tensor(*shape: int, dtype: str = "fp32") -> Tensor:
    """A tensor without repeated elements."""
    return Tensor(shape, dtype, prod(shape) * ITEM_BYTES[dtype])


def call(name: str, outputs: Tensor | tuple[Tensor, ...], /, **arguments: Argument) -> Call:
    """A call that reads each tensor among its arguments once and writes its outputs."""
    results = (outputs,) if isinstance(outputs, Tensor) else outputs
    draft = Call(name, tuple(arguments.items()), results, 0, 0)
    return Call(
        name,
        draft.arguments,
        results,
        reads=sum(t.nbytes for t in draft.inputs),
        writes=sum(t.nbytes for t in results),
    )


def work(nbytes: float, **flops: float) -> Work:
    """Work on DRAM bytes, and FLOP by unit: ``matmul_fp32=8`` is 8 FLOP of matmul.fp32."""
    return Work(flops={unit.replace("_", "."): n for unit, n in flops.items()}, bytes={"dram": nbytes})
