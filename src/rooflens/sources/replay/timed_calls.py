"""Times one call alone: captured several times in a CUDA graph, so that no host is in the time.

Operands stay where the repetition leaves them: small ones in L2, as in a step whose operations hand on their results.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

import torch

from rooflens.devices.files import slug
from rooflens.records import Call
from rooflens.sources.replay.operands import Runner, Untimed, operand_bytes, runner

ENOUGH = 200e-6
"""Seconds that the calls of one graph take together, about."""
MOST = 20
REPEATS = 5
UNCAPTURED = frozenset({"embedding_dense_backward", "masked_select", "nonzero", "_local_scalar_dense", "item"})
"""Operations whose host waits for the device: a graph cannot hold them, and a failed capture harms what follows."""
SHARE = 0.4
"""Of the card's memory: larger calls are not replayed."""


def kept_path(stored: Path) -> Path:
    """The file of times that are kept, beside the measured ceilings of the same card: versions of libraries count."""
    return stored.with_name(
        f"replayed-{slug(f'{stored.stem} {torch.__version__} {torch.backends.cudnn.version()}')}.jsonl"
    )


def time_alone(call: Call, products: bool, convolutions: bool) -> float | None:
    """Return the seconds of one call, with TF32 for products and for convolutions; None where it cannot be timed."""
    with products_in(products, convolutions):
        try:
            return timed_call(call)
        except Untimed:
            return None


@contextmanager
def products_in(tf32: bool, convolutions: bool | None = None) -> Iterator[None]:
    """Run products (and convolutions, unless told apart) on fp32 operands in TF32, or in fp32, and put that back."""
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    before = matmul.allow_tf32, cudnn.allow_tf32
    matmul.allow_tf32, cudnn.allow_tf32 = tf32, tf32 if convolutions is None else convolutions
    try:
        yield
    finally:
        matmul.allow_tf32, cudnn.allow_tf32 = before


def timed_call(call: Call, expected: float = 20e-6) -> float:
    """Return the seconds of one call on the device, the median of several graphs of it.

    Args:
        expected: about how long it takes, which says how many are captured.

    Raises:
        Untimed: the call cannot be made, or fails.
    """
    if operand_bytes(call) > SHARE * torch.cuda.get_device_properties(0).total_memory:
        raise Untimed("its operands take too much of the memory")
    stream = torch.cuda.Stream()
    try:
        with torch.cuda.stream(stream), torch.no_grad():
            run, count = runner(call), min(MOST, max(1, round(ENOUGH / expected)))
            return one_by_one(run, stream, count) if call.name in UNCAPTURED else graph_seconds(run, stream, count)
    except (RuntimeError, TypeError, ValueError, KeyError, IndexError) as error:
        raise Untimed(
            f"{call.name}: {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
        ) from error


def graph_seconds(run: Runner, stream: torch.cuda.Stream, count: int) -> float:
    """Return the seconds of one run, captured `count` times in a graph on a stream."""
    for _ in range(2):  # algorithms are chosen, workspaces allocated
        run()
    stream.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        for _ in range(count):
            run()
    graph.replay()
    return _seconds(graph.replay, stream) / count


def one_by_one(run: Runner, stream: torch.cuda.Stream, count: int) -> float:
    """Return the seconds of one run, launched by the host `count` times: of a small call, the host's seconds."""

    def several() -> None:
        for _ in range(count):
            run()

    several()
    return _seconds(several, stream) / count


def _seconds(run: Runner, stream: torch.cuda.Stream) -> float:
    """Return the median of several runs on a stream."""
    times = []
    for _ in range(REPEATS):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record(stream)
        run()
        end.record(stream)
        times.append((begin, end))
    stream.synchronize()
    return float(median(begin.elapsed_time(end) for begin, end in times)) / 1e3
