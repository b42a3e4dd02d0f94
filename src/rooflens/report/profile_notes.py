"""What a reader of a profile has to know: how long its device waited, and what the file does not tell."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rooflens.report.case_names import differing, name_of
from rooflens.report.table import percent
from rooflens.results import Evidence
from rooflens.results.quantities import EFFICIENCY
from rooflens.units import show

MOSTLY = 0.5
"""Share of its span from which a device counts as mostly idle."""
_UNNAMED = (
    "the file does not tell which step ran (without phases it counts as inference): say it with --model, -b, --mode,"
    " --dtype (of a language model --seq-len), and its estimate can stand beside"
)


def profile_notes(evidence: Sequence[Evidence]) -> Iterator[str]:
    """Yield for each profile how idle its device was and what its efficiency is of, and what to say of the step."""
    fields = differing([item.case for item in evidence])
    for item in evidence:
        measured = item.measured()
        if measured is None or measured.span is None or measured.idle is None:
            continue
        whose = f"{name_of(item.case, fields)}: " if len(evidence) > 1 else ""
        if measured.idle > MOSTLY:
            yield (
                f"{whose}the device was idle for {percent(measured.idle)} of {show(measured.span, 's')}, from its first"
                " kernel to the end of its last: it waited for the host. A CUDA graph, compiling or a larger batch"
                " helps; a profiler slows the host, so without one the share is smaller"
            )
        reached = EFFICIENCY.read(item).value
        if reached is not None:
            over = percent(reached * measured.seconds / measured.span)
            yield f"{whose}efficiency: bound over the time in which the device was busy; over its span it is {over}"
    if any(item.unnamed for item in evidence):
        yield _UNNAMED
