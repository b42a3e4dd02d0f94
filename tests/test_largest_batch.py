"""The largest batch that fits: small cases by arithmetic, the search by brute force, and what was tried on a card."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st
from tests.onnx_graphs import node, save, weight
from torch import nn

import rooflens as rl
from rooflens import trace as tracing
from rooflens.capacity.search import largest
from rooflens.cli.main import cli
from rooflens.devices import catalogue
from rooflens.devices.reserves import Reserve, needed, one_of
from rooflens.errors import AmbiguousResult, DataDependent, InvalidValue, MissingCeiling, UnitError
from rooflens.models import Step
from rooflens.records import Device, Fact, Memory, Trace
from rooflens.results import Fit, Fits
from rooflens.results.fits import CAP

MEASURED = Path(__file__).parents[1] / "benchmarks" / "results" / "largest-batch-h200.json"
KIB = 1024
WEIGHT = 256 * KIB
"""Bytes of a 256 x 256 matrix in fp32."""
ROW = KIB
"""Bytes of 256 numbers in fp32: two blocks of 512, so that nothing is rounded."""
CONTEXT, CUBLAS = 737_000_000, 8_519_680
"""Of a T4. Products of forward and of backward have a workspace each."""


def card(memory: float | None, name: str = "t4") -> Device:
    """A card with another memory."""
    found = rl.device(name)
    facts = {key: fact for key, fact in found.facts.items() if key not in ("memory", "torch_memory")}
    return replace(found, facts=facts if memory is None else facts | {"memory": Fact(value=memory)})


def rows(batch: int) -> torch.Tensor:
    return torch.empty(batch, 256)


def square() -> nn.Linear:
    return nn.Linear(256, 256, bias=False)


def on(memory: float, **options: Any) -> Fit:
    (fit,) = rl.largest_batch(square(), inputs=rows, device=card(memory), **options)
    return fit


# By arithmetic ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("batch", [1, 2, 7, 32, 33, 1000, 12345])
def test_a_matrix_takes_its_weight_and_two_rows_per_sample(batch: int) -> None:
    exact = WEIGHT + 2 * ROW * batch
    assert on(exact, reserve=0).batch == batch
    assert on(exact + 2 * ROW - 1, reserve=0).batch == batch
    assert on(exact + 5_000_000, reserve="5 MB").batch == batch


class Thirds(nn.Module):
    """Holds 40 rows of weights and 30 of buffers, and gives its input back."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(40, 256))
        self.register_buffer("table", torch.zeros(30, 256))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x


def test_what_is_less_than_half_is_not_most_of_it() -> None:
    # With an input of 30 rows the weights are 40 of 100: the largest part, and not most.
    fits = rl.largest_batch(
        Thirds(), inputs=lambda batch: torch.empty(30 * batch, 256), device=card(50 * ROW), reserve=0
    )
    (failed,) = fits.records.failures
    assert f"; the largest part is parameters, {40 * ROW / 1000:.2f} kB" in failed.message


def test_the_peak_of_the_answer_by_cause() -> None:
    fit = on(WEIGHT + 2 * ROW * 100, reserve=0)
    assert fit.held is not None
    assert (fit.held.parameters, fit.held.inputs, fit.held.temporaries) == (WEIGHT, 100 * ROW, 100 * ROW)
    assert fit.needed == fit.held.peak == fit.memory
    assert fit.cause == "parameters"


def test_room_for_context_workspaces_and_fragmentation() -> None:
    # Inference: besides fixed amounts 55 % of the temporaries, which are the output: one row per sample.
    assert on(CONTEXT + CUBLAS + WEIGHT + 2 * ROW * 1000 + 550 * ROW).batch == 1000
    assert on(CONTEXT + CUBLAS + WEIGHT + 2 * ROW * 1000 + 550 * ROW - 1).batch == 999


def test_training_needs_room_for_gradients_and_momentum() -> None:
    # At the peak, in the optimizer: weight, momentum, gradient, the gradient with weight decay, rows, outputs, and a
    # block for the loss. 4 % of what comes and goes stays free: outputs, loss, the gradient with weight decay.
    outputs = 100_000 * ROW + 512
    exact = CONTEXT + 2 * CUBLAS + 4 * WEIGHT + 100_000 * ROW + outputs + math.ceil(0.04 * (outputs + WEIGHT))
    assert on(exact - 1, mode="train").batch == 99_999
    fit = on(exact, mode="train")
    assert fit.batch == 100_000
    assert fit.held is not None
    assert (fit.held.parameters, fit.held.gradients, fit.held.optimizer) == (WEIGHT, WEIGHT, WEIGHT)


def test_fp32_convolutions_in_training_leave_room_for_cudnn() -> None:
    fits = {dtype: rl.largest_batch("resnet18", device="a30", dtype=dtype, mode="train") for dtype in ("fp32", "tf32")}
    held = {dtype: fit.answers[0].held for dtype, fit in fits.items()}
    assert held["fp32"] is not None
    assert held["tf32"] is not None
    assert (held["fp32"].workspace or 0) > (held["tf32"].workspace or 0)  # Winograd
    assert (fits["fp32"].batch or 0) < (fits["tf32"].batch or 0)


@pytest.fixture
def llama(tmp_path: Path) -> str:
    """Two layers with keys and values of 2 heads of 16."""
    config = {
        "model_type": "llama",
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "vocab_size": 100,
    }
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config))
    return f"hf:{path}"


def test_decode_counts_the_cache(llama: str) -> None:
    # Per token, layer and sample keys and values take 2 * 16 numbers of 4 B each. When the last layer's values are made
    # longer, all four tensors are so already. The old values are still there, a temporary of 8191 tokens.
    (fit,) = rl.largest_batch(llama, seq_len=8191, mode="decode", device=card(1e9), reserve=0)
    assert fit.batch is not None
    assert fit.held is not None
    assert fit.held.kv_cache == pytest.approx(4 * 8192 * 2 * 16 * 4 * fit.batch, abs=512)
    cache = (4 * 8192 + 8191) * 2 * 16 * 4
    assert fit.cause == "kv_cache"
    # Little else grows with the batch: logits, and what one token is inside of a layer.
    assert 0.995 * (1e9 / cache) < fit.batch < 1e9 / cache


def test_prefill_counts_the_cache(llama: str) -> None:
    short, long = (
        rl.largest_batch(llama, seq_len=tokens, mode="prefill", device="t4").answers[0] for tokens in (512, 1024)
    )
    for fit, tokens in ((short, 512), (long, 1024)):
        assert fit.held is not None
        assert fit.batch is not None
        assert fit.held.kv_cache == 4 * tokens * 2 * 16 * 4 * fit.batch
    assert (long.batch or 0) < (short.batch or 0)


# The answer is verified ---------------------------------------------------------------------------------------------


MODELS = """
import torch
from torch import nn

def mobile(batch=1):
    wide = [nn.Conv2d(3, 16, 3, 2), nn.BatchNorm2d(16), nn.Hardswish()]
    deep = [nn.Conv2d(16, 16, 5, padding=2, groups=16), nn.BatchNorm2d(16), nn.Hardswish(), nn.Conv2d(16, 40, 1)]
    end = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(40, 10)]
    return nn.Sequential(*wide, *deep, *end), torch.randn(batch, 3, 224, 224)

def attending(batch=1):
    return nn.TransformerEncoderLayer(256, 4, 1024, batch_first=True), torch.randn(batch, 197, 256)
"""


@pytest.mark.parametrize(
    ("model", "options"),
    [
        ("resnet18", {}),
        ("mobile", {"mode": "train", "dtype": "amp-bf16"}),
        ("attending", {"mode": "train", "optimizer": "adamw"}),
    ],
)
def test_the_answer_fits_and_one_more_does_not(model: str, options: dict[str, Any], tmp_path: Path) -> None:
    if model != "resnet18":
        (tmp_path / "models.py").write_text(MODELS)
        model = f"{tmp_path}/models.py:{model}"
    (fit,) = rl.largest_batch(model, device="rtx-3090", **options)
    assert fit.batch is not None
    assert fit.memory == int(23.68 * 2**30)  # as torch has told
    estimates = rl.estimate(model, batch=[fit.batch, fit.batch + 1], device="rtx-3090", **options)
    fitting, beyond = (estimates.where(batch=batch).memory for batch in (fit.batch, fit.batch + 1))
    assert fitting == fit.held
    assert fitting is not None
    assert beyond is not None
    assert needed(fitting, fit.memory, fit.reserves) <= fit.memory < needed(beyond, fit.memory, fit.reserves)


@given(
    lines=st.lists(st.tuples(st.integers(0, 10**10), st.integers(0, 10**6)), min_size=1, max_size=4),
    block=st.sampled_from([1, 512, 2**21]),
    answer=st.integers(0, 5000),
    known=st.lists(st.integers(1, 5000), max_size=5),
    more=st.floats(0, 1),
)
def test_the_search_finds_what_brute_force_finds(
    lines: list[tuple[int, int]], block: int, answer: int, known: list[int], more: float
) -> None:
    """Convex needs, rounded up to blocks: rising lines of which the highest counts."""
    asked: list[int] = []

    def need(batch: int) -> int:
        return max(-(-(fixed + slope * batch) // block) * block for fixed, slope in lines)

    def counted(batch: int) -> int:
        asked.append(batch)
        return need(batch)

    limit = need(answer) + int(more * (need(answer + 1) - need(answer)))
    cap = 5000
    expected = max((batch for batch in range(1, cap + 1) if need(batch) <= limit), default=0)
    assert largest(counted, limit, known, cap) == expected
    assert len(asked) == len(set(asked)) <= 3 * cap.bit_length() + len(set(known))


def test_the_search_along_a_line_takes_five_batches() -> None:
    asked: list[int] = []

    def need(batch: int) -> int:
        asked.append(batch)
        return 1_000_000 + 7_024_640 * batch

    assert largest(need, 1_000_000 + 7_024_640 * 2176 + 5) == 2176
    assert len(asked) <= 5


def test_a_larger_memory_never_gives_a_smaller_batch() -> None:
    devices = [card(gigabytes * 1e9, "t4") for gigabytes in range(1, 40)]
    named = [replace(device, name=f"card-{n}") for n, device in enumerate(devices)]
    batches = [fit.batch or 0 for fit in rl.largest_batch(square(), inputs=rows, device=named, mode="train")]
    assert batches == sorted(batches)


def test_beyond_the_cap_the_answer_is_at_least() -> None:
    fit = on(1e13)
    assert (fit.batch, fit.capped) == (CAP, True)
    assert f">= {CAP}" in rl.table(Fits([fit], rl.RecordSet(())))


def test_samples_per_second_of_an_unknown_batch_are_unknown_and_not_zero() -> None:
    fit = on(1e13)
    assert fit.throughput
    assert replace(fit, case=replace(fit.case, batch=None)).throughput is None


# No batch -----------------------------------------------------------------------------------------------------------


def test_not_even_one_sample_fits() -> None:
    # VGG-16 has 138,357,544 parameters: 553 MB.
    fits = rl.largest_batch("vgg16", device=card(1e9))
    (fit,) = fits
    assert (fit.batch, fit.fits, fit.cause) == (0, False, "parameters")
    assert fit.held == rl.estimate("vgg16", batch=1, device="t4").memory
    assert (fit.needed or 0) > 1e9
    assert fit.throughput is None
    assert fits.batch == 0
    assert len(fits.records) == 0
    (failed,) = fits.records.failures
    assert (failed.kind, failed.case.batch) == ("out of memory", 1)
    # 579.7 MB, context 737 MB, cuBLAS 8.52 + 1.05 MB, 55 % of 25.7 MB.
    for words in ("needs 1.340 GB", "1.000 GB", "parameters, 553.4 MB"):
        assert words in failed.message
    assert "! 0" in rl.table(fits)


def test_unknown_memory_is_unknown() -> None:
    fits = rl.largest_batch(square(), inputs=rows, device=[card(None), "l4"])
    unknown, known = fits
    assert (unknown.batch, unknown.fits, unknown.needed, unknown.reason) == (None, None, None, "memory unknown")
    assert known.batch
    assert [failed.kind for failed in fits.records.failures] == ["unsupported"]
    first, second = json.loads(rl.table(fits, format="json"))
    assert (first["batch"], first["fits"], first["memory"], first["peak"]) == (None, None, None, None)
    assert (second["batch"], second["fits"]) == (known.batch, True)
    assert "memory unknown: tesla-t4" in rl.table(fits)


def test_a_named_device_without_a_rate_is_an_error() -> None:
    with pytest.raises(MissingCeiling, match=r"matmul\.bf16"):
        rl.largest_batch("alexnet", device="t4", dtype="bf16")


# Devices ------------------------------------------------------------------------------------------------------------


def test_the_whole_catalogue(monkeypatch: pytest.MonkeyPatch) -> None:
    traced: list[int] = []
    trace = tracing.trace

    def noted(step: Step, **how: Any) -> Trace:
        traced.append(step.args[0].shape[0])
        return trace(step, **how)

    monkeypatch.setattr(tracing, "trace", noted)
    fits = rl.largest_batch("alexnet", device="all")
    assert [fit.name for fit in fits] == [device.name for device in catalogue()]
    answered = [fit for fit in fits if fit.batch]
    amounts = {(fit.memory, fit.reserves) for fit in answered}
    assert len(traced) == len(set(traced)) <= 3 * len(amounts)
    assert len(answered) > 50
    for fit in fits:
        assert (fit.batch is None) == (fit.reason != ""), fit.name
        assert fit.reason in ("", "memory unknown", "no rate for matmul.fp32")
        assert (fit.memory is None) == ("memory" not in fit.device.facts)
    text = rl.table(fits)
    assert "memory unknown: epyc-7763, epyc-9654, graviton3, ryzen-9-3900x" in text
    assert "no rate for matmul.fp32: gaudi-2" in text
    # The die of a K80 and one of the board's two are the same device: its estimate is there once.
    assert len(fits.records.cases) == len({fit.device.name for fit in answered})


def test_several_devices_are_data_parallel() -> None:
    one, two = rl.largest_batch(square(), inputs=rows, device=["l4", "2x l4"], mode="train")
    assert (two.name, two.device, two.count) == ("2x l4", one.device, 2)
    assert (two.batch, two.memory, two.held) == (one.batch, one.memory, one.held)
    assert one.throughput is not None
    assert two.throughput == 2 * one.throughput
    table = rl.table(Fits([two, replace(two, size=1)], rl.RecordSet([])))
    assert "\n2x l4: each device has the whole model" in str(table)


def test_a_board_is_taken_apart() -> None:
    die, count = one_of(rl.device("k80-board"))
    assert (die, count) == (rl.device("k80"), 2)
    half, count = one_of(rl.device("mi250x"))
    whole = rl.device("mi250x")
    assert count == 2
    assert half.name == "instinct-mi250x-both-gcds-one-of-2"
    assert half.facts["memory"].value == whole.facts["memory"].value / 2 == 64e9
    assert half.require("dram").rate == whole.require("dram").rate / 2
    assert one_of(rl.device("3x k80-board")) == (rl.device("k80"), 6)
    assert one_of(rl.device("t4")) == (rl.device("t4"), 1)


def test_the_reserves_name_kinds_and_devices_that_exist() -> None:
    import tomllib

    from rooflens.costs import families
    from rooflens.devices.files import KINDS
    from rooflens.records import MODES, PRECISIONS

    path = Path(rl.__file__).parent / "devices" / "capacity.toml"
    table = tomllib.loads(path.read_text())
    assert table.keys() == {"reserve", "parts"}
    for name, part in table["parts"].items():
        assert part.keys() <= {"count", "one"}
        assert {name, part.get("one", name)} <= {device.name for device in catalogue()}
    known = {"what", "kinds", "vendors", "modes", "only", "bytes", "of_transient", "of_memory", "reference"}
    for entry in table["reserve"]:
        assert entry.keys() <= known
        assert set(entry["kinds"]) <= set(KINDS)
        assert set(entry["vendors"]) <= {device.vendor for device in catalogue()}
        assert set(entry.get("modes", MODES)) <= set(MODES)
        family, _, precision = entry.get("only", "convolution.fp32").partition(".")
        assert family in families()
        assert precision in PRECISIONS
    assert {kind for entry in table["reserve"] for kind in entry["kinds"]} == set(KINDS)


def test_figures_of_another_vendor_are_marked() -> None:
    nvidia, amd = (rl.largest_batch(square(), inputs=rows, device=name).answers[0] for name in ("l4", "mi100"))
    assert all(reserve.verified for reserve in nvidia.reserves)
    assert not any(reserve.verified for reserve in amd.reserves)
    assert "? not verified" in rl.table(Fits([amd], rl.RecordSet(())))
    assert "? not verified" not in rl.table(Fits([nvidia], rl.RecordSet(())))


def test_what_is_left_to_reserve_without_fragmentation_is_said() -> None:
    # The context's 737 MB, cuBLAS's 2 x 8.5 MB and 1 MB for biases are 755.1 MB: 760 in whole tens.
    text = rl.table(rl.largest_batch(square(), inputs=rows, device="t4"), format="md")
    assert "--reserve '760 MB' leaves room for the rest" in text


@pytest.mark.parametrize(("told", "words"), [(True, "what torch sees of it at least"), (False, "the maker's figure")])
def test_notes_say_of_what_the_memory_is_a_figure_and_that_nothing_fits(told: bool, words: str) -> None:
    card = rl.device("t4")
    if not told:
        card = replace(card, facts={key: fact for key, fact in card.facts.items() if key != "torch_memory"})
    notes = " ".join(rl.table(rl.largest_batch("alexnet", device=card, reserve="900 GB")).split())
    assert words in notes
    assert "! not even one sample fits: the peak is that of one" in notes
    assert "the peak of this batch fits" not in notes
    assert "the peak of this batch fits" in rl.table(rl.largest_batch("alexnet", device=card, reserve="15 GB"))


def test_a_reserve_adds_up() -> None:
    reserve = Reserve(what="x", nbytes=10, of_transient=0.5, of_memory=0.1, reference="y")
    held = Memory(peak=100, parameters=40, activations=11, temporaries=20)
    assert reserve.amount(held, 1000) == 10 + 16 + 100
    assert needed(held, 1000, (reserve, reserve)) == 100 + 2 * 126


# Arguments ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: rl.largest_batch(square(), device="t4"), InvalidValue, "inputs=function"),
        (lambda: rl.largest_batch("alexnet", device=[]), InvalidValue, "needs a device"),
        (lambda: rl.largest_batch("alexnet", device=None), InvalidValue, "needs a device"),  # type: ignore[arg-type]
        (
            lambda: rl.largest_batch("alexnet", device=[card(8e9), "t4"]),
            InvalidValue,
            "two different devices are called",
        ),
        (lambda: rl.largest_batch("alexnet", device="t4", reserve=-1), InvalidValue, "0 or more bytes"),
        (lambda: rl.largest_batch("alexnet", device="t4", reserve=math.nan), InvalidValue, "0 or more bytes"),
        (lambda: rl.largest_batch("alexnet", device="t4", reserve=True), InvalidValue, "0 or more bytes"),
        (lambda: rl.largest_batch("alexnet", device="t4", reserve="2 s"), UnitError, "not in B"),
        (lambda: rl.largest_batch(Doubtful(), inputs=rows, device="t4"), DataDependent, "one by one"),
    ],
)
def test_what_cannot_be_answered_is_said(call: Callable[[], Fits], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        call()


class Doubtful(nn.Module):
    """Its branch depends on a value, so that every batch would be run for real."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = square()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.linear(x)
        return y if y.sum().item() > 0 else -y


@pytest.mark.parametrize("first", [1, 2])
def test_a_graph_with_its_batch_built_in_has_no_largest(tmp_path: Path, first: int) -> None:
    nodes = [node("MatMul", "x w", "y")]
    with pytest.raises(InvalidValue, match=r"is built in; export the model with an open first dimension"):
        rl.largest_batch(save(tmp_path, nodes, {"x": (first, 256)}, "y", [weight("w", (256, 256))]), device="t4")
    file = save(tmp_path, nodes, {"x": ("batch", 256)}, "y", [weight("w", (256, 256))])
    device = card(WEIGHT + 2 * ROW * 100)  # as of the module above
    assert rl.largest_batch(file, device=device, reserve=0).batch == 100


def test_several_answers_have_no_single_batch() -> None:
    fits = rl.largest_batch(square(), inputs=rows, device=["t4", "l4"])
    with pytest.raises(AmbiguousResult, match="tesla-t4, l4"):
        fits.batch  # noqa: B018
    assert len(fits) == 2
    assert "tesla-t4: " in repr(fits)
    with pytest.raises(InvalidValue, match="show each apart"):
        rl.table(fits, fits)


# The command --------------------------------------------------------------------------------------------------------


def run(*words: object) -> Result:
    return CliRunner().invoke(cli, ["estimate", *map(str, words)])


def test_the_command_writes_tables_and_records(tmp_path: Path) -> None:
    names = ("t4", "epyc-7763")
    records, table, picture = (tmp_path / f"x.{suffix}" for suffix in ("jsonl", "csv", "svg"))
    outputs = ("-o", records, "-o", table, "-o", picture)
    result = run("alexnet", "--largest-batch", *(word for name in names for word in ("--device", name)), *outputs)
    assert result.exit_code == 0, result.output
    fits = rl.largest_batch("alexnet", device=names)
    assert result.stdout == rl.table(fits)
    assert str(fits.answers[0].batch) in result.stdout
    row, other = csv.DictReader(io.StringIO(table.read_text()))
    assert int(row["batch"]) == fits.answers[0].batch
    parts = ("peak", "workspace", "reserve")
    assert sum(int(row[part]) for part in parts) == int(row["needed"]) <= int(row["memory"])
    assert float(row["throughput"]) == fits.answers[0].throughput
    assert (other["device"], other["batch"], other["reason"]) == ("epyc-7763", "", "memory unknown")
    again = rl.read(records)
    assert [case.batch for case in again.cases] == [fits.answers[0].batch]
    assert again.memory == fits.answers[0].held
    assert len(again.failures) == 1
    assert picture.stat().st_size > 1000
    assert max(map(len, result.stdout.splitlines())) <= 80


def test_what_does_not_fit_is_a_row_and_no_error(tmp_path: Path) -> None:
    device = tmp_path / "small.toml"
    device.write_text(
        'title = "Small"\nvendor = "NVIDIA"\nkind = "gpu"\n[facts]\nmemory = "1 GB"\n[vector]\nfp32 = "1 TFLOP/s"\n'
        '[bandwidth]\ndram = "100 GB/s"\n'
    )
    result = run("vgg16", "--largest-batch", "--device", device, "--format", "json")
    assert result.exit_code == 0
    (row,) = json.loads(result.stdout)
    assert (row["batch"], row["fits"], row["cause"], row["peak_batch"]) == (0, False, "parameters", 1)
    assert row["needed"] > row["memory"] == 1_000_000_000
    # 138,357,544 numbers of 4 B. Rounding to 512 B: the first weight takes 256 more, the first two biases of 64 numbers
    # 256 each, the last one of 1000 numbers 96.
    assert row["parameters"] == 4 * 138_357_544 + 3 * 256 + 96
    assert row["reason"] == "not even one sample fits"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("alexnet", "--largest-batch"), "--largest-batch needs --device"),
        (("alexnet", "--largest-batch", "--device", "t4", "-b", "3"), "leave --batch out"),
        (("alexnet", "--reserve", "2 GB"), "give both"),
    ],
)
def test_wrong_usage(words: tuple[str, ...], message: str) -> None:
    result = run(*words)
    assert result.exit_code == 2
    assert message in result.stderr


# What was tried on a card -------------------------------------------------------------------------------------------


def tried() -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads(MEASURED.read_text())["limits"]
    return rows


def test_every_answer_ran_with_the_allocator_as_it_is() -> None:
    measured = [row for row in tried() if row["allocator"] == "default"]
    assert len(measured) >= 15
    for row in measured:
        assert row["answer"] <= row["runs"], row
        assert row["answer"] > 0.7 * row["runs"], row


def test_without_fragmentation_the_tensors_alone_decide() -> None:
    for row in tried():
        if row["allocator"] != "default":
            assert row["runs"] >= 0.96 * row["batch"], row


@pytest.mark.parametrize("number", [1, 11])
def test_the_answers_are_still_those(number: int) -> None:
    row = tried()[number]
    device = card(row["memory"], "h200")
    fits = rl.largest_batch(row["model"], device=device, dtype=row["dtype"], mode=row["mode"])
    assert fits.batch == pytest.approx(row["answer"], rel=0.01)
    assert (fits.batch or 0) <= row["runs"]
