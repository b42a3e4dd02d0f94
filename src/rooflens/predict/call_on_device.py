"""One call as the effects see it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from rooflens.records import Call, Phase, Record, Tensor
from rooflens.records.calls import NAMED

HALF = frozenset({"fp16", "bf16"})
"""Types of 16 bits."""
CHANNELS_LAST = frozenset(NAMED)
"""Layouts of images whose channels lie next to each other."""


class CallOnDevice(NamedTuple):
    """A call, its work as the code is written, and where its operands are. A tuple, since each prediction makes many.

    Attributes:
        call: what is called, in its layout.
        family: of the operation.
        flops: by resource.
        nbytes: DRAM bytes.
        weights: those of them that are parameters: nothing has just written them.
        own: the share of the bytes of the call alone that it moves: below 1 in a fused group.
        phase: of the step.
        held: bytes that all of the step's tensors take; what fits a cache stays there from step to step.
        compiled: Inductor writes the kernel, where no library has it.
    """

    call: Call
    family: str
    flops: Mapping[str, float]
    nbytes: float
    weights: float
    own: float
    phase: Phase | None
    held: float | None
    compiled: bool = False

    @property
    def precision(self) -> str:
        """In which the products of the call run; ``fp32`` where it has none."""
        return next((name.partition(".")[2] for name in self.flops if name.startswith("matmul.")), "fp32")

    @property
    def matmul_flops(self) -> float:
        """FLOP of its matrix products, in any precision."""
        return sum(n for name, n in self.flops.items() if name.startswith("matmul."))

    @property
    def main(self) -> Tensor:
        """The tensor whose type and layout count: the first result, else the first operand."""
        outputs = self.call.outputs
        return outputs[0] if outputs else self.call.inputs[0]

    @property
    def row(self) -> int:
        """Elements along the dimension that the call names, of its first operand: by default the last one."""
        tensor, dim = self.call.inputs[0], self.call.get("dim", -1)
        return tensor.shape[dim] if isinstance(dim, int) and tensor.shape else 1

    @property
    def narrow(self) -> bool:
        """True if elements have 16 bits."""
        return self.main.dtype in HALF


def calls_on_device(
    record: Record, held: float | None = None, own: float = 1.0, *, compiled: bool = False
) -> tuple[tuple[CallOnDevice, int], ...]:
    """Return the calls of a record, one for each layout, with how many there are; none where it has no call."""
    work = record.written
    if work is None or record.call is None or "dram" not in work.bytes:
        return ()
    calls = record.layouts or ((record.call, record.calls),)
    nbytes = work.bytes["dram"]
    weights = 0.0 if record.traffic is None else record.traffic.weights
    return tuple(
        (CallOnDevice(call, record.kind, work.flops, nbytes, weights, own, record.phase, held, compiled), n)
        for call, n in calls
    )
