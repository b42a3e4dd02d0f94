"""The ceilings of this machine, measured: the highest rate that any of several calls reaches.

A ceiling is what the machine can do, not what it usually does, so the best of several shapes, sizes and layouts counts,
and of its samples the shortest. One file per kind of ceiling.
"""

from rooflens.sources.calibrate.plan import PLANS, Plan
from rooflens.sources.calibrate.run import calibrate

__all__ = ["PLANS", "Plan", "calibrate"]
