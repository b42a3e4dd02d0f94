"""Reports of Nsight Compute (``.ncu-rep``), by the package ncu-report, which runs in processes of its own."""

from rooflens.sources.counters.reports.outline import REPORT_SIGN
from rooflens.sources.counters.reports.supervisor import launches_of
