"""Time by operation and module, as a profiler saw it.

A step is profiled here by :mod:`rooflens.sources.profile.profiled_step`, which needs torch; reading traces does not.

>>> from rooflens.sources import profile
>>> profile.records_of(profile.attribute(profile.read_trace("trace.json.gz")), case)  # doctest: +SKIP
"""

from rooflens.sources.profile.attribution import TimeShare, attribute
from rooflens.sources.profile.chrome import parse_trace, read_trace
from rooflens.sources.profile.events import DeviceActivity, Events, HostOperation, LaunchCall, NamedRange
from rooflens.sources.profile.operation_records import is_attributed, records_of
from rooflens.sources.profile.places import EventPlace, outside
from rooflens.sources.range_names import module_range, phase_range

__all__ = [
    "DeviceActivity",
    "EventPlace",
    "Events",
    "HostOperation",
    "LaunchCall",
    "NamedRange",
    "TimeShare",
    "attribute",
    "is_attributed",
    "module_range",
    "outside",
    "parse_trace",
    "phase_range",
    "read_trace",
    "records_of",
]
