"""Figures that somebody else reported beside ours, with the ratio and what the checks say of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from rooflens import units
from rooflens.checks import QUANTITIES, Figure
from rooflens.compare import Evidence
from rooflens.devices import find
from rooflens.errors import UnknownDevice
from rooflens.records import Memory, Phase
from rooflens.report.study.content import Listed, Section, StudyView
from rooflens.report.table import COUNT, Cell, Cells, Column, build

_COLUMNS = (
    Column(key="group", header="from", align="left"),
    Column(key="quantity", header="quantity", align="left"),
    Column(key="model", header="model", align="left"),
    Column(key="device", header="device", align="left"),
    Column(key="batch", header="batch", unit=COUNT),
    Column(key="dtype", header="dtype", align="left"),
    Column(key="phase", header="phase", align="left"),
    Column(key="reported", header="reported"),
    Column(key="ours", header="ours"),
    Column(key="ours_is", header="ours is", align="left"),
    Column(key="ratio", header="reported over ours"),
    Column(key="findings", header="findings", align="left"),
)
Value = tuple[float, str]
"""A number of ours, and what it is."""


def reported(view: StudyView) -> Section | None:
    """Every figure that was typed in, beside what the records say of the same step."""
    if not view.reported:
        return None
    doubts: dict[str, list[str]] = {}
    for finding in view.findings:
        doubts.setdefault(finding.subject, []).append(finding.code)
    rows = [_row(figure, view.evidence, doubts) for figure in view.reported]
    notes = ["findings: codes of what the checks say of a figure; what they mean stands under the findings"]
    table = build("Reported beside ours", _COLUMNS, rows, notes=notes)
    return Section(key="reported", title="Reported beside ours", blocks=(Listed(key="reported", table=table),))


def _row(figure: Figure, evidence: Iterable[Evidence], doubts: Mapping[str, list[str]]) -> Cells:
    unit, ours = QUANTITIES.get(figure.quantity, ""), of_ours(figure, evidence)
    value, what = (None, None) if ours is None else ours
    return {
        "group": figure.group,
        "quantity": figure.quantity.replace("_", " "),
        "model": figure.model,
        "device": figure.device,
        "batch": figure.batch,
        "dtype": figure.dtype,
        "phase": figure.phase,
        "reported": _cell(figure.value, unit),
        "ours": _cell(value, unit),
        "ours_is": what,
        "ratio": figure.value / value if figure.value is not None and value else None,
        "findings": ", ".join(dict.fromkeys(doubts.get(figure.subject, ()))),
    }


def _cell(value: float | None, unit: str) -> Cell:
    return Cell(value, label=None if value is None else units.show(value, unit))


def of_ours(figure: Figure, evidence: Iterable[Evidence]) -> Value | None:
    """What the records say of the same quantity of the same step; None where they say nothing, or several things."""
    ask = _ASK.get(figure.quantity)
    if ask is None:
        return None
    fitting = [item for item in evidence if _fits(figure, item)]
    found = {value for item in fitting if (value := ask(item, figure.phases)) is not None}
    best = {value for value in found if "measured" in value[1]} or found
    return best.pop() if len(best) == 1 else None


def _fits(figure: Figure, item: Evidence) -> bool:
    case = item.case
    same = case.model == figure.model and figure.batch in (None, case.batch) and figure.dtype in ("", case.dtype)
    device = not figure.device or _canonical(figure.device) == case.device
    return same and device and set(figure.phases) <= set(item.phases)


def _canonical(device: str) -> str:
    try:
        return find(device).name
    except UnknownDevice:
        return device


def _time(item: Evidence, phases: tuple[Phase, ...]) -> Value | None:
    times = [measured.seconds for phase in phases if (measured := item.measured(phase)) is not None]
    if times and len(times) == len(phases):
        return sum(times), "measured"
    bounds = [total.seconds for phase in phases if (total := item.total(phase)) is not None and total.seconds]
    return (sum(bounds), "bound") if bounds and len(bounds) == len(phases) else None


def _summed(name: str, words: str) -> Callable[[Evidence, tuple[Phase, ...]], Value | None]:
    def of(item: Evidence, phases: tuple[Phase, ...]) -> Value | None:
        totals = [total for phase in phases or (None,) if (total := item.total(phase)) is not None]
        values = [total.bytes.get("dram") if name == "dram" else getattr(total, name) for total in totals]
        known = [value for value in values if value is not None]
        source = item.work.sources[0] if item.work is not None else ""
        return (sum(known), f"{words}, {source}") if known and len(known) == len(values) else None

    return of


def _rate(item: Evidence, phases: tuple[Phase, ...]) -> Value | None:
    flops, time = _summed("flops", "FLOP")(item, phases), _time(item, phases)
    return (flops[0] / time[0], f"FLOP over {time[1]} time") if flops is not None and time is not None else None


def _intensity(item: Evidence, phases: tuple[Phase, ...]) -> Value | None:
    flops, dram = _summed("flops", "")(item, phases), _summed("dram", "")(item, phases)
    return (flops[0] / dram[0], f"FLOP over DRAM bytes{flops[1]}") if flops and dram and dram[0] else None


def _memory(item: Evidence, phases: tuple[Phase, ...]) -> Value | None:
    del phases  # the peak of a step belongs to all of them
    measured = None if item.time is None or item.time is item.work else item.time.memory
    if measured is not None and measured.peak is not None:
        return measured.peak, "allocated, measured"
    estimated: Memory | None = None if item.work is None else item.work.memory
    return None if estimated is None or estimated.peak is None else (estimated.peak, "peak, estimate")


def _parameters(item: Evidence, phases: tuple[Phase, ...]) -> Value | None:
    del phases
    return None if item.parameters is None else (item.parameters, "parameter elements")


_ASK: Mapping[str, Callable[[Evidence, tuple[Phase, ...]], Value | None]] = {
    "time": _time,
    "estimated_time": _time,
    "flops": _summed("matmul_flops", "matmul FLOP"),
    "counted_flops": _summed("flops", "all FLOP"),
    "bytes": _summed("dram", "DRAM bytes"),
    "performance": _rate,
    "intensity": _intensity,
    "memory": _memory,
    "allocated_memory": _memory,
    "parameters": _parameters,
}
