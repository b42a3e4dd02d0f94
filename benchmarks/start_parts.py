"""Where the seconds go before a step is counted or timed: python benchmarks/start_parts.py OUT [--device cpu]

Each child is a fresh process that does one thing after the other and tells when each was done. Every line is printed as
soon as it is known, and all go to OUT/start-parts.json.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import wraps
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from rooflens.without_compiler import compiler_on_demand

TIMED = (
    ("torch.profiler.profile", "__enter__ step __exit__ export_chrome_trace"),
    ("rooflens.sources.profile.profiled_step", "_profile read_trace lacking of_the_step attribute records_of"),
    ("rooflens.sources.profile.profiled_step", "called_launches"),
    ("rooflens.running.profiling", "found_device workload_of _step contents write_records"),
)
"""What a profile of a step calls, by the module that calls it."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--model", default="resnet18")
    parser.add_argument("--child", help="be a child that does this")
    parser.add_argument("--began", type=float, default=time.monotonic())
    asked = parser.parse_args()
    if asked.child is not None:
        globals()[asked.child](asked)
        return
    asked.out.mkdir(parents=True, exist_ok=True)
    found: dict[str, Any] = {}

    def note(name: str, what: Any) -> None:
        found[name] = what
        print(json.dumps({name: what}), flush=True)
        (asked.out / "start-parts.json").write_text(json.dumps(found, indent=1) + "\n")

    note("compiled files", compiled_files())
    note("libraries, first", children("libraries", 1, asked))
    note("libraries, alone", children("libraries", 1, asked))
    note("libraries, six at once", children("libraries", 6, asked))
    note("profile", children("profiled", 1, asked))
    note("estimate", children("estimated", 1, asked))
    note("imports of timm", children("timm_imports", 1, asked))
    note("ncu", children("asking_ncu", 1, asked))


def compiled_files() -> dict[str, bool]:
    """Whether packages have their code compiled, by name."""
    specs = {name: find_spec(name) for name in ("torch", "torchvision", "timm", "sympy", "rooflens")}
    return {name: spec is not None and Path(spec.cached or "").is_file() for name, spec in specs.items()}


def children(what: str, number: int, asked: argparse.Namespace) -> Any:
    """What children told that ran at the same time; of several, the last moment of each thing."""
    command = [sys.executable, __file__, str(asked.out), "--device", asked.device, "--model", asked.model]
    command += ["--child", what, "--began"]
    runs = [
        subprocess.Popen([*command, str(time.monotonic())], stdout=subprocess.PIPE, text=True) for _ in range(number)
    ]
    told = []
    for run in runs:
        said, _ = run.communicate()
        lines = [line for line in said.splitlines() if line.startswith("{")]
        told.append(json.loads(lines[-1]) if lines else {"exit code": run.returncode})
    if number == 1:
        return told[0]
    return {name: max(its.get(name, 0.0) for its in told) for name in told[0]}


class Told:
    """Moments in seconds since the child was started."""

    def __init__(self, began: float) -> None:
        self._began, self.moments = began, dict[str, Any]()

    def __call__(self, name: str) -> None:
        self.moments[name] = round(time.monotonic() - self._began, 3)

    def say(self) -> None:
        """Print them."""
        print(json.dumps(self.moments), flush=True)


def libraries(asked: argparse.Namespace) -> None:
    """Import what profiles a model, and load what runs it."""
    tell = Told(asked.began)
    tell("interpreter")
    compiler_on_demand()
    import torch

    tell("torch")
    from rooflens.running import profiling  # noqa: F401
    from rooflens.sources import measure

    tell("rooflens")
    import torchvision

    tell(f"torchvision {torchvision.__version__}")
    torch.ones(1, device=asked.device)
    tell("device")
    measure.load_libraries(asked.device)
    tell("libraries")
    kinds = [torch.profiler.ProfilerActivity.CPU]
    kinds += [torch.profiler.ProfilerActivity.CUDA] if asked.device == "cuda" else []
    for n in range(3):
        with torch.profiler.profile(activities=kinds):
            torch.ones(1, device=asked.device).add_(1).cpu()
        tell(f"profile {n + 1}")
    tell.say()


def profiled(asked: argparse.Namespace) -> None:
    """Profile a training step as `rooflens counters` does; seconds of each call of what it calls."""
    from rooflens.running import profiling
    from rooflens.running.jobs import Profile, StageEntered, Start
    from rooflens.runs.options import Options
    from rooflens.runs.run import Run

    compiler_on_demand()
    tell = Told(asked.began)
    seconds: list[tuple[str, float]] = []

    def timed(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(call)
        def run(*args: Any, **kwargs: Any) -> Any:
            began = time.monotonic()
            try:
                return call(*args, **kwargs)
            finally:
                seconds.append((name, round(time.monotonic() - began, 3)))

        return run

    for where, names in TIMED:
        module, _, last = where.rpartition(".")
        owner = getattr(import_module(module), last) if last == "profile" and module == "torch.profiler" else None
        owner = owner or import_module(where)
        for name in names.split():
            setattr(owner, name, timed(name, getattr(owner, name)))
    tell("imports")
    do = profiling.begin(Start(kind="profile", where=asked.device))
    run = Run(model=asked.model, batch=32, dtype="amp-bf16", mode="train", options=Options(optimizer="sgd"))
    with TemporaryDirectory() as folder:
        paths = {name: f"{folder}/{name}" for name in ("trace", "out", "launches")}
        for n in range(2):
            do(
                Profile(run=run, device="card", **paths),
                lambda answer: tell(f"{n + 1} {answer.name}") if isinstance(answer, StageEntered) else None,  # noqa: B023
            )
            tell(f"{n + 1} end")
            seconds.append(("end", 0.0))
        sizes = {name: Path(path).stat().st_size for name, path in paths.items()}
    tell.moments |= {"calls": seconds, "sizes": sizes}
    tell.say()


def estimated(asked: argparse.Namespace) -> None:
    """Estimate a timm model at three batches, as the worker beside a measurement does."""
    tell = Told(asked.began)
    compiler_on_demand()
    with ThreadPoolExecutor(1) as beside:
        beside.submit(import_module, "sympy")
        import torch  # noqa: F401

        tell("torch")
    tell("sympy")
    from rooflens.devices import find
    from rooflens.models import workload
    from rooflens.running import estimating
    from rooflens.running.jobs import Estimate, Start
    from rooflens.runs.run import Request, Run

    tell("rooflens")
    do = estimating.begin(Start(kind="estimate"))
    tell("first estimate")
    runs = [Run(model="timm:resnet34", batch=batch) for batch in (1, 32, 128)]
    workload(Request.of_run(runs[0]))
    tell("model")
    with TemporaryDirectory() as folder:
        for run in runs:
            do(Estimate(run=run, devices=(find("h200-sxm-141gb"),), out=f"{folder}/out"), lambda _: None)
            tell(f"batch {run.batch}")
    compilers = ("torch._dynamo.eval_frame", "torch._inductor.compile_fx")
    tell.moments["loaded"] = [name for name in compilers if name in sys.modules]
    tell.say()


def timm_imports(asked: argparse.Namespace) -> None:
    """Import timm; the modules that take longest with all that they import, in seconds."""
    tell = Told(asked.began)
    compiler_on_demand()
    import torch  # noqa: F401

    tell("torch")
    import torchvision  # noqa: F401

    tell("torchvision")
    import timm

    tell("timm")
    timm.create_model("resnet34")
    tell("resnet34")
    said = subprocess.run(
        [sys.executable, "-X", "importtime", "-c", "import torch, sys\nprint('BEGIN', file=sys.stderr)\nimport timm"],
        capture_output=True, text=True, check=False,
    ).stderr  # fmt: skip
    rows = [line.split("|") for line in said.partition("BEGIN")[2].splitlines() if line.count("|") == 2]
    longest = sorted(((int(whole) / 1e6, name.rstrip()) for _, whole, name in rows), reverse=True)
    tell.moments["longest"] = longest[:30]
    tell.say()


def asking_ncu(asked: argparse.Namespace) -> None:
    """Ask ncu its version and options, and the driver for the card."""
    from rooflens.sources.counters import ncu
    from rooflens.sources.counters.ncu import tool

    tell = Told(time.monotonic())
    path = ncu.find().path
    tell("find")
    for question in ("--version", "--help"):
        tool._asked(path, question)
        tell(question)
    tell.moments["capability"] = ncu.capability()
    tell("driver")
    tell.say()


if __name__ == "__main__":
    os.environ.setdefault("PYTHONUNBUFFERED", "1")
    main()
