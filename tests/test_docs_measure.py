"""Tables of measurements in pages are those of the results."""

from __future__ import annotations

from benchmarks import measure_tables


def test_the_tables_are_fresh() -> None:
    pages = [page.read_text() for page in measure_tables.PAGES]
    lines = {line for page in pages for line in page.splitlines()}
    assert {f"<!-- measured: {name} -->" for name in measure_tables.BLOCKS} <= lines
    for page in pages:
        assert measure_tables.refreshed(page) == page, "run benchmarks/measure_tables.py"


def test_the_timers_agree_where_the_device_is_the_limit() -> None:
    for name in ("h200", "cpu"):
        rows = measure_tables._load(f"agreement-{name}.json")["rows"]
        limited = [row["ratio"] for row in rows if row["device_limited"]]
        assert len(limited) >= (10 if name == "h200" else 5)
        assert all(0.98 < ratio < 1.02 for ratio in limited), name
