"""Correlations, exponents, phase ratios and sweeps as tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from rooflens.compare import AskedNumber, Correlation, Exponent, PhaseRatio, Sweep
from rooflens.compare.correlation import FEWEST_MODELS
from rooflens.compare.throughput import FEWEST, KNEE
from rooflens.compare.timed_cases import COMPARED, quantity_of
from rooflens.compare.uncertainty import FEWEST_ASYMPTOTIC, FEWEST_FITTED, FEWEST_POINTS, LEVEL, METHODS, Method
from rooflens.report.columns import CASE, case_columns, p_entry
from rooflens.report.table import COUNT, PERCENT, Column, Entry, Table, at, build
from rooflens.results import QUANTITIES, Time
from rooflens.results.quantities import ALL_FLOPS, BOUND, BYTES, MATMUL_FLOPS, PREDICTED
from rooflens.units import show

METHOD_WORDS: Mapping[Method, str] = {"pearson": "Pearson", "spearman": "Spearman", "kendall": "Kendall"}


def _two_decimals(value: float | None) -> Entry:
    """Return a coefficient or an exponent as people read it."""
    return Entry(value, label=None if value is None else f"{value:.2f}")


def _rounded(key: str, header: str, path: str, group: str, show: Literal["always", "room"] = "always") -> Column:
    """Return the column of a coefficient or an exponent, in two decimals for people."""
    steps = path.split(".")
    return Column(key, header, "", lambda item: _two_decimals(at(item, steps)), group=group, show=show)


def _coefficient(method: Method) -> tuple[Column, ...]:
    """Return the columns of a correlation coefficient: its value, interval and p-value."""
    path = f"coefficients.{method}"
    return (
        _rounded(method, METHOD_WORDS[method], f"{path}.value", method),
        _rounded(f"{method}_low", "low", f"{path}.interval.0", method, "room"),
        _rounded(f"{method}_high", "high", f"{path}.interval.1", method, "room"),
        Column(
            f"{method}_p",
            "p",
            "",
            lambda item: p_entry(at(item, ("coefficients", method, "p"))),
            group=method,
            show="room",
        ),
    )


_TIME = Column("time", "time is", align="left", show="files")
_CORRELATION = (
    *case_columns("setting")[1:],
    Column("quantity", "quantity", read=lambda item: quantity_of(item.quantity).title, align="left"),
    Column("models", "models", COUNT, lambda item: len(item.points)),
    *(column for method in METHODS for column in _coefficient(method)),
    Column("against", "against", read=lambda item: quantity_of(item.against).title, align="left", show="files"),
    _TIME,
)


TIME_NAMES: Mapping[Time, str] = {
    "measured": "the measured time",
    "predicted": "the expected time",
    "bound": "the bound",
}


def correlation_table(rows: Sequence[Correlation]) -> Table:
    """Return one row per setting and quantity."""
    against = quantity_of(rows[0].against).title if rows else "latency"
    time = TIME_NAMES[rows[0].time] if rows else "the time"
    notes = [
        f"over the models of one setting, from {FEWEST_MODELS} on; 95 % bootstrap intervals from {FEWEST_POINTS} on",
        f"latency is {time}; activations: bytes of the results that the operations of forward write",
        "p: two-sided, that the two are unrelated; not adjusted for the number of rows",
        f"exact below {FEWEST_ASYMPTOTIC} models; none where models are too few for any p below {LEVEL:g}",
    ]
    return build(f"Correlation with {against}", _CORRELATION, rows, notes=notes)


_EXPONENT = (
    *CASE,
    Column("over", "over", read=lambda item: _title(item.over), align="left"),
    Column("points", "points", COUNT, "fit.points"),
    _rounded("exponent", "exponent", "fit.exponent", "fit"),
    _rounded("low", "low", "fit.interval.0", "fit"),
    _rounded("high", "high", "fit.interval.1", "fit"),
    Column(
        "r_squared", "R2", read=lambda item: Entry(item.fit.r_squared, label=f"{item.fit.r_squared:.3f}"), group="fit"
    ),
    Column("factor", "factor", read="fit.factor", group="fit", show="files"),
    Column("of", "of", read=lambda item: quantity_of(item.of).title, align="left", show="files"),
    _TIME,
)


def exponent_table(rows: Sequence[Exponent]) -> Table:
    """Return one row per series."""
    of = quantity_of(rows[0].of).title if rows else "latency"
    notes = [
        *([f"latency is {TIME_NAMES[rows[0].time]}"] if rows and "latency" in (rows[0].of, rows[0].over) else []),
        "least squares on logarithms, with the 95 % interval of the slope; 1 is proportional, 0 a fixed cost",
        f"series of {FEWEST_FITTED} different values and more: fewer always lie near some line",
    ]
    return build(f"Exponents of {of}", _EXPONENT, rows, notes=notes)


def _title(over: str) -> str:
    """Return what a series grows with: a quantity, the batch or an option."""
    return next((quantity_of(name).title for name in COMPARED if name == over), over)


_PHASES = (
    *CASE,
    Column("time", "time", group="ratio"),
    Column("time_low", "low", read="time_interval.0", group="ratio", show="room"),
    Column("time_high", "high", read="time_interval.1", group="ratio", show="room"),
    Column("predicted", PREDICTED.header, group="ratio"),
    Column("bound", BOUND.header, group="ratio"),
    Column("matmul_flops", MATMUL_FLOPS.header, group="ratio"),
    Column("flops", ALL_FLOPS.header, group="ratio"),
    Column("bytes", BYTES.header, group="ratio"),
    Column("backward_share", "backward of step", PERCENT, group="ratio"),
)


def phases_table(rows: Sequence[PhaseRatio]) -> Table:
    """Return one row per training step."""
    notes = ["forward over backward, each; products do about twice the work in backward, which is 0.5"]
    return build("Forward to backward", _PHASES, rows, notes=notes)


def _in_its_unit(key: str, sign: bool = False, header: str = "") -> Column:
    """Return the column of a number that has another unit from row to row; a bound is the least, or the most."""

    def read(row: AskedNumber) -> Entry:
        value = getattr(row, key)
        bounds = sign and value is not None and row.unit not in ("J", "B")
        text = None if value is None else show(value, row.unit) if row.unit else f"{value:.4g}"
        return Entry(value, (">=" if row.better == "less" else "<=") if bounds else "", label=text)

    return Column(key, header or key, "", read, group="number")


_ASKED = (
    Column("answer", "answer", read=lambda row: Entry(row.title, label=QUANTITIES[row.name].header), align="left"),
    *CASE,
    _in_its_unit("bound", sign=True),
    _in_its_unit("predicted", header="expected"),
    Column("predicted_low", "10 %", read="band.0", group="number", show="files"),
    Column("predicted_high", "90 %", read="band.1", group="number", show="files"),
    _in_its_unit("measured"),
    Column("low", "low", read="interval.0", group="number", show="files"),
    Column("high", "high", read="interval.1", group="number", show="files"),
    Column("over_bound", "over bound", group="ratio"),
    Column("over_first", "over the first", group="ratio"),
    Column("name", "name", align="left", show="files"),
    Column("unit", "unit", align="left", show="files"),
    Column("better", "better", align="left", show="files"),
)


def asked_table(rows: Sequence[AskedNumber]) -> Table:
    """Return one row per answer and case, answer by answer."""
    notes = [
        "over the first: over the same answer of the first case, by measurements where both have one, else as expected",
        ">= the least, <= the most that the bound allows",
    ]
    return build("Answers", _ASKED, rows, notes=notes)


_SWEEP = (
    *(column for column in CASE if column.key != "batch"),
    Column(
        "origin",
        "throughput",
        read=lambda item: Entry(item.origin, label="expected" if item.origin == "predicted" else item.origin),
        align="left",
    ),
    Column("batches", "batches", COUNT, lambda item: len(item.rates)),
    Column("best", "highest, samples /s", read="best.1"),
    Column("best_batch", "at batch", COUNT, "best.0"),
    Column("knee", "knee", COUNT),
    Column("largest", "largest that fits", COUNT),
    Column(
        "too_large",
        "do not fit",
        read=lambda item: ", ".join(map(str, item.too_large)) or None,
        align="left",
    ),
)


def sweep_table(rows: Sequence[Sweep]) -> Table:
    """Return one row per sweep over batches."""
    share = f"{100 * KNEE:.0f} %"
    note = f"highest: of batches that fit; knee: the smallest that reaches {share} of it, from {FEWEST} such batches on"
    return build("Throughput", _SWEEP, rows, notes=[note])
