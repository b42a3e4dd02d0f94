"""Take on a GPU what predictions are fitted on and judged by: suite, host costs, times of models, replayed operations.

    PYTHONPATH=src:. python3 benchmarks/prediction/on_gpu.py OUT --seconds 420
    PYTHONPATH=src:. python3 benchmarks/prediction/on_gpu.py OUT --seconds 110 --judged
    PYTHONPATH=src:. python3 benchmarks/prediction/on_gpu.py OUT --seconds 20 --suite-from 1175
    PYTHONPATH=src:. python3 benchmarks/prediction/on_gpu.py OUT --seconds 50 --calls calls.jsonl.gz

Writes suite.jsonl, host.json, truth.jsonl and replayed.jsonl to OUT, line by line: what was not reached is not there.
"""

from __future__ import annotations

import argparse
import gzip
import json
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, TextIO

import torch
import torchvision
from benchmarks.prediction.traces import Traces
from benchmarks.prediction.truth_models import DECODERS
from benchmarks.prediction.truth_models import MODELS as JUDGED
from benchmarks.prediction.truth_on_gpu import decoding

import rooflens as rl
from rooflens.costs import Arithmetic, cost
from rooflens.predict import CallOnDevice, card_of, expected_seconds
from rooflens.predict.suite import suite
from rooflens.records import Call, Device, Record
from rooflens.records.calls import from_plain, to_plain
from rooflens.sources.calibrate.host_costs import host_costs
from rooflens.sources.replay.operands import Untimed
from rooflens.sources.replay.timed_calls import products_in, timed_call

MODELS = (
    *(
        "resnet50",
        "vit_b_16",
        "mobilenet_v3_large",
        "convnext_tiny",
        "swin_t",
        "densenet121",
        "vgg16",
        "efficientnet_b0",
    ),
    *("resnext50_32x4d", "resnet18", "regnet_y_3_2gf", "shufflenet_v2_x1_0", "googlenet", "mnasnet1_0"),
)
BATCHES = (1, 32, 256)
FORMS = (("bf16", True), ("tf32", False))
"""Element type, and whether images have channels last."""
TRAINED = ("resnet50", "vit_b_16", "convnext_tiny", "mobilenet_v3_large")
TRAINING_BATCH = 64


def calls_of(model: str) -> list[tuple[Call, bool]]:
    """The distinct calls of a model in every form and batch, and whether products run in TF32; runs in a process."""
    return _distinct(
        (record, dtype == "tf32")
        for dtype, channels_last in FORMS
        for record in rl.estimate(model, batch=list(BATCHES), dtype=dtype, channels_last=channels_last)
    )


def calls_of_training(model: str) -> list[tuple[Call, bool]]:
    """The distinct calls of a training step in autocast."""
    step = rl.estimate(model, batch=TRAINING_BATCH, dtype="amp-bf16", mode="train", optimizer="sgd")
    return _distinct((record, False) for record in step)


def calls_of_language(model: str) -> list[tuple[Call, bool]]:
    """The distinct calls of prefill and of decoding steps, as they are captured in CUDA graphs."""
    with TemporaryDirectory() as folder:
        traces = Traces(Path(folder))
        steps = [traces.step(case, captured=True) for case in decoding(model)]
    return _distinct((record, False) for step in steps for record in step)


def _distinct(records: Iterable[tuple[Record, bool]]) -> list[tuple[Call, bool]]:
    found: dict[tuple[Any, ...], tuple[Call, bool]] = {}
    for record, tf32 in records:
        laid = record.layouts or (((record.call, record.calls),) if record.call is not None else ())
        for call, _ in laid:
            found.setdefault((call, call.layout, tf32), (call, tf32))
    return list(found.values())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seconds", type=float, default=420)
    parser.add_argument("--jobs", type=int, default=14)
    parser.add_argument("--judged", action="store_true", help="only replay the calls of truth_models")
    parser.add_argument("--calls", type=Path, help="only replay the calls that missing_calls.py has listed")
    parser.add_argument("--suite-from", type=int, help="only time the suite's calls from this number on")
    given = parser.parse_args()
    begun = time.monotonic()
    given.out.mkdir(parents=True, exist_ok=True)
    device = rl.device(torch.cuda.get_device_name())

    def left() -> float:
        return float(given.seconds) - (time.monotonic() - begun)

    if given.suite_from is not None:
        times_of_suite(given.out, device, left, given.suite_from)
        return
    if given.calls is not None:
        replayed_from(given.calls, given.out, device, left)
        return
    with ProcessPoolExecutor(given.jobs, mp_context=get_context("spawn")) as pool:
        traced = {model: pool.submit(calls_of, model) for model in (() if given.judged else MODELS)}
        if given.judged:
            traced |= {f"{model}, language": pool.submit(calls_of_language, model) for model in DECODERS[:2]}
            traced |= {
                f"{model}, training": pool.submit(calls_of_training, model) for model in JUDGED[: len(JUDGED) // 2]
            }
            traced |= {model: pool.submit(calls_of, model) for model in JUDGED}

        def told(what: str) -> None:
            print(f"{what}: {given.seconds - left():.0f} s", flush=True)

        if given.judged:
            replayed(given.out, device, traced, left)
            told("replay")
            pool.shutdown(wait=False, cancel_futures=True)
            return
        times_of_suite(given.out, device, left)
        told("suite")
        for future in traced.values():
            future.exception(timeout=max(1.0, left()))
        told("traced")
        costs = [host_costs("cuda") for _ in range(2)]
        (given.out / "host.json").write_text(json.dumps({"card": torch.cuda.get_device_name(), "costs": costs}))
        told("host")
        times_of_models(given.out, lambda: left() - 0.4 * given.seconds)
        told("models")
        times_of_training(given.out, left)
        told("training")
        replayed(given.out, device, traced, left)
        told("replay")


def times_of_suite(out: Path, device: Device, left: Any, first: int = 0) -> None:
    with (out / "suite.jsonl").open("w") as file:
        for number, item in enumerate(suite()):
            if number < first:
                continue
            if left() < 0:
                break
            _write(file, {"number": number, "effect": item.effect} | _timed(item.call, item.tf32, device))


def replayed(out: Path, device: Device, traced: dict[str, Future[Any]], left: Any) -> None:
    """The models' own calls, each once, however many models have it."""
    known: set[tuple[Any, ...]] = set()
    with (out / "replayed.jsonl").open("w") as file:
        of = {future: model for model, future in traced.items()}
        for future in as_completed(of):
            model = of[future]
            if future.exception() is not None:
                print(model, repr(future.exception()), flush=True)
                continue
            for call, tf32 in future.result():
                key = (call, call.layout, tf32)
                if left() < 0:
                    return
                if key not in known:
                    known.add(key)
                    _write(file, {"model": model, "tf32": tf32, "call": to_plain(call)} | _timed(call, tf32, device))


def replayed_from(calls: Path, out: Path, device: Device, left: Callable[[], float]) -> None:
    """Replay listed calls, in their order, until the time is over."""
    done = 0
    with gzip.open(calls, "rt") as listed, (out / "replayed.jsonl").open("w") as file:
        for line in listed:
            if left() < 0:
                break
            row = json.loads(line)
            _write(file, row | _timed(from_plain(row["call"]), row["tf32"], device))
            done += 1
    print(f"{done} calls, the last one of {row['model']}; {left():.0f} s left", flush=True)


def _timed(call: Call, tf32: bool, device: Device) -> dict[str, Any]:
    card = card_of(device)
    assert card is not None
    one = cost(call, Arithmetic("tf32", "tf32") if tf32 else Arithmetic())
    work = one.kernel_work or one.work
    priced = CallOnDevice(call, one.family, work.flops, work.bytes["dram"], 0.0, 1.0, "forward", None)
    expected = expected_seconds(priced, card)
    try:
        with products_in(tf32):
            return {"name": call.name, "seconds": timed_call(call, expected), "expected": expected}
    except Untimed as why:
        return {"name": call.name, "error": str(why)}


def times_of_models(out: Path, left: Any) -> None:
    with (out / "truth.jsonl").open("w") as file, torch.no_grad():
        for model in MODELS:
            for dtype, channels_last in FORMS:
                if left() < 0:
                    return
                for row in _model_rows(model, dtype, channels_last):
                    _write(file, row)


def _model_rows(model: str, dtype: str, channels_last: bool) -> Iterator[dict[str, Any]]:
    layout = torch.channels_last if channels_last else torch.contiguous_format
    kind = torch.bfloat16 if dtype == "bf16" else torch.float32
    options = {"aux_logits": False, "init_weights": False} if model == "googlenet" else {}
    module = (
        torchvision.models.get_model(model, weights=None, **options).eval().cuda().to(kind).to(memory_format=layout)
    )
    case = {"model": model, "dtype": dtype, "channels_last": channels_last, "mode": "inference"}
    with products_in(dtype == "tf32"):
        for batch in BATCHES:
            x = torch.randn(batch, 3, 224, 224, device="cuda", dtype=kind).to(memory_format=layout)
            graph = torch.cuda.CUDAGraph()
            stream = torch.cuda.Stream()
            with torch.cuda.stream(stream):
                for _ in range(3):
                    module(x)
            stream.synchronize()
            with torch.cuda.graph(graph, stream=stream):
                module(x)
            eager, issued, replay = [], [], []
            for _ in range(3):  # eager and replayed in turn, so that both see the same machine
                for _ in range(4):
                    torch.cuda.synchronize()
                    begun = time.perf_counter()
                    events = _events(lambda x=x: module(x))
                    issued.append(time.perf_counter() - begun)
                    eager.append(_elapsed(events))
                replay += [_elapsed(_events(graph.replay)) for _ in range(4)]
            yield case | {"batch": batch, "eager": median(eager), "graph": median(replay), "host": median(issued)}
            del graph


def times_of_training(out: Path, left: Any) -> None:
    with (out / "training.jsonl").open("w") as file:
        for model in TRAINED:
            for dtype in ("amp-bf16", "tf32"):
                if left() < 0:
                    return
                _write(file, _training(model, dtype))


def _training(model: str, dtype: str) -> dict[str, Any]:
    module = torchvision.models.get_model(model, weights=None).train().cuda()
    optimizer = torch.optim.SGD(module.parameters(), lr=1e-4, momentum=0.9)
    x = torch.randn(TRAINING_BATCH, 3, 224, 224, device="cuda")
    y = torch.randint(0, 1000, (TRAINING_BATCH,), device="cuda")
    phases: dict[str, list[float]] = {"forward": [], "backward": [], "optimizer": []}
    with products_in(dtype == "tf32" or dtype.startswith("amp")):
        for step in range(10):
            optimizer.zero_grad(set_to_none=True)
            marks = [_mark()]
            with torch.autocast("cuda", torch.bfloat16, enabled=dtype.startswith("amp")):
                loss = torch.nn.functional.cross_entropy(module(x), y)
            marks.append(_mark())
            loss.backward()
            marks.append(_mark())
            optimizer.step()
            marks.append(_mark())
            torch.cuda.synchronize()
            if step > 3:
                for name, begin, end in zip(phases, marks, marks[1:], strict=False):
                    phases[name].append(begin.elapsed_time(end) / 1e3)
    times = {name: median(seconds) for name, seconds in phases.items()}
    return {"model": model, "dtype": dtype, "mode": "train", "batch": TRAINING_BATCH} | times


def _mark() -> torch.cuda.Event:
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event


def _events(run: Any) -> tuple[torch.cuda.Event, torch.cuda.Event]:
    begin = _mark()
    run()
    return begin, _mark()


def _elapsed(events: tuple[torch.cuda.Event, torch.cuda.Event]) -> float:
    events[1].synchronize()
    return float(events[0].elapsed_time(events[1])) / 1e3


def _write(file: TextIO, row: dict[str, Any]) -> None:
    file.write(json.dumps(row) + "\n")
    file.flush()


if __name__ == "__main__":
    main()
