"""Records gathered: totals by case, phase, module and family, with bounds on the devices that the cases name."""

from rooflens.results.fits import Fit, Fits
from rooflens.results.recordset import RecordSet
from rooflens.results.totals import UNATTRIBUTED, Coverage, Group, Total

__all__ = ["UNATTRIBUTED", "Coverage", "Fit", "Fits", "Group", "RecordSet", "Total"]
