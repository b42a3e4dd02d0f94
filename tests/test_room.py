"""Whether a step fits into the memory of its device: said in tables, JSON and pictures, by how much, with a remedy."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch
from tests.figure_samples import device, measured, operation

import rooflens as rl
from rooflens.records import Case, Device, Fact, Memory, Record
from rooflens.report.figures.roofline import roofline_figure
from rooflens.results import RecordSet, Room, join

GB = 10**9
CASE = Case(model="net", device="toy", batch=32, dtype="fp32", mode="train")
HELD = Memory(peak=18 * GB, parameters=GB, gradients=GB, activations=12 * GB, temporaries=4 * GB)
"""2 GB whatever the batch is, and 16 GB for 32 samples: 0.5 GB each."""


def machine(name: str = "toy", memory: float | None = 16e9) -> Device:
    """A processor: of its memory a quarter stays free (devices/capacity.toml), whatever runs."""
    facts = {} if memory is None else {"memory": Fact(value=memory, origin="datasheet", reference="made up")}
    return replace(device(name, name.title()), kind="cpu", facts=facts)


def estimated(case: Case = CASE, held: Memory | None = HELD, on: Device | None = None) -> RecordSet:
    items = [
        Record(case=case, source="estimate", scope="model", memory=held),
        operation(case, "layer", "matmul", matmul=1e12),
    ]
    on = machine() if on is None else on
    return RecordSet(items, devices={on.name: on})


def room_of(records: RecordSet) -> Room | None:
    (item,) = join(records)
    return item.room


def test_a_step_that_is_too_large() -> None:
    # 18 GB at the peak and a quarter of 16 GB make 22 GB. Without the 4 GB and the 2 GB, 10 GB are left: 20 samples.
    assert room_of(estimated()) == Room(
        memory=16 * GB, needed=22 * GB, reserved=4 * GB, fits=False, excess=6 * GB, largest=20
    )


@pytest.mark.parametrize("held", [Memory(peak=18 * GB), Memory(peak=18 * GB, parameters=GB, activations=2 * GB)])
def test_of_bytes_without_a_cause_nobody_knows_whether_they_grow_with_the_batch(held: Memory) -> None:
    room = room_of(estimated(held=held))
    assert room is not None
    assert (room.fits, room.excess, room.largest) == (False, 6 * GB, None)
    assert not any("sample does" in note for note in rl.table(estimated(held=held)).splitlines())


def test_a_step_that_fits_to_the_byte_and_one_byte_more() -> None:
    held = Memory(peak=12 * GB, temporaries=12 * GB)
    room = room_of(estimated(held=held))
    assert room is not None
    assert (room.fits, room.excess, room.largest) == (True, None, None)
    room = room_of(estimated(held=Memory(peak=12 * GB + 1, temporaries=12 * GB + 1)))
    assert room is not None
    assert (room.fits, room.excess, room.largest) == (False, 1, 31)


def test_a_model_of_which_not_one_sample_fits() -> None:
    room = room_of(estimated(held=Memory(peak=13 * GB, parameters=13 * GB)))
    assert room is not None
    assert (room.fits, room.excess, room.largest) == (False, GB, 0)
    text = rl.table(estimated(held=Memory(peak=13 * GB, parameters=13 * GB)), width=400)
    (note,) = (line for line in text.split("\n") if "does not fit" in line)
    assert note.endswith("1.000 GB too much; not even one sample does")


@pytest.mark.parametrize("mode", ["decode", "prefill"])
def test_weights_and_cache_of_a_decoder(mode: str) -> None:
    # 8 GB of weights, and 0.25 GB of cache for each of 64 sequences. 4 GB stay free, 4 GB are left: 16 sequences.
    held = Memory(peak=24 * GB, parameters=8 * GB, kv_cache=16 * GB)
    room = room_of(estimated(replace(CASE, mode=mode, batch=64), held))
    assert room is not None
    assert (room.fits, room.needed, room.largest) == (False, 28 * GB, 16)


@pytest.mark.parametrize(
    ("case", "held", "on"),
    [
        (CASE, HELD, machine(memory=None)),
        (replace(CASE, device=None), HELD, machine()),
        (replace(CASE, device="another"), HELD, machine()),
        (CASE, None, machine()),
        (CASE, Memory(parameters=GB), machine()),
    ],
    ids=["memory unknown", "no device", "device unknown", "no memory", "no peak"],
)
def test_what_is_not_known_is_no_answer(case: Case, held: Memory | None, on: Device) -> None:
    assert room_of(estimated(case, held, on)) is None
    (told,) = json.loads(rl.table(estimated(case, held, on), format="json"))
    assert told["fits"] is None
    assert told["room"] is None
    assert "does not fit" not in rl.table(estimated(case, held, on))


def test_what_ran_did_fit() -> None:
    room = room_of(estimated() + RecordSet([measured(CASE, 1.0)], devices={"toy": machine()}))
    assert room is not None
    assert (room.fits, room.excess) == (True, None)


def test_several_devices_share_the_work_in_a_way_that_is_not_known() -> None:
    pair = replace(machine("2x toy", 32e9), count=2)
    at = replace(CASE, device="2x toy")
    rooms = [room_of(estimated(at, Memory(peak=n * GB, temporaries=n * GB), pair)) for n in (12, 18, 40)]
    assert [(room.fits, room.memory, room.excess) for room in rooms if room is not None] == [
        (True, 32 * GB, None),
        (None, 32 * GB, None),
        (False, 32 * GB, 12 * GB),
    ]
    text = rl.table(estimated(at, Memory(peak=18 * GB, temporaries=18 * GB), pair), width=400)
    assert "split perfectly over 2 devices, each holds at least 9.000 GB of its 16.00 GB" in text
    assert "fits:" not in text


def test_a_step_that_the_driver_decides_about_is_at_the_borderline() -> None:
    """Of a card whose memory nobody has told: 16 GiB less what ECC and its driver take, at most 9 % (a T4)."""
    card = replace(machine(), kind="gpu", facts=rl.device("tesla-p100-sxm2-16gb").facts)
    bytes_of = {  # peak, and 0.737 GB for the context: the cause of all is the parameters
        14.8: (True, False), 15.5: (None, True), 17.0: (False, False),
    }  # fmt: skip
    for peak, expected in bytes_of.items():
        held = Memory(peak=int(peak * GB), parameters=int(peak * GB))
        room = room_of(estimated(CASE, held, card))
        assert room is not None
        assert (room.fits, room.borderline) == expected
        assert room.memory == int(0.91 * 16 * 2**30)
    text = rl.table(estimated(CASE, Memory(peak=int(15.5 * GB), parameters=int(15.5 * GB)), card), width=400)
    assert "is at the borderline: it needs 16.24 GB, and the device has 15.63 GB at least" in text


def test_table_json_and_picture_say_so() -> None:
    records = estimated()
    told = (
        "net batch 32 fp32 train on toy does not fit: it needs 22.00 GB (4.000 GB of it to stay free) of 16.00 GB,"
        " 6.000 GB too much; batch 20 is about the largest that fits (--largest-batch finds it exactly)"
    )
    text = rl.table(records, width=400)
    assert told in text
    narrow = rl.table(records, width=60).split("\n")
    assert ["6.000", "GB"] in [line.split()[-2:] for line in narrow if line.startswith("exceeds memory by")]
    (case,) = json.loads(rl.table(records, format="json"))
    assert case["fits"] is False
    assert case["room"] == {
        "memory": 16 * GB, "needed": 22 * GB, "reserved": 4 * GB, "borderline": False, "excess": 6 * GB, "largest": 20,
    }  # fmt: skip
    assert told in case["notes"]
    assert told in roofline_figure(records).notes
    header, row = rl.table(records, format="csv").splitlines()
    cells = dict(zip(header.split(","), row.split(","), strict=True))
    assert (cells["fits"], cells["memory_excess"]) == ("false", str(6 * GB))


def test_of_many_steps_the_first_are_named() -> None:
    cases = [replace(CASE, batch=32 + n) for n in range(5)]
    records = RecordSet([r for case in cases for r in estimated(case)], devices={"toy": machine()})
    text = rl.table(records, width=400)
    assert text.count("does not fit:") == 3
    assert "2 more steps do not fit into the memory of their devices" in text


def test_an_estimate_on_a_small_card() -> None:
    # The counts are those of the estimate; what it says beside them follows from the memory of the card.
    records = rl.estimate("alexnet", batch=65536, device=["t4", "h100-sxm"])
    rooms = {item.case.device: item.room for item in join(records)}
    small = rooms["tesla-t4"]
    assert small is not None
    assert small.memory == int(14.56 * 2**30)  # as torch has told
    assert small.fits is False
    assert small.needed - small.reserved >= records.where(device="t4").memory.peak  # type: ignore[union-attr,operator]
    fitting = rl.largest_batch("alexnet", device="t4").batch
    assert fitting is not None
    assert small.largest == pytest.approx(fitting, rel=0.05)


@pytest.mark.parametrize("memory", [16e9, 20e9, 100e9])
def test_an_estimate_of_no_device_is_crossed_out_on_each_that_lacks_the_room(memory: float) -> None:
    """18 GB at the peak, and a quarter of the memory stays free: 22 GB of 16, 23 GB of 20, and 43 GB of 100."""
    small, large = machine(memory=memory), machine("large", 100e9)
    records = estimated(replace(CASE, device=None))
    figure = roofline_figure(RecordSet(records, devices={}), devices=[small, large])
    small_is_short = memory < 24e9
    assert {mark.device: mark.too_large for mark in figure.marks} == {0: small_is_short, 1: False}
    told = [note.partition(" does not fit")[0] for note in figure.notes if "does not fit" in note]
    assert told == (["net batch 32 fp32 train on toy"] if small_is_short else [])


def test_comparisons_and_charts_say_so_too() -> None:
    cases = [replace(CASE, batch=batch) for batch in (1, 8, 32)]
    held = {case: replace(HELD, peak=(4 + case.batch) * GB) for case in cases if case.batch is not None}
    # 4 GB stay free on 16 GB: 5 GB and 12 GB fit, 36 GB lack 24 GB. The second device has room for all of them.
    records = RecordSet(())
    for name, memory in (("toy", 16e9), ("large", 100e9)):
        for case in cases:
            records += estimated(replace(case, device=name), held[case], machine(name, memory))
    rows = json.loads(rl.table(rl.compare(records, question="devices"), format="json"))[0]["rows"]
    lacking = [(row["device"], row["batch"], row["needed"]) for row in rows if row["fits"] is False]
    assert lacking == [("toy", 32, 40 * GB)]
    rows = json.loads(rl.table(rl.compare(records, question="throughput"), format="json"))[0]["rows"]
    assert {row["device"]: row["too_large"] for row in rows} == {"toy": "32", "large": None}
    notes = rl.chart("throughput", records).chart.notes
    assert [note for note in notes if "fit" in note] == [
        "net on toy: batch 32 does not fit into the device's memory (crossed out)"
    ]
    assert any(
        "net batch 32 fp32 train on toy does not fit: " in note for note in rl.chart("latency", records).chart.notes
    )


def test_a_single_step_that_fits_says_what_it_needs() -> None:
    shown = rl.table(rl.estimate(torch.nn.Linear(8, 8), inputs=torch.zeros(4, 8), device="t4", name="one"), width=200)
    assert "of 15.63 GB, " in next(line for line in shown.splitlines() if line.startswith("fits: the step needs "))
    assert "fits: the step" not in rl.table(rl.estimate("resnet18", batch=[1, 2], device="t4"), width=200)


def test_a_plain_call_of_a_decoder_names_its_other_modes() -> None:
    plain = rl.estimate("hf:llama", batch=1, seq_len=2)
    assert "--mode prefill and decode are a server's steps" in rl.table(plain, width=200)
    assert "a server's" not in rl.table(rl.estimate("hf:llama", batch=1, seq_len=2, mode="prefill"), width=200)
