"""Measures the ceilings of this machine: the highest rate that any of several calls reaches.

A ceiling is what the machine can do, not what it usually does. So the best of several shapes, sizes and layouts counts,
and the shortest of its samples. One file per kind of ceiling.
"""

from rooflens.sources.calibrate.run import calibrate
from rooflens.sources.calibrate.trial_sizes import SIZES, TrialSizes
