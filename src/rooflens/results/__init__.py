"""Records gathered: totals by case, phase, module and family, evidence joined, and the quantities that both tell."""

from rooflens.results.evidence import Evidence, Measured, join
from rooflens.results.factors import TIMES, Time
from rooflens.results.fits import Fit, Fits, TimeLimit
from rooflens.results.quantities import QUANTITIES
from rooflens.results.quantity import Quantity, Reading
from rooflens.results.recordset import GROUP_KEYS, RecordSet
from rooflens.results.room import Room
from rooflens.results.totals import UNATTRIBUTED, Coverage, Group, Surplus, Total
from rooflens.results.work_sum import WorkSum
