"""The expected time of one call on a device, with the terms that its effect made it of."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from rooflens.explanation.chapters import ExpectedCall
from rooflens.predict import card_of, constants_of_form, form_of, predicted, telling
from rooflens.records import Device, Record


def expected_calls(record: Record, devices: Iterable[Device]) -> Iterator[ExpectedCall]:
    """Yield the expected time of a call of a record on each device, where one is known.

    Layouts that take the same terms are one; where terms differ, each has its own.
    """
    merged: list[ExpectedCall] = []
    for one in _in_layouts(record, devices):
        alike = next((at for at, other in enumerate(merged) if replace(other, calls=one.calls) == one), None)
        if alike is None:
            merged.append(one)
        else:
            merged[alike] = replace(one, calls=merged[alike].calls + one.calls)
    yield from merged


def _in_layouts(record: Record, devices: Iterable[Device]) -> Iterator[ExpectedCall]:
    """Yield the expected time of a call on each device, in each of its layouts."""
    units = () if record.work is None else [unit for unit in record.work.flops if unit.startswith("matmul.")]
    for device in devices:
        card = card_of(device) if all(map(device.ceiling, units)) else None
        for call, calls in record.layouts or ((record.call, record.calls),):
            one = replace(record, call=call, calls=1, layouts=(), timing=None)
            found = None if card is None else predicted((one,), telling(card))
            if card is None or found is None:
                continue
            form = form_of(found.seconds)
            used = () if form is None else constants_of_form(form)
            yield ExpectedCall(
                device=device,
                calls=calls,
                seconds=float(found.seconds),
                low=float(found.low),
                high=None if record.work is None or record.work.missing else float(found.high),
                level=found.level,
                generation=found.generation,
                form=form,
                constants={name: card.constants.values[name] for name in used},
                sources={name: card.constants.sources[name] for name in used},
            )
