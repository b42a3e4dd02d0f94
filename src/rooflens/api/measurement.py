"""What a model really takes on this machine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from rooflens.api.cases import Progress, request
from rooflens.api.estimation import estimate as estimated
from rooflens.api.machine import this_machine
from rooflens.errors import InvalidValue, RooflensError
from rooflens.models import Loss
from rooflens.records import Device, Failure, Record
from rooflens.results import RecordSet
from rooflens.timing import Policy

if TYPE_CHECKING:
    import torch


def measure(
    model: str | torch.nn.Module,
    *,
    inputs: Any = None,
    name: str | None = None,
    batch: int | Sequence[int] | None = None,
    device: str | None = None,
    dtype: str | None = None,
    mode: str = "inference",
    loss: Loss | None = None,
    optimizer: str = "sgd",
    img_size: int | None = None,
    seq_len: int | None = None,
    channels_last: bool = False,
    budget: float = 3.0,
    roof: str | Device | None = None,
    estimate: bool = False,
    progress: Progress | None = None,
) -> RecordSet:
    """Run a step on this machine and time it: forward, or forward, backward and optimizer.

    Args:
        device: ``cpu`` or ``cuda``; default is the GPU where torch has one.
        budget: seconds of sampling per batch, after warm-up.
        roof: the device whose ceilings hold for this machine: a name, a device file, or ``measured`` to measure them
            first (about ten seconds). Default: the catalogue's entry for the card or processor, if it has one.
        estimate: also estimate the same cases, so that tables and figures can show efficiency.
        (others): as in :func:`estimate`.

    Returns:
        One record per phase with every sample; a batch that fails is a `Failure` in `.failures`, and the others go on.

    Raises:
        ModelError: every batch failed.
    """
    words: dict[str, Any] = {
        "inputs": inputs,
        "name": name,
        "batch": batch,
        "dtype": dtype,
        "mode": mode,
        "loss": loss,
        "optimizer": optimizer,
        "img_size": img_size,
        "seq_len": seq_len,
        "channels_last": channels_last,
    }
    asked = request(model, **words)
    policy = Policy(budget=budget)
    machine = this_machine(device, roof, progress)
    if machine.where == "cpu" and asked.dtype == "tf32":
        raise InvalidValue("a CPU has no TF32; measure fp32 or bf16")
    # Before anything runs: what an estimate refuses costs no measurement.
    beside = _estimated(model, machine.device, words) if estimate else None
    from rooflens.sources import environment
    from rooflens.sources import measure as source

    records: list[Record] = []
    failures: list[Failure] = []
    module = asked.build("cpu")
    for n, (size, case) in enumerate(zip(asked.batches, asked.cases(machine.name), strict=True)):
        try:
            step = source.placed(asked.step(module, size, "cpu"), machine.where)
            records += source.records(
                step, case, machine.where, policy, _inner(progress, n, len(asked.batches), case.label())
            )
        except InvalidValue:
            raise
        except RooflensError as error:
            failures.append(source.failure(case, error))
            if len(failures) == len(asked.batches):
                raise
    measured = RecordSet(
        records,
        devices={} if machine.device is None else {machine.name: machine.device},
        failures=failures,
        environment=environment.capture(),
    )
    return measured if beside is None else beside + measured


def _estimated(model: str | torch.nn.Module, device: Device | None, words: dict[str, Any]) -> RecordSet:
    try:
        return estimated(model, device=device, **words)
    except RooflensError as error:
        error.add_note("this is the estimate beside the measurement; leave it out with estimate=False (--no-estimate)")
        raise


def _inner(progress: Progress | None, n: int, total: int, what: str) -> Callable[[float], None] | None:
    if progress is None:
        return None
    return lambda share: progress((n + share) / total, what)
