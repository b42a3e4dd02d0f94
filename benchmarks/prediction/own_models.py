"""Whole models: times that were taken for this project, beside their predictions."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks.prediction.tables import Judged

import rooflens as rl
from rooflens.predict import Card, Conduct, Way, card_of, expected_seconds, generation, predicted
from rooflens.predict.bands import band
from rooflens.predict.fitting import TimedCall, fitted, priced
from rooflens.predict.suite import suite
from rooflens.records import Device, Phase, Work
from rooflens.results import RecordSet
from rooflens.roofline import bound

TIMING = Path(__file__).resolve().parents[3] / "shared" / "data" / "own" / "timing.json"
SEEN = frozenset({"resnet18", "vgg16", "mobilenet_v3_large"})
"""Models whose rows or kernels were looked at when constants were chosen: no proof."""
DECODERS = Path(__file__).parents[1] / "results" / "decoders-h100.ndjson"
H100 = Path(__file__).parents[1] / "results" / "prediction-h100"
SIZES = {"inception_v3": 299, "efficientnet_b7": 600}


def traced(
    folder: Path, model: str, dtype: str, mode: str, batch: int, channels_last: bool, optimizer: str = "none"
) -> RecordSet:
    """The estimate of a step, from a folder where it is kept once it has been made."""
    name = f"{model}-{dtype}-{mode}-{batch}-{'last' if channels_last else 'first'}"
    path = folder / f"{name}{'' if optimizer == 'none' else f'-{optimizer}'}.jsonl"
    if not path.exists():
        options: dict[str, Any] = {"optimizer": optimizer} if mode == "train" else {}
        if model in SIZES:
            options["img_size"] = SIZES[model]
        rl.estimate(model, batch=batch, dtype=dtype, mode=mode, channels_last=channels_last, **options).save(path)
    records = rl.read(path)
    assert isinstance(records, RecordSet)
    return records


def on_sheets(device: Device) -> tuple[Card, Card]:
    """A device by its data sheet: of a known generation, and of an unknown one."""
    known, unknown = card_of(device), card_of(device, generation("general"))
    assert known is not None
    assert unknown is not None
    return known, unknown


@cache
def timed_suite() -> tuple[TimedCall, ...]:
    """The calls of the suite, as an H100 ran them."""
    calls, times = suite(), []
    for line in (H100 / "suite.jsonl").read_text().splitlines():
        row = json.loads(line)
        item = calls[row["number"]]
        assert (item.effect, item.call.name) == (row["effect"], row["name"])
        times.append(TimedCall(item, row["seconds"]))
    return tuple(times)


@cache
def calibrated() -> Card:
    """The H100 whose suite was timed, with the constants that it tells; those of the host are the general ones."""
    device = rl.device("h100-sxm")
    card = card_of(replace(device, constants=fitted(timed_suite(), device)))
    assert card is not None
    return card


def operations_of_the_suite() -> Iterator[Judged]:
    """The suite's own calls: what constants were read off, so that they tell the spread and no proof."""
    for card in (*on_sheets(rl.device("h100-sxm")), calibrated()):
        for item, seconds in timed_suite():
            call = priced(item)
            expected = expected_seconds(call, card)
            down, up = band({call.family: expected}, "pieces", card.level)
            yield Judged(
                source="suite",
                key=f"{item.effect} {item.call.name} {item.call.outputs[0].shape} {item.tf32}",
                device=card.device.name,
                level=card.level,
                family=call.family,
                regime=item.effect,
                measured=seconds,
                predicted=expected,
                bound=bound(Work(flops=call.flops, bytes={"dram": call.nbytes}), card.device).seconds,
                low=expected * down,
                high=expected * up,
                seen=True,
            )


def judged(
    records: RecordSet, cards: Sequence[Card], phase: Phase | None, way: Way, seconds: float, **more: Any
) -> Iterator[Judged]:
    """A measured time beside its prediction on each card."""
    conduct: Conduct = records.conduct(way)
    for card in cards:
        total = records.under(card.device, phase, way)
        found = predicted(total.records, card, conduct, phase)
        assert found is not None
        assert total.seconds is not None
        yield Judged(
            device=card.device.name,
            level=card.level,
            regime=found.regime,
            measured=seconds,
            predicted=found.seconds,
            low=found.low,
            high=found.high,
            bound=total.seconds,
            **more,
        )


def image_models(folder: Path) -> Iterator[Judged]:
    """Torchvision models on an H200: forward passes, and training steps without an optimizer."""
    cards = on_sheets(rl.device("h200"))
    for row in json.loads(TIMING.read_text())["rows"]:
        model, dtype, batch = row["model"], row["dtype"], row["batch"]
        training = row["mode"] == "train"
        records = traced(folder, model, dtype, "train" if training else "inference", batch, dtype == "bf16")
        phases: dict[Phase, float] = {"forward": row["forward_s" if training else "median_s"]}
        if training:
            phases["backward"] = row["backward_s"]
        for phase, seconds in phases.items():
            family = f"training, {phase}" if training else "inference"
            key = f"{model} {dtype} {batch} {family}"
            more = {"family": family, "seen": model in SEEN}
            yield from judged(records, cards, phase, "eager", seconds, source="own H200", key=key, **more)


def models_with_graphs(folder: Path) -> Iterator[Judged]:
    """Torchvision models on the H100 whose suite was timed: eager, from graphs, and replayed call by call."""
    cards = (*on_sheets(rl.device("h100-sxm")), calibrated())
    for line in (H100 / "truth.jsonl").read_text().splitlines():
        row = json.loads(line)
        model, dtype, batch = row["model"], row["dtype"], row["batch"]
        records = traced(folder, model, dtype, "inference", batch, row["channels_last"])
        more: dict[str, Any] = {"source": "own H100", "family": "inference", "key": f"{model} {dtype} {batch}"}
        ways: tuple[Way, ...] = ("eager", "graph")
        for way in ways:
            yield from judged(records, cards, "forward", way, row[way], **more)
        low, high = band({}, "graph", "replayed")
        least, seconds = records.under(cards[0].device, "forward").seconds, row["replayed"]
        assert least is not None
        yield Judged(
            device=cards[0].device.name,
            level="replayed",
            regime="graph",
            measured=row["graph"],
            predicted=seconds,
            low=seconds * low,
            high=seconds * high,
            bound=least,
            **more,
        )


def decoders(folder: Path) -> Iterator[Judged]:
    """Language models of transformers on an H100, in bf16: prefill, and decoding steps eager and from graphs."""
    cards = on_sheets(rl.device("h100-sxm"))
    for line in DECODERS.read_text().splitlines():
        row = json.loads(line)
        if not row.get("seconds") or row["mode"] not in ("prefill", "decode"):
            continue
        options = {name: row[name] for name in ("kv_cache", "kv_cache_len") if row.get(name)}
        name = "-".join(
            str(part) for part in (row["model"].replace(":", "_"), *(row[k] for k in ("mode", "seq_len", "batch")))
        )
        path = folder / f"{name}-{options.get('kv_cache', 'dynamic')}.jsonl"
        if not path.exists():
            sizes = {key: row[key] for key in ("batch", "mode", "seq_len")}
            rl.estimate(row["model"], dtype="bf16", **sizes, **options).save(path)
        records = rl.read(path)
        assert isinstance(records, RecordSet)
        way: Way = "graph" if row.get("cuda_graph") else "eager"
        what = {"source": "own decoders", "family": row["mode"], "key": name, "seen": row["mode"] == "decode"}
        yield from judged(records, cards, None, way, row["seconds"], **what)


def training_steps(folder: Path) -> Iterator[Judged]:
    """Training steps on the same H100, each phase by itself."""
    cards = (*on_sheets(rl.device("h100-sxm")), calibrated())
    for line in (H100 / "training.jsonl").read_text().splitlines():
        row = json.loads(line)
        records = traced(folder, row["model"], row["dtype"], "train", row["batch"], False, "sgd")
        phases: tuple[Phase, ...] = ("forward", "backward", "optimizer")
        for phase in phases:
            more = {
                "source": "own H100",
                "family": f"training, {phase}",
                "key": f"{row['model']} {row['dtype']} {phase}",
            }
            yield from judged(records, cards, phase, "eager", row[phase], **more)
