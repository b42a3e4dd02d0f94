"""Measured ceilings as files: written, kept per machine, found as ``measured``, shown and drawn."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.calibration_samples import TINY

import rooflens as rl
from rooflens.cli.main import cli
from rooflens.devices import catalogue, device_text, files, find, load_file, stored_path
from rooflens.devices.files import cache_folder
from rooflens.errors import InvalidValue, OutputError, UnknownDevice
from rooflens.machine import datasheet_of, this_machine
from rooflens.records import Ceiling, Device, Fact
from rooflens.report.figures.roofline import roofline_figure
from rooflens.results import RecordSet
from rooflens.sources.calibrate import SIZES, trial

MADE = Device(
    name="made-measured",
    title="Made (measured)",
    vendor="Acme",
    kind="cpu",
    arch="",
    ceilings=(
        Ceiling(
            resource="matmul.bf16",
            rate=123.4e9,
            silicon="fma",
            origin="measured",
            reference='a "quoted" \\ reference; and another',
            verified=False,
            accumulate="fp32",
        ),
        Ceiling(resource="dram", rate=1e12 / 3, silicon="memory", origin="measured", reference="x"),
    ),
    facts={
        "units": Fact(value=4.0, reference="counted"),
        "dispatch": Fact(value=2.25e-6, origin="measured", reference="timed"),
    },
    notes="first line\nsecond \x7f line",
)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Calibrations of an instant, kept in a folder of the test."""
    monkeypatch.setattr(files, "cache_folder", lambda: tmp_path / "cache")
    monkeypatch.setitem(trial.LEAST, "cpu", 1e-5)
    monkeypatch.setitem(SIZES, ("cpu", True), TINY)
    monkeypatch.setattr(trial, "SAMPLES", 3)
    monkeypatch.setitem(trial.BURST, "cpu", 3)
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    return tmp_path


class TestWriting:
    @pytest.mark.parametrize("device", catalogue(), ids=lambda device: device.name)
    def test_every_device_of_the_catalogue_comes_back(self, device: Device, tmp_path: Path) -> None:
        path = tmp_path / "device.toml"
        path.write_text(device_text(device))
        assert load_file(path) == device

    def test_text_of_any_kind_and_numbers_without_end_come_back(self, tmp_path: Path) -> None:
        path = tmp_path / "made.toml"
        path.write_text(device_text(MADE))
        assert load_file(path) == MADE

    def test_quantities_are_written_for_people(self) -> None:
        table = tomllib.loads(device_text(MADE))
        assert table["matmul"]["bf16"]["value"] == "123.4 GFLOP/s"
        assert table["facts"]["dispatch"]["value"] == "2.250 us"
        assert table["facts"]["units"]["value"] == 4

    def test_two_devices_are_no_file(self) -> None:
        with pytest.raises(InvalidValue, match="a file holds one device"):
            device_text(find("2x t4"))

    def test_facts_of_a_calibration_keep_their_unit(self, tmp_path: Path) -> None:
        path = tmp_path / "made.toml"
        path.write_text(device_text(MADE))
        shown = CliRunner().invoke(cli, ["devices", "show", str(path)])
        assert "2.250 us" in shown.output


class TestStored:
    def test_what_makes_another_measurement_is_in_the_name(self) -> None:
        paths = {
            stored_path(title, version, threads, Path())
            for title, version, threads in (
                ("A (R) CPU", "2.11.0", 4),
                ("A (R) CPU", "2.11.0", 8),
                ("A (R) CPU", "3.0", 4),
                ("B CPU", "2.11.0", 4),
                ("A (R) CPU", "2.11.0", None),
            )
        }
        assert len(paths) == 5
        same = stored_path("A (R) CPU", "2.14.1+cpu", 4, Path())
        assert same == stored_path("A (R) CPU", "2.11.0", 4, Path()) == Path("measured-a-r-cpu-torch-2-4-threads.toml")

    @pytest.mark.parametrize(
        ("platform", "environment", "folder"),
        [
            ("linux", {"XDG_CACHE_HOME": "/x"}, "/x/rooflens"),
            ("linux", {"XDG_CACHE_HOME": "relative"}, "~/.cache/rooflens"),
            ("linux", {"XDG_CACHE_HOME": ""}, "~/.cache/rooflens"),
            ("linux", {}, "~/.cache/rooflens"),
            ("darwin", {"XDG_CACHE_HOME": "/x"}, "~/Library/Caches/rooflens"),
            ("win32", {"LOCALAPPDATA": "/local"}, "/local/rooflens/Cache"),
        ],
    )
    def test_the_folder_is_the_platforms(self, platform: str, environment: dict[str, str], folder: str) -> None:
        assert cache_folder(platform, environment) == Path(folder).expanduser()


class TestMeasured:
    def test_without_a_calibration_the_name_says_what_to_run(self, quick: Path) -> None:
        for call in (lambda: rl.device("measured"), lambda: rl.roofline(device="measured")):
            with pytest.raises(UnknownDevice, match="run 'rooflens calibrate' first"):
                call()

    def test_a_calibration_is_kept_and_found(self, quick: Path) -> None:
        found = rl.calibrate("cpu", quick=True)
        kept = list((quick / "cache").iterdir())
        assert kept == [this_machine("cpu").stored]
        assert rl.device("measured") == found == rl.device(str(kept[0]))
        assert rl.device(" Measured ").name == found.name
        two = rl.device("2x measured")
        assert two.require("dram").rate == 2 * found.require("dram").rate
        assert rl.estimate("alexnet", device="measured").cases[0].device == found.name
        assert this_machine("cpu", "measured").device == found

    def test_another_number_of_threads_is_another_machine(self, quick: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        rl.calibrate("cpu", quick=True)
        monkeypatch.setattr("torch.get_num_threads", lambda: 999)
        with pytest.raises(UnknownDevice, match="number of threads"):
            rl.device("measured")

    def test_measuring_calibrates_where_nothing_is_kept(self, quick: Path) -> None:
        device = this_machine("cpu", "measured").device
        assert device is not None
        assert device.require("dram").origin == "measured"
        assert not (quick / "cache").exists()

    def test_an_output_is_written_instead(self, quick: Path) -> None:
        found = rl.calibrate("cpu", quick=True, output=quick / "mine.toml")
        assert load_file(quick / "mine.toml") == found
        assert not (quick / "cache").exists()

    def test_bad_arguments_fail_before_anything_runs(self, quick: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("rooflens.sources.calibrate.calibrate", lambda *_, **__: pytest.fail("it ran"))
        with pytest.raises(InvalidValue, match="at least 1 s"):
            rl.calibrate("cpu", budget=0.0)
        with pytest.raises(InvalidValue, match="cannot measure on 'tpu'"):
            rl.calibrate("tpu")
        (quick / "file").write_text("")
        with pytest.raises(OutputError, match="cannot write"):
            rl.calibrate("cpu", output=quick / "file" / "x.toml")


class TestCommand:
    def test_it_shows_rates_and_says_where_they_are(self, quick: Path) -> None:
        done = CliRunner().invoke(cli, ["calibrate", "--device", "cpu", "--quick"], catch_exceptions=False)
        assert done.exit_code == 0
        for word in ("matmul.fp32", "dram", "dispatch", "best of", "wrote"):
            assert word in done.output

    def test_the_table_compares_with_the_catalogue(self) -> None:
        from rooflens.report.device_tables import rates

        sheet = find("t4")
        measured = Ceiling(resource="dram", rate=240e9, silicon="memory", origin="measured", reference="best of copy")
        others = tuple(c for c in sheet.ceilings if c.resource != "dram")
        table = rates(replace(sheet, ceilings=(*others, measured), notes="said"), sheet)
        assert len(table.rows) == 1  # what is the catalogue's own is not shown as found
        resource, found, datasheet, ratio, how = table.rows[0]
        assert (resource.value, found.label, datasheet.label, how.value) == (
            "dram",
            "240.0 GB/s",
            "320.0 GB/s",
            "best of copy",
        )
        assert ratio.value == pytest.approx(0.75)
        assert "said" in table.notes


class TestFigure:
    SHEET = find("t4")
    OWN = replace(
        SHEET,
        name="tesla-t4-measured",
        title="Tesla T4 (measured)",
        ceilings=tuple(replace(c, rate=0.75 * c.rate, origin="measured") for c in SHEET.ceilings),
    )

    def test_the_datasheet_is_drawn_beside(self) -> None:
        assert datasheet_of(self.OWN) == self.SHEET
        assert datasheet_of(self.SHEET) is None
        assert datasheet_of(MADE) is None
        figure = rl.roofline(device=self.OWN)
        assert figure.devices == ("Tesla T4 (measured)", "Tesla T4")
        rates = {line.rate for line in figure.ceilings if line.resource == "dram"}
        assert rates == {240e9, 320e9}
        assert {line.origin for line in figure.ceilings if line.device == 0} == {"measured"}

    def test_naming_both_draws_both_once(self) -> None:
        assert rl.roofline(device=[self.OWN, "t4"]).devices == ("Tesla T4 (measured)", "Tesla T4")

    def test_both_have_the_ceilings_that_the_marks_use(self) -> None:
        estimate = rl.estimate("alexnet", device=self.OWN, dtype="fp32")
        figure = rl.roofline(estimate)
        assert [{line.resource for line in figure.ceilings if line.device == n} for n in (0, 1)] == [
            {"dram", "matmul.fp32", "vector.fp32"}
        ] * 2

    def test_a_figure_of_nothing_measured_is_as_it_was(self) -> None:
        assert roofline_figure(RecordSet(()), devices=[self.SHEET]).devices == ("Tesla T4",)
