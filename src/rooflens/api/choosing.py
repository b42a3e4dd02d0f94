"""Choices: which device a model should run on, at what batch, and what would make it faster there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rooflens.api.arguments import named_options
from rooflens.api.estimation import estimate
from rooflens.api.reading import read
from rooflens.compare import DeviceRanking
from rooflens.compare.advice import Advice
from rooflens.compare.devices import check_prices
from rooflens.compare.ranking import NO_PRICE, RankedBy, check_order, ranked
from rooflens.devices import catalogue, usual_devices
from rooflens.devices.price_files import prices_of
from rooflens.errors import InvalidValue
from rooflens.machine import PLACES, find, find_all, listed
from rooflens.notebook import Listed
from rooflens.progress import Progress
from rooflens.records import Device
from rooflens.results import Evidence, Measured, join
from rooflens.running.advising import advised, check_expected
from rooflens.runs.run import Request, Run, is_evidence, is_graph, is_own_file, several
from rooflens.runs.time_limits import LIMIT, check_limit

if TYPE_CHECKING:
    import torch

BATCHES = (1, 8, 64, 256)
"""Batches that are tried where nobody names one."""
ALL = "all"


@named_options(estimate)
def rank(
    model: str | torch.nn.Module,
    *,
    device: str | Device | Sequence[str | Device] | None = None,
    batch: int | Sequence[int] | None = None,
    by: RankedBy = "throughput",
    prices: Mapping[str, float] | str | Path | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> DeviceRanking:
    """Rank devices for a model, by what each can be expected to reach at its best batch.

    >>> rank("resnet50", dtype="bf16").rows[0].step.device  # doctest: +SKIP
    'h200-sxm-141gb'

    The model is traced once for each batch, whatever the number of devices.

    Args:
        model: as of :func:`estimate`.
        device: names, device files or devices; ``all`` is the whole catalogue. Default: cards that clouds rent.
        batch: one or several, all of which are told. Default: the best of 1, 8, 64 and 256 on each device; of a module
            or a file the batch of its inputs.
        by: ``throughput`` (samples or tokens per second), ``time`` (of the step), ``energy`` or ``cost`` (of a sample
            or a token).
        prices: by device, for an hour, in a currency of yours; or a TOML file of them, with lines like ``l4 = 0.71``.
        options: as of :func:`estimate`.

    Returns:
        The devices in their order, the best first; ``rl.table`` shows them. Estimates are in its `records`.

    Raises:
        InvalidValue: an unknown order, a price of another device, an order by cost without prices.
        (others): as of :func:`estimate`.
    """
    if options.get("price_per_hour") is not None and prices:
        raise InvalidValue("price_per_hour is the price of the only device; with prices= give all of them there")
    named = listed(device)
    alone = [one for one in named if one != ALL]
    targets = find_all([*alone, *(catalogue() if ALL in named else ())]) if named else usual_devices()
    names = [target.name for target in targets]
    known = prices_of(prices, names, find)
    check_order(by)
    check_prices(known, names)
    if by == "cost" and not known and options.get("price_per_hour") is None:
        raise InvalidValue(NO_PRICE)
    trying = batch is None and isinstance(model, str) and not is_graph(model) and not is_own_file(model)
    records = estimate(model, device=targets, batch=BATCHES if trying else batch, progress=progress, **options)
    return ranked(records, by=by, prices=known, best_only=trying)


HARDLY_IDLE = 0.05
"""Share of a profiled step in which its device waits, up to which the device decides on its time."""
MOST_STEPS = 8
"""Steps of a file that are advised on at once: each is estimated some ten times."""


@named_options(estimate)
def advise(
    model: str | Path | torch.nn.Module,
    *,
    device: str | Device | Sequence[str | Device] | None = None,
    batch: int | Sequence[int] | None = None,
    limit: float = LIMIT,
    progress: Progress | None = None,
    **options: Any,
) -> tuple[Advice, ...]:
    """Tell what would help a step on a single GPU, by how much, and what that costs.

    >>> advise("resnet50", device="h100-sxm", batch=64)[0].together[0].gain  # doctest: +SKIP

    Each change that applies is estimated alone, and the best of them together: a lower precision, channels last,
    compiling, fused attention, CUDA graphs, a fused optimizer, weights or a cache in fewer bits, a larger batch.

    Args:
        model: as of :func:`estimate`; or a record file with measured steps, whose times are then those to improve; of a
            profile, whose profiler slows the host, the busy time is used where the device hardly ever waited.
        device: name, device file or device, or several, each with its own advice; of a file they pick the steps, as
            `batch` does.
        batch: one or several.
        limit: seconds for each estimate of a model in a file of your own.
        options: as of :func:`estimate`; none of a record file.

    Returns:
        For each step on each device what helps it; ``rl.table`` shows it.

    Raises:
        InvalidValue: no device, or a file without such steps, or with more than 8 of them.
        Incomparable: no time can be expected of a step there: the device is no single GPU, or an operation is unknown.
        (others): as of :func:`estimate`.
    """
    check_limit(limit)
    if is_evidence(model):
        if options:
            raise InvalidValue(f"{min(options)} is an option of a model, and {str(model)!r} is a file of what ran")
        asked = list(_in_file(Path(model), device, batch))
    else:
        targets = _targets(device)
        if not targets:
            raise InvalidValue(
                "advice is about a model on a device, and none is named; give one: --device h200, in Python"
                " device='h200'"
            )
        arguments = {"model": str(model) if isinstance(model, Path) else model, **options}
        requests = (Request.each_of({**arguments, "batch": size}) for size in several(batch))
        asked = [(request, target, None) for each in requests for request in each for target in targets]
    for _, target, _ in asked:
        check_expected(target)
    return Listed(_advised(*each, limit=limit, progress=progress) for each in asked)


def _advised(
    request: Request, target: Device, measured: Measured | None, *, limit: float, progress: Progress | None
) -> Advice:
    """Return advice from the time of a whole step, or from a profile in which the device hardly ever waited.

    A profiler slows the host alone, so that without it the device waits less: such a step takes the busy time, or
    little more. Otherwise what was timed piece by piece is told, and not used as its time.
    """
    seconds = profile = None
    if measured is not None:
        decides = measured.idle is not None and measured.idle <= HARDLY_IDLE
        seconds = measured.seconds if decides or not measured.pieces else None
        profile = measured if measured.pieces else None
    return replace(advised(request, target, seconds, limit=limit, progress=progress), profile=profile)


def _targets(device: str | Device | Sequence[str | Device] | None) -> tuple[Device, ...]:
    """The devices that advice is about.

    Raises:
        InvalidValue: a place of torch; no time can be expected on a processor, and a card needs its name.
    """
    for one in listed(device):
        if one in PLACES:
            raise InvalidValue(
                f"advice takes no {one!r}: expected times are known for GPUs alone; name one of them, like 'l4'"
                " ('rooflens devices list'); 'rooflens measure' tells what a change gives here"
            )
    return find_all(device)


def _in_file(
    path: Path, device: str | Device | Sequence[str | Device] | None, batch: int | Sequence[int] | None
) -> Iterator[tuple[Request, Device, Measured | None]]:
    """Yield the steps of a file on devices that are known, with their measured times."""
    items = join(read(path))
    _check_named(items, path)
    found = [item for item in items if item.device is not None and item.case.batch in _batches(item, batch)]
    named = [target.name for target in _targets(device)]
    if named:
        found = [item for item in found if item.case.device in named]
    timed = [item for item in found if item.measured() is not None] or found
    if not 0 < len(timed) <= MOST_STEPS:
        what = f"has {len(timed)} of them; advice is given on {MOST_STEPS} at once" if timed else "has none"
        raise InvalidValue(f"a step on a known device is wanted, and {str(path)!r} {what}: name a batch, or a device")
    for item in timed:
        assert item.device is not None
        yield Request.of_run(Run.of(item.case).in_dtype()), item.device, item.measured()


def _check_named(items: Sequence[Evidence], path: Path) -> None:
    """Raise InvalidValue if a file of another tool tells of no step which one it is."""
    if items and all(item.unnamed for item in items):
        devices = " and ".join(dict.fromkeys(item.case.device or "a device without a name" for item in items))
        raise InvalidValue(
            f"{str(path)!r} is of {devices} and does not tell which step ran; say it, and advise on named.jsonl:"
            f" rooflens read {str(path)!r} --model NAME -b BATCH --mode MODE --dtype DTYPE -o named.jsonl (of a"
            " language model --seq-len too)"
        )


def _batches(item: Evidence, batch: int | Sequence[int] | None) -> tuple[int | None, ...]:
    return (item.case.batch,) if batch is None else several(batch)
