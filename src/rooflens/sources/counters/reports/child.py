"""The process that reads a report: ``python -m rooflens.sources.counters.reports.child REPORT``.

The package is a library of C++ that gets files of others. Here it can crash, hang or take memory without harm.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from types import ModuleType
from typing import Any

from rooflens.sources.counters.metrics import SHARE, is_fact, is_share, kind_of, needless
from rooflens.sources.counters.reports.protocol import Opened, ReportAnswer, ReportRequest, ReportResult

if sys.platform != "win32":
    import resource

_DEVICE = "launch__device_id"


def main() -> None:
    """Read one request from standard input and answer it; what the library prints goes to standard error."""
    import msgspec

    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    request = msgspec.json.decode(sys.stdin.buffer.readline(), type=ReportRequest)
    _limit(request.memory)
    for answer in _answers(sys.argv[1], request):
        answers.write(msgspec.json.encode(answer) + b"\n")
    answers.flush()


def _limit(memory: int) -> None:
    """Bound what this process may take of memory and write into files (none, but for its standard error)."""
    if sys.platform == "win32":
        return
    limits = ((resource.RLIMIT_AS, memory), (resource.RLIMIT_FSIZE, 2**20), (resource.RLIMIT_CORE, 0))
    for kind, most in limits:
        _, hard = resource.getrlimit(kind)
        with suppress(ValueError, OSError):  # some systems know a limit and do not have it
            resource.setrlimit(kind, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))


def _answers(path: str, request: ReportRequest) -> Iterator[ReportAnswer]:
    try:
        import ncu_report
    except ImportError as error:
        yield ReportAnswer(lacking=str(error))
        return
    try:
        report = ncu_report.load_report(path)
        ranges = [report.range_by_idx(i) for i in range(report.num_ranges())]
        results = [(its, i) for its in ranges for i in range(its.num_actions())]
        yield ReportAnswer(opened=Opened(package=_package(), results=len(results)))
        for number in request.results:
            its, place = results[number]
            result = _result(its.action_by_idx(place), ncu_report)
            if result is None:
                yield ReportAnswer(failed=f"it cannot make sense of result {number + 1}")
                return
            yield ReportAnswer(told=result)
    except (RuntimeError, ValueError, OSError, MemoryError, IndexError, TypeError, AttributeError) as error:
        yield ReportAnswer(failed=f"{type(error).__name__}: {error}")
        return
    yield ReportAnswer(done=True)


def _package() -> str | None:
    with suppress(PackageNotFoundError):
        return version("ncu-report")
    return None


def _result(action: Any, ncu_report: ModuleType) -> ReportResult | None:
    """What rooflens needs of a result; None for a damaged one, for which the library gives an empty one."""
    name, names = action.name(ncu_report.IAction.NameBase_DEMANGLED), action.metric_names()
    if name is None or not names:
        return None
    facts, values = _needed(names)
    device = action.metric_by_name(_DEVICE)
    return ReportResult(
        name=_text(name),
        device="" if device is None else _text(device.value()),
        ranges=_ranges(action.nvtx_state()),
        facts={name: _text(action.metric_by_name(name).value()) for name in facts},
        values={
            name: _unit_and_value(metric)
            for name, metric in ((name, action.metric_by_name(name)) for name in values)
            # A share of each of many instances: its value as a whole is none.
            if kind_of(name) is not None or not metric.num_instances()
        },
    )


@lru_cache(maxsize=256)
def _needed(names: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Of these metrics, the facts and the values that are read; most launches of a report have the same ones."""
    facts = tuple(filter(is_fact, names))
    counters = (name for name in names if kind_of(name) is not None or (SHARE in name and is_share(name)))
    more = needless(names)
    return facts, tuple(name for name in counters if name not in more or SHARE in name)


def _unit_and_value(metric: Any) -> tuple[str, int | float | None]:
    """A number is whole where it can be; None is none."""
    value = metric.value() if metric.has_value() else None
    if isinstance(value, float):
        value = int(value) if value.is_integer() and abs(value) < 2**63 else value if math.isfinite(value) else None
    return _text(metric.unit()), value if isinstance(value, int | float) else None


def _ranges(state: Any) -> tuple[str, ...]:
    """Started ranges, then pushed ones."""
    domains = [] if state is None else [state.domain_by_id(number) for number in state.domains()]
    started = [_text(name) for domain in domains for name in domain.start_end_ranges()]
    return (*started, *(_text(name) for domain in domains for name in domain.push_pop_ranges()))


def _text(value: Any) -> str:
    """Text that can be written as UTF-8, whatever bytes a file has in its place."""
    return str(value).encode(errors="replace").decode()


if __name__ == "__main__":
    main()
