"""Whole models: times that were taken for this project, beside their predictions."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.prediction.tables import Judged

import rooflens as rl
from rooflens.predict import Way, card_of, generation, predicted
from rooflens.records import Device, Phase
from rooflens.results import RecordSet

TIMING = Path("/work/shared/data/own/timing.json")
SEEN = frozenset({"resnet18", "vgg16", "mobilenet_v3_large"})
"""Models whose rows or kernels were looked at when constants were chosen: no proof."""
SIZES = {"inception_v3": 299, "efficientnet_b7": 600}


def traced(folder: Path, model: str, dtype: str, mode: str, batch: int, channels_last: bool) -> RecordSet:
    """The estimate of a step, from a folder where it is kept once it has been made."""
    path = folder / f"{model}-{dtype}-{mode}-{batch}-{'last' if channels_last else 'first'}.jsonl"
    if not path.exists():
        options: dict[str, Any] = {"optimizer": "none"} if mode == "train" else {}
        if model in SIZES:
            options["img_size"] = SIZES[model]
        rl.estimate(model, batch=batch, dtype=dtype, mode=mode, channels_last=channels_last, **options).save(path)
    records = rl.read(path)
    assert isinstance(records, RecordSet)
    return records


def judged(
    source: str,
    records: RecordSet,
    device: Device,
    phase: Phase | None,
    way: Way,
    seconds: float,
    key: str,
    **more: Any,
) -> Iterator[Judged]:
    """A measured time beside its prediction at both levels."""
    total = records.under(device, phase, way)
    for card in (card_of(device), card_of(device, generation("general"))):
        assert card is not None
        found = predicted(total.records, card, records.conduct(way), phase)
        assert found is not None
        assert total.seconds is not None
        yield Judged(
            source=source,
            key=key,
            device=device.name,
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
    device = rl.device("h200")
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
            yield from judged("own H200", records, device, phase, "eager", seconds, key, **more)
