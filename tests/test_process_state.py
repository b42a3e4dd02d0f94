"""A measurement leaves the process, the model and its inputs as they were, whatever the model's code does to them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn

import rooflens as rl
from rooflens.models import kept_switches, switches
from rooflens.models.precisions import kept_precisions, tf32_allowed
from rooflens.records import Case, Record, Scalar, Timing
from rooflens.sources import conditions, environment
from rooflens.sources.conditions import _doubts_at_start, _ticks, doubts
from rooflens.sources.measure import _doubts
from rooflens.timing import Policy

SOON: dict[str, Any] = {"device": "cpu", "budget": 0.02}
BACKENDS: Any = torch.backends


class Meddler(nn.Module):
    """Turns whatever a user's code may turn, and changes its input in place."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        torch.set_default_dtype(torch.float64)
        torch.set_num_threads(3)
        torch.manual_seed(0)
        torch.use_deterministic_algorithms(True)
        torch.set_float32_matmul_precision("medium")
        torch.backends.cudnn.benchmark = True
        return x.add_(1)


def state() -> tuple[object, ...]:
    return (
        torch.get_default_dtype(),
        torch.get_num_threads(),
        torch.are_deterministic_algorithms_enabled(),
        torch.get_float32_matmul_precision(),
        torch.backends.cudnn.benchmark,
        torch.get_rng_state().tolist(),
    )


@pytest.mark.parametrize("mode", ["inference", "train"])
def test_what_a_model_turns_is_turned_back_and_its_inputs_stay(mode: str) -> None:
    before, x = state(), torch.zeros(2, 3)
    rl.measure(
        Meddler(), inputs=x, loss=lambda output, _: (output * nn.Parameter(torch.ones(3))).sum(), mode=mode, **SOON
    )
    assert state() == before
    assert torch.equal(x, torch.zeros(2, 3))


def test_a_measurement_that_fails_leaves_nothing_behind_either() -> None:
    class Raises(Meddler):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            super().forward(x)
            raise RuntimeError("no")

    before = state()
    with pytest.raises(rl.errors.ModelError):
        rl.measure(Raises(), inputs=torch.zeros(2, 3), **SOON)
    assert state() == before


def both_ways(value: str) -> Iterator[Callable[[], None]]:
    """The older switches and the newer precisions that a user may set."""
    yield lambda: torch.set_float32_matmul_precision("highest" if value == "ieee" else "high")
    yield lambda: setattr(torch.backends.cuda.matmul, "allow_tf32", value == "tf32")
    yield lambda: setattr(torch.backends.cudnn, "allow_tf32", value == "tf32")
    for owner in (BACKENDS, BACKENDS.cuda.matmul, BACKENDS.cudnn, BACKENDS.cudnn.conv, BACKENDS.cudnn.rnn):
        yield lambda owner=owner: setattr(owner, "fp32_precision", value)  # type: ignore[misc]


def every_precision() -> list[str]:
    owners = (BACKENDS, BACKENDS.cudnn, BACKENDS.mkldnn, BACKENDS.cuda.matmul, BACKENDS.cudnn.conv, BACKENDS.cudnn.rnn)
    return [owner.fp32_precision for owner in (*owners, BACKENDS.mkldnn.matmul, BACKENDS.mkldnn.conv)]


@pytest.mark.parametrize("way", range(8))
@pytest.mark.parametrize("value", ["ieee", "tf32"])
def test_tf32_is_set_and_put_back_in_whichever_way_it_was_set(way: int, value: str) -> None:
    with kept_precisions():
        list(both_ways(value))[way]()
        before = every_precision()
        for dtype, expected in (("fp32", (False, False)), ("tf32", (True, True)), ("bf16", (False, False))):
            with switches(dtype):
                assert tf32_allowed() == expected
                # The older switches say the same: torch refuses to compile where the two contradict each other.
                older = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
                assert older == expected
            assert every_precision() == before
        with kept_switches():
            BACKENDS.fp32_precision = "tf32" if value == "ieee" else "ieee"
        assert every_precision() == before


def test_the_newer_precisions_are_no_obstacle_to_a_measurement_and_are_recorded() -> None:
    with kept_precisions():
        BACKENDS.cuda.matmul.fp32_precision = "tf32"  # from here on the older switch raises when it is read
        BACKENDS.cudnn.conv.fp32_precision = "ieee"
        found = rl.measure(nn.Linear(2, 2), inputs=torch.ones(1, 2), dtype="default", estimate=True, **SOON)
        assert found.environment is not None
        flags = environment.capture().flags
        assert found.environment.flags["products may use TF32"] is flags["products may use TF32"] is True
        assert flags["cudnn may use TF32"] is False


def test_processes_that_were_started_here_are_no_others() -> None:
    before = _ticks()
    if before is None:
        pytest.skip("this system does not count ticks")
    burn = "import time\nwhile time.process_time() < 0.3: pass"
    subprocess.run([sys.executable, "-c", burn], check=True, env={"PATH": os.environ["PATH"]})
    after = _ticks()
    assert after is not None
    assert after.own - before.own >= 0.25  # 0.3 s of the child, whole ticks of 0.01 s


def test_every_doubt_about_a_run_is_known_as_one() -> None:
    """Comparisons repeat the notes that read like a doubt."""
    quiet: dict[str, Scalar] = {"utilisation": 0.5, "clock": 1.0e9, "throttled by": ""}
    loud: dict[str, Scalar] = {"clock": 2.0e9, "throttled by": "SwPowerCap", "cores used by others": 1e3}
    # The second sample of each pair of 40 is twice the first, and the last ones are ten times the others.
    wild = Timing(samples=(*(1.0, 2.0) * 20, *(10.0, 20.0) * 20), origin="monotonic")
    of_run = _doubts({"forward": wild}, Policy(), "cpu")
    notes = [*doubts(quiet, loud), *_doubts_at_start({"utilisation": 0.9}), *of_run]
    assert any(note.startswith("noisy") and "OMP_NUM_THREADS=1" in note for note in notes)
    assert len(notes) == 6
    record = Record(case=Case(model="m"), source="measure", scope="model", notes=(*notes, "memory: the peak"))
    assert list(record.doubts) == notes


def test_a_busy_machine_is_advised_against_before_a_long_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    monkeypatch.setattr(os, "getloadavg", lambda: (2.0, 0.0, 0.0))  # half of the cores: not above
    monkeypatch.setattr(conditions, "_facts_of_card", lambda: {"utilisation": 0.875})
    monkeypatch.setattr(conditions, "_card_processes", lambda: {"processes on the card": 2})
    assert list(conditions.advice("cpu")) == []
    (card,) = conditions.advice("cuda")
    assert card.startswith(
        "the card was busy before anything ran here: 88 % utilisation, processes that hold memory of it: 2;"
    )
    monkeypatch.setattr(os, "getloadavg", lambda: (2.5, 0.0, 0.0))
    (machine,) = conditions.advice("cpu")
    assert machine.startswith("this machine is busy: in the last minute 2.5 tasks ran or waited for its 4 cores;")
