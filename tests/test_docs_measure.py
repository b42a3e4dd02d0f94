"""The tables of the page of evidence are those of the results."""

from __future__ import annotations

from benchmarks import measure_tables


def test_the_tables_are_fresh() -> None:
    page = measure_tables.PAGE.read_text()
    assert {f"<!-- measured: {name} -->" for name in measure_tables.BLOCKS} <= set(page.splitlines())
    assert measure_tables.refreshed(page) == page, "run benchmarks/measure_tables.py"


def test_the_timers_agree_where_the_device_is_the_limit() -> None:
    for name in ("h200", "cpu"):
        rows = measure_tables._load(f"agreement-{name}.json")["rows"]
        limited = [row["ratio"] for row in rows if row["device_limited"]]
        assert len(limited) >= (10 if name == "h200" else 5)
        assert all(0.98 < ratio < 1.02 for ratio in limited), name
