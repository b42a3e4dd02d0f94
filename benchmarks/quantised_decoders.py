"""Decoders whose products have weights of 8 bits, by what torch alone has for them, timed like any other step.

    python -m benchmarks.quantised_decoders RUN.json _scaled_mm cuda 0.3 ANSWER.json

- `_scaled_mm`: weights and activations in e4m3, scaled each as a whole;
- `_weight_int8pack_mm`: weights in int8, a scale for each row, activations as they are;
- `_int_mm`: both in int8, activations with a scale for each token.
"""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import torch
from torch import nn
from torch.nn import functional

from rooflens.errors import ModelError, RooflensError
from rooflens.models import placed, workload_of
from rooflens.records import Memory, Record, Timing
from rooflens.runs.run import Run
from rooflens.sources import measure
from rooflens.sources.conditions import Observer
from rooflens.timing import Policy

LEAST_ROWS = 32
"""Of an int8 product on a card: `torch._int_mm` takes more than 16."""


def scaled(weight: torch.Tensor, most: float) -> tuple[torch.Tensor, torch.Tensor]:
    """A weight with rows between -most and most, and their scales."""
    scale = weight.abs().amax(dim=1, keepdim=True).float().clamp(min=1e-8) / most
    return weight.float() / scale, scale


class Fp8Linear(nn.Module):
    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        scale = linear.weight.abs().amax().float() / 448  # the most that e4m3 holds
        self.weight = nn.Buffer((linear.weight.float() / scale).to(torch.float8_e4m3fn))
        self.scale, self.bias = nn.Buffer(scale), linear.bias

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        flat = x.reshape(-1, x.shape[-1])
        scale = flat.abs().amax().float() / 448
        values = (flat / scale).to(torch.float8_e4m3fn)
        product = torch._scaled_mm(
            values, self.weight.t(), scale_a=scale, scale_b=self.scale, bias=self.bias, out_dtype=x.dtype
        )
        return product.reshape(*x.shape[:-1], -1)


class Int8Linear(nn.Module):
    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        values, scale = scaled(linear.weight, 127)
        self.weight, self.bias = nn.Buffer(values.round().to(torch.int8)), linear.bias
        self.scale = nn.Buffer(scale[:, 0].to(linear.weight.dtype))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        flat = x.reshape(-1, x.shape[-1])
        product = torch._weight_int8pack_mm(flat, self.weight, self.scale).reshape(*x.shape[:-1], -1)
        return product if self.bias is None else product + self.bias


class BothInt8Linear(nn.Module):
    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        values, scale = scaled(linear.weight, 127)
        self.weight, self.scale = nn.Buffer(values.round().to(torch.int8)), nn.Buffer(scale[:, 0])
        self.bias = linear.bias

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        flat = x.reshape(-1, x.shape[-1])
        values, scale = scaled(flat, 127)
        rows = values.round().to(torch.int8)
        padded = functional.pad(rows, (0, 0, 0, max(0, LEAST_ROWS - len(rows))))
        product = torch._int_mm(padded, self.weight.t())[: len(rows)] * scale * self.scale
        product = product.to(x.dtype).reshape(*x.shape[:-1], -1)
        return product if self.bias is None else product + self.bias


KINDS = {
    ("fp8", "_scaled_mm"): Fp8Linear,
    ("int8", "_weight_int8pack_mm"): Int8Linear,
    ("int8", "_int_mm"): BothInt8Linear,
}
"""What stands for a linear layer, by the format of its weights and the product that torch has for it."""


def quantise(module: nn.Module, kind: Any) -> None:
    """Replace every linear layer below a module."""
    for name, part in module.named_children():
        if isinstance(part, nn.Linear):
            setattr(module, name, kind(part))
        else:
            quantise(part, kind)


def timed(run: Run, kernel: str, where: str, budget: float) -> dict[str, Any]:
    """The seconds and the peak of a run whose weights are stored in another format."""
    kind = KINDS[str(run.options.weights), kernel]
    observer = Observer(where)
    measure.load_libraries(where)
    plain = replace(run, options=replace(run.options, weights=None))
    asked = workload_of(plain)
    held = measure.Held(observer)
    step = placed(asked.step(asked.runs[0], where), where, copy=False)
    quantise(step.module, kind)
    held.is_prepared()
    policy = Policy(budget=budget)
    made = list(measure.records(step, plain.case(), observer, options=asked.runs[0].options, policy=policy, held=held))
    return {"seconds": sum(seconds_of(record) for record in made), "peak": peak_of(made)}


def kept(run: Run) -> int:
    """Bytes of output weights in 8 bits that lie beside an embedding with the same weights, which an estimate keeps."""
    module: Any = workload_of(run).untouched_steps()(run).module
    output = module.get_output_embeddings().weight
    return int(output.numel()) if output is module.get_input_embeddings().weight else 0


def seconds_of(record: Record) -> float:
    return record.timing.median if isinstance(record.timing, Timing) else 0.0


def peak_of(records: list[Record]) -> int | None:
    return next((record.memory.peak for record in records if isinstance(record.memory, Memory)), None)


def measured(run: Run, kernel: str, where: str, budget: float, limit: float) -> dict[str, Any]:
    """As :func:`timed`, in a process of its own.

    Raises:
        ModelError: the step cannot be run so; the message has the last line of what the process said.
    """
    with TemporaryDirectory(prefix="rooflens-") as folder:
        asked, answer = Path(folder) / "run.json", Path(folder) / "answer.json"
        asked.write_bytes(msgspec.json.encode(run))
        arguments = [str(asked), kernel, where, str(budget), str(answer)]
        command = [sys.executable, "-m", "benchmarks.quantised_decoders", *arguments]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=limit)
        except subprocess.TimeoutExpired as error:
            raise ModelError(f"the time limit of {limit:g} s was over") from error
        if not answer.exists():
            raise ModelError((done.stderr.strip().splitlines() or ["no output"])[-1])
        found: dict[str, Any] = msgspec.json.decode(answer.read_bytes())
        return found


def main() -> None:
    asked, kernel, where, budget, answer = sys.argv[1:]
    run = msgspec.json.decode(Path(asked).read_bytes(), type=Run)
    try:
        found = timed(run, kernel, where, float(budget))
    except RooflensError as error:
        sys.exit(str(error))
    Path(answer).write_bytes(msgspec.json.encode(found))


if __name__ == "__main__":
    main()
