"""Device files of the user: what they may hold, and what is said about mistakes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rooflens.devices import files, find, load_file
from rooflens.errors import DeviceFileError
from rooflens.records import PRECISIONS

MINIMAL = """
title = "My Board"
vendor = "Acme"
kind = "gpu"
[bandwidth]
dram = "1 TB/s"
"""


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "board.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_the_least_that_a_file_must_hold(tmp_path: Path) -> None:
    path = write(tmp_path, MINIMAL)
    found = load_file(path)
    assert (found.name, found.arch, found.facts) == ("my-board", "", {})
    (dram,) = found.ceilings
    assert (dram.resource, dram.rate, dram.origin, dram.verified) == ("dram", 1e12, "user", True)
    assert dram.reference == "device file board.toml"
    assert find(str(path)) == found
    assert find(f"3x {path}").require("dram").rate == 3e12


def test_the_file_in_the_documentation(tmp_path: Path) -> None:
    text = (Path(__file__).parents[1] / "docs" / "devices.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```toml\n(.*?)```", text, re.DOTALL)
    found = load_file(write(tmp_path, example))
    assert found.name == "my-board-16gb"
    by_name = {c.resource: c for c in found.ceilings}
    assert set(by_name) == {"matmul.fp32", "matmul.bf16", "matmul.int8", "vector.fp32", "special.fp32", "dram"}
    assert (by_name["matmul.bf16"].rate, by_name["matmul.bf16"].accumulate) == (120e12, "fp32")
    assert (by_name["matmul.int8"].accumulate, by_name["matmul.int8"].verified) == ("int32", False)
    assert (by_name["dram"].origin, by_name["dram"].rate) == ("measured", 371e9)
    assert by_name["vector.fp32"].reference == "Acme data sheet 1.2, May 2025"
    assert found.facts["memory"].value == 16 * 2**30


def test_the_documented_kinds_and_precisions_are_those_of_the_code() -> None:
    text = (Path(__file__).parents[1] / "docs" / "devices.md").read_text(encoding="utf-8")
    assert ", ".join(files.KINDS) in text
    assert " ".join(PRECISIONS) in text


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("title", "titles", "titles is not known; allowed: title, vendor, kind"),
        ('vendor = "Acme"', "", "vendor is missing; required: title, vendor, kind"),
        ('"gpu"', '"card"', "kind is 'card'; allowed: gpu, cpu, tpu, soc, accelerator"),
        ('"My Board"', '"?"', "title '?' holds no letter or digit"),
        ('"My Board"', "3", "title is 3; it must be text"),
        ('"Acme"', '"Acme"\naliases = [1]', "aliases is [1]; it must be text or a list of texts"),
        ('"Acme"', '"Acme"\nfacts = 3', "facts is 3; it must be a table: [facts]"),
        ("dram", "drum", "bandwidth.drum is not known; allowed in bandwidth: dram, l2, l1, nvlink, pcie, network"),
        ("1 TB/s", "1 TFLOP/s", "bandwidth.dram '1 TFLOP/s' is not in B/s"),
        ("1 TB/s", "fast", "bandwidth.dram cannot read 'fast' as a quantity in B/s"),
        ("1 TB/s", "0 TB/s", "bandwidth.dram is '0 TB/s'; it must be above zero"),
        ("1 TB/s", "1e30 TB/s", "bandwidth.dram is '1e30 TB/s'; hardware has 1 to 1e+30 a second"),
        ("1 TB/s", "-1 TB/s", "bandwidth.dram is '-1 TB/s'; it must be above zero"),
        ("1 TB/s", "1e999 TB/s", "bandwidth.dram '1e999 TB/s' is beyond what a number can hold"),
        (
            '"1 TB/s"',
            "1e12",
            "bandwidth.dram is 1000000000000.0; write a number and its unit as text, like '1555 GB/s'",
        ),
        ('"1 TB/s"', "{ rate = '1 TB/s' }", "bandwidth.dram.rate is not known; allowed in bandwidth.dram: value,"),
        ('"1 TB/s"', "{ verified = true }", "bandwidth.dram has no 'value'"),
        ('"1 TB/s"', "{ value = '1 TB/s', verified = 'no' }", "bandwidth.dram.verified is 'no'; allowed: true, false"),
        (
            '"1 TB/s"',
            "{ value = '1 TB/s', origin = 'rumour' }",
            "bandwidth.dram.origin is 'rumour'; allowed: datasheet",
        ),
        ('"1 TB/s"', "{ value = '1 TB/s', silicon = 'fma' }", "bandwidth.dram.silicon is not known; allowed in"),
        ('[bandwidth]\ndram = "1 TB/s"', "", "[bandwidth] is missing and so is every other rate"),
        ("", "[vector]\nfp31 = '1 TFLOP/s'", "vector.fp31 is not known; allowed in vector: fp64, fp32"),
        ("", "[matmul]\naccumulate = 'fp31'\nfp16 = '1 TFLOP/s'", "matmul.fp16.accumulate is 'fp31'; allowed: fp64"),
        ("", "[vector]\nsilicon = 'gold'\nfp32 = '1 TFLOP/s'", "vector.fp32.silicon is 'gold'; allowed: tensor, fma"),
        ("", "[facts]\nyear = '2020'", "facts.year is '2020'; it must be a whole number above zero"),
        ("", "[facts]\nunits = true", "facts.units is True; it must be a whole number above zero"),
        ("", "[facts]\npower = 300", "facts.power is 300; write a number and its unit as text, like '400 W'"),
        ("", "[evidence]\nformula = ['vector.fp32']", "evidence.formula names 'vector.fp32', which this file does not"),
        ("", "[", "is no TOML file"),
    ],
)
def test_a_wrong_file_is_an_error_that_names_file_key_and_remedy(
    tmp_path: Path, old: str, new: str, expected: str
) -> None:
    path = write(tmp_path, MINIMAL.replace(old, new) if old else MINIMAL + new)
    with pytest.raises(DeviceFileError) as raised:
        load_file(path)
    assert str(path) in str(raised.value)
    assert expected in str(raised.value)


def test_evidence_is_said_beside_the_reference(tmp_path: Path) -> None:
    text = MINIMAL.replace('"Acme"', '"Acme"\norigin = "datasheet"\nreference = ["sheet", "press"]')
    text += """l2 = { value = "3 TB/s", origin = "derived" }
[evidence]
formula = ["bandwidth.dram", "bandwidth.l2"]
database = ["bandwidth.dram"]
"""
    found = load_file(write(tmp_path, text))
    assert found.require("dram").reference == (
        "sheet; press; agrees with transfer rate x bus width; seen in databases only, in no document of the vendor"
    )
    assert found.require("l2").reference == "transfer rate x bus width; sheet; press"


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(DeviceFileError, match="No such file"):
        find("nowhere.toml")
    with pytest.raises(DeviceFileError, match="cannot read device file"):
        load_file(tmp_path)
    with pytest.raises(DeviceFileError, match="cannot read device file"):
        find("a\x00b.toml")
    binary = tmp_path / "latin.toml"
    binary.write_bytes(b'title = "\xff"')
    with pytest.raises(DeviceFileError, match="cannot read device file"):
        load_file(binary)


def test_a_changed_file_is_read_again(tmp_path: Path) -> None:
    path = write(tmp_path, MINIMAL)
    assert find(str(path)).require("dram").rate == 1e12
    write(tmp_path, MINIMAL.replace("1 TB/s", "2 TB/s"))
    assert find(str(path)).require("dram").rate == 2e12
