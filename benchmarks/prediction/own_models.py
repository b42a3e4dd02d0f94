"""Whole models: times that were taken for this project, beside their predictions."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks.agreement import ON_CPU
from benchmarks.prediction.tables import Judged
from benchmarks.prediction.traces import Traces
from benchmarks.prediction.truth_models import AGAIN

import rooflens as rl
from rooflens.devices.files import load_file
from rooflens.predict import (
    Card,
    Conduct,
    KnownTimes,
    Prediction,
    Way,
    calls_on_device,
    card_of,
    expected_seconds,
    generation,
    predicted,
    way_of,
)
from rooflens.predict.bands import kinds
from rooflens.predict.constants import GENERAL
from rooflens.predict.fitting import TimedCall, fitted, priced
from rooflens.predict.suite import suite
from rooflens.records import ANSWER_PHASES, Call, Device, Phase, Record, Work
from rooflens.records.calls import from_plain
from rooflens.results import RecordSet
from rooflens.roofline import bound
from rooflens.sources.calibrate.host_costs import scaled_host

TIMING = Path(__file__).resolve().parents[3] / "shared" / "data" / "own" / "timing.json"
RESULTS = Path(__file__).parents[1] / "results"
H100, H200 = RESULTS / "prediction-h100", RESULTS / "prediction-h200"
PROCESSOR = RESULTS / "prediction-cpu"
AGREEMENT, QUIET = "five of the agreement benchmark", "the same five, whole, when the machine was quiet"
OTHER_MODELS = "twelve others"
BUSY = ", the host as it was"
"""Eager steps that were timed while other tenants' programs slowed the host now and then."""
SIZES = {"inception_v3": 299, "efficientnet_b7": 600}
SUITES = {"h100-sxm": H100, "h200": H200}
COVERED = 0.9
"""Of a step's time that has to be replayed."""


def on_sheets(device: Device) -> tuple[Card, Card]:
    """A device by its data sheet: of a known generation, and of an unknown one."""
    known, unknown = card_of(device), card_of(device, generation(GENERAL))
    assert known is not None
    assert unknown is not None
    return known, unknown


@cache
def timed_suite(name: str) -> tuple[TimedCall, ...]:
    """The calls of the suite, as a card ran them."""
    calls, times = suite(), []
    for line in (SUITES[name] / "suite.jsonl").read_text().splitlines():
        row = json.loads(line)
        if "seconds" in row:
            item = calls[row["number"]]
            assert (item.effect, item.call.name) == (row["effect"], row["name"])
            times.append(TimedCall(item, row["seconds"]))
    return tuple(times)


@cache
def calibrated(name: str, layer: float | None = None, gradients: float | None = None) -> Card:
    """A card with the constants that its suite tells, and its host by the times of a small layer and its gradients."""
    device = rl.device(name)
    constants = _constants(name)
    if layer is not None:
        constants = constants | scaled_host(generation(GENERAL).values, layer, gradients)
    card = card_of(replace(device, constants=constants))
    assert card is not None
    return card


@cache
def _constants(name: str) -> dict[str, float]:
    return fitted(timed_suite(name), rl.device(name))


def operations_of_the_suite() -> Iterator[Judged]:
    """The suites' own calls: what constants were read off, so that they tell the spread and no proof."""
    for name in SUITES:
        for card in (*on_sheets(rl.device(name)), calibrated(name)):
            for item, seconds in timed_suite(name):
                call = priced(item)
                yield Judged(
                    source="suite",
                    model=f"{item.call.name} {item.call.outputs[0].shape} {item.tf32}",
                    device=name,
                    level=card.level,
                    mode=item.effect,
                    regime=item.effect,
                    measured=seconds,
                    predicted=expected_seconds(call, card),
                    bound=bound(Work(flops=call.flops, bytes={"dram": call.nbytes}), card.device).seconds,
                    bands=(call.family, "other"),
                    steps=False,
                    seen=True,
                )


@cache
def replayed_calls(name: str) -> dict[tuple[Call, tuple[object, ...], bool], float]:
    """Seconds of calls of models, each alone, on a card; by call, layout and TF32."""
    times: dict[tuple[Call, tuple[object, ...], bool], float] = {}
    for path in sorted(SUITES[name].glob("replayed*.jsonl.gz")):
        with gzip.open(path, "rt") as file:
            for line in file:
                row = json.loads(line)
                if "seconds" in row:  # others cannot be replayed alone, and tell why
                    call = from_plain(row["call"])
                    times[call, call.layout, row["tf32"]] = row["seconds"]
    return times


def replayed(records: RecordSet, name: str, dtype: str, phase: Phase | None = "forward") -> KnownTimes | None:
    """Times of the calls of a step that were replayed on a card; None if they are less than 9 of 10 of its time."""
    card = card_of(rl.device(name))
    assert card is not None
    known = replayed_calls(name)
    found: dict[tuple[Call, tuple[object, ...]], float] = {}
    whole = covered = 0.0
    for record in records.under(card.device, phase, "graph").records:
        for piece, calls in calls_on_device(record):
            seconds = known.get((piece.call, piece.call.layout, dtype == "tf32"))
            each = calls * (expected_seconds(piece, card) if seconds is None else seconds)
            whole += each
            if seconds is not None:
                found[piece.call, piece.call.layout] = seconds
                covered += each
    return found if covered > COVERED * whole else None


def judged(
    records: RecordSet,
    cards: Sequence[Card],
    phase: Phase | None,
    way: Way,
    seconds: float,
    times: KnownTimes | None = None,
    **more: Any,
) -> Iterator[Judged]:
    """A measured time beside its prediction on each card, with times of calls that are known."""
    conduct: Conduct = records.conduct(way, times or {}, phase)
    answer = phase is None and not set(ANSWER_PHASES).isdisjoint(records.phases)
    for card in cards:
        total = records.under(card.device, phase, way)
        found = predicted(total.records, card, conduct, phase)
        assert found is not None
        assert total.seconds is not None
        case = total.records[0].case
        yield Judged(
            device=card.device.name,
            level=found.level,
            regime=found.regime,
            measured=seconds,
            predicted=found.seconds,
            bound=total.seconds,
            low=found.low,
            high=found.high,
            bands=_kinds(found, total.records, case.mode),
            parts=tuple(_parts(total.records, card, conduct)) if answer else (),
            batch=str(case.batch),
            dtype=case.dtype,
            **more,
        )


def _kinds(found: Prediction, records: Sequence[Record], mode: str) -> tuple[str, ...]:
    """Names of the bands of a step."""
    launches = sum(r.calls for r in records if r.work is not None and r.work.bytes.get("dram"))
    return kinds(found.regime, mode, found.device / max(1, launches))


def _parts(records: Sequence[Record], card: Card, conduct: Conduct) -> Iterator[tuple[float, tuple[str, ...]]]:
    """Expected seconds of the phases of a whole answer, with the names of their bands."""
    for phase in ANSWER_PHASES:
        its = [record for record in records if record.phase == phase]
        found = predicted(its, card, conduct, phase)
        assert found is not None
        yield found.seconds, _kinds(found, its, phase)


def models_with_graphs(traces: Traces) -> Iterator[Judged]:
    """14 models on an H100, whose operations are among those that constants were read off: eager and from graphs."""
    cards = (*on_sheets(rl.device("h100-sxm")), calibrated("h100-sxm"))
    for line in (H100 / "truth.jsonl").read_text().splitlines():
        row = json.loads(line)
        records = traces.step(row)
        more: dict[str, Any] = {"source": "H100, 14 models", "mode": "inference", "model": row["model"], "seen": True}
        ways: tuple[Way, ...] = ("eager", "graph")
        for way in ways:
            yield from judged(records, cards if way == "graph" else cards[:2], "forward", way, row[way], **more)
        times = replayed(records, "h100-sxm", row["dtype"])
        if times is not None:
            yield from judged(records, cards[:1], "forward", "graph", row["graph"], times, **more)


def earlier_h200(traces: Traces) -> Iterator[Judged]:
    """17 models on an H200 with another host: forward passes, and training steps without an optimizer."""
    cards = on_sheets(rl.device("h200"))
    for row in json.loads(TIMING.read_text())["rows"]:
        training = row["mode"] == "train"
        case = {**row, "mode": row["mode"] if training else "inference", "channels_last": row["dtype"] == "bf16"}
        if row["model"] in SIZES:
            case["img_size"] = SIZES[row["model"]]
        records = traces.step({**case, "optimizer": "none"} if training else case)
        phases: dict[Phase, float] = {"forward": row["forward_s" if training else "median_s"]}
        if training:
            phases["backward"] = row["backward_s"]
        for phase, seconds in phases.items():
            more = {"mode": f"train, {phase}" if training else "inference", "seen": True, "model": row["model"]}
            yield from judged(records, cards, phase, "eager", seconds, source="H200, 17 models", **more)


def unseen(traces: Traces) -> Iterator[Judged]:
    """46 models and 3 language models on an H200: none of them was run before the constants were chosen."""
    sheets = on_sheets(rl.device("h200"))
    for line in (H200 / "truth.jsonl").read_text().splitlines():
        row = json.loads(line)
        if row["model"] in AGAIN or (row["mode"] == "train" and "gradients" not in row):
            continue  # constants were read off it; or it was measured again, with probes of the host around each step
        own = calibrated("h200", row["layer"], row.get("gradients"))
        for phase, way, mode, seconds in _timed(row):
            language = mode in ("prefill", "decode")
            records = traces.step(row, captured=language and way == "graph")
            source = "H200, language models" if language else "H200, 46 models"
            busy = BUSY if way == "eager" and "quiet" not in row else ""
            more = {"source": source + busy, "model": row["model"], "mode": mode}
            yield from judged(records, (*sheets, own), phase, way, seconds, **more)
            times = replayed(records, "h200", row["dtype"], phase)
            if times is not None:
                yield from judged(records, (own,), phase, way, seconds, times, **more)


def _timed(row: Mapping[str, Any]) -> Iterator[tuple[Phase | None, Way, str, float]]:
    """Phase, way, name and seconds of what was timed of a case."""
    if row["mode"] == "train":
        phases: tuple[Phase, ...] = ("forward", "backward", "optimizer")
        yield from ((phase, "eager", f"train, {phase}", row[f"{phase}_s"]) for phase in phases)
        yield None, "eager", "train", row["eager"]
        return
    ways: tuple[Way, ...] = ("eager", "graph")
    yield from (("forward", way, row["mode"], row[way]) for way in ways if way in row)


def processors(traces: Traces) -> Iterator[Judged]:
    """17 models on a processor of two cores, by its own suite: five of the agreement benchmark, and twelve others."""
    card = card_of(load_file(PROCESSOR / "device.toml"))
    assert card is not None
    for line in (PROCESSOR / "truth.jsonl").read_text().splitlines():
        row = json.loads(line)
        source = AGREEMENT if row["model"] in {model for model, _, _ in ON_CPU} else OTHER_MODELS
        more = {"source": source, "mode": "inference", "model": row["model"]}
        yield from judged(traces.step(row), [card], "forward", "eager", row["seconds"], **more)
    for row in json.loads((RESULTS / "agreement-cpu.json").read_text())["rows"]:
        more = {"source": QUIET, "mode": "inference", "model": row["model"], "seen": True}  # the same steps again
        case = row | {"mode": "inference"}
        yield from judged(traces.step(case), [card], "forward", "eager", row["rooflens"], **more)


def decoders(traces: Traces) -> Iterator[Judged]:
    """Language models of transformers in bf16: prefill, steps of decoding and whole answers, eager and from graphs.

    Rows with fp8 or int8 weights are left out: their products run in kernels that no suite has. So are steps with a
    cache that grows: they were timed with one that did not lie dense, and again in truth.jsonl.
    """
    for name, file in (("h100-sxm", "decoders-h100.ndjson"), ("h200", "decoders-h200.ndjson")):
        cards = (*on_sheets(rl.device(name)), calibrated(name))
        for line in (RESULTS / file).read_text().splitlines():
            row = json.loads(line)
            growing = row["mode"] == "decode" and row.get("kv_cache") != "static"
            other = row["mode"] not in ("prefill", "decode", "generate") or "weights" in row
            if not row.get("seconds") or growing or other:
                continue
            way = way_of(row)
            captured = way == "graph" and row["mode"] != "generate"  # whole answers capture steps, and no prefill
            records = traces.step({**row, "dtype": "bf16"}, captured=captured)
            source = "H100, language models" if name == "h100-sxm" else "H200, decoders"
            more = {"source": source, "mode": row["mode"], "seen": row["mode"] == "decode" and name == "h100-sxm"}
            yield from judged(records, cards, None, way, row["seconds"], model=row["model"], **more)
