"""The pages on memory and on evidence say what was measured."""

from __future__ import annotations

from benchmarks import memory_table


def test_the_tables_are_those_of_the_data() -> None:
    for path in memory_table.PAGES:
        page = path.read_text()
        assert memory_table.refreshed(page) == page, "run benchmarks/memory_table.py"


def test_a_stale_table_is_noticed() -> None:
    page = "before\n<!-- context -->\n1 GB\n<!-- end -->\nafter\n"
    fresh = memory_table.refreshed(page)
    assert fresh.startswith("before\n<!-- context -->\nOn the NVIDIA H200")
    assert fresh.endswith("\n<!-- end -->\nafter\n")


def test_the_page_names_what_the_worst_errors_are() -> None:
    page = memory_table.PAGES[1].read_text()
    assert "inference: 18 models, 37 cases, the worst -1.6 %" in page
    assert "a training step: 18 models, 37 cases, the worst +4.6 %" in page
