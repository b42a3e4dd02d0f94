"""The parts of a call's wall time."""

from __future__ import annotations

import time

from rooflens.stopwatch import START, Stopwatch, process_began


def test_each_part_ends_where_the_next_begins_and_they_add_up() -> None:
    watch = Stopwatch(since=10.0)
    for part, at in (("worker", 11.0), ("build", 13.5), ("sampling", 14.0), ("build", 16.0), ("end", 16.25)):
        watch.enter(part, at)
    # start 10 to 11, worker to 13.5, build to 14 and from 16 to 16.25, sampling to 16; the end still runs.
    assert watch.seconds == {START: 1.0, "worker": 2.5, "build": 0.75, "sampling": 2.0}
    assert sum(watch.seconds.values()) == 16.25 - 10.0


def test_what_another_process_tells_late_takes_no_time_twice() -> None:
    watch = Stopwatch(since=10.0)
    watch.enter("estimate", 12.0)
    watch.enter("imports", 11.0)  # began while something else was waited for
    watch.enter("end", 12.5)
    assert watch.seconds == {START: 2.0, "estimate": 0.0, "imports": 0.5}


def test_this_process_began_before_now() -> None:
    began = process_began()
    assert began is None or 0 < time.monotonic() - began
