"""Time by operation and module, as a profiler saw it: of one run made here, or from a trace file.

>>> from rooflens.sources import profile
>>> profile.records(step, case, "cpu")  # doctest: +SKIP
>>> profile.records_of(profile.attribute(profile.read_trace("trace.json.gz")), case)  # doctest: +SKIP
"""

from rooflens.sources.profile.attribution import Share, attribute
from rooflens.sources.profile.chrome import parse_trace, read_trace
from rooflens.sources.profile.events import DeviceActivity, Events, HostOperation, Launch, Range
from rooflens.sources.profile.operation_records import is_attributed, records_of
from rooflens.sources.profile.places import Place
from rooflens.sources.profile.run import counted, marked, outside, profiled, records
from rooflens.sources.range_names import module_range, phase_range

__all__ = [
    "DeviceActivity",
    "Events",
    "HostOperation",
    "Launch",
    "Place",
    "Range",
    "Share",
    "attribute",
    "counted",
    "is_attributed",
    "marked",
    "module_range",
    "outside",
    "parse_trace",
    "phase_range",
    "profiled",
    "read_trace",
    "records",
    "records_of",
]
