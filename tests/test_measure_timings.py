"""The parts of the wall time that `measure --timings` prints."""

from __future__ import annotations

from rooflens.cli.measure import _timings


def test_the_parts_add_up_to_the_program_without_its_end() -> None:
    # Python took 0.5 s; of the call's 6 s, 5.5 are told, so 0.5 went to what it imports; 0.25 s to the tables.
    around = {"start": 0.5, "call": 6.0, "print": 0.25}
    within = {"start": 0.125, "imports": 3.0, "build": 0.5, "sampling": 2.0}
    assert _timings(around, within).splitlines() == [
        "start           1.00 s",
        "imports         3.00 s",
        "build           0.50 s",
        "sampling        2.00 s",
        "print           0.25 s",
        "in all          6.75 s",
    ]
