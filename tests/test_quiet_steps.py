"""Which steps tell a time: those around which the host was quiet, or all where the host does not matter."""

from __future__ import annotations

from typing import Any

import pytest
from benchmarks.prediction.quiet_steps import rows


def case(mode: str, *steps: tuple[float, float, float]) -> dict[str, Any]:
    """A case with the seconds of its steps, and those of a small module and of its gradients around each."""
    phases = ("forward", "backward") if mode == "train" else ("forward",)
    taken = [
        {"times": dict.fromkeys(phases, seconds / len(phases)), "before": (module, 1.0), "after": (module, gradients)}
        for seconds, module, gradients in steps
    ]
    return {"model": "one", "mode": mode, "launching": False, "steps": taken}


def test_steps_count_where_both_probes_are_near_the_fastest_tenth() -> None:
    """Of ten probes of 1 s and ten of 1.4 s the fastest tenth is 1 s, so 1.1 s is quiet and 1.4 s is not."""
    quiet, busy = [(10.0, 1.0, 1.0), (11.0, 1.1, 1.0), (12.0, 1.0, 1.0), (10.0, 1.0, 1.0)], [(14.0, 1.4, 1.0)] * 5
    (row,) = rows([case("inference", *quiet, *busy)])
    (launched,) = rows([case("inference", *quiet, *busy) | {"launching": True}])
    assert launched == row | {"launching": True}, "the host's own time is no time of a step"
    assert row == {
        "model": "one",
        "mode": "inference",
        "eager": 10.5,
        "spread": pytest.approx(2 / 10.5, rel=1e-4),
        "layer": 1.0,
        "gradients": 1.0,
        "quiet": 4,
    }


def test_backward_has_a_thread_that_has_to_be_quiet_too() -> None:
    slow = [(10.0 + number, 1.0, 2.0) for number in range(6)]
    (row,) = rows([case("train", (8.0, 1.0, 1.0), (8.0, 1.0, 1.0), (8.0, 1.0, 1.0), *slow)])
    assert (row["eager"], row["forward_s"], row["backward_s"], row["quiet"]) == (8.0, 4.0, 4.0, 3)
    (row,) = rows([case("inference", (8.0, 1.0, 1.0), (9.0, 1.0, 1.0), (8.0, 1.0, 1.0), *slow)])
    assert row["quiet"] == 9, "in inference nothing runs on that thread"


def test_steps_that_agree_need_no_quiet_host_and_two_quiet_ones_tell_nothing() -> None:
    quiet, busy = (10.0, 1.0, 1.0), (10.2, 1.5, 1.0)
    (row,) = rows([case("inference", quiet, quiet, *[busy] * 6)])
    assert row["quiet"] == 8, "the device is the longer queue"
    assert not list(rows([case("inference", quiet, quiet, *[(14.0, 1.5, 1.0)] * 6)]))
