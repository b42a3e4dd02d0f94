"""One profiled run on the CPU: modules and phases as an estimate names them, and nothing left behind."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.modules import module as torch_module
from torch.utils.checkpoint import checkpoint

import rooflens as rl
from rooflens.errors import ModelError
from rooflens.models import placed, workload
from rooflens.records import Record
from rooflens.results import UNATTRIBUTED, RecordSet
from rooflens.runs.run import Request
from rooflens.sources import profile
from rooflens.sources.profile import profiled_step


@pytest.fixture(autouse=True)
def _few_threads() -> Iterator[None]:
    """Other work on the machine must not stretch what is timed."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def profiled(
    model: str | nn.Module, mode: str = "inference", batch: int | None = None, inputs: Any = None, **more: Any
) -> RecordSet:
    keep = more.pop("keep", None)
    asked = workload(Request.of({"model": model, "inputs": inputs, "batch": batch, "mode": mode} | more))
    step = placed(asked.step(asked.runs[0], "cpu"), "cpu")
    return RecordSet(profiled_step.records(step, asked.runs[0].case(), "cpu", warmup=1, keep=keep))


def operations(records: RecordSet) -> set[tuple[str, str | None]]:
    """Module and phase of every operation with a formula: views cost nothing in an estimate."""
    return {(r.path, r.phase) for r in records if r.scope == "op" and r.kind != "other"}


def test_calls_are_found_after_the_run_whose_times_count() -> None:
    asked = workload(Request.of({"model": nn.Linear(4, 4), "inputs": (torch.ones(2, 4),)}))
    step = placed(asked.step(asked.runs[0], "cpu"), "cpu")
    order: list[str] = []
    hooks: dict[str, Any] = {
        "warm": lambda: order.append("warm"),
        "timed": lambda: order.append("timed"),
        "found": lambda launches: order.append("found"),
    }
    order.extend(its.scope for its in profiled_step.records(step, asked.runs[0].case(), "cpu", warmup=1, **hooks))
    assert order[:4] == ["warm", "timed", "found", "op"]


class Odd(nn.Module):
    """Everything that makes paths hard."""

    def __init__(self) -> None:
        super().__init__()
        self.twice = nn.Linear(8, 8)
        self.direct = nn.Linear(8, 8)
        self.keys = nn.ModuleDict({'a "quoted" name': nn.Linear(8, 8), "größe/2": nn.Linear(8, 8)})
        self.alias = self.twice
        self.nested = nn.Sequential(nn.Sequential(nn.Linear(8, 8), nn.ReLU()), nn.GELU())
        self.unregistered = [nn.Linear(8, 8)]
        self.depth = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.alias(self.twice(x))
        x = self.direct.forward(x)
        for layer in self.keys.values():
            x = layer(x)
        x = self.unregistered[0](x)
        if self.depth == 0:
            self.depth = 1
            x = self(x)
            self.depth = 0
        nested: torch.Tensor = checkpoint(self.nested, x, use_reentrant=False)
        return nested * 2.0


class Scale(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x * 3.0

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        return grad * 3.0


class Scaled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return Scale.apply(self.fc(x))  # type: ignore[no-any-return]


@pytest.mark.parametrize("mode", ["inference", "train"])
@pytest.mark.parametrize(
    ("make", "shape"),
    [
        (Odd, (4, 8)),
        (Scaled, (4, 4)),
        (lambda: nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2)), (2, 3, 16, 16)),
        (lambda: nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, dropout=0.1), (2, 5, 16)),
    ],
    ids=["odd", "function", "convolution", "transformer"],
)
def test_modules_and_phases_are_those_of_an_estimate(
    make: Callable[[], nn.Module], shape: tuple[int, ...], mode: str
) -> None:
    module, inputs = make(), torch.randn(shape)
    estimated = rl.estimate(module, inputs=inputs, mode=mode)
    seen = profiled(module, mode, inputs=inputs)
    if isinstance(module, nn.TransformerEncoderLayer) and mode == "inference":
        # torch takes its own fast path through the whole layer, which an estimate does not see.
        assert operations(seen) == {("", "forward")}
        return
    assert operations(seen) == operations(estimated)


def test_calls_join_the_estimate_by_name() -> None:
    module = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 5))
    inputs = torch.randn(2, 3, 8, 8)

    def calls(records: RecordSet) -> Mapping[tuple[str, str, str | None], int]:
        found: dict[tuple[str, str, str | None], int] = {}
        for r in records:
            if r.scope == "op" and r.kind != "other":
                found[r.path, r.name, r.phase] = found.get((r.path, r.name, r.phase), 0) + r.calls
        return found

    assert calls(profiled(module, inputs=inputs)) == calls(rl.estimate(module, inputs=inputs))
    seen = calls(profiled(module, "train", inputs=inputs))
    for key, count in calls(rl.estimate(module, inputs=inputs, mode="train")).items():
        assert seen.get(key) == count, key


def test_a_checkpointed_module_is_run_again_in_backward() -> None:
    seen = profiled(Odd(), "train", inputs=torch.randn(4, 8))
    again = {(r.path, r.name) for r in seen if r.recomputed and r.kind != "other"}
    assert again >= {("nested.0.0", "addmm"), ("nested.0.1", "relu"), ("nested.1", "gelu")}
    assert all(r.phase == "backward" and r.path.startswith("nested") for r in seen if r.recomputed)


@pytest.mark.parametrize(("mode", "least"), [("inference", 0.95), ("train", 0.90)])
@pytest.mark.parametrize("model", ["resnet18", "transformer", "lstm"])
def test_nearly_all_time_belongs_to_an_operation_of_a_module(model: str, mode: str, least: float) -> None:
    if model == "lstm":
        records = profiled(nn.LSTM(32, 64, num_layers=2), mode, inputs=torch.randn(16, 8, 32))
    elif model == "transformer":
        layer = nn.TransformerEncoderLayer(256, 4, 1024, batch_first=True)
        records = profiled(nn.TransformerEncoder(layer, 2), mode, inputs=torch.randn(4, 128, 256))
    else:
        records = profiled(model, mode, batch=1, img_size=64)
    share = records.coverage.time_share
    assert share is not None
    assert least <= share <= 1
    assert any(f"{100 * share:.1f} % of" in note for note in records.notes)
    phases = {"forward"} if mode == "inference" else {"forward", "backward", "optimizer"}
    assert {r.phase for r in records if r.scope == "op"} == phases
    assert {r.path for r in records if r.path.startswith("(")} <= {"(loss)", "(optimizer)", UNATTRIBUTED}


def test_the_time_of_a_recurrent_layer_is_one_operation_a_direction() -> None:
    records = profiled(nn.LSTM(8, 16, num_layers=2), inputs=torch.randn(6, 2, 8))
    assert [(r.path, r.name, r.kind) for r in records if r.kind not in ("other", "fill") and r.scope == "op"] == [
        ("", "recurrent", "recurrent")
    ]


def test_decoding_is_profiled_without_what_prepares_it(tmp_path: Path) -> None:
    config = {
        "model_type": "llama",
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "vocab_size": 50,
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    records = profiled(f"hf:{tmp_path / 'config.json'}", "decode", batch=2, seq_len=8)
    attention = [r for r in records if r.kind == "attention"]
    assert [r.phase for r in attention] == ["forward", "forward"]
    share = records.coverage.time_share
    assert share is not None
    assert share > 0.95


def test_compiled_code_belongs_to_the_whole_model() -> None:
    module = nn.Sequential(nn.Linear(8, 8), nn.ReLU())
    asked = workload(Request(model=module, inputs=torch.randn(4, 8)))
    step = placed(asked.step(asked.runs[0], "cpu"), "cpu")
    whole: Any = torch.compile(step.module, backend="eager")
    records = RecordSet(profiled_step.records(replace(step, module=whole), asked.runs[0].case(), "cpu"))
    assert {(r.path, r.name) for r in records if r.kind == "matmul"} == {("", "addmm")}
    assert any("compiled" in note for note in records.notes)


def test_nothing_is_left_behind() -> None:
    module = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
    state = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    hooks = dict(torch_module._global_forward_hooks), dict(torch_module._global_forward_pre_hooks)
    profiled(module, "train", inputs=torch.randn(8, 4))
    assert all(torch.equal(state[name], tensor) for name, tensor in module.state_dict().items())
    assert all(parameter.grad is None for parameter in module.parameters())
    assert not module[0]._forward_hooks
    assert (dict(torch_module._global_forward_hooks), dict(torch_module._global_forward_pre_hooks)) == hooks
    rl.estimate(module, inputs=torch.randn(8, 4))
    assert not torch_module._has_any_global_hook()  # else calls of every module are slower from then on


def test_the_log_of_the_profiler_is_quiet() -> None:
    """In a process of its own: whoever uses the profiler first in a process decides what its log says."""
    measured = "rl.measure(torch.nn.Linear(4, 4), inputs=torch.ones(2, 4), device='cpu', profile=True, budget=0.05)"
    program = f"import rooflens as rl, torch; {measured}"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("", "")


def test_a_module_that_raises_is_an_error_and_leaves_no_hook() -> None:
    class Failing(nn.Module):
        calls = 0

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            Failing.calls += 1
            if Failing.calls > 1:  # not in the run that warms up
                raise RuntimeError("too much")
            return x + 1.0

    with pytest.raises(ModelError, match="too much"):
        profiled(nn.Sequential(Failing()), inputs=torch.randn(2))
    assert not torch_module._global_forward_hooks
    assert not torch_module._global_forward_pre_hooks
    # And the profiler can be used again.
    assert profiled(nn.Linear(2, 2), inputs=torch.randn(1, 2)).coverage.time_share == pytest.approx(1)


def test_the_trace_can_be_kept_and_says_the_same(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    records = profiled(nn.Sequential(nn.Linear(4, 4), nn.ReLU()), inputs=torch.randn(2, 4), keep=path)
    packed = tmp_path / "trace.json.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    again = list(profile.records_of(profile.attribute(profile.read_trace(packed)), records.cases[0]))
    assert again == list(records)


def test_records_can_be_saved_and_read(tmp_path: Path) -> None:
    records = profiled(nn.Linear(4, 4), inputs=torch.randn(2, 4))
    loaded = RecordSet.load(records.save(tmp_path / "profile.jsonl"))
    assert list(loaded) == list(records)


@pytest.mark.gpu
def test_kernels_belong_to_modules_on_a_gpu() -> None:
    asked = workload(Request(model="resnet18", batch=8, mode="train"))
    step = placed(asked.step(asked.runs[0], "cpu"), "cuda")
    records: list[Record] = list(profiled_step.records(step, asked.runs[0].case(), "cuda"))
    share = RecordSet(records).coverage.time_share
    assert share is not None
    assert share > 0.9
    assert "device time" in records[-1].notes[0]
