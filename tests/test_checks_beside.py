"""Reported figures beside ours: on records made by hand, so that every number can be derived here."""

from __future__ import annotations

from pathlib import Path

import pytest

import rooflens as rl
from rooflens.checks import Finding
from rooflens.records import Case, Memory, Phase, Record, Source, Timing, Work
from rooflens.records.work import Origin
from rooflens.report.render import render
from rooflens.report.reported_figures import figures_tables
from rooflens.reported import ComparedFigure, ReportedFigure, compare_figures, read_figures

T4, H200 = rl.device("t4"), rl.device("h200")


def record(
    case: Case,
    phase: Phase | None,
    *,
    source: Source = "estimate",
    matmul: float | None = None,
    dram: float = 0.0,
    seconds: float | None = None,
    peak: int | None = None,
    parameters: int | None = None,
) -> Record:
    """One record of a case: work of one unit, a time, or what the model needs."""
    origin: Origin = "executed" if source == "counters" else "algorithmic"
    return Record(
        case=case,
        source=source,
        scope="model" if matmul is None else "op",
        phase=phase,
        work=None if matmul is None else Work(flops={"matmul.fp32": matmul}, bytes={"dram": dram}, origin=origin),
        timing=None if seconds is None else Timing(samples=(seconds,), origin="cuda-events"),
        memory=None if peak is None else Memory(peak=peak),
        parameters=parameters,
    )


def case(device: str | None = T4.name, *, mode: str = "inference", dtype: str = "fp32", **more: object) -> Case:
    return Case(model="net", device=device, batch=8, mode=mode, dtype=dtype, options=tuple(sorted(more.items())))  # type: ignore[arg-type]


def figure(quantity: str, value: float, **more: object) -> ReportedFigure:
    said: dict[str, object] = {"model": "net", "device": "t4", "batch": 8, "dtype": "fp32", "phase": "forward"}
    return ReportedFigure(quantity=quantity, value=value, **(said | more))  # type: ignore[arg-type]


def only(figures: list[ReportedFigure], records: list[Record], **more: object) -> ComparedFigure:
    (found,) = compare_figures(figures, rl.RecordSet(records, devices={T4.name: T4, H200.name: H200}), **more)  # type: ignore[arg-type]
    return found


INFERENCE = [
    # 4 GFLOP at 8.1 TFLOP/s take 494 us, 160 MB at 320 GB/s take 500 us: the bound is 500 us.
    record(case(), "forward", matmul=4e9, dram=160e6),
    record(case(), None, peak=10_000_000, parameters=1_000_000),
]
TRAIN = [
    record(case(mode="train"), "forward", matmul=4e9, dram=160e6),
    record(case(mode="train"), "backward", matmul=7e9, dram=320e6),
    record(case(mode="train"), None, peak=50_000_000),
]


@pytest.mark.parametrize(
    ("quantity", "value", "ours"),
    [
        ("flops", 2e9, 4e9),
        ("counted_flops", 1e9, 4e9),
        ("bytes", 80e6, 160e6),
        ("intensity", 50.0, 25.0),
        ("time", 2e-3, 500e-6),
        ("estimated_time", 250e-6, 500e-6),
        ("performance", 1e12, 8e12),
        ("memory", 20e6, 10e6),
        ("allocated_memory", 20e6, 10e6),
        ("parameters", 2e6, 1e6),
    ],
)
def test_a_figure_of_a_case(quantity: str, value: float, ours: float) -> None:
    found = only([figure(quantity, value)], [*TRAIN, *INFERENCE])
    assert found.ours is not None
    assert found.ours.value == pytest.approx(ours)
    assert found.ratio == pytest.approx(value / ours)
    assert not found.why


@pytest.mark.parametrize(
    ("quantity", "dtype", "ours"),
    [("peak", "fp32", 8.1e12), ("peak", "fp16", 65e12), ("bandwidth", "", 320e9), ("ridge", "fp16", 65e12 / 320e9)],
)
def test_a_figure_of_a_device_is_held_against_the_catalogue(quantity: str, dtype: str, ours: float) -> None:
    found = only([figure(quantity, 1.0, model="", batch=None, phase="", dtype=dtype)], [])
    assert found.ours is not None
    assert found.ours.value == pytest.approx(ours)


def test_a_train_figure_spans_forward_and_backward() -> None:
    found = only([figure("flops", 11e9, phase="train")], TRAIN)
    assert found.ratio == pytest.approx(1.0)
    ratio = only([figure("flop_ratio", 3.0, phase="forward:backward", device="cpu")], TRAIN)
    assert ratio.ours is not None
    assert ratio.ours.value == pytest.approx(4 / 7)
    # Forward takes 500 us; in backward 7 GFLOP at 8.1 TFLOP/s take 864 us, and 320 MB at 320 GB/s 1 ms.
    times = only([figure("time_ratio", 1.0, phase="forward:backward")], TRAIN)
    assert times.ours is not None
    assert times.ours.value == pytest.approx(0.5)


def test_forward_is_part_of_a_training_step_but_its_memory_is_not() -> None:
    assert only([figure("flops", 4e9)], TRAIN).ratio == pytest.approx(1.0)
    found = only([figure("memory", 50e6)], TRAIN)
    assert found.ours is None
    assert found.why == "the study holds no such case"


def test_the_dtype_of_an_unpatched_script_comes_before_fp32() -> None:
    default = record(case(dtype="default"), "forward", matmul=4e9, dram=320e6)
    found = only([figure("bytes", 320e6)], [*INFERENCE, default])
    assert found.ratio == pytest.approx(1.0)
    assert found.ours is not None
    assert found.ours.of == "compulsory DRAM bytes, default inference"


def test_times_need_the_device_of_the_figure() -> None:
    found = only([figure("time", 1e-3, device="v100-sxm2-16gb")], INFERENCE)
    assert found.ours is None


def test_a_measurement_on_another_device_stands_beside_but_is_not_ours() -> None:
    timed = record(case(H200.name), "forward", source="measure", seconds=2e-4)
    found = only([figure("time", 1e-3)], [*INFERENCE, timed])
    assert found.ratio == pytest.approx(2.0)
    assert found.measured is not None
    assert found.measured.value == pytest.approx(2e-4)
    assert "h200" in found.measured.of


def test_fp32_on_a_device_without_tf32_is_no_tf32() -> None:
    timed = [
        record(case(H200.name, dtype=dtype), "forward", source="measure", seconds=seconds)
        for dtype, seconds in (("fp32", 3e-4), ("tf32", 1e-4))
    ]
    on_t4, on_a100 = (only([figure("time", 1e-3, device=name)], timed).measured for name in ("t4", "a100-sxm4-40gb"))
    assert on_t4 is not None
    assert on_a100 is not None
    assert (on_t4.value, on_a100.value) == (3e-4, 1e-4)


def test_a_word_for_a_machine_means_what_it_turned_out_to_be() -> None:
    step = Case(model="net", device="some-cpu", batch=8, mode="train")
    timed = [
        record(step, "forward", source="measure", seconds=1.0),
        record(step, "backward", source="measure", seconds=4.0),
    ]
    wanted = figure("time_ratio", 0.5, phase="forward:backward", device="cpu")
    assert only([wanted], timed, aliases={"cpu": frozenset({"some-cpu"})}).ratio == pytest.approx(2.0)
    unknown = only([wanted], timed)
    assert unknown.ours is None
    assert unknown.why == "nothing was recorded on a cpu, and no source gives its rates"
    another = figure("time_ratio", 0.5, phase="forward:backward", device="cpu", model="other")
    found = only([another], timed, aliases={"cpu": frozenset({"some-cpu"})})
    assert found.why == "the study holds no such model"


def test_counters_know_no_phases_so_only_a_whole_step_is_compared() -> None:
    whole = record(case(H200.name, mode="train", optimizer="none"), None, source="counters", matmul=22e9, dram=1.0)
    step = only([figure("counted_flops", 11e9, phase="train")], [*TRAIN, whole])
    assert step.measured is not None
    assert step.measured.value == pytest.approx(22e9)
    assert only([figure("counted_flops", 4e9)], [*TRAIN, whole]).measured is None


def test_image_sizes_are_told_apart_and_a_models_own_needs_no_word() -> None:
    own = Case(model="resnet18", batch=1)
    small = Case(model="resnet18", batch=1, options=(("img_size", 112),))
    records = [record(own, "forward", matmul=4e9, dram=1.0), record(small, "forward", matmul=1e9, dram=1.0)]
    for image, ours in ((224, 4e9), (None, 4e9), (112, 1e9)):
        found = only([figure("flops", 4e9, model="resnet18", batch=1, device="", image=image)], records)
        assert found.ours is not None
        assert found.ours.value == ours


def test_findings_go_with_their_line_only() -> None:
    def finding(line: int) -> Finding:
        subject = f"r.csv, line {line}: net flops"
        return Finding(code=f"code-{line}", severity="error", subject=subject, message="", evidence={}, remedy="")

    found = only([figure("flops", 4e9, place="r.csv, line 1")], INFERENCE, findings=[finding(n) for n in (1, 11, 12)])
    assert found.codes == ("code-1",)


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        (figure("memory", 1.0, batch=None), "the batch is not stated"),
        (figure("failure", 1.0), "a failure has no number"),
        (figure("flops", 1.0, model="other"), "the study holds no such model"),
        (figure("peak", 1.0, device="geforce-256"), "no source gives geforce-256 such a rate"),
        (figure("correlation flops-latency", 0.8), "too few models have a time"),
    ],
)
def test_what_has_no_number_of_ours_says_why(asked: ReportedFigure, why: str) -> None:
    found = only([asked], INFERENCE)
    assert (found.ours, found.ratio, found.why) == (None, None, why)


def test_a_correlation_is_the_median_over_the_settings_of_its_device() -> None:
    # FLOP rise with the time in one batch (rho 1), and fall in the other (rho -1): the median is 0.
    records = [
        record(Case(model=f"m{n}", device=T4.name, batch=batch), "forward", matmul=n * 1e12, dram=1.0)
        for n in (1, 2, 3)
        for batch in (1, 2)
    ]
    timed = [
        record(
            Case(model=f"m{n}", device=T4.name, batch=batch),
            "forward",
            source="measure",
            seconds=float(n if batch == 1 else 4 - n),
        )
        for n in (1, 2, 3)
        for batch in (1, 2)
    ]
    asked = figure("correlation flops-latency", 0.5, model="all", batch=None)
    for extra, ours in (([], 1.0), (timed, 0.0)):
        held = rl.RecordSet([*records, *extra], devices={T4.name: T4})
        (found,) = compare_figures([asked], held, findings=(), aliases={})
        assert found.ours is not None
        assert found.ours.value == pytest.approx(ours)


def test_a_correlation_on_a_machine_without_rates_takes_the_work_of_any_device_and_stays_of_its_kind() -> None:
    # FLOP rise with the times on the CPU (rho 1) and fall with those on the H200 (rho -1).
    records = [
        record(Case(model=f"m{n}", device=name), "forward", matmul=n * 1e12, dram=1.0)
        for n in (1, 2, 3)
        for name in (None, T4.name, H200.name)
    ]
    timed = [
        record(Case(model=f"m{n}", device=name), "forward", source="measure", seconds=float(seconds))
        for n in (1, 2, 3)
        for name, seconds in (("some-cpu", n), (H200.name, 4 - n))
    ]
    held = rl.RecordSet([*records, *timed], devices={T4.name: T4, H200.name: H200})
    figures = [figure("correlation flops-latency", 0.5, model="all", batch=None, device=name) for name in ("cpu", "t4")]
    on_cpu, on_t4 = compare_figures(figures, held, findings=(), aliases={"cpu": frozenset({"some-cpu"})})
    assert on_cpu.ours is not None
    assert on_cpu.ours.value == pytest.approx(1.0)
    assert on_cpu.ours.of == "Spearman with the time on some-cpu"
    assert on_cpu.measured is None  # a GPU is no CPU
    assert on_t4.ours is not None
    assert on_t4.ours.value == pytest.approx(1.0)  # bounds rise with the FLOP
    assert on_t4.measured is not None
    assert on_t4.measured.value == pytest.approx(-1.0)
    assert "on h200-sxm-141gb" in on_t4.measured.of


def test_tables_name_what_is_compared_and_what_is_not(tmp_path: Path) -> None:
    path = tmp_path / "figures.csv"
    path.write_text(
        "model,device,batch,dtype,phase,quantity,value,unit\n"
        "net,t4,8,fp32,forward,time,1,ms\n"
        "net,t4,8,fp32,forward,failure,,\n"
        "net,,8,fp32,forward,flops,2,GFLOP\n"
    )
    records = rl.RecordSet(INFERENCE, devices={T4.name: T4})
    compared, rest = figures_tables(compare_figures(read_figures(path), records))
    text = render(compared, "md")
    assert "| time | net | t4 | 8 | forward | 1.000 ms | 500.0 us | 2 | bound, fp32 inference |" in text
    assert "| flops | net | - | 8 | forward | 2.000 GFLOP | 4.000 GFLOP | 0.5 |" in text
    assert "a failure has no number" in render(rest, "md")
    assert "0.001,0.0005,2.0" in render(compared, "csv")
