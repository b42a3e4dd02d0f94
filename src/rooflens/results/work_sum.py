"""WorkSum: the work of some records, added up in one way."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rooflens.records import Work


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkSum:
    """The work of some records, added up in one way: as the code is written, or the floor that the bound counts.

    All numbers are of that one work, with what checkpointing computes again. None is unknown.

    Attributes:
        work: the sum; None where no record has any.
        matmul_flops: FLOP of products, convolutions, attention and recurrent gates; `macs`: half of them.
        flops: element-wise and special functions included.
        bytes: by level; `dram`: those of DRAM.
        intensity: FLOP per DRAM byte; None too where either is nothing.
    """

    work: Work | None
    matmul_flops: float | None = None
    macs: float | None = None
    flops: float | None = None
    bytes: Mapping[str, float]
    dram: float | None = None
    intensity: float | None = None

    @classmethod
    def of(cls, work: Work | None) -> WorkSum:
        """Return the numbers of a work; FLOP of which none are counted and some are missing are unknown."""
        if work is None:
            return cls(work=None, bytes={})
        counted = (work.matmul_flops, work.total_flops)
        matmul, flops = (n if n or not work.missing else None for n in counted)
        dram = work.bytes.get("dram")
        return cls(
            work=work,
            matmul_flops=matmul,
            macs=None if matmul is None else matmul / 2,
            flops=flops,
            bytes=work.bytes,
            dram=dram,
            intensity=flops / dram if flops and dram else None,
        )
