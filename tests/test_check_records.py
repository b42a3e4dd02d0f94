"""Checks of records: kernels, measurements and estimates made by hand."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from tests.figure_samples import device
from tests.test_check_typed import HEADER, TYPED

from rooflens.checks import CHECKS, examine
from rooflens.checks.context import Context
from rooflens.devices import find
from rooflens.records import Case, CeilingOrigin, Memory, Record, Source, Timing, Traffic, Work
from rooflens.report.findings import findings_text
from rooflens.report.kernel_names import with_short_names
from rooflens.reported import ReportedFigure, read_figures, recorded
from rooflens.results import RecordSet

T4 = find("t4")
CASE = Case(model="mine", device=T4.name, batch=4)


def kernel(name: str = "sgemm", case: Case = CASE, seconds: float | None = 1e-4, **amounts: float) -> Record:
    """One counted launch: FLOP by unit (``fp32`` is general lanes), bytes by level."""
    flops = {f"vector.{unit}": n for unit, n in amounts.items() if unit.startswith("fp")}
    nbytes = {level: n for level, n in amounts.items() if level in ("dram", "l2", "l1")}
    return Record(
        case=case,
        source="counters",
        scope="kernel",
        name=name,
        phase="forward",
        work=Work(flops=flops, bytes=nbytes, origin="executed"),
        timing=None if seconds is None else Timing(samples=(seconds,), origin="ncu"),
    )


def step(*samples: float, case: Case = CASE, source: Source = "measure", memory: Memory | None = None) -> Record:
    """A measured step."""
    timing = Timing(samples=samples, origin="cuda-events")
    return Record(case=case, source=source, scope="model", phase="forward", timing=timing, memory=memory)


def estimate(matmul: float, nbytes: float, *, calls: int = 1, case: Case = CASE, kind: str = "matmul") -> list[Record]:
    """An estimate of one operation that is called so often, with half of its bytes weights."""
    return [
        Record(
            case=case,
            source="estimate",
            scope="op",
            name="mm",
            kind=kind,
            phase="forward",
            work=Work(flops={"matmul.fp32": matmul}, bytes={"dram": nbytes}),
            traffic=Traffic(weights=nbytes / 2, inputs=nbytes / 4, outputs=nbytes / 4),
            calls=calls,
        ),
        Record(
            case=case,
            source="estimate",
            scope="model",
            memory=Memory(parameters=int(nbytes / 2 * calls), inputs=int(nbytes / 4)),
            parameters=int(nbytes / 8),
        ),
    ]


def codes(*records: Record) -> tuple[str, ...]:
    return examine(records=RecordSet(records, devices={T4.name: T4})).codes


GOOD = kernel(fp32=4e8, dram=1e6, l2=4e6)
"""4 TFLOP/s of 8.1 and 10 GB/s of 320."""
HALF = Case(model="mine", device=T4.name, batch=4, dtype="fp16")
TWO = Case(model="mine", device=T4.name, batch=8)

NO_VALUE = "3 values are not available: dram__byte.sum (3); what needs them is unknown and not zero"


def lacking(name: str) -> Record:
    """A launch of which some FLOP were not counted."""
    work = Work(flops={}, bytes={"dram": 1e6, "l2": 4e6}, origin="executed", missing=frozenset({name}))
    return replace(kernel(name), work=work)


# Per code: records with the mistake, and records without it.
RECORDED: Mapping[str, tuple[list[Record], list[Record]]] = {
    "kernel-without-flops": (
        [GOOD, kernel("cutlass_gemm", dram=1e6, l2=4e6)],
        [GOOD, *(kernel(name, dram=1e6, l2=4e6) for name in ("copy", "cudnn::convert_dq_to_16bits", "flash_cast"))],
    ),
    # One MFLOP in ten is 16-bit.
    "half-in-fp32": (
        [kernel(fp32=9e6, fp16=1e6, dram=1e6, l2=4e6)],
        [kernel(fp32=9e6, fp16=1e6, dram=1e6, l2=4e6, case=HALF)],
    ),
    "metric-incomplete": ([GOOD, kernel(fp32=4e8, l2=4e6)], [GOOD, GOOD]),
    "dram-above-l2": ([kernel(fp32=4e8, dram=6e6, l2=4e6)], [kernel(fp32=4e8, dram=4.4e6, l2=4e6)]),
    "dram-near-zero": ([kernel(fp32=4e8, dram=1e3, l2=4e6)], [kernel(fp32=4e8, dram=1e5, l2=4e6)]),
    "launches-missing": (
        [*estimate(1e8, 4e5, calls=10), *[kernel(fp32=2.5e8, dram=1e6, l2=4e6)] * 4],
        [*estimate(1e8, 4e5, calls=10), *[kernel(fp32=1e8, dram=4e5, l2=2e6)] * 10],
    ),
    "first-sample": ([step(0.5, 0.01, 0.011, 0.012)], [step(0.02, 0.01, 0.011, 0.012)]),
    # One kernel of 0.1 ms.
    "wall-time": ([GOOD, step(0.02)], [GOOD, step(2e-4)]),
    "profiled-slower": ([GOOD, step(8e-5)], [GOOD, step(1e-4)]),
    # Further ways to make mistakes that typed figures show too.
    "above-roof": ([kernel(fp32=1e9, dram=1e6, l2=4e6)], [GOOD]),  # 10 TFLOP/s of 8.1
    "time-below-launch": (
        [kernel(seconds=1e-7, fp32=1e4, dram=1e3, l2=4e3)],
        [kernel(seconds=2e-6, fp32=1e4, dram=1e3, l2=4e3)],
    ),
    "identical-measurements": (
        [step(0.011, 0.012, 0.013), step(0.011, 0.012, 0.013, case=TWO)],
        [step(0.011, 0.012, 0.013), step(0.011, 0.012, 0.014, case=TWO)],
    ),
    # 1 GFLOP at 8.1 TFLOP/s is 0.123 ms.
    "efficiency-above-one": (
        [*estimate(1e9, 4e6, kind="convolution"), step(1e-4)],
        [*estimate(1e9, 4e6), step(1.3e-4)],
    ),
    "first-call": ([*estimate(1e9, 4e6), step(0.5)], [*estimate(1e9, 4e6), step(2e-4)]),
    "flops-low": (
        [*estimate(1e9, 4e6, kind="convolution"), kernel(fp32=5e8, dram=4e6, l2=8e6)],
        [*estimate(1e9, 4e6), kernel(fp32=1.1e9, dram=4e6, l2=8e6, seconds=2e-4)],
    ),
    # 30 MB of weights and 15 of inputs are more than 4 MiB of cache.
    "bytes-below-compulsory": (
        [*estimate(1e9, 6e7), kernel(fp32=1e9, dram=2e7, l2=6e7, seconds=1e-3)],
        [*estimate(1e9, 6e7), kernel(fp32=1e9, dram=6e7, l2=9e7, seconds=1e-3)],
    ),
    "memory-above-capacity": (
        [step(0.1, memory=Memory(peak=20_000_000_000))],
        [step(0.1, memory=Memory(peak=15_000_000_000))],
    ),
    "impossible-value": ([kernel(seconds=0.0, dram=1e6, l2=4e6)], [GOOD]),
    "flops-unknown": ([GOOD, lacking("elementwise")], [GOOD, kernel("elementwise", fp32=1e6, dram=1e6, l2=4e6)]),
    "metric-unavailable": ([replace(GOOD, notes=(NO_VALUE,))], [replace(GOOD, notes=("the SM clock was 1 GHz",))]),
    "start-up-profiled": (
        [GOOD, kernel("void distribution_elementwise_grid_stride_kernel<float, 4>", fp32=1e6, dram=1e6, l2=4e6)],
        [GOOD, kernel("void fused_dropout_kernel_vec<float>", fp32=1e6, dram=1e6, l2=4e6)],
    ),
}


def test_no_algorithm_has_fewer_products_than_a_plain_product() -> None:
    # 1 GFLOP at 8.1 TFLOP/s is 0.123 ms, and half of it is not counted: a convolution may do that, a product may not.
    assert codes(*estimate(1e9, 4e6), step(1e-4)) == ("above-roof",)
    assert codes(*estimate(1e9, 4e6), kernel(fp32=5e8, dram=4e6, l2=8e6, seconds=2e-4)) == ("flops-uncounted",)


@pytest.mark.parametrize("code", RECORDED)
def test_a_mistake_is_found(code: str) -> None:
    assert code in codes(*RECORDED[code][0])


@pytest.mark.parametrize("code", RECORDED)
def test_without_the_mistake_there_is_no_finding_at_all(code: str) -> None:
    assert codes(*RECORDED[code][1]) == ()


@pytest.mark.parametrize(
    ("times", "origin", "expected"),
    [
        (10, "datasheet", ("device-off",)),
        (10, "measured", ("device-off",)),
        (1.3, "datasheet", ()),  # a clock
        (0.1, "datasheet", ("device-off",)),
        (0.1, "measured", ()),  # what a kernel reached
    ],
)
def test_a_device_of_a_file_with_other_rates_than_the_catalogues(
    times: float, origin: CeilingOrigin, expected: tuple[str, ...]
) -> None:
    ceilings = tuple(replace(ceiling, rate=times * ceiling.rate, origin=origin) for ceiling in T4.ceilings)
    records = RecordSet([step(0.1)], devices={T4.name: replace(T4, ceilings=ceilings)})
    findings = examine(records=records)
    assert findings.codes == expected
    assert all(finding.evidence["ratio"] == pytest.approx(times) for finding in findings)


def test_every_code_is_tested() -> None:
    assert {*TYPED, *RECORDED, "device-off", "slower-than-expected", "faster-than-expected"} == set(CHECKS)


def mistaken(code: str, folder: Path) -> Iterator[Context]:
    """The samples of a code, typed and recorded."""
    if code in RECORDED:
        records = RecordSet(RECORDED[code][0], devices={T4.name: T4})
        yield Context(figures=tuple(recorded(records)), records=records, devices=records.devices)
    if code in TYPED:
        path = folder / "figures.csv"
        path.write_text("\n".join([HEADER, *TYPED[code][0]]))
        yield Context(figures=tuple(read_figures(path)))


@pytest.mark.parametrize("code", CHECKS)
def test_a_rule_without_its_inputs_has_nothing_to_say(code: str, tmp_path: Path) -> None:
    for context in mistaken(code, tmp_path):
        left_out = {check.rule for check in CHECKS.values() if not check.inputs & context.inputs}
        assert left_out
        assert [doubt for rule in left_out for doubt in rule(context)] == []


def test_causes_that_are_not_their_sum() -> None:
    parts = {"parameters": 40, "buffers": 0, "inputs": 10, "activations": 30, "gradients": 0, "optimizer": 0}
    for temporaries, expected in ((20, ()), (10, ("total-off",))):
        memory = Memory(peak=100, **parts, kv_cache=0, temporaries=temporaries)
        assert codes(Record(case=CASE, source="estimate", scope="model", memory=memory)) == expected


def test_a_whole_that_is_not_the_sum_of_its_kernels() -> None:
    for flops, expected in ((8e8, ()), (9e8, ("total-off",))):
        work = Work(flops={"vector.fp32": flops}, bytes={"dram": 2e6}, origin="executed")
        whole = Record(case=CASE, source="counters", scope="model", work=work)
        assert codes(GOOD, GOOD, whole) == expected


def test_a_device_is_busy_at_least_as_long_as_one_kernel() -> None:
    # Two kernels of 100 us at the same time are 100 us of busy time, and never 50 us.
    launches = [kernel(name, seconds=1e-4, fp32=1e6) for name in ("one", "other")]
    launches = [replace(each, source="profile", work=None, phase=None) for each in launches]
    for seconds, expected in ((1e-4, ()), (5e-5, ("total-off",))):
        busy = Timing(samples=(seconds,), origin="profiler")
        assert codes(*launches, Record(case=CASE, source="profile", scope="model", busy=busy)) == expected


def test_a_first_sample_after_a_cold_call_is_warm() -> None:
    timing = Timing(samples=(0.5, 0.01, 0.011, 0.012), origin="monotonic", cold=2.0)
    assert codes(Record(case=CASE, source="measure", scope="model", phase="forward", timing=timing)) == ()


def test_a_lower_bound_is_not_held_against_the_algorithm() -> None:
    # The reader says that tensor operations were not collected: the total is no count.
    work = Work(flops={"vector.fp32": 1e6}, bytes={"dram": 4e6}, origin="executed", missing=frozenset({"tensor"}))
    record = Record(case=CASE, source="counters", scope="kernel", name="gemm", phase="forward", work=work)
    assert {"flops-uncounted", "flops-low"}.isdisjoint(codes(*estimate(1e9, 4e6), record))


def test_work_that_the_user_stated_is_no_count() -> None:
    stated = Work(flops={"vector.fp32": 1e6}, bytes={"dram": 4e6}, origin="stated")
    record = Record(case=CASE, source="counters", scope="kernel", name="mine", phase="forward", work=stated)
    assert "flops-low" not in codes(*estimate(1e9, 4e6), record)


def test_a_compiled_step_may_have_fewer_launches_than_operations() -> None:
    compiled = Case(model="mine", device=T4.name, batch=4, options=(("compile", True),))
    kernels = [kernel(fp32=1e9, dram=4e6, l2=8e6, seconds=2e-4, case=compiled)]
    assert codes(*estimate(1e8, 4e5, calls=10, case=compiled), *kernels) == ()


def test_products_whose_tensor_operations_were_counted_nowhere() -> None:
    assert codes(GOOD, lacking("sm80_xmma_gemm")) == ("kernel-without-flops", "flops-unknown")
    tensor = replace(GOOD, work=Work(flops={"matmul.fp16": 4e8}, bytes={"dram": 1e6, "l2": 4e6}, origin="executed"))
    assert codes(tensor, lacking("sm80_xmma_gemm")) == ("flops-unknown",)  # others were seen: another counter lacks


def test_a_file_that_counts_no_flops_lacks_none() -> None:
    assert codes(lacking("copy"), lacking("gemm")) == ()


@pytest.mark.parametrize("seconds", [0.0, 1e-7])
def test_a_time_below_a_launch_on_a_device_that_nobody_knows(seconds: float) -> None:
    unknown = Case(model="mine", dtype="as-is")
    assert "time-below-launch" in codes(kernel(case=unknown, seconds=seconds, fp32=1e4, dram=1e3, l2=4e3))


def test_a_profile_that_ended_early_is_told_beside_the_findings() -> None:
    said = "the profile is partial, a total over it is too small: ncu reports 'LaunchFailed'"
    found = examine(records=RecordSet([replace(GOOD, notes=(said,))], devices={T4.name: T4}))
    assert [*found] == []
    assert any(note.endswith(said) for note in found.notes)


def test_a_stated_bandwidth_of_a_device_whose_own_is_unknown_is_left_alone() -> None:
    toy = device(dram=None)
    stated = ReportedFigure(quantity="bandwidth", value=1e12, device=toy.name)
    assert examine([stated], devices={toy.name: toy}).codes == ()


def test_findings_name_kernels_shortly_and_files_have_all_of_a_name() -> None:
    arguments = "at::Functor<(int)4, float(*)(long)>, " * 90
    long = f"void at::native::<unnamed>::distribution_kernel<float, {arguments}4>"
    mangled = f"_ZN7cutlass6Kernel{'I16gemm_f16_128x128' * 20}EvNT_6ParamsE"  # as a tool without demangling writes it
    found = examine(records=RecordSet([GOOD, kernel(long, fp32=1e6, dram=1e6, l2=4e6), lacking(mangled)], devices={}))
    shown = findings_text(found, "table", width=80)
    assert "at::" not in shown
    assert "distribution_kernel<...>" in shown
    assert "ZN7cutlass" in shown
    assert len(shown.splitlines()) < 40
    whole = findings_text(found, "json") + findings_text(found, "csv")
    assert whole.count(long) == whole.count(mangled) == 2


@pytest.mark.parametrize(
    "text",
    [
        "resnet18 b=4 (estimate): 1.0 GB (weights and all of the inputs) is < 2.0 GB and > 0.5 GB",
        "/data/figures of (a long folder name)/table.csv:7",
        "gemm<float, 4>(int)",
        "half a name<float, ",
    ],
)
def test_other_text_of_findings_stays(text: str) -> None:
    assert with_short_names(text) == text
