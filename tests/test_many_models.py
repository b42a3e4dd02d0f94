"""Rooflines of one, of twenty and of a hundred models: what colours, sizes and lines tell."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from tests.figure_samples import chain, device, measured, records

import rooflens as rl
from rooflens.records import Case
from rooflens.report.case_names import differing, name_of, shared
from rooflens.report.figures.drawn_marks import drawn_marks
from rooflens.report.figures.labels import TextLine, footnotes, legend
from rooflens.report.figures.page_layout import arrange
from rooflens.report.figures.palette import OTHER, group_colours
from rooflens.report.figures.point_names import PointName, merged, trail_names
from rooflens.report.figures.saving import Figure
from rooflens.report.model_families import family_of


def roofline(models: Sequence[str], batches: Sequence[int]) -> Figure:
    items = []
    for n, model in enumerate(models):
        for batch in batches:
            case = Case(model=model, device="toy-100", batch=batch, mode="inference")
            items += chain(case, 1, scale=batch * 2.0**-n, traffic=batch * 2.0**-n + 0.1 * n)
            items.append(measured(case, batch * 2.0**-n * 1e-3))
    return rl.roofline(records(items, [device()]), by="model")


@pytest.mark.parametrize(
    ("model", "family"),
    [
        ("resnet50", "resnet"),
        ("timm:vit_base_patch16_224", "vit"),
        ("wide_resnet101_2", "wide resnet"),
        ("efficientnet_v2_s", "efficientnet"),
        ("Qwen/Qwen2.5-7B-Instruct", "qwen"),
        ("hf:models/bert/config.json", "bert"),
        ("regnet_y_1_6gf", "regnet"),
        ("net.py:build", "build"),
        ("7b", "7b"),
    ],
)
def test_the_family_of_a_model(model: str, family: str) -> None:
    assert family_of(model) == family


def test_a_dozen_models_have_colours_of_their_own_and_batches_have_sizes() -> None:
    figure = roofline([f"net{'abcdefghijkl'[n]}" for n in range(12)], [1, 8, 64])
    assert (figure.group_title, len(figure.groups), figure.rest) == ("model", 12, ())
    assert figure.sizes == "batch"
    # 1, 8 and 64 are equal steps apart, so the diameter of 8 is in the middle.
    found = {drawn.mark.batch: drawn.diameter for drawn in drawn_marks(figure, group_colours([*figure.groups, OTHER]))}
    assert found[1] < found[8] < found[64]
    assert found[8] == pytest.approx((found[1] + found[64]) / 2)
    rows = [row.text.text for row in legend(figure, group_colours(figure.groups))]
    assert (
        rows[-5:-1] == ["measured", "batch 1", "batch 64", "from the bound to the time it took"][-4:]
        or "batch 64" in rows
    )
    assert "size: batch" in rows


def test_many_models_are_coloured_by_family_and_the_grey_ones_are_named() -> None:
    # 4 families of two models, 12 of one: 16 families, of which the first 11 by their marks have a colour.
    letters = "abcdefghijklmnop"
    models = [f"net{letter}{size}" for letter in letters for size in ((1, 2) if letter in "mnop" else (1,))]
    figure = roofline(models, [1, 8])
    assert figure.group_title == "model family"
    assert figure.groups[:1] != (OTHER,)
    assert set(figure.groups) == {*(f"net{letter}" for letter in "mnopabcdefg"), OTHER}
    assert figure.rest == tuple(f"net{letter}" for letter in "hijkl")
    assert "Grey, 5 more: neth, neti, netj, netk, netl." in footnotes(figure, 3)
    assert "5 more, see note" in [row.text.text for row in legend(figure, group_colours(figure.groups))]
    assert figure.trails == ()


def test_a_model_is_named_once_without_its_batch() -> None:
    page = arrange(roofline([f"net{letter}" for letter in "abcdefg"], [1, 4, 16, 64]))
    names = [text.rows[0].text for text in page.within if text.rows[0].text.startswith("net")]
    assert len(names) >= 4
    assert sorted(names) == sorted(set(names))
    assert not any("batch" in name for name in names)


def test_batches_of_one_model_are_colours() -> None:
    figure = roofline(["net"], [1, 8, 64])
    assert (figure.group_title, figure.sizes) == ("batch size", "nothing")
    assert len(set(map(len, figure.groups))) > 0
    assert figure.groups == ("batch 1", "batch 8", "batch 64")


def test_lines_that_nobody_can_follow_are_left_out_with_a_word() -> None:
    few, many = (
        roofline(["neta", "netb"], [1, 8]),
        roofline([f"net{letter}" for letter in "abcdefghijklm"], [1, 2, 4, 8, 16]),
    )
    assert len(few.links) == 4
    assert many.links == ()
    assert any("65 lines between bounds and observed times are not drawn" in note for note in many.notes)


@pytest.mark.parametrize("models", [1, 20])
def test_a_column_of_paper_is_about_as_high_as_wide_and_names_models_in_letters_of_7_points(models: int) -> None:
    names = [f"{chr(97 + n % 13)}net{n}" for n in range(models)]
    page = arrange(roofline(names, [1, 8, 32, 128]), width=241.0)  # 85 mm
    notes = sum(note.box.height for note in page.notes)
    assert page.height - notes <= 1.2 * page.width
    texts = [row for text in (*page.within, *page.beside, *page.title, *page.notes) for row in text.rows]
    texts += [row.text for row, _ in page.legend]
    assert min(row.size for row in texts) == page.letters == 7.0
    if models > 1:
        assert sum(row.text.startswith(tuple(names)) for text in page.within for row in text.rows) >= 3


def test_marks_that_lie_on_one_another_are_named_together() -> None:
    def name(text: str, x: float) -> PointName:
        return TextLine(text), [((x, 1.0), 4.0)]

    names = [name("batch 64", 10.0), name("batch 8", 11.0), name("batch 1", 30.0), name("batch 256", 9.5)]
    both = [row.text for (row, _), _ in merged(names, lambda point: point)]
    assert both == ["batch 8, 64, 256", "batch 1"]
    alike = [name(model, 5.0) for model in ("b", "a", "c", "d", "e")]
    (((row, dots), parts),) = merged(alike, lambda point: point)
    assert (row.text, dots, parts) == ("b, a, c, 2 more", alike[0][1], alike)


def test_batches_are_listed_by_size() -> None:
    figure = roofline(["net"], [64, 8, 128, 1])
    assert figure.groups == ("batch 1", "batch 8", "batch 64", "batch 128")


def test_cases_are_named_by_the_options_in_which_they_differ() -> None:
    one = Case(model="llm", device="toy-100", batch=1, options=(("seq_len", 4096), ("weights", "fp8")))
    other = replace(one, options=(("seq_len", 8192), ("weights", "fp8")))
    bare = replace(one, options=(("weights", "fp8"),))
    assert differing([one, other, bare]) == ("seq_len",)
    assert [name_of(case, ["batch size", "seq_len"]) for case in (one, bare)] == ["batch 1 seq_len=4096", "batch 1"]
    assert name_of(bare, ["seq_len"]) == "no option seq_len"
    assert shared([one, other]) == "batch 1, fp32, inference, weights=fp8"


def test_a_step_on_few_devices_is_named_on_each() -> None:
    slow = replace(device(), name="slow", title="Slow")
    items = [
        part
        for name in ("toy-100", "slow")
        for batch in (1, 8)
        for part in chain(Case(model="net", device=name, batch=batch, mode="inference"), 1, scale=batch, traffic=1.0)
    ]
    figure = rl.roofline(records(items, [device(), slow]), by="model")
    assert sorted(trail.device or 0 for trail in figure.trails) == [0, 1]
    names = [
        row.text for kind in trail_names(figure, drawn_marks(figure, group_colours(figure.groups))) for row, _ in kind
    ]
    assert sorted(names) == ["batch 1", "batch 1", "batch 8", "batch 8"]
