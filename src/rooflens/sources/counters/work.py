"""Work and time of a launch, from its counters."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache

from rooflens.records import Timing, Work
from rooflens.sources.counters.flops import counted
from rooflens.sources.counters.launches import CounterNames
from rooflens.sources.counters.metrics import TIME, ByteFormula, traffic
from rooflens.sources.counters.printed_numbers import CounterValue

_SECTOR = 32
_LENGTH = re.compile(r"\d{1,3}")
_FAR_BELOW = 0.5
_TMA = 9.0
"""Compute capability from which tensor kernels load past L1TEX's tags."""
_READS_AND_WRITES = tuple((f"dram__bytes{op}_read.sum", f"dram__bytes{op}_write.sum") for op in ("", "_op"))
_DISAGREE = 0.2
"""Passes of a kernel hardly differ by more of its traffic."""
_WRITES = ("dram__bytes_write.sum", "dram__bytes_op_write.sum")
_NO_L1 = (
    "l1 bytes miss what went past L1TEX's tags (loads by TMA of wgmma kernels): they are far below the l2 bytes, and an"
    " intensity at l1 means nothing"
)
_IN_CACHE = "writes were still in L2 at the end of a kernel: dram bytes are less than it wrote"


def work_of(
    name: str, names: CounterNames, counters: Mapping[str, CounterValue], cc: str | None
) -> tuple[Work | None, tuple[str, ...]]:
    """Return the work of a launch, None where its counters tell nothing, and notes.

    A level without a complete set of counters is not named; FLOP that are not known are `missing` under the kernel's
    short name.
    """
    flop = counted(name, names, counters, cc)
    levels, notes = bytes_of(names, counters)
    if not flop.flops and not levels:
        return None, (*flop.notes, *notes) if counters else ()
    notes += _doubts(flop.flops, levels, counters, cc)
    work = Work(
        flops={resource: n for resource, n in flop.flops.items() if n},
        bytes=levels,
        origin="executed",
        missing=missing(name) if flop.unknown else frozenset(),
    )
    return work, (*flop.notes, *notes)


def bytes_of(names: CounterNames, counters: Mapping[str, CounterValue]) -> tuple[dict[str, float], list[str]]:
    """Return bytes by level, and notes on their definitions."""
    levels: dict[str, float] = {}
    notes = []
    for way in _ways(names):
        if way.level in levels:
            continue
        total: float = 0
        for metric, factor in way.terms.items():
            value = counters[metric]
            if value is None:
                break
            total += factor * value
        else:
            levels[way.level] = total
            if way.note:
                notes.append(way.note)
    return levels, [*notes, *(note for level, note in _halves(names) if level not in levels)]


@lru_cache(maxsize=1024)
def _halves(names: CounterNames) -> tuple[tuple[str, str], ...]:
    """Levels of which these counters tell a part, each with a note that names what lacks."""
    have = frozenset(names.all)
    parts = {way.level: sorted(way.terms.keys() - have) for way in traffic() if 0 < len(way.terms.keys() & have)}
    notes = {
        level: f"{level} bytes are unknown: {', '.join(lacking)} was not collected" for level, lacking in parts.items()
    }
    return tuple((level, notes[level]) for level, lacking in parts.items() if lacking)


@lru_cache(maxsize=1024)
def _ways(names: CounterNames) -> tuple[ByteFormula, ...]:
    """The formulas of bytes for which these counters are enough."""
    return tuple(way for way in traffic() if set(way.terms) <= set(names.all))


def seconds_of(counters: Mapping[str, CounterValue]) -> float | None:
    """Return the duration of a launch: ncu's own, else cycles over clock."""
    duration = counters.get(TIME)
    if duration is not None:
        return float(duration)
    cycles, clock = counters.get("sm__cycles_elapsed.avg"), clock_of(counters)
    return None if cycles is None or not clock else cycles / clock


def clock_of(counters: Mapping[str, CounterValue]) -> float | None:
    """Return the SM clock during the launch, Hz."""
    clock = counters.get("sm__cycles_elapsed.avg.per_second")
    if clock is not None:
        return float(clock)
    cycles, duration = counters.get("sm__cycles_elapsed.avg"), counters.get(TIME)
    return None if cycles is None or not duration else cycles / duration


def timing_of(counters: Mapping[str, CounterValue]) -> Timing | None:
    """Return the duration as a timing, None where it is unknown."""
    seconds = seconds_of(counters)
    return None if seconds is None else Timing(samples=(seconds,), origin="ncu")


@lru_cache(maxsize=65536)
def short(name: str) -> str:
    """Return the name of a kernel's function, without namespace, result, template and parameters.

    >>> short("void at::native::relu<float, Op<(int)4>>(int, T2)"), short("ampere_sgemm_128x64_tn")
    ('relu', 'ampere_sgemm_128x64_tn')
    >>> short("_ZN7cutlass4conv6KernelINS_3ArgEEEvT_")  # as the compiler writes it: some profilers do not read it
    'Kernel'
    """
    if name.startswith("_Z") and (parts := _mangled(name)):
        return parts[-1]
    kept, depth = [], 0
    text = name.replace("(anonymous namespace)", "").replace("<unnamed>", "").replace("->", "")
    for character in text:
        depth += character in "<([{"
        if depth == 0:
            kept.append(character)
        elif character == "(" and depth == 1 and "".join(kept).strip():
            break
        depth -= character in ">)]}" and depth > 0
    words = "".join(kept).rsplit("::", 1)[-1].split()
    return words[-1] if words else name


def _mangled(name: str) -> list[str]:
    """The namespaces and the name of a function in the compiler's spelling: each has its length before it."""
    parts, rest = [], name.removeprefix("_Z").removeprefix("N")
    while (size := _LENGTH.match(rest)) is not None and size.end() + int(size[0]) <= len(rest):
        parts.append(rest[size.end() : size.end() + int(size[0])])
        rest = rest[size.end() + int(size[0]) :]
    return parts


@lru_cache(maxsize=4096)
def missing(name: str) -> frozenset[str]:
    """Return the name of a kernel whose FLOP are unknown, as work has it: one set for all of its launches."""
    return frozenset({short(name)})


def _doubts(
    flops: Mapping[str, CounterValue], levels: Mapping[str, float], counters: Mapping[str, CounterValue], cc: str | None
) -> list[str]:
    """Notes on levels at which the counters do not tell what a kernel moved."""
    notes = []
    few = "l1" in levels and levels["l1"] < _FAR_BELOW * levels.get("l2", 0)
    if few and (cc is None or float(cc) >= _TMA) and any(flops[name] for name in flops if name.startswith("matmul.")):
        notes.append(_NO_L1)
    through = counters.get("lts__t_sectors_srcunit_tex_op_write.sum")
    if through:
        written = next((value for metric in _WRITES if (value := counters.get(metric)) is not None), None)
        if written is not None and written < _FAR_BELOW * _SECTOR * through:
            notes.append(_IN_CACHE)
    whole = counters.get("dram__bytes.sum")
    for reads, writes in _READS_AND_WRITES:
        read, written = counters.get(reads), counters.get(writes)
        if whole is None or read is None or written is None:
            continue
        if abs(read + written - whole) > _DISAGREE * max(whole, read + written):
            notes.append(f"dram__bytes.sum is {whole:g}, and {reads} and {writes} add up to {read + written:g}")
    return notes
