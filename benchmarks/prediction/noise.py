"""How much the truth differs from itself: two sessions on two machines, quiet hosts, larger batches that run faster."""

from __future__ import annotations

import json
from collections.abc import Iterator
from statistics import median
from typing import Any

from benchmarks.prediction.own_models import H200, TIMING
from benchmarks.prediction.tables import quantile


def table() -> str:
    """A line for each way to compare a time with one that should be equal, or smaller."""
    lines = ["| what | pairs | median | p90 |", "|---|---|---|---|"]
    for name, values in (*_sessions(), *_trained(), *_repeats(), *_quiet()):
        lines.append(f"| {name} | {len(values)} | {100 * median(values):.1f} % | {100 * quantile(values, 0.9):.0f} % |")
    for name, seconds in _hosts():
        lines.append(
            f"| {name} | {len(seconds)} | {1e6 * median(seconds):.0f} us | {1e6 * quantile(seconds, 0.9):.0f} us |"
        )
    faster, pairs = _faster()
    lines.append(f"| eager steps of the next larger batch that took over 10 % less | {pairs} | {faster} of them | - |")
    return "\n".join(lines)


def _rows(*, quiet: bool = False) -> list[dict[str, Any]]:
    rows = [json.loads(line) for line in (H200 / "truth.jsonl").read_text().splitlines()]
    return [row for row in rows if ("quiet" in row) is quiet]


def _sessions() -> Iterator[tuple[str, list[float]]]:
    """The same step on two H200 machines on one day, and on one of a month before."""
    seen: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in _rows():
        if row["mode"] == "inference":
            seen.setdefault((row["model"], row["dtype"], row["batch"]), []).append(row)
    twice = [pair for pair in seen.values() if len(pair) == 2]
    for way in ("graph", "eager"):
        for small in (True, False):
            some = [abs(b[way] / a[way] - 1) for a, b in twice if way in a and way in b and (a["batch"] == 1) is small]
            if some:
                yield f"two sessions, {way}, batch {'1' if small else '32 and 256'}", some
    scaled = [abs(b["eager"] / a["eager"] * a["layer"] / b["layer"] - 1) for a, b in twice if a["batch"] == 1]
    yield "two sessions, eager, batch 1, over the time of a small layer", scaled


def _trained() -> Iterator[tuple[str, list[float]]]:
    """The same training step in an earlier session, and with probes of the host around each step."""
    seen: dict[str, list[dict[str, Any]]] = {}
    for row in _rows():
        if row["mode"] == "train":
            seen.setdefault(row["model"], []).append(row)
    twice = [pair for pair in seen.values() if len(pair) == 2]
    yield "two sessions, training", [abs(b["eager"] / a["eager"] - 1) for a, b in twice]
    scaled = [abs(b["eager"] / a["eager"] * a["layer"] / b["layer"] - 1) for a, b in twice]
    yield "two sessions, training, over the time of a small layer", scaled
    yield "range of up to 9 training steps whose probes agree", [row["spread"] for row in (b for _, b in twice)]


def _repeats() -> Iterator[tuple[str, list[float]]]:
    """The spread of the few samples of a case."""
    rows = [row for row in _rows() if row["mode"] == "inference"]
    for small in (True, False):
        yield (
            f"range of up to 9 eager samples, batch {'1' if small else '32 and 256'}",
            [row["spread"] for row in rows if (row["batch"] == 1) is small],
        )


def _quiet() -> Iterator[tuple[str, list[float]]]:
    """The spread of eager steps while the host was quiet."""
    rows = _rows(quiet=True)
    for what, some in (
        ("inference, batch 1", [r for r in rows if r["mode"] == "inference" and r["batch"] == 1]),
        ("inference, batch 32", [r for r in rows if r["mode"] == "inference" and r["batch"] == 32]),
        ("training", [r for r in rows if r["mode"] == "train"]),
    ):
        yield f"range of eager samples on a quiet host, {what}", [row["spread"] for row in some]


def _hosts() -> Iterator[tuple[str, list[float]]]:
    """Seconds of a small layer beside each case."""
    for name, quiet in (("a quiet host", True), ("the host as it was", False)):
        yield f"a small layer on {name}", [row["layer"] for row in _rows(quiet=quiet)]


def _faster() -> tuple[int, int]:
    """Steps of a larger batch that took over 10 % less than those of a smaller one, and how many were compared."""
    series: dict[tuple[Any, ...], dict[int, float]] = {}
    for row in _rows():
        if row["mode"] == "inference":
            series.setdefault((row["session"], row["model"], row["dtype"]), {})[row["batch"]] = row["eager"]
    for row in json.loads(TIMING.read_text())["rows"]:
        if row["mode"] != "train":
            series.setdefault((0, row["model"], row["dtype"]), {})[row["batch"]] = row["median_s"]
    pairs = [(its[a], its[b]) for its in series.values() for a, b in zip(sorted(its), sorted(its)[1:], strict=False)]
    return sum(later < 0.9 * earlier for earlier, later in pairs), len(pairs)
