"""What hardware counted, from files that Nsight Compute wrote.

>>> reading = counters.CounterReading("report.csv")  # doctest: +SKIP
>>> counters.found_in(counters.launches(Path("report.csv"), reading), reading, lambda chip: case)  # doctest: +SKIP
"""

from rooflens.sources.counters.counter_cells import CounterReading
from rooflens.sources.counters.launch_records import UNEVEN, Chip, CounterFile, found_in
from rooflens.sources.counters.printed import launches, parse
from rooflens.sources.counters.reports import REPORT_SIGN
from rooflens.sources.counters.statements import Statement, parse_statement, stated, statement
from rooflens.sources.counters.work import short
