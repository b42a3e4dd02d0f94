"""Time by operation and module, as a profiler saw it.

A step is profiled here by :mod:`rooflens.sources.profile.profiled_step`, which needs torch; reading traces does not.

>>> from rooflens.sources import profile
>>> profile.records_of(profile.attribute(profile.read_trace("trace.json.gz")), case)  # doctest: +SKIP
"""

from rooflens.sources.profile.attribution import TimeShare, attribute
from rooflens.sources.profile.chrome import read_trace
from rooflens.sources.profile.operation_records import records_of
from rooflens.sources.profile.places import outside
from rooflens.sources.profile.steps import MarkedSteps
