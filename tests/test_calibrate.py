"""Calibration: what is tried, what counts as found, and what becomes of a part that fails. No rate is asserted."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tests.calibration_samples import TINY
from tests.table_samples import device as a_device
from torch._subclasses.fake_tensor import FakeTensorMode

from rooflens.devices import find
from rooflens.devices.rules import SourcedValue
from rooflens.errors import MissingCeiling
from rooflens.machine import check_measured, lacks
from rooflens.records import AS_IS, Ceiling, Device
from rooflens.records.timing import TimingOrigin
from rooflens.sources.calibrate import SIZES, caches, calibrate, lanes, links, matrix, overhead, trial
from rooflens.sources.calibrate.assemble import assembled
from rooflens.sources.calibrate.kernels import some_toolkit, source
from rooflens.sources.calibrate.pinned import Pinning, pinned, spread
from rooflens.sources.calibrate.run import Task, run, tasks
from rooflens.sources.calibrate.trial import Bench, Candidate, MeasuredRates, race, shortest

KERNELS = ("vector_fp32", "vector_fp64", "special_fp32", "read_l1", "read_l2")


class Hands:
    """A clock that moves only when it is told to."""

    name: TimingOrigin = "monotonic"

    def __init__(self) -> None:
        self.time = 0.0
        self._marks: list[float] = []

    def start(self) -> None:
        self._marks = [self.time]

    def mark(self) -> None:
        self._marks.append(self.time)

    def seconds(self) -> list[float]:
        return [self._marks[-1] - self._marks[0]]

    def pass_by(self, seconds: float) -> None:
        self.time += seconds


def bench(timer: trial.Timer = lambda call, seconds: 1.0, **changes: Any) -> Bench:
    alone = Pinning(threads=1, cores=(), text="1 thread")
    return Bench(where="cpu", sizes=replace(TINY, **changes), pinning=alone, timer=timer, wall=timer)


def rate(value: float, **others: Any) -> SourcedValue:
    return replace(SourcedValue(value=value, origin="measured", reference="by hand"), **others)


class TestTrial:
    def test_short_calls_are_repeated_until_the_clock_can_tell(self) -> None:
        clock, calls = Hands(), 0

        def call() -> None:
            nonlocal calls
            calls += 1
            clock.pass_by(0.001)

        assert shortest(call, 1.0, clock, least=0.02) == pytest.approx(0.001)
        # A cold call, a warm one and a sample of one call each; then the same with 20 calls each, at most 100 samples.
        assert (calls - 3) % 20 == 0
        assert 3 + 20 * (2 + 3) <= calls <= 3 + 20 * (2 + trial.SAMPLES)

    def test_the_shortest_sample_counts(self) -> None:
        clock = Hands()
        # cold, warm, probe; then cold, warm and three samples of one call each
        durations = iter([9.0, 5.0, 2.0, 9.0, 5.0, 3.0, 1.5, *[4.0] * 200])
        assert shortest(lambda: clock.pass_by(next(durations)), 100.0, clock, least=1.0) == 1.5

    def test_a_call_that_takes_most_of_the_time_is_not_repeated(self) -> None:
        clock = Hands()
        assert shortest(lambda: clock.pass_by(3.0), 10.0, clock, least=0.02) == 3.0
        assert clock.time == 9.0  # a cold call, a warm one and a sample

    def test_the_fastest_candidate_wins_and_the_leaders_run_twice(self) -> None:
        made: list[str] = []
        seconds = {"slow": 4.0, "fast": 1.0, "middle": 2.0}

        def make(name: str) -> Callable[[], str]:
            made.append(name)
            return lambda: name

        candidates = [Candidate(how=name, amount=8.0, make=partial(make, name)) for name in seconds]
        best = race(candidates, 100.0, lambda call, _: seconds[str(call())], now=lambda: 0.0)
        assert (best.how, best.rate) == ("fast", 8.0)
        assert made == ["slow", "fast", "middle", "fast", "middle"]

    def test_a_candidate_that_would_overrun_is_left_out(self) -> None:
        small, large = (Candidate(how=how, amount=n, make=lambda: int) for how, n in (("small", 1.0), ("large", 100.0)))
        # 1 per second: the large one takes 100 s, and 10 s are left.
        assert race([small, large], 10.0, lambda *_: 1.0, now=lambda: 0.0).how == "small"

    def test_a_candidate_that_raises_is_left_out(self) -> None:
        def refuse() -> Callable[[], object]:
            raise RuntimeError("no such layout")

        refused = Candidate(how="refused", amount=9.0, make=refuse)
        fine = Candidate(how="fine", amount=1.0, make=lambda: int)
        assert race([refused, fine], 1.0, lambda *_: 1.0, now=lambda: 0.0).how == "fine"
        with pytest.raises(RuntimeError, match="no such layout"):
            race([refused], 1.0, lambda *_: 1.0, now=lambda: 0.0)


class TestRun:
    def part(self, name: str, found: MeasuredRates | Exception) -> Task:
        def answer(*_: object) -> MeasuredRates:
            if isinstance(found, Exception):
                raise found
            return found

        return Task(name, 1, answer)

    @pytest.mark.parametrize("error", [RuntimeError("boom\ntrace"), FileNotFoundError("boom"), AttributeError("boom")])
    def test_a_part_that_fails_is_named_and_the_others_stay(self, error: Exception) -> None:
        first, last = MeasuredRates(rates={"dram": rate(1.0)}), MeasuredRates(rates={"l1": rate(2.0)})
        wanted = [self.part("dram", first), self.part("l2", error), self.part("l1", last)]
        found = run(wanted, bench(), 10.0, now=lambda: 0.0)
        assert {name: stated.value for name, stated in found.rates.items()} == {"dram": 1.0, "l1": 2.0}
        assert found.notes == (f"l2 not measured: {type(error).__name__}: boom",)

    def test_a_mistake_of_ours_is_no_note(self) -> None:
        with pytest.raises(ZeroDivisionError):
            run([self.part("dram", ZeroDivisionError())], bench(), 10.0, now=lambda: 0.0)

    def test_parts_share_what_time_is_left(self) -> None:
        clock, given = Hands(), []

        def spend(_: Bench, seconds: float) -> MeasuredRates:
            given.append(seconds)
            clock.pass_by(5.0)
            return MeasuredRates()

        wanted = [Task(str(n), share, spend) for n, share in enumerate((3, 1, 1, 1))]
        found = run(wanted, bench(), 10.0, now=lambda: clock.time)
        # 7 of 10 s are planned with. 3 of 6 shares of 7 s; then 1 of 3 of the 2 s left; then nothing is left.
        assert given == pytest.approx([3.5, 2 / 3])
        assert found.notes == ("2 not measured: no time left", "3 not measured: no time left")

    def test_what_a_bound_needs_is_measured_when_all_time_is_gone(self) -> None:
        clock, given = Hands(), []

        def spend(name: str, _: Bench, seconds: float) -> MeasuredRates:
            given.append((name, seconds))
            clock.pass_by(5.0)
            return MeasuredRates()

        names = ("dram", "matmul.fp32", "matmul.bf16")
        found = run([Task(name, 1, partial(spend, name)) for name in names], bench(), 3.0, now=lambda: clock.time)
        # 2.1 of 3 s are planned with, in 3 shares; after 5 s none is left, and products in fp32 get a second.
        assert given == [("dram", pytest.approx(0.7)), ("matmul.fp32", 1.0)]
        assert found.notes == ("matmul.bf16 not measured: no time left",)

    def test_progress_ends_at_one(self) -> None:
        told: list[tuple[float, str]] = []
        run(
            [self.part("a", MeasuredRates()), self.part("b", MeasuredRates())],
            bench(),
            1.0,
            lambda *said: told.append(said),
        )
        assert told == [(0.0, "a"), (0.5, "b"), (1.0, "done")]

    def test_there_is_a_part_for_every_kind_of_ceiling_of_a_cpu(self) -> None:
        names = [part.name for part in tasks("cpu")]
        assert {"matmul.fp32", "matmul.bf16", "dram", "overhead", "special.fp32", "vector.fp32", "l1 and l2"} <= {
            *names
        }
        assert "matmul.tf32" not in names
        assert names[:2] == ["dram", "matmul.fp32"], "without them nearly no step has a bound"


class TestMatrix:
    @pytest.mark.parametrize("precision", matrix.precisions("cpu"))
    def test_candidates_multiply_what_they_say(self, precision: str) -> None:
        wide = bench(products=((128, 64, 32),), convolution=None)
        found = list(matrix._candidates(precision, wide))
        assert {candidate.amount for candidate in found} == {2 * 128 * 64 * 32}
        for candidate in found:
            assert candidate.make()().shape == (128, 64)  # type: ignore[attr-defined]

    def test_layouts_are_those_of_the_factors(self) -> None:
        wide = bench(products=((128, 64, 32),), convolution=None)
        calls = {c.how.rpartition(" ")[2]: c.make() for c in matrix._candidates("fp32", wide)}
        strides = {layout: [factor.stride() for factor in call.args] for layout, call in calls.items()}  # type: ignore[attr-defined]
        # (128, 32) by rows has strides (32, 1), by columns (1, 128); (32, 64) has (64, 1) and (1, 32).
        assert strides == {"nn": [(32, 1), (64, 1)], "nt": [(32, 1), (1, 32)], "tn": [(1, 128), (64, 1)]}

    def test_a_convolution_counts_its_direct_algorithm(self) -> None:
        candidate = matrix._convolution((2, 8, 5, 3), torch.float32)
        # 2 FLOP x batch 2 x 8 x 8 channels x 5 x 5 outputs x 3 x 3 taps
        assert candidate.amount == 2 * 2 * 64 * 25 * 9 == 57600
        assert candidate.make()().shape == (2, 8, 5, 5)  # type: ignore[attr-defined]

    def test_products_are_tried_from_the_smallest_on(self) -> None:
        shapes = ((64, 64, 64), (32, 32, 32), (64, 32, 32))
        found = matrix._candidates("int8", bench(products=shapes, convolution=None))
        assert [candidate.amount for candidate in found] == [2 * 32**3, 2 * 64 * 32 * 32, 2 * 64**3]

    def test_switches_are_put_back(self) -> None:
        before = torch.backends.cuda.matmul.allow_tf32
        matrix.matrix("fp32", bench(), 0.0)
        assert torch.backends.cuda.matmul.allow_tf32 == before

    def test_sums_and_silicon_are_stated(self) -> None:
        found = matrix.matrix("int8", bench(), 0.0).rates["matmul.int8"]
        assert (found.accumulate, found.silicon, found.origin) == ("int32", "fma", "measured")

    def test_every_planned_size_is_a_multiple_of_128(self) -> None:
        assert {size % 128 for sizes in SIZES.values() for shape in sizes.products for size in shape} == {0}


class TestLevels:
    def test_plateaus_are_told_apart(self) -> None:
        points = [(4, 50.0), (8, 90.0), (16, 100.0), (32, 95.0), (64, 60.0), (128, 58.0), (256, 30.0), (512, 9.0)]
        near, far = caches.plateaus([*points, (1024, 9.0)])[:2]
        assert (near.rate, near.sizes) == (100.0, (4, 8, 16, 32))
        assert (far.rate, far.sizes) == (60.0, (64, 128))
        # 256 alone is the slope between two levels
        assert [level.rate for level in caches.plateaus([*points, (1024, 9.0)])] == [100.0, 60.0, 9.0]

    def test_a_lone_size_is_no_level(self) -> None:
        assert caches.plateaus([(4, 100.0), (8, 50.0), (16, 20.0)]) == []
        assert caches.plateaus([]) == []

    def test_a_sweep_reads_what_it_counts(self) -> None:
        rows, per_row = 16, 1024  # 64 KiB in all, 4 KiB of fp32 ones at a time
        amount, call = caches._again(4 << 10, bench())
        assert amount == rows * per_row * 4
        assert float(call()) == pytest.approx(rows * per_row * 0.5)  # type: ignore[arg-type]

    def test_what_has_no_plateau_is_left_out_by_name(self) -> None:
        times = iter([1.0, 2.0, 4.0])  # each size at half the rate of the one before
        found = caches.core_caches(bench(lambda *_: next(times)), 1.0)
        assert not found.rates
        assert found.notes[0].startswith("l1 left out")

    def test_the_ceilings_of_a_core_say_which_sizes(self) -> None:
        sizes = (4 << 10, 8 << 10, 64 << 10, 128 << 10)
        times = iter([1.0, 1.0, 2.0, 2.0])
        found = caches.core_caches(bench(lambda *_: next(times), working_sets=sizes, sweep_bytes=1 << 20), 1.0)
        assert {name: stated.value for name, stated in found.rates.items()} == {"l1": 2**20, "l2": 2**19}
        assert "4 KiB to 8 KiB" in found.rates["l1"].reference
        assert "64 KiB to 128 KiB" in found.rates["l2"].reference


class TestOverhead:
    def test_it_is_the_least_time_per_operation(self) -> None:
        ticks = iter(n * 0.01 for n in range(10_000))
        found = overhead.overhead(bench(launches=5), 1.0, now=lambda: next(ticks))
        # One tick of 10 ms passes while 5 operations are issued.
        assert found.facts["dispatch"].value == pytest.approx(0.002)


@pytest.mark.parametrize(("exchanged", "is_one"), [(149.0, False), (150.0, True)])
def test_cards_that_exchange_half_as_much_again_as_the_host_link_have_a_fabric(exchanged: float, is_one: bool) -> None:
    found = links.fabric(trial.Best(rate=exchanged, how="copies"), rate(100.0))
    assert ("nvlink" in found.rates, bool(found.notes)) == (is_one, not is_one)


def test_without_the_host_links_rate_there_is_no_telling() -> None:
    assert not links.fabric(trial.Best(rate=1e12, how="copies"), None).rates


class TestAssembled:
    KNOWN = Device(
        name="board",
        title="Board",
        vendor="Acme",
        kind="gpu",
        arch="A1",
        ceilings=(
            Ceiling(resource="matmul.fp64", rate=60.0, silicon="tensor", origin="datasheet", reference="sheet"),
            Ceiling(resource="matmul.bf16", rate=100.0, silicon="tensor", origin="datasheet", reference="sheet"),
            Ceiling(resource="dram", rate=10.0, silicon="memory", origin="datasheet", reference="sheet"),
        ),
        facts={},
    )

    def device(self, rates: dict[str, SourcedValue], known: Device | None = None, where: str = "cuda") -> Device:
        return assembled(
            MeasuredRates(rates=rates, notes=("said",)), where=where, name="here", title="Here", known=known
        )

    def test_what_was_not_measured_keeps_the_catalogues_rate(self) -> None:
        found = self.device({"matmul.bf16": rate(90.0), "vector.fp64": rate(30.0)}, self.KNOWN)
        rates = {c.resource: (c.rate, c.origin) for c in found.ceilings}
        assert rates["matmul.bf16"] == (90.0, "measured")
        assert rates["dram"] == (10.0, "datasheet")
        # The rule "products run on the lanes" must not displace the catalogue's tensor cores.
        assert rates["matmul.fp64"] == (60.0, "datasheet")
        assert (found.name, found.title) == ("board-measured", "Board (measured)")

    @pytest.mark.parametrize(("value", "noted"), [(10.5, False), (10.6, True)])
    def test_more_than_5_percent_above_the_datasheet_is_noted(self, value: float, noted: bool) -> None:
        found = self.device({"dram": rate(value)}, self.KNOWN)
        assert ("1.06 x the catalogue's rate" in found.require("dram").reference) == noted
        assert ("dram: 1.06 x" in found.notes) == noted
        assert found.notes.startswith("said")

    def test_a_cache_slower_than_memory_is_noted(self) -> None:
        found = self.device({"dram": rate(10.0), "l2": rate(9.0), "l1": rate(50.0)})
        assert "slower than dram" in found.require("l2").reference
        assert "slower" not in found.require("l1").reference

    def test_emulated_precisions_are_noted(self) -> None:
        found = self.device({"matmul.fp32": rate(100.0), "matmul.fp16": rate(2.0), "matmul.bf16": rate(200.0)})
        assert "far below fp32" in found.require("matmul.fp16").reference
        assert "far below" not in found.require("matmul.bf16").reference

    def test_lanes_of_a_cpu_are_at_least_as_fast_as_the_products_on_them(self) -> None:
        products = {"matmul.fp32": rate(100.0, silicon="fma", accumulate="fp32")}
        lanes = self.device(products, where="cpu").require("vector.fp32")
        assert (lanes.rate, lanes.origin, lanes.verified) == (100.0, "derived", False)
        slower = self.device({**products, "vector.fp32": rate(80.0)}, where="cpu").require("vector.fp32")
        assert (slower.rate, slower.origin) == (100.0, "derived")
        assert "reached 80.00 FLOP/s" in slower.reference
        faster = self.device({**products, "vector.fp32": rate(120.0)}, where="cpu").require("vector.fp32")
        assert (faster.rate, faster.origin) == (120.0, "measured")

    def test_lanes_that_the_catalogue_knows_stay(self) -> None:
        known = find("core-i9-10940x")
        found = self.device({"matmul.fp32": rate(1e12)}, known, where="cpu")
        assert found.require("vector.fp32") == known.require("vector.fp32")

    def test_rates_have_four_digits(self) -> None:
        assert self.device({"dram": rate(1234567.0)}).require("dram").rate == 1235000.0


class TestPinned:
    def test_one_of_each_core_comes_first(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
        for cpu, siblings in enumerate(("0,2", "1,3", "0,2", "1,3")):
            (tmp_path / f"cpu{cpu}").write_text(siblings)
        monkeypatch.setattr("rooflens.sources.calibrate.pinned.SIBLINGS", str(tmp_path / "cpu{}"))
        assert spread([0, 1, 2, 3]) == [0, 1, 2, 3]
        assert spread([0, 2, 3]) == [0, 3, 2]

    @pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="the system cannot pin threads")
    def test_masks_are_put_back_even_after_an_error(self) -> None:
        before = os.sched_getaffinity(0)
        seen: list[tuple[tuple[int, ...], set[int]]] = []

        def fail() -> None:
            with pinned("cpu") as pinning:
                seen.append((pinning.cores, os.sched_getaffinity(0)))
                raise KeyError

        with pytest.raises(KeyError):
            fail()
        assert os.sched_getaffinity(0) == before
        ((cores, inside),) = seen
        assert inside == ({cores[0]} if cores else before)

    @pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="the system cannot pin threads")
    def test_other_threads_are_left_alone(self) -> None:
        stop, masks = threading.Event(), []

        def idle() -> None:
            stop.wait(10)
            masks.append(os.sched_getaffinity(0))

        before = os.sched_getaffinity(0)
        thread = threading.Thread(target=idle)
        thread.start()
        with pinned("cpu"):
            stop.set()
            thread.join()
        assert masks == [before]

    def test_a_card_needs_no_pinning(self) -> None:
        with pinned("cuda") as pinning:
            assert pinning.cores == ()


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("architecture", ["80", "90"])
@pytest.mark.filterwarnings("ignore")
def test_cuda_kernels_build(name: str, architecture: str, monkeypatch: pytest.MonkeyPatch) -> None:
    utils = pytest.importorskip("torch.cuda._utils")
    try:
        utils._get_nvrtc_library()
    except (OSError, AttributeError) as error:
        pytest.skip(f"this torch brings no NVRTC: {error}")
    monkeypatch.setattr("torch.utils.cpp_extension.CUDA_HOME", None)  # as without a toolkit
    with some_toolkit():
        binary, found = utils._nvrtc_compile(source("kernels.cu"), name, architecture)
    assert found == name
    assert binary


def test_all_of_it_on_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(trial.LEAST, "cpu", 1e-5)
    monkeypatch.setattr(trial, "SAMPLES", 3)
    monkeypatch.setitem(trial.BURST, "cpu", 3)
    monkeypatch.setitem(SIZES, ("cpu", True), replace(TINY, compiled=True))
    threads = torch.get_num_threads()
    found = calibrate("cpu", "here", "Here", budget=30.0, quick=True)
    rates = {ceiling.resource: ceiling for ceiling in found.ceilings}
    assert {"matmul.fp32", "matmul.bf16", "vector.fp32", "special.fp32", "dram"} <= rates.keys()
    assert rates["matmul.fp32"].origin == rates["dram"].origin == rates["special.fp32"].origin == "measured"
    assert {"dram_copy", "dram_triad", "dram_read", "dram_write", "dispatch"} == found.facts.keys()
    assert rates["dram"].rate == max(fact.value for name, fact in found.facts.items() if name.startswith("dram"))
    assert found.name == "here-measured"
    assert f"{threads} threads" in found.notes
    assert torch.get_num_threads() == threads


def test_the_calls_on_a_card_are_well_formed(monkeypatch: pytest.MonkeyPatch) -> None:
    """On fake tensors, which know every shape and compute nothing: no card is needed."""
    launched: dict[str, list[Any]] = {}

    def kernel(name: str) -> Callable[..., None]:
        def launch(grid: Any, block: Any, args: list[Any]) -> None:
            launched[name] = [grid[0] * block[0], *args]

        return launch

    card = SimpleNamespace(multi_processor_count=2, L2_cache_size=1 << 20)
    monkeypatch.setattr("torch.cuda.get_device_properties", lambda: card)
    monkeypatch.setattr("torch.cuda.mem_get_info", lambda: (1 << 30, 1 << 30))
    monkeypatch.setattr("torch.cuda.get_device_capability", lambda: (9, 0))
    monkeypatch.setattr("torch.cuda.is_bf16_supported", lambda including_emulation: True)
    for module in (lanes, caches):
        monkeypatch.setattr(module, "cuda_kernel", kernel)
    small = bench(lambda call, _: (call(), 1.0)[1], products=((256, 128, 128),), shared_sets=(1 << 16, 1 << 17))
    wanted = [part for part in tasks("cuda") if part.name not in ("overhead", "pcie", "nvlink")]
    with FakeTensorMode():
        found = sum((part.run(replace(small, where="cuda"), 1.0) for part in wanted), MeasuredRates())
    rates = {"matmul": {"bf16", "fp16", "tf32", "fp32", "fp8", "int8", "fp64"}, "vector": {"fp32", "fp64"}}
    assert {*(f"{unit}.{p}" for unit, names in rates.items() for p in names), "special.fp32", "dram", "l1", "l2"} == {
        *found.rates
    }
    # As many results as threads, two factors, rounds; and as many results as threads, 16 bytes per element, rounds.
    threads, out, factors, _ = launched["vector_fp64"]
    assert (out.numel(), out.dtype, factors.numel()) == (threads, torch.float64, 2)
    threads, data, out, size, _ = launched["read_l2"]
    assert (out.numel(), 4 * size) == (threads, data.numel())


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no CUDA device")
def test_all_of_it_on_a_card() -> None:
    found = calibrate("cuda", "here", "Here", quick=True)
    rates = {ceiling.resource: ceiling.origin for ceiling in found.ceilings}
    assert {rates[name] for name in ("matmul.fp32", "matmul.fp16", "vector.fp32", "special.fp32", "dram")} == {
        "measured"
    }
    assert {"dispatch", "launch", "graph_launch", "pcie_h2d"} <= found.facts.keys()
    assert "not measured" not in found.notes


def test_a_file_without_memory_or_products_is_refused_at_once() -> None:
    half = a_device("toy-measured", matmul_bf16=1e9)
    assert lacks(half) == "dram and matmul.fp32"
    check_measured(half, [AS_IS])
    check_measured(a_device("toy-measured", matmul_bf16=1e9, dram=1e9), ["bf16", "amp-bf16"])
    check_measured(replace(half, name="toy"), ["fp32"])
    with pytest.raises(MissingCeiling, match=r"^no matmul\.fp32 was measured on toy-measured: .* calibrate' again"):
        check_measured(a_device("toy-measured", matmul_bf16=1e9, dram=1e9), ["bf16", "default"])
