"""A model that runs parts of itself in threads: an error that names the thread, and never a wrong number."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.pool import ThreadPool
from typing import Any

import pytest
import torch
from torch import nn

import rooflens as rl
from rooflens.errors import ModelError
from rooflens.models import process
from rooflens.trace import lending, threads

BOTH = 2 * 2 * 4 * 8 * 8
"""FLOP of two layers of 8 x 8 on 4 rows."""


class Two(nn.Module):
    """Two layers, which `run` calls."""

    def __init__(self, run: Callable[[Any, Any], Any]) -> None:
        super().__init__()
        self.a, self.b, self.run = nn.Linear(8, 8), nn.Linear(8, 8), run

    def forward(self, x: torch.Tensor) -> Any:
        return self.run(self, x)


X = torch.randn(4, 8)


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lending, "LOOK", 0.02)
    monkeypatch.setattr(threads, "PATIENCE", 0.05)


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    """A pool whose thread is there before any step."""
    with ThreadPoolExecutor(1, thread_name_prefix="early") as early:
        early.submit(int).result()
        yield early


def in_threads(two: Two, x: torch.Tensor) -> torch.Tensor:
    """As Python's documentation has it: what is missing shows as a KeyError."""
    results: dict[str, torch.Tensor] = {}
    each = [
        threading.Thread(
            target=lambda name=name: results.__setitem__(name, getattr(two, name)(x)), name=f"layer {name}"
        )
        for name in "ab"
    ]
    for thread in each:
        thread.start()
    for thread in each:
        thread.join()
    return results["a"] + results["b"]


def in_a_thread_that_tells_nobody(two: Two, x: torch.Tensor) -> Any:
    def work() -> None:
        try:
            two.b(x)
        except Exception:  # noqa: BLE001 - as users write it
            return

    thread = threading.Thread(target=work, name="mute")
    thread.start()
    thread.join()
    return two.a(x) + two.b(x)


def with_asyncio(two: Two, x: torch.Tensor) -> Any:
    async def both() -> Any:
        return sum(await asyncio.gather(asyncio.to_thread(two.a, x), asyncio.to_thread(two.b, x)))

    return asyncio.run(both())


def with_multiprocessing(two: Two, x: torch.Tensor) -> Any:
    with ThreadPool(1) as workers:
        return two.a(x) + workers.apply(two.b, (x,))


def function_with_values(two: Two, x: torch.Tensor) -> Any:
    if x.sum() > 1e9:  # so that real tensors are run
        return x
    products: list[torch.Tensor] = []
    thread = threading.Thread(target=lambda: products.append(two.a(x) if x is None else x @ x.T), name="product")
    thread.start()
    thread.join()
    return two.b(x)


WAYS = {
    "layer a": in_threads,
    "mute": in_a_thread_that_tells_nobody,
    "asyncio_": with_asyncio,
    "Thread-": with_multiprocessing,
    "product": function_with_values,
}


@pytest.mark.parametrize("thread", WAYS)
def test_a_thread_that_a_step_starts_is_named(thread: str, capfd: pytest.CaptureFixture[str]) -> None:
    start, submit, hook = threading.Thread.start, ThreadPoolExecutor.submit, threading.excepthook
    with pytest.raises(ModelError, match=f"Two: .* runs in the thread '{thread}.*cannot be counted"):
        rl.estimate(Two(WAYS[thread]), inputs=X)
    assert (start, submit, hook) == (threading.Thread.start, ThreadPoolExecutor.submit, threading.excepthook)
    assert "Traceback" not in capfd.readouterr().err


def test_threads_that_were_there_before_are_named_too(pool: ThreadPoolExecutor) -> None:
    with pytest.raises(ModelError, match="Linear runs in the thread 'early_0'"):
        rl.estimate(Two(lambda two, x: two.a(x) + pool.submit(two.b, x).result()), inputs=X)
    hooked = Two(lambda two, x: two.a(x) + two.b(x))
    hooked.a.register_forward_hook(lambda _, __, output: pool.submit(output.abs) and None)
    with pytest.raises(ModelError, match=r"aten\.abs\.default runs in the thread 'early_0'"):
        rl.estimate(hooked, inputs=X)
    assert pool.submit(torch.relu, X).result().shape == (4, 8)  # they are as they were


@pytest.mark.filterwarnings("ignore:`torch.jit")
def test_what_runs_in_the_thread_of_the_model_counts() -> None:
    async def later(layer: nn.Module, x: torch.Tensor) -> Any:
        await asyncio.sleep(0)
        return layer(x)

    async def both(two: Two, x: torch.Tensor) -> Any:
        return sum(await asyncio.gather(later(two.a, x), later(two.b, x)))

    def forked(two: Two, x: torch.Tensor) -> Any:
        task: Any = torch.jit.fork(two.b, x)
        return two.a(x) + torch.jit.wait(task)

    def beside_plain_work(two: Two, x: torch.Tensor) -> Any:
        thread = threading.Thread(target=sum, args=([1, 2],))
        thread.start()
        thread.join()
        return two.a(x) + two.b(x)

    for run in (lambda two, x: asyncio.run(both(two, x)), forked, beside_plain_work):
        found = rl.estimate(Two(run), inputs=X)
        assert (found.total().matmul_flops, found.notes) == (BOTH, ())


def test_a_thread_that_goes_on_after_the_step_is_noted() -> None:
    end = threading.Event()

    def run(two: Two, x: torch.Tensor) -> Any:
        threading.Thread(target=end.wait, args=(60,), name="logger", daemon=True).start()
        return two.a(x) + two.b(x)

    try:
        found = rl.estimate(Two(run), inputs=X)
    finally:
        end.set()
    assert found.total().matmul_flops == BOTH
    assert found.notes == (
        "logger, which the step started, went on when the step had ended: what it does is not counted",
    )


def test_real_tensors_that_may_go_to_other_threads_of_the_program_are_noted() -> None:
    end = threading.Event()

    def serve() -> None:
        end.wait(60)

    server = threading.Thread(target=serve, name="server")
    server.start()
    try:
        found = rl.estimate(Two(lambda two, x: two.a(x) if x.sum() > 1e9 else two.b(x)), inputs=X)
    finally:
        end.set()
        server.join()
    assert any("other threads of the program ran beside the step (server)" in note for note in found.notes)


def test_another_thread_that_would_change_the_default_type_waits_for_the_step() -> None:
    class Makes(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            begun.set()
            time.sleep(0.05)
            return super().forward(x) + torch.ones(8)

    def change() -> None:
        begun.wait(60)
        torch.set_default_dtype(torch.float64)
        torch.set_default_dtype(torch.float32)

    begun = threading.Event()
    other = threading.Thread(target=change)
    other.start()
    found = rl.estimate(Makes(8, 8), inputs=X, dtype="fp32")
    other.join()
    ones = next(r.call for r in found if r.name == "ones")
    assert ones is not None
    assert (ones.writes, found.notes) == (8 * 4, ())


def test_what_another_thread_changes_after_all_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "PATIENCE", 0.01)

    def run(two: Two, x: torch.Tensor) -> Any:
        other = threading.Thread(target=torch.set_default_dtype, args=(torch.float32,))
        other.start()
        other.join()
        return two.a(x) + two.b(x)

    note = "another thread has set the default type meanwhile: what followed in the step ran so"
    assert note in rl.estimate(Two(run), inputs=X, dtype="fp32").notes
    measured = rl.measure(Two(run), inputs=X, dtype="fp32", device="cpu", budget=0.01)
    assert any(note in record.notes for record in measured)


def test_a_counted_iteration_says_what_ran_in_threads_that_it_started(pool: ThreadPoolExecutor) -> None:
    """It is the user's own loop, so nothing is refused."""
    model = Two(lambda two, x: two.a(x) + pool.submit(two.b, x).result())
    region = rl.region("step", trace=model, skip=1, iterations=1)
    start = threading.Thread.start
    for x in region.over([X] * 4):
        model(x)
    (note,) = [each for record in region.records for each in record.notes if "ran in threads" in each]
    assert note.startswith("2 operations ran in threads that the iteration started")  # a transposition and a product
    assert "runs in the thread 'early_0'" in note
    assert threading.Thread.start is start
