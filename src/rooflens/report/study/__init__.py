"""The report of a study: sections as data, then a page, Markdown or LaTeX, and every figure and table on its own."""

from rooflens.report.study.content import Report
from rooflens.report.study.report import compose
from rooflens.report.study.view import StudyView
