"""Constants are read off the times of a suite."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import rooflens as rl
from rooflens.devices.files import load_file
from rooflens.devices.writing import device_text
from rooflens.errors import DeviceFileError, InvalidValue
from rooflens.predict import card_of, constants_of, expected_seconds
from rooflens.predict.fitting import STAGES, TimedCall, fitted, priced
from rooflens.predict.suite import suite
from rooflens.records import Device

TRUE = {"stream.start": 3e-6, "stream.share_wide": 0.7, "stream.share_narrow": 0.6, "attention.fp32": 0.3}
"""Constants of a card that differ from those of its generation."""


@pytest.fixture(scope="module")
def h100() -> Device:
    return rl.device("h100-sxm")


def test_the_constants_behind_some_times_are_found_again(h100: Device) -> None:
    card = card_of(replace(h100, constants=TRUE))
    assert card is not None
    some = [item for item in suite() if item.effect in ("stream", "attention")][::2]
    found = fitted([TimedCall(item, expected_seconds(priced(item), card)) for item in some], h100)
    for name, value in TRUE.items():
        assert found[name] == pytest.approx(value, rel=0.06), name
    assert not any(name.startswith("convolution") for name in found)  # no call told of it


def test_every_effect_of_the_suite_tells_constants(h100: Device) -> None:
    known = constants_of(h100).values
    assert {effect for effects, _ in STAGES for effect in effects} == {item.effect for item in suite()}
    assert {name for _, names in STAGES for name in names} <= known.keys()


def test_a_device_file_keeps_measured_constants(h100: Device, tmp_path: Path) -> None:
    measured = replace(h100, constants=TRUE)
    path = tmp_path / "own.toml"
    path.write_text(device_text(measured))
    read = load_file(path)
    assert read.constants == TRUE
    assert constants_of(read).level == "calibrated"
    assert constants_of(h100).level == "datasheet"


@pytest.mark.parametrize("number", ["-1", '"1 us"', "true", "inf"])
def test_a_constant_is_a_number(h100: Device, tmp_path: Path, number: str) -> None:
    path = tmp_path / "own.toml"
    path.write_text(device_text(h100) + f'\n[constants]\n"stream.start" = {number}\n')
    with pytest.raises(DeviceFileError, match=r"constants\.stream\.start"):
        load_file(path)


def test_a_misspelt_constant_is_an_error(h100: Device) -> None:
    with pytest.raises(InvalidValue, match="no constant"):
        constants_of(replace(h100, constants={"stream.begin": 1e-6}))


def test_a_measured_rate_is_what_a_share_reaches() -> None:
    """3.0 TB/s measured by a copy are as good as a data sheet whose share is 3.0 TB/s."""
    sheet = rl.device("h100-sxm")
    share = constants_of(sheet).values["stream.share_wide"]
    measured = replace(
        sheet,
        ceilings=tuple(
            replace(c, origin="measured", rate=3.0e12) if c.resource == "dram" else c for c in sheet.ceilings
        ),
    )
    card = card_of(measured)
    assert card is not None
    assert card.dram * share == pytest.approx(3.0e12)
