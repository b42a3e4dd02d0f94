"""The examples run from end to end, on small models and in little time."""

from __future__ import annotations

from pathlib import Path

import pytest
from examples import demo, readme_picture
from tests.calibration_samples import TINY

import rooflens as rl


@pytest.fixture(autouse=True)
def _empty_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")


def test_the_demo(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from rooflens.devices import files
    from rooflens.sources import calibrate
    from rooflens.sources.calibrate import SIZES, trial

    calls = []
    measure_ceilings = calibrate.calibrate

    def counted(*args: object, **kwargs: object) -> rl.Device:
        calls.append(args)
        return measure_ceilings(*args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(calibrate, "calibrate", counted)
    monkeypatch.setattr(files, "cache_folder", lambda: tmp_path / "cache")
    monkeypatch.setitem(trial.LEAST, "cpu", 1e-5)
    monkeypatch.setitem(SIZES, ("cpu", True), TINY)
    monkeypatch.setattr(demo, "SECONDS", 0.05)
    monkeypatch.setattr(demo, "places", lambda: ["cpu"])
    monkeypatch.setattr(demo, "MODELS", ("squeezenet1_1", "shufflenet_v2_x0_5"))
    monkeypatch.setattr(demo, "BATCHES", (1, 2))
    study = tmp_path / "small.toml"
    study.write_text('title = "small"\nmodels = ["squeezenet1_1"]\ndevices = ["t4", "l4"]\nbatches = [1]\n')
    monkeypatch.setattr(demo, "STUDY", study)

    demo.main()

    assert len(calls) == 1, "ceilings are measured once for all models"
    captured = capsys.readouterr()
    paths = [*(f"out/demo/cpu{suffix}" for suffix in (".jsonl", ".png", ".html")), "out/demo/report.html"]
    assert all(path in captured.out for path in paths)
    lines = captured.out.splitlines()
    assert len(lines) <= 40  # one screen
    assert "Try next:" in lines
    assert len(set(captured.err.splitlines())) == len(captured.err.splitlines()) < 8  # a line for each step
    assert all(Path(path).stat().st_size > 1000 for path in paths)
    assert max(map(len, captured.out.splitlines())) <= 80
    for word in ("squeezenet1_1", "bound", "measured", "efficiency"):
        assert word in captured.out
    assert "measuring ceilings" in captured.err
    assert "\x1b" not in captured.out + captured.err
    records = rl.read(paths[0])
    assert len(records.cases) == 4
    assert records.sources == ("estimate", "measure")
    assert records.environment is not None
    (roof,) = records.devices.values()
    assert roof.require("dram").origin == "measured"


def test_the_demo_is_about_the_models_that_it_promises() -> None:
    assert demo.MODELS == ("resnet18", "alexnet", "mobilenet_v3_large")
    assert demo.BATCHES == (1, 16)
    assert "cpu" in demo.places()


def test_the_picture_of_the_readme(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(readme_picture, "IMAGES", tmp_path)
    monkeypatch.setattr("sys.argv", ["readme_picture.py"])
    readme_picture.main()
    assert (tmp_path / "roofline.png").read_bytes().startswith(b"\x89PNG")
    times = rl.read(readme_picture.TIMES)
    assert times.sources == ("measure",)
    assert [(case.model, case.batch) for case in times.cases] == [
        (model, batch) for model in readme_picture.MODELS for batch in readme_picture.BATCHES
    ]
