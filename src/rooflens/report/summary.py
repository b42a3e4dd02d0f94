"""The tables of a set of records: one row per case with work, bound and time, its memory, and what failed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from rooflens.compare.speed_of_light import ceiling_shares
from rooflens.records import Case, Phase
from rooflens.report.answer_table import IN_TOKENS, answer_column, expected_columns, notes_on_tokens
from rooflens.report.case_names import differing, name_of
from rooflens.report.columns import BOUNDS, CASE, EXPECTED, PHASE, ROOM, SOURCE, WAITS, WORK, at_least
from rooflens.report.expected_notes import waiting_notes
from rooflens.report.one_step import of_one_step
from rooflens.report.part_tables import CEILINGS
from rooflens.report.part_tables import NOTE as CEILING_NOTE
from rooflens.report.profile_notes import profile_notes
from rooflens.report.sweep_notes import batch_notes
from rooflens.report.table import COUNT, PERCENT, Column, ColumnNote, Entry, Show, Table, build, percent
from rooflens.report.table_notes import (
    FASTER,
    coverage_notes,
    device_notes,
    number_notes,
    recomputation_notes,
    surplus_notes,
    total_notes,
)
from rooflens.results import Evidence, Measured, Quantity, RecordSet, Room, Total, join
from rooflens.results.answers import ANSWERS, COSTS, ENERGY_PER_SAMPLE, ENERGY_PER_TOKEN
from rooflens.results.evidence import only_failed
from rooflens.results.factors import Time
from rooflens.results.quantities import (
    AS_WRITTEN,
    ATTAINABLE_MFU,
    EFFICIENCY,
    HFU,
    KV_CACHE,
    MEMORY,
    MFU,
    PARAMETERS,
    THROUGHPUT,
    TIME,
    WHOLE_MODEL,
    efficiency,
    throughput,
)
from rooflens.runs.options import ANSWERING, SWEPT

NOISY = 0.10
"""Interquartile range over the median above which a time is marked: torch.utils.benchmark warns there too."""
_NOISY_NOTE = "noisy: "
"""How the note begins that a measurement makes of such a time; it says what helps, so one note is enough."""
STEP = "step"
"""The phases of a step together."""
ANSWER = "answer"
"""Those of a whole answer."""
_MEASURED = "measured_seconds"
_BOUND = "bound: operation by operation, operands from DRAM; fused code can beat it"
_BOUND_OF_ENGINES = (
    "bound: products, attention and cache one after the other, operands from DRAM; only an engine that overlaps them"
    " (chunked prefill) can beat it, down to the whole-model roofline"
)

_ON_LANES = "matmul FLOP and MAC that were counted are those of tensor cores; FLOP hold products on the general lanes"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    """One phase of a case, or the whole step (`only` is None); `as_written` is a time that differs from the bound."""

    evidence: Evidence
    case: Case
    source: str
    only: Phase | None
    phase: str
    total: Total | None
    measured: Measured | None
    rate: tuple[float | None, Time | None] = (None, None)
    as_written: float | None = None
    room: Room | None = None
    failed: str | None = None

    @property
    def counted(self) -> bool:
        """True if hardware counters saw its work."""
        work = None if self.total is None else self.total.as_written.work
        return work is not None and work.origin == "executed"

    @property
    def ceilings(self) -> Mapping[str, float | None]:
        """By place the share of its ceiling that counted work reaches in the measured time."""
        if not self.counted or self.total is None or self.measured is None:
            return {}
        worked = [record for record in self.total.records if record.work is not None]
        return ceiling_shares(worked, self.evidence.device, self.measured.seconds)

    @property
    def noisy(self) -> bool:
        """True if the samples of the measured time spread widely."""
        timing = None if self.measured is None else self.measured.timing
        return timing is not None and (timing.noise or 0) > NOISY


def _time(key: str, header: str, unit: str, read: Any, show: Show = "always") -> Column:
    return Column(key, header, unit, read, group="time", show=show)


def _of_both(quantity: Quantity, show: Show, most: float | None = None) -> Column:
    """Return the column of what a measured time reaches of what the device allows."""

    def read(row: _Row) -> Entry | None:
        if row.total is None or row.measured is None:
            return None
        reading = quantity.read(row.evidence, row.only)
        return at_least(reading.value, reading.at_least, most)

    return _time(quantity.name, quantity.header, PERCENT, read, show)


def _rate(row: _Row) -> Entry:
    """The throughput of a row; people ask for tokens where the mode is answered in tokens."""
    rate, origin = row.rate
    if row.case.mode in ANSWERS:
        return Entry(rate, label="-")
    return Entry(rate, "<=" if origin == "bound" else "")


def _size(row: _Row, name: str) -> Entry:
    """Return a size of a case that is an option, as the length of its sequences."""
    return Entry(dict(row.case.options).get(name))


PARAMETER_COUNT = Column("parameters", PARAMETERS.header, read="evidence.parameters", group="work", show="room")
SUMMARY_COLUMNS = (
    *CASE,
    *(Column(name, name, COUNT, partial(_size, name=name), show="files") for name in SWEPT),
    SOURCE,
    PHASE,
    PARAMETER_COUNT,
    Column("peak", MEMORY.header, MEMORY.unit, "evidence.work.memory.peak", show="files"),
    Column(KV_CACHE.name, KV_CACHE.header, KV_CACHE.unit, "evidence.work.kv_cache.held", show="files"),
    *WORK,
    *BOUNDS,
    *EXPECTED,
    WAITS,
    _time("as_written_seconds", AS_WRITTEN.header, "s", "as_written", "room"),
    _time(
        "whole_model_seconds",
        WHOLE_MODEL.header,
        "s",
        lambda row: row.total and at_least(WHOLE_MODEL.of(row.total).value, bool(row.total.missing)),
        "room",
    ),
    _time(
        _MEASURED,
        TIME.header,
        "s",
        lambda row: row.measured and Entry(row.measured.seconds, mark="~" if row.noisy else ""),
    ),
    _time("summed_seconds", "sum of times", "s", "measured.summed", "room"),
    _time("span_seconds", "span", "s", "measured.span", "room"),
    _time("idle_share", "idle", PERCENT, "measured.idle", "room"),
    _time("measured_spread", "+-", PERCENT, "measured.spread", "room"),
    _time("measured_low", "measured low", "s", "measured.interval.0", "files"),
    _time("measured_high", "measured high", "s", "measured.interval.1", "files"),
    _time("measured_noise", "noise", PERCENT, "measured.timing.noise", "files"),
    _time("measured_samples", "samples", COUNT, "measured.samples", "files"),
    _time("measured_cold", "first call", "s", "measured.timing.cold", "room"),
    _time("measured_compiling", "compiling", "s", "measured.timing.compiling", "room"),
    _of_both(EFFICIENCY, "always", most=1),
    _of_both(MFU, "files"),
    _of_both(HFU, "files"),
    _time(ATTAINABLE_MFU.name, ATTAINABLE_MFU.header, PERCENT, lambda row: ATTAINABLE_MFU.of(row.total).value, "files"),
    _time("throughput", THROUGHPUT.header, "", _rate),
    replace(_time("throughput_from", "throughput from", "", "rate.1", "files"), align="left"),
    *(answer_column(answer, expected=True) for answer in IN_TOKENS if answer not in (ENERGY_PER_TOKEN, *COSTS)),
    *(answer_column(answer, "files") for answer in ANSWERS["generate"] if answer not in (*IN_TOKENS, *COSTS)),
    answer_column(ENERGY_PER_TOKEN),
    *expected_columns(ENERGY_PER_TOKEN),
    answer_column(ENERGY_PER_SAMPLE, "files"),
    *expected_columns(ENERGY_PER_SAMPLE, "files"),
    *(answer_column(cost, expected=True) for cost in COSTS),
    *ROOM,
    Column("failed", "failed", read="failed", align="left"),
)
_FAILED = (
    *CASE,
    SOURCE,
    Column("stage", "stage", align="left"),
    Column("kind", "kind", align="left"),
    Column("message", "message", align="left"),
)


def whole_steps(table: Table) -> Table:
    """Return a summary without the phases of steps that have several."""
    keys = [column.key for column in table.columns]
    case, phase = slice(keys.index("phase")), keys.index("phase")
    whole = [row for row in table.rows if row[phase].value in (STEP, ANSWER)]
    cases = {row[case] for row in whole}
    rows = [row for row in table.rows if row[phase].value in (STEP, ANSWER) or row[case] not in cases]
    return replace(table, rows=tuple(rows))


def summary(rs: RecordSet) -> Table:
    """Return one row per case and source, and per phase where a step has several; the step as a whole comes last.

    An estimate and the measurement of its case share a row, so that bound, measured time and efficiency (bound over
    measured) stand beside each other. Throughput is batch over the measured time; without a measurement over the
    expected one, and without that over the bound, an upper bound marked ``<=``. Prefill and decode are answered in
    tokens. A case that failed has a row that says why.
    """
    evidence = join(rs)
    rows = rows_of(evidence)
    notes = [*coverage_notes(evidence), *device_notes(evidence)]
    of_others = rs.environment is None
    profiles = [item for item in evidence if "profile" in item.sources or (of_others and item.unnamed)]
    notes += [*(profile_notes(profiles) if profiles else ()), *_notes(rows)]
    if rs.failures:
        rows += _failed_rows(rs, evidence)
    if len(evidence) + len(rs.failures) > 1:
        notes += batch_notes(evidence, rs.failures)
    shown = _shown_here(rows)
    spans = [row.measured.span for row in rows if row.measured is not None]
    headers = {_MEASURED: "busy"} if spans and None not in spans else {}
    more = {EFFICIENCY.name: CEILINGS} if any("counters" in item.sources for item in evidence) else {}
    columns = [
        replace(column, show=shown.get(column.key, column.show), header=headers.get(column.key, column.header))
        for one in SUMMARY_COLUMNS
        for column in (one, *more.get(one.key, ()))
    ]
    return build("Summary", of_one_step(columns, (row.total for row in rows)), rows, notes=notes)


def rows_of(evidence: Sequence[Evidence]) -> list[_Row]:
    """Return a row for each phase of each case that has several, and for its whole step."""
    rows = []
    for item in evidence:
        several = len(item.phases) > 1
        for only in item.parts:
            total, measured = item.total(only), item.measured(only)
            rows.append(
                _Row(
                    evidence=item,
                    case=item.case,
                    source=" + ".join(item.sources),
                    only=only,
                    phase=only or (_whole(item.case) if several or not item.phases else item.phases[0]),
                    total=total,
                    measured=measured,
                    rate=(None, None) if only else _rate_of(item, total, measured),
                    as_written=AS_WRITTEN.of(total).value if total and total.surplus else None,
                    room=None if only else item.room,
                )
            )
    return rows


def _rate_of(item: Evidence, total: Total | None, measured: Measured | None) -> tuple[float | None, Time | None]:
    """Return samples per second, and by which time."""
    rate, origin = throughput(item.case, total, measured)
    expected = THROUGHPUT.read(item, time="predicted").value if origin == "bound" else None
    return (rate, origin) if expected is None else (expected, "predicted")


def _shown_here(rows: Sequence[_Row]) -> dict[str, Show]:
    """Return which columns are shown otherwise than elsewhere: people ask for tokens, or how training uses a device."""
    shown: dict[str, Show] = {}
    modes = {row.case.mode for row in rows}
    if modes <= ANSWERS.keys():
        shown[THROUGHPUT.name] = "files"
    if modes <= set(ANSWERING):  # which have a table of their own
        names = (answer.name for answer in ANSWERS["generate"])
        shown |= dict.fromkeys((key for name in names for key in (name, f"predicted_{name}")), "files")
    if "train" in modes:
        shown |= {MFU.name: "always", ATTAINABLE_MFU.name: "room"}
        if any(row.total is not None and row.total.recomputed_flops for row in rows):
            shown[HFU.name] = "always"
    return shown


def _whole(case: Case) -> str:
    """What all phases of a case are together."""
    return ANSWER if case.mode in ANSWERING else STEP


def _failed_rows(rs: RecordSet, evidence: Sequence[Evidence]) -> Iterator[_Row]:
    """Yield a row for each case of which nothing is known but why."""
    phases = {phase for item in evidence for phase in (item.phases if len(item.phases) == 1 else (_whole(item.case),))}
    for failure in only_failed(rs, evidence):
        yield _Row(
            evidence=Evidence(case=failure.case, device=None, work=None, time=None),
            case=failure.case,
            source=failure.source,
            only=None,
            phase=next(iter(phases)) if len(phases) == 1 else _whole(failure.case),
            total=None,
            measured=None,
            failed=failure.reason,
        )


def failures(rs: RecordSet) -> Table:
    """Return the cells that failed, one row each."""
    return build("Failed", _FAILED, rs.failures)


def _notes(rows: Sequence[_Row]) -> Iterator[str]:
    """Yield what a reader of the rows has to know; a note that does not hold for every case says for which."""
    yield from total_notes(row.total for row in rows if row.total is not None and row.only is None)
    if any(row.total is not None and row.total.bound is not None for row in rows):
        modes = {row.case.mode for row in rows if row.total is not None}
        yield from [_BOUND] if modes - ANSWERS.keys() else []
        yield from [_BOUND_OF_ENGINES] if modes & ANSWERS.keys() else []
        yield "whole-model roofline: all work as one operation"
    steps = [(row, row.total) for row in rows if row.only is None and row.total is not None]
    if any(total.flops and not total.matmul_flops and row.counted for row, total in steps):
        yield _ON_LANES
    yield from waiting_notes(row.total for row in rows if row.total is not None and row.only is None)
    yield from number_notes(row.total for row in rows)
    yield from surplus_notes(row.total for row in rows if row.total is not None and row.only is None)
    yield from recomputation_notes(row.total for row in rows if row.total is not None and row.only is None)
    if any(row.rate[1] == "bound" and row.case.mode not in ANSWERS for row in rows):
        yield "<= samples per second that the bound allows"
    if any(row.rate[1] == "predicted" and row.case.mode not in ANSWERS for row in rows):
        yield "samples per second: by the expected time"
    in_tokens = [row for row in rows if row.case.mode in ANSWERS and row.case.mode not in ANSWERING]
    yield from notes_on_tokens(in_tokens, expected=True)
    calls = [row.evidence.work for row in rows if row.only is None and row.case.mode == "inference"]
    if any(work.memory is not None and work.memory.kv_cache for work in calls if work is not None):
        yield (
            "mode inference of a language model gives logits of every token; --mode prefill and decode are a server's"
            " steps, --prompt-len and --output-len a whole answer"
        )
    yield from _notes_on_times([row for row in rows if row.measured is not None])
    cases = [row for row in rows if row.only is None]
    noted: dict[str, list[Case]] = {}
    for row in cases:
        for note in row.evidence.notes:
            mark = "~ " if note.startswith(_NOISY_NOTE) and any(r.noisy for r in rows if r.case == row.case) else ""
            noted.setdefault(mark + note, []).append(row.case)
    for note, those in noted.items():
        if len(those) == len(cases) or len({row.case for row in cases}) == 1:
            yield note
        else:
            fields = differing([row.case for row in cases])
            yield f"{', '.join(dict.fromkeys(name_of(case, fields) for case in those))}: {note}"


def _notes_on_times(timed: Sequence[_Row]) -> Iterator[str]:
    """Yield what a reader of measured times has to know; a record's own note on noise says it better."""
    marked = [row for row in timed if row.noisy]
    if any(not any(note.startswith(_NOISY_NOTE) for note in row.evidence.notes) for row in marked):
        yield f"~ noisy: the middle half of the samples spreads over more than {100 * NOISY:.0f} % of the median"
    if any(row.measured.spread is not None for row in timed if row.measured is not None):
        yield ColumnNote("+-: half the 95 % interval of the median, over the median", "measured_spread")
    if any((EFFICIENCY.read(row.evidence, row.only).value or 0) > 1 for row in timed):
        yield FASTER
    for row in timed:
        if row.only is None and row.measured is not None and row.measured.pooled > 1:
            yield f"{row.case.label()}: samples of {row.measured.pooled} measurements pooled"
    if any(row.source == "counters" and any(row.ceilings.values()) for row in timed):
        yield CEILING_NOTE
    yield from _notes_on_executed([row for row in timed if row.only is None and row.evidence.estimate is not None])


def _notes_on_executed(steps: Sequence[_Row]) -> Iterator[str]:
    """Yield what tells the efficiency of what kernels executed from that of the model, as tables of modules have it."""
    for row in steps:
        seconds = None if row.measured is None else row.measured.seconds
        reached = efficiency(row.evidence.model_total(), seconds)
        if reached is not None:
            whose = f"{row.case.label()}: " if len(steps) > 1 else ""
            yield (
                f"{whose}efficiency of counters is of the bound of what was executed; of the estimate's bound it is"
                f" {percent(reached)}"
            )
