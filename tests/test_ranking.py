"""Which card, at what batch: numbers by hand, the order, what does not fit, and the table of it."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from click.testing import CliRunner
from tests.ranked_steps import TERA, a_card, relu_on, steps

import rooflens as rl
from rooflens.cli import rank as command
from rooflens.cli.main import cli
from rooflens.compare import DeviceComparison, DeviceRanking, ranked
from rooflens.compare.ranking import ORDERS
from rooflens.devices.price_files import prices_of
from rooflens.errors import AmbiguousDevice, FileError, Incomparable, InvalidValue
from rooflens.machine import find_all
from rooflens.records import Failure
from rooflens.report.ranking import ranking_tables
from rooflens.report.summary import summary
from rooflens.report.table import Entry, Table
from rooflens.report.text_formats import as_json
from rooflens.results import RecordSet

SLOW, FAST = a_card("slow", TERA, watts=100), a_card("fast", 2 * TERA, watts=400)


def order(found: DeviceRanking) -> list[tuple[str | None, int | None]]:
    return [(row.step.device, row.step.batch) for row in found.rows]


def test_numbers_of_a_row_follow_from_the_expected_time() -> None:
    # 100 samples of 8 MB are 0.8 GB: 1 ms at 0.8 of 1 TB/s, half a millisecond at twice the bandwidth.
    found = ranked(steps(relu_on(SLOW), relu_on(FAST)), prices={"slow": 3.6, "fast": 36})
    assert order(found) == [("fast", 100), ("slow", 100)]
    fast, slow = found.rows
    assert fast.time == "predicted"
    assert (fast.value("time"), slow.value("time")) == pytest.approx((0.5e-3, 1e-3))
    assert (fast.value("throughput"), slow.value("throughput")) == pytest.approx((200e3, 100e3))
    assert (fast.value("energy"), slow.value("energy")) == pytest.approx((400 * 0.5e-3 / 100, 100 * 1e-3 / 100))
    # 3.6 an hour are 0.001 a second.
    assert (fast.value("cost"), slow.value("cost")) == pytest.approx((0.01 * 0.5e-3 / 100, 0.001 * 1e-3 / 100))


@pytest.mark.parametrize(
    ("by", "first"), [("throughput", "fast"), ("time", "fast"), ("energy", "slow"), ("cost", "slow")]
)
def test_each_order_has_its_own_first(by: str, first: str) -> None:
    records = steps(relu_on(SLOW), relu_on(FAST))
    assert ranked(records, by=by, prices={"slow": 1, "fast": 5}).rows[0].step.device == first  # type: ignore[arg-type]


@pytest.mark.parametrize(("samples", "below"), [(1, True), (100, False)])
def test_an_expected_time_below_the_bound_is_marked_where_it_is_shown(samples: int, below: bool) -> None:
    # 8 MB from DRAM take 8 us at 1 TB/s; the cache of 10 MB holds a part of them. Of 800 MB it holds nothing.
    card = a_card("round", launch__gap=1e-7)
    records = relu_on(card, samples)
    assert ((records.total().predicted_seconds or 0) < samples * 8e-6) is below
    overview, by_op = rl.table(records), rl.table(records, by="op")
    assert overview.count("  ! ") == (3 if below else 0)  # of the step, the family and the module
    for shown in (rl.table(ranked(records)), overview, by_op):
        assert ("! expected below the bound" in shown) is below
        assert ("  ! " in shown) is below


def test_a_device_stands_at_its_best_batch_that_fits() -> None:
    # Each step costs the host 1 ms: 200 samples give more per second, but do not fit into the small card.
    small = a_card("small", 2 * TERA, memory=10e9, host__operation=1e-3)
    large = a_card("large", TERA, memory=80e9, host__operation=1e-3)
    records = steps(
        *(relu_on(card, batch, peak=batch * 100_000_000) for card in (small, large) for batch in (10, 50, 200))
    )
    found = ranked(records)
    # 50 / 1 ms; on the large card 200 samples take 2 ms.
    assert [(row.step.device, row.step.batch) for row in found.rows if row.best] == [("large", 200), ("small", 50)]
    assert {row.step.device: row.fits for row in found.rows if row.step.batch == 200} == {"small": False, "large": True}
    assert len(found.rows) == 6
    assert order(ranked(records, best_only=True)) == [("large", 200), ("small", 50)]
    assert [row.step.batch for row in ranked(records, by="time").rows if row.best] == [10, 10]


def test_a_device_on_which_nothing_fits_is_last_with_its_smallest_batch() -> None:
    tiny = a_card("tiny", 9 * TERA, memory=4e9, host__operation=1e-3)
    large = a_card("large", host__operation=1e-3)
    records = steps(*(relu_on(card, n, peak=n * 10**9) for card in (tiny, large) for n in (8, 16)))
    assert order(ranked(records, best_only=True)) == [("large", 16), ("tiny", 8)]
    shown = rl.table(ranked(records), width=80)
    assert "no, <= " in shown or "not even 1" in shown
    assert "* 16" in shown
    assert "* 8" not in shown  # it is no answer


@pytest.mark.parametrize(
    ("field", "values"), [("dtype", ("bf16", "amp-bf16")), ("options", ((("img_size", 64),), (("img_size", 96),)))]
)
def test_several_steps_are_ordered_each_by_itself_and_the_table_says_so(field: str, values: tuple[Any, ...]) -> None:
    records = steps(*(relu_on(card, **{field: value}) for value in values for card in (SLOW, FAST)))
    found = ranked(records)
    assert order(found) == [("fast", 100), ("slow", 100)] * 2
    named = "img_size" if field == "options" else field
    assert f"in the order of the expected throughput, each {named} by itself\n" in rl.table(found, width=120)
    assert "by itself" not in rl.table(ranked(steps(relu_on(SLOW), relu_on(FAST))))


def test_counts_stand_in_the_order_of_their_batches_whatever_the_order_of_the_cards() -> None:
    # Each step costs the host 1 ms: the card that holds 16 samples gives more per second than that which holds 8.
    small, large = (a_card(name, memory=size, host__operation=1e-3) for name, size in (("s", 10e9), ("l", 80e9)))
    records = steps(
        *(
            relu_on(card, n, peak=n * 10**9, dtype=dtype)
            for dtype in ("bf16", "amp-bf16")
            for card in (small, large)
            for n in (8, 16)
        )
    )
    found = ranked(records, best_only=True)
    assert [(row.step.dtype, row.step.batch) for row in found.rows] == [
        ("bf16", 16), ("bf16", 8), ("amp-bf16", 16), ("amp-bf16", 8),
    ]  # fmt: skip
    counted, _ = ranking_tables(found)
    assert [entry.value for row in counted.rows for entry in row if entry.value in (8, 16)] == [8, 16] * 2


def test_a_best_batch_is_told_where_a_step_has_several() -> None:
    # Two steps with a batch each: no device has a best one.
    fp32, half = relu_on(SLOW, 8), relu_on(SLOW, 16, dtype="bf16")
    assert ranked(steps(fp32, half)).batches == ()
    assert "best batch" not in rl.table(ranked(steps(fp32, half)), width=120)
    several = ranked(steps(fp32, half, relu_on(SLOW, 32, dtype="bf16")))
    assert several.batches == (16, 32)
    assert "at the device's best batch that fits (*)" in rl.table(several, width=120)


@pytest.mark.parametrize(("peak", "borderline"), [(11e9, False), (12e9, True)])
def test_a_borderline_is_told_below_the_table(peak: float, borderline: bool) -> None:
    # 16 GiB less up to 9 % for ECC and the driver are 15.63 GB at least. Beside the peak stay free 0.74 GB for the
    # context and 0.55 of the activations, which are half of the peak: 14.76 and 16.04 GB are needed.
    made = a_card("card")
    known = rl.device("tesla-p100-sxm2-16gb").facts
    facts = {**made.facts, "memory": known["memory"], "torch_memory": known["torch_memory"]}
    shown = rl.table(ranked(relu_on(replace(made, facts=facts), peak=int(peak))), width=120)
    assert ("fits: borderline, it depends on what the card's driver takes (docs/memory.md)" in shown) is borderline


def test_what_has_no_expected_time_is_last_by_its_bound_and_marked() -> None:
    pair = a_card("pair", 50 * TERA)
    pair = type(pair)(**{**{name: getattr(pair, name) for name in pair.__dataclass_fields__}, "count": 2})
    found = ranked(steps(relu_on(pair), relu_on(SLOW)))
    assert [(row.step.device, row.time) for row in found.rows] == [("slow", "predicted"), ("pair", "bound")]
    shown = rl.table(found, width=100)
    assert "<= " in shown
    assert "no time can be expected of pair, since it is known of single GPUs only: last, by what the" in shown


def test_a_step_that_waits_for_the_host_is_told() -> None:
    slowed = [a_card(name, rate, host__operation=0.01) for name, rate in (("one", TERA), ("two", 9 * TERA))]
    assert "host-bound, so that the card hardly matters: two, one" in rl.table(
        ranked(steps(*map(relu_on, slowed))), width=200
    )
    graphs = ranked(steps(*(relu_on(card, options=(("cuda_graph", True),)) for card in slowed)))
    assert [row.value("time") for row in graphs.rows] == pytest.approx([1e-3 / 9, 1e-3])


def test_an_estimate_from_graphs_says_so_and_has_no_host() -> None:
    relu, x = torch.nn.ReLU(), torch.ones(9)
    made = {way: rl.estimate(relu, inputs=x, device="h100-sxm", cuda_graph=way) for way in (True, False)}
    assert [records.cases[0].options for records in made.values()] == [(("cuda_graph", True),), ()]
    graph, eager = (records.total().prediction for records in made.values())
    assert graph is not None
    assert eager is not None
    assert (graph.regime, graph.host) == ("graph", None)
    assert (eager.regime, eager.device) == ("host-bound", graph.device)
    ranking = rl.rank(relu, inputs=x, device="h100-sxm", cuda_graph=True)
    assert [row.value("time") for row in ranking.rows] == [graph.seconds]


def cells_of(table: Table) -> list[dict[str, Entry]]:
    keys = [column.key for column in table.columns]
    return [dict(zip(keys, row, strict=True)) for row in table.rows]


def test_an_estimate_tells_what_its_step_waits_for() -> None:
    # 1 ms on the device: of 10 ms on the host, and of none.
    for host, word, told in ((0.01, "host", True), (0.0, "device", False)):
        table = summary(relu_on(a_card("one", host__operation=host)))
        assert cells_of(table)[0]["regime"].label == word
        assert any(note.startswith("waits for: launching takes the host longer") for note in table.notes) is told


def test_one_energy_stands_in_every_table_and_its_header_names_the_time() -> None:
    # 1 ms at 100 W for 100 samples; the bound would be 0.8 ms.
    for mode, name in (("inference", "energy_per_sample"), ("train", "energy_per_sample")):
        records = relu_on(SLOW, mode=mode)
        (row,), (ranking,) = cells_of(summary(records)), cells_of(ranking_tables(ranked(records))[1])
        assert row[name].value is None  # nothing was measured
        assert row[f"predicted_{name}"].value == ranking[name].value == pytest.approx(1e-3)
        assert "expected energy /sample" in [column.header for column in ranking_tables(ranked(records))[1].columns]


def test_what_does_not_fit_has_no_rate_and_the_order_is_told_of_the_others_alone() -> None:
    # The tiny card would be the cheapest; it lacks memory.
    tiny, large = a_card("tiny", 9 * TERA, memory=4e9), a_card("large", memory=80e9)
    records = steps(relu_on(tiny, peak=9 * 10**9), relu_on(large, peak=9 * 10**9))
    found = ranked(records, by="cost", prices={"tiny": 1, "large": 9})
    assert order(found) == [("large", 100), ("tiny", 100)]
    _, table = ranking_tables(found)
    fitting, lacking = cells_of(table)
    for key in ("throughput", "cost_per_sample"):
        assert (lacking[key].label, fitting[key].label == "-") == ("-", False)
    assert table.notes[0].startswith("in the order of the expected cost")
    assert table.notes[1].startswith("does not fit on tiny: last, ")
    none = ranking_tables(ranked(steps(relu_on(tiny, peak=9 * 10**9)), by="time"))[1]
    assert none.notes[0].startswith("does not fit on tiny: last, ")


def test_errors_say_what_to_do() -> None:
    records = steps(relu_on(SLOW), relu_on(FAST))
    with pytest.raises(InvalidValue, match="cannot rank by 'beauty'; known: throughput, time, energy, cost"):
        ranked(records, by="beauty")  # type: ignore[arg-type]
    with pytest.raises(InvalidValue, match="no device has a price"):
        ranked(records, by="cost")
    with pytest.raises(InvalidValue, match="no step on a device 'l4'; devices here: slow, fast"):
        ranked(records, prices={"l4": 1})
    with pytest.raises(InvalidValue, match="the price of 'slow' is inf"):
        ranked(records, prices={"slow": float("inf")})
    with pytest.raises(Incomparable, match="nothing to rank"):
        ranked(RecordSet([]))


def test_what_no_ranking_can_be_made_of_is_told_before_the_model_is_built() -> None:
    with pytest.raises(InvalidValue, match=r"no device has a price, .* like --price l4=0.7"):
        rl.rank("no_such_model", by="cost")
    with pytest.raises(InvalidValue, match="cannot rank by 'beauty'"):
        rl.rank("no_such_model", by="beauty")  # type: ignore[arg-type]
    with pytest.raises(InvalidValue, match="no step on a device 'l4'; devices here: tesla-t4"):
        rl.rank("no_such_model", device="t4", prices={"l4": 1})


def test_a_device_that_cannot_run_the_step_may_have_a_price() -> None:
    (case,) = relu_on(SLOW).cases
    lacks = Failure(case=case, source="estimate", stage="bound", kind="unsupported", message="no bf16: it has fp16")
    records = RecordSet(relu_on(FAST).records, devices={"fast": FAST}, failures=[lacks])
    assert order(ranked(records, by="cost", prices={"fast": 3, "slow": 1})) == [("fast", 100)]


@pytest.mark.parametrize("by", ["cost", "energy"])
def test_a_device_without_a_price_or_a_power_has_its_best_batch(by: Literal["cost", "energy"]) -> None:
    """A host that takes 10 ms for a step is paid by more samples, whatever they cost."""
    free = a_card("free", host__operation=0.01)
    free = replace(free, facts={name: fact for name, fact in free.facts.items() if name != "power"})
    found = ranked(steps(relu_on(SLOW), *(relu_on(free, batch) for batch in (1, 100))), by=by, prices={"slow": 1})
    assert [row.step.batch for row in found.rows if row.best and row.step.device == "free"] == [100]


def test_files_of_estimates_on_several_devices_are_ranked(tmp_path: Path) -> None:
    records = steps(relu_on(SLOW), relu_on(FAST))
    assert order(rl.compare(records)) == [("fast", 100), ("slow", 100)]  # type: ignore[arg-type]
    assert rl.table(rl.compare(records)) == rl.table(ranked(records))
    beside = rl.compare(records, question="devices", baseline="slow")
    assert isinstance(beside, DeviceComparison)
    assert [(row.time, row.speedup) for row in beside.rows] == [("predicted", 1), ("predicted", pytest.approx(2))]
    at_bound = rl.compare(records, question="devices", time="bound")
    assert isinstance(at_bound, DeviceComparison)
    assert {row.time for row in at_bound.rows} == {"bound"}


def test_tables_and_files_of_a_ranking() -> None:
    found = ranked(steps(relu_on(SLOW), relu_on(FAST)))
    shown = rl.table(found, width=80)
    assert shown.count("800.0 MB") == 1  # what is equal on both stands once
    assert max(map(len, shown.splitlines())) <= 80
    (table,) = json.loads(rl.table(found, format="json"))
    fast = table["rows"][0]
    assert (fast["device"], fast["fits"], fast["best"], fast["dram_bytes"]) == ("fast", True, True, 8e8)
    assert fast["predicted_low"] < fast["predicted_seconds"] < fast["predicted_high"]
    assert fast["energy_per_sample"] == pytest.approx(2e-3)
    header, first, *_ = rl.table(found, format="csv").splitlines()
    assert dict(zip(header.split(","), first.split(","), strict=True))["throughput"].startswith("2000")
    assert as_json([]).strip() == "[]"
    assert "Which card" in rl.table(found, format="md")


def test_the_command_ranks_usual_cards(tmp_path: Path) -> None:
    assert command.ORDERS == ORDERS
    done = CliRunner(env={"COLUMNS": "80"}).invoke(
        cli, ["rank", "alexnet", "--dtype", "fp16", "--price", "h100=3", "-o", str(tmp_path / "all.jsonl")]
    )
    assert done.exit_code == 0, done.output
    assert done.stderr.startswith("h100 is taken for h100-sxm5-80gb; there are also h100-nvl-94gb, h100-pcie-80gb\n")
    assert done.stdout.index("h200-sxm-141gb") < done.stdout.index("tesla-t4")
    assert len(rl.read(tmp_path / "all.jsonl").cases) == 4 * 7  # four batches, seven cards
    assert max(map(len, done.stdout.splitlines())) <= 80


def test_a_name_of_several_devices_is_the_one_that_people_mean_with_a_warning() -> None:
    with pytest.warns(UserWarning, match="h100 is taken for h100-sxm5-80gb; there are also h100-nvl-94gb"):
        assert rl.device("h100").name == "h100-sxm5-80gb"
    with pytest.warns(UserWarning, match="a100 is taken for a100-sxm4-80gb"):
        (found,) = find_all("a100")  # as every function of the API looks devices up
    assert found.name == "a100-sxm4-80gb"
    with pytest.raises(AmbiguousDevice, match=r"name one of them$"):
        rl.device("v100")


def test_in_a_set_a_name_means_the_device_that_is_there(tmp_path: Path) -> None:
    smaller = relu_on(replace(SLOW, name="a100-sxm4-40gb"))
    records = steps(smaller, relu_on(FAST))
    assert records.where(device="a100").cases == smaller.cases
    (file := tmp_path / "prices.toml").write_text("a100 = 2\nfast = 1\n")
    for prices in ({"a100": 2, "fast": 1}, file):
        found = rl.compare(records, question="devices", baseline="a100", prices=prices)
        assert isinstance(found, DeviceComparison)
        assert (found.baseline, [row.price for row in found.rows]) == ("a100-sxm4-40gb", [2, 1])


def test_prices_come_from_a_file_too(tmp_path: Path) -> None:
    """A file may hold prices of more devices than are ranked; 3.6 an hour are 0.001 a second."""
    path = tmp_path / "prices.toml"
    path.write_text("# a cloud\nslow = 3.6\nfast = 36\nt4 = 0.35\n")
    records = steps(relu_on(SLOW), relu_on(FAST))
    found = rl.compare(records, question="devices", prices=path)
    assert isinstance(found, DeviceRanking)
    assert [row.value("cost") for row in found.rows if row.step.device == "slow"] == pytest.approx([0.001 * 1e-3 / 100])
    named = {device.name: device for device in (rl.device("t4"), rl.device("l4"))}
    path.write_text("t4 = 1\n'2x l4' = 2\nl4 = 3")
    assert prices_of(path, named, rl.device) == {"tesla-t4": 1, "l4": 3}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("t4 = 'cheap'", "t4 = 'cheap' is no price"),
        ("t4 = -1", "is no price"),
        ("t4 = true", "is no price"),
        ("h100 = 1", "fits several devices"),
        ("nix = 1", "unknown device 'nix'"),
        ("t4 = 1\ntesla-t4 = 2", "two prices of tesla-t4: 1 and 2"),
        ("t4 1", "no TOML file"),
        ("'evil.toml' = 1", "unknown device"),
    ],
)
def test_a_line_that_is_no_price_is_told_with_its_file(tmp_path: Path, text: str, told: str) -> None:
    path = tmp_path / "prices.toml"
    path.write_text(text)
    with pytest.raises(FileError, match=re.escape(told)) as error:
        prices_of(path, ["tesla-t4"], rl.device)
    assert "prices.toml" in str(error.value)


def test_one_file_of_prices_stands_alone(tmp_path: Path) -> None:
    words = ["rank", "resnet50", "--by", "cost", "--price", "a.toml", "--price", "t4=1"]
    result = CliRunner().invoke(cli, words)
    assert result.exit_code == 2
    assert "write all of them there" in result.output
