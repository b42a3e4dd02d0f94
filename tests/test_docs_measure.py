"""The tables of the pages on measuring, calibrating and profiling are those of the results."""

from __future__ import annotations

import pytest
from benchmarks import measure_tables


@pytest.mark.parametrize("name", measure_tables.PAGES)
def test_the_tables_are_fresh(name: str) -> None:
    page = (measure_tables.ROOT / "docs" / name).read_text()
    assert "<!-- measured: " in page
    assert measure_tables.refreshed(page) == page, "run benchmarks/measure_tables.py"


def test_the_timers_agree_where_the_device_is_the_limit() -> None:
    for name in ("h200", "cpu"):
        rows = measure_tables._load(f"agreement-{name}.json")["rows"]
        limited = [row["ratio"] for row in rows if row["device_limited"]]
        assert len(limited) >= (10 if name == "h200" else 5)
        assert all(0.98 < ratio < 1.02 for ratio in limited), name
