"""Rankings: which device a model should run on, and at what batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rooflens.api.estimation import estimate
from rooflens.compare import DeviceRanking
from rooflens.compare.ranking import RankedBy, ranked
from rooflens.devices import catalogue, usual_devices
from rooflens.errors import InvalidValue
from rooflens.machine import find, find_all, listed
from rooflens.progress import Progress
from rooflens.records import Device
from rooflens.runs.run import is_graph, is_own_file

if TYPE_CHECKING:
    import torch

BATCHES = (1, 8, 64, 256)
"""Batches that are tried where nobody names one."""
ALL = "all"


def rank(
    model: str | torch.nn.Module,
    *,
    device: str | Device | Sequence[str | Device] | None = None,
    batch: int | Sequence[int] | None = None,
    by: RankedBy = "throughput",
    prices: Mapping[str, float] | None = None,
    cuda_graph: bool = False,
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
        prices: by device, for an hour, in a currency of yours.
        cuda_graph: the step runs from CUDA graphs, so that no host slows it.
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
    prices = {find(name).name: price for name, price in (prices or {}).items()}
    trying = batch is None and isinstance(model, str) and not is_graph(model) and not is_own_file(model)
    records = estimate(model, device=targets, batch=BATCHES if trying else batch, progress=progress, **options)
    return ranked(records, by=by, prices=prices, best_only=trying, cuda_graph=cuda_graph)
