"""Sets joined: parts of one estimate make the whole again, those of two estimates are an error that says why."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import rooflens as rl
from rooflens.errors import InvalidValue
from rooflens.records import Case, Environment, Memory, Record, Work
from rooflens.results import RecordSet

PHASES = ("forward", "backward", "optimizer", None)  # the record of the model is in none


class Small(nn.Module):
    """4 -> 8, an activation, and twice 8 -> 8 with the same weights; 4 x 8 + 8 and 8 x 8 parameters: 104."""

    def __init__(self, activation: Callable[[Tensor], Tensor] = torch.relu) -> None:
        super().__init__()
        self.inner, self.outer = nn.Linear(4, 8), nn.Linear(8, 8, bias=False)
        self.activation = activation

    def forward(self, x: Tensor) -> Tensor:
        made: Tensor = self.outer(self.outer(self.activation(self.inner(x))))
        return made


@cache
def trained() -> RecordSet:
    return rl.estimate(Small(), inputs=torch.ones(2, 4), mode="train", device="t4")


def check_whole(joined: RecordSet, same_order: bool = True) -> None:
    whole = trained()
    assert (list(joined) == list(whole)) is same_order
    assert len(joined) == len(whole)
    ours, its = joined.total(), whole.total()
    # Products forward: 2 x 2 x (4 x 8 + 2 x 8 x 8); backward twice that, but no gradient of the input: 2 x 2 x 4 x 8.
    assert ours.matmul_flops == its.matmul_flops == 3 * 640 - 128
    assert (ours.flops, ours.bytes) == (its.flops, its.bytes)
    assert ours.seconds == pytest.approx(its.seconds, rel=1e-12)
    assert (joined.parameters, joined.memory) == (104, whole.memory)
    assert joined.coverage == whole.coverage


def parts_of(whole: RecordSet, name: str) -> list[RecordSet]:
    def where(**lists: Iterable[Any]) -> list[RecordSet]:
        return [whole.where(**{key: value}) for key, values in lists.items() for value in values]

    kinds, paths = dict.fromkeys(r.kind for r in whole), dict.fromkeys(r.path for r in whole)
    return {
        "phases": where(phase=PHASES),
        "phases backwards": where(phase=PHASES[::-1]),
        "kinds": where(kind=kinds),
        "modules": where(path=paths),
        "operations and model": where(scope=("op", "model")),
        "overlapping": where(phase=("forward", "backward"), kind=kinds),
        "a phase and all": [*where(phase=("backward",)), whole],
        "all and a part of a part": [whole, whole.where(phase="forward").where(kind="matmul")],
        "model with each phase": where(phase=[[phase, None] for phase in PHASES[:3]]),
        "slices": [whole.with_records(whole.records[n::3]) for n in range(3)],
    }[name]


CUTS = ["phases", "phases backwards", "kinds", "modules", "operations and model", "overlapping", "a phase and all"]
CUTS += ["all and a part of a part", "model with each phase", "slices"]


@pytest.mark.parametrize("cut", CUTS)
def test_parts_of_an_estimate_are_the_whole_again(cut: str) -> None:
    joined = RecordSet.union(parts_of(trained(), cut))
    check_whole(joined)
    assert joined.total().predicted_seconds == trained().total().predicted_seconds


@pytest.mark.parametrize("cut", CUTS)
def test_parts_in_files_are_the_whole_again(cut: str, tmp_path: Path) -> None:
    files = [part.save(tmp_path / f"{n}.jsonl") for n, part in enumerate(parts_of(trained(), cut))]
    check_whole(rl.read(*files), same_order=cut not in ("kinds", "modules", "slices"))


def test_slices_that_a_user_makes_sets_of_are_the_whole_again() -> None:
    whole = trained()
    middle = len(whole) // 2
    sets = [RecordSet(whole.records[of], devices=whole.devices) for of in (slice(0, middle + 2), slice(middle, None))]
    check_whole(sets[0] + sets[1])


def test_an_estimate_of_the_same_step_adds_nothing() -> None:
    again = rl.estimate(Small(), inputs=torch.ones(2, 4), mode="train", device="t4")
    check_whole(trained() + again.where(phase="backward"))
    check_whole(trained().where(scope="op") + again)


def test_parts_of_two_sets_that_hold_an_estimate_and_a_measurement_stand_beside_each_other() -> None:
    case = trained().cases[0]
    time = Record(case=case, source="measure", scope="model", timing=rl.Timing(samples=(1.0,), origin="monotonic"))
    both = trained() + RecordSet([time])
    joined = RecordSet.union([both.where(phase=phase) for phase in PHASES])
    check_whole(joined.where(source="estimate"))
    assert list(joined.where(source="measure")) == [time]


def estimated(module: nn.Module, width: int = 4) -> RecordSet:
    return rl.estimate(module, inputs=torch.ones(2, width), mode="train")


def wide() -> nn.Module:
    module = Small()
    module.inner = nn.Linear(16, 8)
    return module


@pytest.mark.parametrize(
    ("other", "said"),
    [
        # 16 x 8 + 8 + 8 x 8 parameters are 200
        (lambda ours: (ours, estimated(wide(), 16)), "parameters is 104 in one and 200 in the other (the model)"),
        (
            lambda ours: (ours.where(scope="op"), estimated(wide(), 16).where(scope="op")),
            "only one has addmm of 8, 2x4, 4x8 in inner, forward, and only the other addmm of 8, 2x16, 16x8 in inner",
        ),
        (
            lambda ours: (ours, estimated(Small(torch.sigmoid))),
            "only one has relu of 2x8 in the model, forward, and only the other sigmoid of 2x8 in the model, forward",
        ),
        (
            lambda ours: (ours, estimated(Small(torch.sigmoid)).where(phase="forward")),
            "only one has relu of 2x8 in the model, forward, and only the other sigmoid of 2x8 in the model, forward",
        ),
    ],
)
def test_two_estimates_are_told_apart_by_what_differs(other: Any, said: str) -> None:
    with pytest.raises(InvalidValue) as error:
        RecordSet.union(other(estimated(Small())))
    assert str(error.value).startswith("the sets hold two different estimates of 'Small as-is train': ")
    assert said in str(error.value)


CASE = {"model": "mine", "batch": 2, "dtype": "fp32"}


def record(**facts: Any) -> Record:
    """A record with a case of its own, as each file has."""
    return Record(case=Case(**CASE), source="estimate", **facts)  # type: ignore[arg-type]


def made(*records: Record, at: str = "2026-01-02T03:04:05+00:00") -> RecordSet:
    return RecordSet(records, environment=Environment(rooflens="1", created=at))


def test_what_differs_is_named_by_its_field_with_both_values() -> None:
    product = record(scope="op", path="fc", name="mm", work=Work(flops={"matmul.fp32": 4000}, bytes={"dram": 96}))
    more = replace(product, case=Case(**CASE), work=Work(flops={"matmul.fp32": 4000}, bytes={"dram": 128}))  # type: ignore[arg-type]
    with pytest.raises(InvalidValue, match=r"work.bytes.dram is 96 in one and 128 in the other \(mm in fc\)"):
        made(product) + made(more)
    held = [record(scope="model", memory=Memory(peak=n)) for n in (1000, 2000)]
    with pytest.raises(InvalidValue, match=r"memory.peak is 1,000 in one and 2,000 in the other \(the model\)"):
        made(held[0]) + made(held[1])
    unknown = record(scope="model", memory=Memory())
    with pytest.raises(InvalidValue, match=r"memory.peak is 1,000 in one and unknown in the other"):
        made(held[0]) + made(unknown)


def test_pieces_of_estimates_that_were_made_at_different_times_are_no_parts_of_one() -> None:
    """Nothing tells that the forward of one and the backward of another are of the same model."""
    forward, backward = (record(scope="op", name="mm", phase=phase) for phase in ("forward", "backward"))
    assert len(made(forward) + made(backward)) == 2
    for other in (made(backward, at="2026-01-02T03:04:06+00:00"), RecordSet([backward])):
        with pytest.raises(InvalidValue, match="only one has mm in the model, forward, and only the other mm in"):
            made(forward) + other
