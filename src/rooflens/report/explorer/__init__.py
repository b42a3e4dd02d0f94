"""One page in which a person chooses among records and sees roofline, tables, ranking and memory change at once."""

from rooflens.report.explorer.document import Explorer
from rooflens.report.explorer.explored import explored
