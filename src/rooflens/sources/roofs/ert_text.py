"""The output of the Empirical Roofline Tool: a run (``try.001``), its summary (``sum``), and the final report."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from rooflens.errors import FileError
from rooflens.records import Device
from rooflens.sources.roofs.ceilings import NamedRoof, Roofs, named_roof, number, rate
from rooflens.sources.roofs.ert import measured
from rooflens.units import show

_VALUE = r"\d+(?:\.\d*)?(?:[eE][+-]?\d{1,3})?"
FIRST_RATE = re.compile(rf"{_VALUE}\s+(?:\w+\s+)?GFLOPs(?:\s+EMP)?", re.ASCII)
"""How the summary and the report begin."""
TRIAL = re.compile(rf"(\d+)\s+(\d+)\s+({_VALUE})\s+(\d+)\s+(\d+)", re.ASCII)
"""Working set in bytes, trials, microseconds, bytes, FLOP."""
_RATE = re.compile(rf"({_VALUE})\s+(\S.*?)(?:\s+EMP)?", re.ASCII)
_SETTING = re.compile(r"[A-Z][A-Z_]+\b.*")
_END = "META_DATA"
_DIGITS = 19


def from_text(text: str, path: Path, _: str, told: Device | None) -> Roofs:
    """Return the ceilings in what the tool printed.

    Raises:
        FileError: a line is none of its lines, or two tell different rates of one level.
    """
    where = repr(str(path))
    lines = [(n, line.strip()) for n, line in enumerate(text.splitlines(), start=1) if line.strip()]
    words = {line.split()[0] for _, line in lines}
    if _END not in words:
        raise FileError(f"{where} was cut: the tool ends its output with {_END}, and this has none")
    gpu = "GPU_BLOCKS" in words
    numbers = [(n, line) for n, line in lines if not _SETTING.fullmatch(line)]
    of_trials = bool(numbers) and TRIAL.fullmatch(numbers[0][1]) is not None
    compute, memory = _of_trials(numbers, where, gpu) if of_trials else _of_rates(numbers, where)
    return measured(compute, memory, gpu=gpu, title=path.stem or path.name, told=told, where=where)


def _of_rates(lines: Sequence[tuple[int, str]], where: str) -> tuple[list[NamedRoof], list[NamedRoof]]:
    compute: list[NamedRoof] = []
    memory: list[NamedRoof] = []
    seen: dict[str, int] = {}
    for n, line in lines:
        match = _RATE.fullmatch(line)
        if match is None:
            raise FileError(f"{where}, line {n}: {line[:60]!r} is no rate of the Empirical Roofline Tool")
        name, place = match[2], f"line {n}"
        if name in seen:
            raise FileError(
                f"{where}: lines {seen[name]} and {n} both tell {name!r}; these are several runs, read roofline.json"
            )
        seen[name] = n
        if name == "Weight":  # how long the run's plateaus are, by which the tool chooses between runs
            number(match[1], f"{where}, line {n}")
        else:
            computes, speed = "GFLOPs" in name, rate(match[1], f"{where}, line {n}")
            (compute if computes else memory).append(named_roof(name, place, speed, computes=computes))
    return compute, memory


def _of_trials(lines: Sequence[tuple[int, str]], where: str, gpu: bool) -> tuple[list[NamedRoof], list[NamedRoof]]:
    """The best rates of one run: of arithmetic, of the fastest working set, and of the largest one."""
    best: dict[int, float] = {}
    flops = 0.0
    for size, speed, performance in _trials(lines, where):
        best[size], flops = max(best.get(size, 0.0), speed), max(flops, performance)
    roofs = [NamedRoof(name="best of the run", place="trials", rate=flops, resource="vector.fp64")] if flops else []
    if not any(best.values()):
        return roofs, []
    largest, fastest = max(best), max(best, key=lambda size: best[size])
    sizes = {"dram": largest} if largest == fastest else {("l2" if gpu else "l1"): fastest, "dram": largest}
    memory = [
        NamedRoof(name=f"working set of {show(size, 'B')}", place="trials", rate=best[size], resource=level)
        for level, size in sizes.items()
        if best[size]
    ]
    return roofs, memory


def _trials(lines: Sequence[tuple[int, str]], where: str) -> Iterator[tuple[int, float, float]]:
    """Working set in bytes, B/s and FLOP/s of each run; bytes and FLOP per byte of the set are the same in all."""
    shape: tuple[float, float] | None = None
    for n, line in lines:
        match = TRIAL.fullmatch(line)
        if match is None or max(map(len, match.groups())) > _DIGITS:
            raise FileError(
                f"{where}, line {n}: {line[:60]!r} is no run; working set, trials, us, bytes and FLOP belong there"
            )
        size, trials, nbytes, flops = (int(match[k]) for k in (1, 2, 4, 5))
        passed = size * trials
        ratios = (nbytes / passed, flops / passed) if passed else None
        shape = shape or ratios
        if ratios is None or ratios != shape:
            raise FileError(
                f"{where}, line {n}: {nbytes} bytes and {flops} FLOP do not belong to {trials} x {size} bytes"
            )
        seconds = number(match[3], f"{where}, line {n}") * 1e-6
        if seconds:  # else a run too short for the clock
            yield size, nbytes / seconds, flops / seconds
