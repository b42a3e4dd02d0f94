"""What a card's limit of power leaves of its speed, in work that lasts.

Large products draw more than the limit. For some milliseconds a card lets them, so that one call alone, and a suite,
runs at the full clock; then the clock falls until joules over seconds are the limit. On an H200 products of 16 bits ran
at 818 TFLOP/s in their first milliseconds and at 690 after 1.5 s, and streams, which draw 0.81 to 0.90 of the limit, as
before (benchmarks/results/prediction-h200/power.jsonl). Here a step is taken to come again and again, as in training,
serving or a benchmark of it: it takes at least its joules over the limit. A first step is faster. A card with fewer
watts for a unit runs at a lower clock and voltage, at which a product takes fewer joules.
"""

from __future__ import annotations

from rooflens.predict.call_on_device import HALF, CallOnDevice
from rooflens.predict.card import Card

_PRODUCTS = tuple(f"matmul.{dtype}" for dtype in sorted(HALF))


def joules(piece: CallOnDevice, seconds: float, card: Card) -> float:
    """Return the joules of a call that takes some seconds alone; 0 where the card's limit or constants are not known.

    They are those of its products in 16 bits, or what the card draws in any kernel, whichever is more.
    """
    if not card.power:
        return 0.0
    products = 0.0
    if flops := sum(piece.flops.get(name, 0.0) for name in _PRODUCTS):
        each = card["power.attention" if piece.family == "attention" else "power.product"]
        products = flops * each * (card.power / card.units / card["power.of_unit"]) ** card["power.falls"]
    return max(products, card["power.busy"] * card.power * seconds)


def held_back(seconds: float, energy: float, card: Card) -> float:
    """Return the seconds of some work, or those that its joules take at the card's limit."""
    return max(seconds, energy / card.power) if card.power else seconds
