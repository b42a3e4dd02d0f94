"""Figures that somebody reported: read from a CSV file, the right values of their steps, and ours beside them."""

from rooflens.reported.compared_figures import ComparedFigure, compare_figures
from rooflens.reported.csv_file import holds_figures, read_figures
from rooflens.reported.figures import QUANTITIES, DeviceAliases, ReportedFigure, recorded
from rooflens.reported.right_values import RightValues, of_shortest, spelled_like
