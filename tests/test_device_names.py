"""From names to devices: what people type, what software reports, and what must not be guessed."""

from __future__ import annotations

import csv
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.reported import reported

from rooflens.api.catalogue import device
from rooflens.devices import by_title, catalogue, find, names
from rooflens.errors import AmbiguousDevice, DeviceFileError, InvalidValue, UnknownDevice

ALL = [d.name for d in catalogue()]

TYPED = {
    "t4": "tesla-t4",
    "h100-sxm": "h100-sxm5-80gb",
    "h200": "h200-sxm-141gb",
    "v100-sxm2-16gb": "tesla-v100-sxm2-16gb",
    "m1": "apple-m1-gpu",
    "m1-max": "apple-m1-max-gpu-32c",
    "tpu-v3": "tpu-v3-chip",
    "k80": "tesla-k80-one-die-one-cuda-device",
    "a14": "apple-a14-gpu",
    "geforce-256": "geforce-256-sdr",
    "i7-920": "core-i7-920",
    "rx-6800": "radeon-rx-6800",
    "ryzen-9-3900x": "ryzen-9-3900x",
    "3900X": "ryzen-9-3900x",
    "titan-xp": "titan-xp",
    "gb200": "gb200-per-gpu",
    "a10": "a10",
    "A10G": "a10g",
    "l4": "l4",
    "L40": "l40",
    "h100 pcie": "h100-pcie-80gb",
    "rtx 3090": "geforce-rtx-3090",
    "RTX3090": "geforce-rtx-3090",
    "a100pcie80gb": "a100-pcie-80gb",
    "A100 SXM 80GB": "a100-sxm4-80gb",
    "rtx 6000 ada": "rtx-6000-ada",
    "GAUDI2": "gaudi-2",
    "xeon platinum 8480+": "xeon-platinum-8480",
    "mi250x": "instinct-mi250x-both-gcds",
}
READ = {
    "NVIDIA A100-SXM4-40GB": "a100-sxm4-40gb",
    "NVIDIA A100-PCIE-40GB": "a100-pcie-40gb",
    "NVIDIA A100 80GB PCIe": "a100-pcie-80gb",
    "NVIDIA H100 80GB HBM3": "h100-sxm5-80gb",
    "NVIDIA H100 PCIe": "h100-pcie-80gb",
    "NVIDIA H200": "h200-sxm-141gb",
    "NVIDIA L4": "l4",
    "NVIDIA A10G": "a10g",
    "Tesla V100-SXM2-16GB": "tesla-v100-sxm2-16gb",
    "Tesla T4": "tesla-t4",
    "Tesla K80": "tesla-k80-one-die-one-cuda-device",
    "NVIDIA GeForce RTX 3090": "geforce-rtx-3090",
    "GeForce RTX 3090": "geforce-rtx-3090",
    "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition": "rtx-pro-6000-blackwell-max-q",
    "AMD Instinct MI210": "instinct-mi210",
    "Intel(R) Xeon(R) Platinum 8480+": "xeon-platinum-8480",
    "Intel(R) Xeon(R) Platinum 8380 CPU @ 2.30GHz": "xeon-platinum-8380",
    "AMD EPYC 7763 64-Core Processor": "epyc-7763",
    "AMD Ryzen 9 3900X 12-Core Processor": "ryzen-9-3900x",
    "Intel(R) Core(TM) i7 CPU         920  @ 2.67GHz": "core-i7-920",
    "12th Gen Intel(R) Core(TM) i7-12700H": "core-i7-12700h",
}


@pytest.mark.parametrize(("name", "expected"), [*TYPED.items(), *READ.items(), *((name, name) for name in ALL)])
def test_names_that_people_type_and_software_reports(name: str, expected: str) -> None:
    assert find(name).name == device(name).name == expected


@pytest.mark.parametrize(("name", "expected"), READ.items())
def test_reported_names_are_found_without_raising(name: str, expected: str) -> None:
    found = by_title(name)
    assert found is not None
    assert found.name == expected
    assert by_title(name, kind=found.kind) == found
    assert by_title(name, kind="tpu") is None


@pytest.mark.parametrize(
    "title",
    [
        "NVIDIA A100-SXM-64GB",
        "AMD Instinct MI250X",  # one die; the catalogue has the package
        "NVIDIA A100-SXM4-40GB MIG 1g.5gb",
        "NVIDIA GeForce RTX 4090 Laptop GPU",
        "Intel(R) Xeon(R) Platinum 8480C",
        "Apple M1 Max",  # 24 or 32 cores
        "t4",
        "",
    ],
)
def test_a_reported_name_that_tells_no_device_gives_none(title: str) -> None:
    assert by_title(title) is None


def test_every_device_of_the_reports_is_known() -> None:
    with reported().open(encoding="utf-8", newline="") as file:
        devices = {row["device"] for row in csv.DictReader(file)} - {"", "cpu"}
    assert len(devices) > 10
    for name in devices:
        assert find(name).name in {*ALL, "2x tesla-v100-sxm2-16gb"}


def test_every_name_means_one_device() -> None:
    assert {spelling: fits for spelling, fits in names._exact().items() if len(fits) > 1} == {}


@pytest.mark.parametrize(
    ("name", "fits"),
    [
        ("a100", ["a100-pcie-40gb", "a100-pcie-80gb", "a100-sxm4-40gb", "a100-sxm4-80gb"]),
        ("A100 80GB", ["a100-pcie-80gb", "a100-sxm4-80gb"]),
        ("v100", [f"tesla-v100-{form}-{size}gb" for form in ("pcie", "sxm2") for size in (16, 32)]),
        ("h100", ["h100-nvl-94gb", "h100-pcie-80gb", "h100-sxm5-80gb"]),
        ("2x p100", ["tesla-p100-pcie-16gb", "tesla-p100-sxm2-16gb"]),
        ("rtx pro 6000", ["rtx-pro-6000-blackwell-max-q", "rtx-pro-6000-blackwell-server"]),
    ],
)
def test_a_name_that_fits_several_lists_them(name: str, fits: list[str]) -> None:
    with pytest.raises(AmbiguousDevice) as raised:
        find(name)
    assert f"fits several devices: {', '.join(fits)}; name one of them" in str(raised.value)


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("rtx 3090 ti", "geforce-rtx-3090"),
        ("A100 64GB", "a100-sxm4-40gb"),
        ("H100-SXM5-96GB", "h100-sxm5-80gb"),
        ("h200 nvl", "h200-sxm-141gb"),
        ("rtx 2080", "geforce-rtx-2080-ti"),
        ("rtx 6000", "rtx-6000-ada"),
        ("RTX PRO 6000 Blackwell Workstation Edition", "rtx-pro-6000-blackwell-server"),
        ("rx 7900 xt", "radeon-rx-7900-xtx"),
        ("v100s", "tesla-v100-pcie-32gb"),
        ("m2", "apple-m2-ultra-gpu-76c"),
        ("gaudi", "gaudi-2"),
        ("ryzen 9", "ryzen-9-3900x"),
        ("aws", "graviton3"),
        ("orin", "jetson-agx-orin-64gb"),
        ("8480c", "xeon-platinum-8480"),
    ],
)
def test_a_name_of_another_device_is_an_error_with_near_names(name: str, near: str) -> None:
    with pytest.raises(UnknownDevice) as raised:
        find(name)
    assert not isinstance(raised.value, AmbiguousDevice)
    assert f"unknown device {name!r}; did you mean" in str(raised.value)
    assert near in str(raised.value)
    assert "rooflens devices list" in str(raised.value)


@pytest.mark.parametrize(
    "name", ["", " ", "-", "2x", "2x 3x t4", "1.5x t4", "-2x t4", "[bold]", "t4²", "十", "a" * 5000]
)
def test_a_name_that_is_none(name: str) -> None:
    with pytest.raises(UnknownDevice):
        find(name)


def test_none_of_a_device() -> None:
    with pytest.raises(InvalidValue, match="'0x t4' is none at all"):
        find("0x t4")


SPELLINGS = sorted({s for d in catalogue() for s in (d.name, d.title, *d.aliases) if "(R)" not in s} | TYPED.keys())


@pytest.mark.parametrize("typed", ["7900xtx", "7900 xtx", "7900 X TX"])
def test_a_number_and_an_x_that_belong_to_a_name_are_no_count(typed: str) -> None:
    assert find(typed).name == "radeon-rx-7900-xtx"
    assert find("7900x t4").name.startswith("7900x")


@given(spelling=st.sampled_from(SPELLINGS), data=st.data())
def test_case_and_separators_do_not_matter(spelling: str, data: st.DataObject) -> None:
    separator = st.text(alphabet=" -_/.,:()\t", max_size=3)
    parts = [part for part in re.split("[^A-Za-z0-9]+", spelling) if part]
    typed = "".join(data.draw(separator) + _any_case(part, data) for part in parts) + data.draw(separator)
    assert find(typed) == find(spelling)


def _any_case(text: str, data: st.DataObject) -> str:
    return "".join(data.draw(st.sampled_from((c.lower(), c.upper()))) for c in text)


@given(typed=st.text(max_size=12))
def test_any_text_is_a_device_or_a_clear_error(typed: str) -> None:
    try:
        found = find(typed)
    except (UnknownDevice, DeviceFileError, InvalidValue):
        return
    assert found.count >= 1


@pytest.mark.parametrize("typed", ["2x t4", "2X T4", " 2 x tesla t4 ", "2×t4", "2*t4", "02xT4"])
def test_spellings_of_two(typed: str) -> None:
    assert find(typed).name == "2x tesla-t4"


# Speed --------------------------------------------------------------------------------------------------------------


def _forget() -> None:
    for cached in (names.catalogue, names._read, names._files, names._exact, names._titles):
        cached.cache_clear()


def test_a_canonical_name_costs_one_file() -> None:
    _forget()
    assert find("A100 SXM4 40GB").name == "a100-sxm4-40gb"
    assert names._read.cache_info().currsize == 1
