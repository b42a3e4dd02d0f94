"""The report of a study: sections as data, then a page, Markdown or LaTeX, and every figure and table on its own."""

from rooflens.report.study.content import Judged, Report, StudyView
from rooflens.report.study.report import compose

__all__ = ["Judged", "Report", "StudyView", "compose"]
