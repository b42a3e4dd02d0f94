"""Correlations, exponents, phase ratios and sweeps as tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rooflens.compare import Correlation, Exponent, PhaseRatio, Sweep
from rooflens.compare.correlation import FEWEST_MODELS
from rooflens.compare.statistics import FEWEST_POINTS, METHODS, Method
from rooflens.compare.throughput import FEWEST, KNEE
from rooflens.compare.timed_cases import COMPARED, quantity_of
from rooflens.report.columns import CASE, case_cells, p_cell
from rooflens.report.table import COUNT, PERCENT, Column, Entries, Entry, Table, build

SETTING = CASE[1:]
"""The columns of a case without its model."""
METHOD_WORDS: Mapping[Method, str] = {"pearson": "Pearson", "spearman": "Spearman", "kendall": "Kendall"}


def _coefficient_columns(method: Method) -> tuple[Column, ...]:
    return (
        Column(key=method, header=METHOD_WORDS[method], group=method),
        Column(key=f"{method}_low", header="low", group=method, show="room"),
        Column(key=f"{method}_high", header="high", group=method, show="room"),
        Column(key=f"{method}_p", header="p", group=method, show="room"),
    )


_CORRELATION = (
    Column(key="quantity", header="quantity", align="left"),
    Column(key="models", header="models", unit=COUNT),
    *(column for method in METHODS for column in _coefficient_columns(method)),
    Column(key="against", header="against", align="left", show="files"),
    Column(key="time", header="time is", align="left", show="files"),
)


def correlation_table(found: Sequence[Correlation]) -> Table:
    """One row per setting and quantity."""
    against = quantity_of(found[0].against).title if found else "latency"
    time = {"measured": "measured", "bound": "the bound"}[found[0].time] if found else "measured"
    notes = [
        f"over the models of one setting, from {FEWEST_MODELS} on; 95 % bootstrap intervals from {FEWEST_POINTS} on",
        f"latency is {time}; activations: bytes of the results that the operations of forward write",
        "p: two-sided, that the two are unrelated; not adjusted for the number of rows",
    ]
    return build(f"Correlation with {against}", (*SETTING, *_CORRELATION), map(_correlation, found), notes=notes)


def _correlation(item: Correlation) -> Entries:
    cells: Entries = {
        **case_cells(item.setting),
        "quantity": quantity_of(item.quantity).title,
        "models": len(item.points),
        "against": quantity_of(item.against).title,
        "time": item.time,
    }
    for method, coefficient in item.coefficients.items():
        low, high = coefficient.interval or (None, None)
        cells |= {
            method: _bare(coefficient.value),
            f"{method}_low": _bare(low),
            f"{method}_high": _bare(high),
            f"{method}_p": p_cell(coefficient.p),
        }
    return cells


def _bare(value: float | None) -> Entry:
    """A coefficient or an exponent, in two decimals for people."""
    return Entry(value, label=None if value is None else f"{value:.2f}")


_EXPONENT = (
    Column(key="over", header="over", align="left"),
    Column(key="points", header="points", unit=COUNT),
    Column(key="exponent", header="exponent", group="fit"),
    Column(key="low", header="low", group="fit"),
    Column(key="high", header="high", group="fit"),
    Column(key="r_squared", header="R2", group="fit"),
    Column(key="factor", header="factor", group="fit", show="files"),
    Column(key="of", header="of", align="left", show="files"),
    Column(key="time", header="time is", align="left", show="files"),
)


def exponent_table(found: Sequence[Exponent]) -> Table:
    """One row per series."""
    of = quantity_of(found[0].of).title if found else "latency"
    notes = ["least squares on logarithms, with the 95 % interval of the slope; 1 is proportional, 0 a fixed cost"]
    rows: list[Entries] = []
    for item in found:
        low, high = item.fit.interval or (None, None)
        rows.append(
            {
                **case_cells(item.case),
                "over": _title(item.over),
                "points": item.fit.points,
                "exponent": _bare(item.fit.exponent),
                "low": _bare(low),
                "high": _bare(high),
                "r_squared": Entry(item.fit.r_squared, label=f"{item.fit.r_squared:.3f}"),
                "factor": item.fit.factor,
                "of": quantity_of(item.of).title,
                "time": item.time,
            }
        )
    return build(f"Exponents of {of}", (*CASE, *_EXPONENT), rows, notes=notes)


def _title(over: str) -> str:
    """What a series grows with: a quantity, the batch or an option."""
    return next((quantity_of(name).title for name in COMPARED if name == over), over)


_PHASES = (
    Column(key="time", header="time", group="ratio"),
    Column(key="time_low", header="low", group="ratio", show="room"),
    Column(key="time_high", header="high", group="ratio", show="room"),
    Column(key="bound", header="bound", group="ratio"),
    Column(key="matmul_flops", header="matmul FLOP", group="ratio"),
    Column(key="flops", header="FLOP", group="ratio"),
    Column(key="bytes", header="DRAM", group="ratio"),
    Column(key="backward_share", header="backward of step", unit=PERCENT, group="ratio"),
)


def phases_table(found: Sequence[PhaseRatio]) -> Table:
    """One row per training step."""
    notes = ["forward over backward, each; products do about twice the work in backward, which is 0.5"]
    rows: list[Entries] = []
    for item in found:
        low, high = item.time_interval or (None, None)
        rows.append(
            {
                **case_cells(item.case),
                "time": item.time,
                "time_low": low,
                "time_high": high,
                "bound": item.bound,
                "matmul_flops": item.matmul_flops,
                "flops": item.flops,
                "bytes": item.bytes,
                "backward_share": item.backward_share,
            }
        )
    return build("Forward to backward", (*CASE, *_PHASES), rows, notes=notes)


_SWEEP = (
    Column(key="origin", header="throughput", align="left"),
    Column(key="batches", header="batches", unit=COUNT),
    Column(key="best", header="highest, samples /s"),
    Column(key="best_batch", header="at batch", unit=COUNT),
    Column(key="knee", header="knee", unit=COUNT),
    Column(key="largest", header="largest that fits", unit=COUNT),
)


def sweep_table(found: Sequence[Sweep]) -> Table:
    """One row per sweep over batches."""
    notes = [f"knee: the smallest batch that reaches {100 * KNEE:.0f} % of the highest, from {FEWEST} batches on"]
    rows: list[Entries] = [
        {
            **case_cells(item.case),
            "origin": item.origin,
            "batches": len(item.rates),
            "best": item.best[1],
            "best_batch": item.best[0],
            "knee": item.knee,
            "largest": item.largest,
        }
        for item in found
    ]
    return build("Throughput", (*CASE[:1], *CASE[2:], *_SWEEP), rows, notes=notes)
