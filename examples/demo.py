"""Estimate and measure three models on this machine, then run a small study. Run by `make demo`.

Records, figures and the report of the study go to out/demo; where there is a screen, the report opens.
"""

from __future__ import annotations

import os
import sys
import time
import webbrowser
from collections.abc import Callable, Iterator
from pathlib import Path

import rooflens as rl

MODELS = ("resnet18", "alexnet", "mobilenet_v3_large")
BATCHES = (1, 16)
SECONDS = 2.0
"""Sampling per model and batch; it ends earlier where the time is steady."""
OUT = Path("out") / "demo"
STUDY = Path(__file__).with_name("resnets.toml")


def main() -> None:
    say = steps()
    say("loading torch")
    paths: list[Path] = []
    for place in places():
        records = estimated_and_measured(place, say)
        paths.append(records.save(OUT / f"{place}.jsonl"))
        say(f"{place}: drawing the roofline")
        figure = rl.roofline(records)
        paths += [figure.save(OUT / f"{place}{suffix}") for suffix in (".png", ".html")]
        print(f"\n{rl.table(records)}", flush=True)
    paths.append(studied(say))
    print(*paths, sep="\n")
    if sys.stdout.isatty() and (sys.platform in ("darwin", "win32") or "DISPLAY" in os.environ):
        webbrowser.open(paths[-1].resolve().as_uri())


def studied(say: Callable[[str], None]) -> Path:
    """Run the study in this folder, which needs no measurement, and write its report."""
    say(f"study {STUDY.name}: estimating its cases")
    rl.run_study(STUDY, OUT / "study")
    say(f"study {STUDY.name}: writing the report")
    report = OUT / "report.html"
    rl.study_report(OUT / "study", report)
    return report


def places() -> Iterator[str]:
    """Devices of this machine: the CPU, and a GPU where torch finds one."""
    import torch

    yield "cpu"
    if torch.cuda.is_available():
        yield "cuda"


def estimated_and_measured(place: str, say: Callable[[str], None]) -> rl.RecordSet:
    """Estimate and measure every model at every batch, with ceilings that are measured once."""

    def tell(share: float, what: str) -> None:
        say(f"{place}: {what}")

    roof: str | rl.Device = "measured"
    sets: list[rl.RecordSet] = []
    for model in MODELS:
        say(f"{place}: building {model}")
        measured = rl.measure(model, batch=BATCHES, device=place, roof=roof, budget=SECONDS, progress=tell)
        (roof,) = measured.devices.values()
        sets += [rl.estimate(model, batch=BATCHES, device=roof), measured]
    return sum(sets[1:], start=sets[0])


def steps() -> Callable[[str], None]:
    """Return a function that prints each new step once, with the seconds since the start."""
    begun = time.monotonic()
    last = ""

    def say(what: str) -> None:
        nonlocal last
        if what != last:
            print(f"{time.monotonic() - begun:4.0f} s  {what}", file=sys.stderr, flush=True)
            last = what

    return say


if __name__ == "__main__":
    main()
