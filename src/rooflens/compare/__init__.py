"""Comparison: records joined, ratios with intervals, correlations. One module per question.

======================================  ==============================================================================
:func:`~rooflens.compare.runs.compare_runs`           two runs of the same steps: slower, faster, or chance?
:func:`~rooflens.compare.agreement.compare_evidence`  estimate against measurement, profile and counters: which errors?
:func:`~rooflens.compare.kernel_pairs.compare_kernels`     two files of kernels, launch against launch
:func:`~rooflens.compare.devices.compare_devices`     the same steps on several devices: speed-up, per watt, per price
:func:`~rooflens.compare.ranking.ranked`              which device, at what batch?
:func:`~rooflens.compare.correlation.correlations`    do FLOP, parameters or bytes tell how long a model takes?
:func:`~rooflens.compare.growth.exponents`           with which power does time grow with batch, FLOP ...?
:func:`~rooflens.compare.phases.phase_ratios`         forward to backward
:func:`~rooflens.compare.throughput.sweeps`           throughput against batch, and its knee
:func:`~rooflens.compare.asked.asked_numbers`         times of tokens, rates, energies and costs, case beside case
======================================  ==============================================================================

Results are frozen data that tables and figures read. :mod:`~rooflens.compare.statistics` holds what they rest on.
Reads records and devices, runs nothing, needs no torch.
"""

from rooflens.compare.advice import Advice
from rooflens.compare.agreement import Agreement, Joined, compare_evidence
from rooflens.compare.asked import AskedNumber, asked_numbers
from rooflens.compare.correlation import Correlation, correlations
from rooflens.compare.devices import DeviceComparison, compare_devices
from rooflens.compare.environments import differences
from rooflens.compare.growth import Exponent, exponents
from rooflens.compare.kernel_pairs import KernelComparison, compare_kernels
from rooflens.compare.phases import PhaseRatio, phase_ratios
from rooflens.compare.ranking import DeviceRanking, ranked
from rooflens.compare.runs import RunChange, RunComparison, compare_runs
from rooflens.compare.throughput import Sweep, sweeps
from rooflens.compare.timed_cases import COMPARED

Comparison = (
    RunComparison
    | Agreement
    | KernelComparison
    | DeviceComparison
    | DeviceRanking
    | tuple[Correlation, ...]
    | tuple[Exponent, ...]
    | tuple[PhaseRatio, ...]
    | tuple[Sweep, ...]
    | tuple[AskedNumber, ...]
    | tuple[Advice, ...]
)
"""What was compared."""
