"""The expected time of a call as text: its terms, how they are put together, and the constants behind them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping

from rooflens.explanation.blocks import Labelled, TextBlock, number
from rooflens.explanation.chapters import ExpectedCall
from rooflens.predict import Detail, Form, Term
from rooflens.records import Device
from rooflens.units import show, show_range

DETAILS: Mapping[str, Callable[[float], str]] = {
    "nbytes": lambda n: f"{number(round(n))} B",
    "share": lambda share: f"at {share:.3g} of the bandwidth",
    "cached": lambda n: f"{show(n, 'B')} of them from the cache" if n else "",
    "flops": lambda n: show(n, "FLOP"),
    "rate": lambda rate: f"at {show(rate, 'FLOP/s')}",
    "split": lambda parts: f"split-K {parts}" if parts > 1 else "",
    "waves": lambda waves: f"{waves:,} waves" if waves > 1 else "1 wave",
    "at_best": lambda rate: f"of {show(rate, 'FLOP/s')} at best",
    "padded": lambda times: f"{times:.3g} x for whole blocks" if times != 1 else "",
    "last_wave": lambda times: f"{times:.3g} x for the last wave" if times != 1 else "",
}
"""How numbers beside a term are told; any other one by its name."""


def expected_blocks(expected: ExpectedCall, *, several: bool) -> Iterator[TextBlock]:
    """Yield what the expected time of a call is made of, which is one of several layouts or the only one."""
    effect, form = _effect(expected.form)
    layout = f", calls in this layout: {expected.calls:,}" if several else ""
    yield ""
    yield f"Expected on {expected.device.name} ({_level(expected)}), by the effect {effect}{layout}:"
    labels = _labels(form)
    for term, label in labels.items():
        yield Labelled(label, _told(term))
    formula = "" if form is None else f"{_formula(form, labels)} = "
    yield Labelled("expected", f"{formula}{show(expected.seconds, 's')} ({_band(expected)})")


def constants_blocks(expected: Iterable[ExpectedCall]) -> Iterator[TextBlock]:
    """Yield the constants behind the expected times of calls on one device, with their sources."""
    by_source: dict[tuple[str, str], dict[str, float]] = {}
    for one in expected:
        for name, value in one.constants.items():
            effect, _, key = name.partition(".")
            by_source.setdefault((effect, one.sources[name]), {})[key] = value
    for (effect, source), values in sorted(by_source.items()):
        numbers = ", ".join(f"{key} {value:g}" for key, value in sorted(values.items()))
        yield Labelled(effect, f"{numbers}: {source}")


LEGEND = (
    "Times are in seconds, rates per unit and cycle, all else are shares and sizes. Of max(a, b) the longer one counts;"
    " norm3(a, b) is the cube root of a^3 + b^3: they overlap but for their ends."
)
"""How constants and forms are to be read."""


def unknown_time(device: Device) -> str:
    """Return what is said of a device on which no operation has an expected time."""
    return (
        f"On {device.name} no time is expected: one GPU has expected times, and after 'rooflens calibrate --suite' a"
        " processor, of forward passes in fp32."
    )


def _band(expected: ExpectedCall) -> str:
    """The ends of the band; without an upper one, why not."""
    if expected.high is None:
        return "at least: its FLOP are unknown, and this is the time of its bytes"
    return show_range(expected.low, expected.high, "s")


def _level(expected: ExpectedCall) -> str:
    return expected.level if expected.generation == "general" else f"{expected.level}, {expected.generation}"


def _effect(form: Form | None) -> tuple[str, Form | None]:
    """The name of the effect, and what its seconds were made of."""
    if isinstance(form, Term) and form.form is not None:
        return form.name.replace("_", " "), form.form
    return "none", form


def _labels(form: Form | None) -> dict[Term, str]:
    """A label for each different term of a form."""
    labels: dict[Term, str] = {}
    seen: Counter[str] = Counter()
    for term in () if form is None else _terms(form):
        if term not in labels:
            name = term.name or next((c.partition(".")[2] for c in term.constants), "rest")
            seen[name] += 1
            labels[term] = name if seen[name] == 1 else f"{name} {seen[name]}"
    return labels


def _terms(form: Form) -> Iterator[Term]:
    """Terms in the order in which they are told: equal times of one follow each other once."""
    if isinstance(form, Term):
        yield form
    else:
        for part in form.parts:
            yield from _terms(part)


def _told(term: Term) -> str:
    """The seconds of a term, and what somebody wants to know of it."""
    known = [text for name, value in term.details if (text := _detail(name, value))]
    if term.form is not None:
        inner = _formula(term.form, _labels(term.form), seconds=True)
        known = [inner if term.times == 1 else f"{term.times:.3g} x ({inner})"]
    elif known and term.times != 1:
        known.append(f"times {term.times:.3g}")
    return ": ".join(filter(None, (show(term.seconds, "s"), ", ".join(known))))


def _detail(name: str, value: Detail) -> str:
    if isinstance(value, str):
        return f"{name} {value}"
    return DETAILS[name](value) if name in DETAILS else f"{number(round(value))} {name}"


def _formula(form: Form, labels: Mapping[Term, str], *, seconds: bool = False) -> str:
    """A form in labels, with the seconds of each where these stand in no line of their own."""
    if isinstance(form, Term):
        return f"{show(form.seconds, 's')} {labels[form]}" if seconds else labels[form]
    parts = Counter(_formula(part, labels, seconds=seconds) for part in form.parts)
    texts = [text if times == 1 else f"{times} x {text}" for text, times in parts.items()]
    if form.how == "sum":
        return " + ".join(texts)
    name = "max" if form.how == "longest" else f"norm{form.exponent:g}"
    return f"{name}({', '.join(texts)})"
