"""Estimate and measure three models on this machine, then run a small study. Run by `make demo`.

Records, figures and the report of the study go to out/demo; where there is a screen, the report opens.
"""

from __future__ import annotations

import os
import sys
import time
import webbrowser
from collections.abc import Iterator
from pathlib import Path

import rooflens as rl

MODELS = ("resnet18", "alexnet", "mobilenet_v3_large")
BATCHES = (1, 16)
SECONDS = 2.0
"""Sampling per model and batch; it ends earlier where the time is steady."""
OUT = Path("out") / "demo"
STUDY = Path(__file__).with_name("resnets.toml")


COLUMNS = ("flops", "seconds", "bound_by", "measured_seconds", "efficiency", "throughput")
KINDS = ("records", "picture", "picture as a page")
NEXT = """
Try next:
  rooflens rank resnet18 --mode train -b 128           which card suits a model
  rooflens estimate resnet18 --device t4 --by module   its layers
  rooflens read out/demo/cpu.jsonl                     all that was found here
"""


def main() -> None:
    say = Steps()
    say("loading torch")
    lines = []
    for place in places():
        records = estimated_and_measured(place, say)
        say(f"{place}: drawing the roofline")
        figure = rl.roofline(records)
        paths = [records.save(OUT / f"{place}.jsonl")]
        paths += [figure.save(OUT / f"{place}{suffix}") for suffix in (".png", ".html")]
        lines += [f"{what:22}{path}" for what, path in zip(KINDS, paths, strict=True)]
        say.end()
        print(f"{len(MODELS)} models, estimated and measured on this {place}:\n")
        print(f"{rl.table(records, by='model', columns=COLUMNS)}", flush=True)
    report = studied(say)
    say.end()
    print(*lines, f"{f'study {STUDY.name}':22}{report}", sep="\n")
    print(NEXT, end="")
    if sys.stdout.isatty() and (sys.platform in ("darwin", "win32") or "DISPLAY" in os.environ):
        webbrowser.open(report.resolve().as_uri())


def studied(say: Steps) -> Path:
    """Run the study in this folder, which needs no measurement, and write its report."""
    say(f"study {STUDY.name}: estimating its cases and writing the report")
    rl.run_study(STUDY, OUT / "study")
    report = OUT / "report.html"
    rl.study_report(OUT / "study", report)
    return report


def places() -> Iterator[str]:
    """Devices of this machine: the CPU, and a GPU where torch finds one."""
    import torch

    yield "cpu"
    if torch.cuda.is_available():
        yield "cuda"


def estimated_and_measured(place: str, say: Steps) -> rl.RecordSet:
    """Estimate and measure every model at every batch, with ceilings that are measured once."""

    def tell(share: float, what: str) -> None:
        if what.startswith("measuring ceilings"):
            say(f"{place}: measuring ceilings", what)
        else:
            say(f"{place}: running {model}", what)

    roof: str | rl.Device = "measured"
    sets: list[rl.RecordSet] = []
    for model in MODELS:
        measured = rl.measure(model, batch=BATCHES, device=place, roof=roof, budget=SECONDS, progress=tell)
        (roof,) = measured.devices.values()
        sets += [rl.estimate(model, batch=BATCHES, device=roof), measured]
    return sum(sets[1:], start=sets[0])


class Steps:
    """Says what is done, with the seconds since the start: in one line of a terminal, else in a line for each step."""

    def __init__(self) -> None:
        self._begun = time.monotonic()
        self._last = ""
        self._on_terminal = sys.stderr.isatty()

    def __call__(self, step: str, detail: str = "") -> None:
        text = f"{time.monotonic() - self._begun:4.0f} s  {detail or step}"
        if self._on_terminal:
            print(f"\r{text[:79]:79}", end="", file=sys.stderr, flush=True)
        elif step != self._last:
            print(f"{time.monotonic() - self._begun:4.0f} s  {step}", file=sys.stderr, flush=True)
        self._last = step

    def end(self) -> None:
        """Clear the line of a terminal."""
        if self._on_terminal:
            print(f"\r{'':79}\r", end="", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
