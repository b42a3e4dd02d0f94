"""Measures links: host to card, and card to card. A ceiling counts both directions together."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from rooflens.devices.rules import SourcedValue
from rooflens.sources.calibrate.trial import Bench, Best, Candidate, MeasuredRates, fact, only, race, rate_of
from rooflens.sources.calibrate.trial_sizes import MIB

FABRIC = 1.5
"""Two cards that exchange data so many times faster than the host link have a link of their own."""
COPIES, PEER_COPIES = 4, 32
"""Copies in a row, so that the host's wait at the end does not count."""
PLACES = 3
"""Pinned memory is allocated so often: where it lies decides how fast the card reaches it."""


def host(bench: Bench, seconds: float) -> MeasuredRates:
    """The ceiling ``pcie``, and a fact for each direction, from pinned and from pageable memory."""
    size = bench.sizes.link_bytes
    pinned, card = _pair(size, pin_memory=True), _pair(size, device="cuda")
    pageable = torch.empty(size, dtype=torch.uint8).fill_(7)
    ways = {
        "pcie_h2d": partial(card[0].copy_, pinned[0], non_blocking=True),
        "pcie_d2h": partial(pinned[1].copy_, card[1], non_blocking=True),
        "pcie_h2d_pageable": partial(card[0].copy_, pageable),
        "pcie_d2h_pageable": partial(pageable.copy_, card[1]),
    }
    share = seconds / (len(ways) + 1)
    facts = {}
    for name, call in ways.items():
        best = only(f"best of copies of {size // MIB} MiB, one direction", size, call, share, bench.timer)
        facts[name] = fact(best.rate, best.how)
    how = f"best of copies of {size // MIB} MiB between pinned host memory and the card, both directions at once"
    placed = [Candidate(how=how, amount=2 * COPIES * size, make=partial(_both_ways, size)) for _ in range(PLACES)]
    return MeasuredRates(rates={"pcie": rate_of(race(placed, share, bench.wall))}, facts=facts)


def _both_ways(size: int) -> Callable[[], None]:
    """Copies to the card and from it at once."""
    pinned, card = _pair(size, pin_memory=True), _pair(size, device="cuda")
    streams = [torch.cuda.Stream() for _ in range(2)]
    pairs = ((card[0], pinned[0]), (pinned[1], card[1]))

    def copies() -> None:
        for stream, (to, origin) in zip(streams, pairs, strict=True):
            with torch.cuda.stream(stream):
                for _ in range(COPIES):
                    to.copy_(origin, non_blocking=True)
        torch.cuda.synchronize()

    return copies


def peers(bench: Bench, seconds: float) -> MeasuredRates:
    """The ceiling ``nvlink`` if two cards exchange more than the host link carries, and a fact for one direction."""
    size = bench.sizes.link_bytes
    here, there = (_pair(size, device=f"cuda:{n}") for n in (0, 1))
    streams = [(torch.cuda.Stream(device=0), torch.cuda.Stream(device=1)) for _ in range(2)]
    pairs = ((there[0], here[0]), (here[1], there[1]))

    def copies(directions: int) -> None:
        for (first, second), (to, origin) in list(zip(streams, pairs, strict=True))[:directions]:
            with torch.cuda.stream(first), torch.cuda.stream(second):
                for _ in range(PEER_COPIES):
                    to.copy_(origin, non_blocking=True)
        torch.cuda.synchronize(0)
        torch.cuda.synchronize(1)

    what, amount = f"best of copies of {size // MIB} MiB between cards 0 and 1", PEER_COPIES * size
    one = only(f"{what}, one direction", amount, partial(copies, 1), seconds / 2, bench.wall)
    both = only(f"{what}, both directions at once", 2 * amount, partial(copies, 2), seconds / 2, bench.wall)
    return MeasuredRates(facts={"peer_copy": fact(one.rate, one.how)}) + fabric(both, bench.earlier.rates.get("pcie"))


def fabric(both: Best, pcie: SourcedValue | None) -> MeasuredRates:
    """The ceiling ``nvlink``, or a note if the cards may have used the host link."""
    if pcie is None:
        return MeasuredRates(notes=("nvlink left out: without the host link's rate it cannot be told from it",))
    if both.rate < FABRIC * pcie.value:
        return MeasuredRates(notes=("nvlink left out: the cards exchange no more than the host link carries",))
    return MeasuredRates(rates={"nvlink": rate_of(both)})


def _pair(size: int, **placed: Any) -> list[torch.Tensor]:
    """Two arrays of so many bytes that have been written."""
    return [torch.empty(size, dtype=torch.uint8, **placed).fill_(7) for _ in range(2)]
