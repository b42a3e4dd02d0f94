"""Times of optimizers that were measured on GPUs are above their floors, and docs/evidence.md says by how much."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import rooflens as rl

ROOT = Path(__file__).parents[1]
RESULTS = [json.loads(path.read_text()) for path in sorted((ROOT / "benchmarks" / "results").glob("optimizers-*.json"))]
ROWS = [(data["card"], row) for data in RESULTS for row in data["rows"]]
NUMBERS = {"sgd": 5, "adam": 7, "adamw": 7}
"""Read and written for each parameter: SGD reads parameter, gradient and momentum and writes the first and the last."""


def times(rows: list[dict[str, Any]], over: str) -> str:
    ratios = [row["measured"] / row[over] for row in rows]
    return f"{min(ratios):.1f} to {max(ratios):.1f}"


@pytest.mark.parametrize("card", sorted({card for card, _ in ROWS}))
def test_a_floor_is_what_is_read_and_written_once(card: str) -> None:
    (rate,) = {ceiling.rate for ceiling in rl.device(card).ceilings if ceiling.resource == "dram"}
    for its, row in ROWS:
        if its == card:
            nbytes = row["parameters"] * NUMBERS[row["optimizer"]] * (2 if row["dtype"] == "bf16" else 4)
            assert row["floor"] == pytest.approx(nbytes / rate, rel=1e-3)


def test_no_measured_time_is_below_its_floor() -> None:
    assert len(ROWS) == 36
    assert all(row["floor"] <= row["as_written"] for _, row in ROWS)
    assert all(row["measured"] > row["floor"] for _, row in ROWS)
    assert all(row["measured"] > row["as_written"] for _, row in ROWS)


def test_the_page_has_these_times() -> None:
    page = (ROOT / "docs" / "evidence.md").read_text()
    for data in RESULTS:
        rows = [row for row in data["rows"] if row["dtype"] == "fp32"]
        fused, foreach = ([row for row in rows if row["fused"] is form] for form in (True, False))
        models = ", ".join(dict.fromkeys(row["model"] for row in rows))
        cells = (data["card"], models, times(fused, "floor"), times(foreach, "as_written"), times(foreach, "floor"))
        assert f"| {' | '.join(cells)} |" in page
    assert f"up to {max(row['measured'] / row['floor'] for _, row in ROWS):.0f} times the floor" in page
