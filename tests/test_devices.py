"""The catalogue and the rules behind it. Expected numbers are worked out by hand."""

from __future__ import annotations

import csv
import re
from dataclasses import replace
from pathlib import Path

import pytest

from rooflens import units
from rooflens.api.catalogue import devices
from rooflens.devices import catalogue, files, find, memory_seen, times
from rooflens.devices.files import read_device
from rooflens.devices.rules import RESOURCES
from rooflens.errors import InvalidValue, MissingCeiling
from rooflens.records import COMPUTE_RESOURCES, LINKS, Ceiling, Device, Fact, Work
from rooflens.roofline import bound, ridge

TABLE = Path(__file__).parents[2] / "shared" / "data" / "devices.csv"
needs_data = pytest.mark.skipif(not TABLE.is_file(), reason="the table of devices is not at hand")

ALL = [d.name for d in catalogue()]


def rate(name: str, resource: str) -> float:
    return find(name).require(resource).rate


# The catalogue ------------------------------------------------------------------------------------------------------


def test_every_file_of_the_catalogue_is_a_device() -> None:
    folder = Path(files.__file__).parent / "catalogue"
    assert {path.stem for path in folder.iterdir()} == set(ALL)
    assert devices() == catalogue()
    assert list(ALL) == sorted(ALL)


@pytest.mark.parametrize("name", ALL)
def test_every_file_is_sound(name: str) -> None:
    found = find(name)
    assert found.name == name
    assert found.ceilings
    assert found.ceiling("dram") is not None
    assert "year" in found.facts
    for ceiling in found.ceilings:
        assert ceiling.resource in RESOURCES
        assert ceiling.rate > 0
        assert ceiling.reference
        assert ceiling.origin in ("datasheet", "derived")
        if ceiling.resource.startswith("matmul."):
            assert ceiling.accumulate
    for fact in found.facts.values():
        assert fact.value > 0
        assert fact.reference


def test_every_ceiling_has_a_name_of_the_vocabulary() -> None:
    assert {r for r in RESOURCES if "." in r} == COMPUTE_RESOURCES


@pytest.mark.parametrize("name", ALL)
def test_notes_and_references_are_kept_apart_from_the_names(name: str) -> None:
    found = find(name)
    assert files.slug(found.title) == found.name
    assert not re.search("_tensor|sm_count|tdp_w|boost_clock", found.notes)


def _rows() -> list[dict[str, str]]:
    if not TABLE.is_file():
        return []
    with TABLE.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


FACTS = {
    "year": ("year", 1.0),
    "sm_count": ("units", 1.0),
    "boost_clock_mhz": ("clock", 1e6),
    "memory_gb": ("memory", 1e9),
    "l2_mb": ("l2", 2.0**20),
    "tdp_w": ("power", 1.0),
}
IN_GIB = ("TPU v3 (chip)", "TPU v4 (chip)", "TPU v5p (chip)")


@needs_data
def test_every_row_has_a_file() -> None:
    slugs = [re.sub("[^a-z0-9]+", "-", row["name"].lower()).strip("-") for row in _rows()]
    assert sorted(slugs) == list(ALL)


@needs_data
@pytest.mark.parametrize("row", _rows(), ids=lambda row: row["name"])
def test_every_value_of_the_table_is_in_the_catalogue_with_its_marks(row: dict[str, str]) -> None:
    found = find(row["name"])
    assert (found.title, found.vendor, found.kind, found.arch) == tuple(
        row[c] for c in ("name", "vendor", "kind", "arch")
    )
    verified, formula, unverified = (set(row[c].split()) for c in ("verified", "formula_check", "unverified"))
    seen = 0
    for column, text in row.items():
        if not text or column not in verified | formula | unverified:
            continue
        seen += 1
        value, known = _known(found, row["name"], column)
        assert known.verified == (column not in unverified), column
        assert value == pytest.approx(float(text), rel=1e-9), column
        assert (known.origin == "derived") == (column in formula and column not in verified), column
        checked = any(word in known.reference for word in ("units x clock x", "transfer rate x", "arithmetic on"))
        assert checked == (column in formula), column
    assert seen == sum(1 for column, text in row.items() if text and column in _value_columns())


def _value_columns() -> set[str]:
    text = {"name", "vendor", "kind", "arch", "source", "verified", "formula_check", "unverified", "notes"}
    return set(_rows()[0]) - text


def _known(found: Device, title: str, column: str) -> tuple[float, Ceiling | Fact]:
    """The value in the unit of the table, and what carries its marks."""
    if column in FACTS:
        name, scale = FACTS[column]
        fact = found.facts[name]
        return fact.value / (2.0**30 if column == "memory_gb" and title in IN_GIB else scale), fact
    if column == "bandwidth_gbs":
        ceiling = found.require("dram")
        return ceiling.rate / 1e9, ceiling
    if column == "interconnect_gbs":
        (ceiling,) = [c for c in found.ceilings if c.resource in LINKS]
        return ceiling.rate / 1e9, ceiling
    precision, _, unit = column.partition("_")
    ceiling = found.require(f"{'matmul' if unit else 'vector'}.{precision}")
    return ceiling.rate / 1e12, ceiling


@needs_data
def test_no_device_has_a_rate_that_the_table_does_not_know() -> None:
    """Beyond the table: rates by rule, and the fp32 matrix rate of three AMD cards, which is marked."""
    extra = set()
    for row in _rows():
        for ceiling in find(row["name"]).ceilings:
            unit, _, precision = ceiling.resource.partition(".")
            column = {"matmul": f"{precision}_tensor", "vector": precision}.get(unit, "")
            if precision and not row.get(column) and not ceiling.reference.startswith("rule: "):
                assert not ceiling.verified
                extra.add((row["name"], ceiling.resource))
    assert extra == {
        ("Instinct MI100", "matmul.fp32"),
        ("Instinct MI210", "matmul.fp32"),
        ("Instinct MI250X (both GCDs)", "matmul.fp32"),
    }


# Peaks by hand: units x clock in MHz x operations per unit and clock, two per multiply-add ----------------------------

PEAKS = [
    ("tesla-t4", "vector.fp32", 40 * 1590 * 64 * 2),
    ("tesla-t4", "matmul.fp16", 40 * 1590 * 1024),
    ("tesla-k80-one-die-one-cuda-device", "vector.fp32", 13 * 875 * 192 * 2),
    ("titan-xp", "vector.fp32", 30 * 1582 * 128 * 2),
    ("tesla-p100-sxm2-16gb", "vector.fp16", 56 * 1480 * 64 * 2 * 2),
    ("tesla-v100-sxm2-16gb", "matmul.fp16", 80 * 1530 * 1024),
    ("geforce-rtx-2080-ti", "matmul.fp16", 68 * 1545 * 512),
    ("a100-sxm4-40gb", "matmul.bf16", 108 * 1410 * 2048),
    ("a100-sxm4-40gb", "matmul.tf32", 108 * 1410 * 1024),
    ("a100-sxm4-40gb", "matmul.int8", 108 * 1410 * 4096),
    ("a10", "matmul.bf16", 72 * 1695 * 1024),
    ("a10g", "matmul.bf16", 80 * 1710 * 512),
    ("geforce-rtx-3090", "matmul.fp16", 82 * 1695 * 512),
    ("geforce-rtx-4090", "matmul.bf16", 128 * 2520 * 512),
    ("l4", "matmul.bf16", 58 * 2040 * 1024),
    ("h100-sxm5-80gb", "matmul.bf16", 132 * 1830 * 4096),
    ("h100-sxm5-80gb", "vector.fp32", 132 * 1980 * 128 * 2),
    ("h100-pcie-80gb", "matmul.bf16", 114 * 1620 * 4096),
    ("b200-sxm-180gb", "matmul.bf16", 148 * 1856 * 8192),
    ("instinct-mi100", "matmul.fp16", 120 * 1502 * 1024),
    ("instinct-mi100", "matmul.bf16", 120 * 1502 * 512),
    ("instinct-mi300x", "matmul.bf16", 304 * 2100 * 2048),
    ("radeon-rx-6800", "vector.fp32", 60 * 2105 * 64 * 2),
    ("gaudi-3", "matmul.bf16", 8 * 1600 * 256 * 256 * 2),
    ("tpu-v3-chip", "matmul.bf16", 4 * 940 * 128 * 128 * 2),
    ("apple-m1-gpu", "vector.fp32", 8 * 1278 * 128 * 2),
    ("core-i7-920", "vector.fp32", 4 * 2660 * (4 + 4)),
    ("epyc-9654", "vector.fp32", 96 * 2400 * 2 * 8 * 2),
    ("xeon-platinum-8480", "matmul.bf16", 56 * 2000 * 1024),
]


@pytest.mark.parametrize(("name", "resource", "mflops"), PEAKS)
def test_peaks_agree_with_the_hardware(name: str, resource: str, mflops: float) -> None:
    assert rate(name, resource) == pytest.approx(mflops * 1e6, rel=0.02)


BANDWIDTHS = [  # transfers in MHz x bits / 8 = MB/s
    ("geforce-256-sdr", 166 * 128),
    ("tesla-t4", 2 * 5001 * 256),
    ("a100-sxm4-40gb", 2 * 1215 * 5120),
    ("h100-sxm5-80gb", 2 * 2619 * 5120),
    ("instinct-mi300x", 5200 * 8192),
    ("core-i7-920", 1066.7 * 3 * 64),
    ("epyc-7763", 3200 * 8 * 64),
]


@pytest.mark.parametrize(("name", "megabits"), BANDWIDTHS)
def test_bandwidths_agree_with_the_bus(name: str, megabits: float) -> None:
    assert rate(name, "dram") == pytest.approx(megabits / 8 * 1e6, rel=0.005)


# Traps --------------------------------------------------------------------------------------------------------------


def test_rates_are_dense() -> None:
    assert rate("h100-sxm5-80gb", "matmul.bf16") == pytest.approx(989.4e12)
    assert rate("l4", "matmul.fp16") == 121e12
    assert rate("gb200", "matmul.fp4") == 10e15


def test_vector_and_matrix_rates_are_not_mixed_up() -> None:
    assert rate("t4", "vector.fp32") == 8.1e12
    assert rate("t4", "matmul.fp16") == 65e12
    assert rate("t4", "vector.fp16") == 16.2e12
    assert rate("a100-sxm4-40gb", "vector.fp16") == 78e12


def test_geforce_rates_accumulate_in_fp32() -> None:
    ceiling = find("rtx 4090").require("matmul.fp16")
    assert ceiling.rate == pytest.approx(165.2e12)
    assert ceiling.accumulate == "fp32"
    assert find("rtx 4090").require("matmul.int8").accumulate == "int32"


def test_a_k80_is_one_die() -> None:
    die, board = find("k80"), find("k80 board")
    assert die.require("vector.fp32").rate == 4.37e12
    assert board.require("vector.fp32").rate == 8.74e12
    assert board.require("dram").rate == 2 * die.require("dram").rate == times(die, 2).require("dram").rate


@pytest.mark.parametrize("precision", ["bf16", "tf32", "int8", "fp8"])
def test_a_v100_has_no_other_tensor_rate_than_fp16(precision: str) -> None:
    with pytest.raises(MissingCeiling, match=f"no ceiling for 'matmul.{precision}'"):
        find("v100-sxm2-16gb").require(f"matmul.{precision}")


def test_a_geforce_256_has_bandwidth_only() -> None:
    assert [c.resource for c in find("geforce-256").ceilings] == ["dram", "pcie"]


def test_vector_instructions_of_a_cpu_are_no_matrix_unit() -> None:
    assert find("graviton3").require("matmul.bf16").silicon == "fma"
    assert find("epyc 9654").require("matmul.int8").silicon == "fma"
    assert find("xeon-8480+").require("matmul.bf16").silicon == "tensor"
    assert find("xeon-8480+").require("matmul.fp32").silicon == "fma"


@pytest.mark.parametrize(
    ("name", "link"),
    [
        ("a100-sxm4-40gb", "nvlink"),
        ("mi300x", "nvlink"),
        ("tpu-v4", "nvlink"),
        ("gaudi 2", "network"),
        ("l4", "pcie"),
        ("geforce-256", "pcie"),
    ],
)
def test_each_fabric_has_its_place(name: str, link: str) -> None:
    assert [c.resource for c in find(name).ceilings if c.silicon == "link"] == [link]


def test_ridge_of_an_a100() -> None:
    a100 = find("a100-sxm4-40gb")
    assert ridge(a100.require("matmul.bf16"), a100.require("dram")) == pytest.approx(312e12 / 1555e9)
    assert a100.ridge("matmul.bf16") == pytest.approx(312e12 / 1555e9)


def test_ridge_of_a_device_by_name() -> None:
    t4 = find("t4")
    assert t4.ridge("vector.fp32") == pytest.approx(8.1e12 / 320e9)
    for unknown in (("matmul.bf16",), ("dram",), ("vector.fp32", "l1"), ("vector.fp32", "matmul.fp16")):
        assert t4.ridge(*unknown) is None


# Rules --------------------------------------------------------------------------------------------------------------


def test_products_without_a_matrix_unit_run_on_the_lanes() -> None:
    p100 = find("tesla-p100-sxm2-16gb")
    ceiling = p100.require("matmul.fp16")
    assert (ceiling.rate, ceiling.silicon, ceiling.origin) == (21.2e12, "fma", "derived")
    assert ceiling.verified
    # 21.2 TFLOP of products and 10.6 TFLOP of vector work share the lanes: one second each.
    work = Work(flops={"matmul.fp16": 21.2e12, "vector.fp32": 10.6e12})
    assert bound(work, p100).seconds == pytest.approx(2.0)
    # On tensor cores they overlap.
    v100 = find("v100-sxm2-16gb")
    assert bound(Work(flops={"matmul.fp16": 125e12, "vector.fp32": 15.7e12}), v100).seconds == pytest.approx(1.0)


def test_a_stated_matrix_rate_wins_over_the_rule() -> None:
    assert find("a100-sxm4-40gb").require("matmul.fp64").rate == 19.5e12
    assert find("a100-sxm4-40gb").require("vector.fp64").rate == 9.7e12


def test_a_doubtful_vector_rate_makes_a_doubtful_matrix_rate() -> None:
    assert not find("a14").require("vector.fp16").verified
    assert not find("a14").require("matmul.fp16").verified


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("a100-sxm4-40gb", 16 * 108 * 1410e6),
        ("tesla-t4", 16 * 40 * 1590e6),
        ("jetson-agx-orin", 16 * 16 * 1300e6),
        ("instinct-mi300x", 163.4e12 / 8),
        ("epyc-7763", 5.02e12 / 8),
    ],
)
def test_special_functions_by_rule(name: str, expected: float) -> None:
    ceiling = find(name).require("special.fp32")
    assert ceiling.rate == pytest.approx(expected)
    assert (ceiling.silicon, ceiling.origin, ceiling.verified) == ("special", "derived", False)


def test_a_tpu_has_no_vector_rate_and_no_rule_makes_one() -> None:
    assert [c.resource for c in find("tpu-v3").ceilings] == ["matmul.bf16", "dram", "nvlink"]


@pytest.mark.parametrize(
    ("name", "least", "most"),
    [
        ("tesla-t4", 14.56, 14.56 * 1.015),  # as torch has told, and as drivers differ
        ("geforce-rtx-4090", 23.64, 23.64 * 1.015),
        ("2x geforce-rtx-4090", 2 * 23.64, 2 * 23.64 * 1.015),
        ("h200-sxm-141gb", 150109880320 / 2**30, 141),  # never more than as many GiB as the maker prints GB
        ("tesla-p100-sxm2-16gb", 0.91 * 16, 16),  # by the rule: nobody has told it
        ("tpu-v3-chip", 32, 32),
    ],
)
def test_what_programs_can_have_of_a_memory(name: str, least: float, most: float) -> None:
    seen = memory_seen(find(name))
    assert seen is not None
    assert [n / 2**30 for n in seen] == pytest.approx([least, most], rel=1e-9)


def test_what_torch_has_told_of_a_memory_is_used() -> None:
    for device in catalogue():
        told = device.facts.get("torch_memory")
        assert told is None or memory_seen(device) != (device.facts["memory"].value,) * 2, device.name


def test_a_memory_that_a_caller_has_put_there_is_as_it_is_written() -> None:
    t4 = find("t4")
    for memory in (3_000_000, 48e9):
        assert memory_seen(replace(t4, facts=t4.facts | {"memory": Fact(value=memory)})) == (memory, memory)


def test_the_memory_of_a_users_device_is_as_it_is_written() -> None:
    text = 'title = "Mine"\nvendor = "Acme"\nkind = "gpu"\n[bandwidth]\ndram = "1 TB/s"\n[facts]\nmemory = "24 GB"\n'
    assert memory_seen(read_device(text, "mine.toml").device) == (24 * 10**9, 24 * 10**9)
    told = text + 'torch_memory = "23 GB"\n'
    assert memory_seen(read_device(told, "mine.toml").device) == (24 * 10**9, 24 * 10**9)


def test_two_of_a_device() -> None:
    one, two = find("a100-sxm4-40gb"), find("2x a100-sxm4-40gb")
    assert (two.name, two.title, two.count) == ("2x a100-sxm4-40gb", "2x A100-SXM4-40GB", 2)
    assert [c.rate for c in two.ceilings] == [2 * c.rate for c in one.ceilings]
    assert {n: f.value / one.facts[n].value for n, f in two.facts.items()} == {
        "year": 1,
        "clock": 1,
        "units": 2,
        "memory": 2,
        "torch_memory": 2,
        "l2": 2,
        "power": 2,
    }
    assert find(two.name) == two
    assert find("1x a100-sxm4-40gb") == one


def test_quantities_in_the_files_are_readable() -> None:
    """The catalogue says 312 TFLOP/s and not 3.12e14: numbers can be held against a data sheet."""
    assert units.show(rate("a100-sxm4-40gb", "matmul.bf16"), "FLOP/s", 3) == "312 TFLOP/s"
    text = (Path(files.__file__).parent / "catalogue" / "a100-sxm4-40gb.toml").read_text(encoding="utf-8")
    assert 'bf16 = "312 TFLOP/s"' in text
    assert 'dram = "1555 GB/s"' in text


# Filters of the Python twin -----------------------------------------------------------------------------------------


def test_devices_by_vendor_and_kind() -> None:
    assert [d.name for d in devices(vendor="aws")] == ["graviton3"]
    assert {d.kind for d in devices(kind="tpu")} == {"tpu"}
    assert devices(vendor="AWS", kind="gpu") == ()
    with pytest.raises(InvalidValue, match="unknown vendor 'acme'; the catalogue has AMD, Apple, AWS"):
        devices(vendor="acme")
