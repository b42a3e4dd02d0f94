"""What the caller has set does not reach a case that has a name, and is back afterwards."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.autograd.graph import saved_tensors_hooks
from torch.overrides import TorchFunctionMode
from torch.utils.flop_counter import FlopCounterMode

import rooflens as rl
from rooflens.errors import InvalidValue

Context = Callable[[], AbstractContextManager[Any]]


class Net(nn.Module):
    """Draws random numbers, makes tensors of the default type and device, and has operations that autocast casts."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.norm, self.drop = nn.Linear(8, 8), nn.LayerNorm(8), nn.Dropout(0.5)
        self.types: set[torch.dtype] = set()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.layer(x)
        self.types.add(y.dtype)
        random.random()
        np.random.random()
        output: torch.Tensor = self.drop(self.norm(y)) + torch.ones(8)
        return output


@contextmanager
def default_type(dtype: torch.dtype) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


@contextmanager
def default_device(device: str) -> Iterator[None]:
    torch.set_default_device(device)
    try:
        yield
    finally:
        torch.set_default_device(None)


@contextmanager
def deterministic() -> Iterator[None]:
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


class Watching(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        assert func is not torch.nn.functional.layer_norm, "the caller's mode sees a step of ours"
        return func(*args, **kwargs or {})


CONTEXTS: dict[str, Context] = {
    "autocast": lambda: torch.autocast("cpu", torch.bfloat16),
    "autocast without its cache": lambda: torch.autocast("cpu", torch.bfloat16, cache_enabled=False),
    "fp64 as the default": lambda: default_type(torch.float64),
    "a default device": lambda: default_device("meta"),
    "a device": lambda: torch.device("meta"),
    "inference mode": torch.inference_mode,
    "no gradients": torch.no_grad,
    "anomaly detection": torch.autograd.detect_anomaly,
    "deterministic": deterministic,
    "a dispatch mode": lambda: FlopCounterMode(display=False),
    "a function mode": Watching,
    "hooks on saved tensors": lambda: saved_tensors_hooks(lambda t: t * 2, lambda t: t / 2),
}


def state() -> tuple[Any, ...]:
    """What a caller could notice."""
    top: Any = torch._C._autograd._top_saved_tensors_default_hooks
    depth = torch.autocast_increment_nesting()
    torch.autocast_decrement_nesting()
    return (
        random.getstate(),
        str(np.random.get_state()),
        torch.get_rng_state().numpy().tobytes(),
        torch.get_default_dtype(),
        torch.get_default_device(),
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        torch.is_anomaly_enabled(),
        torch.are_deterministic_algorithms_enabled(),
        torch.is_autocast_enabled("cpu"),
        torch.is_autocast_cache_enabled(),
        depth,
        torch.overrides._len_torch_function_stack(),
        torch._C._len_torch_dispatch_stack(),
        top(True),
    )


def seen(records: rl.RecordSet) -> Any:
    return records.memory, [(r.path, r.name, r.phase, r.calls, r.call) for r in records if r.scope == "op"]


def numbers(module: nn.Module, inputs: torch.Tensor, dtype: str) -> list[Any]:
    return [seen(rl.estimate(module, inputs=inputs, mode=mode, dtype=dtype)) for mode in ("inference", "train")]


@pytest.fixture(scope="module")
def right() -> dict[str, Any]:
    module, inputs = Net(), torch.randn(4, 8)
    each = {dtype: numbers(module, inputs, dtype) for dtype in ("fp32", "amp-bf16")}
    # 4 rows of 8 in fp32, and what the layer saves: a named case has these bytes whatever is set.
    assert sum(call.writes for *_, call in each["fp32"][0][1] if call.name == "addmm") == 4 * 8 * 4
    return {"module": module, "inputs": inputs, **each}


@pytest.mark.filterwarnings("ignore:Anomaly Detection")
@pytest.mark.parametrize("name", CONTEXTS)
def test_an_estimate_is_the_same_and_all_is_back(name: str, right: dict[str, Any]) -> None:
    module, inputs = right["module"], right["inputs"]
    with CONTEXTS[name]() as context:
        before = state()
        for dtype in ("fp32", "amp-bf16"):
            assert numbers(module, inputs, dtype) == right[dtype]
        assert str(rl.explain("mm", shapes=[(4, 8), (8, 2)])).count("fp32")
        assert state() == before
        if isinstance(context, FlopCounterMode):
            assert context.get_total_flops() == 0


@pytest.mark.filterwarnings("ignore:Anomaly Detection")
@pytest.mark.parametrize("name", CONTEXTS)
def test_a_measurement_runs_in_its_own_type_and_all_is_back(name: str) -> None:
    module, inputs = Net(), torch.randn(4, 8)
    types = module.types  # a set is copied with the module
    module.__deepcopy__ = lambda memo: module  # type: ignore[assignment]
    with CONTEXTS[name]():
        before = state()
        records = rl.measure(module, inputs=inputs, mode="train", dtype="fp32", device="cpu", budget=0.01)
        assert [record.phase for record in records if record.timing] == ["forward", "backward", "optimizer"]
        assert state() == before
    assert types == {torch.float32}


def test_a_module_of_another_type_is_brought_to_the_type_of_the_case() -> None:
    with default_type(torch.float64):
        module, inputs = nn.Linear(8, 4), torch.randn(2, 8)
        operation = next(r for r in rl.estimate(module, inputs=inputs, dtype="fp32") if r.scope == "op")
        assert operation.call is not None
        # 2 x 8 inputs, 4 x 8 weights and 4 biases of 4 bytes are read
        assert operation.call.reads == 4 * (16 + 32 + 4)
        own = next(r for r in rl.estimate(module, inputs=inputs) if r.scope == "op")
        assert own.call is not None
        assert own.call.reads == 8 * (16 + 32 + 4)  # as it is
    half = next(r for r in rl.estimate(nn.Linear(8, 4).half(), inputs=inputs, dtype="fp32") if r.scope == "op")
    assert half.call == operation.call


def test_a_named_model_draws_no_random_numbers_of_the_caller() -> None:
    before = state()
    rl.estimate("resnet18", mode="train")
    rl.largest_batch("alexnet", device="t4")
    assert state() == before


def test_a_calibration_sees_no_autocast_and_all_is_back(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from rooflens.sources.calibrate import run as calibration

    types: set[torch.dtype] = set()

    def tried(*_: Any) -> Any:
        types.add((torch.ones(2, 2) @ torch.rand(2, 2)).dtype)
        return calibration.MeasuredRates()

    monkeypatch.setattr(calibration, "run", tried)
    monkeypatch.setattr(calibration, "assembled", lambda *_, **__: rl.device("t4"))
    with torch.autocast("cpu", torch.bfloat16), default_type(torch.float64):
        before = state()
        rl.calibrate("cpu", quick=True, output=tmp_path / "here.toml")
        assert state() == before
    assert types == {torch.float32}


def test_a_function_transform_is_a_clear_error() -> None:
    module, inputs = nn.Linear(4, 4), torch.randn(2, 4)

    def inside(x: torch.Tensor) -> torch.Tensor:
        rl.estimate(module, inputs=inputs)
        return x

    with pytest.raises(InvalidValue, match="vmap"):
        torch.vmap(inside)(torch.randn(2))


def test_a_module_spread_over_processes_is_a_clear_error(tmp_path: Any) -> None:
    from torch.distributed import destroy_process_group, init_process_group
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module

    init_process_group("gloo", init_method=f"file://{tmp_path}/meet", rank=0, world_size=1)
    try:
        mesh = init_device_mesh("cpu", (1,))
        sharded, parallel = nn.Sequential(nn.Linear(4, 4)), nn.Sequential(nn.Linear(4, 4))
        fully_shard(sharded, mesh=mesh)
        parallelize_module(parallel, mesh, {"0": ColwiseParallel()})
        for module in (sharded, parallel):
            for call in (rl.estimate, rl.measure):
                with pytest.raises(InvalidValue, match="spread over processes"):
                    call(module, inputs=torch.randn(2, 4))
    finally:
        destroy_process_group()
