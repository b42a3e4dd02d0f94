"""What would help a step: which changes apply, what each gains alone and together, and from a measured time."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner
from tests.ranked_steps import a_card, relu_on

import rooflens as rl
from rooflens.cli.main import cli
from rooflens.compare.advice import Advice, AdvisedStep, alternatives, candidates
from rooflens.compare.changes import Change, Part, changes_of
from rooflens.errors import Incomparable, InvalidValue
from rooflens.records import Case, Device, Record, Timing, Work
from rooflens.records.kv_cache import CachePart, KvCache
from rooflens.results import Evidence, RecordSet, join
from rooflens.running import advising
from rooflens.runs.options import Options
from rooflens.runs.run import Request, is_evidence

CARD = a_card("round")


def step_of(*kinds: str, precision: str = "fp32", **case: str) -> Evidence:
    """An estimated step with operations of some families."""
    of = Case(model="net", device="round", batch=8, **case)  # type: ignore[arg-type]
    work = Work(flops={f"matmul.{precision}": 1e9}, bytes={"dram": 1e6})
    records = [
        Record(case=of, source="estimate", scope="op", kind=kind, name=kind, phase="forward", work=work)
        for kind in kinds
    ]
    (item,) = join(RecordSet(records, devices={"round": CARD}))
    return item


def names(request: Request, evidence: Evidence, device: Device = CARD) -> list[str]:
    return [change.name for change in changes_of(request, evidence, device)]


def test_changes_are_those_that_a_step_can_have() -> None:
    image = Request(model="net", batch=8, dtype="fp32")
    assert names(image, step_of("convolution")) == [
        "tf32", "bf16", "batch 32", "batch 16", "channels last", "compile", "CUDA graph",
    ]  # fmt: skip
    written_out = names(image, step_of("matmul", "softmax"))
    assert "fused attention" in written_out
    assert "channels last" not in written_out
    assert "fused attention" not in names(image, step_of("matmul", "softmax", "attention"))
    done = replace(image, dtype="bf16", options=Options(channels_last=True, compile=True, cuda_graph=True))
    assert names(done, step_of("convolution", precision="bf16")) == ["batch 32", "batch 16"]


def test_changes_of_training_and_of_decoding() -> None:
    training = Request(model="net", batch=8, dtype="fp32", mode="train")
    found = names(training, step_of("matmul", mode="train"))
    assert {"amp-bf16", "fused optimizer"} <= {*found}
    assert "bf16" not in found
    without = replace(training, options=Options(optimizer="none"))
    assert "fused optimizer" not in names(without, step_of("matmul", mode="train"))
    assert "CUDA graph" not in names(replace(training, options=Options(checkpoint=True)), step_of("matmul"))
    decoding = Request(model="net", batch=8, dtype="bf16", mode="decode")
    changes = changes_of(decoding, step_of("matmul", precision="bf16", mode="decode"), CARD)
    assert [change.name for change in changes][-4:] == ["static cache", "CUDA graph", "int8 weights", "int4 weights"]
    static = replace(decoding, options=Options(kv_cache="static"))
    assert "static cache" not in names(static, step_of("matmul", precision="bf16", mode="decode"))
    eight_bits = replace(CARD, ceilings=(*CARD.ceilings, replace(CARD.ceilings[0], resource="matmul.fp8")))
    assert "fp8 weights" in names(decoding, step_of("matmul", precision="bf16", mode="decode"), eight_bits)
    (graph,) = (change for change in changes if change.name == "CUDA graph")
    assert graph.of(decoding).options == Options(cuda_graph=True, kv_cache="static")  # a growing cache has no graph


def test_a_decoding_step_with_a_cache_may_keep_it_in_fewer_bits() -> None:
    item = step_of("matmul", precision="bf16", mode="decode")
    assert item.work is not None
    part = CachePart(name="keys", shape=(8, 2, 64, 16), dtype="bf16", tensors=4, held=32768, used=32768, per_token=512)
    held = [
        *item.work,
        replace(item.work.records[0], scope="model", work=None, kv_cache=KvCache(batch=8, tokens=64, parts=(part,))),
    ]
    (cached,) = join(RecordSet(held, devices={"round": CARD}))
    decoding = Request(model="net", batch=8, dtype="bf16", mode="decode")
    assert names(decoding, cached)[-2:] == ["fp8 cache", "int8 cache"]
    assert "fp8 cache" not in names(replace(decoding, options=Options(kv_dtype="int4")), cached)


def test_a_card_without_bf16_gets_fp16_and_a_graph_keeps_its_types() -> None:
    ceilings = [replace(c, resource="matmul.fp16") if c.resource == "matmul.bf16" else c for c in CARD.ceilings]
    old = replace(CARD, ceilings=tuple(c for c in ceilings if c.resource != "matmul.tf32"))
    request = Request(model="net", batch=8, dtype="fp32")
    assert names(request, step_of("matmul"), old)[:1] == ["fp16"]
    assert names(replace(request, model="net.onnx"), step_of("convolution")) == ["tf32", "batch 32", "batch 16"]
    assert "batch 32" not in names(replace(request, model=torch.nn.ReLU()), step_of("matmul"))  # whose inputs are given


def advised_step(name: str, part: Part, ms: float, gain: float) -> AdvisedStep:
    """A relu that takes so many milliseconds: 100 samples take 1 ms at 0.8 of 1 TB/s."""
    change = Change(name=name, asked=f"--{name}", part=part, costs="nothing")
    (item,) = join(relu_on(a_card(name, 1e12 / ms)))
    return AdvisedStep(name=name, changes=(change,), evidence=item, gain=gain)


def test_gains_are_of_samples_and_a_measured_time_is_their_measure() -> None:
    (now,), (twice,) = (join(relu_on(CARD, batch)) for batch in (100, 200))
    base = AdvisedStep(name="now", changes=(), evidence=now)
    larger = AdvisedStep(name="larger", changes=(), evidence=twice)
    assert (base.seconds, larger.seconds) == pytest.approx((1e-3, 2e-3))
    assert larger.beside(base) == pytest.approx(1)  # twice the time for twice the samples
    # Measured: 3 ms instead of 1 ms. Whatever takes half the expected time is expected to take 1.5 ms.
    faster = replace(advised_step("fast", "layout", 0.5, 2.0), anchor=3.0)
    assert faster.seconds == pytest.approx(1.5e-3)
    assert faster.band is not None
    assert replace(base, anchor=3.0).band is None


def test_the_best_of_each_part_is_taken_where_it_helps() -> None:
    base = AdvisedStep(name="now", changes=(), evidence=join(relu_on(CARD))[0], gain=1.0)
    good, better = advised_step("good", "precision", 0.8, 1.25), advised_step("better", "precision", 0.5, 2.0)
    useless, harmful = advised_step("useless", "layout", 1.0, 1.0), advised_step("harmful", "fusion", 2.0, 0.5)
    batch = advised_step("batch", "batch", 1.0, 1.5)
    # Alone it gains nothing, since the host decides; the device is busy for half the time.
    hidden = replace(advised_step("hidden", "weights", 0.5, 1.0))
    steps = [good, better, useless, harmful, batch, hidden]
    chosen = candidates(base, steps)
    assert [change.name for change in chosen] == ["hidden", "better"]
    assert [change.name for change in alternatives(chosen, steps)] == ["good"]


class Tiny(torch.nn.Sequential):
    def __init__(self) -> None:
        super().__init__(torch.nn.Conv2d(64, 64, 3, padding=1), torch.nn.ReLU(), torch.nn.Conv2d(64, 64, 3, padding=1))


@pytest.fixture(scope="module")
def advice() -> Advice:
    (found,) = rl.advise(Tiny(), inputs=torch.ones(32, 64, 56, 56), device="h100-sxm", dtype="fp32")
    return found


def test_a_module_is_advised_on(advice: Advice) -> None:
    assert {step.name for step in advice.steps} == {"tf32", "bf16", "channels last", "compile", "CUDA graph"}
    gains = [step.gain or 0 for step in advice.steps]
    assert gains == sorted(gains, reverse=True)
    (together,) = advice.together
    assert together.gain is not None
    assert together.gain >= gains[0]
    assert together.gain == pytest.approx((advice.base.seconds or 0) / (together.seconds or 1))
    # Predicted as one step: what its estimate says, and no product of gains.
    total = together.evidence.total()
    assert total is not None
    assert together.seconds == total.predicted_seconds


def test_the_table_says_what_each_change_costs(advice: Advice) -> None:
    shown = rl.table((advice,), width=80)
    assert shown.startswith("What helps: Tiny fp32 inference on h100-sxm5-80gb\n")
    for step in advice.steps:
        assert f"{step.changes[0].costs[:20]}" in shown.replace("\n", " ")
    assert "predicted as one step and not" in shown
    assert max(map(len, shown.splitlines())) <= 80
    (table,) = json.loads(rl.table((advice,), format="json"))
    assert table["rows"][0]["change"] == "as it is"
    assert table["rows"][-1]["gain"] == advice.together[0].gain
    unknown = replace(advice, unknown=(("int4 weights", "no such product here"),), together=())
    assert "unknown: int4 weights: no such product here" in rl.table((unknown,))
    assert "nothing helps by more than 2 %" in rl.table((unknown,))


def test_a_measured_step_of_a_file(tmp_path: Path) -> None:
    estimate = rl.estimate("alexnet", batch=4, device="h100-sxm", dtype="bf16", channels_last=True, compile=True)
    timing = Timing(samples=(2e-3, 2.2e-3, 2.1e-3), origin="cuda-events")
    measured = Record(case=estimate.cases[0], source="measure", scope="model", timing=timing)
    path = (estimate + RecordSet([measured], devices=estimate.devices)).save(tmp_path / "measured.jsonl")
    ((found),) = rl.advise(path)
    assert (found.measured, found.base.seconds) == pytest.approx((2.1e-3, 2.1e-3))
    expected = estimate.total().predicted_seconds or 0
    graph = next(step for step in found.steps if step.name == "CUDA graph")
    total = graph.evidence.total()
    assert total is not None
    assert graph.seconds == pytest.approx((total.predicted_seconds or 0) * 2.1e-3 / expected)
    assert "step: as measured, then in proportion to the expected times" in rl.table((found,))
    with pytest.raises(InvalidValue, match=r"has none: name a batch, or a device"):
        rl.advise(path, batch=5)
    with pytest.raises(InvalidValue, match="dtype is an option of a model"):
        rl.advise(path, dtype="fp16")
    done = CliRunner().invoke(cli, ["advise", str(path), "--dtype", "fp16"])
    assert done.exit_code == 2
    assert "--dtype is an option of a model" in done.output


@pytest.mark.parametrize(("busy_us", "used"), [(25, False), (94, False), (96, True)])
def test_the_busy_time_of_a_profile_is_used_where_the_device_hardly_waited(
    tmp_path: Path, busy_us: int, used: bool
) -> None:
    # Of 100 us under the profiler: without it, the device waits less, so that 96 us are the step's to 4 %.
    estimate = rl.estimate("alexnet", batch=4, device="h100-sxm", dtype="bf16", channels_last=True, compile=True)
    busy, span = (Timing(samples=(seconds,), origin="profiler") for seconds in (busy_us * 1e-6, 100e-6))
    whole = Record(case=estimate.cases[0], source="profile", scope="model", busy=busy, span=span)
    path = RecordSet([whole], devices=estimate.devices).save(tmp_path / "profile.jsonl")
    (found,) = rl.advise(path)
    shown = " ".join(rl.table((found,), width=80).split())
    assert f"busy for {busy_us}.00 us (" in shown
    if used:
        assert found.measured == found.base.seconds == pytest.approx(busy_us * 1e-6)
        assert "us idle): the device decides, and its busy time is taken for that of the step" in shown
    else:
        assert (found.measured, found.base.seconds) == (None, estimate.total().predicted_seconds)
        assert "us idle): that is not the step's time and is not used" in shown


def test_a_trace_that_does_not_tell_its_step_says_how_to(tmp_path: Path) -> None:
    trace = tmp_path / "trace.json"
    kernel = {"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": 1, "dur": 2, "args": {"device": 0}}
    trace.write_text(json.dumps({"deviceProperties": [{"id": 0, "name": "NVIDIA H200"}], "traceEvents": [kernel]}))
    said = r"is of h200-sxm-141gb and does not tell which step ran; .* rooflens read .* --model NAME -b BATCH"
    for path in (trace, rl.read(trace).save(tmp_path / "saved.jsonl")):
        with pytest.raises(InvalidValue, match=said):
            rl.advise(path)
    done = CliRunner().invoke(cli, ["advise", str(trace)])
    assert "does not tell which step ran" in str(done.exception)


@pytest.mark.parametrize(
    ("model", "observed"),
    [
        ("run.jsonl", True), (Path("trace.JSON.gz"), True), ("report.csv", True), ("resnet18", False),
        ("hf:mine/config.json", False), ("config.json", False), ("net.onnx", False), ("net.py:make", False),
    ],
)  # fmt: skip
def test_files_of_what_was_observed_are_no_models(model: str | Path, observed: bool) -> None:
    assert is_evidence(model) is observed


def test_what_no_advice_can_be_given_on() -> None:
    with pytest.raises(InvalidValue, match="none is named; give one: --device h200, in Python device='h200'"):
        rl.advise("resnet18")
    for device in ("xeon-platinum-8480", "2x l4"):  # told before the model is built, which would tell its name
        with pytest.raises(Incomparable, match=rf"expected on '{device}', .* known for single GPUs"):
            rl.advise("no_such_model", device=device)


@pytest.mark.parametrize("place", ["cpu", "cuda"])
def test_a_place_is_no_card_that_advice_can_be_about(place: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidValue, match=f"advice takes no '{place}': expected times are known for GPUs alone"):
        rl.advise("alexnet", device=place)
    timing = Timing(samples=(1.0,), origin="monotonic")
    record = Record(case=Case(model="alexnet"), source="measure", scope="model", phase="forward", timing=timing)
    kept = RecordSet([record]).save(tmp_path / "a.jsonl")
    with pytest.raises(InvalidValue, match=f"advice takes no '{place}'"):
        rl.advise(kept, device=place)


def test_several_devices_have_advice_each() -> None:
    cards = [a_card("one"), a_card("two")]
    model, x = torch.nn.Linear(64, 64), torch.ones(8, 64)
    assert [advice.case.device for advice in rl.advise(model, inputs=(x,), device=cards)] == ["one", "two"]
    result = CliRunner().invoke(cli, ["advise", "no_such_model", "--device", "t4,l4", "--device", "cpu"])
    assert "advice takes no 'cpu'" in str(result.exception), "each of them is looked at"


def test_no_step_is_estimated_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """A CUDA graph runs the same step; of several changes together some were tried before. The share never falls."""
    asked: list[str] = []
    plain = advising.estimated_requests

    def noted(requests: Any, *rest: Any) -> RecordSet:
        asked.append(str((requests[0].dtype, requests[0].batch, replace(requests[0].options, cuda_graph=False))))
        return plain(requests, *rest)

    monkeypatch.setattr(advising, "estimated_requests", noted)
    shares: list[float] = []
    model = torch.nn.Sequential(torch.nn.Linear(512, 512), torch.nn.Linear(512, 512))
    (advice,) = rl.advise(
        model, inputs=(torch.ones(64, 512),), device="l4", progress=lambda share, what: shares.append(share)
    )
    assert "CUDA graph" in [step.name for step in advice.steps]
    assert len(asked) == len(set(asked)) == len(shares)
    assert shares == sorted(shares)
    assert shares[-1] > 0
