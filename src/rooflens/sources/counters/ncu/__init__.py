"""Nsight Compute, driven: which counters to collect, and a program that runs under it."""

from rooflens.sources.counters.ncu.card import capability
from rooflens.sources.counters.ncu.collecting import CollectedReport, NcuRun, started
from rooflens.sources.counters.ncu.sets import metric_groups, metric_set
from rooflens.sources.counters.ncu.tool import CACHES, Tool, find
