"""Public measurements of language models against their floors: the page shows the results, and none is faster."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from benchmarks import decoder_floors, decoders
from benchmarks.decoder_floors import MODELS, Bits, answers_per_second, at, demands, layers_of, seconds

import rooflens as rl

ROOT = Path(__file__).parents[1]
MEASURED = ROOT.parent / "shared" / "data" / "measured"
A100 = rl.device("a100-sxm4-80gb")


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> str:
    """A model of three layers whose steps are quick to trace."""
    pytest.importorskip("transformers")
    monkeypatch.setitem(MODELS, "tiny", MODELS["Llama-3.1-8B"] | {"num_hidden_layers": 3, "vocab_size": 1000})
    return "tiny"


def test_no_row_is_faster_than_its_floor_and_the_page_is_of_these_results() -> None:
    results = json.loads((ROOT / "benchmarks" / "results" / "decoders.json").read_text())
    groups = [group for table in results.values() for group in table]
    assert set(results) == set(decoders.SETS)
    assert sum(group["rows"] for group in groups) > 80_000
    assert [row for group in groups for row in group["faster"]] == []
    assert all(group["most"] <= 1 for group in groups if group["rows"])
    assert decoders.page(results) == (ROOT / "docs" / "decoder-floors.md").read_text()


def test_layers_are_alike_so_two_tell_of_all(tiny: str) -> None:
    # Weights of a layer: queries and results 4096 x 4096, keys and values 4096 x 1024, three times 4096 x 14336.
    weights = 2 * (3 * (2 * 4096 * 4096 + 2 * 4096 * 1024 + 3 * 4096 * 14336) + 4096 * 1000)
    assert layers_of(tiny) == 3
    assert demands(tiny, "decode", 128).weights == weights
    # A token keeps keys and values of 8 heads of 128 in each layer, which each further token reads.
    assert at(tiny, "decode", 1129).rest - at(tiny, "decode", 129).rest == pytest.approx(1000 * 3 * 2 * 1024 * 2)
    floor = seconds(tiny, A100, Bits(), "decode", 1, 1)
    assert weights / 2.039e12 < floor < 1.01 * weights / 2.039e12
    # Of weights in 8 bits half of the bytes move.
    assert seconds(tiny, A100, Bits(weights=8), "decode", 1, 1) == pytest.approx(floor / 2, rel=0.01)


def test_answers_take_the_longer_of_flop_and_bytes(tiny: str) -> None:
    prompt, token = at(tiny, "prefill", 100), at(tiny, "decode", 100 + 25)
    few = answers_per_second(tiny, A100, Bits(), 1, 100, 50)
    assert 1 / few == pytest.approx(50 * (token.weights + token.rest) / 2.039e12)
    many = answers_per_second(tiny, A100, Bits(), 10**6, 100, 50)
    assert 1 / many == pytest.approx((prompt.flops + 50 * token.flops) / 312e12)


def test_a_decoder_that_was_measured_is_slower_than_its_floor() -> None:
    pytest.importorskip("transformers")
    if not MEASURED.exists():
        pytest.skip("the public tables are not here")
    rows = decoders.gpt_fast(MEASURED)
    first = next(rows)
    # Llama 2 7B in bf16: 13.2 GB in 9.53 ms, so at least 0.68 of 2.039 TB/s.
    assert first.what == "Llama-2-7B bf16, 1 x A100-80GB (330 W limit)"
    assert first.share == pytest.approx(104.9 * 13.216e9 / 2.039e12, rel=0.005)
    assert decoder_floors.records.cache_info().currsize > 0


def test_the_page_on_language_models_tells_the_medians_of_its_table() -> None:
    rows = [line.split(" | ") for line in (ROOT / "docs" / "decoder-floors.md").read_text().splitlines()]
    medians = [float(row[4]) for row in rows if row[0].startswith(("| gpt-fast", "| TensorRT-LLM"))]
    page = " ".join((ROOT / "docs" / "language-models.md").read_text().split())
    assert f"in the median of each kind, {min(medians):.2f} to {max(medians):.2f} of it" in page
