"""Steps that others have timed: which rows are taken, and as which case and seconds. Nothing is estimated here."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from benchmarks.prediction import public_sets
from benchmarks.prediction.public_operations import MEASURED
from benchmarks.prediction.traces import Traces

pytestmark = pytest.mark.skipif(not MEASURED.exists(), reason="measurements of others are not part of the repository")


class Asked(Traces):
    """Traces that only remember what was asked for."""

    def step(self, case: Any, *, captured: bool = False) -> Any:
        return case


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Rows of a set: the case, the card and the seconds."""

    def judged(case: Any, cards: Any, phase: Any, way: str, seconds: float, **more: Any) -> Iterator[Any]:
        yield {**case, "card": cards[0].device.name, "way": way, "seconds": seconds, **more}

    monkeypatch.setattr(public_sets, "judged", judged)
    monkeypatch.setattr(public_sets, "own_size", lambda *_: True)  # it imports timm
    monkeypatch.setattr(public_sets, "replace", lambda row, **changes: {**row, **changes})
    return lambda name: list(getattr(public_sets, name)(Asked(tmp_path)))


def test_a_microbatch_of_llm_foundry_is_what_a_card_trains(taken: Any) -> None:
    rows = taken("_foundry")
    assert len(rows) == 31
    assert {row["seq_len"] for row in rows} == {512, 2048, 8192}
    (row,) = (r for r in rows if (r["model"], r["seq_len"], r["card"]) == ("mpt-1b", 8192, "h100-sxm5-80gb"))
    assert row["batch"] == 3, "its microbatch, of 96 sequences on 8 cards in 4 turns"
    assert row["seconds"] == pytest.approx(3 * 8192 / 29158, rel=0.01)  # tokens over tokens per second and card
    types = {(r["card"], r["dtype"]) for r in rows}
    mixed = {("a100-sxm4-80gb", "amp-bf16"), ("h100-sxm5-80gb", "amp-bf16")}
    assert types == {("a100-sxm4-40gb", "bf16"), *mixed}, "PURE has parameters in bf16, DEFAULT in fp32"


def test_tensorrt_tells_first_tokens_and_whole_answers(taken: Any) -> None:
    rows = taken("_tensorrt")
    prefills = [row for row in rows if row["mode"] == "prefill"]
    assert sorted(row["seconds"] for row in prefills) == [0.012, 0.016, 0.129, 0.133]
    (answer,) = (row for row in rows if row.get("batch") == 512)
    assert (answer["prompt_len"], answer["output_len"], answer["way"]) == (128, 128, "graph")
    assert answer["seconds"] == pytest.approx(512 * 128 / 6374)
    assert len(rows) - len(prefills) == 5


def test_timm_trains_and_runs_on_processors(taken: Any) -> None:
    rows = taken("_training")
    levit = [row for row in rows if row["model"] == "timm:levit_256"]
    assert [(row["channels_last"], row["batch"]) for row in levit] == [(False, 512), (True, 512)]
    assert levit[0]["seconds"] == pytest.approx(0.205, abs=0.001)
    processors = taken("_processors")
    assert {row["level"] for row in processors} == {"another processor's constants"}
    assert {row["card"] for row in processors} == {"core-i9-10940x", "core-i7-12700h"}
