"""Pictures of a step that grows: its trail over the roofline, and what its bound and its memory are spent on."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace
from pathlib import Path

import pytest
from tests.figure_samples import device, operation, records

import rooflens as rl
from rooflens.records import Case, Memory, Record, Traffic
from rooflens.records.device import Fact
from rooflens.report.charts import Bars, svg
from rooflens.report.figures.case_pieces import PieceKind
from rooflens.report.figures.page_layout import arrange
from rooflens.results import RecordSet

TOY = replace(device(), facts={"memory": Fact(value=80e9)})
"""1 TB/s, 100 TFLOP/s of products, 80 GB."""


def step(batch: int, tokens: int, mode: str = "decode") -> Case:
    return Case(model="net", device="toy-100", batch=batch, mode=mode, options=(("seq_len", tokens),))


def decoding(case: Case) -> list[Record]:
    """Weights of 1 GB, a cache of 1 MB per sequence and token, an arithmetic of 0.1 ms per sequence."""
    tokens = dict(case.options)["seq_len"]
    assert case.batch is not None
    assert isinstance(tokens, int)
    cache = 1e6 * case.batch * tokens
    product = operation(case, "fc", "matmul", matmul=1e10 * case.batch, dram=1e9)
    attention = operation(case, "attn", "attention", matmul=1e6, dram=cache)
    return [
        replace(product, traffic=Traffic(weights=1e9, inputs=0.0, outputs=0.0)),
        replace(attention, traffic=Traffic(weights=0.0, inputs=cache, outputs=0.0)),
        operation(case, "norm", "normalization", vector=1e3, dram=1e6),
        Record(
            case=case,
            source="estimate",
            scope="model",
            memory=Memory(peak=int(1e9 + cache), parameters=10**9, kv_cache=int(cache)),
        ),
    ]


def grown(*cases: Case) -> RecordSet:
    return records([record for case in cases for record in decoding(case)], [TOY])


def trails(rs: RecordSet, by: PieceKind = "model") -> list[tuple[str, list[float]]]:
    """What grows, and the intensities along each trail."""
    figure = rl.roofline(rs, by=by)
    return [(trail.number, [x for x, _ in trail.points]) for trail in figure.trails]


def test_a_trail_follows_the_length_of_each_batch() -> None:
    cases = [step(batch, tokens) for tokens in (1000, 100) for batch in (1, 8)]
    # Batch 1 with 100 tokens: 10 GFLOP and a little over 1 GB + 0.1 GB + 1 MB; the smallest length comes first.
    flops = {batch: 1e10 * batch + 1e6 + 1e3 for batch in (1, 8)}
    found = trails(grown(*cases))
    assert [name for name, _ in found] == ["seq_len", "seq_len"]
    for batch, (_, points) in zip((1, 8), found, strict=True):
        assert points == pytest.approx([flops[batch] / (1e9 + 1e6 * batch * n + 1e6) for n in (100, 1000)])


def test_a_trail_follows_the_batch_where_nothing_else_grows() -> None:
    ((name, points),) = trails(grown(*(step(batch, 100) for batch in (8, 1, 64))))
    assert name == "batch"
    assert points == sorted(points)
    assert len(points) == 3


@pytest.mark.parametrize(
    "cases",
    [
        [step(1, 100)],
        [step(1, 100), step(1, 100, mode="prefill")],
        [step(1, 100), step(8, 1000)],
    ],
    ids=["one case", "two modes", "both numbers differ"],
)
def test_no_trail_joins_steps_that_differ_in_more(cases: list[Case]) -> None:
    assert trails(grown(*cases)) == []


def test_a_trail_is_named_by_what_colours_do_not_tell_and_its_marks_by_what_grows() -> None:
    cases = [
        step(batch, tokens, mode) for batch in (1, 8) for tokens in (100, 1000, 10) for mode in ("decode", "prefill")
    ]
    figure = rl.roofline(grown(*cases), by="model")  # colours tell the batch
    assert {(trail.name, trail.steps) for trail in figure.trails} == {
        (mode, ("10 tokens", "100 tokens", "1000 tokens")) for mode in ("decode", "prefill")
    }
    page = arrange(figure)
    texts = [text.rows[0].text for text in page.within]
    assert texts.count("decode") == texts.count("prefill") == 1
    assert texts.count("10 tokens") == 4  # an end of each trail


def test_of_several_models_sizes_tell_the_batch_and_names_the_model() -> None:
    models = [replace(step(batch, 100), model=model) for batch in (1, 8) for model in ("small", "large")]
    figure = rl.roofline(grown(*models), by="model")
    assert {(trail.number, trail.name) for trail in figure.trails} == {("batch", "small"), ("batch", "large")}
    texts = [text.rows[0].text for text in arrange(figure).within]
    assert not [text for text in texts if text.startswith("batch")]


def test_devices_alone_name_no_trail() -> None:
    other = replace(TOY, name="toy-200", title="Toy 200")
    cases = [replace(step(batch, 100), device=name) for batch in (1, 8) for name in ("toy-100", "toy-200")]
    rs = records([record for case in cases for record in decoding(case)], [TOY, other])
    assert {(trail.name, trail.steps) for trail in rl.roofline(rs, by="model").trails} == {("", ("batch 1", "batch 8"))}


def test_parts_of_a_step_have_no_trail() -> None:
    assert trails(grown(step(1, 100), step(1, 1000)), by="module") == []


@pytest.mark.parametrize("suffix", ["svg", "html"])
def test_a_legend_explains_the_trail(tmp_path: Path, suffix: str) -> None:
    figure = rl.roofline(grown(step(1, 100), step(1, 1000)), by="model")
    assert "the same step as its length grows" in figure.save(tmp_path / f"a.{suffix}").read_text()


def spent(chart: Bars) -> dict[str, dict[str, float]]:
    return {bar.label: {part.group: part.value for part in bar.parts} for bar in chart.bars}


def test_what_does_not_fit_is_crossed_out(tmp_path: Path) -> None:
    # 1 GB of weights and 128 GB of cache on a card of 80 GB; batch 1 needs 3 GB.
    figure = rl.roofline(grown(step(1, 2000), step(64, 2000)))
    assert [mark.batch for mark in figure.marks if mark.too_large] == [64]
    (row,) = (row for row, _ in arrange(figure).legend if row.kind == "misfit")
    assert row.text.text == "does not fit, see note"
    assert '"symbol":"x-thin"' in figure.save(tmp_path / "a.html").read_text()
    assert not any(row.kind == "misfit" for row, _ in arrange(rl.roofline(grown(step(1, 100), step(2, 100)))).legend)


def test_the_legend_of_a_narrow_page_has_entries_beside_each_other() -> None:
    figure = rl.roofline(grown(step(1, 2000), step(64, 2000)))
    page = arrange(figure, width=241.0)  # 85 mm
    boxes = [box for _, box in page.legend]
    assert all(0 <= box.left and box.right <= page.width for box in boxes)
    assert not any(one.meets(other) for one, other in itertools.combinations(boxes, 2))
    assert len({box.top for box in boxes}) < len(boxes) == len(arrange(figure).legend)
    headings = [box.left for row, box in page.legend if row.kind == "heading"]
    assert headings == [min(box.left for box in boxes)] * len(headings)


def test_time_by_cause() -> None:
    picture = rl.chart("time-by-cause", grown(step(1, 1000), step(64, 1000)))
    assert isinstance(picture.chart, Bars)
    # Batch 1: 1 GB of weights take 1 ms, longer than the 0.1 ms of its arithmetic; the cache of 1 GB 1 ms.
    # Batch 64: the arithmetic takes 6.4 ms, longer than reading the weights; the cache of 64 GB 64 ms.
    assert spent(picture.chart) == {
        "batch 1": pytest.approx({"weights": 1e-3, "cache": 1e-3, "norms": 1e-6}),
        "batch 64": pytest.approx({"products": 6.4e-3, "cache": 64e-3, "norms": 1e-6}),
    }


def test_attention_of_a_prompt_reads_no_cache() -> None:
    picture = rl.chart("time-by-cause", grown(step(1, 1000, mode="prefill")))
    assert isinstance(picture.chart, Bars)
    assert spent(picture.chart) == {"net": pytest.approx({"weights": 1e-3, "activations": 1e-3, "norms": 1e-6})}


def test_memory_by_cause_and_the_limit_of_the_device() -> None:
    picture = rl.chart("memory-by-cause", grown(step(1, 1000), step(64, 2000)))
    chart = picture.chart
    assert isinstance(chart, Bars)
    assert list(spent(chart).values()) == [
        {"parameters": 1e9, "kv cache": 1e9},
        {"parameters": 1e9, "kv cache": 128e9},
    ]
    assert [(limit.label, limit.value) for limit in chart.limits] == [("Toy 100", 80e9)]
    # The axis holds the longest bar as well as the limit.
    assert chart.scale.high == 129e9
    assert 'class="limit"' in svg.draw(chart)
    assert [name for _, name in svg.legend(chart)] == ["parameters", "kv cache", "Toy 100 80.00 GB"]
    assert picture.drawn("svg").count(b"Toy 100") >= 1


def test_a_capacity_far_beyond_the_bars_is_told_in_words() -> None:
    # The longest bar is 2 GB: a line at 80 GB would leave it a fortieth of the page.
    chart = rl.chart("memory-by-cause", grown(step(1, 100), step(1, 1000))).chart
    assert isinstance(chart, Bars)
    assert (chart.limits, chart.scale.high) == ((), 2e9)
    assert chart.notes == ("net", "far beyond every bar: Toy 100 80.00 GB")


def test_bars_keep_the_order_of_a_sweep_and_rank_different_models() -> None:
    rising = rl.chart("time-by-cause", grown(step(1, 100), step(8, 100), step(1, 1000))).chart
    assert isinstance(rising, Bars)
    assert [bar.label for bar in rising.bars] == ["batch 1 seq_len=100", "batch 8 seq_len=100", "batch 1 seq_len=1000"]
    small, large = step(1, 100), replace(step(1, 10_000), model="large")
    ranked = rl.chart("time-by-cause", grown(small, large)).chart
    assert isinstance(ranked, Bars)
    assert [bar.label.split()[0] for bar in ranked.bars] == ["large", "net"]


def test_the_ticks_of_a_chart_have_room_in_the_letters_of_a_phone() -> None:
    chart = rl.chart("roofline", grown(step(1, 100), step(8, 1000))).chart
    drawn = svg.draw(chart)
    ends = re.findall(r'<text x="([\d.]+)" y="[\d.]+" text-anchor="end">([^<]*FLOP/s)</text>', drawn)
    assert len(ends) > 2
    assert all(float(x) >= 8.0 * len(text) for x, text in ends)
