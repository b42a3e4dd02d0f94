"""Two threads of one program: each estimates, measures and counts what it runs itself, and nothing else."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import rooflens as rl
from rooflens.errors import ModelError
from rooflens.models import Executable, Step
from rooflens.sources.conditions import BESIDE
from rooflens.sources.profile import profiled_step
from rooflens.sources.profile.events import DeviceActivity, Events, HostOperation, LaunchCall, NamedRange
from rooflens.sources.profile.own_threads import of_the_step
from rooflens.sources.range_names import phase_range
from rooflens.trace import lending

BATCH = 8


def net(width: int) -> nn.Module:
    return nn.Sequential(*[nn.Linear(width, width) for _ in range(6)])


def flops_of(width: int) -> int:
    """Of a training step of `net` without optimizer and loss: 6 products forward; backward 6 for the weights, 5 for the
    inputs, since the first layer's input needs no gradient.
    """
    return 2 * BATCH * width * width * (6 + 6 + 5)


def operations(records: rl.RecordSet) -> Counter[Any]:
    counts: Counter[Any] = Counter()
    for record in records:
        if record.scope == "op":
            counts[record.path, record.name, record.phase] += record.calls
    return counts


def seen(module: nn.Module, inputs: Any) -> tuple[Any, ...]:
    est = rl.estimate(module, inputs=inputs, mode="train", device="t4")
    return est.total().matmul_flops, est.total().flops, dict(est.total().bytes), est.memory, operations(est)


@contextmanager
def meanwhile(once: Callable[[], object]) -> Iterator[list[object]]:
    """Another thread does this over and over; gives what came of it, and raises what it raised."""
    stop, begun, results = threading.Event(), threading.Event(), list[object]()

    def work() -> None:
        try:
            while not stop.is_set():
                results.append(once())
                begun.set()
        finally:
            begun.set()

    with ThreadPoolExecutor(1) as pool:
        working = pool.submit(work)
        begun.wait()
        try:
            yield results
        finally:
            stop.set()
            working.result()


def test_two_threads_estimate_a_model_of_their_own_each() -> None:
    nets = [(net(width), torch.randn(BATCH, width)) for width in (32, 64)]
    right = [seen(*one) for one in nets]
    assert [numbers[0] for numbers in right] == [flops_of(32), flops_of(64)]
    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(lambda n: seen(*nets[n]) == right[n], [0, 1] * 4)) == [True] * 8


def test_an_estimate_beside_the_training_of_another_model_with_checkpoints_and_functions() -> None:
    module, inputs = net(32), torch.randn(BATCH, 32)
    other, x = net(8), torch.randn(4, 8, requires_grad=True)
    right, plain = seen(module, inputs), torch.autograd.Function.__dict__["apply"]
    with meanwhile(lambda: checkpoint(other, x, use_reentrant=True).sum().backward()):
        assert [seen(module, inputs) == right for _ in range(5)] == [True] * 5
    assert torch.autograd.Function.__dict__["apply"] is plain  # no patch of ours is left


def test_a_model_that_another_thread_trains_is_estimated_and_trained_right() -> None:
    module, inputs = net(32), torch.randn(BATCH, 32)
    alone = deepcopy(module)
    right = seen(module, inputs)

    def training(model: nn.Module) -> Callable[[], float]:
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

        def step() -> float:
            optimizer.zero_grad()
            loss = model(inputs).square().mean()
            loss.backward()
            optimizer.step()
            return float(loss.detach())

        return step

    with meanwhile(training(module)) as losses:
        assert [seen(module, inputs) == right for _ in range(5)] == [True] * 5
    again = training(alone)
    assert [again() for _ in losses] == losses


class InAnotherThread(nn.Module):
    """Calls its layer, or a function of its result, in a thread of its own."""

    def __init__(self, function: bool) -> None:
        super().__init__()
        self.layer, self.function, self.pool = nn.Linear(4, 4), function, ThreadPoolExecutor(1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        work: tuple[Any, ...] = (torch.relu, self.layer(x)) if self.function else (self.layer, x)
        result: torch.Tensor = self.pool.submit(*work).result()
        return result


@pytest.mark.parametrize("function", [True, False])
def test_a_model_that_runs_in_threads_is_an_error(monkeypatch: pytest.MonkeyPatch, function: bool) -> None:
    monkeypatch.setattr(lending, "LOOK", 0.01)
    module, x = InAnotherThread(function), torch.randn(2, 4)
    with pytest.raises(ModelError, match=r"thread .* counted"):
        rl.estimate(module, inputs=x)
    assert module(x).shape == (2, 4)  # and it is left as it was


def test_a_model_that_another_thread_never_leaves_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lending, "PATIENCE", 0.05)
    leave, entered = threading.Event(), threading.Event()

    class Stays(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            entered.set()
            leave.wait(60)
            return super().forward(x)

    module, x = Stays(4, 4), torch.randn(2, 4)
    with ThreadPoolExecutor(1) as pool:
        stays = pool.submit(module, x)
        assert entered.wait(60)
        try:
            with pytest.raises(ModelError, match="another thread has run Stays"):
                rl.estimate(module, inputs=x)
        finally:
            leave.set()
        assert stays.result().shape == (2, 4)


def test_modules_that_another_thread_makes_during_an_estimate_have_their_values() -> None:
    made: list[nn.Module] = []

    class Reads(nn.Module):
        """Reads values while it is built, so that its parameters are moved one by one."""

        def __init__(self) -> None:
            super().__init__()
            self.rate = torch.linspace(0, 1, 3)[1].item()
            with ThreadPoolExecutor(1) as pool:
                made.append(pool.submit(nn.Linear, 2, 2).result())
            self.layer = nn.Linear(2, 2)

    from rooflens.models import Blueprint, Example, build, sum_of_outputs

    blueprint = Blueprint(name="reads", build=Reads, example=lambda _: Example(args=()), loss=sum_of_outputs)
    module = build(blueprint, "meta")
    assert all(p.is_meta for p in module.parameters())
    assert not any(p.is_meta for other in made for p in other.parameters())


def test_profiles_of_two_threads_beside_a_third_that_trains() -> None:
    module, x = nn.Sequential(nn.Linear(8, 8), nn.ReLU()), torch.randn(2, 8)
    other = nn.Sequential(nn.Linear(4, 4), nn.Sigmoid())

    def profiled() -> Counter[Any]:
        records = rl.measure(module, inputs=x, mode="train", device="cpu", budget=0.01, profile=True)
        return operations(records.where(source="profile"))

    right = profiled()
    assert right["1", "relu", "forward"] == 1
    with meanwhile(lambda: other(torch.randn(2, 4)).sum().backward()), ThreadPoolExecutor(2) as pool:
        assert list(pool.map(lambda _: profiled() == right, range(2))) == [True] * 2


def test_a_measurement_beside_a_thread_that_trains_says_so() -> None:
    module, x = nn.Linear(8, 8), torch.randn(2, 8)
    other, y = net(64), torch.randn(64, 64)

    def notes() -> tuple[str, ...]:
        records = rl.measure(module, inputs=x, device="cpu", budget=0.01)
        return tuple(note for record in records for note in record.notes)

    idle = threading.Event()
    with ThreadPoolExecutor(1) as pool:  # a thread that does nothing is no doubt
        waits = pool.submit(idle.wait)
        assert BESIDE not in notes()
        idle.set()
        waits.result()
    with meanwhile(lambda: other(y).sum().backward()):
        assert BESIDE in notes()


def loop(name: str) -> tuple[Counter[Any], Any]:
    """What a region counts of one iteration."""
    torch.manual_seed(0)
    module, x = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8)), torch.randn(4, 8)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    region = rl.region(name, trace=module, skip=1, iterations=1, batch=4)
    for _ in range(3):
        with region:
            optimizer.zero_grad()
            module(x).sum().backward()
            optimizer.step()
    records = region.records.where(source="estimate")
    return operations(records), [record.host_calls for record in records if record.scope == "model"]


def test_a_region_beside_threads_that_transform_and_train() -> None:
    class Transform(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * 2 + 1

    transform, other = Transform(), nn.Linear(8, 8)
    optimizer = torch.optim.SGD(other.parameters(), lr=0.1)

    def train() -> None:
        other(transform(torch.randn(2, 8))).sum().backward()
        optimizer.step()

    right = loop("alone")
    # A weight's gradient of each of two layers, an input's of the second, and the two products of forward.
    assert sum(calls for (_, name, _), calls in right[0].items() if name in ("addmm", "mm")) == 5
    with meanwhile(train):
        assert [loop(f"beside {n}") == right for n in range(4)] == [True] * 4


def test_a_region_at_one_place_is_another_one_in_each_thread() -> None:
    def work(width: int) -> float:
        module, x = nn.Linear(width, 4), torch.randn(2, width)
        for _ in range(3):
            with rl.region("work", trace=module, skip=1, iterations=1, mode="inference") as region:
                module(x)
        return region.records.where(source="estimate").total().matmul_flops or 0

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(work, [4, 8, 16])) == [2 * 2 * width * 4 for width in (4, 8, 16)]


def kernel(number: int) -> DeviceActivity:
    return DeviceActivity(name=f"k{number}", kind="kernel", start=number, seconds=0.25, correlation=number)


def test_what_another_thread_launched_is_left_out_of_a_profile() -> None:
    def at(start: float, thread: int) -> dict[str, Any]:
        return {"start": start, "seconds": 0.5, "thread": thread}

    phase = NamedRange(name=phase_range("forward"), start=0.0, seconds=9.0, thread=0)
    operations = (HostOperation(name="aten::mm", **at(1.0, 0)), HostOperation(name="aten::mm", **at(3.0, 1)))
    # An operation's on the step's thread, a kernel of somebody's own there, autograd's, and two of another thread.
    launches = [(1, 1.0, 0), (2, 2.0, 0), (3, 3.0, 1), (4, 4.0, 1), (5, 5.0, 2)]
    events = Events(
        ranges=(phase,),
        operations=operations,
        launches=tuple(LaunchCall(name="launch", correlation=n, **at(start, thread)) for n, start, thread in launches),
        activities=tuple(map(kernel, range(1, 7))),
    )
    own = of_the_step(events)
    assert [activity.correlation for activity in own.activities] == [1, 2, 3, 6]  # nobody saw who launched the last
    assert own.notes == ("left out: 2 kernels, copies and fills that other threads of the program launched meanwhile",)
    alone = replace(events, launches=events.launches[:3], activities=events.activities[:3])
    assert of_the_step(alone) is alone


def test_a_profile_without_what_autograds_thread_did_is_taken_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """One was seen on a GPU while another thread trained."""
    backward = HostOperation(name="AddmmBackward0", start=2.0, seconds=0.5, thread=1, backward=True)
    launches = tuple(LaunchCall(name="launch", correlation=n, start=n, seconds=0.1, thread=n - 1) for n in (1, 2))
    whole = Events(operations=(backward,), launches=launches, activities=tuple(map(kernel, (1, 2))))
    uncalled, unrecorded = replace(whole, launches=launches[:1]), replace(whole, operations=())
    run = Executable(once=lambda mark: None, phases=("forward",))

    def profiled(*taken: Events, mode: str = "train") -> tuple[Events, int]:
        waiting = list(taken)
        monkeypatch.setattr(profiled_step, "_profile", lambda *_: waiting.pop(0))
        monkeypatch.setattr(profiled_step, "_wait", lambda _: None)  # no card is here
        step = Step(name="step", module=nn.Identity(), loss=lambda output, _: output, mode=mode)
        return profiled_step.profiled(step, run, "cuda"), len(waiting)

    def note_of(*taken: Events) -> str:
        events, left = profiled(*taken, whole)
        assert left == 1
        (note,) = [note for note in events.notes if "partial" in note]
        return note

    assert profiled(whole, uncalled) == (of_the_step(whole), 1)
    assert profiled(uncalled, unrecorded, whole) == (of_the_step(whole), 0)
    partial = "the profile is partial, and so were 2 before: it has no "
    assert note_of(*[uncalled] * 3) == (
        f"{partial}launches of 1 of 2 kernels, copies and fills: these belong to no operation"
    )
    assert note_of(*[unrecorded] * 3) == f"{partial}operation of backward"
    assert profiled(unrecorded, whole, mode="inference")[1] == 1
    untold = replace(whole, launches=())  # a device whose profiler tells no calls
    assert profiled(untold, whole)[1] == 1


class Twice(nn.Module):
    """Runs its layers again in backward, which on a GPU is on autograd's own thread."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        again: torch.Tensor = checkpoint(self.layers, x, use_reentrant=False)
        return again


def products_of_twice(operations: Counter[Any]) -> None:
    """Forward has 2 products. Only the first runs again: the second has kept its operands before it would run.
    The second has 2 gradients, and the first one: its input needs none.
    """
    products = {key: n for key, n in operations.items() if key[1] in ("addmm", "mm")}
    assert products == {
        ("layers.0", "addmm", "forward"): 1,
        ("layers.2", "addmm", "forward"): 1,
        ("layers.0", "addmm", "backward"): 1,
        ("layers.2", "mm", "backward"): 2,
        ("layers.0", "mm", "backward"): 1,
    }


def test_what_a_checkpoint_runs_again_is_counted() -> None:
    products_of_twice(operations(rl.estimate(Twice(), inputs=torch.randn(16, 64), mode="train")))


@pytest.mark.gpu
def test_on_a_gpu_a_region_and_a_profile_see_their_own_thread_and_autograds() -> None:
    module, x = Twice().cuda(), torch.randn(16, 64, device="cuda")
    other, y = Twice().cuda(), torch.randn(8, 64, device="cuda")

    def counted(name: str) -> Counter[Any]:
        region = rl.region(name, trace=module, skip=1, iterations=1, batch=16)
        for _ in range(3):
            with region:
                module.zero_grad()
                module(x).sum().backward()
        return operations(region.records.where(source="estimate"))

    def profiled() -> tuple[Counter[Any], int]:
        records = rl.measure(module, inputs=x, mode="train", device="cuda", budget=0.01, profile=True)
        own = records.where(source="profile")
        notes = sum("other threads" in note for record in own for note in record.notes)
        return Counter({key: calls for key, calls in operations(own).items() if key[2] != "optimizer"}), notes

    right = counted("alone"), profiled()
    products_of_twice(right[0])
    assert right[1][1] == 0
    with meanwhile(lambda: other(y).sum().backward()):
        for n in range(5):
            assert counted(f"beside {n}") == right[0]
            assert profiled()[0] == right[1][0]


@pytest.mark.gpu
def test_on_a_gpu_random_numbers_go_on_as_before() -> None:
    module, x = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5)), torch.randn(2, 8)
    torch.cuda.init()
    before = [card.get_state() for card in torch.cuda.default_generators]
    rl.measure(module, inputs=x, mode="train", device="cuda", budget=0.01)
    assert all(torch.equal(a, b.get_state()) for a, b in zip(before, torch.cuda.default_generators, strict=True))
