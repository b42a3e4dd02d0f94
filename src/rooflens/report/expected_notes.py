"""What a reader of expected times must know: how they come about, and where none was ever checked."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from rooflens.predict.checked import checked_cards
from rooflens.results import Total

_STEPS = {
    "inference": "step of inference",
    "train": "training step",
    "prefill": "step of prefill",
    "decode": "step of decode",
    "generate": "whole answer",
}
_IN_CODES = ("weights", "kv_dtype")
"""Options that store numbers as codes."""
_CONSUMER = "geforce"
"""How names of cards for gamers begin: they differ from others of their generation."""
_FEW = 3
_QUEUES = {"device-bound": "device", "host-bound": "host", "mixed": "both", "graph": "device"}


def waits_for(total: Total | None) -> str | None:
    """Return whose queue the expected time of a step waits for: device, host or both; of a processor none."""
    return None if total is None or total.prediction is None else _QUEUES.get(total.prediction.regime)


def waiting_notes(totals: Iterable[Total]) -> Iterator[str]:
    """Yield that the bound says little where the host decides, if it does for some total."""
    if any(waits_for(total) == "host" for total in totals):
        yield (
            "waits for: launching takes the host longer than running takes the device, whatever the bound is by; graphs"
            " and compiling leave the host less to do (rooflens advise)"
        )


def expected_notes(totals: Iterable[Total]) -> Iterator[str]:
    """Yield how the expected times of some totals come about, and which of them nobody has checked."""
    known = [total for total in totals if total.prediction is not None]
    generations: dict[str, list[str]] = {}
    for total in known:
        assert total.prediction is not None
        generations.setdefault(total.prediction.level, []).append(total.prediction.generation)
    for level, those in generations.items():
        yield (
            f"expected: by {level} ({', '.join(dict.fromkeys(those))}); 10 to 90 %: 8 of 10 measured times should lie"
            " in it (docs/prediction.md)"
        )
    yield from _unchecked_cards(known)
    yield from _unchecked_codes(known)


def _unchecked_cards(totals: Sequence[Total]) -> Iterator[str]:
    """Of a generation without a checked step in a mode, or of a GeForce whose generation was checked on others."""
    unchecked: dict[str, dict[str, None]] = {}
    long = False
    for total in totals:
        prediction, device, mode = total.prediction, total.device, total.records[0].case.mode
        if prediction is None or device is None or not prediction.level.startswith("datasheet"):
            continue
        cards = checked_cards()[mode].get(prediction.generation, ())
        if not cards:
            unchecked.setdefault(f"no {_STEPS[mode]} of this generation was checked", {})[device.name] = None
        elif device.name.startswith(_CONSUMER) and not any(card.startswith(_CONSUMER) for card in cards):
            told = f"no {_STEPS[mode]} of a GeForce of this generation was checked, only of {', '.join(cards)}"
            unchecked.setdefault(told, {})[device.name] = None
        long = long or (bool(cards) and device.name.startswith(_CONSUMER))
    for told, names in unchecked.items():
        yield f"expected on {few(tuple(names))}: {told}"
    if long:
        yield "expected times of GeForce cards tend to be too long (docs/prediction.md tells by how much)"


def _unchecked_codes(totals: Sequence[Total]) -> Iterator[str]:
    """Of weights or a cache in codes, which no suite has kernels of."""
    asked = (item for total in totals if total.records for item in total.records[0].case.options)
    formats = dict.fromkeys(f"{name}={value}" for name, value in asked if name in _IN_CODES and value)
    if formats:
        yield (
            f"expected with {', '.join(formats)}: torch widens the codes in operations of their own; no such step was"
            " ever checked, and an engine whose kernels read codes can come near the bound"
        )


def few(names: Sequence[str]) -> str:
    """Return some names, and how many more there are."""
    return ", ".join(names[:_FEW]) + (f" and {len(names) - _FEW} more" if len(names) > _FEW else "")
