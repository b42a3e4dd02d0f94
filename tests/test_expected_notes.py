"""Notes below expected times: what was never checked is told, and what was checked is what the tables have."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.ranked_steps import relu_on

import rooflens as rl
from rooflens.predict.checked import checked_cards
from rooflens.predict.constants import generation_of
from rooflens.records import Scalar
from rooflens.report.expected_notes import expected_notes

TABLES = Path(__file__).parents[1] / "docs" / "prediction-tables.md"


def notes(device: str, mode: str, **options: Scalar) -> str:
    records = relu_on(rl.device(device), mode=mode, options=tuple(sorted(options.items())))
    return "\n".join(expected_notes([records.total()]))


@pytest.mark.parametrize(
    ("device", "mode", "told"),
    [
        ("t4", "train", "expected on tesla-t4: no training step of this generation was checked"),
        ("rtx-5090", "inference", "expected on geforce-rtx-5090: no step of inference of this generation was checked"),
        ("l4", "decode", "expected on l4: no step of decode of this generation was checked"),
        ("rtx-4090", "train", "no training step of a GeForce of this generation was checked, only of l4"),
        ("rtx-4090", "inference", "expected times of GeForce cards tend to be too long"),
    ],
)
def test_a_step_of_a_generation_that_nobody_checked_is_told(device: str, mode: str, told: str) -> None:
    assert told in notes(device, mode)


@pytest.mark.parametrize(("device", "mode"), [("t4", "inference"), ("l40s", "train"), ("h100-pcie-80gb", "decode")])
def test_a_step_of_a_generation_that_was_checked_has_no_such_word(device: str, mode: str) -> None:
    assert notes(device, mode).count("\n") == 0


@pytest.mark.parametrize("options", [{"weights": "int8"}, {"kv_dtype": "fp8"}])
def test_weights_and_caches_in_codes_are_told_to_be_unchecked(options: dict[str, Scalar]) -> None:
    ((name, value),) = options.items()
    assert f"expected with {name}={value}: torch widens the codes" in notes("h100-sxm", "decode", **options)
    assert "no such step was ever checked" not in notes("h100-sxm", "decode", seq_len=64)


def test_the_cards_that_were_checked_are_those_of_the_tables() -> None:
    """Rows that others timed name mode and card; those of our own cards stand in tables of their own."""
    by_mode = checked_cards().items()
    known = {(mode, card) for mode, generations in by_mode for cards in generations.values() for card in cards}
    part = TABLES.read_text().partition("## Models that others have timed")[2].partition("\n## ")[0]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in part.splitlines() if line.startswith("| data")]
    told = {(row[3], row[2]) for row in rows}
    assert len(told) > 10
    own = {(mode, card) for mode, card in known if card in ("h100-sxm5-80gb", "h200-sxm-141gb")}
    assert told | own == known
    for generations in checked_cards().values():
        for generation, cards in generations.items():
            assert {generation_of(rl.device(card)).generation for card in cards} == {generation}
