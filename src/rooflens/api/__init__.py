"""The public functions: where sources are put together. Each has a twin on the command line."""

from rooflens.api.calibration import calibrate
from rooflens.api.capacity import largest_batch
from rooflens.api.catalogue import device, devices
from rooflens.api.checking import check
from rooflens.api.clusters import run_study_on_cluster
from rooflens.api.comparing import compare
from rooflens.api.counting import count_program, counters
from rooflens.api.drawing import chart, roofline
from rooflens.api.estimation import estimate
from rooflens.api.explaining import explain
from rooflens.api.measurement import measure
from rooflens.api.reading import read
from rooflens.api.regions import region
from rooflens.api.reporting import study_report
from rooflens.api.studies import run_study, study_records, study_status, study_verdicts
from rooflens.api.tables import table

__all__ = [
    "calibrate",
    "chart",
    "check",
    "compare",
    "count_program",
    "counters",
    "device",
    "devices",
    "estimate",
    "explain",
    "largest_batch",
    "measure",
    "read",
    "region",
    "roofline",
    "run_study",
    "run_study_on_cluster",
    "study_records",
    "study_report",
    "study_status",
    "study_verdicts",
    "table",
]
