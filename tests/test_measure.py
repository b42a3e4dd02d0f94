"""Measuring on the CPU: what is run, what is kept, and that nothing is changed."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

import rooflens as rl
from rooflens.errors import InvalidValue, ModelError
from rooflens.records import Device
from rooflens.sources import measure

BUDGET = 0.1


class Chatty(nn.Module):
    """Counts what is done to it."""

    log: list[str] = []  # noqa: RUF012

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.log.append(f"{'train' if self.training else 'eval'} {'grad' if torch.is_grad_enabled() else 'no grad'}")
        output: torch.Tensor = self.layer(x)
        return output


@pytest.fixture(autouse=True)
def quiet() -> None:
    Chatty.log.clear()


def test_inference_is_timed_in_eval_mode_without_gradients() -> None:
    found = rl.measure(Chatty(), inputs=torch.randn(2, 4), device="cpu", budget=BUDGET)
    record, about = found
    assert (record.scope, record.source, record.phase) == ("model", "measure", "forward")
    assert record.timing is not None
    assert record.timing.origin == "monotonic"
    assert record.timing.cold is not None
    assert len(record.timing.samples) >= 7
    assert (about.scope, about.phase, about.timing) == ("model", None, None)
    # The cold call, every warm-up call and every sample ran the model once, and nothing else did.
    assert len(Chatty.log) == 1 + len(record.timing.warmup) + len(record.timing.samples)
    assert set(Chatty.log) == {"eval no grad"}


@pytest.mark.parametrize("compiles", [False, True])
def test_peaks_begin_anew_when_a_compiler_has_tried_kernels(compiles: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    runs_before: list[int] = []
    monkeypatch.setattr(measure.Held, "is_prepared", lambda _: runs_before.append(len(Chatty.log)))
    monkeypatch.setattr(measure, "compiled", lambda step: step)
    monkeypatch.setattr(measure, "_Compiling", lambda: nullcontext(SimpleNamespace(seconds=0.0)))
    rl.measure(Chatty(), inputs=torch.randn(2, 4), device="cpu", budget=BUDGET, compile=compiles)
    assert runs_before == ([0, 1] if compiles else [0])  # where it lies on the device, and after the first call


@pytest.mark.parametrize(
    ("optimizer", "phases"),
    [
        ("none", ["forward", "backward"]),
        ("sgd", ["forward", "backward", "optimizer"]),
        ("adamw", ["forward", "backward", "optimizer"]),
    ],
)
def test_a_training_step_is_timed_by_phase(optimizer: str, phases: list[str]) -> None:
    found = rl.measure(
        Chatty(), inputs=torch.randn(2, 4), mode="train", optimizer=optimizer, device="cpu", budget=BUDGET
    )
    assert [r.phase for r in found] == [*phases, None]
    assert set(Chatty.log) == {"train grad"}
    counts = {len(r.timing.samples) for r in found if r.timing is not None}
    assert len(counts) == 1


def test_a_module_that_is_handed_in_is_not_changed() -> None:
    module = Chatty().eval()
    weight = module.layer.weight.clone()
    rl.measure(module, inputs=torch.randn(2, 4), mode="train", device="cpu", budget=BUDGET, dtype="bf16")
    assert torch.equal(module.layer.weight, weight)
    assert module.layer.weight.dtype == torch.float32
    assert module.layer.weight.grad is None
    assert not module.training


def test_the_dtype_is_that_of_the_computation() -> None:
    class Tells(nn.Linear):
        seen: set[torch.dtype] = set()  # noqa: RUF012

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            output = super().forward(x)
            self.seen.add(output.dtype)
            return output

    for dtype, expected in (("bf16", torch.bfloat16), ("amp-bf16", torch.bfloat16), ("fp32", torch.float32)):
        Tells.seen.clear()
        rl.measure(Tells(4, 4), inputs=torch.randn(2, 4), dtype=dtype, device="cpu", budget=BUDGET)
        assert Tells.seen == {expected}


def test_switches_are_set_for_the_run_and_put_back() -> None:
    from rooflens.models import switches

    before = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    for dtype, expected in (("fp32", (False, False)), ("tf32", (True, True)), ("default", before)):
        with switches(dtype):
            assert (torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32) == expected
        assert (torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32) == before


class TooLarge(nn.Module):
    """Fails for batches above 2."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if len(x) > 2:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB\nwith more lines")
        return x + 1


def test_a_batch_that_fails_is_data_and_the_others_go_on(tmp_path: Any) -> None:
    path = tmp_path / "mine.py"
    path.write_text(
        "import torch\nfrom tests.test_measure import TooLarge\n\n"
        "def build(batch):\n    return TooLarge(), torch.randn(batch, 4)\n"
    )
    found = rl.measure(f"{path}:build", batch=[1, 8, 2], device="cpu", budget=BUDGET)
    assert [c.batch for c in found.cases] == [1, 2]
    (failure,) = found.failures
    assert (failure.case.batch, failure.kind, failure.stage) == (8, "out of memory", "forward")
    assert "Tried to allocate 2.00 GiB" in failure.message
    assert "more lines" not in failure.message


class CannotMove(TooLarge):
    """Too large for the device before anything runs."""

    def to(self, *args: Any, **kwargs: Any) -> Any:
        if any(kwargs):
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
        return super().to(*args, **kwargs)


def test_a_model_that_does_not_fit_on_the_device_is_an_error_of_rooflens() -> None:
    with pytest.raises(ModelError, match="OutOfMemoryError: CUDA out of memory"):
        rl.measure(CannotMove(), inputs=torch.randn(1, 4), device="cpu", budget=BUDGET)


def test_gradients_of_inputs_are_not_added_up_over_samples() -> None:
    from rooflens.models import Example, eager, make_step, sum_of_outputs

    x = torch.ones(2, 4, requires_grad=True)
    step = make_step(
        "m", Chatty(), Example(args=(x,)), dtype="as-is", mode="train", loss=sum_of_outputs, optimizer="none"
    )
    run = eager(step, "cpu").once
    run(lambda: None)
    assert x.grad is not None
    first = x.grad.clone()
    run(lambda: None)
    assert torch.equal(x.grad, first)


def test_if_every_batch_fails_so_does_the_call() -> None:
    with pytest.raises(ModelError, match="OutOfMemoryError"):
        rl.measure(TooLarge(), inputs=torch.randn(8, 4), device="cpu", budget=BUDGET)


def test_a_roof_of_ones_own_names_the_device(device: Device) -> None:
    found = rl.measure(
        Chatty(), inputs=torch.randn(2, 4), device="cpu", budget=BUDGET, roof=device, estimate=True, dtype="fp32"
    )
    assert {c.device for c in found.cases} == {"hand-made"}
    assert found.sources == ("estimate", "measure")
    assert found.where(source="estimate").total().seconds is not None
    assert found.devices == {"hand-made": device}


@pytest.fixture
def device() -> Device:
    ceilings = tuple(
        rl.Ceiling(resource=r, rate=rate, silicon=silicon, origin="user", reference="by hand")  # type: ignore[arg-type]
        for r, rate, silicon in (("matmul.fp32", 1e11, "fma"), ("vector.fp32", 1e11, "fma"), ("dram", 1e10, "memory"))
    )
    return Device(name="hand-made", title="Hand", vendor="x", kind="cpu", arch="", ceilings=ceilings, facts={})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"device": "tpu"}, "cannot measure on 'tpu'"),
        ({"budget": 0}, "cannot sample"),
        ({"batch": 0}, "batch 0"),
    ],
)
def test_bad_input_is_an_error(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidValue, match=message):
        rl.measure(**({"model": "alexnet", "device": "cpu"} | arguments))


@pytest.mark.skipif(torch.cuda.is_available(), reason="torch finds a CUDA device")
def test_without_a_gpu_cuda_is_an_error_with_a_remedy() -> None:
    with pytest.raises(InvalidValue, match="no CUDA device here; measure with device 'cpu'"):
        rl.measure("alexnet", device="cuda")


def test_a_model_without_values_cannot_be_run() -> None:
    with pytest.raises(InvalidValue, match="meta device"):
        rl.measure(nn.Linear(2, 2, device="meta"), inputs=torch.randn(1, 2), device="cpu")


@pytest.mark.gpu
def test_on_a_gpu_events_time_the_device_and_memory_is_recorded() -> None:
    found = rl.measure("resnet18", batch=8, device="cuda", budget=0.5)
    forward, memory = found
    assert forward.timing is not None
    assert forward.timing.origin == "cuda-events"
    assert memory.memory is not None
    assert memory.memory.reserved is not None
    assert memory.memory.peak is not None
    # 11,689,512 parameters of 4 bytes and more.
    assert 46_758_048 < memory.memory.peak <= memory.memory.reserved
